/* Mixtral (MixtralConfig): Mistral's attention, and a mixture of experts in every layer. */
#include "model/mixture.h"

/* transformers' names of modules differ from those of its files, which are those of its first versions. */
static const struct tt_param_source sources[] = {
    TT_MIXTRAL_SOURCES,
    {.param = NULL},
};

static tt_status parse(const struct tt_json *json, struct tt_model_facts *facts)
{
    struct tt_dense_mixture *own = TT_FAMILY_OWN(facts, struct tt_dense_mixture);
    struct tt_mixture *mixture = &own->mixture;
    struct tt_decoder_defaults defaults = {
        .vocab = 32000, .heads = 32, .kv_heads = 8, .positions = 131072, .rope_theta = 1e6};
    struct tt_mixture_defaults experts = {
        .count = 8, .slots = 2, .ffn = 14336, .ffn_key = "intermediate_size"};
    TT_TRY(tt_dense_parse(json, &defaults, 1e-5, NULL, facts));
    TT_TRY(tt_mixture_parse(json, &experts, facts, mixture));
    TT_TRY(tt_mixture_parse_balance(json, 0.001, mixture, facts));
    mixture->rule = (struct tt_route_rule){.score = TT_ROUTE_SOFTMAX, .normalizes = true};
    TT_TRY(tt_mixture_refuse_jitter(json));
    if (tt_json_get(json->root, "sliding_window") == NULL) return TT_OK;
    return tt_dense_parse_windows(json, 0, facts);
}

static void build(const struct tt_model_facts *facts, struct tt_builder *builder)
{
    static const struct tt_attention_names attention = {TT_ATTENTION_NAMES};
    tt_mixture_build(facts, builder, &attention, &tt_mixture_names);
}

static void add_keys(const struct tt_model_facts *facts, struct tt_gguf_keys *keys)
{
    const struct tt_mixture *mixture = &TT_FAMILY_OWN_CONST(facts, struct tt_dense_mixture)->mixture;
    tt_dense_gguf_keys(facts, keys);
    tt_mixture_gguf_keys(mixture, false, keys);
    tt_gguf_add_u32(keys, "feed_forward_length", mixture->ffn);
}

static const char *cannot(const struct tt_model_facts *facts)
{
    return tt_dense_mixture_cannot(facts, true);
}

static const struct tt_gguf_family gguf = {
    .name = "llama", .pairs = true, .add_keys = add_keys, .cannot = cannot};

const struct tt_model_family tt_family_mixtral = {
    .model_type = "mixtral",
    .architecture = "MixtralForCausalLM",
    .gguf = &gguf,
    .older_experts = &tt_mixtral_older,
    .sources = sources,
    .parse = parse,
    .build = build,
};
