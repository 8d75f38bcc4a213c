/* Common parts of the attention kernels: the problem as kernels see it, the search for the sequence of a thread
 * block, and bf16 tiles in shared memory with products of them on tensor cores.
 *
 * A tile is [rows][D] bf16 in shared memory. The 16-byte chunk c of row r is stored as chunk c ^ (r & 7) of its
 * row, so that the eight rows that ldmatrix reads at once are in different banks. All reads of a tile use pieces
 * of 16 rows x 16 columns; lane l addresses chunk l / 16 of row l % 16. This address is called the lane's
 * address; column 16 k is at (address ^ (k << 5)).
 *
 * The sums of a product are in registers in the layout of mma.m16n8k16: of a 16 x 8 piece lane l holds row l / 4
 * (values 0, 1) and row l / 4 + 8 (values 2, 3), columns 2 (l % 4) and 2 (l % 4) + 1. */
#ifndef TT_BACKEND_CUDA_ATTENTION_MMA_TILES_H
#define TT_BACKEND_CUDA_ATTENTION_MMA_TILES_H

#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <stdint.h>

#include "backend/cuda/fast_math.cuh"
#include "backend/cuda/mma.cuh"

struct tt_attention_view {
    void *data;
    int64_t token, head; /* strides in elements */
};

/* Passed to kernels by value. */
struct tt_attention_problem {
    struct tt_attention_view q, k, v, o, go, gq, gk, gv; /* go: gradient of o, ... */
    float *lse;                                          /* [H, T]; NULL: not stored */
    int64_t lse_head;                                    /* stride */
    float *delta;                                        /* [H, rows_q] */
    const int32_t *cu_q, *cu_k;                          /* device memory */
    int64_t rows_q, rows_k;
    int sequences, heads, kv_heads, group, head_dim;
    int window;         /* 0: none */
    float scale, cap;   /* of scores; cap 0: none */
    const float *sinks; /* [H]; NULL: none */
    int max_shared;     /* bytes of shared memory that one block may have */
};

/* log(exp(lse) + exp(sink)), and the factor exp(lse - that) of what was divided by exp(lse). */
struct tt_attention_sunk {
    float lse, factor;
};
static __device__ __forceinline__ struct tt_attention_sunk tt_attention_sink(float lse, float sink)
{
    float most = fmaxf(lse, sink), both = most + log1pf(expf(fminf(lse, sink) - most));
    return {both, expf(lse - both)};
}

/* A backward pass launches delta first, then dq and dkv. */
void tt_attention_mma_forward(const struct tt_attention_problem *problem, cudaStream_t stream);
void tt_attention_mma_delta(const struct tt_attention_problem *problem, cudaStream_t stream);
void tt_attention_mma_dq(const struct tt_attention_problem *problem, cudaStream_t stream);
void tt_attention_mma_dkv(const struct tt_attention_problem *problem, cudaStream_t stream);
void tt_attention_any_forward(const struct tt_attention_problem *problem, bool bf16, cudaStream_t stream);
void tt_attention_any_backward(const struct tt_attention_problem *problem, bool bf16, cudaStream_t stream);
/* Adds to dsinks [H]; after the backward pass, which has written delta. */
void tt_attention_sink_gradients(const struct tt_attention_problem *problem, float *dsinks,
                                 cudaStream_t stream);

/* Number of thread blocks that cover `rows` rows of any number of sequences. The slots of sequence b begin at
 * cu[b] / block + b. A sequence has at least as many slots as it needs, so no prefix sum is needed; the blocks
 * of superfluous slots return at once. */
static inline int64_t tt_attention_slots(int64_t rows, int sequences, int block)
{
    return rows / block + sequences;
}

/* Launches the kernel with `shared` bytes of shared memory. Errors are left to cudaGetLastError. */
template <typename Kernel>
static void tt_attention_launch(Kernel *kernel, int64_t blocks, int threads, int shared,
                                const struct tt_attention_problem *problem, cudaStream_t stream)
{
    if (cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared) != cudaSuccess)
        return;
    if (cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, 100) != cudaSuccess)
        return;
    kernel<<<(unsigned)blocks, threads, shared, stream>>>(*problem);
}

#define TT_LOG2_E 1.4426950408889634f
#define TT_LN_2 0.6931471805599453f

/* Returns the sequence b with base(b) <= slot < base(b + 1), where base(b) = cu[b] / block + b * per_sequence.
 * The 32 lanes of a warp search together. With per_sequence 0 and block 1 the result is the sequence that owns
 * row `slot`. */
static __device__ __forceinline__ int find_sequence(const int32_t *cu, int sequences, int block,
                                                    int per_sequence, int slot)
{
    int lane = threadIdx.x % 32, low = 0, count = sequences;
    while (count > 1) {
        int step = (count + 31) / 32, at = low + lane * step;
        bool before = lane * step < count && cu[at] / block + at * per_sequence <= slot;
        int skip = (__popc(__ballot_sync(0xffffffffu, before)) - 1) * step;
        low += skip;
        count = count - skip < step ? count - skip : step;
    }
    return low;
}

/* A block of rows of one sequence. */
struct block_span {
    int q0, k0, length_q, length_k;
    int first;  /* row of the block, counted in its sequence */
    int offset; /* key that lines up with query 0 */
};

/* Fills `span` with the slot's block of query rows (KEYS: of key rows); false: the slot is superfluous. */
template <int BLOCK, bool KEYS>
static __device__ __forceinline__ bool find_block(const tt_attention_problem &p, int slot, block_span *span)
{
    const int32_t *cu = KEYS ? p.cu_k : p.cu_q;
    int b = find_sequence(cu, p.sequences, BLOCK, 1, slot);
    span->q0 = p.cu_q[b];
    span->k0 = p.cu_k[b];
    span->length_q = p.cu_q[b + 1] - span->q0;
    span->length_k = p.cu_k[b + 1] - span->k0;
    span->offset = span->length_k - span->length_q;
    span->first = (slot - (KEYS ? span->k0 : span->q0) / BLOCK - b) * BLOCK;
    return span->first < (KEYS ? span->length_k : span->length_q);
}

static __device__ __forceinline__ const __nv_bfloat16 *rows_of(const tt_attention_view &view, int64_t row,
                                                               int head)
{
    return (const __nv_bfloat16 *)view.data + row * view.token + head * view.head;
}

/* Copies rows first .. first + ROWS of a head (`base` is its row 0) to the tile at `to`. Rows from `length` on
 * and columns from `head_dim` on become zero. `thread`: of the THREADS that copy together. */
template <int ROWS, int D, int THREADS>
static __device__ __forceinline__ void load_tile(uint32_t to, const __nv_bfloat16 *base, int64_t stride,
                                                 int first, int length, int head_dim,
                                                 int thread = threadIdx.x)
{
    constexpr int CHUNKS = D / 8, STEP = THREADS / CHUNKS;
    int chunk = thread % CHUNKS, row = thread / CHUNKS;
    bool inside = chunk * 8 < head_dim;
    const __nv_bfloat16 *from = base + (int64_t)(first + row) * stride + chunk * 8;
#pragma unroll
    for (int i = 0; i < ROWS; i += STEP) {
        int r = row + i;
        bool valid = inside && first + r < length;
        copy_16(to + r * (D * 2) + ((chunk ^ (r & 7)) << 4), from, valid);
        from += STEP * stride;
    }
}

/* The lane's address in the piece at row 0 of a tile. */
template <int D> static __device__ __forceinline__ uint32_t lane_address(uint32_t tile)
{
    int lane = threadIdx.x % 32;
    return tile + (lane % 16) * (D * 2) + (((lane / 16) ^ (lane & 7)) << 4);
}

template <int M, int N> static __device__ __forceinline__ void clear(float (&c)[M][N][4])
{
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int n = 0; n < N; n++) c[m][n][0] = c[m][n][1] = c[m][n][2] = c[m][n][3] = 0.0f;
}

/* c[i][j] = sum over e < D of a[i][e] b[j][e], for 16 M rows of the tile at `a` and 8 N rows of the tile at `b`
 * (both given as lane addresses). */
template <int D, int M, int N>
static __device__ __forceinline__ void multiply_tiles(float (&c)[M][N][4], uint32_t a, uint32_t b)
{
    clear(c);
#pragma unroll
    for (int k = 0; k < D / 16; k++) {
        uint32_t fa[M][4], fb[4];
#pragma unroll
        for (int m = 0; m < M; m++) load_pieces(fa[m], (a ^ (k << 5)) + m * 16 * D * 2);
#pragma unroll
        for (int n = 0; n < N / 2; n++) {
            load_pieces(fb, (b ^ (k << 5)) + n * 16 * D * 2);
#pragma unroll
            for (int m = 0; m < M; m++) {
                multiply_piece(c[m][2 * n], fa[m], fb[0], fb[2]);
                multiply_piece(c[m][2 * n + 1], fa[m], fb[1], fb[3]);
            }
        }
    }
}

/* c[i][e] += sum over j of p[i][j] b[j][e]: p comes from registers and is rounded to bf16; 8 N rows of the tile
 * at `b`. */
template <int D, int M, int N>
static __device__ __forceinline__ void multiply_add(float (&c)[M][D / 8][4], const float (&p)[M][N][4],
                                                    uint32_t b)
{
#pragma unroll
    for (int k = 0; k < N / 2; k++) {
        uint32_t fa[M][4], fb[4];
#pragma unroll
        for (int m = 0; m < M; m++) {
            fa[m][0] = pack_bf16(p[m][2 * k][0], p[m][2 * k][1]);
            fa[m][1] = pack_bf16(p[m][2 * k][2], p[m][2 * k][3]);
            fa[m][2] = pack_bf16(p[m][2 * k + 1][0], p[m][2 * k + 1][1]);
            fa[m][3] = pack_bf16(p[m][2 * k + 1][2], p[m][2 * k + 1][3]);
        }
#pragma unroll
        for (int n = 0; n < D / 16; n++) {
            load_pieces_transposed(fb, (b ^ (n << 5)) + k * 16 * D * 2);
#pragma unroll
            for (int m = 0; m < M; m++) {
                multiply_piece(c[m][2 * n], fa[m], fb[0], fb[1]);
                multiply_piece(c[m][2 * n + 1], fa[m], fb[2], fb[3]);
            }
        }
    }
}

/* The factor of scores in the exponents of 2; capped scores s are cap tanh(scale s / cap), and cap_scores has applied
 * the tanh. */
template <bool CAPPED> static __device__ __forceinline__ float exponent_scale(const tt_attention_problem &p)
{
    return (CAPPED ? p.cap : p.scale) * TT_LOG2_E;
}

/* s = tanh(scale s / cap) = 1 - 2 / (1 + exp(2 scale s / cap)), with an error of about 2^-23. The hardware's tanh has
 * one of 2^-11, which the cap would multiply. */
template <int M, int N, typename Problem>
static __device__ __forceinline__ void cap_scores(float (&s)[M][N][4], const Problem &p)
{
    float factor = 2.0f * p.scale / p.cap * TT_LOG2_E;
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                s[m][n][i] = 1.0f - 2.0f * reciprocal_fast(1.0f + exp2_fast(s[m][n][i] * factor));
}

/* The derivative of tanh at its value t; 0 for a masked score, -infinity. */
static __device__ __forceinline__ float slope_of(float t)
{
    return fmaxf(fmaf(-t, t, 1.0f), 0.0f);
}

/* Row r of the piece keeps the columns low + r <= column < high + r; the others become -infinity. */
template <int M, int N>
static __device__ __forceinline__ void mask_band(float (&c)[M][N][4], int low, int high)
{
    int lane = threadIdx.x % 32, shift = lane / 4 - 2 * (lane % 4);
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                int column = n * 8 + i % 2 - m * 16 - i / 2 * 8;
                if (column < low + shift || column >= high + shift) c[m][n][i] = -INFINITY;
            }
}

/* Stores rows `first` .. + 16 M of c, each multiplied by its factor, to `out` (row 0 of its head) as bf16. The
 * rows pass through `stage`, [16 M][D] of shared memory that only this warp uses, so that stores are whole
 * chunks. */
template <int D, int M>
static __device__ __forceinline__ void store_rows(const float (&c)[M][D / 8][4], const float (&factor)[M][2],
                                                  unsigned char *stage, const __nv_bfloat16 *out,
                                                  int64_t stride, int first, int length, int head_dim)
{
    constexpr int CHUNKS = D / 8, STEP = 32 / CHUNKS;
    int lane = threadIdx.x % 32;
    __syncwarp();
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int n = 0; n < D / 8; n++)
#pragma unroll
            for (int h = 0; h < 2; h++) {
                int row = m * 16 + h * 8 + lane / 4;
                unsigned char *to = stage + row * (D * 2) + ((n ^ (row & 7)) << 4) + lane % 4 * 4;
                *(uint32_t *)to = pack_bf16(c[m][n][2 * h] * factor[m][h], c[m][n][2 * h + 1] * factor[m][h]);
            }
    __syncwarp();
    int chunk = lane % CHUNKS;
    for (int row = lane / CHUNKS; row < 16 * M; row += STEP) {
        if (first + row >= length || chunk * 8 >= head_dim) continue;
        uint4 value = *(const uint4 *)(stage + row * (D * 2) + ((chunk ^ (row & 7)) << 4));
        *(uint4 *)(const_cast<__nv_bfloat16 *>(out) + (int64_t)(first + row) * stride + chunk * 8) = value;
    }
}

#endif
