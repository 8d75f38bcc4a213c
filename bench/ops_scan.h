/* Cases of bench_ops: layers with a state. */
#ifndef TT_BENCH_OPS_SCAN_H
#define TT_BENCH_OPS_SCAN_H

#include "ops_timing.h"

/* The short convolution, the scan and the gated norm of a layer of Qwen3.5-0.8B, and the scan of one of Granite 4. */
void bench_scan(struct bench *bench);
void bench_scan_of_models(struct bench *bench); /* the sizes of models that GPUs train */

#endif
