/* Shared by the kernels of attention_decode: the problem, the borders of parts, and sums of weights 2^(score - max). */
#ifndef TT_BACKEND_CUDA_ATTENTION_DECODE_CUH
#define TT_BACKEND_CUDA_ATTENTION_DECODE_CUH

#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <stdint.h>

#include "backend/cuda/cuda.h"
#include "backend/ops/attention.h"

/* Parts of a row: one where it has at most `whole` keys, else as many as have `least` keys each, but at most
 * TT_DECODE_PARTS_MAX, equally long up to multiples of `step`. */
struct decode_split {
    int whole, least, step;
};

struct decode_problem {
    const void *q, *k, *v;
    void *o;
    int64_t q_token, q_head, k_row, k_head, v_row, v_head, o_token, o_head; /* strides in elements */
    const int32_t *first, *count;
    float *parts; /* [T * H][part_count][head_dim + 2]: sums, then largest score, then sum of weights */
    int heads, kv_heads, group, head_dim, part_count, window;
    struct decode_split split;
    float scale, cap;
    const float *sinks; /* [H]; NULL: none */
};

/* decode_mma.cu: tensor cores, bf16 with vectors of 16 bytes and head_dim 64, 128 or 256, groups of 2 to
 * TT_DECODE_GROUP_MAX heads, scale > 0. */
enum { TT_DECODE_GROUP_MAX = 16 };
static const struct decode_split tt_decode_mma_split = {512, 256, 16};
/* Bytes of shared memory of a block; 0: no such kernel. */
int tt_attention_decode_mma_shared(int head_dim);
void tt_attention_decode_mma(const struct decode_problem *problem, int rows, cudaStream_t stream);

static __host__ __device__ inline int decode_parts(const struct decode_split &split, int length)
{
    if (length <= split.whole) return length > 0;
    int parts = (length + split.least - 1) / split.least;
    return parts < TT_DECODE_PARTS_MAX ? parts : TT_DECODE_PARTS_MAX;
}

struct key_part {
    int begin, end, count; /* count: parts of the row */
};

static __device__ key_part part_of(const decode_problem &p, int row, int part)
{
    int end = p.count[row], begin = p.window > 0 && end > p.window ? end - p.window : 0, length = end - begin;
    if (length == 0) return {0, 0, 0};
    int parts = decode_parts(p.split, length);
    int keys = ((length + parts - 1) / parts + p.split.step - 1) / p.split.step * p.split.step;
    return {begin + part * keys, min(begin + (part + 1) * keys, end), (length + keys - 1) / keys};
}

/* 2^x, where both sides of a difference may be -infinity. */
static __device__ __forceinline__ float power(float x, float max)
{
    return max == -INFINITY ? 0.0f : exp2f(x - max);
}

/* The sum of weights 2^(score - max) with a head's sink, which far above all scores makes it infinite, and o 0. */
static __device__ __forceinline__ float with_sink(const decode_problem &p, int head, float sum, float max)
{
    /* The second number is what the first lacks: a sink of 30 shows its rounding. */
    const float log2e = 1.4426950408889634f, rest = 1.9259629911e-8f;
    if (p.sinks == NULL) return sum;
    float sink = p.sinks[head];
    return sum + exp2f(__fmaf_rn(sink, rest, __fmaf_rn(sink, log2e, -max)));
}

#endif
