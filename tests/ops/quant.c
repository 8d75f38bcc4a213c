/* dequantize: the same bits as the plain code on the host, for every format, place and stride. recode_rows: those of
 * tensor/e4m3.h for the rounded numbers, and nothing but codes and scales written. */
#include "backend/ops/quant.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/rng.h"
#include "ops/isa.h"
#include "tensor/e4m3.h"

/* first_row + out_rows <= rows; out_rows 0: all of them. */
struct quant_case {
    enum tt_quant_type type;
    int64_t block, nested_block, rows, cols;
    tt_dtype dtype;
    int64_t gap, first_row, out_rows;
};

static const struct quant_case cases[] = {
    {TT_QUANT_NF4, 64, 256, 64, 128, TT_BF16, 0, 0, 0},
    {TT_QUANT_NF4, 64, 256, 64, 128, TT_F32, 0, 0, 0},
    {TT_QUANT_FP4, 64, 0, 64, 128, TT_BF16, 0, 0, 0},
    {TT_QUANT_FP4, 64, 256, 70, 96, TT_F32, 8, 0, 0},
    {TT_QUANT_NF4, 64, 256, 300, 256, TT_BF16, 64, 0, 0},
    {TT_QUANT_NF4, 64, 0, 33, 40, TT_BF16, 24, 0, 0},
    {TT_QUANT_NF4, 64, 256, 33, 40, TT_BF16, 3, 0, 0},
    {TT_QUANT_NF4, 32, 256, 61, 72, TT_BF16, 0, 5, 17},
    {TT_QUANT_NF4, 64, 256, 301, 33, TT_BF16, 0, 0, 0},
    {TT_QUANT_NF4, 64, 256, 301, 33, TT_F32, 0, 7, 100},
    {TT_QUANT_FP4, 128, 16, 90, 77, TT_F32, 5, 3, 80},
    {TT_QUANT_NF4, 4096, 256, 130, 65, TT_BF16, 0, 0, 0},
    {TT_QUANT_NF4, 1024, 0, 130, 64, TT_BF16, 64, 1, 128},
    {TT_QUANT_NF4, 64, 256, 1, 1, TT_BF16, 0, 0, 0},
    {TT_QUANT_FP4, 64, 256, 1, 7, TT_F32, 0, 0, 0},
    {TT_QUANT_NF4, 64, 256, 1, 4099, TT_BF16, 0, 0, 0},
    {TT_QUANT_NF4, 64, 256, 9, 8, TT_BF16, 0, 9, 0},
    {TT_QUANT_INT8, 0, 0, 64, 128, TT_BF16, 0, 0, 0},
    {TT_QUANT_INT8, 0, 0, 64, 128, TT_F32, 8, 3, 60},
    {TT_QUANT_INT8, 0, 0, 33, 77, TT_BF16, 0, 0, 0},
    {TT_QUANT_INT8, 0, 0, 33, 77, TT_F32, 2, 32, 1},
    {TT_QUANT_INT8, 0, 0, 1, 1, TT_F32, 0, 0, 0},
    {TT_QUANT_FP8, 0, 0, 64, 128, TT_BF16, 0, 0, 0},
    {TT_QUANT_FP8, 0, 0, 33, 77, TT_F32, 2, 3, 20},
    {TT_QUANT_FP8, 0, 0, 9, 256, TT_BF16, 8, 0, 0},
    {TT_QUANT_FP8, 128, 0, 256, 384, TT_BF16, 0, 0, 0},
    {TT_QUANT_FP8, 128, 0, 130, 257, TT_F32, 0, 0, 0},
    {TT_QUANT_FP8, 128, 0, 300, 144, TT_BF16, 8, 100, 160},
    {TT_QUANT_FP8, 128, 0, 300, 131, TT_BF16, 3, 127, 2},
    {TT_QUANT_FP8, 128, 0, 3, 16500, TT_F32, 0, 0, 0},
    {TT_QUANT_FP8, 128, 0, 5, 7, TT_BF16, 0, 0, 0},
};

static const struct quant_case gpu_cases[] = {
    {TT_QUANT_NF4, 64, 256, 1000, 4096, TT_BF16, 0, 0, 0},
    {TT_QUANT_NF4, 64, 256, 1024, 4096, TT_BF16, 64, 0, 0},
    {TT_QUANT_FP4, 64, 0, 777, 2048, TT_F32, 0, 5, 700},
    {TT_QUANT_NF4, 64, 256, 999, 1001, TT_BF16, 0, 0, 0},
    {TT_QUANT_INT8, 0, 0, 1024, 4096, TT_BF16, 64, 0, 0},
    {TT_QUANT_FP8, 0, 0, 1024, 4096, TT_BF16, 0, 0, 0},
    {TT_QUANT_FP8, 128, 0, 1024, 4096, TT_BF16, 0, 0, 0},
    {TT_QUANT_FP8, 128, 0, 1000, 1536, TT_F32, 0, 5, 900},
};

/* Any bytes are codes; scales are of the size of real ones. */
static void fill_segment(const struct tt_quant_layout *layout, uint8_t *segment)
{
    struct tt_rng rng = tt_rng_make(7);
    memset(segment, 0, layout->bytes);
    for (size_t i = 0; i < layout->absmax.offset; i++) segment[i] = (uint8_t)tt_rng_u64(rng, i);
    for (size_t i = 0; i < layout->absmax.bytes && layout->format.nested; i++)
        segment[layout->absmax.offset + i] = (uint8_t)(tt_rng_u64(rng, i) >> 8);
    const struct tt_quant_section *scales = layout->format.nested ? &layout->nested_absmax : &layout->absmax;
    for (size_t i = 0; i < scales->bytes / sizeof(float); i++) {
        float value = 0.01f + (float)(tt_rng_u64(rng, i) % 1000) * 1e-5f;
        memcpy(segment + scales->offset + i * sizeof value, &value, sizeof value);
    }
    float offset = 0.0371f;
    for (size_t i = 0; i < layout->codes.bytes && layout->format.type == TT_QUANT_FP8; i++)
        if ((segment[i] & 0x7f) == 0x7f) segment[i] = 0; /* NaN compares with nothing */
    if (layout->map.bytes > 0)
        memcpy(segment + layout->map.offset, tt_quant_map(layout->format.type), layout->map.bytes);
    if (!layout->format.nested) return;
    memcpy(segment + layout->nested_map.offset, tt_quant_nested_map(), layout->nested_map.bytes);
    memcpy(segment + layout->offset.offset, &offset, sizeof offset);
}

static struct tt_quant_layout layout_of(const struct quant_case *row)
{
    struct tt_quant_format format = {.type = row->type,
                                     .nested = row->nested_block > 0,
                                     .block = row->block,
                                     .nested_block = row->nested_block};
    struct tt_quant_layout layout;
    test_ok(tt_quant_layout_make(format, row->rows, row->cols, &layout));
    return layout;
}

static void run_on(const struct test_device *device, const struct quant_case *row)
{
    struct tt_quant_layout layout = layout_of(row);
    int64_t count = row->out_rows > 0 ? row->out_rows : row->rows - row->first_row;
    struct test_tensor y = test_tensor_make(row->dtype, count, row->cols, TEST_UNUSED, row->gap);
    struct test_tensor expected = test_tensor_make(row->dtype, count, row->cols, TEST_UNUSED, row->gap);
    uint8_t *segment = tt_alloc_aligned(layout.bytes);
    struct tt_buffer *buffer = NULL;
    assert_non_null(segment);
    fill_segment(&layout, segment);
    for (int64_t r = 0; r < count; r++)
        tt_quant_decode(&layout, segment, (row->first_row + r) * row->cols, row->cols,
                        tt_tensor_rows(expected.view, r, 1).data, row->dtype);
    test_ok(tt_buffer_create(device->device, layout.bytes, TT_PURPOSE_WEIGHTS, &buffer));
    test_ok(tt_copy_to_device(device->stream, tt_buffer_data(buffer), segment, layout.bytes));
    test_tensor_poison(&y);
    TEST_TO_DEVICE(device, &y);
    struct tt_dequantize_args args = {
        .layout = layout,
        .packed = tt_tensor_1d(tt_buffer_data(buffer), TT_U8, (int64_t)layout.bytes),
        .first_row = row->first_row,
        .y_NK = y.view,
    };
    test_ok(tt_dequantize(device->stream, &args));
    TEST_TO_HOST(device, &y);
    test_tensor_equal("y", &y, &expected);
    test_tensor_check_gaps("y", &y);
    tt_buffer_destroy(buffer);
    tt_free(segment);
    test_tensor_free(&expected);
    test_tensor_free(&y);
}

static void check_run(struct test_device *device, int threads, void *context)
{
    (void)threads;
    run_on(device, context);
}

static const struct quant_case recoded[] = {
    {TT_QUANT_NF4, 64, 256, 64, 128, TT_BF16, 0, 0, 0},  {TT_QUANT_NF4, 64, 0, 33, 40, TT_BF16, 0, 0, 0},
    {TT_QUANT_FP4, 64, 256, 70, 96, TT_BF16, 0, 0, 0},   {TT_QUANT_NF4, 64, 256, 7, 520, TT_F32, 0, 0, 0},
    {TT_QUANT_NF4, 64, 256, 301, 33, TT_BF16, 0, 0, 0},  {TT_QUANT_NF4, 4096, 256, 5, 4096, TT_BF16, 0, 0, 0},
    {TT_QUANT_NF4, 64, 256, 6, 14336, TT_BF16, 0, 0, 0}, {TT_QUANT_FP4, 32, 0, 3, 32768, TT_BF16, 0, 0, 0},
    {TT_QUANT_NF4, 64, 256, 3, 32776, TT_BF16, 0, 0, 0}, {TT_QUANT_INT8, 0, 0, 33, 80, TT_BF16, 0, 0, 0},
    {TT_QUANT_FP8, 128, 0, 130, 256, TT_BF16, 0, 0, 0},
};

/* The codes of a row of numbers; returns their scale. */
static float code_row(tt_tensor numbers, uint8_t *codes)
{
    double *values = test_view_values(numbers);
    int64_t cols = numbers.dims[0];
    float largest = 0;
    for (int64_t c = 0; c < cols; c++) largest = fmaxf(largest, fabsf((float)values[c]));
    float scale = tt_e4m3_scale(largest);
    for (int64_t c = 0; c < cols; c++) codes[c] = tt_e4m3_from_f32((float)values[c] / scale);
    free(values);
    return scale;
}

static void recode_on(const struct test_device *device, const struct quant_case *row)
{
    struct tt_quant_layout layout = layout_of(row);
    struct test_tensor codes = test_tensor_make(TT_F8_E4M3, row->rows, row->cols, TEST_UNUSED, 0);
    struct test_tensor scales = test_tensor_make(TT_F32, row->rows, TEST_UNUSED, TEST_UNUSED, 0);
    struct test_tensor scratch = test_tensor_make(row->dtype, row->rows, row->cols, TEST_UNUSED, 0);
    uint8_t *segment = tt_alloc_aligned(layout.bytes), *expected = tt_alloc_aligned((size_t)row->cols);
    void *numbers = tt_alloc_aligned((size_t)row->cols * tt_dtype_bytes(row->dtype));
    struct tt_buffer *buffer = NULL;
    assert_true(segment != NULL && expected != NULL && numbers != NULL);
    fill_segment(&layout, segment);
    test_ok(tt_buffer_create(device->device, layout.bytes, TT_PURPOSE_WEIGHTS, &buffer));
    test_ok(tt_copy_to_device(device->stream, tt_buffer_data(buffer), segment, layout.bytes));
    TEST_TO_DEVICE(device, &codes, &scales, &scratch);
    struct tt_recode_rows_args args = {
        .layout = layout,
        .packed = tt_tensor_1d(tt_buffer_data(buffer), TT_U8, (int64_t)layout.bytes),
        .scratch_NK = scratch.view,
        .codes_NK = codes.view,
        .scale_N = scales.view,
    };
    test_ok(tt_recode_rows(device->stream, &args));
    TEST_TO_HOST(device, &codes, &scales);
    for (int64_t r = 0; r < row->rows; r++) {
        tt_quant_decode(&layout, segment, r * row->cols, row->cols, numbers, row->dtype);
        float scale = code_row(tt_tensor_1d(numbers, row->dtype, row->cols), expected);
        assert_memory_equal((const float *)scales.view.data + r, &scale, sizeof scale);
        assert_memory_equal((const uint8_t *)codes.view.data + r * row->cols, expected, (size_t)row->cols);
    }
    tt_buffer_destroy(buffer);
    tt_free(numbers);
    tt_free(expected);
    tt_free(segment);
    test_tensor_free(&scratch);
    test_tensor_free(&scales);
    test_tensor_free(&codes);
}

static void check_recode(struct test_device *device, int threads, void *context)
{
    (void)threads;
    recode_on(device, context);
}

static void rows_in_fp8(void **state)
{
    (void)state;
    TEST_ISA_CASES("recode_rows", recoded, check_recode);
}

static void the_bits_of_the_host(void **state)
{
    (void)state;
    TEST_ISA_CASES("dequantize", cases, check_run);
}

static void sizes_of_real_models(void **state)
{
    (void)state;
    TEST_SIZES_ONLY();
    TEST_ISA_CASES("dequantize", gpu_cases, check_run);
}

static void wrong_arguments_are_refused(void **state)
{
    (void)state;
    struct test_device device;
    const struct quant_case row = {TT_QUANT_NF4, 64, 256, 8, 64, TT_F32, 0, 0, 0};
    struct tt_quant_layout layout = layout_of(&row);
    struct test_tensor y = test_tensor_make(TT_F32, 8, 64, TEST_UNUSED, 0);
    uint8_t *segment = tt_alloc_aligned(layout.bytes + 16);
    assert_non_null(segment);
    fill_segment(&layout, segment);
    test_device_open(&device, "cpu", 1);
    const struct tt_dequantize_args good = {
        .layout = layout, .packed = tt_tensor_1d(segment, TT_U8, (int64_t)layout.bytes), .y_NK = y.view};
    test_ok(tt_dequantize(device.stream, &good));
    struct tt_dequantize_args args = good;
    args.packed.dims[0]--;
    test_refused(tt_dequantize(device.stream, &args), TT_ERR_INTERNAL, "packed");
    args = good;
    args.packed.data = segment + 4;
    test_refused(tt_dequantize(device.stream, &args), TT_ERR_INTERNAL, "16 bytes");
    args = good;
    args.first_row = 1;
    test_refused(tt_dequantize(device.stream, &args), TT_ERR_INTERNAL, "rows 1 .. 9 of 8");
    args = good;
    args.layout.bytes += 64;
    test_refused(tt_dequantize(device.stream, &args), TT_ERR_INTERNAL, "layout");
    args = good;
    args.y_NK = tt_tensor_2d(y.view.data, TT_F32, 8, 63);
    test_refused(tt_dequantize(device.stream, &args), TT_ERR_INTERNAL, "y");
    args = good;
    args.y_NK.dtype = TT_F16;
    test_refused(tt_dequantize(device.stream, &args), TT_ERR_UNSUPPORTED, "y");
    uint8_t codes[8 * 64];
    float scales[8];
    const struct tt_recode_rows_args whole = {.layout = layout,
                                              .packed = good.packed,
                                              .scratch_NK = y.view,
                                              .codes_NK = tt_tensor_2d(codes, TT_F8_E4M3, 8, 64),
                                              .scale_N = tt_tensor_1d(scales, TT_F32, 8)};
    test_ok(tt_recode_rows(device.stream, &whole));
    struct tt_recode_rows_args other = whole;
    other.codes_NK.dims[0] = 7;
    test_refused(tt_recode_rows(device.stream, &other), TT_ERR_INTERNAL, "codes");
    other = whole;
    other.scratch_NK.dims[1] = 63;
    test_refused(tt_recode_rows(device.stream, &other), TT_ERR_INTERNAL, "scratch");
    other = whole;
    other.scale_N.dims[0] = 9;
    test_refused(tt_recode_rows(device.stream, &other), TT_ERR_INTERNAL, "scale");
    other = whole;
    other.packed.dims[0]++;
    test_refused(tt_recode_rows(device.stream, &other), TT_ERR_INTERNAL, "packed");
    test_device_close(&device);
    tt_free(segment);
    test_tensor_free(&y);
}

int main(void)
{
    int missing = test_device_missing();
    if (missing != 0) return missing;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_bits_of_the_host),
        cmocka_unit_test(sizes_of_real_models),
        cmocka_unit_test(rows_in_fp8),
        cmocka_unit_test(wrong_arguments_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
