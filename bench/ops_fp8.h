/* Cases of bench_ops: linear layers in FP8, whose inputs are quantized already. */
#ifndef TT_BENCH_OPS_FP8_H
#define TT_BENCH_OPS_FP8_H

#include "backend/ops/matrix.h"
#include "ops_timing.h"

struct bench_fp8_case {
    const char *what;
    int64_t rows;
    bool trans;                     /* y = x w^T; else dx = dy w, from transposed copies */
    int64_t side;                   /* the side of w that its matrices share: columns of x, or of dx */
    int64_t parts[TT_MATRIX_PARTS]; /* the other side of each matrix; 0: none */
    int64_t r;                      /* of LoRA over all columns; 0: none */
    int64_t rotated;                /* columns in heads of 128 */
};

void bench_fp8(struct bench *bench, const struct bench_fp8_case *is);

#endif
