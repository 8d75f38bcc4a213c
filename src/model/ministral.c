/* Ministral (MinistralConfig): Llama with a sliding window over the layers that layer_types has so, over all without
 * the list, and over none where sliding_window is null. */
#include "model/dense.h"

static tt_status parse(const struct tt_json *json, struct tt_model_facts *facts)
{
    struct tt_decoder_defaults defaults = {.kv_heads = 8, .positions = 131072};
    TT_TRY(tt_dense_parse(json, &defaults, 1e-6, NULL, facts));
    return tt_dense_parse_windows(json, INT32_MAX, facts);
}

const struct tt_model_family tt_family_ministral = {
    .model_type = "ministral",
    .architecture = "MinistralForCausalLM",
    .parse = parse,
    .build = tt_dense_build_pre,
};
