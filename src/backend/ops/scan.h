/* Linear recurrences with a matrix as state, one for each value head, over the rows of each sequence: the gated delta
 * rule (Yang, Kautz and Hatamizadeh, arXiv 2412.06464; Qwen3-Next, Qwen3.5) and Mamba-2's scan (Dao and Gu, arXiv
 * 2405.21060; Nemotron-H, Granite 4). H value heads of W columns, K key heads of E columns, H a multiple of K: value
 * head h reads key head h / (H/K). With the state S [E, W], zero before a sequence's first row, row by row:
 *
 *     delta     g = -exp(a_log) softplus(a + dt_bias);  beta = sigmoid(b)
 *               S <- exp(g) S;   S <- S + k (beta (v - S^T k))^T;   o = S^T q
 *     Mamba-2   dt = clamp(softplus(a + dt_bias), dt_min, dt_max);  g = -exp(a_log) dt
 *               S <- exp(g) S + k (dt v)^T;   o = S^T q + skip v       (q: C, k: B, v: x, skip: D)
 *
 * Before, q is multiplied by `scale`; with norm_eps > 0 q and k are first divided by sqrt(sum of squares + norm_eps),
 * each head's row by itself (Qwen: norm_eps 1e-6, scale 1 / sqrt(E)). Sums and states are fp32 for all types.
 *
 * The rows of a sequence are processed in chunks of TT_SCAN_CHUNK from its first row on, a few single rows one by one,
 * so a sequence's results do not depend on what else is in the call. Backward computes the states at the borders of
 * chunks again: of forward only the inputs are kept. */
#ifndef TT_BACKEND_OPS_SCAN_H
#define TT_BACKEND_OPS_SCAN_H

#include "backend/ops/sequences.h"

enum tt_scan_rule { TT_SCAN_DELTA, TT_SCAN_MAMBA2 };

enum {
    TT_SCAN_CHUNK = 64,
    TT_SCAN_WIDTH_MAX = 256,       /* of E and of W */
    TT_SCAN_STATE_MAX = 256 * 128, /* of E * W */
    TT_SCAN_ROWS_MAX = 4,          /* shorter sequences are processed row by row */
    TT_SCAN_LANES = 8,             /* value heads whose gradients are computed at a time on the host */
};

struct tt_scan_forward_args {
    enum tt_scan_rule rule;
    struct tt_sequences sequences;
    struct tt_states states; /* [states, H, E, W] */
    /* f32 | bf16, all of one type; any token and head stride (columns of one fused matrix), as v and o */
    tt_tensor q_TKE, k_TKE;
    tt_tensor v_THW;
    tt_tensor a_TH;               /* q's type; rows may be strided */
    tt_tensor b_TH;               /* as a; delta alone */
    tt_tensor a_log_H, dt_bias_H; /* f32 | bf16 */
    tt_tensor skip_H;             /* f32 | bf16; Mamba-2 alone; empty: 0 */
    double dt_min, dt_max;        /* 0 <= dt_min <= dt_max (may be infinite); Mamba-2 alone */
    double scale, norm_eps;
    tt_tensor o_THW;   /* q's type; apart from the inputs */
    tt_tensor scratch; /* u8 [tt_scan_forward_scratch], 256-byte aligned; empty when that is 0 */
};
/* Bytes of device memory, from shapes and the number of sequences alone; 0 on the host. */
size_t tt_scan_forward_scratch(const struct tt_device *device, const struct tt_scan_forward_args *args);
TT_MUST_USE tt_status tt_scan_forward(struct tt_stream *stream, const struct tt_scan_forward_args *args);

/* Gradients of all sequences from zero states. Those of a key head are sums over its value heads, in order. */
struct tt_scan_backward_args {
    struct tt_scan_forward_args forward; /* the same views, without states; o is not read and may be empty */
    tt_tensor do_THW;                    /* q's type, as the gradients of rows */
    tt_tensor dq_TKE, dk_TKE, dv_THW;    /* overwritten, as da and db; apart from all others */
    tt_tensor da_TH, db_TH;              /* db: delta alone */
    tt_tensor da_log_H, ddt_bias_H, dskip_H; /* f32, accumulated into (rows in order); empty: frozen */
    tt_tensor scratch; /* u8 [tt_scan_backward_scratch], 256-byte aligned; empty when that is 0 */
};
/* Bytes of device memory for states and partial gradients, from the shapes alone; it rises with the number of rows. */
size_t tt_scan_backward_scratch(const struct tt_device *device, const struct tt_scan_backward_args *args);
TT_MUST_USE tt_status tt_scan_backward(struct tt_stream *stream, const struct tt_scan_backward_args *args);

/* The scratch of a host's backward pass, in floats: for each lane the states before the chunks of all sequences but
 * the first ones, dq and dk, and three values a row; then the sums of dq and dk of a key head with more value heads
 * than lanes. */
struct tt_scan_lanes {
    int64_t lanes;     /* value heads at a time: whole groups of a key head, or a part of one */
    int64_t states;    /* at most so many chunks are not the first of their sequence */
    int64_t state;     /* floats of one */
    int64_t gradients; /* floats of dq and dk of one head */
    int64_t lane;      /* floats of a lane */
    int64_t carried;   /* floats of the sums */
};
struct tt_scan_lanes tt_scan_lanes_of(const struct tt_scan_forward_args *args);

/* The place of the state before the chunk that begins at `row` of all rows and is not the first of its sequence: no two
 * chunks have the same, and all are below `states`. */
static inline int64_t tt_scan_state_at(int64_t row)
{
    return row / TT_SCAN_CHUNK - 1;
}

/* FLOPs of the passes: chunked, products alone, full chunks. */
double tt_scan_forward_flops(const struct tt_scan_forward_args *args);
double tt_scan_backward_flops(const struct tt_scan_forward_args *args);

#endif
