/* The first values of LoRA's A and B: the kinds of init_lora_weights, one file and one line of lora_inits.def each.
 * Source of the formulas: PEFT 0.21.2, peft/tuners/lora/layer.py.
 *
 * A kind that changes the base trains over what is left of it, W - scaling B A with the first A and B. What is saved is
 * an adapter of the base as it was (checkpoint/plain_adapter.h). */
#ifndef TT_MODEL_LORA_INIT_H
#define TT_MODEL_LORA_INIT_H

#include "base/rng.h"
#include "model/module.h"

enum {
    TT_LORA_INIT_READS_WEIGHT = 1, /* of the linear, so that r is at most its smaller side */
    TT_LORA_INIT_LAPACK = 2,       /* base/lapack.h */
    TT_LORA_INIT_QUANTIZED = 4,    /* the weight must be quantized while it is loaded */
};

/* One linear: outputs O, inputs I, rank R. */
struct tt_lora_init_call {
    int64_t out, in, r;
    double scaling;
    const float *weight_OI;              /* NULL unless the kind reads it */
    const struct tt_quant_layout *quant; /* of the stored weight; NULL: it is stored as numbers */
    struct tt_rng rng;                   /* of the seed and the module */
    int64_t number;                      /* of the name's '*' */
    float *a_RI, *b_OR;
};
typedef tt_status tt_lora_init_make(const struct tt_lora_init_call *call);

struct tt_lora_init {
    const char *name;
    tt_lora_init_make *make;
    unsigned uses;
    bool changes_base;
};

/* The kind of this name, in any case; NULL is that of "true". TT_ERR_USAGE lists the names. */
TT_MUST_USE tt_status tt_lora_init_find(const char *name, const struct tt_lora_init **kind, int64_t *number);
/* The kind whose values a new adapter of this configuration begins with; NULL where each rank draws them, where there
 * is no LoRA, and where the adapter comes from a folder. */
const struct tt_lora_init *tt_lora_init_of(const struct tt_lora_config *lora, int64_t *number);
/* Whether training is over what is left of the base. */
bool tt_lora_changes_base(const struct tt_lora_config *lora);
/* Refuses linears for which the kind has no values. */
TT_MUST_USE tt_status tt_lora_init_check(const struct tt_model *model);

tt_lora_init_make tt_lora_init_orthogonal, tt_lora_init_pissa, tt_lora_init_olora, tt_lora_init_loftq;
/* The weight in double, owned; NULL: no memory. */
double *tt_lora_init_double(const struct tt_lora_init_call *call);

#endif
