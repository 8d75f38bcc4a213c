/* Cases of bench_ops: linear layers with LoRA, SwiGLU and dropout. */
#ifndef TT_BENCH_OPS_LORA_H
#define TT_BENCH_OPS_LORA_H

#include "ops_timing.h"

/* y [rows, n] = x w^T + LoRA of one rank over all columns; without `trans` dx = dy w + LoRA. */
void bench_lora(struct bench *bench, const char *what, int64_t rows, int64_t n, int64_t k, int64_t r,
                bool trans);
/* gate, up and their product; and their gradients. FLOPs are those of the products alone. */
void bench_swiglu_products(struct bench *bench, int64_t rows, int64_t dim, int64_t ffn);
/* The narrow products of `count` adapters with dropout on the same input, in all three directions. Bytes are one
 * pass over x, or two over dx. */
void bench_lora_dropout(struct bench *bench, int64_t tokens, int64_t width, int count, int64_t r);
/* Both narrow products with the gradients of outputs, for linears of 8 billion parameters and r 16. Bytes are one pass
 * over dy. */
void bench_lora_gradients(struct bench *bench);

#endif
