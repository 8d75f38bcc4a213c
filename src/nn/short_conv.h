/* The half of a layer with a short convolution between two gates (nn/half.h; LFM2):
 *     [b | c | u] = linear of norm(x);  x_next = x + out(c * conv1d(b * u))
 * A sample begins with zeros in the convolution (backend/ops/conv1d.h). With a cache it goes on from the sequence's
 * last rows (nn/kv_cache.h).
 *
 * Kept for backward, in elements per token (c: compute type, f: fp32): the output of the linear 3 D c, rstd 1 f, LoRA
 * h. At TT_KEEP_ALL also the normed input, and the input of `out`, D c each, where LoRA or a weight reads them. */
#ifndef TT_NN_SHORT_CONV_H
#define TT_NN_SHORT_CONV_H

#include "nn/half.h"

struct tt_short_conv {
    struct tt_norm norm;
    struct tt_linear_group in, out;
    tt_param *weight, *bias; /* [D, 1, J]; [D] or NULL */
    int64_t columns;         /* D */
    int layer;               /* index in a cache */
};

#endif
