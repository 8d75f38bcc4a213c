/* Dequantization, bound by memory bandwidth. A thread decodes pieces of 8 weights: it loads their 4 bytes of
 * codes (neighbouring threads load neighbouring words) and stores them with 16 bytes. So stores, which are four
 * fifths of the traffic, are coalesced for every row stride. The sixteen floats of the code table are in sixteen
 * banks of shared memory, so look-ups have no bank conflicts. On an H200 such a kernel reached 91 % of a copy's
 * bandwidth, loads of 16 bytes with a transposition by shuffles 93 %, and loads of 16 bytes with 64 bytes stored
 * by each thread 50 % (2026-11-21). */
#include "backend/cuda/gemm/grouped.h"
#include "backend/cuda/quant/four_bits.cuh"
#include "backend/cuda/quant/rows_e4m3.cuh"
#include "backend/cuda/sheet.cuh"
#include "backend/ops/quant.h"

namespace
{

enum { ITEMS = 4 };

/* Eight elements with 16 bytes a store. */
template <typename Y> __device__ __forceinline__ void store_piece(Y *to, const float (&x)[PIECE])
{
    constexpr int W = wide<Y>();
#pragma unroll
    for (int i = 0; i < PIECE; i += W) {
        float part[W];
#pragma unroll
        for (int j = 0; j < W; j++) part[j] = x[i + j];
        vec<Y, W> out;
        narrow(out, part);
        store(to + i, out);
    }
}

/* Kernel for rows of whole pieces, except at the end of the last row. */
template <typename Y, bool NESTED>
__global__ void __launch_bounds__(SHEET_THREADS)
    dequantize_pieces(const struct packed p, const view<Y> y, const struct sheet s)
{
    __shared__ float map[TT_QUANT_MAP], nested_map[NESTED ? TT_QUANT_NESTED_MAP : 1];
    int64_t begin = (int64_t)blockIdx.x * (SHEET_THREADS * ITEMS) + threadIdx.x;
    int64_t row[ITEMS], col[ITEMS];
    uint32_t word[ITEMS];
    struct scale scales[ITEMS];
#pragma unroll
    for (int k = 0; k < ITEMS; k++) {
        int64_t piece = begin + k * SHEET_THREADS;
        row[k] = s.row_of(piece);
        col[k] = (piece - row[k] * s.row_pieces) * PIECE;
        if (row[k] >= s.rows || col[k] + PIECE > s.cols) continue;
        int64_t weight = p.first + row[k] * s.cols + col[k];
        word[k] = *reinterpret_cast<const uint32_t *>(p.codes + weight / 2);
        scales[k] = load_scale<NESTED>(p, weight);
    }
    if (threadIdx.x < TT_QUANT_MAP) map[threadIdx.x] = p.map[threadIdx.x];
    if (NESTED) nested_map[threadIdx.x] = p.nested_map[threadIdx.x];
    float offset = NESTED ? *p.offset : 0.0f;
    __syncthreads();
#pragma unroll
    for (int k = 0; k < ITEMS; k++) {
        if (row[k] >= s.rows) return;
        if (col[k] + PIECE <= s.cols) {
            float absmax = absmax_of<NESTED>(scales[k], nested_map, offset), x[PIECE];
#pragma unroll
            for (int i = 0; i < PIECE; i++) x[i] = __fmul_rn(map[code_of(word[k], i)], absmax);
            store_piece(y.at(row[k], col[k]), x);
            continue;
        }
        for (int64_t c = col[k]; c < s.cols; c++) {
            int64_t weight = p.first + row[k] * s.cols + c;
            float absmax = absmax_of<NESTED>(load_scale<NESTED>(p, weight), nested_map, offset);
            int code = p.codes[weight / 2] >> (weight % 2 == 0 ? 4 : 0) & 15;
            store_one(y.at(row[k], c), __fmul_rn(map[code], absmax));
        }
    }
}
static_assert((int)SHEET_THREADS == (int)TT_QUANT_NESTED_MAP, "one thread for each entry of the map");

/* Any element of any row. */
template <typename Y, bool NESTED> struct one_by_one {
    struct packed p;
    view<Y> y;
    int64_t cols;

    template <int W> struct loaded {
        float x[W];
    };

    template <int W> __device__ void load(int64_t row, int64_t col, loaded<W> &in) const
    {
        float offset = NESTED ? *p.offset : 0.0f;
#pragma unroll
        for (int i = 0; i < W; i++) {
            int64_t weight = p.first + row * cols + col + i;
            float absmax = absmax_of<NESTED>(load_scale<NESTED>(p, weight), p.nested_map, offset);
            int code = p.codes[weight / 2] >> (weight % 2 == 0 ? 4 : 0) & 15;
            in.x[i] = __fmul_rn(p.map[code], absmax);
        }
    }

    template <int W> __device__ void store(int64_t row, int64_t col, const loaded<W> &in) const
    {
#pragma unroll
        for (int i = 0; i < W; i++) store_one(y.at(row, col + i), in.x[i]);
    }
};

/* int8 and fp8: the codes of a piece are 8 bytes. A row has one absmax, or scale; fp8 may have scales of squares, whose
 * columns begin at multiples of a piece. */
enum byte_format { INT8_ROWS, FP8_ROWS, FP8_SQUARES };
template <typename Y, byte_format F> struct byte_rows {
    const uint8_t *codes;
    const float *absmax;
    view<Y> y;
    int64_t cols;                   /* codes have no gaps */
    int64_t first_row, row_squares; /* of squares; others' absmax begins at the first row */

    template <int W> struct loaded {
        uint32_t word[(W + 3) / 4];
        float absmax;
    };

    template <int W> __device__ void load(int64_t row, int64_t col, loaded<W> &in) const
    {
        const uint8_t *from = codes + row * cols + col;
        if constexpr (W == PIECE) {
            uint2 raw = *reinterpret_cast<const uint2 *>(from);
            in.word[0] = raw.x, in.word[1] = raw.y;
        } else {
            in.word[0] = *from;
        }
        if constexpr (F == FP8_SQUARES)
            in.absmax = absmax[(first_row + row) / TT_FP8_BLOCK * row_squares + col / TT_FP8_BLOCK];
        else
            in.absmax = absmax[row];
    }

    template <int W> __device__ void store(int64_t row, int64_t col, const loaded<W> &in) const
    {
        float x[W];
#pragma unroll
        for (int i = 0; i < W; i++) {
            uint32_t code = in.word[i / 4] >> (8 * (i % 4)) & 255u;
            if constexpr (F != INT8_ROWS)
                x[i] = __fmul_rn(e4m3_value(code), in.absmax);
            else
                x[i] = __fmul_rn(__fmul_rn((float)(int8_t)code, in.absmax), 1.0f / 127.0f);
        }
        if constexpr (W == PIECE)
            store_piece(y.at(row, col), x);
        else
            store_one(y.at(row, col), x[0]);
    }
};

/* ---- Matrices of experts ---- */

enum coding { FOUR_BITS, FOUR_NESTED, BYTES_INT8, BYTES_FP8, BYTES_SQUARES };

struct experts {
    struct packed p; /* from the first expert's first weight on */
    const int32_t *border;
    int64_t first_row;   /* of all rows of the segment */
    uint32_t each, cols; /* weights of an expert, of a row */
    uint32_t rows;       /* of an expert */
    int64_t row_squares;
};

/* The numbers of eight 4-bit codes from weight `weight` of the segment on. */
template <bool NESTED>
__device__ __forceinline__ void decode_four(const struct packed &p, int64_t weight, const float *map,
                                            const float *nested_map, float offset, float (&x)[PIECE])
{
    uint32_t word = *reinterpret_cast<const uint32_t *>(p.codes + weight / 2);
    float absmax = absmax_of<NESTED>(load_scale<NESTED>(p, weight), nested_map, offset);
#pragma unroll
    for (int i = 0; i < PIECE; i++) x[i] = __fmul_rn(map[code_of(word, i)], absmax);
}

/* The numbers of eight codes of a byte, from weight `place` of expert `expert` on. */
template <coding F>
__device__ __forceinline__ void decode_bytes(const struct experts &op, uint32_t expert, uint32_t place,
                                             float (&x)[PIECE])
{
    uint32_t row = place / op.cols, col = place - row * op.cols;
    int64_t all = op.first_row + (int64_t)expert * op.rows + row;
    const float *absmax = static_cast<const float *>(op.p.absmax);
    float scale =
        F == BYTES_SQUARES ? absmax[all / TT_FP8_BLOCK * op.row_squares + col / TT_FP8_BLOCK] : absmax[all];
    uint2 raw = *reinterpret_cast<const uint2 *>(op.p.codes + all * op.cols + col);
    const uint32_t word[2] = {raw.x, raw.y};
#pragma unroll
    for (int i = 0; i < PIECE; i++) {
        uint32_t code = word[i / 4] >> (8 * (i % 4)) & 255u;
        x[i] = F == BYTES_INT8 ? __fmul_rn(__fmul_rn((float)(int8_t)code, scale), 1.0f / 127.0f)
                               : __fmul_rn(e4m3_value(code), scale);
    }
}

/* A row of blocks for each expert; those without rows have nothing to do. */
template <typename Y, coding F>
__global__ void __launch_bounds__(SHEET_THREADS) decode_experts(const struct experts op, Y *y)
{
    constexpr bool FOUR = F == FOUR_BITS || F == FOUR_NESTED, NESTED = F == FOUR_NESTED;
    __shared__ float map[FOUR ? TT_QUANT_MAP : 1], nested_map[NESTED ? TT_QUANT_NESTED_MAP : 1];
    const uint32_t expert = blockIdx.y;
    if (op.border[expert] == op.border[expert + 1]) return;
    float offset = 0;
    if constexpr (FOUR) {
        if (threadIdx.x < TT_QUANT_MAP) map[threadIdx.x] = op.p.map[threadIdx.x];
        if (NESTED) nested_map[threadIdx.x] = op.p.nested_map[threadIdx.x];
        if (NESTED) offset = *op.p.offset;
        __syncthreads();
    }
    const int64_t before = (int64_t)expert * op.each;
#pragma unroll
    for (int k = 0; k < ITEMS; k++) {
        uint32_t place = ((blockIdx.x * ITEMS + k) * SHEET_THREADS + threadIdx.x) * PIECE;
        float x[PIECE];
        if (place >= op.each) return;
        if constexpr (FOUR)
            decode_four<NESTED>(op.p, op.p.first + before + place, map, nested_map, offset, x);
        else
            decode_bytes<F>(op, expert, place, x);
        store_piece(y + before + place, x);
    }
}

template <typename Y, coding F>
tt_status launch_experts(struct tt_stream *stream, const struct experts &op, const tt_tensor &to)
{
    uint32_t each = SHEET_THREADS * ITEMS * PIECE;
    dim3 blocks((op.each + each - 1) / each, (unsigned)to.dims[0]);
    decode_experts<Y, F><<<blocks, SHEET_THREADS, 0, tt_cuda_handle(stream)>>>(op, static_cast<Y *>(to.data));
    return tt_cuda_launched(stream, "grouped_gemm", &to);
}

/* Whether pieces of eight weights cross no row of bytes and no expert. */
bool decodes_by_experts(const struct tt_quant_layout &layout, const tt_tensor &to)
{
    int64_t each = to.dims[1] * to.dims[2];
    return (uintptr_t)to.data % 16 == 0 && each % PIECE == 0 && each < INT32_MAX &&
           (layout.byte_weights == 2 || layout.cols % PIECE == 0);
}

/* Whether every piece can be stored with 16 bytes. */
bool is_aligned_16(const tt_tensor &y)
{
    size_t bytes = tt_dtype_bytes(y.dtype);
    if ((uintptr_t)y.data % 16 != 0) return false;
    return y.dims[0] <= 1 || (size_t)y.strides[0] * bytes % 16 == 0;
}

template <typename Y, bool NESTED>
tt_status four_bits(struct tt_stream *stream, const struct tt_dequantize_args *args)
{
    const tt_tensor &y = args->y_NK;
    struct packed p = packed_of(args->layout, args->packed, args->first_row);
    bool contiguous = tt_tensor_is_contiguous(y);
    int64_t rows = rows_of(y, contiguous), cols = cols_of(y, contiguous);
    bool pieces = is_aligned_16(y) && p.first % PIECE == 0 && (rows == 1 || cols % PIECE == 0);
    if (!pieces) {
        struct one_by_one<Y, NESTED> op = {
            p, view_of<Y>(y), args->layout.cols
        };
        return apply<1, ITEMS>(stream, "dequantize", op, y.dims[0], args->layout.cols, false, &y);
    }
    struct sheet s = make_sheet(rows, cols, PIECE);
    int64_t each = SHEET_THREADS * ITEMS, blocks = (s.rows * s.row_pieces + each - 1) / each;
    dequantize_pieces<Y, NESTED>
        <<<(unsigned)blocks, SHEET_THREADS, 0, tt_cuda_handle(stream)>>>(p, view_of<Y>(y), s);
    return tt_cuda_launched(stream, "dequantize", &y);
}

template <typename Y, byte_format F>
tt_status eight_bits(struct tt_stream *stream, const struct tt_dequantize_args *args)
{
    const tt_tensor &y = args->y_NK;
    struct packed p = packed_of(args->layout, args->packed, args->first_row);
    const float *absmax = static_cast<const float *>(p.absmax) + (F == FP8_SQUARES ? 0 : args->first_row);
    struct byte_rows<Y, F> op = {
        p.codes + p.first, absmax, view_of<Y>(y), args->layout.cols, args->first_row, args->layout.row_squares
    };
    bool pieces = is_aligned_16(y) && args->layout.cols % PIECE == 0;
    return apply<PIECE, ITEMS>(stream, "dequantize", op, y.dims[0], args->layout.cols, pieces, &y);
}

} // namespace

extern "C" tt_status tt_cuda_dequantize(struct tt_stream *stream, const struct tt_dequantize_args *args)
{
    return with_type(args->y_NK.dtype, [&](auto y) {
        using Y = decltype(y);
        if (args->layout.format.type == TT_QUANT_INT8) return eight_bits<Y, INT8_ROWS>(stream, args);
        if (args->layout.row_squares > 0) return eight_bits<Y, FP8_SQUARES>(stream, args);
        if (args->layout.format.type == TT_QUANT_FP8) return eight_bits<Y, FP8_ROWS>(stream, args);
        return args->layout.format.nested ? four_bits<Y, true>(stream, args)
                                          : four_bits<Y, false>(stream, args);
    });
}

extern "C" tt_status tt_cuda_decode_experts(struct tt_stream *stream, const struct tt_coded *coded,
                                            int64_t first, tt_tensor border_C1, tt_tensor to_CNK)
{
    const struct tt_quant_layout &layout = *coded->layout;
    int64_t rows = to_CNK.dims[1];
    if (!decodes_by_experts(layout, to_CNK)) {
        struct tt_dequantize_args args = {};
        args.layout = layout, args.packed = coded->packed, args.first_row = first * rows;
        args.y_NK = tt_tensor_2d(to_CNK.data, to_CNK.dtype, to_CNK.dims[0] * rows, to_CNK.dims[2]);
        return tt_cuda_dequantize(stream, &args);
    }
    struct experts op = {};
    op.p = packed_of(layout, coded->packed, first * rows);
    op.border = static_cast<const int32_t *>(border_C1.data);
    op.first_row = first * rows, op.row_squares = layout.row_squares;
    op.each = (uint32_t)(rows * to_CNK.dims[2]);
    op.cols = (uint32_t)layout.cols, op.rows = (uint32_t)rows;
    return with_type(to_CNK.dtype, [&](auto y) {
        using Y = decltype(y);
        if (layout.format.type == TT_QUANT_INT8) return launch_experts<Y, BYTES_INT8>(stream, op, to_CNK);
        if (layout.row_squares > 0) return launch_experts<Y, BYTES_SQUARES>(stream, op, to_CNK);
        if (layout.format.type == TT_QUANT_FP8) return launch_experts<Y, BYTES_FP8>(stream, op, to_CNK);
        return layout.format.nested ? launch_experts<Y, FOUR_NESTED>(stream, op, to_CNK)
                                    : launch_experts<Y, FOUR_BITS>(stream, op, to_CNK);
    });
}
