/* Values that follow from weights (TT_INIT_DERIVED): the first values of an adapter, and the factors that passes make
 * of the values of a frozen one. The weights of the block are lent. */
#ifndef TT_MODEL_DERIVED_H
#define TT_MODEL_DERIVED_H

#include "model/model.h"

struct tt_derivation {
    bool loaded; /* the values are those of a file: only factors are computed */
    bool (*trains)(void *context, const tt_param *param);
    /* Keeps the whole parameter's values, f32 in device memory, which are lent for the call. */
    tt_status (*keep)(void *context, const tt_param *param, tt_tensor values);
    void *context;
};

bool tt_block_has_derived(const struct tt_block *block);
/* Computes first values of a block's parameters that are not loaded, and factors (tt_param.folded, which is set) of
 * those that do not train. Scratch is pushed onto the workspace of `pass`, and popped. */
TT_MUST_USE tt_status tt_block_derive(const struct tt_block *block, const struct tt_pass *pass,
                                      const struct tt_derivation *derivation);

#endif
