/* Cases of bench_ops: ops of mixtures of experts. */
#ifndef TT_BENCH_OPS_EXPERTS_H
#define TT_BENCH_OPS_EXPERTS_H

#include "ops_timing.h"

/* Products and rows of Qwen3-30B-A3B's experts, drawn with equal and with Zipf-like probabilities. */
void bench_experts(struct bench *bench);

#endif
