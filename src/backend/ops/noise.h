/* Noise on embeddings: NEFTune (Jain et al. 2023, "NEFTune: Noisy Embeddings Improve Instruction Finetuning",
 * algorithm 1; transformers' integrations/neftune.py). */
#ifndef TT_BACKEND_OPS_NOISE_H
#define TT_BACKEND_OPS_NOISE_H

#include "backend/device.h"
#include "base/rng.h"
#include "tensor/tensor.h"

/* x[t][d] += u alpha / sqrt(L D), rounded once; L is the length of the sequence of t. u, in [-1, 1), is a pure function
 * of (rng, row_keys[t], d), so a token has the same noise in any batch and on any rank: (w >> 8) / 2^23 - 1 with word
 * w = d % 4 of tt_rng_block(rng, row_key, d / 4). The gradient of x is that of the result. */
struct tt_add_noise_args {
    tt_tensor x_TD;       /* f32 | bf16 */
    tt_tensor row_keys_T; /* i64 */
    tt_tensor cu_seqlens; /* i32 [B + 1], from 0 to T */
    struct tt_rng rng;
    float alpha; /* at least 0 */
};
TT_MUST_USE tt_status tt_add_noise(struct tt_stream *stream, const struct tt_add_noise_args *args);

#endif
