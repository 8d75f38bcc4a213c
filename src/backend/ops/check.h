/* For the checked entries: a chain of checks in which the first failure stays. A violated contract is a bug of the
 * caller (TT_ERR_INTERNAL), a type that the op does not know is TT_ERR_UNSUPPORTED; the text names the op, the
 * tensor and the shapes. Checks look only at descriptions, never at device memory. */
#ifndef TT_BACKEND_OPS_CHECK_H
#define TT_BACKEND_OPS_CHECK_H

#include "backend/device.h"
#include "tensor/tensor.h"

struct tt_check {
    const char *op;
    tt_status status;
};

/* Sets of types. */
enum {
    TT_TYPES_F32 = 1u << TT_F32,
    TT_TYPES_F64 = 1u << TT_F64,
    TT_TYPES_I32 = 1u << TT_I32,
    TT_TYPES_I64 = 1u << TT_I64,
    TT_TYPES_REAL = (1u << TT_F32) | (1u << TT_BF16),
    TT_TYPES_CAST = (1u << TT_F32) | (1u << TT_BF16) | (1u << TT_F16),
    TT_TYPES_ANY = ~0u,
};

/* Given, one of `types`, rank in [rank_min, rank_max], data unless it has no elements, and strides under which rows
 * are contiguous and no element lies on another. */
void tt_check_tensor(struct tt_check *check, const char *name, tt_tensor tensor, unsigned types, int rank_min,
                     int rank_max);
/* As tt_check_tensor for one rank, and all its dimensions equal `dims`. */
void tt_check_shape(struct tt_check *check, const char *name, tt_tensor tensor, unsigned types, int rank,
                    const int64_t *dims);
/* As tt_check_tensor, with the shape of `like`. */
void tt_check_like(struct tt_check *check, const char *name, tt_tensor tensor, unsigned types,
                   const char *like_name, tt_tensor like);
void tt_check_contiguous(struct tt_check *check, const char *name, tt_tensor tensor);
void tt_check_type(struct tt_check *check, const char *name, tt_tensor tensor, tt_dtype dtype);
/* No byte of one lies in the other. Columns of one fused matrix may interleave. */
void tt_check_apart(struct tt_check *check, const char *a_name, tt_tensor a, const char *b_name, tt_tensor b);
/* The very same view, or no byte in common. */
void tt_check_same_or_apart(struct tt_check *check, const char *a_name, tt_tensor a, const char *b_name,
                            tt_tensor b);
/* Any other condition; `format` says what is wrong. */
void tt_check_that(struct tt_check *check, bool holds, const char *format, ...) TT_PRINTF(3, 4);

#define TT_DIMS(...) ((const int64_t[]){__VA_ARGS__})

#endif
