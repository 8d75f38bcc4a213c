/* Encoding gives the same bytes on every processor: the functions for AVX2 beside those for any processor, from F32,
 * BF16 and F16 weights, for every row of tensor/formats.def; and from each of these types, where all hold the weights.
 * The sources are compiled into this program with a switch in place of the question what the processor has. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "tensor/format.h"
#define has_avx2 processor_has_avx2
#include "tensor/encode_isa.h"
#undef has_avx2

static bool wanted;
static bool has_avx2(void)
{
    return wanted && processor_has_avx2();
}

#define PIECE FOUR_BITS_PIECE /* each source has its own */
#define LANES FOUR_BITS_LANES
#include "../../../src/tensor/formats/four_bits.c"
#undef PIECE
#undef LANES
#include "../../../src/tensor/formats/int8.c"
#include "../../../src/tensor/quant_encode.c"

enum { ROWS = 67, COLS = 193, COUNT = ROWS * COLS };

static const enum tt_quant_type types[] = {
#define FORMAT(id, name) TT_QUANT_##id,
#include "tensor/formats.def"
#undef FORMAT
};

struct weights {
    const void *data;
    size_t bytes; /* of one */
};

static tt_status read_weights(void *context, int64_t first, int64_t count, void *to)
{
    const struct weights *weights = context;
    memcpy(to, (const char *)weights->data + (size_t)first * weights->bytes, (size_t)count * weights->bytes);
    return TT_OK;
}

/* Ordinary weights, ties of rounding, denormal numbers, zeros of both signs, and a block of zeros. */
static float weight(int i)
{
    static const float odd[] = {0.0f, -0.0f, 1e-39f, -1e-41f, 0.5f, -0.5f, 1.0f, 0.9921875f};
    if (i % 640 < 64) return 0.0f;
    if (i % 11 == 0) return odd[i / 11 % 8];
    return (float)((i * 7919) % 20011 - 10005) * (i % 3 == 0 ? 1e-4f : 3.1e-6f);
}

static size_t encode_all(enum tt_quant_type type, bool nested, tt_dtype dtype, const void *data,
                         uint8_t *segment, size_t room)
{
    static float absmax[COUNT];
    struct tt_quant_layout layout;
    struct weights weights = {data, tt_dtype_bytes(dtype)};
    assert_int_equal(tt_quant_layout_make(tt_quant_format_make(type, nested), ROWS, COLS, &layout), TT_OK);
    assert_true(layout.bytes <= room);
    tt_quant_absmax(&layout, 0, layout.blocks, data, dtype, absmax);
    struct tt_quant_source source = {.absmax = absmax,
                                     .offset = nested ? tt_quant_mean(absmax, layout.blocks) : 0,
                                     .dtype = dtype,
                                     .read = read_weights,
                                     .context = &weights};
    assert_int_equal(tt_quant_encode(&layout, &source, 0, layout.bytes, segment), TT_OK);
    return layout.bytes;
}

static void the_bytes_of_any_processor(void **state)
{
    (void)state;
    static float floats[COUNT];
    static uint16_t halves[COUNT];
    static uint8_t plain[1 << 16], best[1 << 16];
    if (!processor_has_avx2()) skip();
    for (int source = 0; source < 3; source++) {
        const tt_dtype dtype = (const tt_dtype[]){TT_F32, TT_BF16, TT_F16}[source];
        for (int i = 0; i < COUNT; i++) floats[i] = weight(i);
        assert_true(tt_dtype_convert(halves, dtype == TT_F32 ? TT_BF16 : dtype, floats, TT_F32, COUNT));
        const void *data = dtype == TT_F32 ? (const void *)floats : halves;
        for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
            for (int nested = 0; nested < (tt_weight_format(types[t])->row_blocks ? 1 : 2); nested++) {
                wanted = false;
                size_t bytes = encode_all(types[t], nested, dtype, data, plain, sizeof plain);
                wanted = true;
                assert_int_equal(encode_all(types[t], nested, dtype, data, best, sizeof best), bytes);
                assert_memory_equal(plain, best, bytes);
            }
        }
    }
}

/* Weights that all three types hold give the same bytes from each of them. */
static void the_bytes_of_any_source(void **state)
{
    (void)state;
    static float floats[COUNT];
    static uint16_t brains[COUNT], halves[COUNT];
    static uint8_t expected[1 << 16], segment[1 << 16];
    for (int i = 0; i < COUNT; i++) /* 8 bits of mantissa and exponents of fp16 */
        floats[i] = i % 640 < 64 ? 0.0f : (float)((i * 7919) % 511 - 255) * (i % 3 == 0 ? 0x1p-9f : 0x1p-16f);
    assert_true(tt_dtype_convert(brains, TT_BF16, floats, TT_F32, COUNT));
    assert_true(tt_dtype_convert(halves, TT_F16, floats, TT_F32, COUNT));
    for (size_t t = 0; t < sizeof types / sizeof *types; t++)
        for (int nested = 0; nested < (tt_weight_format(types[t])->row_blocks ? 1 : 2); nested++)
            for (int best = 0; best < 2; best++) {
                wanted = best;
                size_t bytes = encode_all(types[t], nested, TT_F32, floats, expected, sizeof expected);
                (void)encode_all(types[t], nested, TT_BF16, brains, segment, sizeof segment);
                assert_memory_equal(segment, expected, bytes);
                (void)encode_all(types[t], nested, TT_F16, halves, segment, sizeof segment);
                assert_memory_equal(segment, expected, bytes);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_bytes_of_any_processor),
                                       cmocka_unit_test(the_bytes_of_any_source)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
