/* The module tree of a decoder with Hugging Face's names, for rules that select modules by name. */
#ifndef TT_MODEL_MODULE_H
#define TT_MODEL_MODULE_H

#include "model/model.h"

enum tt_module_kind {
    TT_MODULE_LINEAR,
    TT_MODULE_NORM,
    TT_MODULE_EMBEDDING,
    TT_MODULE_OTHER /* has no weight of its own */
};

struct tt_module {
    const char *path; /* "model.layers.3.self_attn.q_proj" */
    enum tt_module_kind kind;
    int layer; /* -1 outside the layers */
    /* Set by model/lora.c: */
    bool adapted;   /* LoRA of rank r is added, times `scaling` */
    bool saved;     /* modules_to_save: a full copy trains */
    bool quantized; /* set by model/quantization.c: its weight is stored in the format of the options */
    int64_t r;
    double alpha;
    float scaling;
};

/* Places in the list. A layer's modules start at tt_module_of_layer. */
enum {
    TT_MODULE_MODEL,
    TT_MODULE_EMBED_TOKENS,
    TT_MODULE_LAYERS,
    TT_MODULE_FINAL_NORM,
    TT_MODULE_ROTARY,
    TT_MODULE_LM_HEAD,
    TT_MODULE_FIRST_LAYER
};
enum {
    TT_MODULE_LAYER,
    TT_MODULE_SELF_ATTN,
    TT_MODULE_Q,
    TT_MODULE_K,
    TT_MODULE_V,
    TT_MODULE_O,
    TT_MODULE_MLP,
    TT_MODULE_GATE,
    TT_MODULE_UP,
    TT_MODULE_DOWN,
    TT_MODULE_ACT,
    TT_MODULE_INPUT_NORM,
    TT_MODULE_POST_NORM,
    TT_MODULE_Q_NORM,
    TT_MODULE_K_NORM,
    TT_MODULES_PER_LAYER
};

struct tt_module_list {
    struct tt_module *items;
    size_t count;
};

/* Allocated in `arena`. Without q/k norms their two places have an empty path, which matches no pattern. */
TT_MUST_USE tt_status tt_module_list_make(const struct tt_model_config *config, struct tt_arena *arena,
                                          struct tt_module_list *out);
static inline struct tt_module *tt_module_of_layer(const struct tt_module_list *list, int64_t layer,
                                                   int which)
{
    return &list->items[TT_MODULE_FIRST_LAYER + layer * TT_MODULES_PER_LAYER + which];
}
const char *tt_module_last_name(const struct tt_module *module); /* "q_proj" */

#endif
