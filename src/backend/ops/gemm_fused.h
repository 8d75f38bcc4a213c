/* A linear layer's product together with the operations on the same matrices: the narrow products of LoRA, and SwiGLU.
 * A device may compute them in one pass (cuda/gemm/fused.h); others run the products and passes in sequence
 * (backend/compose.h), with results equal up to rounding.
 *
 * With a weight in FP8 that is multiplied coded (matrix.h) they are always composed: x is quantized by rows, and the
 * scaled product adds to the narrow ones.
 *
 * Letters: M rows (tokens), K inner dimension, N columns, F feed-forward, R all LoRA ranks side by side. Matrices are
 * f32 or bf16, each weight and y_MN its own, all others x's (dy's); rows may be strided. */
#ifndef TT_BACKEND_OPS_GEMM_FUSED_H
#define TT_BACKEND_OPS_GEMM_FUSED_H

#include "backend/device.h"
#include "backend/ops/matrix.h"
#include "backend/ops/swiglu.h"
#include "tensor/tensor.h"

enum { TT_LOW_RANK_PARTS = 3 };

/* Narrow products added to a wide one: y[:, first_y ..] += h[:, first_h .. first_h + r] op(b), where b is stored like
 * the wide product's w: [columns, r], or [r, columns] without trans_w. Parts are in the order of first_y: each begins
 * after the previous one, or covers the same columns. A non-finite element of h may make all of y NaN, because a device
 * may multiply other columns of h by zeros. */
struct tt_low_rank {
    tt_tensor h_MR;
    struct {
        tt_tensor b;
        int64_t first_h, first_y;
    } parts[TT_LOW_RANK_PARTS];
    int count;
};

/* The first `columns` columns are heads of head_dim, rotated as by tt_rope (attention.h); columns 0: no rotation. */
struct tt_rotation {
    int64_t columns, head_dim;
    bool pairs;
    tt_tensor positions_T, cos_PE, sin_PE;
};

/* y = x op(w) + low rank (+ addend), then rotated; op(w) is w^T with `trans_w` (w [N, K], like linear weights), else
 * w [K, N]. */
struct tt_gemm_lora_args {
    tt_tensor x_MK;
    struct tt_matrix w;
    bool trans_w;
    struct tt_low_rank low;
    tt_tensor addend_MN; /* empty, y itself, or apart from it with y's type and row stride */
    struct tt_rotation rotation;
    tt_tensor y_MN;
};
TT_MUST_USE tt_status tt_gemm_lora(struct tt_stream *stream, const struct tt_gemm_lora_args *args);

/* gate | up = x w^T + low rank, act = activation(gate) * up. */
struct tt_gemm_swiglu_args {
    enum tt_activation activation;
    tt_tensor x_MK;
    struct tt_matrix w_2FK;
    struct tt_low_rank low; /* first_y counts columns of gate | up */
    tt_tensor gate_up_M2F;
    bool keep;        /* false: gate and up are not needed again and are arbitrary afterwards */
    tt_tensor act_MF; /* may be the columns of gate when `keep` is false */
    /* empty, or with a coded w: receives act's rows in FP8 (swiglu.h); where one pass makes them act_MF may have a
     * shape and no memory */
    struct tt_quantized_rows act_rows;
    struct tt_swiglu_coded kept; /* none, or with act_rows: receives gate and up in FP8 */
};
TT_MUST_USE tt_status tt_gemm_swiglu(struct tt_stream *stream, const struct tt_gemm_swiglu_args *args);

/* dact = dy w + low rank, then the gradients of gate and up (swiglu.h) in place. dact_MF is scratch; with `wants_act`
 * it holds act = activation(gate) * up afterwards, otherwise it is arbitrary. */
struct tt_gemm_swiglu_backward_args {
    enum tt_activation activation;
    tt_tensor dy_MK;
    struct tt_matrix w_KF;
    struct tt_low_rank low;
    tt_tensor gate_up_M2F; /* in: gate | up, unless `coded`; out: dgate | dup */
    tt_tensor dact_MF;
    bool wants_act;
    /* empty, or with a coded w: receives the rows of dgate | dup in FP8; with `only_rows`, where one pass makes them,
     * gate_up_M2F is arbitrary afterwards, and with `coded` may have a shape and no memory */
    struct tt_quantized_rows gradient_rows;
    bool only_rows;
    struct tt_swiglu_coded coded; /* none, or with gradient_rows: gate and up in FP8 */
};
TT_MUST_USE tt_status tt_gemm_swiglu_backward(struct tt_stream *stream,
                                              const struct tt_gemm_swiglu_backward_args *args);

#endif
