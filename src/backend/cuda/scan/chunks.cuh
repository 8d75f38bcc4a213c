/* Scans by chunks on tensor cores, bf16 rows and states of 128 x 64 or 128 x 128: what the kernels of this folder
 * share.
 *
 * With the letters of cpu/scan/backward.c, q and k as they lie in memory, and their factors (norms and scale)
 * moved into the factors of rows, which `prepare` writes once for each chunk and value head together with M and P:
 *
 *     prepare     M, P and the factors of rows; all chunks at the same time
 *     sweep       S from chunk to chunk; O, or for the backward pass S before each chunk and V'
 *     sweep_back  D (the gradient of S) from chunk to chunk in reverse; D behind each chunk, dN, dV
 *     gradients   dQ, dK and the gradients of rates; all chunks at the same time, the heads of a key head in order
 *
 * In both sweeps a warp has 16 columns of a state, turned, in the registers that hold sums of mma.m16n8k16: 16
 * columns of the state x 128. These become the first factor of the next product without leaving the warp, and all
 * second factors are tiles of 64 rows that the warps of a thread block share. So warps do not wait for one
 * another, a state never leaves the registers, and results do not depend on how many warps a thread block has.
 *
 * Products round their factors to bf16. q, k, v and dO are such numbers already. P, N, V', dV' and F, whose
 * rounding would be seen in the results, are the sums of two.
 *
 * A tile has rows of 64 or 128 numbers of bf16; the 16-byte piece c of row r is stored as piece c ^ (r & 7). Tiles
 * in the scratch have this form too. */
#ifndef TT_BACKEND_CUDA_SCAN_CHUNKS_CUH
#define TT_BACKEND_CUDA_SCAN_CHUNKS_CUH

#include "backend/cuda/device_math.cuh"
#include "backend/cuda/fast_math.cuh"
#include "backend/cuda/mma.cuh"
#include "backend/cuda/scan.h"
#include "backend/ops/scan.h"

enum {
    SCAN_ROWS = TT_SCAN_CHUNK,
    SCAN_WIDTH = TT_CUDA_SCAN_WIDTH,
    SCAN_SQUARE = SCAN_ROWS * SCAN_ROWS * 2, /* bytes of a tile of 64 x 64 */
    SCAN_KEYS = SCAN_ROWS * SCAN_WIDTH * 2,  /* bytes of a tile of 64 x 128 */
    SCAN_FACTORS = TT_CUDA_SCAN_FACTORS,     /* bytes of the factors of rows */
    SCAN_HALF = 64,                          /* columns of a state in a tile */
};

/* The factors of rows: arrays of SCAN_ROWS floats. X: the decay from the chunk's start, R: to its end. */
enum scan_factor {
    X_OF_K, /* X times the factor of k */
    X_OF_Q,
    R_OF_K,
    SHARE,   /* 0 behind the sequence's last row */
    LOG_SUM, /* log X */
    OF_K,
    OF_Q,
    OTHERS, /* [0]: the decay of the chunk */
};

struct scan_rows {
    bf16 *data;
    int64_t row, head; /* strides */
};

/* Passed to kernels by value. */
struct scan_problem {
    struct scan_rows q, k, v, o, a, b, d_out, dq, dk, dv, da, db;
    const void *a_log, *dt_bias, *skip; /* skip NULL: 0 */
    const int32_t *cu, *from, *to;
    float *pool; /* NULL: no states */
    int64_t pool_stride;
    int64_t count;
    int sequences, heads, group, value_width;
    int first, pass; /* value heads first .. first + pass */
    int least;       /* sequences of so many rows and fewer are left alone */
    int64_t slots;
    float scale, norm_eps, dt_min, dt_max;
    bool a_log_bf16, dt_bias_bf16, skip_bf16;
    /* [slot][head of the pass] */
    unsigned char *m, *p, *p_rest, *factors, *states, *next, *fresh, *dn;
    float *rates; /* [head of the pass][2][count]: gradients of dt_bias and of a_log; NULL: not wanted */
};

void tt_scan_prepare(const struct scan_problem *problem, bool delta, cudaStream_t stream);
void tt_scan_sweep(const struct scan_problem *problem, bool delta, bool states, int processors,
                   cudaStream_t stream);
void tt_scan_sweep_back(const struct scan_problem *problem, bool delta, int processors, cudaStream_t stream);
void tt_scan_gradients(const struct scan_problem *problem, bool delta, cudaStream_t stream);

namespace
{

/* Launches the kernel with `shared` bytes of shared memory. Errors are left to cudaGetLastError. */
template <typename Kernel>
void launch(Kernel *kernel, dim3 blocks, int threads, int shared, const struct scan_problem &p,
            cudaStream_t stream)
{
    if (cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared) != cudaSuccess)
        return;
    kernel<<<blocks, threads, shared, stream>>>(p);
}

struct chunk {
    int64_t row; /* the first */
    int rows, sequence;
};

__device__ __forceinline__ int first_slot(const struct scan_problem &p, int sequence)
{
    return p.cu[sequence] / SCAN_ROWS + sequence;
}

/* False: the slot has no chunk. */
__device__ __forceinline__ bool chunk_at(const struct scan_problem &p, int slot, struct chunk &c)
{
    int low = 0, high = p.sequences;
    while (high - low > 1) {
        int middle = (low + high) / 2;
        if (first_slot(p, middle) <= slot)
            low = middle;
        else
            high = middle;
    }
    int begin = p.cu[low], end = p.cu[low + 1], row = begin + (slot - first_slot(p, low)) * SCAN_ROWS;
    c.row = row, c.sequence = low;
    c.rows = end - row < SCAN_ROWS ? end - row : SCAN_ROWS;
    return row < end && end - begin > p.least;
}

/* The place of a slot and head in a part of the scratch with `bytes` for each. */
__device__ __forceinline__ unsigned char *scratch_at(const struct scan_problem &p, unsigned char *part,
                                                     int64_t slot, int head, int64_t bytes)
{
    return part + (slot * p.pass + head) * bytes;
}

/* Byte of piece `piece` of row `row` in a tile with rows of BYTES. */
template <int BYTES> __device__ __forceinline__ int tile_at(int row, int piece)
{
    return row * BYTES + ((piece ^ (row & 7)) << 4);
}

/* Copies a chunk's rows to a tile, `columns` numbers of each; zeros behind the last row. */
template <int BYTES>
__device__ __forceinline__ void fetch_rows(uint32_t to, const struct scan_rows &from, const struct chunk &c,
                                           int64_t head, int first, int columns)
{
    int pieces = columns / 8;
    const bf16 *base = from.data + c.row * from.row + head * from.head + first;
    for (int i = (int)threadIdx.x; i < SCAN_ROWS * pieces; i += (int)blockDim.x) {
        int row = i / pieces, piece = i % pieces;
        bool inside = row < c.rows;
        copy_16(to + tile_at<BYTES>(row, piece), base + (inside ? row : 0) * from.row + piece * 8, inside);
    }
}

__device__ __forceinline__ void fetch_bytes(uint32_t to, const unsigned char *from, int bytes)
{
    for (int i = (int)threadIdx.x * 16; i < bytes; i += (int)blockDim.x * 16) copy_16(to + i, from + i, true);
}

/* The address that a lane gives for the piece of 16 x 16 at row 0, column 0 of a tile. */
template <int BYTES> __device__ __forceinline__ uint32_t lane_base(uint32_t tile)
{
    int lane = (int)threadIdx.x % 32;
    return tile + lane % 16 * BYTES + (((lane / 16) ^ (lane & 7)) << 4);
}

template <int BYTES> __device__ __forceinline__ uint32_t piece_at(uint32_t base, int row, int column)
{
    return (base ^ (column / 8 << 4)) + row * BYTES;
}

/* First factors of 16 x 16, from x[row][column], or from the turned x[column][row]. */
template <int BYTES>
__device__ __forceinline__ void first_factor(uint32_t (&a)[4], uint32_t base, int row, int column)
{
    load_pieces(a, piece_at<BYTES>(base, row, column));
}

template <int BYTES>
__device__ __forceinline__ void first_factor_turned(uint32_t (&a)[4], uint32_t base, int row, int column)
{
    uint32_t r[4];
    load_pieces_transposed(r, piece_at<BYTES>(base, column, row));
    a[0] = r[0], a[1] = r[2], a[2] = r[1], a[3] = r[3];
}

/* c[0 .. 1] += a x, with 16 columns of x[row][column], or of the turned x[column][row]. */
template <int BYTES>
__device__ __forceinline__ void multiply_rows(float (&c0)[4], float (&c1)[4], const uint32_t (&a)[4],
                                              uint32_t base, int row, int column)
{
    uint32_t b[4];
    load_pieces_transposed(b, piece_at<BYTES>(base, row, column));
    multiply_piece(c0, a, b[0], b[1]);
    multiply_piece(c1, a, b[2], b[3]);
}

template <int BYTES>
__device__ __forceinline__ void multiply_turned(float (&c0)[4], float (&c1)[4], const uint32_t (&a)[4],
                                                uint32_t base, int row, int column)
{
    uint32_t b[4];
    load_pieces(b, piece_at<BYTES>(base, column, row));
    multiply_piece(c0, a, b[0], b[2]);
    multiply_piece(c1, a, b[1], b[3]);
}

template <int N> __device__ __forceinline__ void clear(float (&c)[N][4])
{
#pragma unroll
    for (int n = 0; n < N; n++) c[n][0] = c[n][1] = c[n][2] = c[n][3] = 0.0f;
}

/* The first factor of two neighbouring pieces of sums, rounded; `rest` gets what the rounding left out. */
__device__ __forceinline__ void round_sums(uint32_t (&a)[4], const float (&c0)[4], const float (&c1)[4])
{
    a[0] = pack_bf16(c0[0], c0[1]), a[1] = pack_bf16(c0[2], c0[3]);
    a[2] = pack_bf16(c1[0], c1[1]), a[3] = pack_bf16(c1[2], c1[3]);
}

__device__ __forceinline__ uint32_t rest_of(uint32_t rounded, float low, float high)
{
    return pack_bf16(low - __uint_as_float(rounded << 16), high - __uint_as_float(rounded & 0xffff0000u));
}

__device__ __forceinline__ void round_sums(uint32_t (&a)[4], uint32_t (&rest)[4], const float (&c0)[4],
                                           const float (&c1)[4])
{
    round_sums(a, c0, c1);
    rest[0] = rest_of(a[0], c0[0], c0[1]), rest[1] = rest_of(a[1], c0[2], c0[3]);
    rest[2] = rest_of(a[2], c1[0], c1[1]), rest[3] = rest_of(a[3], c1[2], c1[3]);
}

/* c[.][i] *= factor of column i. */
template <int N> __device__ __forceinline__ void scale_columns(float (&c)[N][4], const float *factors)
{
    int t = (int)threadIdx.x % 4;
#pragma unroll
    for (int n = 0; n < N; n++) {
        float2 f = *reinterpret_cast<const float2 *>(factors + n * 8 + 2 * t);
        c[n][0] *= f.x, c[n][1] *= f.y, c[n][2] *= f.x, c[n][3] *= f.y;
    }
}

struct scan_head {
    float rate, bias, skip;
};

__device__ __forceinline__ struct scan_head head_at(const struct scan_problem &p, int h)
{
    return {expf(load_either(p.a_log, h, p.a_log_bf16)), load_either(p.dt_bias, h, p.dt_bias_bf16),
            p.skip == nullptr ? 0.0f : load_either(p.skip, h, p.skip_bf16)};
}

struct scan_rate {
    float x, dt, log_decay, share; /* x: before softplus */
    bool inside;                   /* dt was not clamped */
};

/* A decay of less than exp(-150) is 0 in any float; sums of logarithms keep their digits. */
template <bool DELTA>
__device__ __forceinline__ struct scan_rate rate_at(const struct scan_problem &p,
                                                    const struct scan_head &head, int64_t row, int h)
{
    struct scan_rate r;
    r.x = load_one(p.a.data + row * p.a.row + h) + head.bias;
    float dt = r.x > 0 ? r.x + log1pf(expf(-r.x)) : log1pf(expf(r.x));
    r.dt = DELTA ? dt : fminf(fmaxf(dt, p.dt_min), p.dt_max);
    r.inside = r.dt == dt;
    r.log_decay = fmaxf(-head.rate * r.dt, -150.0f);
    r.share = DELTA ? 1.0f / (1.0f + expf(-load_one(p.b.data + row * p.b.row + h))) : r.dt;
    return r;
}

} // namespace

#endif
