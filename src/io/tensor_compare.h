/* Whether two stored tensors hold the same numbers. */
#ifndef TT_IO_TENSOR_COMPARE_H
#define TT_IO_TENSOR_COMPARE_H

#include "io/safetensors.h"

struct tt_stored_tensor {
    const struct tt_safetensors *file;
    const struct tt_safetensors_entry *entry;
};

/* Compares elements [first, first + count) of two tensors of floats, each rounded to that of their types with the
 * shorter mantissa, as a library compares them that loads both in one type. Stores the first element that differs in
 * *at, -1 if none does. Ends at the first difference; bytes that are the same ones of one file are not read. */
TT_MUST_USE tt_status tt_stored_compare(const struct tt_stored_tensor *a, const struct tt_stored_tensor *b,
                                        int64_t first, int64_t count, int64_t *at);

#endif
