#include "backend/cuda/scan/products.cuh"

/* The gradients of q, k and the rates of a chunk, from the states around it. A thread block has a chunk and a key
 * head, and goes through the value heads of this. Each warp has 16 rows and 64 of the 128 columns of q and k, or
 * 32 of the 64 columns of F and B:
 *
 *     F = lower(dO V'^T) gamma;  B = -strictly lower(dN V'^T) gamma share
 *     dQ = F k + X dO S^T;  dK = F^T q + B^T k + R V' D^T  (the writes)  + B k - X share dN S^T  (the reads)
 *
 * The gradient of log X of a row is <q, dQ> - <k, dK of the writes> + <k, dK of the reads>; the last row's has the
 * sum of R <k, V' D^T> and decay <S, D> besides. That of log g sums those from its row on, and that of the share,
 * times it, is <dN, V'>. q, k, F and B are taken with the factors of the rows of q and k, so dQ and dK are those
 * of their rows as they lie in memory, but for the part along the row itself, which a norm takes away at the end. */

namespace
{

enum {
    WARPS = 8,
    ROW_WARPS = SCAN_ROWS / 16,
    COLUMN_WARPS = WARPS / ROW_WARPS,
    COLUMNS = SCAN_WIDTH / COLUMN_WARPS, /* of q and k, of a warp */
    TILES = COLUMNS / 8,
    SQUARE_COLUMNS = SCAN_ROWS / COLUMN_WARPS,
    SQUARE_TILES = SQUARE_COLUMNS / 8,
    STATE = SCAN_HALF * SCAN_WIDTH * 2, /* bytes of a tile of 64 columns of a state */
    /* Shared memory. */
    K = 0,
    Q = K + SCAN_KEYS,
    F = Q + SCAN_KEYS,
    F_REST = F + SCAN_SQUARE,
    B = F_REST + SCAN_SQUARE,
    FACTORS = B + SCAN_SQUARE,
    SUMS = FACTORS + SCAN_FACTORS,
    STAGE = SUMS + 4096,
    /* A stage: 64 columns of dO, V', dN, S and D */
    D_OUT = 0,
    FRESH = D_OUT + SCAN_SQUARE,
    DN = FRESH + SCAN_SQUARE,
    S = DN + SCAN_SQUARE,
    D = S + STATE,
    STAGE_BYTES = D + STATE,
    SHARED = STAGE + 2 * STAGE_BYTES,
};

/* Sums of rows, of each half of the columns. */
struct row_sums {
    float q[COLUMN_WARPS][SCAN_ROWS];      /* <q, dQ> */
    float writes[COLUMN_WARPS][SCAN_ROWS]; /* <k, dK of the writes> */
    float reads[COLUMN_WARPS][SCAN_ROWS];
    float faded[COLUMN_WARPS][SCAN_ROWS]; /* R <k, V' D^T> */
    float share[SCAN_ROWS];               /* <dN, V'> */
    float partial[32];
    float scanned[4];
};

__device__ __forceinline__ void fetch_half(const struct scan_problem &p, const struct chunk &c, int64_t slot,
                                           int head, int half, uint32_t to)
{
    int64_t values = (int64_t)p.value_width * SCAN_ROWS * 2, state = (int64_t)p.value_width * SCAN_WIDTH * 2;
    fetch_rows<SCAN_HALF * 2>(to + D_OUT, p.d_out, c, p.first + head, half * SCAN_HALF, SCAN_HALF);
    fetch_bytes(to + FRESH, scratch_at(p, p.fresh, slot, head, values) + half * SCAN_SQUARE, SCAN_SQUARE);
    fetch_bytes(to + DN, scratch_at(p, p.dn, slot, head, values) + half * SCAN_SQUARE, SCAN_SQUARE);
    fetch_bytes(to + S, scratch_at(p, p.states, slot, head, state) + half * STATE, STATE);
    fetch_bytes(to + D, scratch_at(p, p.next, slot, head, state) + half * STATE, STATE);
}

/* The thread's part of <S, D> of 64 columns. */
__device__ __forceinline__ float states_product(const unsigned char *s, const unsigned char *d)
{
    float sum = 0;
#pragma unroll
    for (int i = (int)threadIdx.x * 16; i < STATE; i += WARPS * 32 * 16) {
        float x[8], y[8];
        widen(load<bf16, 8>(reinterpret_cast<const bf16 *>(s + i)), x);
        widen(load<bf16, 8>(reinterpret_cast<const bf16 *>(d + i)), y);
#pragma unroll
        for (int j = 0; j < 8; j++) sum = __fmaf_rn(x[j], y[j], sum);
    }
    return sum;
}

/* The sums of a warp for a value head. */
struct sums {
    float f[SQUARE_TILES][4], b[SQUARE_TILES][4];         /* dO V'^T, dN V'^T */
    float q[TILES][4], writes[TILES][4], reads[TILES][4]; /* dO S^T, V' D^T, dN S^T */
};

__device__ __forceinline__ int row_warp()
{
    return (int)threadIdx.x / 32 % ROW_WARPS;
}

__device__ __forceinline__ int column_warp()
{
    return (int)threadIdx.x / 32 / ROW_WARPS;
}

/* dO V'^T and dN V'^T; each warp by itself. */
__device__ __forceinline__ void add_squares(struct sums &s, const unsigned char *stage)
{
    constexpr int SQUARE = SCAN_ROWS * 2;
    uint32_t base = shared_address(stage), fresh = lane_base<SQUARE>(base + FRESH);
    int row = row_warp() * 16, column = column_warp() * SQUARE_COLUMNS;
#pragma unroll
    for (int w = 0; w < SCAN_HALF; w += 16) {
        uint32_t of_out[4], of_dn[4], b[4];
        first_factor<SQUARE>(of_out, lane_base<SQUARE>(base + D_OUT), row, w);
        first_factor_turned<SQUARE>(of_dn, lane_base<SQUARE>(base + DN), row, w);
#pragma unroll
        for (int n = 0; n < SQUARE_TILES; n += 2) {
            load_pieces_transposed(b, piece_at<SQUARE>(fresh, w, column + n * 8));
            multiply_piece(s.f[n], of_out, b[0], b[1]), multiply_piece(s.f[n + 1], of_out, b[2], b[3]);
            multiply_piece(s.b[n], of_dn, b[0], b[1]), multiply_piece(s.b[n + 1], of_dn, b[2], b[3]);
        }
    }
}

template <bool DELTA> __device__ __forceinline__ void add_half(struct sums &s, const unsigned char *stage)
{
    const unsigned char *state = stage + S + column_warp() * SCAN_SQUARE,
                        *next = stage + D + column_warp() * SCAN_SQUARE;
    products_begin();
#pragma unroll
    for (int w = 0; w < SCAN_HALF; w += 16) {
        tile_times_rows<false>(s.q, stage + D_OUT, state, w);
        tile_times_rows<true>(s.writes, stage + FRESH, next, w);
        if (DELTA) tile_times_rows<true>(s.reads, stage + DN, state, w);
    }
    products_end(s.q), products_end(s.writes);
    if (DELTA) products_end(s.reads);
    add_squares(s, stage);
}

/* F, in two parts, and B in shared memory, and <dN, V'> of the rows. */
template <bool DELTA>
__device__ __forceinline__ void put_squares(const struct sums &s, unsigned char *memory,
                                            struct row_sums &rows)
{
    const float *factors = reinterpret_cast<const float *>(memory + FACTORS);
    int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        int row = row_warp() * 16 + half * 8 + lane / 4;
        float log_sum = factors[LOG_SUM * SCAN_ROWS + row], of_q = factors[OF_Q * SCAN_ROWS + row],
              of_k = -factors[OF_K * SCAN_ROWS + row] * factors[SHARE * SCAN_ROWS + row];
#pragma unroll
        for (int n = 0; n < SQUARE_TILES; n++) {
            int column = column_warp() * SQUARE_COLUMNS + n * 8 + lane % 4 * 2;
            float f[2], b[2];
#pragma unroll
            for (int i = 0; i < 2; i++) {
                float decay = row >= column + i
                                  ? exp_fast(log_sum - factors[LOG_SUM * SCAN_ROWS + column + i]) *
                                        factors[OF_K * SCAN_ROWS + column + i]
                                  : 0.0f;
                f[i] = s.f[n][2 * half + i] * decay * of_q;
                b[i] = row > column + i ? s.b[n][2 * half + i] * decay * of_k : 0.0f;
                if (row == column + i) rows.share[row] = s.b[n][2 * half + i];
            }
            int at = tile_at<SCAN_ROWS * 2>(row, column / 8) + column % 8 * 2;
            uint32_t rounded = pack_bf16(f[0], f[1]);
            *reinterpret_cast<uint32_t *>(memory + F + at) = rounded;
            *reinterpret_cast<uint32_t *>(memory + F_REST + at) = rest_of(rounded, f[0], f[1]);
            if (DELTA) *reinterpret_cast<uint32_t *>(memory + B + at) = pack_bf16(b[0], b[1]);
        }
    }
}

template <int N>
__device__ __forceinline__ void scale_rows(float (&c)[N][4], const float *factors, float sign)
{
    int row = row_warp() * 16 + (int)threadIdx.x % 32 / 4;
    float low = sign * factors[row], high = sign * factors[row + 8];
#pragma unroll
    for (int n = 0; n < N; n++) c[n][0] *= low, c[n][1] *= low, c[n][2] *= high, c[n][3] *= high;
}

/* <x, c> of each row, over the warp's columns. */
__device__ __forceinline__ void row_products(float *to, const unsigned char *x, const float (&c)[TILES][4])
{
    int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        int row = row_warp() * 16 + half * 8 + lane / 4;
        float sum = 0;
#pragma unroll
        for (int n = 0; n < TILES; n++) {
            uint32_t pair = *reinterpret_cast<const uint32_t *>(
                x + column_warp() * SCAN_SQUARE + tile_at<SCAN_HALF * 2>(row, n) + lane % 4 * 4);
            sum = __fmaf_rn(c[n][2 * half], __uint_as_float(pair << 16), sum);
            sum = __fmaf_rn(c[n][2 * half + 1], __uint_as_float(pair & 0xffff0000u), sum);
        }
        sum = lanes_sum(sum, 4);
        if (lane % 4 == 0) to[row] = sum;
    }
}

/* c += a x with the triangle a, or with the turned one. */
template <bool TURNED>
__device__ __forceinline__ void add_triangle(float (&c)[TILES][4], const unsigned char *a,
                                             const unsigned char *x)
{
#pragma unroll
    for (int k = 0; k < SCAN_ROWS; k += 16) tile_times_rows<TURNED>(c, a, x, k);
}

/* dQ and dK of a value head, and their products with the rows. */
template <bool DELTA>
__device__ __forceinline__ void finish_head(struct sums &s, unsigned char *memory, struct row_sums &rows)
{
    const float *factors = reinterpret_cast<const float *>(memory + FACTORS);
    int half = column_warp();
    const unsigned char *keys = memory + K + half * SCAN_SQUARE, *queries = memory + Q + half * SCAN_SQUARE;
    scale_rows(s.q, factors + X_OF_Q * SCAN_ROWS, 1.0f);
    scale_rows(s.writes, factors + R_OF_K * SCAN_ROWS, 1.0f);
    row_products(rows.faded[half], memory + K, s.writes);
    if (DELTA) {
        scale_rows(s.reads, factors + X_OF_K * SCAN_ROWS, -1.0f);
        scale_rows(s.reads, factors + SHARE * SCAN_ROWS, 1.0f);
    }
    products_begin();
    add_triangle<false>(s.q, memory + F, keys);
    add_triangle<false>(s.q, memory + F_REST, keys);
    add_triangle<true>(s.writes, memory + F, queries);
    add_triangle<true>(s.writes, memory + F_REST, queries);
    if (DELTA) {
        add_triangle<true>(s.writes, memory + B, keys);
        add_triangle<false>(s.reads, memory + B, keys);
    }
    products_end(s.q), products_end(s.writes);
    if (DELTA) products_end(s.reads);
    row_products(rows.q[half], memory + Q, s.q);
    row_products(rows.writes[half], memory + K, s.writes);
    if (DELTA) row_products(rows.reads[half], memory + K, s.reads);
}

/* The gradients of a and b, and what those of a_log and dt_bias sum. Threads 0 .. 63 have the rows; all threads of the
 * block call it. */
template <bool DELTA>
__device__ __forceinline__ void put_rates(const struct scan_problem &p, const struct chunk &c, int head,
                                          const float *factors, struct row_sums &rows, float states)
{
    int thread = (int)threadIdx.x, h = p.first + head;
    float of_log = 0, faded = 0;
    if (thread < SCAN_ROWS)
#pragma unroll
        for (int i = 0; i < COLUMN_WARPS; i++) {
            of_log += rows.q[i][thread] - rows.writes[i][thread];
            if (DELTA) of_log += rows.reads[i][thread];
            faded += rows.faded[i][thread];
        }
    states = block_sum(states, rows.partial);
    faded = lanes_sum(faded, 32);
    if (thread < SCAN_ROWS && thread % 32 == 0) rows.scanned[thread / 32] = faded;
    __syncthreads();
    if (thread == SCAN_ROWS - 1)
        of_log += rows.scanned[0] + rows.scanned[1] + factors[OTHERS * SCAN_ROWS] * states;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
        float behind = __shfl_down_sync(0xffffffffu, of_log, step);
        if (thread % 32 + step < 32) of_log += behind;
    }
    if (thread == 32) rows.scanned[2] = of_log;
    __syncthreads();
    if (thread < 32) of_log += rows.scanned[2];
    if (thread >= c.rows) return;
    int64_t row = c.row + thread;
    struct scan_head constants = head_at(p, h);
    struct scan_rate rate = rate_at<DELTA>(p, constants, row, h);
    float ddt = -constants.rate * of_log, slope = 1.0f / (1.0f + expf(-rate.x)), share = rows.share[thread],
          da;
    if (DELTA) {
        store_one(p.db.data + row * p.db.row + h, share * (1.0f - rate.share));
        da = ddt * slope;
    } else {
        /* the share is dt, so its gradient is share / dt; near dt = 0 the slope goes to 0 as dt does */
        da = rate.inside ? ddt * slope + (rate.dt > 0 ? share * (slope / rate.dt) : 0.0f) : 0.0f;
    }
    store_one(p.da.data + row * p.da.row + h, da);
    if (p.rates == nullptr) return;
    float *values = p.rates + (int64_t)head * 2 * p.count + row;
    values[0] = da;
    values[p.count] = -of_log * constants.rate * rate.dt;
}

/* Writes the rows of dq or dk: c, less its part along the row x where rows are normed. x is overwritten. */
__device__ __forceinline__ void put_gradient(const struct scan_problem &p, const struct scan_rows &to,
                                             const struct chunk &c, int key_head, unsigned char *x,
                                             const float (&sums)[COLUMN_WARPS][SCAN_ROWS], const float *of_x,
                                             float scale, const float (&values)[TILES][4])
{
    int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        int row = row_warp() * 16 + half * 8 + lane / 4;
        float along = 0, root = of_x[row] / scale;
        for (int i = 0; i < COLUMN_WARPS; i++) along += sums[i][row];
        along = p.norm_eps > 0 ? along * root * root : 0.0f;
#pragma unroll
        for (int n = 0; n < TILES; n++) {
            uint32_t *pair = reinterpret_cast<uint32_t *>(x + column_warp() * SCAN_SQUARE +
                                                          tile_at<SCAN_HALF * 2>(row, n) + lane % 4 * 4);
            *pair = pack_bf16(values[n][2 * half] - __uint_as_float(*pair << 16) * along,
                              values[n][2 * half + 1] - __uint_as_float(*pair & 0xffff0000u) * along);
        }
    }
    __syncthreads();
    for (int i = (int)threadIdx.x; i < SCAN_ROWS * (SCAN_WIDTH / 8); i += WARPS * 32) {
        int row = i / (SCAN_WIDTH / 8), piece = i % (SCAN_WIDTH / 8);
        if (row >= c.rows) continue;
        *reinterpret_cast<uint4 *>(to.data + (c.row + row) * to.row + key_head * to.head + piece * 8) =
            *reinterpret_cast<const uint4 *>(x + piece / 8 * SCAN_SQUARE +
                                             tile_at<SCAN_HALF * 2>(row, piece % 8));
    }
}

template <int N> __device__ __forceinline__ void add_sums(float (&to)[N][4], const float (&c)[N][4])
{
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) to[n][i] += c[n][i];
}

/* blockIdx: slot, key head of the pass. */
template <bool DELTA> __global__ void __launch_bounds__(WARPS * 32, 1) gradients(const struct scan_problem p)
{
    extern __shared__ __align__(1024) unsigned char memory[];
    uint32_t base = shared_address(memory);
    struct row_sums &rows = *reinterpret_cast<struct row_sums *>(memory + SUMS);
    const float *factors = reinterpret_cast<const float *>(memory + FACTORS);
    int64_t slot = blockIdx.x;
    int key_head = p.first / p.group + (int)blockIdx.y, first = (int)blockIdx.y * p.group;
    int halves = p.value_width / SCAN_HALF, steps = p.group * halves;
    struct chunk c;
    if (!chunk_at(p, (int)slot, c)) return;
    fetch_keys(base + K, p.k, c, key_head);
    fetch_keys(base + Q, p.q, c, key_head);
    fetch_half(p, c, slot, first, 0, base + STAGE);
    copy_commit();
    float all_q[TILES][4], all_k[TILES][4], states = 0;
    struct sums s;
    clear(all_q), clear(all_k);
    for (int step = 0; step < steps; step++) {
        int head = first + step / halves, half = step % halves;
        if (half == 0) {
            clear(s.f), clear(s.b), clear(s.q), clear(s.writes), clear(s.reads);
            states = 0;
            fetch_bytes(base + FACTORS, scratch_at(p, p.factors, slot, head, SCAN_FACTORS), SCAN_FACTORS);
        }
        copy_commit();
        if (step + 1 < steps)
            fetch_half(p, c, slot, first + (step + 1) / halves, (step + 1) % halves,
                       base + STAGE + (step + 1) % 2 * STAGE_BYTES);
        copy_commit();
        copy_wait<1>();
        tiles_before_products();
        __syncthreads();
        unsigned char *stage = memory + STAGE + step % 2 * STAGE_BYTES;
        add_half<DELTA>(s, stage);
        states += states_product(stage + S, stage + D);
        if (half + 1 == halves) {
            put_squares<DELTA>(s, memory, rows);
            tiles_before_products();
            __syncthreads();
            finish_head<DELTA>(s, memory, rows);
            __syncthreads();
            put_rates<DELTA>(p, c, head, factors, rows, states);
            add_sums(all_q, s.q), add_sums(all_k, s.writes);
            if (DELTA) add_sums(all_k, s.reads);
        }
        __syncthreads(); /* the stage and the factors have been read */
    }
    row_products(rows.q[column_warp()], memory + Q, all_q);
    row_products(rows.writes[column_warp()], memory + K, all_k);
    __syncthreads();
    put_gradient(p, p.dq, c, key_head, memory + Q, rows.q, factors + OF_Q * SCAN_ROWS, p.scale, all_q);
    put_gradient(p, p.dk, c, key_head, memory + K, rows.writes, factors + OF_K * SCAN_ROWS, 1.0f, all_k);
}

} // namespace

void tt_scan_gradients(const struct scan_problem *p, bool delta, cudaStream_t stream)
{
    launch(delta ? gradients<true> : gradients<false>,
           dim3((unsigned)p->slots, (unsigned)(p->pass / p->group)), WARPS * 32, SHARED, *p, stream);
}
