#include "backend/cuda/scan/chunks.cuh"

/* M, P and the factors of rows of a chunk and value head. A warp has 16 rows of P and A. M = (I + A)^-1 comes from the
 * inverses of the blocks of 16 x 16 on the diagonal, by substitution, and from products of blocks below it, column by
 * column: M_ij = -M_ii (sum over k in j .. i - 1 of A_ik M_kj), with factors of two parts. */

namespace
{

enum {
    WARPS = SCAN_ROWS / 16,
    BLOCK = 16,
    /* Shared memory: the tiles of k and q, later those of A and M, each in two parts, and P in two parts */
    TILES = 6 * SCAN_SQUARE,
    DIAGONALS = WARPS * BLOCK * (BLOCK + 1) * 4,
    SHARED = TILES + SCAN_FACTORS + DIAGONALS + 64,
};

/* The sums of logarithms up to each row, and the factors that follow from them; threads 0 .. 63 have the rows. */
template <bool DELTA>
__device__ __forceinline__ void make_factors(const struct scan_problem &p, const struct chunk &c, int h,
                                             const unsigned char *keys, const unsigned char *queries,
                                             float *factors, float *first_sum)
{
    int thread = (int)threadIdx.x, row = thread / 2;
    /* Two threads have a row of q and k. */
    float of_q = 0, of_k = 0;
#pragma unroll
    for (int i = 0; i < SCAN_WIDTH / 16; i++) {
        int at = tile_at<SCAN_WIDTH * 2>(row, thread % 2 * (SCAN_WIDTH / 16) + i);
        float q[8], k[8];
        widen(load<bf16, 8>(reinterpret_cast<const bf16 *>(queries + at)), q);
        widen(load<bf16, 8>(reinterpret_cast<const bf16 *>(keys + at)), k);
#pragma unroll
        for (int j = 0; j < 8; j++) of_q = __fmaf_rn(q[j], q[j], of_q), of_k = __fmaf_rn(k[j], k[j], of_k);
    }
    of_q = lanes_sum(of_q, 2), of_k = lanes_sum(of_k, 2);
    if (thread % 2 == 0) {
        factors[OF_Q * SCAN_ROWS + row] = p.norm_eps > 0 ? p.scale / sqrtf(of_q + p.norm_eps) : p.scale;
        factors[OF_K * SCAN_ROWS + row] = p.norm_eps > 0 ? 1.0f / sqrtf(of_k + p.norm_eps) : 1.0f;
    }
    float sum = 0, share = 0;
    if (thread < SCAN_ROWS && thread < c.rows) {
        struct scan_rate rate = rate_at<DELTA>(p, head_at(p, h), c.row + thread, h);
        sum = rate.log_decay, share = rate.share;
    }
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
        float before = __shfl_up_sync(0xffffffffu, sum, step);
        if (thread % 32 >= step) sum += before;
    }
    if (thread == 31) *first_sum = sum;
    __syncthreads();
    if (thread >= 32 && thread < SCAN_ROWS) sum += *first_sum;
    if (thread < SCAN_ROWS) {
        factors[LOG_SUM * SCAN_ROWS + thread] = sum;
        factors[SHARE * SCAN_ROWS + thread] = share;
    }
    __syncthreads();
    if (thread >= SCAN_ROWS) return;
    float last = factors[LOG_SUM * SCAN_ROWS + SCAN_ROWS - 1], grown = expf(sum);
    factors[X_OF_K * SCAN_ROWS + thread] = grown * factors[OF_K * SCAN_ROWS + thread];
    factors[X_OF_Q * SCAN_ROWS + thread] = grown * factors[OF_Q * SCAN_ROWS + thread];
    factors[R_OF_K * SCAN_ROWS + thread] = expf(last - sum) * factors[OF_K * SCAN_ROWS + thread];
    factors[OTHERS * SCAN_ROWS + thread] = expf(last);
}

/* Stores two neighbouring numbers of a tile of 64 x 64 in two parts. */
__device__ __forceinline__ void put_pair(unsigned char *tile, unsigned char *rest, int row, int column,
                                         float low, float high)
{
    int at = tile_at<SCAN_ROWS * 2>(row, column / 8) + column % 8 * 2;
    uint32_t rounded = pack_bf16(low, high);
    *reinterpret_cast<uint32_t *>(tile + at) = rounded;
    *reinterpret_cast<uint32_t *>(rest + at) = rest_of(rounded, low, high);
}

/* The inverse of a warp's block of I + A: lane l has column l. */
__device__ __forceinline__ void invert_diagonal(const float *a, unsigned char *m, unsigned char *m_rest,
                                                int warp)
{
    int column = (int)threadIdx.x % 32;
    float x[BLOCK];
#pragma unroll
    for (int i = 0; i < BLOCK; i++) x[i] = i == column ? 1.0f : 0.0f;
#pragma unroll
    for (int k = 0; k + 1 < BLOCK; k++)
#pragma unroll
        for (int i = k + 1; i < BLOCK; i++) x[i] = __fmaf_rn(-a[i * (BLOCK + 1) + k], x[k], x[i]);
    if (column >= BLOCK) return;
#pragma unroll
    for (int i = 0; i < BLOCK; i++) {
        int at = tile_at<SCAN_ROWS * 2>(warp * BLOCK + i, warp * 2 + column / 8) + column % 8 * 2;
        uint32_t rounded = pack_bf16(x[i], 0.0f);
        *reinterpret_cast<uint16_t *>(m + at) = (uint16_t)rounded;
        *reinterpret_cast<uint16_t *>(m_rest + at) = (uint16_t)rest_of(rounded, x[i], 0.0f);
    }
}

/* sums += a m of 16 x 16 blocks, both in two parts. */
__device__ __forceinline__ void multiply_blocks(float (&sums)[2][4], uint32_t a, uint32_t a_rest, int row,
                                                int middle, uint32_t m, uint32_t m_rest, int m_row,
                                                int column)
{
    constexpr int BYTES = SCAN_ROWS * 2;
    uint32_t factor[4], rest[4];
    first_factor<BYTES>(factor, a, row * BLOCK, middle * BLOCK);
    first_factor<BYTES>(rest, a_rest, row * BLOCK, middle * BLOCK);
    multiply_rows<BYTES>(sums[0], sums[1], factor, m, m_row * BLOCK, column * BLOCK);
    multiply_rows<BYTES>(sums[0], sums[1], factor, m_rest, m_row * BLOCK, column * BLOCK);
    multiply_rows<BYTES>(sums[0], sums[1], rest, m, m_row * BLOCK, column * BLOCK);
}

__device__ __forceinline__ void put_block(unsigned char *tile, unsigned char *rest, int row, int column,
                                          const float (&c)[2][4], float sign)
{
    int lane = (int)threadIdx.x % 32, r = row * BLOCK + lane / 4, s = column * BLOCK + lane % 4 * 2;
#pragma unroll
    for (int n = 0; n < 2; n++) {
        put_pair(tile, rest, r, s + 8 * n, sign * c[n][0], sign * c[n][1]);
        put_pair(tile, rest, r + 8, s + 8 * n, sign * c[n][2], sign * c[n][3]);
    }
}

/* Column `column` of blocks of M, below the diagonal; the warp's alone. */
__device__ __forceinline__ void invert_column(const unsigned char *a, const unsigned char *a_rest,
                                              unsigned char *m, unsigned char *m_rest, int column)
{
    constexpr int BYTES = SCAN_ROWS * 2;
    uint32_t from_a = lane_base<BYTES>(shared_address(a)),
             from_a_rest = lane_base<BYTES>(shared_address(a_rest));
    uint32_t from_m = lane_base<BYTES>(shared_address(m)),
             from_m_rest = lane_base<BYTES>(shared_address(m_rest));
    for (int row = 0; row < column; row++) {
        const float zeros[2][4] = {};
        put_block(m, m_rest, row, column, zeros, 1.0f);
    }
    for (int row = column + 1; row < WARPS; row++) {
        float sums[2][4], product[2][4];
        clear(sums), clear(product);
        for (int k = column; k < row; k++)
            multiply_blocks(sums, from_a, from_a_rest, row, k, from_m, from_m_rest, k, column);
        put_block(m, m_rest, row, column, sums, 1.0f);
        __syncwarp();
        multiply_blocks(product, from_m, from_m_rest, row, row, from_m, from_m_rest, row, column);
        __syncwarp();
        put_block(m, m_rest, row, column, product, -1.0f);
        __syncwarp();
    }
}

__device__ __forceinline__ void write_tile(unsigned char *to, const unsigned char *from)
{
    for (int i = (int)threadIdx.x * 16; i < SCAN_SQUARE; i += (int)blockDim.x * 16)
        *reinterpret_cast<uint4 *>(to + i) = *reinterpret_cast<const uint4 *>(from + i);
}

/* blockIdx: slot, value head of the pass. */
template <bool DELTA> __global__ void __launch_bounds__(WARPS * 32) prepare(const struct scan_problem p)
{
    extern __shared__ __align__(1024) unsigned char memory[];
    constexpr int BYTES = SCAN_WIDTH * 2;
    unsigned char *keys = memory, *queries = memory + SCAN_KEYS;
    float *factors = reinterpret_cast<float *>(memory + TILES);
    float *diagonals = factors + SCAN_FACTORS / 4, *first_sum = diagonals + DIAGONALS / 4;
    int head = (int)blockIdx.y, h = p.first + head, warp = (int)threadIdx.x / 32,
        lane = (int)threadIdx.x % 32;
    int64_t slot = blockIdx.x;
    struct chunk c;
    if (!chunk_at(p, (int)slot, c)) return;
    fetch_rows<BYTES>(shared_address(keys), p.k, c, h / p.group, 0, SCAN_WIDTH);
    fetch_rows<BYTES>(shared_address(queries), p.q, c, h / p.group, 0, SCAN_WIDTH);
    copy_commit();
    copy_wait<0>();
    __syncthreads();
    make_factors<DELTA>(p, c, h, keys, queries, factors, first_sum);

    float qk[WARPS * 2][4], kk[WARPS * 2][4];
    clear(qk), clear(kk);
    uint32_t from_k = lane_base<BYTES>(shared_address(keys)),
             from_q = lane_base<BYTES>(shared_address(queries));
#pragma unroll
    for (int e = 0; e < SCAN_WIDTH; e += 16) {
        uint32_t of_q[4], of_k[4];
        first_factor<BYTES>(of_q, from_q, warp * 16, e);
        if (DELTA) first_factor<BYTES>(of_k, from_k, warp * 16, e);
#pragma unroll
        for (int n = 0; n < WARPS; n++) {
            if (n > warp) continue;
            multiply_turned<BYTES>(qk[2 * n], qk[2 * n + 1], of_q, from_k, e, n * 16);
            if (DELTA) multiply_turned<BYTES>(kk[2 * n], kk[2 * n + 1], of_k, from_k, e, n * 16);
        }
    }
    __syncthreads(); /* the tiles of k and q have been read, and the factors are written */
    unsigned char *a = memory, *a_rest = a + SCAN_SQUARE, *m = a_rest + SCAN_SQUARE,
                  *m_rest = m + SCAN_SQUARE;
    unsigned char *tile = m_rest + SCAN_SQUARE, *tile_rest = tile + SCAN_SQUARE;
#pragma unroll
    for (int n = 0; n < WARPS * 2; n++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            int row = warp * 16 + half * 8 + lane / 4, column = n * 8 + lane % 4 * 2;
            float below[2], of_p[2];
#pragma unroll
            for (int i = 0; i < 2; i++) {
                float decay = row >= column + i ? exp_fast(factors[LOG_SUM * SCAN_ROWS + row] -
                                                           factors[LOG_SUM * SCAN_ROWS + column + i]) *
                                                      factors[OF_K * SCAN_ROWS + column + i]
                                                : 0.0f;
                of_p[i] = qk[n][2 * half + i] * decay * factors[OF_Q * SCAN_ROWS + row];
                below[i] = row > column + i ? kk[n][2 * half + i] * decay * factors[OF_K * SCAN_ROWS + row] *
                                                  factors[SHARE * SCAN_ROWS + row]
                                            : 0.0f;
            }
            put_pair(tile, tile_rest, row, column, of_p[0], of_p[1]);
            if (!DELTA) continue;
            put_pair(a, a_rest, row, column, below[0], below[1]);
            if (n / 2 != warp) continue;
            float *to = diagonals + (warp * BLOCK + row % BLOCK) * (BLOCK + 1) + column % BLOCK;
            to[0] = below[0], to[1] = below[1];
        }
    __syncwarp();
    if (DELTA) invert_diagonal(diagonals + warp * BLOCK * (BLOCK + 1), m, m_rest, warp);
    __syncthreads();
    if (DELTA) invert_column(a, a_rest, m, m_rest, warp);
    write_tile(scratch_at(p, p.p, slot, head, SCAN_SQUARE), tile);
    write_tile(scratch_at(p, p.p_rest, slot, head, SCAN_SQUARE), tile_rest);
    unsigned char *to = scratch_at(p, p.factors, slot, head, SCAN_FACTORS);
    for (int i = (int)threadIdx.x; i < SCAN_FACTORS / 4; i += (int)blockDim.x)
        reinterpret_cast<float *>(to)[i] = factors[i];
    if (!DELTA) return;
    __syncthreads();
    write_tile(scratch_at(p, p.m, slot, head, SCAN_SQUARE), m);
}

} // namespace

void tt_scan_prepare(const struct scan_problem *p, bool delta, cudaStream_t stream)
{
    launch(delta ? prepare<true> : prepare<false>, dim3((unsigned)p->slots, (unsigned)p->pass), WARPS * 32,
           SHARED, *p, stream);
}
