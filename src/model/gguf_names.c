/* Names of tensors in GGUF, and keys (family.h). */
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
    {"mlp.gate", "ffn_gate_inp", false},
    {"mlp.experts.gate_up_proj", "ffn_gate_exps.weight ffn_up_exps.weight", false},
    {"mlp.experts.down_proj", "ffn_down_exps.weight", false},
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

static void add_key(struct tt_gguf_keys *keys, struct tt_gguf_key key)
{
    int at = 0;
    while (at < keys->count && strcmp(keys->items[at].key, key.key) != 0) at++;
    if (at == TT_GGUF_KEYS_MAX) return;
    keys->items[at] = key;
    if (at == keys->count) keys->count++;
}

void tt_gguf_add_u32(struct tt_gguf_keys *keys, const char *key, int64_t value)
{
    add_key(keys, (struct tt_gguf_key){.key = key, .type = TT_GGUF_KEY_U32, .value = (double)value});
}

void tt_gguf_add_f32(struct tt_gguf_keys *keys, const char *key, double value)
{
    add_key(keys, (struct tt_gguf_key){.key = key, .type = TT_GGUF_KEY_F32, .value = value});
}

void tt_gguf_add_bool(struct tt_gguf_keys *keys, const char *key, bool value)
{
    add_key(keys, (struct tt_gguf_key){.key = key, .type = TT_GGUF_KEY_BOOL, .value = value});
}

void tt_gguf_add_i32s(struct tt_gguf_keys *keys, const char *key, const int32_t *list, size_t count)
{
    add_key(keys, (struct tt_gguf_key){.key = key, .type = TT_GGUF_KEY_I32S, .list = list, .count = count});
}

void tt_gguf_add_layers_i32(struct tt_gguf_keys *keys, const char *key, tt_gguf_of_layer *of_layer)
{
    add_key(keys, (struct tt_gguf_key){.key = key, .type = TT_GGUF_KEY_I32S, .of_layer = of_layer});
}

void tt_gguf_add_layers_bool(struct tt_gguf_keys *keys, const char *key, tt_gguf_of_layer *of_layer)
{
    add_key(keys, (struct tt_gguf_key){.key = key, .type = TT_GGUF_KEY_BOOLS, .of_layer = of_layer});
}

static int32_t has_window(const struct tt_model_facts *facts, int64_t layer)
{
    return facts->layers[layer].window > 0;
}

void tt_gguf_add_windows(const struct tt_model_facts *facts, struct tt_gguf_keys *keys)
{
    int64_t window = 0;
    for (int64_t i = 0; i < facts->num_hidden_layers && window == 0; i++) window = facts->layers[i].window;
    tt_gguf_add_u32(keys, "attention.sliding_window", window);
    tt_gguf_add_layers_bool(keys, "attention.sliding_window_pattern", has_window);
}

void tt_gguf_add_decoder(const struct tt_model_facts *facts, const struct tt_decoder_shape *shape,
                         struct tt_gguf_keys *keys)
{
    tt_gguf_add_u32(keys, "block_count", facts->num_hidden_layers);
    tt_gguf_add_u32(keys, "context_length", facts->max_position_embeddings);
    tt_gguf_add_u32(keys, "embedding_length", facts->hidden_size);
    tt_gguf_add_u32(keys, "feed_forward_length", shape->ffn);
    tt_gguf_add_u32(keys, "vocab_size", facts->vocab_size);
    tt_gguf_add_u32(keys, "attention.head_count", shape->heads);
    tt_gguf_add_u32(keys, "attention.head_count_kv", shape->kv_heads);
    tt_gguf_add_u32(keys, "attention.key_length", shape->head_dim);
    tt_gguf_add_u32(keys, "attention.value_length", shape->head_dim);
    tt_gguf_add_f32(keys, "attention.layer_norm_rms_epsilon", shape->norm_eps);
}
