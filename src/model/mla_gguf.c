/* Latent attention in GGUF. */
#include <string.h>

#include "model/mla.h"

static const struct tt_mla *own(const struct tt_model_facts *facts)
{
    return TT_FAMILY_OWN_CONST(facts, struct tt_mla);
}

static int64_t leading_layers(const struct tt_model_facts *facts)
{
    int64_t leading = 0;
    while (leading < facts->num_hidden_layers && !facts->layers[leading].experts) leading++;
    return leading;
}

void tt_mla_gguf_keys(const struct tt_model_facts *facts, struct tt_gguf_keys *keys)
{
    const struct tt_mla *mla = own(facts);
    tt_gguf_add_decoder(facts, &mla->shape, keys);
    tt_gguf_add_u32(keys, "attention.head_count_kv", 1);
    tt_gguf_add_u32(keys, "attention.key_length", mla->kv_rank + mla->rotated);
    tt_gguf_add_u32(keys, "attention.value_length", mla->kv_rank);
    tt_gguf_add_u32(keys, "attention.key_length_mla", mla->plain + mla->rotated);
    tt_gguf_add_u32(keys, "attention.value_length_mla", mla->value);
    tt_gguf_add_u32(keys, "attention.q_lora_rank", mla->q_rank); /* 0: none, and readers need the key */
    tt_gguf_add_u32(keys, "attention.kv_lora_rank", mla->kv_rank);
    if (mla->mixture.count > 0) {
        tt_mixture_gguf_grouped_keys(facts, &mla->mixture, keys);
    } else {
        tt_gguf_add_u32(keys, "leading_dense_block_count", leading_layers(facts));
        tt_gguf_add_u32(keys, "expert_feed_forward_length", mla->shape.ffn);
        tt_gguf_add_u32(keys, "expert_shared_count", 0);
    }
    if (mla->temperature == 0) return;
    tt_gguf_add_f32(keys, "attention.temperature_scale", mla->temperature);
    tt_gguf_add_u32(keys, "attention.temperature_length", facts->ropes[0].original_max_position);
}

void tt_mla_gguf_arrange(const struct tt_model_facts *facts, const char *tensor,
                         struct tt_gguf_arrangement *arrangement)
{
    const struct tt_mla *mla = own(facts);
    if (strcmp(tensor, "self_attn.kv_b_proj.weight") == 0)
        *arrangement = (struct tt_gguf_arrangement){
            .period = mla->plain + mla->value, .part = mla->plain, .transposed = true};
}

/* deepseek2.cpp takes models of these numbers of layers for ones whose q has no latent. */
static bool is_lite(const struct tt_model_facts *facts)
{
    int64_t layers = facts->num_hidden_layers;
    return layers == 26 || layers == 27 || (layers == 48 && facts->vocab_size == 128256);
}

const char *tt_mla_gguf_cannot(const struct tt_model_facts *facts)
{
    const struct tt_mla *mla = own(facts);
    const struct tt_rope *rope = &facts->ropes[0];
    if (mla->shape.activation != TT_ACTIVATION_SILU)
        return "an activation other than silu of this model type";
    if (mla->bias) return "attention_bias of this model type";
    if (!mla->pairs) return "rope_interleave false of this model type";
    if (rope->type != TT_ROPE_DEFAULT && rope->type != TT_ROPE_YARN)
        return "a rotation of this model type that is scaled otherwise than by yarn";
    if (rope->type == TT_ROPE_YARN &&
        (rope->attention_factor < 1 - 1e-6 || rope->attention_factor > 1 + 1e-6))
        return "an mscale of yarn other than mscale_all_dim of this model type";
    if (is_lite(facts) && mla->q_rank > 0)
        return "a q_lora_rank of this model type with this number of layers";
    return mla->mixture.count > 0 ? tt_mixture_cannot_layers(facts, true) : NULL;
}

const char *tt_mla_gguf_notice(const struct tt_model_facts *facts)
{
    bool alike = own(facts)->shape.norm_eps == tt_mla_latent_eps;
    return alike ? NULL : "norm latents with rms_norm_eps too, which this model does with 1e-6";
}

double tt_mla_gguf_yarn_scores(const struct tt_model_facts *facts)
{
    return own(facts)->mscale_all;
}

/* The products of scores and values with a latent, and the head. */
const char *const tt_mla_gguf_unadapted[] = {
    "attn_q.weight",
    "attn_q_a.weight",
    "attn_q_b.weight",
    "attn_kv_a_mqa.weight",
    "attn_k_b.weight",
    "output.weight",
    NULL,
};

static const struct tt_gguf_name gguf_names[] = {TT_MLA_GGUF_NAMES, {NULL, NULL, false}};
const struct tt_gguf_family tt_mla_gguf = {.name = "deepseek2", .names = gguf_names, TT_MLA_GGUF};
