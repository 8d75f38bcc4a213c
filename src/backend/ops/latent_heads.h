/* Heads of multi-head latent attention (MLA; DeepSeek-V2, arXiv 2405.04434) from the outputs of its linears, as
 * attention.h reads them. With P columns of a head that do not rotate, R that do, and S of a value; E = P + R:
 *     q[t,h] = f(t) [ q_in[t,h,:P] | rotated q_in[t,h,P:] ]      k[t,h] = [ kv[t,h,:P] | rotated shared[t] ]
 *     v[t,h] = kv[t,h,P:]                                        f(t) = 1 + temperature ln(1 + floor(p(t) / original))
 * The rotated columns of k are one row for all heads. Rotation as tt_rope (attention.h); f is Llama 4's temperature of
 * queries by position. Heads of q, k and v have W columns, the larger of E and S: the columns behind E, or S, are 0,
 * which changes no score and no sum.
 *
 * Backward: the gradients of q, k and v are read from q_THW, k_THW and v_THW, columns of 0 aside, and those of q_in, kv
 * and shared are written, the last one a sum over the heads in their order. Arithmetic is fp32, rounded once. */
#ifndef TT_BACKEND_OPS_LATENT_HEADS_H
#define TT_BACKEND_OPS_LATENT_HEADS_H

#include "backend/device.h"
#include "tensor/tensor.h"

struct tt_latent_heads_args {
    tt_tensor q_TC;             /* f32 | bf16 [T, H E] */
    tt_tensor kv_TC;            /* of the same type, as all below: [T, H (P + S)] */
    tt_tensor shared_TR;        /* rows may be strided, here and above */
    tt_tensor positions_T;      /* i32: rows of the tables */
    tt_tensor cos_PE, sin_PE;   /* f32 [rows, R / 2] */
    bool pairs;                 /* neighbouring columns rotate together */
    double temperature;         /* 0: none */
    int64_t original_positions; /* at least 1 with a temperature */
    tt_tensor q_THW, k_THW, v_THW;
    bool backward;
};
TT_MUST_USE tt_status tt_latent_heads(struct tt_stream *stream, const struct tt_latent_heads_args *args);

/* P, R and S of checked arguments. */
struct tt_latent_widths {
    int64_t heads, plain, rotated, value;
};
static inline struct tt_latent_widths tt_latent_widths_of(const struct tt_latent_heads_args *args)
{
    int64_t heads = args->q_THW.dims[1], rotated = args->shared_TR.dims[1];
    int64_t plain = args->q_TC.dims[1] / heads - rotated;
    return (struct tt_latent_widths){heads, plain, rotated, args->kv_TC.dims[1] / heads - plain};
}

#endif
