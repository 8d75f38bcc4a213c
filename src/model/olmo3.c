/* OLMo 3 (Olmo3Config): OLMo 2 whose layers have a window, except every fourth, and a rotation by the type of layer:
 * rope_scaling is for the layers without a window. */
#include "model/olmo2.h"

enum { ROPE_FULL, ROPE_SLIDING, ROPE_COUNT, PERIOD = 4 };

static tt_status parse(const struct tt_json *json, struct tt_model_facts *facts)
{
    struct tt_rope_rules full = {.theta = 5e5, .layer_type = "full_attention"};
    struct tt_rope_rules sliding = {.theta = 5e5, .layer_type = "sliding_attention", .unscaled = true};
    TT_TRY(tt_olmo2_parse(json, &full, facts));
    TT_TRY(tt_dense_parse_windows(json, PERIOD, facts));
    for (int64_t i = 0; i < facts->num_hidden_layers; i++)
        facts->layers[i].rope = facts->layers[i].window > 0 ? ROPE_SLIDING : ROPE_FULL;
    sliding.head_dim = facts->layers[0].head_dim;
    facts->rope_count = ROPE_COUNT;
    return tt_family_parse_rope(json, &sliding, facts, &facts->ropes[ROPE_SLIDING]);
}

static void add_keys(const struct tt_model_facts *facts, struct tt_gguf_keys *keys)
{
    tt_dense_gguf_keys(facts, keys);
    tt_gguf_add_u32(keys, "attention.sliding_window", facts->layers[0].window);
}

static const char *cannot(const struct tt_model_facts *facts)
{
    const struct tt_rope *full = &facts->ropes[ROPE_FULL], *sliding = &facts->ropes[ROPE_SLIDING];
    if (sliding->type != TT_ROPE_DEFAULT || sliding->theta != full->theta)
        return "a rotation of the layers with a window other than that of the others without its scaling";
    if (tt_dense_cannot_windows(facts, PERIOD) != NULL) return tt_dense_cannot_windows(facts, PERIOD);
    return tt_olmo2_cannot(facts);
}

static const struct tt_gguf_family gguf = {.name = "olmo2",
                                           .windows = true,
                                           .names = tt_dense_post_gguf_names,
                                           .add_keys = add_keys,
                                           .cannot = cannot};

const struct tt_model_family tt_family_olmo3 = {
    .model_type = "olmo3",
    .architecture = "Olmo3ForCausalLM",
    .gguf = &gguf,
    .parse = parse,
    .build = tt_dense_build_post,
};
