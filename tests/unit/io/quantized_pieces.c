/* Parts of quantized matrices: in 4 bits with plain and nested scales, in bytes of another type, in int8, and in FP8
 * with scales of rows, of squares and of the matrix. The weights of each part are those rows of the whole, bit for bit;
 * rows that are not whole blocks, scales that do not fit and several matrices are refused by name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "io/quantized.h"
#include "support/made_folder.h"

enum { TENSORS_MAX = 12 };
#define WEIGHT "layers.#.attn.qkv.weight"
static const char config[] = "{\"model_type\": \"llama\"}", whole_name[] = "model.layers.0.attn.qkv.weight";

/* Of every four units the first two are a, the third b, the fourth c; or all are d, the second half first. */
static struct tt_param_sources parts_of(int64_t unit_rows)
{
    struct tt_param_sources sources = {
        .path = "model",
        .rows = {
            {.param = "layers.#.a.weight", .parts = {{.tensor = WEIGHT, .units = 4, .unit = 0, .count = 2}}},
            {.param = "layers.#.b.weight", .parts = {{.tensor = WEIGHT, .units = 4, .unit = 2}}},
            {.param = "layers.#.c.weight", .parts = {{.tensor = WEIGHT, .units = 4, .unit = 3}}}}};
    for (int i = 0; i < 3; i++) sources.rows[i].parts[0].unit_rows = unit_rows;
    return sources;
}
static const struct tt_param_sources dealt = {
    .path = "model",
    .rows = {
        {.param = "layers.#.d.weight",
         .parts = {{.tensor = WEIGHT, .units = 2, .unit = 1}, {.tensor = WEIGHT, .units = 2, .unit = 0}}}}};

/* ---- Folders ---- */

/* The tensors of a whole matrix, in a folder `toy`. */
struct matrix {
    struct tt_quant_layout layout;
    struct tt_arena arena;
    struct made tensors[TENSORS_MAX];
    size_t count;
};

static tt_status read_floats(void *context, int64_t first, int64_t count, void *to)
{
    memcpy(to, (const float *)context + first, (size_t)count * sizeof(float));
    return TT_OK;
}

static float *make_weights(int64_t count)
{
    float *weights = malloc((size_t)count * sizeof *weights);
    uint32_t state = 7;
    assert_non_null(weights);
    for (int64_t i = 0; i < count; i++) {
        state = state * 1664525u + 1013904223u;
        weights[i] = ((float)(state >> 8) / (float)(1 << 24) - 0.5f) * (float)(1 + i % 37);
    }
    return weights;
}

static void add(struct matrix *matrix, const struct tt_safetensors_entry *entry, const void *data)
{
    assert_true(matrix->count < TENSORS_MAX);
    matrix->tensors[matrix->count++] = (struct made){*entry, data};
}

static void make(struct matrix *matrix, enum tt_quant_type type, bool nested, int64_t rows, int64_t cols,
                 tt_dtype storage)
{
    struct tt_quantized_output out;
    *matrix = (struct matrix){.count = 0};
    ok(tt_quant_layout_make(tt_quant_format_make(type, nested), rows, cols, &matrix->layout));
    struct tt_quant_layout *layout = &matrix->layout;
    float *weights = make_weights(layout->count), *absmax = malloc((size_t)layout->blocks * sizeof *absmax);
    tt_quant_absmax(layout, 0, layout->blocks, weights, TT_F32, absmax);
    float offset = nested ? tt_quant_mean(absmax, layout->blocks) : 0;
    const struct tt_quant_source source = {absmax, offset, TT_F32, read_floats, weights};
    char *segment = tt_arena_alloc(&matrix->arena, layout->bytes);
    ok(tt_quant_encode(layout, &source, 0, layout->bytes, segment));
    ok(tt_quantized_describe(whole_name, layout, TT_F32, storage, &matrix->arena, &out));
    for (int e = 0; e < out.count; e++) {
        struct tt_str text = {0};
        const char *data = segment + out.sections[e].offset;
        if (out.sections[e].bytes == 0) {
            if (tt_weight_format(type)->has_state)
                ok(tt_quantized_state_write(layout, TT_F32, offset, &text));
            else
                ok(tt_str_append_char(&text, '\0'));
            data = memcpy(tt_arena_alloc(&matrix->arena, text.bytes), text.data, text.bytes);
        }
        add(matrix, &out.entries[e], data);
        tt_str_deinit(&text);
    }
    put_folder("toy", config, matrix->tensors, matrix->count);
    free(weights);
    free(absmax);
}

/* FP8 with scales of this shape, and a scale of activations that servers read. */
static void make_fp8(struct matrix *matrix, int64_t rows, int64_t cols, int rank, int64_t high, int64_t wide)
{
    *matrix = (struct matrix){.count = 0};
    int64_t scales = (rank > 0 ? high : 1) * (rank > 1 ? wide : 1);
    uint8_t *codes = tt_arena_alloc(&matrix->arena, (size_t)(rows * cols));
    float *values = tt_arena_alloc(&matrix->arena, (size_t)scales * sizeof *values);
    for (int64_t i = 0; i < rows * cols; i++) codes[i] = (uint8_t)(i * 37 % 253 % 127); /* no NaN */
    for (int64_t i = 0; i < scales; i++) values[i] = 0.25f + (float)i;
    static const float one = 1;
    const struct tt_safetensors_entry entries[] = {
        {.name = whole_name, .dtype = TT_F8_E4M3, .rank = 2, .dims = {rows, cols}},
        {.name = "model.layers.0.attn.qkv.weight_scale_inv",
         .dtype = TT_F32,
         .rank = rank,
         .dims = {high, wide}},
        {.name = "model.layers.0.attn.qkv.input_scale", .dtype = TT_F32, .rank = 0}};
    add(matrix, &entries[0], codes);
    add(matrix, &entries[1], values);
    add(matrix, &entries[2], &one);
    put_folder("toy", config, matrix->tensors, matrix->count);
}

static struct tt_model_folder *open_folder(const struct tt_param_sources *sources)
{
    struct tt_model_folder *folder = NULL;
    char path[300];
    snprintf(path, sizeof path, "%s", test_at("toy"));
    ok(tt_model_folder_open(path, true, &folder));
    if (sources != NULL) ok(tt_model_folder_join(folder, sources));
    return folder;
}

/* ---- Comparing ---- */

static float *decode(const struct tt_model_folder *folder, const char *name, int64_t *rows, int64_t *cols)
{
    struct tt_quantized tensor;
    ok(tt_quantized_find(folder, name, &tensor));
    const struct tt_quant_layout *layout = &tensor.layout;
    if (layout->format.type == TT_QUANT_NONE) fail_msg("'%s' is not quantized", name);
    ok(tt_quantized_check_values(folder, &tensor));
    float *weights = malloc((size_t)layout->count * sizeof *weights);
    char *segment = tt_alloc_aligned(layout->bytes);
    assert_true(weights != NULL && segment != NULL);
    ok(tt_quantized_read(folder, &tensor, 0, layout->bytes, segment));
    tt_quant_decode(layout, segment, 0, layout->count, weights, TT_F32);
    if (tt_quant_is_compressed(layout->format.type)) {
        float *numbers = malloc((size_t)layout->count * sizeof *numbers);
        ok(tt_quantized_read_weights(folder, &tensor, 0, layout->count, numbers));
        if (tensor.scales != TT_FP8_ONE_SCALE || layout->row_squares == 0)
            assert_memory_equal(numbers, weights, (size_t)layout->count * sizeof *numbers);
        free(numbers);
    }
    *rows = layout->rows;
    *cols = layout->cols;
    tt_free(segment);
    return weights;
}

static void check_rows(const struct tt_model_folder *folder, const char *name, const float *whole,
                       int64_t wanted_rows, int64_t (*row_of)(int64_t row, int64_t unit), int64_t unit)
{
    int64_t rows, cols;
    float *part = decode(folder, name, &rows, &cols);
    assert_int_equal(rows, wanted_rows);
    for (int64_t r = 0; r < rows; r++)
        if (memcmp(part + r * cols, whole + row_of(r, unit) * cols, (size_t)cols * sizeof *part) != 0)
            fail_msg("row %lld of '%s' differs", (long long)r, name);
    free(part);
}

static int64_t row_of_a(int64_t row, int64_t unit)
{
    return row / (2 * unit) * 4 * unit + row % (2 * unit);
}

static int64_t row_of_b(int64_t row, int64_t unit)
{
    return row / unit * 4 * unit + 2 * unit + row % unit;
}

static int64_t row_of_c(int64_t row, int64_t unit)
{
    return row / unit * 4 * unit + 3 * unit + row % unit;
}

static int64_t row_of_d(int64_t row, int64_t half)
{
    return row < half ? half + row : row - half;
}

static tt_status sum_rows(void *context, const struct tt_source_piece *piece)
{
    assert_string_equal(piece->tensor, whole_name);
    assert_int_equal(piece->rank, 2);
    assert_int_equal(piece->dims[1], piece->columns);
    *(int64_t *)context += piece->rows;
    return TT_OK;
}

/* The rows of each part, and the pieces that writers see, in rows of the matrix. */
static void check_parts(struct matrix *matrix, int64_t unit)
{
    int64_t rows, cols, seen = 0;
    bool joined;
    const struct tt_param_sources sources = parts_of(unit);
    struct tt_model_folder *plain = open_folder(NULL), *parts = open_folder(&sources), *turned;
    float *whole = decode(plain, whole_name, &rows, &cols);
    assert_int_equal(tt_model_folder_tensor_count(parts), 3 * tt_model_folder_tensor_count(plain));
    check_rows(parts, "model.layers.0.a.weight", whole, rows / 2, row_of_a, unit);
    check_rows(parts, "model.layers.0.b.weight", whole, rows / 4, row_of_b, unit);
    check_rows(parts, "model.layers.0.c.weight", whole, rows / 4, row_of_c, unit);
    ok(tt_model_folder_pieces(parts, "model.layers.0.a.weight", sum_rows, &seen, &joined));
    assert_true(joined && seen == rows / 2);
    turned = open_folder(&dealt);
    check_rows(turned, "model.layers.0.d.weight", whole, rows, row_of_d, rows / 2);
    tt_model_folder_close(plain);
    tt_model_folder_close(parts);
    tt_model_folder_close(turned);
    tt_arena_deinit(&matrix->arena);
    free(whole);
}

static void four_bits(void **state)
{
    struct matrix matrix;
    (void)state;
    make(&matrix, TT_QUANT_NF4, false, 24, 64, TT_U8);
    check_parts(&matrix, 3);
    make(&matrix, TT_QUANT_FP4, false, 16, 96, TT_U8); /* two rows are three blocks */
    check_parts(&matrix, 2);
    make(&matrix, TT_QUANT_NF4, false, 16, 64, TT_F32);
    check_parts(&matrix, 1);
    make(&matrix, TT_QUANT_NF4, true, 32, 4096, TT_U8); /* four rows are a nested block */
    check_parts(&matrix, 4);
}

static void bytes_of_rows(void **state)
{
    struct matrix matrix;
    (void)state;
    make(&matrix, TT_QUANT_INT8, false, 8, 5, TT_U8);
    check_parts(&matrix, 1);
    make(&matrix, TT_QUANT_FP8, false, 16, 7, TT_U8);
    check_parts(&matrix, 2);
}

static void fp8_scales(void **state)
{
    struct matrix matrix;
    (void)state;
    make_fp8(&matrix, 1024, 200, 2, 8, 2);
    check_parts(&matrix, 128);
    make_fp8(&matrix, 16, 6, 0, 0, 0);
    check_parts(&matrix, 2);
    make_fp8(&matrix, 16, 6, 1, 16, 0);
    check_parts(&matrix, 2);
}

/* ---- Refusals ---- */

static void refuse(struct matrix *matrix, const struct tt_param_sources *sources, tt_status status,
                   const char *wanted)
{
    uint64_t live = tt_alloc_live();
    struct tt_model_folder *folder = open_folder(NULL);
    assert_int_equal(tt_model_folder_join(folder, sources), status);
    if (strstr(tt_error_last()->message, wanted) == NULL) fail_msg("%s", tt_error_last()->message);
    tt_model_folder_close(folder);
    assert_true(tt_alloc_live() == live);
    tt_arena_deinit(&matrix->arena);
}

static void refusals(void **state)
{
    struct matrix matrix;
    struct tt_param_sources one_row = parts_of(1), squares = parts_of(64), turned = dealt, several = dealt;
    (void)state;
    make(&matrix, TT_QUANT_NF4, false, 16, 96, TT_U8);
    refuse(&matrix, &one_row, TT_ERR_UNSUPPORTED,
           "'model.layers.0.attn.qkv.weight' has parts that are not whole blocks: "
           "'model.layers.0.attn.qkv.weight.absmax' has 3 values for 2 rows");
    make_fp8(&matrix, 512, 128, 2, 4, 1);
    refuse(&matrix, &squares, TT_ERR_UNSUPPORTED,
           "'model.layers.0.attn.qkv.weight_scale_inv' has 1 values for 128");
    make_fp8(&matrix, 512, 128, 2, 3, 1);
    refuse(&matrix, &squares, TT_ERR_DATA,
           "'model.layers.0.attn.qkv.weight_scale_inv' has 3 values and 'model.layers.0.attn.qkv.weight', "
           "[512, 128], needs 4");
    make_fp8(&matrix, 16, 6, 0, 0, 0);
    turned.rows[0].parts[0].transposed = turned.rows[0].parts[1].transposed = true;
    refuse(&matrix, &turned, TT_ERR_UNSUPPORTED,
           "'model.layers.0.attn.qkv.weight' is F8_E4M3, and a part of");
    make_fp8(&matrix, 16, 6, 0, 0, 0);
    several.rows[0].parts[0].units = several.rows[0].parts[1].units = 0;
    several.rows[0].parts[1].tensor = "layers.#.attn.qkv.input_scale";
    refuse(&matrix, &several, TT_ERR_UNSUPPORTED, "where a matrix of one tensor has its scales beside it");
    make_fp8(&matrix, 16, 6, 0, 0, 0);
    matrix.tensors[0].entry.rank = 1;
    matrix.tensors[0].entry.dims[0] = 96;
    put_folder("toy", config, matrix.tensors, matrix.count);
    refuse(&matrix, &one_row, TT_ERR_DATA,
           "has 'model.layers.0.attn.qkv.weight_scale_inv' beside it, but is not");
    make(&matrix, TT_QUANT_NF4, false, 16, 64, TT_U8);
    for (size_t i = 0; i < matrix.count; i++)
        if (strstr(matrix.tensors[i].entry.name, "quant_state") != NULL)
            matrix.tensors[i].entry.dtype = TT_F8_E4M3;
    put_folder("toy", config, matrix.tensors, matrix.count);
    refuse(&matrix, &one_row, TT_ERR_DATA, "is not JSON of at most 4096 bytes");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(four_bits),
        cmocka_unit_test(bytes_of_rows),
        cmocka_unit_test(fp8_scales),
        cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests(tests, test_root_create, test_root_remove);
}
