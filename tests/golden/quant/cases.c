/* tensor/quant.h against the real library: the same bits, whole and in pieces (make_quant.py says what is in
 * the files). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "base/json.h"
#include "io/safetensors.h"
#include "support/must.h"
#include "tensor/quant.h"

#define FOLDER TT_TEST_ROOT "/golden/quant"

static struct tt_json json;
static struct tt_safetensors *file;

static int open_files(void **state)
{
    (void)state;
    if (tt_json_read(FOLDER "/cases.json", 1 << 20, &json) != TT_OK) return -1;
    return tt_safetensors_open(FOLDER "/cases.safetensors", &file) == TT_OK ? 0 : -1;
}

static int close_files(void **state)
{
    (void)state;
    tt_safetensors_close(file);
    tt_json_deinit(&json);
    return 0;
}

static int64_t int_of(const struct tt_json_value *row, const char *key)
{
    int64_t value;
    test_must(tt_json_int(&json, row, key, &value));
    return value;
}

static const char *text_of(const struct tt_json_value *row, const char *key)
{
    const char *value;
    test_must(tt_json_string(&json, row, key, &value));
    return value;
}

static struct tt_quant_layout layout_of(const struct tt_json_value *row)
{
    enum tt_quant_type type = tt_quant_type_from_name(text_of(row, "type"));
    bool nested = type != TT_QUANT_INT8;
    if (tt_json_get(row, "nested") != NULL) test_must(tt_json_bool(&json, row, "nested", &nested));
    struct tt_quant_format format = tt_quant_format_make(type, nested);
    if (tt_json_get(row, "block") != NULL) format.block = int_of(row, "block");
    struct tt_quant_layout layout;
    test_must(tt_quant_layout_make(format, int_of(row, "rows"), int_of(row, "cols"), &layout));
    return layout;
}

/* Memory of its own, or NULL when the case has no such tensor. */
static void *load(const char *name, const char *part, tt_dtype *dtype, int64_t *count)
{
    char full[64];
    snprintf(full, sizeof full, "%s.%s", name, part);
    const struct tt_safetensors_entry *entry = tt_safetensors_find(file, full);
    if (entry == NULL) return NULL;
    *dtype = entry->dtype;
    *count = (int64_t)(entry->bytes / tt_dtype_bytes(entry->dtype));
    void *data = tt_alloc_aligned(entry->bytes);
    assert_non_null(data);
    test_must(tt_safetensors_read(file, entry, 0, *count, data, entry->dtype));
    return data;
}

struct matrix {
    const void *weights;
    tt_dtype dtype;
};

static tt_status read_weights(void *context, int64_t first, int64_t count, void *to)
{
    const struct matrix *matrix = context;
    size_t bytes = tt_dtype_bytes(matrix->dtype);
    memcpy(to, (const char *)matrix->weights + (size_t)first * bytes, (size_t)count * bytes);
    return TT_OK;
}

/* The segment, and its absmax made block by block or all at once. */
static uint8_t *quantize(const struct tt_quant_layout *layout, struct matrix *matrix, bool in_pieces)
{
    float *absmax = tt_alloc_aligned((size_t)layout->blocks * sizeof *absmax);
    uint8_t *segment = tt_alloc_aligned(layout->bytes);
    assert_true(absmax != NULL && segment != NULL);
    int64_t step = in_pieces ? 3 : layout->blocks;
    for (int64_t b = 0; b < layout->blocks; b += step)
        tt_quant_absmax(layout, b, layout->blocks - b < step ? layout->blocks - b : step,
                        (const char *)matrix->weights +
                            tt_quant_block_first(layout, b) * (int64_t)tt_dtype_bytes(matrix->dtype),
                        matrix->dtype, absmax + b);
    test_must(tt_quant_check(layout, absmax));
    struct tt_quant_source source = {.absmax = absmax,
                                     .offset = tt_quant_mean(absmax, layout->blocks),
                                     .dtype = matrix->dtype,
                                     .read = read_weights,
                                     .context = matrix};
    size_t piece = in_pieces ? 77 : layout->bytes;
    for (size_t at = 0; at < layout->bytes; at += piece)
        test_must(tt_quant_encode(layout, &source, at,
                                  layout->bytes - at < piece ? layout->bytes - at : piece, segment + at));
    tt_free(absmax);
    return segment;
}

static void compare_part(const char *name, const char *part, const uint8_t *segment,
                         struct tt_quant_section section)
{
    tt_dtype dtype;
    int64_t count;
    uint8_t *expected = load(name, part, &dtype, &count);
    assert_int_equal(expected != NULL ? (size_t)count * tt_dtype_bytes(dtype) : 0, section.bytes);
    for (size_t i = 0; i < section.bytes; i++)
        if (expected[i] != segment[section.offset + i])
            fail_msg("%s.%s: byte %zu is %02x, not %02x", name, part, i, segment[section.offset + i],
                     expected[i]);
    tt_free(expected);
}

/* Equal numbers: fp4 has two codes for zero, and the library's kernels differ in the sign of the second. */
static void compare_decoded(const char *name, const char *part, const struct tt_quant_layout *layout,
                            const uint8_t *segment)
{
    tt_dtype dtype;
    int64_t count;
    void *expected = load(name, part, &dtype, &count);
    if (expected == NULL) return;
    float *got = tt_alloc_aligned((size_t)count * sizeof *got),
          *wide = tt_alloc_aligned((size_t)count * sizeof *wide);
    void *narrow = tt_alloc_aligned((size_t)count * sizeof *got);
    assert_true(got != NULL && wide != NULL && narrow != NULL);
    assert_int_equal(count, layout->count);
    tt_quant_decode(layout, segment, 0, count, narrow, dtype);
    assert_true(tt_dtype_convert(got, TT_F32, narrow, dtype, (size_t)count));
    assert_true(tt_dtype_convert(wide, TT_F32, expected, dtype, (size_t)count));
    for (int64_t i = 0; i < count; i++)
        if (got[i] != wide[i])
            fail_msg("%s.%s[%lld] is %.9g, not %.9g", name, part, (long long)i, got[i], wide[i]);
    tt_free(narrow);
    tt_free(wide);
    tt_free(got);
    tt_free(expected);
}

static void run_case(const struct tt_json_value *row)
{
    const char *name = text_of(row, "name");
    struct tt_quant_layout layout = layout_of(row);
    struct matrix matrix;
    int64_t count;
    void *weights = load(name, "weight", &matrix.dtype, &count);
    assert_int_equal(count, layout.count);
    matrix.weights = weights;
    uint8_t *segment = quantize(&layout, &matrix, false);
    compare_part(name, "codes", segment, layout.codes);
    compare_part(name, "absmax", segment, layout.absmax);
    if (layout.format.nested) {
        double offset;
        test_must(tt_json_double(&json, row, "offset", &offset));
        float got;
        memcpy(&got, segment + layout.offset.offset, sizeof got);
        if (got != (float)offset) fail_msg("%s: offset %.9g, not %.9g", name, got, offset);
        compare_part(name, "nested_absmax", segment, layout.nested_absmax);
    }
    compare_decoded(name, "dequantized_float32", &layout, segment);
    compare_decoded(name, "dequantized_bfloat16", &layout, segment);
    uint8_t *again = quantize(&layout, &matrix, true);
    assert_memory_equal(segment, again, layout.bytes);
    tt_free(again);
    tt_free(segment);
    tt_free(weights);
}

static void cases_are_the_same(void **state)
{
    (void)state;
    const struct tt_json_value *rows;
    test_must(tt_json_array(&json, json.root, "cases", &rows));
    assert_true(tt_json_count(rows) > 40);
    for (size_t i = 0; i < tt_json_count(rows); i++) run_case(tt_json_at(rows, i));
}

static void maps_are_the_same(void **state)
{
    (void)state;
    const struct tt_json_value *maps, *map;
    const char *const names[] = {"nf4", "fp4", "nested"};
    const float *const ours[] = {tt_quant_map(TT_QUANT_NF4), tt_quant_map(TT_QUANT_FP4),
                                 tt_quant_nested_map()};
    test_must(tt_json_object(&json, json.root, "maps", &maps));
    for (int i = 0; i < 3; i++) {
        test_must(tt_json_array(&json, maps, names[i], &map));
        assert_int_equal(tt_json_count(map), i < 2 ? TT_QUANT_MAP : TT_QUANT_NESTED_MAP);
        for (size_t k = 0; k < tt_json_count(map); k++)
            if ((float)tt_json_number(tt_json_at(map, k)) != ours[i][k])
                fail_msg("%s[%zu] is %.9g", names[i], k, ours[i][k]);
    }
}

static void expect_sum(const struct tt_json_value *row, const char *key, const uint8_t *segment,
                       struct tt_quant_section section)
{
    uint64_t sum = 0xcbf29ce484222325u;
    for (size_t i = 0; i < section.bytes; i++) sum = (sum ^ segment[section.offset + i]) * 0x100000001b3u;
    char text[24];
    snprintf(text, sizeof text, "%016llx", (unsigned long long)sum);
    assert_string_equal(text, text_of(row, key));
}

/* So many absmax that the mean goes through all levels of the cascade. */
static void large_ones_are_the_same(void **state)
{
    (void)state;
    const struct tt_json_value *rows;
    test_must(tt_json_array(&json, json.root, "large", &rows));
    for (size_t r = 0; r < tt_json_count(rows); r++) {
        const struct tt_json_value *row = tt_json_at(rows, r);
        struct tt_quant_layout layout = layout_of(row);
        float *weights = tt_alloc_aligned((size_t)layout.count * sizeof *weights);
        assert_non_null(weights);
        for (int64_t i = 0; i < layout.count; i++) {
            float scale = (float)(1 + i / layout.cols % 7);
            uint32_t draw = (uint32_t)((uint64_t)i * 2654435761u);
            weights[i] = ((float)(draw >> 8) / 16777216.0f - 0.5f) * scale;
        }
        struct matrix matrix = {.weights = weights, .dtype = TT_F32};
        uint8_t *segment = quantize(&layout, &matrix, false);
        double offset;
        test_must(tt_json_double(&json, row, "offset", &offset));
        float got;
        memcpy(&got, segment + layout.offset.offset, sizeof got);
        if (got != (float)offset) fail_msg("offset %.9g, not %.9g", got, offset);
        expect_sum(row, "nested_absmax", segment, layout.nested_absmax);
        expect_sum(row, "absmax", segment, layout.absmax);
        expect_sum(row, "codes", segment, layout.codes);
        tt_free(segment);
        tt_free(weights);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(maps_are_the_same),
        cmocka_unit_test(cases_are_the_same),
        cmocka_unit_test(large_ones_are_the_same),
    };
    return cmocka_run_group_tests(tests, open_files, close_files);
}
