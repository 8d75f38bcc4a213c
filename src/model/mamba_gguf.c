/* Layers with a state by Mamba-2 in GGUF. */
#include "model/mamba.h"

#include <math.h>
#include <string.h>

enum { UNBOUNDED_CONTEXT = 1 << 20 };

static int32_t kv_heads(const struct tt_model_facts *facts, int64_t layer)
{
    return facts->layers[layer].state.heads > 0 ? 0 : (int32_t)facts->layers[layer].kv_heads;
}

void tt_mamba_gguf_keys(const struct tt_model_facts *facts, const struct tt_mamba *mamba, bool rotates,
                        struct tt_gguf_keys *keys)
{
    const struct tt_kv_states *state = tt_family_state(facts);
    if (!rotates) tt_gguf_add_u32(keys, "context_length", UNBOUNDED_CONTEXT);
    tt_gguf_add_bool(keys, "rope.scaling.finetuned", rotates); /* whether attention rotates */
    tt_gguf_add_layers_i32(keys, "attention.head_count_kv", kv_heads);
    tt_gguf_add_u32(keys, "ssm.conv_kernel", state->conv_rows + 1);
    tt_gguf_add_u32(keys, "ssm.state_size", state->rows);
    tt_gguf_add_u32(keys, "ssm.group_count", mamba->groups);
    tt_gguf_add_u32(keys, "ssm.time_step_rank", state->heads);
    tt_gguf_add_u32(keys, "ssm.inner_size", state->heads * state->columns);
}

void tt_mamba_gguf_arrange(const struct tt_model_facts *facts, const struct tt_mamba *mamba,
                           const char *tensor, struct tt_gguf_arrangement *arrangement)
{
    const struct tt_kv_states *state = tt_family_state(facts);
    bool decay = strcmp(tensor, "A_log") == 0;
    if (state == NULL) return;
    if (decay || strcmp(tensor, "D") == 0)
        *arrangement = (struct tt_gguf_arrangement){.lines = state->heads, .negated_exp = decay};
    if (strcmp(tensor, "norm.weight") == 0)
        *arrangement = (struct tt_gguf_arrangement){.lines = mamba->groups};
}

const char *tt_mamba_gguf_cannot(const struct tt_model_facts *facts, const struct tt_mamba *mamba)
{
    if (tt_family_state(facts) == NULL) return "a model of this type without a state";
    if (mamba->linear_bias) return "biases of in_proj and out_proj of this model type";
    if (!mamba->conv_bias) return "a convolution without a bias of this model type";
    return mamba->dt_min > 0 || isfinite(mamba->dt_max) ? "a time_step_limit of this model type" : NULL;
}
