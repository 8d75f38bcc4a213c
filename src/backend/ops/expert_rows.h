/* Rows of tokens in order of their experts, and back. Letters: T tokens, S slots of each (backend/ops/route.h), X
 * experts, D columns; M = T S rows, which are those of expert 0, then of expert 1, ...; the rows of an expert are in
 * order of the tokens. The slot of row m is t S + s of the token t. */
#ifndef TT_BACKEND_OPS_EXPERT_ROWS_H
#define TT_BACKEND_OPS_EXPERT_ROWS_H

#include "backend/device.h"
#include "tensor/tensor.h"

struct tt_order_rows_args {
    tt_tensor ids_TS;    /* i32, contiguous, in 0 .. X - 1 */
    tt_tensor place_TS;  /* i32, contiguous, to write: the row of a slot */
    tt_tensor slot_M;    /* i32, to write: the slot of a row */
    tt_tensor border_X1; /* i32 [X + 1], to write: rows border[e] .. of expert e; X <= TT_ROUTE_EXPERTS_MAX */
    /* Slots with other ids than first .. first + X - 1 have no row, and place -1; expert e is the one with id
     * first + e. Rows behind the last border have slot -1. */
    bool some;
    int64_t first; /* 0 unless `some` */
};
TT_MUST_USE tt_status tt_order_rows(struct tt_stream *stream, const struct tt_order_rows_args *args);

/* y[m] = x[slot[m] / S], S = M / T; a row whose slot is -1 stays as it is. */
struct tt_spread_rows_args {
    /* f32 | bf16; rows may be strided, here and below. Or F8_E4M3, D a multiple of 16, contiguous. */
    tt_tensor x_TD;
    tt_tensor slot_M;
    tt_tensor y_MD;               /* x's type, apart from x */
    tt_tensor scale_T, y_scale_M; /* of codes, which go with them: f32; both empty otherwise */
};
TT_MUST_USE tt_status tt_spread_rows(struct tt_stream *stream, const struct tt_spread_rows_args *args);

/* y[t] = addend[t] + sum over s of weights[t,s] x[place[t,s]], in order of the slots, in fp32, rounded once. Where
 * `place` is empty the row of a slot is the slot; else slots may have a row in common, and x any number of rows, and
 * slots whose place is -1 add nothing. */
struct tt_combine_rows_args {
    tt_tensor x_MD;       /* f32 | bf16 */
    tt_tensor weights_TS; /* f32, contiguous; empty: 1 */
    tt_tensor place_TS;   /* i32, contiguous; gives T and S where there are no weights */
    tt_tensor addend_TD;  /* x's type; empty: 0 */
    tt_tensor y_TD;       /* x's type, or without an addend f32; may be addend, apart from x */
};
TT_MUST_USE tt_status tt_combine_rows(struct tt_stream *stream, const struct tt_combine_rows_args *args);

/* The backward pass of weights behind a linear without its output: for the gradient g of the linear's input, made of
 * the unweighted gradient of its output,
 *     dweights[slot[m]] = <g[m], x[m]>,   g[m] *= weights[slot[m]]
 * in fp32. Where `slot` is empty the slot of a row is the row; rows whose slot is -1 stay as they are, and slots
 * without a row keep their dweights. */
struct tt_weigh_rows_args {
    tt_tensor x_MD;        /* the linear's input; empty: dweights is not made */
    tt_tensor g_MD;        /* in place; x's type */
    tt_tensor weights_TS;  /* f32, contiguous */
    tt_tensor slot_M;      /* i32 */
    tt_tensor dweights_TS; /* f32, contiguous, to write; empty: not wanted */
};
TT_MUST_USE tt_status tt_weigh_rows(struct tt_stream *stream, const struct tt_weigh_rows_args *args);

#endif
