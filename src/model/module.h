/* The modules of a model with Hugging Face's names, for rules that select modules by name: the list of what a family
 * built (model/builder.h), in that order. */
#ifndef TT_MODEL_MODULE_H
#define TT_MODEL_MODULE_H

#include "model/model.h"

enum tt_module_kind {
    TT_MODULE_LINEAR,
    TT_MODULE_HEAD, /* the linear that makes logits: rules for "all linears" leave it out */
    TT_MODULE_NORM,
    TT_MODULE_EMBEDDING,
    TT_MODULE_OTHER, /* has no weight of its own */
    /* no module: a parameter that target_parameters may name, the matrices of all experts or a router's */
    TT_MODULE_PARAMETER
};

struct tt_module {
    const char *path; /* "model.layers.3.self_attn.q_proj" */
    const char *name; /* the part of the path below the layer: "self_attn.q_proj"; outside layers all of it */
    enum tt_module_kind kind;
    int layer;   /* -1 outside the layers */
    bool offset; /* a norm whose weight is stored as its distance from 1 */
    /* Set by model/lora.c: */
    bool adapted;    /* LoRA of rank r is added, times `scaling` */
    bool saved;      /* modules_to_save: a full copy trains */
    bool of_experts; /* set by the build: a parameter of all experts, and not of a router */
    bool transposed; /* set by the build: a parameter that transformers' class has as [experts, in, out] */
    bool plain;      /* set by the build: it is not quantized, unless a folder has it so */
    bool bypassed;   /* set by the build: PEFT does not adapt it; "all linears" leave it out */
    bool quantized;  /* set by model/quantization.c: its weight is stored in the format of the options */
    /* Set by model/trained_tokens.c: the tokens whose rows train apart, in memory of the model; NULL: none. */
    const int32_t *tokens;
    int64_t token_count;
    bool shares_tokens; /* a head that has those of the embeddings */
    int64_t r;
    double alpha;
    float scaling;
};

static inline bool tt_module_is_linear(const struct tt_module *module)
{
    return module->kind == TT_MODULE_LINEAR || module->kind == TT_MODULE_HEAD;
}
/* The matrices of all experts. */
static inline bool tt_module_is_of_experts(const struct tt_module *module)
{
    return module->kind == TT_MODULE_PARAMETER && module->of_experts;
}
/* A module that target_modules has chosen. */
static inline bool tt_module_is_adapted_linear(const struct tt_module *module)
{
    return module->adapted && module->kind != TT_MODULE_PARAMETER;
}
const char *tt_module_last_name(const struct tt_module *module); /* "q_proj" */
/* The path of the first linear, as an example for messages; and that of the head. */
const char *tt_module_example(const struct tt_module_list *list);
const char *tt_module_head(const struct tt_module_list *list);

/* The path in the class of the text model alone: "model.layers.0..." of "model.language_model.layers.0...". Written to
 * `to` where it differs, else `path` itself. */
const char *tt_module_alone(const struct tt_module_list *list, const char *path, char *to, size_t bytes);

/* The next two know the names that transformers gives to most models, for files that come without a model. */
/* The part of a model to which a tensor belongs: "embedding", "attention", ... or "other". */
const char *tt_module_group(const char *tensor);
/* Whether a tensor is no parameter: older versions of transformers saved the frequencies of rotations. */
bool tt_module_is_buffer(const char *tensor);

#endif
