/* Mixtures of experts as architectures of llama.cpp: their keys, and what these cannot express. Source: gguf-py's
 * constants.py, src/models of llama.cpp b10605. */
#include "model/mixture.h"

void tt_mixture_gguf_keys(const struct tt_mixture *mixture, bool width, struct tt_gguf_keys *keys)
{
    tt_gguf_add_u32(keys, "expert_count", mixture->count);
    tt_gguf_add_u32(keys, "expert_used_count", mixture->slots);
    if (width) tt_gguf_add_u32(keys, "expert_feed_forward_length", mixture->ffn);
}

void tt_mixture_gguf_grouped_keys(const struct tt_model_facts *facts, const struct tt_mixture *mixture,
                                  struct tt_gguf_keys *keys)
{
    int64_t leading = 0;
    while (leading < facts->num_hidden_layers && !facts->layers[leading].experts) leading++;
    tt_mixture_gguf_keys(mixture, true, keys);
    tt_gguf_add_u32(keys, "leading_dense_block_count", leading);
    tt_gguf_add_u32(keys, "expert_shared_count", mixture->shared_ffn / mixture->ffn);
    tt_gguf_add_u32(keys, "expert_group_count", mixture->rule.groups > 0 ? mixture->rule.groups : 1);
    tt_gguf_add_u32(keys, "expert_group_used_count",
                    mixture->rule.groups > 0 ? mixture->rule.kept_groups : 1);
    tt_gguf_add_u32(keys, "expert_gating_func",
                    mixture->rule.score == TT_ROUTE_SIGMOID ? TT_GGUF_GATING_SIGMOID
                                                            : TT_GGUF_GATING_SOFTMAX);
    tt_gguf_add_f32(keys, "expert_weights_scale", (double)mixture->rule.factor);
    tt_gguf_add_bool(keys, "expert_weights_norm", mixture->rule.normalizes);
}

void tt_dense_mixture_gguf_keys(const struct tt_model_facts *facts, struct tt_gguf_keys *keys)
{
    tt_dense_gguf_keys(facts, keys);
    tt_mixture_gguf_keys(&TT_FAMILY_OWN_CONST(facts, struct tt_dense_mixture)->mixture, true, keys);
}

const char *tt_mixture_cannot_layers(const struct tt_model_facts *facts, bool leading)
{
    bool seen = !leading;
    for (int64_t i = 0; i < facts->num_hidden_layers; i++) {
        if (seen && !facts->layers[i].experts) return "these layers without experts of this model type";
        seen |= facts->layers[i].experts;
    }
    return NULL;
}

const char *tt_dense_mixture_cannot(const struct tt_model_facts *facts, bool normalizes)
{
    const struct tt_dense_mixture *own = TT_FAMILY_OWN_CONST(facts, struct tt_dense_mixture);
    if (own->mixture.rule.normalizes != normalizes)
        return normalizes ? "norm_topk_prob false of this model type"
                          : "norm_topk_prob true of this model type";
    const char *layers = tt_mixture_cannot_layers(facts, false);
    return layers != NULL ? layers : tt_dense_cannot(facts);
}
