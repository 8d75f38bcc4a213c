/* LoRA's products with A, with a separate dropout of the common input for each adapter of a group. A device may apply
 * dropout inside the product, without writing its result (cuda/gemm/dropout.cu); others run tt_dropout and the products
 * in sequence (backend/compose.h), with results equal up to rounding.
 *
 * Letters: M tokens, K features, R ranks of all adapters side by side, r of one. All matrices but da are f32 or bf16,
 * all of one type, rows may be strided; scratch_MK is arbitrary afterwards. The mask is that of tt_dropout
 * (elementwise.h). */
#ifndef TT_BACKEND_OPS_GEMM_DROPOUT_H
#define TT_BACKEND_OPS_GEMM_DROPOUT_H

#include "backend/device.h"
#include "base/rng.h"
#include "tensor/tensor.h"

enum { TT_DROPOUT_PARTS = 3 };

/* One adapter, with columns first_h .. first_h + r of h (dh). */
struct tt_dropout_part {
    tt_tensor a_RK; /* [r, K] */
    int64_t first_h;
    float scaling; /* tt_gemm_dropout alone */
    struct tt_rng rng;
    double p;        /* 0 <= p < 1 */
    tt_tensor da_RK; /* tt_gemm_dropout_weights alone: f32 or bf16 */
};

struct tt_dropout_parts {
    tt_tensor row_keys_M; /* i64 */
    struct tt_dropout_part part[TT_DROPOUT_PARTS];
    int count;
};

/* h[:, part] = scaling drop(x) a^T */
struct tt_gemm_dropout_args {
    tt_tensor x_MK;
    struct tt_dropout_parts parts;
    tt_tensor h_MR, scratch_MK;
};
TT_MUST_USE tt_status tt_gemm_dropout(struct tt_stream *stream, const struct tt_gemm_dropout_args *args);

/* da += dh[:, part]^T drop(x) */
struct tt_gemm_dropout_weights_args {
    tt_tensor x_MK;
    struct tt_dropout_parts parts; /* a_RK is not read */
    tt_tensor dh_MR, scratch_MK;
};
TT_MUST_USE tt_status tt_gemm_dropout_weights(struct tt_stream *stream,
                                              const struct tt_gemm_dropout_weights_args *args);

/* dx += drop'(dh[:, part] a) of every part */
struct tt_gemm_dropout_input_args {
    tt_tensor dh_MR;
    struct tt_dropout_parts parts;
    tt_tensor dx_MK, scratch_MK;
};
TT_MUST_USE tt_status tt_gemm_dropout_input(struct tt_stream *stream,
                                            const struct tt_gemm_dropout_input_args *args);

#endif
