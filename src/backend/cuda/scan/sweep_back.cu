#include "backend/cuda/scan/sweep.cuh"

/* The gradient D of the state, from the last chunk to the first: D behind each chunk and dN, both turned, and the rows
 * of dV. */

namespace
{

/* Shared memory of a chunk. */
template <int WARPS> struct stage {
    enum {
        VALUE_BYTES = value_bytes<WARPS>(),
        K = 0,
        Q = K + SCAN_KEYS,
        M = Q + SCAN_KEYS,
        P = M + SCAN_SQUARE,
        D_OUT = P + SCAN_SQUARE,
        FACTORS = D_OUT + SCAN_ROWS * VALUE_BYTES,
        P_REST = FACTORS + SCAN_FACTORS,
        BYTES = P_REST + SCAN_SQUARE,
    };
};

template <bool DELTA, int WARPS>
__device__ __forceinline__ void fetch_chunk(const struct scan_problem &p, const struct chunk &c, int64_t slot,
                                            int head, uint32_t to)
{
    using at = stage<WARPS>;
    int h = p.first + head;
    fetch_keys(to + at::K, p.k, c, h / p.group);
    fetch_keys(to + at::Q, p.q, c, h / p.group);
    fetch_rows<at::VALUE_BYTES>(to + at::D_OUT, p.d_out, c, h, (int)blockIdx.x * WARPS * 16, WARPS * 16);
    fetch_bytes(to + at::FACTORS, scratch_at(p, p.factors, slot, head, SCAN_FACTORS), SCAN_FACTORS);
    fetch_bytes(to + at::P, scratch_at(p, p.p, slot, head, SCAN_SQUARE), SCAN_SQUARE);
    fetch_bytes(to + at::P_REST, scratch_at(p, p.p_rest, slot, head, SCAN_SQUARE), SCAN_SQUARE);
    if (DELTA) fetch_bytes(to + at::M, scratch_at(p, p.m, slot, head, SCAN_SQUARE), SCAN_SQUARE);
}

/* dO of 16 rows, turned, as sums: those of the rows 0 .. 7 and of 8 .. 15. */
__device__ __forceinline__ void widen_turned(float (&c0)[4], float (&c1)[4], const uint32_t (&a)[4])
{
#pragma unroll
    for (int i = 0; i < 2; i++) {
        c0[2 * i] = __uint_as_float(a[i] << 16), c0[2 * i + 1] = __uint_as_float(a[i] & 0xffff0000u);
        c1[2 * i] = __uint_as_float(a[i + 2] << 16), c1[2 * i + 1] = __uint_as_float(a[i + 2] & 0xffff0000u);
    }
}

template <bool DELTA, int WARPS>
__device__ __forceinline__ void pass_chunk(const struct scan_problem &p, const struct chunk &c, int64_t slot,
                                           int head, unsigned char *memory, unsigned char *room, float skip,
                                           float (&next)[16][4])
{
    using at = stage<WARPS>;
    const float *factors = reinterpret_cast<const float *>(memory + at::FACTORS);
    uint32_t gradient = column_base<at::VALUE_BYTES>(shared_address(memory) + at::D_OUT);
    uint32_t behind[8][4], d_out[4][4], factor[4][4], rest[4][4];
    float values[8][4], dn[8][4], grown[8][4];
    clear(values);
#pragma unroll
    for (int e = 0; e < 8; e++) round_sums(behind[e], next[2 * e], next[2 * e + 1]);
    products_begin();
#pragma unroll
    for (int e = 0; e < 8; e++)
        times_turned(values, behind[e], half_of(memory + at::K, e * 16), e * 16 % SCAN_HALF);
    products_end(values);
    keep_factors(behind);
    write_columns(p, p.next, slot, head, behind, room);
    scale_columns(values, factors + R_OF_K * SCAN_ROWS);
#pragma unroll
    for (int i = 0; i < 4; i++) first_factor_turned<at::VALUE_BYTES>(d_out[i], gradient, 0, i * 16);
    products_begin();
#pragma unroll
    for (int i = 0; i < 4; i++) {
        times_rows(values, d_out[i], memory + at::P, i * 16);
        times_rows(values, d_out[i], memory + at::P_REST, i * 16);
    }
    products_end(values);
    keep_factors(d_out);
    if (DELTA) {
        clear(dn);
        round_rows(factor, rest, values);
        products_begin();
#pragma unroll
        for (int i = 0; i < 4; i++) {
            times_rows(dn, factor[i], memory + at::M, i * 16);
            times_rows(dn, rest[i], memory + at::M, i * 16);
        }
        products_end(dn);
        keep_factors(factor), keep_factors(rest);
    }
    float(&of)[8][4] = DELTA ? dn : values;
    write_squares(p, p.dn, slot, head, of, room);
    scale_columns(of, factors + SHARE * SCAN_ROWS);
#pragma unroll
    for (int i = 0; i < 4; i++) widen_turned(grown[2 * i], grown[2 * i + 1], d_out[i]);
    if (!DELTA)
#pragma unroll
        for (int n = 0; n < 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) of[n][i] = __fmaf_rn(skip, grown[n][i], of[n][i]);
    __syncwarp(); /* the warp's columns of dO have been read */
    write_rows<at::VALUE_BYTES, WARPS>(p.dv, c, p.first + head, of, memory + at::D_OUT);
    /* D = decay D + (X dO)^T q - (X share dN)^T k */
    scale_columns(grown, factors + X_OF_Q * SCAN_ROWS);
    scale_state(next, factors[OTHERS * SCAN_ROWS]);
    round_rows(factor, grown);
    if (DELTA) {
        scale_columns(of, factors + X_OF_K * SCAN_ROWS);
#pragma unroll
        for (int n = 0; n < 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) of[n][i] = -of[n][i];
        round_rows(rest, of);
    }
    products_begin();
#pragma unroll
    for (int i = 0; i < 4; i++) times_rows(next, factor[i], memory + at::Q, i * 16);
    if (DELTA)
#pragma unroll
        for (int i = 0; i < 4; i++) times_rows(next, rest[i], memory + at::K, i * 16);
    products_end(next);
    keep_factors(factor);
    if (DELTA) keep_factors(rest);
}

/* blockIdx: WARPS * 16 columns, value head of the pass, sequence. */
template <bool DELTA, int WARPS>
__global__ void __launch_bounds__(WARPS * 32, 1) sweep_back(const struct scan_problem p)
{
    extern __shared__ __align__(1024) unsigned char memory[];
    constexpr int BYTES = stage<WARPS>::BYTES;
    int head = (int)blockIdx.y, sequence = (int)blockIdx.z;
    int begin = p.cu[sequence], end = p.cu[sequence + 1], slot = first_slot(p, sequence);
    if (end - begin <= p.least || begin == end) return;
    int chunks = (end - begin + SCAN_ROWS - 1) / SCAN_ROWS;
    unsigned char *room = memory + 2 * BYTES + threadIdx.x / 32 * SCAN_OUT;
    float next[16][4], skip = head_at(p, p.first + head).skip;
    clear(next);
    struct chunk c = {begin + (chunks - 1) * SCAN_ROWS, 0, sequence};
    c.rows = (int)(end - c.row);
    fetch_chunk<DELTA, WARPS>(p, c, slot + chunks - 1, head,
                              shared_address(memory) + (chunks - 1) % 2 * BYTES);
    copy_commit();
    for (int i = chunks - 1; i >= 0; i--) {
        struct chunk before = {c.row - SCAN_ROWS, SCAN_ROWS, sequence};
        if (i > 0)
            fetch_chunk<DELTA, WARPS>(p, before, slot + i - 1, head,
                                      shared_address(memory) + (i - 1) % 2 * BYTES);
        copy_commit();
        copy_wait<1>();
        tiles_before_products();
        __syncthreads();
        pass_chunk<DELTA, WARPS>(p, c, slot + i, head, memory + i % 2 * BYTES, room, skip, next);
        __syncthreads(); /* the stage has been read */
        c = before;
    }
}

template <bool DELTA, int WARPS> void launch_sweep_back(const struct scan_problem *p, cudaStream_t stream)
{
    launch(sweep_back<DELTA, WARPS>,
           dim3((unsigned)(p->value_width / (WARPS * 16)), (unsigned)p->pass, (unsigned)p->sequences),
           WARPS * 32, 2 * stage<WARPS>::BYTES + WARPS * SCAN_OUT, *p, stream);
}

template <bool DELTA>
void choose_sweep_back(const struct scan_problem *p, int processors, cudaStream_t stream)
{
    if (warps_of(p, processors) == 8)
        launch_sweep_back<DELTA, 8>(p, stream);
    else
        launch_sweep_back<DELTA, 4>(p, stream);
}

} // namespace

void tt_scan_sweep_back(const struct scan_problem *p, bool delta, int processors, cudaStream_t stream)
{
    if (delta)
        choose_sweep_back<true>(p, processors, stream);
    else
        choose_sweep_back<false>(p, processors, stream);
}
