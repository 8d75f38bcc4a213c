/* Cases of bench_ops: attention, forward and backward, and of single queries against a cache. */
#ifndef TT_BENCH_OPS_ATTENTION_H
#define TT_BENCH_OPS_ATTENTION_H

#include "ops_timing.h"

/* Sizes of real models in bf16, for GPUs, and small ones, for processors. */
void bench_attention_of_models(struct bench *bench);
void bench_attention_of_small_models(struct bench *bench);
void bench_decode_of_models(struct bench *bench);
void bench_decode_of_small_models(struct bench *bench);

#endif
