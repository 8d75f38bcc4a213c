/* Cases of bench_ops: attention, forward and backward. */
#ifndef TT_BENCH_OPS_ATTENTION_H
#define TT_BENCH_OPS_ATTENTION_H

#include "ops_timing.h"

/* Sizes of real models in bf16, for GPUs, and small ones, for processors. */
void bench_attention_of_models(struct bench *bench);
void bench_attention_of_small_models(struct bench *bench);

#endif
