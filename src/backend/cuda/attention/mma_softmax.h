/* Softmax online (Dao et al., arXiv 2205.14135) over scores in the registers of a warp that owns whole rows, 16 M of
 * them: they become the left factor of P V where they are. */
#ifndef TT_BACKEND_CUDA_ATTENTION_MMA_SOFTMAX_H
#define TT_BACKEND_CUDA_ATTENTION_MMA_SOFTMAX_H

#include "backend/cuda/attention/mma_tiles.h"

template <int M, int D> struct softmax_rows {
    float o[M][D / 8][4];
    float max[M][2], sum[M][2]; /* maximum so far, in raw scores; this lane's part of the sum */
};

template <int M, int D>
static __device__ __forceinline__ void rows_rescale(softmax_rows<M, D> &rows, float (&top)[M][2],
                                                    float scale_log2)
{
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float next = fmaxf(top[m][h], __shfl_xor_sync(0xffffffffu, top[m][h], 1));
            next = fmaxf(next, __shfl_xor_sync(0xffffffffu, next, 2));
            next = fmaxf(next, rows.max[m][h]);
            float factor = next == -INFINITY ? 1.0f : exp2_fast((rows.max[m][h] - next) * scale_log2);
            rows.max[m][h] = next;
            rows.sum[m][h] *= factor;
#pragma unroll
            for (int n = 0; n < D / 8; n++) {
                rows.o[m][n][2 * h] *= factor;
                rows.o[m][n][2 * h + 1] *= factor;
            }
        }
}

/* Turns scores s (masked ones are -infinity) into exp(scale (s - max)), `scale` being that of exponent_scale(). A row
 * that has seen no key yet has max -infinity. Sums move to a new maximum when it exceeds theirs by `slack`. */
template <int M, int N, int D>
static __device__ __forceinline__ void rows_soften(softmax_rows<M, D> &rows, float (&s)[M][N][4],
                                                   float scale_log2, float slack)
{
    float top[M][2];
    bool exceeds = false;
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            top[m][h] = fmaxf(s[m][0][2 * h], s[m][0][2 * h + 1]);
#pragma unroll
            for (int n = 1; n < N; n++)
                top[m][h] = fmaxf(top[m][h], fmaxf(s[m][n][2 * h], s[m][n][2 * h + 1]));
            exceeds |= top[m][h] > rows.max[m][h] + slack;
        }
    if (__any_sync(0xffffffffu, exceeds)) rows_rescale(rows, top, scale_log2);
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float reference = rows.max[m][h] == -INFINITY ? 0.0f : rows.max[m][h] * scale_log2;
            float sum = 0.0f;
#pragma unroll
            for (int n = 0; n < N; n++)
#pragma unroll
                for (int i = 2 * h; i < 2 * h + 2; i++) {
                    s[m][n][i] = exp2_fast(fmaf(s[m][n][i], scale_log2, -reference));
                    sum += s[m][n][i];
                }
            rows.sum[m][h] += sum;
        }
}

#endif
