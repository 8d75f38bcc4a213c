/* Ministral 3 (Ministral3Config): Llama with YaRN, a temperature of queries by position, and a window over all layers
 * where sliding_window is not null. */
#include "model/dense.h"

enum { ROPE_KEYS, ROPE_QUERIES, ROPE_COUNT };

static bool has(const struct tt_json *json, const char *key)
{
    const struct tt_json_value *value = tt_json_get(json->root, key);
    return value != NULL && !tt_json_is_null(value);
}

/* Ministral3Config without rope_parameters. */
static const struct tt_rope default_rope = {.type = TT_ROPE_YARN,
                                            .theta = 1e6,
                                            .factor = 16,
                                            .original_max_position = 16384,
                                            .attention_factor = 1,
                                            .beta_fast = 32,
                                            .beta_slow = 1,
                                            .truncate = true,
                                            .temperature = 0.1};

static tt_status parse_rotations(const struct tt_json *json, struct tt_model_facts *facts)
{
    static const char *const keys[] = {"rope_scaling", "rope_parameters"};
    struct tt_rope *rope = &facts->ropes[ROPE_KEYS], *queries = &facts->ropes[ROPE_QUERIES];
    int64_t columns = rope->columns;
    if (!has(json, keys[0]) && !has(json, keys[1])) {
        *rope = default_rope;
        rope->columns = columns;
    }
    for (int i = 0; i < 2; i++) {
        const struct tt_json_value *object = tt_json_get(json->root, keys[i]);
        if (!tt_json_is_object(object)) continue;
        TT_TRY(tt_json_opt_double(json, object, "llama_4_scaling_beta", &rope->temperature));
        TT_TRY(
            tt_json_opt_int(json, object, "original_max_position_embeddings", &rope->original_max_position));
    }
    *queries = *rope;
    rope->temperature = 0;
    if (queries->temperature == 0) return TT_OK;
    facts->rope_count = ROPE_COUNT;
    TT_FAMILY_OWN(facts, struct tt_dense)->query_rope = ROPE_QUERIES;
    TT_TRY(tt_family_check_positive(json, "llama_4_scaling_beta", queries->temperature, 1e3));
    return tt_family_check_range(json, "original_max_position_embeddings", queries->original_max_position, 1,
                                 INT32_MAX);
}

static tt_status parse(const struct tt_json *json, struct tt_model_facts *facts)
{
    struct tt_decoder_defaults defaults = {
        .kv_heads = 8, .head_dim = 128, .positions = 262144, .rope_theta = 1e4};
    int64_t window = 0;
    TT_TRY(tt_dense_parse(json, &defaults, 1e-5, NULL, facts));
    TT_TRY(parse_rotations(json, facts));
    if (!has(json, "sliding_window")) return TT_OK;
    TT_TRY(tt_json_int(json, json->root, "sliding_window", &window));
    TT_TRY(tt_family_check_range(json, "sliding_window", window, 1, INT32_MAX));
    for (int64_t i = 0; i < facts->num_hidden_layers; i++) facts->layers[i].window = window;
    return TT_OK;
}

/* Keys: src/models/mistral3.cpp of llama.cpp. Those of yarn are written with the rotation. */
static void add_keys(const struct tt_model_facts *facts, struct tt_gguf_keys *keys)
{
    const struct tt_rope *queries = &facts->ropes[facts->rope_count - 1];
    tt_dense_gguf_keys(facts, keys);
    if (queries->temperature == 0) return;
    tt_gguf_add_f32(keys, "attention.temperature_scale", queries->temperature);
    if (queries->type != TT_ROPE_YARN)
        tt_gguf_add_u32(keys, "rope.scaling.original_context_length", queries->original_max_position);
}

static const struct tt_gguf_family gguf = {
    .name = "mistral3", .pairs = true, .yarn_keys = true, .add_keys = add_keys, .cannot = tt_dense_cannot};

const struct tt_model_family tt_family_ministral3 = {
    .model_type = "ministral3",
    .architecture = "Ministral3ForCausalLM",
    .gguf = &gguf,
    .parse = parse,
    .build = tt_dense_build_pre,
};
