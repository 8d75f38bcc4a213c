#include "backend/cuda/scan/sweep.cuh"

/* The state from chunk to chunk. With OUTPUT the rows of o, without it what the backward pass reads: the state before
 * each chunk and V', both turned. */

namespace
{

/* Shared memory of a chunk. */
template <int WARPS, bool OUTPUT> struct stage {
    enum {
        VALUE_BYTES = value_bytes<WARPS>(),
        K = 0,
        M = K + SCAN_KEYS,
        V = M + SCAN_SQUARE,
        FACTORS = V + SCAN_ROWS * VALUE_BYTES,
        Q = FACTORS + SCAN_FACTORS,
        P = Q + SCAN_KEYS,
        P_REST = P + SCAN_SQUARE,
        BYTES = OUTPUT ? P_REST + SCAN_SQUARE : Q,
    };
};

template <bool DELTA, int WARPS, bool OUTPUT>
__device__ __forceinline__ void fetch_chunk(const struct scan_problem &p, const struct chunk &c, int64_t slot,
                                            int head, uint32_t to)
{
    using at = stage<WARPS, OUTPUT>;
    int h = p.first + head;
    fetch_keys(to + at::K, p.k, c, h / p.group);
    fetch_rows<at::VALUE_BYTES>(to + at::V, p.v, c, h, (int)blockIdx.x * WARPS * 16, WARPS * 16);
    fetch_bytes(to + at::FACTORS, scratch_at(p, p.factors, slot, head, SCAN_FACTORS), SCAN_FACTORS);
    if (DELTA) fetch_bytes(to + at::M, scratch_at(p, p.m, slot, head, SCAN_SQUARE), SCAN_SQUARE);
    if (!OUTPUT) return;
    fetch_keys(to + at::Q, p.q, c, h / p.group);
    fetch_bytes(to + at::P, scratch_at(p, p.p, slot, head, SCAN_SQUARE), SCAN_SQUARE);
    fetch_bytes(to + at::P_REST, scratch_at(p, p.p_rest, slot, head, SCAN_SQUARE), SCAN_SQUARE);
}

/* N = share (V - X k S), turned; without the delta rule share V. `n` holds S^T k^T. */
template <bool DELTA, int BYTES>
__device__ __forceinline__ void make_inner(float (&n)[8][4], uint32_t values, const float *factors)
{
    int t = (int)threadIdx.x % 4;
#pragma unroll
    for (int m = 0; m < SCAN_ROWS / 16; m++) {
        uint32_t v[4];
        load_pieces_transposed(v, piece_at<BYTES>(values, m * 16, 0));
#pragma unroll
        for (int i = 0; i < 4; i++) {
            /* i: the rows 0 .. 7 and 8 .. 15 in turns, then the columns 8 .. 15 of these */
            int of = 2 * m + i % 2, first = i / 2 * 2, row = of * 8 + 2 * t;
            float2 share = *reinterpret_cast<const float2 *>(factors + SHARE * SCAN_ROWS + row);
            float low = __uint_as_float(v[i] << 16), high = __uint_as_float(v[i] & 0xffff0000u);
            if (DELTA) {
                float2 x = *reinterpret_cast<const float2 *>(factors + X_OF_K * SCAN_ROWS + row);
                low = __fmaf_rn(-x.x, n[of][first], low), high = __fmaf_rn(-x.y, n[of][first + 1], high);
            }
            n[of][first] = share.x * low, n[of][first + 1] = share.y * high;
        }
    }
}

/* o += skip v, turned. */
template <int BYTES>
__device__ __forceinline__ void add_skipped(float (&o)[8][4], uint32_t values, float skip)
{
#pragma unroll
    for (int m = 0; m < SCAN_ROWS / 16; m++) {
        uint32_t v[4];
        load_pieces_transposed(v, piece_at<BYTES>(values, m * 16, 0));
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float *to = &o[2 * m + i % 2][i / 2 * 2];
            to[0] = __fmaf_rn(skip, __uint_as_float(v[i] << 16), to[0]);
            to[1] = __fmaf_rn(skip, __uint_as_float(v[i] & 0xffff0000u), to[1]);
        }
    }
}

template <bool DELTA, int WARPS, bool OUTPUT>
__device__ __forceinline__ void pass_chunk(const struct scan_problem &p, const struct chunk &c, int64_t slot,
                                           int head, unsigned char *memory, unsigned char *room, float skip,
                                           float (&state)[16][4])
{
    using at = stage<WARPS, OUTPUT>;
    const float *factors = reinterpret_cast<const float *>(memory + at::FACTORS);
    uint32_t values = column_base<at::VALUE_BYTES>(shared_address(memory) + at::V);
    float out[8][4], inner[8][4], fresh[8][4];
    uint32_t before[8][4], factor[4][4], rest[4][4];
    clear(out), clear(inner);
#pragma unroll
    for (int e = 0; e < 8; e++) round_sums(before[e], state[2 * e], state[2 * e + 1]);
    products_begin();
    if (DELTA)
#pragma unroll
        for (int e = 0; e < 8; e++)
            times_turned(inner, before[e], half_of(memory + at::K, e * 16), e * 16 % SCAN_HALF);
    if (OUTPUT)
#pragma unroll
        for (int e = 0; e < 8; e++)
            times_turned(out, before[e], half_of(memory + at::Q, e * 16), e * 16 % SCAN_HALF);
    products_end(inner), products_end(out);
    keep_factors(before);
    if (!OUTPUT) write_columns(p, p.states, slot, head, before, room);
    make_inner<DELTA, at::VALUE_BYTES>(inner, values, factors);
    if (DELTA) {
        clear(fresh);
        round_rows(factor, rest, inner);
        products_begin();
#pragma unroll
        for (int j = 0; j < 4; j++) {
            times_turned(fresh, factor[j], memory + at::M, j * 16);
            times_turned(fresh, rest[j], memory + at::M, j * 16);
        }
        products_end(fresh);
        keep_factors(factor), keep_factors(rest);
    }
    float(&of)[8][4] = DELTA ? fresh : inner;
    if (OUTPUT) {
        scale_columns(out, factors + X_OF_Q * SCAN_ROWS);
        round_rows(factor, rest, of);
        products_begin();
#pragma unroll
        for (int j = 0; j < 4; j++) {
            times_turned(out, factor[j], memory + at::P, j * 16);
            times_turned(out, rest[j], memory + at::P, j * 16);
            times_turned(out, factor[j], memory + at::P_REST, j * 16);
        }
        products_end(out);
        keep_factors(factor), keep_factors(rest);
    } else {
        write_squares(p, p.fresh, slot, head, of, room);
    }
    scale_columns(of, factors + R_OF_K * SCAN_ROWS);
    scale_state(state, factors[OTHERS * SCAN_ROWS]);
    round_rows(factor, of);
    products_begin();
#pragma unroll
    for (int i = 0; i < 4; i++) times_rows(state, factor[i], memory + at::K, i * 16);
    products_end(state);
    keep_factors(factor);
    if (!OUTPUT) return;
    if (!DELTA) add_skipped<at::VALUE_BYTES>(out, values, skip);
    __syncwarp();
    write_rows<at::VALUE_BYTES, WARPS>(p.o, c, p.first + head, out, memory + at::V);
}

/* Sums of a state are turned: row w, column e. */
__device__ __forceinline__ float *pool_at(const struct scan_problem &p, int state, int h, int n, int half)
{
    int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    int w = ((int)blockIdx.x * (int)(blockDim.x / 32) + warp) * 16 + lane / 4 + half * 8,
        e = n * 8 + lane % 4 * 2;
    return p.pool + state * p.pool_stride + ((int64_t)h * SCAN_WIDTH + e) * p.value_width + w;
}

/* blockIdx: WARPS * 16 columns, value head of the pass, sequence. */
template <bool DELTA, int WARPS, bool OUTPUT>
__global__ void __launch_bounds__(WARPS * 32, 1) sweep(const struct scan_problem p)
{
    extern __shared__ __align__(1024) unsigned char memory[];
    constexpr int BYTES = stage<WARPS, OUTPUT>::BYTES;
    int head = (int)blockIdx.y, h = p.first + head, sequence = (int)blockIdx.z;
    int begin = p.cu[sequence], end = p.cu[sequence + 1], slot = first_slot(p, sequence);
    if (end - begin <= p.least || begin == end) return;
    int from = p.pool == nullptr ? -1 : p.from[sequence], chunks = (end - begin + SCAN_ROWS - 1) / SCAN_ROWS;
    unsigned char *room = memory + 2 * BYTES + threadIdx.x / 32 * SCAN_OUT;
    float state[16][4], skip = head_at(p, h).skip;
    clear(state);
    if (from >= 0)
#pragma unroll
        for (int n = 0; n < 16; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) state[n][i] = pool_at(p, from, h, n, i / 2)[i % 2 * p.value_width];
    struct chunk c = {begin, 0, sequence};
    c.rows = end - begin < SCAN_ROWS ? end - begin : SCAN_ROWS;
    fetch_chunk<DELTA, WARPS, OUTPUT>(p, c, slot, head, shared_address(memory));
    copy_commit();
    for (int i = 0; i < chunks; i++) {
        struct chunk next = {c.row + SCAN_ROWS, 0, sequence};
        if (i + 1 < chunks) {
            next.rows = end - next.row < SCAN_ROWS ? (int)(end - next.row) : SCAN_ROWS;
            fetch_chunk<DELTA, WARPS, OUTPUT>(p, next, slot + i + 1, head,
                                              shared_address(memory) + (i + 1) % 2 * BYTES);
        }
        copy_commit();
        copy_wait<1>();
        tiles_before_products();
        __syncthreads();
        pass_chunk<DELTA, WARPS, OUTPUT>(p, c, slot + i, head, memory + i % 2 * BYTES, room, skip, state);
        __syncthreads(); /* the stage has been read */
        c = next;
    }
    int to = p.pool == nullptr ? -1 : p.to[sequence];
    if (to < 0) return;
#pragma unroll
    for (int n = 0; n < 16; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) pool_at(p, to, h, n, i / 2)[i % 2 * p.value_width] = state[n][i];
}

template <bool DELTA, int WARPS, bool OUTPUT>
void launch_sweep(const struct scan_problem *p, cudaStream_t stream)
{
    launch(sweep<DELTA, WARPS, OUTPUT>,
           dim3((unsigned)(p->value_width / (WARPS * 16)), (unsigned)p->pass, (unsigned)p->sequences),
           WARPS * 32, 2 * stage<WARPS, OUTPUT>::BYTES + (OUTPUT ? 0 : WARPS * SCAN_OUT), *p, stream);
}

template <bool DELTA, bool OUTPUT>
void choose_sweep(const struct scan_problem *p, int processors, cudaStream_t stream)
{
    if (warps_of(p, processors) == 8)
        launch_sweep<DELTA, 8, OUTPUT>(p, stream);
    else
        launch_sweep<DELTA, 4, OUTPUT>(p, stream);
}

} // namespace

void tt_scan_sweep(const struct scan_problem *p, bool delta, bool states, int processors, cudaStream_t stream)
{
    if (delta && states)
        choose_sweep<true, false>(p, processors, stream);
    else if (delta)
        choose_sweep<true, true>(p, processors, stream);
    else if (states)
        choose_sweep<false, false>(p, processors, stream);
    else
        choose_sweep<false, true>(p, processors, stream);
}
