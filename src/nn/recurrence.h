/* The half of a layer with a state (nn/half.h): the gated delta rule of Qwen3-Next and Qwen3.5, and Mamba-2.
 *     n = norm(x);  [gate | columns of the convolution | rates] = linears of n
 *     [q | k | v] = silu(conv1d(columns));  o = scan(q, k, v, rates);  x_next = x + out(gated_norm(o, gate))
 * The ops are those of backend/ops/conv1d.h, scan.h and gated_norm.h. A sample begins with zeros in the convolution and
 * in the state, wherever it lies in the batch. With a cache both go on from the sequence's last token (nn/kv_cache.h).
 *
 * The delta rule's convolution has the columns q | k | v, and linears of their own make its rates b and a. Mamba-2's
 * has v | k | q (x, B and C), and its rates stand behind them.
 *
 * Kept for backward, in elements per token (c: compute type, f: fp32): the outputs of the linears (2 K E + 2 H W + 2 H
 * with the delta rule, 2 K E + 2 H W + H in Mamba-2) c, o H W c, rstd 1 f and G f, LoRA h. States at the borders of
 * chunks are computed again in backward. At TT_KEEP_ALL also the output of the convolution, (2 K E + H W) c, that of
 * the gated norm, H W c, and where LoRA or a weight of the first linears trains the normed input, D c. */
#ifndef TT_NN_RECURRENCE_H
#define TT_NN_RECURRENCE_H

#include "backend/ops/conv1d.h"
#include "backend/ops/gated_norm.h"
#include "backend/ops/scan.h"
#include "nn/half.h"

struct tt_recurrence {
    struct tt_norm norm;
    struct tt_linear_group in;
    struct tt_linear_group rates; /* b | a; count 0: they are columns of `in` */
    struct tt_linear_group out;
    enum tt_scan_rule rule;
    int64_t heads, key_heads, key_dim, value_dim;  /* H, K, E, W */
    int64_t gate_column, conv_column, rate_column; /* the first ones, of `in` */
    tt_param *conv_weight, *conv_bias;             /* [C, 1, J]; [C] or NULL */
    tt_param *a_log, *dt_bias, *skip;              /* [H]; skip: Mamba-2's D, or NULL */
    tt_param *gate_weight;                         /* of the gated norm: [H W], or [W] of every head */
    double dt_min, dt_max;                         /* Mamba-2 */
    double gate_eps;
    int64_t gate_groups; /* G */
    bool gate_first;
    int layer; /* index in a cache */
};

/* Columns of the convolution. */
static inline int64_t tt_recurrence_columns(const struct tt_recurrence *recurrence)
{
    return 2 * recurrence->key_heads * recurrence->key_dim + recurrence->heads * recurrence->value_dim;
}

#endif
