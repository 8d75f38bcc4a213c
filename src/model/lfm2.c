/* LFM2 and LFM2.5, dense (Lfm2Config): layers with a short convolution between two gates beside those of attention,
 * whose q and k are normed, and names of its own. */
#include "model/family.h"

#include "backend/ops/conv1d.h"

struct lfm2 {
    struct tt_decoder_shape shape;
    bool conv_bias;
};

static const struct tt_attention_names attention_names = {.module = "self_attn",
                                                          .q = "self_attn.q_proj",
                                                          .k = "self_attn.k_proj",
                                                          .v = "self_attn.v_proj",
                                                          .o = "self_attn.out_proj",
                                                          .q_norm = "self_attn.q_layernorm",
                                                          .k_norm = "self_attn.k_layernorm",
                                                          .norm = "operator_norm"};
static const struct tt_mlp_names mlp_names = {.module = "feed_forward",
                                              .gate = "feed_forward.w1",
                                              .up = "feed_forward.w3",
                                              .down = "feed_forward.w2",
                                              .norm = "ffn_norm"};

/* Two thirds of the width, times a factor, rounded up to a multiple; or the width as it is. */
static tt_status parse_width(const struct tt_json *json, struct tt_decoder_shape *shape)
{
    bool adjust = true;
    int64_t multiple = 256;
    double factor = 1;
    TT_TRY(tt_json_opt_int(json, json->root, "block_ff_dim", &shape->ffn)); /* of older files */
    TT_TRY(tt_json_opt_bool(json, json->root, "block_auto_adjust_ff_dim", &adjust));
    TT_TRY(tt_json_opt_int(json, json->root, "block_multiple_of", &multiple));
    TT_TRY(tt_json_opt_double(json, json->root, "block_ffn_dim_multiplier", &factor));
    TT_TRY(tt_family_check_range(json, "block_ff_dim", shape->ffn, 1, 1 << 22));
    TT_TRY(tt_family_check_range(json, "block_multiple_of", multiple, 1, 1 << 22));
    TT_TRY(tt_family_check_positive(json, "block_ffn_dim_multiplier", factor, 64));
    if (!adjust) return TT_OK;
    const struct tt_json_value *given = tt_json_get(json->root, "block_ffn_dim_multiplier");
    shape->ffn = (int64_t)((double)(2 * shape->ffn) / 3);
    if (given != NULL && tt_json_is_null(given))
        return tt_family_check_range(json, "the width", shape->ffn, 1, 1 << 22);
    shape->ffn = (int64_t)(factor * (double)shape->ffn);
    shape->ffn = (shape->ffn + multiple - 1) / multiple * multiple;
    return TT_OK;
}

/* full_attn_idxs, of files without layer_types: the layers of attention; without both all are. */
static tt_status read_attention_layers(const struct tt_json *json, const struct tt_model_facts *facts,
                                       bool conv[TT_MODEL_LAYERS_MAX])
{
    const struct tt_json_value *list = tt_json_get(json->root, "full_attn_idxs");
    bool given = list != NULL && !tt_json_is_null(list);
    for (int64_t i = 0; i < facts->num_hidden_layers; i++) conv[i] = given;
    if (!given) return TT_OK;
    TT_TRY(tt_json_array(json, json->root, "full_attn_idxs", &list));
    for (size_t i = 0; i < tt_json_count(list); i++) {
        const struct tt_json_value *value = tt_json_at(list, i);
        int64_t layer = tt_json_is_integer(value) ? tt_json_integer(value) : -1;
        TT_TRY(tt_family_check_range(json, "full_attn_idxs", layer, 0, facts->num_hidden_layers - 1));
        conv[layer] = false;
    }
    return TT_OK;
}

static tt_status parse_layers(const struct tt_json *json, struct tt_model_facts *facts)
{
    static const char *const names[] = {"full_attention", "conv"};
    bool conv[TT_MODEL_LAYERS_MAX];
    int64_t kernel = 3;
    TT_TRY(tt_json_opt_int(json, json->root, "conv_L_cache", &kernel));
    TT_TRY(tt_family_check_range(json, "conv_L_cache", kernel, 2, TT_CONV1D_KERNEL_MAX));
    TT_TRY(read_attention_layers(json, facts, conv));
    TT_TRY(tt_family_parse_layer_kinds(json, "layer_types", facts, names, conv));
    for (int64_t i = 0; i < facts->num_hidden_layers; i++)
        if (conv[i])
            facts->layers[i] = (struct tt_layer_facts){
                .rope = -1, .state = {.conv_rows = kernel - 1, .conv_columns = facts->hidden_size}};
    return TT_OK;
}

static tt_status parse(const struct tt_json *json, struct tt_model_facts *facts)
{
    struct lfm2 *lfm = TT_FAMILY_OWN(facts, struct lfm2);
    struct tt_decoder_defaults defaults = {
        .vocab = 65536, .heads = 32, .kv_heads = 8, .ffn = 12288, .positions = 128000, .norm_eps = 1e-5};
    if (tt_json_get(json->root, "tie_word_embeddings") == NULL) facts->tie_word_embeddings = true;
    TT_TRY(tt_json_opt_bool(json, json->root, "tie_embedding", &facts->tie_word_embeddings));
    TT_TRY(tt_family_parse_shape(json, &defaults, facts, &lfm->shape));
    TT_TRY(tt_json_opt_double(json, json->root, "norm_eps", &lfm->shape.norm_eps));
    TT_TRY(tt_family_check_positive(json, "norm_eps", lfm->shape.norm_eps, 1));
    TT_TRY(parse_width(json, &lfm->shape));
    TT_TRY(tt_json_opt_bool(json, json->root, "conv_bias", &lfm->conv_bias));
    TT_TRY(parse_layers(json, facts));
    facts->rope_count = 1;
    struct tt_rope_rules rules = {.head_dim = lfm->shape.head_dim, .theta = 1e6};
    return tt_family_parse_rope(json, &rules, facts, &facts->ropes[0]);
}

static void build(const struct tt_model_facts *facts, struct tt_builder *builder)
{
    const struct lfm2 *lfm = TT_FAMILY_OWN_CONST(facts, struct lfm2);
    const struct tt_decoder_shape *shape = &lfm->shape;
    struct tt_attention_spec attention = {
        .names = &attention_names, .heads = shape->heads, .norm_eps = shape->norm_eps, .qk_norm = true};
    struct tt_mlp_spec mlp = {.names = &mlp_names, .ffn = shape->ffn, .norm_eps = shape->norm_eps};
    struct tt_short_conv_spec conv = {.module = "conv",
                                      .in = "conv.in_proj",
                                      .conv = "conv.conv",
                                      .out = "conv.out_proj",
                                      .norm = "operator_norm",
                                      .norm_eps = shape->norm_eps,
                                      .bias = lfm->conv_bias};
    tt_build_decoder(builder, facts,
                     &(struct tt_decoder_spec){.attention = &attention,
                                               .mlp = &mlp,
                                               .short_conv = &conv,
                                               .embedding_scale = 1,
                                               .norm = {.path = "embedding_norm", .eps = shape->norm_eps}});
}

static const struct tt_gguf_name gguf_names[] = {
    {"model.embedding_norm", "token_embd_norm", false},
    {"operator_norm", "attn_norm", false},
    {"ffn_norm", "ffn_norm", false},
    {"self_attn.out_proj", "attn_output", false},
    {"self_attn.q_layernorm", "attn_q_norm", false},
    {"self_attn.k_layernorm", "attn_k_norm", false},
    {"feed_forward.w1", "ffn_gate", false},
    {"feed_forward.w3", "ffn_up", false},
    {"feed_forward.w2", "ffn_down", false},
    {"conv.conv", "shortconv.conv", false},
    {"conv.in_proj", "shortconv.in_proj", false},
    {"conv.out_proj", "shortconv.out_proj", false},
    {NULL, NULL, false},
};

static int32_t kv_heads(const struct tt_model_facts *facts, int64_t layer)
{
    return (int32_t)facts->layers[layer].kv_heads;
}

/* Rows of the convolutions, the token's own included. */
static int64_t kernel_of(const struct tt_model_facts *facts)
{
    int64_t rows = 0;
    for (int64_t i = 0; i < facts->num_hidden_layers && rows == 0; i++)
        rows = facts->layers[i].state.conv_rows;
    return rows + 1;
}

static void add_keys(const struct tt_model_facts *facts, struct tt_gguf_keys *keys)
{
    tt_gguf_add_decoder(facts, &TT_FAMILY_OWN_CONST(facts, struct lfm2)->shape, keys);
    tt_gguf_add_layers_i32(keys, "attention.head_count_kv", kv_heads);
    tt_gguf_add_u32(keys, "shortconv.l_cache", kernel_of(facts));
}

static const char *cannot(const struct tt_model_facts *facts)
{
    if (TT_FAMILY_OWN_CONST(facts, struct lfm2)->conv_bias) return "conv_bias of this model type";
    return kernel_of(facts) == 1 ? "a model of this type without a convolution" : NULL;
}

static const struct tt_gguf_family gguf = {
    .name = "lfm2", .names = gguf_names, .add_keys = add_keys, .cannot = cannot};

const struct tt_model_family tt_family_lfm2 = {
    .model_type = "lfm2",
    .architecture = "Lfm2ForCausalLM",
    .gguf = &gguf,
    .parse = parse,
    .build = build,
};
