/* The rest of a base's weight without the first values of its adapter, W - scaling B A: computed in fp32 from the
 * file's numbers while they are read, element by element, so that every rank and every later start has the same bits;
 * then rounded or quantized as any weight is. */
#ifndef TT_CHECKPOINT_RESIDUAL_H
#define TT_CHECKPOINT_RESIDUAL_H

#include "io/safetensors.h"
#include "model/model.h"

struct tt_residual {
    const struct tt_safetensors *first;       /* lent; NULL: the weight is as in its file */
    const struct tt_safetensors_entry *a, *b; /* [R, I] and [O, R] */
    double scaling;                           /* its sign is turned where B's is in the file */
    const struct tt_safetensors *file;        /* of the weight */
    const struct tt_safetensors_entry *entry;
    tt_dtype dtype; /* as which the weight is wanted */
    bool turned;    /* nothing is taken out: the tensor has the other sign */
};

/* Empty where the parameter has no first values in the file; `negated`: it has those of B with the other sign. */
TT_MUST_USE tt_status tt_residual_find(const struct tt_model *model, const struct tt_safetensors *first,
                                       bool negated, const tt_param *param, struct tt_residual *residual);
/* Elements first .. first + count - 1 of what is left, in residual->dtype; of the type of tt_read_make. */
TT_MUST_USE tt_status tt_residual_read(void *residual, int64_t first, int64_t count, void *to);

#endif
