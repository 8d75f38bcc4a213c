/* A chain of checks that stores the first failure, for the checked entries. A violated contract is a bug of the caller
 * (TT_ERR_INTERNAL), a type without support in the op is TT_ERR_UNSUPPORTED; the text names the op, the tensor and the
 * shapes. Checks read descriptions only, never device memory. */
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
    TT_TYPES_U8 = 1u << TT_U8,
    TT_TYPES_I64 = 1u << TT_I64,
    TT_TYPES_REAL = (1u << TT_F32) | (1u << TT_BF16),
    TT_TYPES_CAST = (1u << TT_F32) | (1u << TT_BF16) | (1u << TT_F16),
    TT_TYPES_ANY = ~0u,
};

/* Checks that the tensor is given, of one of `types`, of a rank in [rank_min, rank_max], with data unless it has no
 * elements, and with strides for contiguous rows and without overlapping elements. */
void tt_check_tensor(struct tt_check *check, const char *name, tt_tensor tensor, unsigned types, int rank_min,
                     int rank_max);
/* The same as tt_check_tensor for one rank; all dimensions must equal `dims`. */
void tt_check_shape(struct tt_check *check, const char *name, tt_tensor tensor, unsigned types, int rank,
                    const int64_t *dims);
/* The same as tt_check_tensor, with the shape of `like`. */
void tt_check_like(struct tt_check *check, const char *name, tt_tensor tensor, unsigned types,
                   const char *like_name, tt_tensor like);
void tt_check_contiguous(struct tt_check *check, const char *name, tt_tensor tensor);
void tt_check_type(struct tt_check *check, const char *name, tt_tensor tensor, tt_dtype dtype);
/* Checks that the tensors have no byte in common. Columns of one fused matrix may interleave. */
void tt_check_apart(struct tt_check *check, const char *a_name, tt_tensor a, const char *b_name, tt_tensor b);
/* Checks for the same view, or no byte in common. */
void tt_check_same_or_apart(struct tt_check *check, const char *a_name, tt_tensor a, const char *b_name,
                            tt_tensor b);
/* Checks what a product adds to its result, unless it is empty: like the result, with rows as far apart (of which
 * cuBLASLt takes one number), and in the same place or apart. */
void tt_check_addend(struct tt_check *check, tt_tensor addend, const char *result_name, tt_tensor result);
/* Checks lent memory of at least `needed` bytes whose address is a multiple of `alignment`; 0 needed: anything. */
void tt_check_scratch(struct tt_check *check, tt_tensor scratch, size_t needed, size_t alignment);
/* Checks rows in FP8 with a scale each, as tt_quantize_rows writes them. */
void tt_check_quantized_rows(struct tt_check *check, int64_t rows, int64_t cols, tt_tensor codes,
                             tt_tensor scale);
/* Checks any other condition; `format` describes the fault. */
void tt_check_that(struct tt_check *check, bool holds, const char *format, ...) TT_PRINTF(3, 4);

#define TT_DIMS(...) ((const int64_t[]){__VA_ARGS__})

#endif
