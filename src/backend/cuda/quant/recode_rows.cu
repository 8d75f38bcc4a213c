/* Rows of 4-bit codes to E4M3 (ops/quant.h), bound by memory: the numbers of a row go through registers, rounded to
 * bf16 as they would be in memory, so that a weight is read as half a byte and written as one. */
#include "backend/compose.h"
#include "backend/cuda/quant/four_bits.cuh"
#include "backend/cuda/quant/rows_e4m3.cuh"

namespace
{

constexpr int THREADS = 512, MOST_CHUNKS = 8;
constexpr int ROWS = 4; /* of a block, so that it loads the tables once for all of them */

struct matrix {
    struct packed from;
    struct coded_rows to;
    int64_t rows;
    int cols;
};

struct tables {
    float map[TT_QUANT_MAP], nested_map[TT_QUANT_NESTED_MAP];
};

template <bool NESTED> __device__ __forceinline__ void load_tables(const struct packed &p, struct tables &t)
{
    for (int i = (int)threadIdx.x; i < TT_QUANT_MAP; i += (int)blockDim.x) t.map[i] = p.map[i];
    for (int i = (int)threadIdx.x; NESTED && i < TT_QUANT_NESTED_MAP; i += (int)blockDim.x)
        t.nested_map[i] = p.nested_map[i];
    __syncthreads();
}

template <bool NESTED, int CHUNKS>
__global__ void __launch_bounds__(THREADS) recode_held(const struct matrix m)
{
    __shared__ struct tables tables;
    int first = (int)threadIdx.x * PIECE, step = (int)blockDim.x * PIECE;
    int64_t begin = (int64_t)blockIdx.x * ROWS, end = begin + ROWS < m.rows ? begin + ROWS : m.rows;
    float offset = NESTED ? *m.from.offset : 0.0f;
    load_tables<NESTED>(m.from, tables);
    for (int64_t row = begin; row < end; row++) {
        uint32_t word[CHUNKS], pair = 0;
        struct scale scales[CHUNKS];
        vec<bf16, PIECE> held[CHUNKS];
#pragma unroll
        for (int k = 0; k < CHUNKS; k++) {
            int64_t weight = row * m.cols + first + k * step;
            if (first + k * step >= m.cols) break;
            word[k] = *reinterpret_cast<const uint32_t *>(m.from.codes + weight / 2);
            scales[k] = load_scale<NESTED>(m.from, weight);
        }
#pragma unroll
        for (int k = 0; k < CHUNKS; k++) {
            if (first + k * step >= m.cols) break;
            float absmax = absmax_of<NESTED>(scales[k], tables.nested_map, offset), x[PIECE];
#pragma unroll
            for (int i = 0; i < PIECE; i++) x[i] = __fmul_rn(tables.map[code_of(word[k], i)], absmax);
            narrow(held[k], x);
            pair = largest_pair(pair, held[k]);
        }
        store_held_codes(m.to, row, m.cols, held, largest_of_pair(pair));
        __syncthreads(); /* the next row's sizes take the place of this one's */
    }
}

template <bool NESTED> void launch(cudaStream_t stream, const struct matrix &m)
{
    int vectors = m.cols / PIECE, threads = row_threads(vectors);
    int chunks = (vectors + threads - 1) / threads;
    unsigned blocks = (unsigned)((m.rows + ROWS - 1) / ROWS);
    if (chunks <= 2)
        recode_held<NESTED, 2><<<blocks, threads, 0, stream>>>(m);
    else if (chunks <= 4)
        recode_held<NESTED, 4><<<blocks, threads, 0, stream>>>(m);
    else
        recode_held<NESTED, MOST_CHUNKS><<<blocks, threads, 0, stream>>>(m);
}

} // namespace

extern "C" tt_status tt_cuda_recode_rows(struct tt_stream *stream, const struct tt_recode_rows_args *args)
{
    const struct tt_quant_layout &layout = args->layout;
    bool four = layout.format.type == TT_QUANT_NF4 || layout.format.type == TT_QUANT_FP4;
    bool held = four && args->scratch_NK.dtype == TT_BF16 && layout.cols % PIECE == 0 &&
                layout.cols <= MOST_CHUNKS * THREADS * PIECE && (uintptr_t)args->codes_NK.data % PIECE == 0;
    if (!held) return tt_compose_recode_rows(stream, args);
    struct matrix m = {packed_of(layout, args->packed, 0), coded_of(args->codes_NK, args->scale_N),
                       layout.rows, (int)layout.cols};
    if (layout.format.nested)
        launch<true>(tt_cuda_handle(stream), m);
    else
        launch<false>(tt_cuda_handle(stream), m);
    return tt_cuda_launched(stream, "recode_rows", &args->codes_NK);
}
