/* Copies between a GPU and page-locked memory of the host, for bench_ops. */
#ifndef TT_BENCH_OPS_COPIES_H
#define TT_BENCH_OPS_COPIES_H

#include "ops_timing.h"

/* 256 MiB each way. */
void bench_host_copies(struct bench *bench);

#endif
