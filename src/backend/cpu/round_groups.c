/* Rows rounded to E4M3 and back, in groups of columns. */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("fp-contract=off") /* each operation is rounded on its own */
#else
#pragma STDC FP_CONTRACT OFF
#endif

#include "backend/ops/round_groups.h"

#include <string.h>

#include "backend/cpu/e4m3.h"
#include "backend/cpu/parallel.h"
#include "backend/cpu/simd.h"
#include "tensor/e4m3.h"
#include "tensor/quant.h"

TT_SIMD_BODY float number_at(const void *x, int64_t at, const bool bf16)
{
    uint32_t bits = bf16 ? (uint32_t)((const uint16_t *)x)[at] << 16 : ((const uint32_t *)x)[at];
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

TT_SIMD_BODY void round_group(const void *x, void *y, int64_t first, int64_t count, bool by_powers,
                              tt_cpu_e4m3_decode *decode, const bool bf16)
{
    uint32_t largest = 0;
    uint8_t codes[TT_FP8_BLOCK];
    float size;
    for (int64_t i = 0; i < count; i++) {
        float value = number_at(x, first + i, bf16);
        uint32_t bits;
        memcpy(&bits, &value, sizeof bits);
        bits &= 0x7fffffffu;
        largest = bits > largest ? bits : largest;
    }
    memcpy(&size, &largest, sizeof size);
    float scale = tt_e4m3_scale(size);
    if (by_powers) scale = tt_e4m3_power(scale);
    for (int64_t i = 0; i < count; i++) codes[i] = tt_e4m3_from_f32(number_at(x, first + i, bf16) / scale);
    decode(codes, count, scale, y, first, bf16);
}

TT_SIMD_BODY void round_row(const void *x, void *y, int64_t cols, bool by_powers, tt_cpu_e4m3_decode *decode,
                            const bool bf16)
{
    for (int64_t first = 0; first < cols; first += TT_FP8_BLOCK) {
        int64_t count = cols - first < TT_FP8_BLOCK ? cols - first : TT_FP8_BLOCK;
        round_group(x, y, first, count, by_powers, decode, bf16);
    }
}

#define ROW(suffix, attribute)                                                                               \
    attribute static void round_row_##suffix(const void *x, void *y, int64_t cols, bool by_powers,           \
                                             tt_cpu_e4m3_decode *decode, bool bf16)                          \
    {                                                                                                        \
        if (bf16)                                                                                            \
            round_row(x, y, cols, by_powers, decode, true);                                                  \
        else                                                                                                 \
            round_row(x, y, cols, by_powers, decode, false);                                                 \
    }
ROW(portable, )
ROW(avx2, TT_SIMD_AVX2)

tt_status tt_cpu_round_groups(struct tt_stream *stream, const struct tt_round_groups_args *args)
{
    const tt_tensor *x = &args->x_MK, *y = &args->y_MK;
    bool bf16 = x->dtype == TT_BF16, avx2 = tt_cpu_isa(stream) >= TT_CPU_AVX2;
    int64_t rows = x->dims[0], cols = x->dims[1], element = (int64_t)tt_dtype_bytes(x->dtype);
    int threads = tt_cpu_threads(stream, rows * cols);
    tt_cpu_e4m3_decode *decode = tt_cpu_e4m3_decode_of(stream);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t row = 0; row < rows; row++) {
        const char *from = (const char *)x->data + row * x->strides[0] * element;
        char *to = (char *)y->data + row * y->strides[0] * element;
        (avx2 ? round_row_avx2 : round_row_portable)(from, to, cols, args->by_powers, decode, bf16);
    }
    return TT_OK;
}
