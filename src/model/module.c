#include "model/module.h"

#include <string.h>

static const struct {
    const char *suffix;
    enum tt_module_kind kind;
} layer_modules[TT_MODULES_PER_LAYER] = {
    [TT_MODULE_LAYER] = {"", TT_MODULE_OTHER},
    [TT_MODULE_SELF_ATTN] = {".self_attn", TT_MODULE_OTHER},
    [TT_MODULE_Q] = {".self_attn.q_proj", TT_MODULE_LINEAR},
    [TT_MODULE_K] = {".self_attn.k_proj", TT_MODULE_LINEAR},
    [TT_MODULE_V] = {".self_attn.v_proj", TT_MODULE_LINEAR},
    [TT_MODULE_O] = {".self_attn.o_proj", TT_MODULE_LINEAR},
    [TT_MODULE_MLP] = {".mlp", TT_MODULE_OTHER},
    [TT_MODULE_GATE] = {".mlp.gate_proj", TT_MODULE_LINEAR},
    [TT_MODULE_UP] = {".mlp.up_proj", TT_MODULE_LINEAR},
    [TT_MODULE_DOWN] = {".mlp.down_proj", TT_MODULE_LINEAR},
    [TT_MODULE_ACT] = {".mlp.act_fn", TT_MODULE_OTHER},
    [TT_MODULE_INPUT_NORM] = {".input_layernorm", TT_MODULE_NORM},
    [TT_MODULE_POST_NORM] = {".post_attention_layernorm", TT_MODULE_NORM},
    [TT_MODULE_Q_NORM] = {".self_attn.q_norm", TT_MODULE_NORM},
    [TT_MODULE_K_NORM] = {".self_attn.k_norm", TT_MODULE_NORM},
};

static const struct tt_module other_modules[TT_MODULE_FIRST_LAYER] = {
    [TT_MODULE_MODEL] = {.path = "model", .kind = TT_MODULE_OTHER, .layer = -1},
    [TT_MODULE_EMBED_TOKENS] = {.path = "model.embed_tokens", .kind = TT_MODULE_EMBEDDING, .layer = -1},
    [TT_MODULE_LAYERS] = {.path = "model.layers", .kind = TT_MODULE_OTHER, .layer = -1},
    [TT_MODULE_FINAL_NORM] = {.path = "model.norm", .kind = TT_MODULE_NORM, .layer = -1},
    [TT_MODULE_ROTARY] = {.path = "model.rotary_emb", .kind = TT_MODULE_OTHER, .layer = -1},
    [TT_MODULE_LM_HEAD] = {.path = "lm_head", .kind = TT_MODULE_LINEAR, .layer = -1},
};

tt_status tt_module_list_make(const struct tt_model_config *config, struct tt_arena *arena,
                              struct tt_module_list *out)
{
    size_t count = TT_MODULE_FIRST_LAYER + (size_t)config->num_hidden_layers * TT_MODULES_PER_LAYER;
    struct tt_module *items = tt_arena_alloc(arena, count * sizeof *items);
    if (items == NULL) return TT_ERR_MEMORY;
    memcpy(items, other_modules, sizeof other_modules);
    struct tt_module *module = items + TT_MODULE_FIRST_LAYER;
    for (int layer = 0; layer < (int)config->num_hidden_layers; layer++) {
        for (int i = 0; i < TT_MODULES_PER_LAYER; i++, module++) {
            bool absent = !config->qk_norm && (i == TT_MODULE_Q_NORM || i == TT_MODULE_K_NORM);
            module->kind = layer_modules[i].kind;
            module->layer = layer;
            module->path =
                absent ? "" : tt_arena_printf(arena, "model.layers.%d%s", layer, layer_modules[i].suffix);
            if (module->path == NULL) return TT_ERR_MEMORY;
        }
    }
    *out = (struct tt_module_list){.items = items, .count = count};
    return TT_OK;
}

const char *tt_module_last_name(const struct tt_module *module)
{
    const char *dot = strrchr(module->path, '.');
    return dot != NULL ? dot + 1 : module->path;
}
