/* Names of tensors in GGUF (family.h). */
#include <string.h>

#include "model/family.h"

const struct tt_gguf_name tt_gguf_names[] = {
    {"model.embed_tokens", "token_embd", false},
    {"model.norm", "output_norm", false},
    {"lm_head", "output", false},
    {"input_layernorm", "attn_norm", false},
    {"self_attn.q_proj", "attn_q", true},
    {"self_attn.k_proj", "attn_k", true},
    {"self_attn.v_proj", "attn_v", false},
    {"self_attn.o_proj", "attn_output", false},
    {"self_attn.q_norm", "attn_q_norm", false},
    {"self_attn.k_norm", "attn_k_norm", false},
    {"post_attention_layernorm", "ffn_norm", false},
    {"mlp.gate_proj", "ffn_gate", false},
    {"mlp.up_proj", "ffn_up", false},
    {"mlp.down_proj", "ffn_down", false},
    {NULL, NULL, false},
};

static const struct tt_gguf_name *find(const struct tt_gguf_name *names, const char *module)
{
    for (; names != NULL && names->module != NULL; names++)
        if (strcmp(names->module, module) == 0) return names;
    return NULL;
}

const struct tt_gguf_name *tt_gguf_find_name(const struct tt_gguf_family *family, const char *module)
{
    const struct tt_gguf_name *own = find(family->names, module);
    return own != NULL ? own : find(tt_gguf_names, module);
}
