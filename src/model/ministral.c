/* Ministral (MinistralConfig): Llama with a sliding window over the layers that layer_types has so, over all without
 * the list, and over none where sliding_window is null. */
#include "model/dense.h"

static tt_status parse(const struct tt_json *json, struct tt_model_facts *facts)
{
    struct tt_decoder_defaults defaults = {.kv_heads = 8, .positions = 131072};
    TT_TRY(tt_dense_parse(json, &defaults, 1e-6, NULL, facts));
    return tt_dense_parse_windows(json, INT32_MAX, facts);
}

/* Its windows have no architecture: convert/gguf_export.c refuses those that a text can be longer than. */
static const struct tt_gguf_family gguf = {
    .name = "llama", .pairs = true, .add_keys = tt_dense_gguf_keys, .cannot = tt_dense_cannot};

const struct tt_model_family tt_family_ministral = {
    .model_type = "ministral",
    .architecture = "MinistralForCausalLM",
    .gguf = &gguf,
    .parse = parse,
    .build = tt_dense_build_pre,
};
