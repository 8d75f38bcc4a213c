/* Weights of folders in FP8 (io/quantized.h): scales of every kind give code * scale, also as a segment, and all but
 * those of rows as one in blocks; whatever is inconsistent is refused with its name. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "io/quantized.h"
#include "model/quantization.h"
#include "support/made_folder.h"
#include "tensor/e4m3.h"

enum { ROWS = 130, COLS = 257, COUNT = ROWS * COLS, BLOCK_ROWS = 2, BLOCK_COLS = 3 };

static uint8_t codes[COUNT];
static float scales[COUNT];

static void fill(void)
{
    for (int i = 0; i < COUNT; i++) codes[i] = (uint8_t)(i * 37 % 256 % 127 + (i % 2 == 0 ? 128 : 0));
    for (int i = 0; i < COUNT; i++) scales[i] = 0.001f * (float)(1 + i % 97);
}

static struct made codes_made(void)
{
    return (struct made){{.name = "a.weight", .dtype = TT_F8_E4M3, .rank = 2, .dims = {ROWS, COLS}}, codes};
}

static struct made scales_made(const char *name, int rank, int64_t first, int64_t second)
{
    return (struct made){{.name = name, .dtype = TT_F32, .rank = rank, .dims = {first, second}}, scales};
}

static tt_status find(const struct made *parts, size_t count, struct tt_model_folder **folder,
                      struct tt_quantized *out)
{
    put_folder("one", "{\"model_type\": \"llama\"}", parts, count);
    ok(tt_model_folder_open(test_at("one"), true, folder));
    tt_status status = tt_quantized_find(*folder, "a.weight", out);
    return status == TT_OK ? tt_quantized_check_values(*folder, out) : status;
}

/* The place of a weight's scale among the scales. */
static int place(enum tt_fp8_scales kind, int row, int col)
{
    if (kind == TT_FP8_BLOCK_SCALES) return row / 128 * BLOCK_COLS + col / 128;
    return kind == TT_FP8_ROW_SCALES ? row : 0;
}

static void check_values(const struct tt_model_folder *folder, const struct tt_quantized *tensor,
                         const float *expected_scales)
{
    static float whole[COUNT], parts[COUNT];
    ok(tt_quantized_read_weights(folder, tensor, 0, COUNT, whole));
    for (int first = 0; first < COUNT; first += 333)
        ok(tt_quantized_read_weights(folder, tensor, first, COUNT - first < 333 ? COUNT - first : 333,
                                     parts + first));
    assert_memory_equal(whole, parts, sizeof whole);
    for (int i = 0; i < COUNT; i++) {
        float expected =
            tt_e4m3_to_f32(codes[i]) * expected_scales[place(tensor->scales, i / COLS, i % COLS)];
        if (whole[i] != expected) fail_msg("%d is %g, not %g", i, (double)whole[i], (double)expected);
    }
}

/* The segment decodes to the same numbers, whole and in pieces that cut scales. */
static void check_segment(const struct tt_model_folder *folder, const struct tt_quantized *tensor)
{
    static float decoded[COUNT], numbers[COUNT];
    static uint8_t segment[COUNT + 4 * ROWS + 256], pieces[sizeof segment];
    size_t bytes = tensor->layout.bytes;
    assert_true(bytes <= sizeof segment);
    ok(tt_quantized_read(folder, tensor, 0, bytes, segment));
    for (size_t at = 0; at < bytes; at += 61)
        ok(tt_quantized_read(folder, tensor, at, bytes - at < 61 ? bytes - at : 61, pieces + at));
    assert_memory_equal(segment, pieces, bytes);
    tt_quant_decode(&tensor->layout, segment, 0, COUNT, decoded, TT_F32);
    ok(tt_quantized_read_weights(folder, tensor, 0, COUNT, numbers));
    assert_memory_equal(decoded, numbers, sizeof decoded);
}

static void scales_of_every_kind(void **state)
{
    static const struct {
        const char *name;
        enum tt_fp8_scales kind;
        int rank;
        int64_t first, second;
    } rows[] = {
        {"a.weight_scale", TT_FP8_ROW_SCALES, 2, ROWS, 1},
        {"a.weight_scale", TT_FP8_ROW_SCALES, 1, ROWS, 0},
        {"a.weight_scale", TT_FP8_ONE_SCALE, 1, 1, 0},
        {"a.weight_scale_inv", TT_FP8_ONE_SCALE, 0, 0, 0},
        {"a.weight_scale_inv", TT_FP8_ONE_SCALE, 2, 1, 1},
        {"a.weight_scale_inv", TT_FP8_BLOCK_SCALES, 2, BLOCK_ROWS, BLOCK_COLS},
        {"a.weight_scale", TT_FP8_BLOCK_SCALES, 2, BLOCK_ROWS, BLOCK_COLS},
    };
    (void)state;
    fill();
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        struct made parts[] = {codes_made(),
                               scales_made(rows[r].name, rows[r].rank, rows[r].first, rows[r].second),
                               scales_made("a.input_scale", 0, 0, 0)};
        struct tt_model_folder *folder = NULL;
        struct tt_quantized tensor;
        size_t module;
        ok(find(parts, 3, &folder, &tensor));
        assert_int_equal(tensor.layout.format.type, TT_QUANT_FP8);
        assert_int_equal(tensor.scales, rows[r].kind);
        check_values(folder, &tensor, scales);
        bool blocks = rows[r].kind == TT_FP8_BLOCK_SCALES;
        assert_int_equal(tensor.layout.row_squares, blocks ? BLOCK_COLS : 0);
        check_segment(folder, &tensor);
        bool by_rows = rows[r].kind == TT_FP8_ROW_SCALES;
        assert_int_equal(tt_quantized_in_blocks(&tensor), by_rows ? TT_ERR_UNSUPPORTED : TT_OK);
        if (!by_rows) assert_int_equal(tensor.layout.blocks, BLOCK_ROWS * BLOCK_COLS);
        check_segment(folder, &tensor);
        for (int p = 1; p < 3; p++)
            assert_true(tt_quantized_is_part(parts[p].entry.name, &module) && module == 1);
        tt_model_folder_close(folder);
    }
}

/* Scales in 16 bits, and powers of two in 8. */
static void scales_of_every_type(void **state)
{
    static uint16_t halves[ROWS];
    static uint8_t powers[ROWS];
    static float expected[ROWS];
    static const tt_dtype types[] = {TT_BF16, TT_F16, TT_F8_E8M0};
    (void)state;
    fill();
    for (int t = 0; t < 3; t++) {
        struct made parts[] = {codes_made(), scales_made("a.weight_scale", 2, ROWS, 1)};
        struct tt_model_folder *folder = NULL;
        struct tt_quantized tensor;
        for (int i = 0; i < ROWS; i++) {
            halves[i] = types[t] == TT_BF16 ? tt_f32_to_bf16(scales[i]) : tt_f32_to_f16(scales[i]);
            powers[i] = (uint8_t)(i == 0 ? 0 : 100 + i % 50);
            expected[i] = types[t] == TT_BF16  ? tt_bf16_to_f32(halves[i])
                          : types[t] == TT_F16 ? tt_f16_to_f32(halves[i])
                                               : ldexpf(1, powers[i] - 127);
        }
        parts[1].entry.dtype = types[t];
        parts[1].data = types[t] == TT_F8_E8M0 ? (const void *)powers : halves;
        ok(find(parts, 2, &folder, &tensor));
        check_values(folder, &tensor, expected);
        check_segment(folder, &tensor);
        tt_model_folder_close(folder);
    }
}

static void refused(const struct made *parts, size_t count, tt_status expected, const char *part)
{
    struct tt_model_folder *folder = NULL;
    struct tt_quantized tensor;
    tt_status status = find(parts, count, &folder, &tensor);
    if (status != expected) fail_msg("status %d, not %d, for '%s'", status, expected, part);
    if (strstr(tt_error_last()->message, part) == NULL)
        fail_msg("'%s' not in '%s'", part, tt_error_last()->message);
    tt_model_folder_close(folder);
}

static void what_does_not_fit_is_refused(void **state)
{
    (void)state;
    fill();
    struct made good[] = {codes_made(), scales_made("a.weight_scale", 2, ROWS, 1),
                          scales_made("a.weight_scale_inv", 0, 0, 0)};
    refused(good, 3, TT_ERR_DATA, "more than one kind");
    refused(good + 1, 1, TT_ERR_DATA, "'a.weight' is missing");
    static const int64_t shapes[][2] = {{ROWS - 1, 1}, {ROWS, 2}, {BLOCK_COLS, BLOCK_ROWS}, {1, COLS}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct made parts[] = {codes_made(), scales_made("a.weight_scale", 2, shapes[i][0], shapes[i][1])};
        refused(parts, 2, TT_ERR_DATA, "the scales 'a.weight_scale' do not fit 'a.weight' [130, 257]");
    }
    struct made parts[] = {good[0], good[1]};
    parts[0].entry.dtype = TT_I8;
    refused(parts, 2, TT_ERR_DATA, "is I8, but must be F8_E4M3");
    parts[0].entry.dtype = TT_F8_E5M2;
    refused(parts, 2, TT_ERR_UNSUPPORTED, "is F8_E5M2, but must be F8_E4M3");
    parts[0] = good[0];
    parts[0].entry.rank = 1;
    parts[0].entry.dims[0] = COUNT;
    refused(parts, 2, TT_ERR_DATA, "is not a matrix");
    parts[0] = good[0];
    parts[1].entry.dtype = TT_I32;
    refused(parts, 2, TT_ERR_DATA, "is I32, but must be F32");
    parts[1] = good[1];
    scales[77] = NAN;
    refused(parts, 2, TT_ERR_DATA, "'a.weight_scale'[77] is not a number");
    scales[77] = INFINITY;
    refused(parts, 2, TT_ERR_DATA, "[77] is infinite");
    struct made alone[] = {good[0], scales_made("a.input_scale", 0, 0, 0)};
    refused(alone, 2, TT_ERR_DATA, "'a.input_scale' exists, but no tensor that names the format");
}

static tt_status read_config(const char *text, struct tt_quantized_config *config)
{
    struct tt_json json = {0};
    char whole[2048];
    (void)snprintf(whole, sizeof whole, "{\"quantization_config\": %s}", text);
    ok(tt_json_parse(whole, strlen(whole), "config.json", &json));
    tt_status status = tt_quantized_config_read(&json, config);
    tt_json_deinit(&json);
    return status;
}

#define GROUP(more) "\"config_groups\": {\"group_0\": {\"targets\": [\"Linear\"], \"weights\": {" more "}}}"
#define COMPRESSED(more)                                                                                     \
    "{\"quant_method\": \"compressed-tensors\", \"format\": \"float-quantized\", " more "}"
#define FLOAT8 "\"num_bits\": 8, \"type\": \"float\""

static void configurations(void **state)
{
    static const struct {
        const char *text, *told; /* told NULL: good */
        tt_status status;
        int blocks; /* 2: whose scales are powers of two */
    } rows[] = {
        {"{\"quant_method\": \"fp8\"}", NULL, TT_OK, 0},
        {"{\"quant_method\": \"fp8\", \"weight_block_size\": null}", NULL, TT_OK, 0},
        {"{\"quant_method\": \"fp8\", \"fmt\": \"e4m3\", \"weight_block_size\": [128, 128]}", NULL, TT_OK, 1},
        {"{\"quant_method\": \"fp8\", \"weight_block_size\": [128, 128], \"scale_fmt\": \"ue8m0\"}", NULL,
         TT_OK, 2},
        {"{\"quant_method\": \"fp8\", \"weight_block_size\": [128, 128], \"scale_fmt\": \"float\"}", NULL,
         TT_OK, 1},
        {"{\"quant_method\": \"fp8\", \"weight_block_size\": [64, 128]}", "not 128 x 128", TT_ERR_UNSUPPORTED,
         0},
        {"{\"quant_method\": \"fp8\", \"weight_block_size\": 128}", "not 128 x 128", TT_ERR_UNSUPPORTED, 0},
        {"{\"quant_method\": \"fp8\", \"fmt\": \"e5m2\"}", "fmt is not e4m3", TT_ERR_UNSUPPORTED, 0},
        {"{\"quant_method\": \"fp8\", \"modules_to_not_convert\": 4}", "not a list", TT_ERR_DATA, 0},
        {COMPRESSED(GROUP(FLOAT8 ", \"strategy\": \"channel\"")), NULL, TT_OK, 0},
        {COMPRESSED(GROUP(FLOAT8 ", \"strategy\": \"block\", \"block_structure\": [128, 128]")), NULL, TT_OK,
         1},
        {COMPRESSED(GROUP("\"num_bits\": 8, \"type\": \"int\"")), "not floats of 8 bits", TT_ERR_UNSUPPORTED,
         0},
        {COMPRESSED(GROUP("\"num_bits\": 4, \"type\": \"float\"")), "not floats of 8 bits",
         TT_ERR_UNSUPPORTED, 0},
        {COMPRESSED(GROUP(FLOAT8 ", \"strategy\": \"group\"")), "groups within a row", TT_ERR_UNSUPPORTED, 0},
        {COMPRESSED("\"config_groups\": {}"), "config_groups is empty", TT_ERR_UNSUPPORTED, 0},
        {COMPRESSED("\"ignore\": []"), "config_groups", TT_ERR_DATA, 0},
        {COMPRESSED("\"config_groups\": {\"group_0\": 1}"), "config.json: config_groups: not an object",
         TT_ERR_DATA, 0},
        {COMPRESSED(GROUP(FLOAT8) ", \"transform_config\": {\"a\": 1}"),
         "transforms of weights are not supported", TT_ERR_UNSUPPORTED, 0},
        {COMPRESSED(GROUP(FLOAT8) ", \"sparsity_config\": {\"format\": \"sparse-24-bitmask\"}"),
         "sparse weights are not supported", TT_ERR_UNSUPPORTED, 0},
        {COMPRESSED(GROUP(FLOAT8) ", \"transform_config\": {}, \"sparsity_config\": {}"), NULL, TT_OK, 0},
        {"{\"quant_method\": \"compressed-tensors\", \"format\": \"pack-quantized\"}", "not float-quantized",
         TT_ERR_UNSUPPORTED, 0},
    };
    (void)state;
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        struct tt_quantized_config config;
        tt_status status = read_config(rows[r].text, &config);
        if (status != rows[r].status) fail_msg("%s: status %d", rows[r].text, status);
        if (rows[r].told == NULL) {
            assert_int_equal(config.type, TT_QUANT_FP8);
            assert_int_equal(config.fp8_blocks, rows[r].blocks > 0);
            assert_int_equal(config.fp8_powers, rows[r].blocks == 2);
        } else if (strstr(tt_error_last()->message, rows[r].told) == NULL) {
            fail_msg("'%s' not in '%s'", rows[r].told, tt_error_last()->message);
        }
    }
}

/* Weights without scales are plain ones, and shapes of scales say what they are of, whatever config.json has. */
static void weights_say_what_config_does_not(void **state)
{
    static const struct {
        int64_t first, second;
        bool blocks;
    } rows[] = {{ROWS, 1, false}, {BLOCK_ROWS, BLOCK_COLS, true}};
    (void)state;
    fill();
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        struct made parts[] = {codes_made(),
                               scales_made("a.weight_scale", 2, rows[r].first, rows[r].second),
                               scales_made("b.weight", 2, ROWS, 2),
                               scales_made("b.bias", 1, ROWS, 0),
                               codes_made(),
                               scales_made("layers.1.norm.weight", 1, COLS, 0)};
        struct tt_model_folder *folder = NULL;
        struct tt_arena arena = {0};
        static struct tt_model_facts facts;
        parts[4].entry.name = "c.weight"; /* codes alone are refused where they are loaded */
        put_folder("said", "{}", parts, sizeof parts / sizeof *parts);
        ok(tt_model_folder_open(test_at("said"), true, &folder));
        facts = (struct tt_model_facts){.stored_quant = TT_QUANT_INT8};
        ok(tt_quantization_inspect(folder, &arena, &facts));
        assert_null(facts.stored_plain);
        facts.stored_quant = TT_QUANT_FP8;
        ok(tt_quantization_inspect(folder, &arena, &facts));
        assert_string_equal(facts.stored_plain, "b\nlayers.1.norm\n");
        assert_int_equal(facts.stored_fp8_blocks, rows[r].blocks);
        tt_arena_deinit(&arena);
        tt_model_folder_close(folder);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scales_of_every_kind),
        cmocka_unit_test(scales_of_every_type),
        cmocka_unit_test(what_does_not_fit_is_refused),
        cmocka_unit_test(configurations),
        cmocka_unit_test(weights_say_what_config_does_not),
    };
    return cmocka_run_group_tests(tests, test_root_create, test_root_remove);
}
