/* io/quantized.h and convert/quantized_folder.h: what is written is read again, and everything that can be wrong
 * with a quantized weight is told. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "base/file.h"
#include "convert/quantized_folder.h"
#include "support/made_folder.h"

enum { ROWS = 6, COLS = 100 };

/* A quantized weight of ROWS x COLS in blocks of 64, nested, whose parts a test may spoil. */
enum { CODES, ABSMAX, NESTED, MAP, NESTED_MAP, STATE, PARTS };

static uint8_t bytes_of_zeros[8192];
static float ones[512];
static char state_text[512];

static void good_parts(struct made parts[PARTS])
{
    static const char good_state[] =
        "{\"quant_type\": \"nf4\", \"blocksize\": 64, \"dtype\": \"bfloat16\", \"shape\": [6, 100], "
        "\"nested_blocksize\": 256, \"nested_dtype\": \"float32\", \"nested_offset\": 0.5}";
    for (int i = 0; i < 512; i++) ones[i] = 1;
    strcpy(state_text, good_state);
    parts[CODES] =
        (struct made){{.name = "a.weight", .dtype = TT_U8, .rank = 2, .dims = {300, 1}}, bytes_of_zeros};
    parts[ABSMAX] =
        (struct made){{.name = "a.weight.absmax", .dtype = TT_U8, .rank = 1, .dims = {10}}, bytes_of_zeros};
    parts[NESTED] =
        (struct made){{.name = "a.weight.nested_absmax", .dtype = TT_F32, .rank = 1, .dims = {1}}, ones};
    parts[MAP] =
        (struct made){{.name = "a.weight.quant_map", .dtype = TT_F32, .rank = 1, .dims = {16}}, ones};
    parts[NESTED_MAP] =
        (struct made){{.name = "a.weight.nested_quant_map", .dtype = TT_F32, .rank = 1, .dims = {256}}, ones};
    parts[STATE] = (struct made){{.name = "a.weight.quant_state.bitsandbytes__nf4",
                                  .dtype = TT_U8,
                                  .rank = 1,
                                  .dims = {(int64_t)strlen(state_text)}},
                                 state_text};
}

static tt_status find_weight(const struct made *parts, size_t count, struct tt_quantized *out)
{
    struct tt_model_folder *folder = NULL;
    put_folder("one", "{\"model_type\": \"llama\"}", parts, count);
    ok(tt_model_folder_open(test_at("one"), true, &folder));
    tt_status status = tt_quantized_find(folder, "a.weight", out);
    if (status == TT_OK && out->layout.format.type != TT_QUANT_NONE)
        status = tt_quantized_check_values(folder, out);
    tt_model_folder_close(folder);
    return status;
}

static void refused(const struct made *parts, size_t count, tt_status expected, const char *part)
{
    struct tt_quantized tensor;
    tt_status status = find_weight(parts, count, &tensor);
    if (status != expected) fail_msg("status %d, not %d, for '%s'", status, expected, part);
    if (strstr(tt_error_last()->message, part) == NULL)
        fail_msg("'%s' not in '%s'", part, tt_error_last()->message);
}

static void a_good_weight_is_found(void **state)
{
    (void)state;
    struct made parts[PARTS];
    struct tt_quantized tensor;
    good_parts(parts);
    ok(find_weight(parts, PARTS, &tensor));
    assert_int_equal(tensor.layout.rows, ROWS);
    assert_int_equal(tensor.layout.cols, COLS);
    assert_int_equal(tensor.layout.blocks, 10);
    assert_int_equal(tensor.dtype, TT_BF16);
    assert_true(tensor.offset == 0.5f);
    static const tt_dtype storage[] = {TT_BF16, TT_F16, TT_F32, TT_I8, TT_F64};
    for (size_t i = 0; i < sizeof storage / sizeof *storage; i++) {
        parts[CODES].entry.dtype = storage[i];
        parts[CODES].entry.dims[0] = 300 / (int64_t)tt_dtype_bytes(storage[i]);
        if (storage[i] == TT_F64) { /* 300 bytes are not of doubles */
            refused(parts, PARTS, TT_ERR_DATA, "296 bytes");
            continue;
        }
        ok(find_weight(parts, PARTS, &tensor));
    }
    good_parts(parts);
    ok(find_weight(parts, 1, &tensor)); /* the codes alone are a plain tensor */
    assert_int_equal(tensor.layout.format.type, TT_QUANT_NONE);
}

static void missing_and_misshapen_parts(void **state)
{
    (void)state;
    static const char *const names[] = {
        "is missing: the folder has only", "'.weight.absmax'",
        "'.weight.nested_absmax'",         "'.weight.quant_map'",
        "'.weight.nested_quant_map'",      "'a.weight.absmax' exists, but no tensor that names the format"};
    struct made parts[PARTS], rest[PARTS];
    good_parts(parts);
    for (int missing = 0; missing < PARTS; missing++) {
        int count = 0;
        for (int p = 0; p < PARTS; p++)
            if (p != missing) rest[count++] = parts[p];
        refused(rest, (size_t)count, TT_ERR_DATA, names[missing]);
    }
    static const int64_t sizes[] = {299, 11, 2, 15, 255};
    static const char *const told[] = {"299 bytes", "11 bytes", "8 bytes", "60 bytes", "1020 bytes"};
    for (int p = 0; p < STATE; p++) {
        good_parts(parts);
        parts[p].entry.dims[0] = sizes[p];
        refused(parts, PARTS, TT_ERR_DATA, told[p]);
    }
    for (int p = ABSMAX; p < PARTS; p++) {
        good_parts(parts);
        parts[p].entry.dtype = TT_I32;
        parts[p].entry.dims[0] = parts[p].entry.dims[0] > 4 ? parts[p].entry.dims[0] / 4 : 1;
        refused(parts, PARTS, TT_ERR_DATA, "is I32, but must be");
    }
    good_parts(parts);
    float broken[256];
    for (int i = 0; i < 256; i++) broken[i] = i == 9 ? NAN : 1;
    parts[NESTED_MAP].data = broken;
    refused(parts, PARTS, TT_ERR_DATA, "[9] is not a number");
    good_parts(parts);
    parts[STATE].entry.dtype = TT_I8;
    refused(parts, PARTS, TT_ERR_DATA, "__nf4' is I8, but must be U8 with JSON in it");
}

/* Codes of a type that safetensors knows, and nothing here reads. */
static void codes_of_another_type(void **state)
{
    (void)state;
    struct made parts[PARTS];
    struct tt_quantized tensor;
    struct tt_model_folder *folder = NULL;
    struct tt_str file = {0};
    good_parts(parts);
    parts[CODES].entry.dtype = TT_F64;
    parts[CODES].entry.dims[0] = 38;
    put_folder("one", "{\"model_type\": \"llama\"}", parts, PARTS);
    ok(tt_file_read(test_at("one/model.safetensors"), 1 << 20, &file));
    char *type = memmem(file.data, file.bytes, "\"F64\"", 5);
    assert_non_null(type);
    memcpy(type, "\"C64\"", 5); /* of eight bytes too */
    ok(tt_file_write_atomic(test_at("one/model.safetensors"), file.data, file.bytes));
    tt_str_deinit(&file);
    ok(tt_model_folder_open(test_at("one"), true, &folder));
    assert_int_equal(tt_quantized_find(folder, "a.weight", &tensor), TT_ERR_UNSUPPORTED);
    assert_non_null(
        strstr(tt_error_last()->message, "'a.weight' has the type C64, whose bytes cannot be read"));
    tt_model_folder_close(folder);
}

static void states_that_do_not_fit(void **state)
{
    (void)state;
    static const struct {
        const char *from, *to, *told;
        tt_status status;
    } rows[] = {
        {"nf4", "fp4", "__nf4': 'quant_type' is 'fp4'", TT_ERR_DATA},
        {"nf4", "nf5", "'quant_type' is 'nf5', not nf4 or fp4", TT_ERR_UNSUPPORTED},
        {"\"nf4\"", "4", "quant_type", TT_ERR_DATA},
        {"64", "32", "must be", TT_ERR_DATA}, /* twice as many absmax: see below */
        {"64", "48", "powers of two from 32 to 4096", TT_ERR_DATA},
        {"64", "\"\"", "blocksize", TT_ERR_DATA},
        {"bfloat16", "complex7", "'dtype' is 'complex7', not float32, bfloat16 or float16", TT_ERR_DATA},
        {"[6, 100]", "[6, 101]", "bytes, but nf4 [6, 101]", TT_ERR_DATA},
        {"[6, 100]", "[600]", "'shape'", TT_ERR_DATA},
        {"[6, 100]", "[6, 9e9]", "'shape'", TT_ERR_DATA},
        {"[6, 100]", "[-6, -100]", "cannot be quantized", TT_ERR_DATA},
        {"[6, 100]", "[9223372036854775807, 9223372036854775807]", "cannot be quantized", TT_ERR_DATA},
        {"\"nested_blocksize\": 256, ", "", "only one of", TT_ERR_DATA},
        {"256", "100", "nested blocks of 100", TT_ERR_DATA},
        {"float32", "float16", "'nested_dtype' is 'float16'", TT_ERR_UNSUPPORTED},
        {"0.5", "1e300", "not a float32 number", TT_ERR_DATA},
        {"0.5", "null", "nested_offset", TT_ERR_DATA},
        {"0.5}", "0.5", "", TT_ERR_DATA},
        {"{", "[{", "", TT_ERR_DATA},
    };
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        struct made parts[PARTS];
        char text[sizeof state_text];
        good_parts(parts);
        const char *place = strstr(state_text, rows[r].from);
        snprintf(text, sizeof text, "%.*s%s%s", (int)(place - state_text), state_text, rows[r].to,
                 place + strlen(rows[r].from));
        parts[STATE].data = text;
        parts[STATE].entry.dims[0] = (int64_t)strlen(text);
        refused(parts, PARTS, rows[r].status, strcmp(rows[r].to, "32") == 0 ? "10 bytes" : rows[r].told);
    }
}

static void rows_of_int8(void **state)
{
    (void)state;
    struct tt_quantized tensor;
    uint8_t tiles[4] = {1}; /* read as F32 too */
    struct made parts[] = {
        {{.name = "a.weight", .dtype = TT_I8, .rank = 2, .dims = {ROWS, COLS}}, bytes_of_zeros},
        {{.name = "a.SCB", .dtype = TT_F32, .rank = 1, .dims = {ROWS}}, ones},
        {{.name = "a.weight_format", .dtype = TT_U8, .rank = 0}, bytes_of_zeros},
        {{.name = "a.weight.quant_state.bitsandbytes__fp4", .dtype = TT_U8, .rank = 1, .dims = {2}}, "{}"},
    };
    for (int i = 0; i < 512; i++) ones[i] = 1;
    ok(find_weight(parts, 2, &tensor)); /* old folders have no weight_format */
    ok(find_weight(parts, 3, &tensor));
    assert_int_equal(tensor.layout.format.type, TT_QUANT_INT8);
    refused(parts, 4, TT_ERR_DATA, "more than one kind");
    parts[2].data = tiles;
    refused(parts, 3, TT_ERR_UNSUPPORTED, "'a.weight' is in tiles (weight_format 1), not in rows");
    parts[2].entry.dtype = TT_F32;
    refused(parts, 3, TT_ERR_DATA, "'a.weight_format' is not one U8");
    parts[1].entry.dims[0] = ROWS - 1;
    refused(parts, 2, TT_ERR_DATA, "20 bytes");
    parts[1].entry.dims[0] = ROWS;
    parts[0].entry.dtype = TT_U8;
    refused(parts, 2, TT_ERR_DATA, "is U8, but must be I8");
    parts[0].entry.rank = 1;
    refused(parts, 2, TT_ERR_DATA, "is not a matrix");
}

static void configurations(void **state)
{
    (void)state;
    static const struct {
        const char *text, *told; /* told NULL: good */
        tt_status status;
        enum tt_quant_type type;
        bool nested;
    } rows[] = {
        {"{}", NULL, TT_OK, TT_QUANT_NONE, false},
        {"{\"quantization_config\": null}", NULL, TT_OK, TT_QUANT_NONE, false},
        {"{\"quantization_config\": {\"load_in_4bit\": true}}", NULL, TT_OK, TT_QUANT_FP4, false},
        {"{\"quantization_config\": {\"load_in_8bit\": true, \"quant_method\": \"bitsandbytes\"}}", NULL,
         TT_OK, TT_QUANT_INT8, false},
        {"{\"quantization_config\": {\"load_in_4bit\": true, \"bnb_4bit_quant_type\": \"nf4\", "
         "\"bnb_4bit_use_double_quant\": true, \"bnb_4bit_quant_storage\": \"bfloat16\"}}",
         NULL, TT_OK, TT_QUANT_NF4, true},
        {"{\"quantization_config\": {\"quant_method\": \"gptq\"}}", "'gptq'", TT_ERR_UNSUPPORTED, 0, false},
        {"{\"quantization_config\": {\"bits\": 4}}", "no quant_method", TT_ERR_UNSUPPORTED, 0, false},
        {"{\"quantization_config\": {\"load_in_4bit\": true, \"load_in_8bit\": true}}", "both", TT_ERR_DATA,
         0, false},
        {"{\"quantization_config\": {\"quant_method\": \"bitsandbytes\"}}", "neither", TT_ERR_DATA, 0, false},
        {"{\"quantization_config\": {\"load_in_4bit\": true, \"bnb_4bit_quant_type\": \"af4\"}}", "'af4'",
         TT_ERR_UNSUPPORTED, 0, false},
        {"{\"quantization_config\": {\"load_in_4bit\": 1}}", "load_in_4bit", TT_ERR_DATA, 0, false},
        {"{\"quantization_config\": 4}", "not an object", TT_ERR_DATA, 0, false},
        {"{\"quantization_config\": {\"load_in_4bit\": true, \"bnb_4bit_compute_dtype\": \"x\"}}",
         "config.json: 'bnb_4bit_compute_dtype' is 'x', which is not a type", TT_ERR_DATA, 0, false},
        {"{\"quantization_config\": {\"load_in_4bit\": true, \"llm_int8_skip_modules\": [1]}}",
         "not a list of names", TT_ERR_DATA, 0, false},
    };
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        struct tt_json json = {0};
        struct tt_quantized_config config;
        ok(tt_json_parse(rows[r].text, strlen(rows[r].text), "config.json", &json));
        assert_int_equal(tt_quantized_config_read(&json, &config), rows[r].status);
        if (rows[r].told == NULL) {
            assert_int_equal(config.type, rows[r].type);
            assert_int_equal(config.nested, rows[r].nested);
        } else if (strstr(tt_error_last()->message, rows[r].told) == NULL) {
            fail_msg("'%s' not in '%s'", rows[r].told, tt_error_last()->message);
        }
        tt_json_deinit(&json);
    }
}

/* ---- Writing ---- */

static struct tt_quant_layout layout;

static const struct tt_quant_layout *layout_of(void *context, const char *name)
{
    (void)context;
    return strcmp(name, "m.up_proj.weight") == 0 ? &layout : NULL;
}

static float weights[ROWS * COLS];

static void put_source(void)
{
    for (int i = 0; i < ROWS * COLS; i++) weights[i] = sinf((float)i) * 0.02f;
    const struct made made[] = {
        {{.name = "m.up_proj.weight", .dtype = TT_F32, .rank = 2, .dims = {ROWS, COLS}}, weights},
        {{.name = "m.norm.weight", .dtype = TT_F32, .rank = 1, .dims = {COLS}}, weights},
    };
    put_folder("source", "{\"model_type\": \"llama\"}", made, 2);
}

static void names_that_cannot_be_written(void **state)
{
    (void)state;
    struct tt_arena arena = {0};
    struct tt_quantized_output output;
    char name[1100];
    memset(name, 'm', sizeof name);
    strcpy(name + 1009, ".weight");
    ok(tt_quant_layout_make(tt_quant_format_make(TT_QUANT_INT8, false), ROWS, COLS, &layout));
    ok(tt_quantized_describe(name, &layout, TT_F16, TT_U8, &arena, &output));
    strcpy(name + 1010, ".weight");
    assert_int_equal(tt_quantized_describe(name, &layout, TT_F16, TT_U8, &arena, &output), TT_ERR_DATA);
    assert_non_null(strstr(tt_error_last()->message, "the name 'mmmm"));
    assert_non_null(strstr(tt_error_last()->message, "mmmm...' is too long"));
    assert_int_equal(tt_quantized_describe(".weight", &layout, TT_F16, TT_U8, &arena, &output), TT_ERR_DATA);
    assert_string_equal(tt_error_last()->message, "'.weight' is not the weight of a module");
    tt_arena_deinit(&arena);
}

static tt_status quantize(const struct tt_quantize_options *options, struct tt_quantize_report *report)
{
    struct tt_model_folder *folder = NULL;
    ok(tt_model_folder_open(test_at("source"), true, &folder));
    tt_status status = tt_quantized_folder_write(folder, options, report);
    tt_model_folder_close(folder);
    return status;
}

static void written_and_read(void **state)
{
    (void)state;
    put_source();
    for (int type = TT_QUANT_NF4; type <= TT_QUANT_FP8; type++)
        for (int nested = 0; nested < 2; nested++) {
            char output[256];
            struct tt_quantize_report report;
            struct tt_model_folder *folder = NULL;
            struct tt_quantized tensor;
            struct tt_quant_format format = tt_quant_format_make((enum tt_quant_type)type, nested != 0);
            ok(tt_quant_layout_make(format, ROWS, COLS, &layout));
            snprintf(output, sizeof output, "%s", test_at("out"));
            struct tt_quantize_options options = {.output_dir = output,
                                                  .overwrite = true,
                                                  .layout_of = layout_of,
                                                  .threads = 1 + nested * 2,
                                                  .config = {.type = format.type,
                                                             .nested = format.nested,
                                                             .compute_dtype = TT_BF16,
                                                             .storage_dtype = TT_U8}};
            ok(quantize(&options, &report));
            assert_int_equal(report.total.count, ROWS * COLS);
            assert_int_equal(report.bytes_before, (ROWS * COLS + COLS) * 4);
            assert_string_equal(report.kinds[0].name, "up_proj");
            double relative = sqrt(report.total.errors / report.total.squares);
            assert_true(relative > 1e-3 && relative < 0.2);
            ok(tt_model_folder_open(output, true, &folder));
            struct tt_quantized_config config;
            ok(tt_quantized_config_read(tt_model_folder_config(folder), &config));
            assert_int_equal(config.type, type);
            ok(tt_quantized_find(folder, "m.up_proj.weight", &tensor));
            assert_int_equal(tensor.layout.bytes, layout.bytes);
            assert_int_equal(tensor.layout.rows, ROWS);
            assert_int_equal(tensor.dtype, type == TT_QUANT_INT8  ? TT_F16
                                           : type == TT_QUANT_FP8 ? TT_BF16
                                                                  : TT_F32);
            uint8_t *segment = tt_alloc_aligned(layout.bytes);
            ok(tt_quantized_read(folder, &tensor, 0, layout.bytes, segment));
            float back[ROWS * COLS];
            double errors = 0;
            tt_quant_decode(&layout, segment, 0, ROWS * COLS, back, TT_F32);
            for (int i = 0; i < ROWS * COLS; i++) errors += pow((double)back[i] - (double)weights[i], 2);
            assert_true(fabs(errors - report.total.errors) < 1e-9);
            tt_free(segment);
            tt_model_folder_close(folder);
        }
}

static void refuse_writing(const struct tt_quantize_options *options, tt_status expected, const char *part)
{
    struct tt_quantize_report report;
    uint64_t live = tt_alloc_live();
    assert_int_equal(quantize(options, &report), expected);
    if (strstr(tt_error_last()->message, part) == NULL)
        fail_msg("'%s' not in '%s'", part, tt_error_last()->message);
    assert_int_equal(tt_alloc_live(), live);
    assert_false(tt_path_exists(test_at("out.quantizing")));
}

static void what_is_not_written(void **state)
{
    (void)state;
    char output[256];
    struct tt_cancel cancel = {0};
    put_source();
    ok(tt_quant_layout_make(tt_quant_format_make(TT_QUANT_NF4, true), ROWS, COLS, &layout));
    snprintf(output, sizeof output, "%s", test_at("out"));
    struct tt_quantize_options good = {.output_dir = output,
                                       .layout_of = layout_of,
                                       .config = {.type = TT_QUANT_NF4, .storage_dtype = TT_U8}};
    struct tt_quantize_options options = good;
    ok(tt_dir_create(output));
    ok(tt_file_write_atomic(test_at("out/mine"), "x", 1));
    refuse_writing(&options, TT_ERR_USAGE, "is not empty");
    options.output_dir = test_root();
    refuse_writing(&options, TT_ERR_USAGE, "is not empty");
    options.output_dir = test_at("source");
    refuse_writing(&options, TT_ERR_USAGE, "is the input folder");
    options = good;
    options.overwrite = true;
    options.cancel = &cancel;
    atomic_store(&cancel.requests, 1);
    refuse_writing(&options, TT_ERR_CANCELLED, "stopped");
    options.cancel = NULL;
    options.config.storage_dtype = TT_F64;
    refuse_writing(&options, TT_ERR_DATA, "do not divide into float64");
    options.config.storage_dtype = TT_U8;
    layout.rows--;
    refuse_writing(&options, TT_ERR_DATA, "is not a matrix of 5 x 100");
    assert_true(tt_path_exists(test_at("out/mine"))); /* nothing was replaced */
}

/* Rows that are no multiple of anything, and several pieces of work: the file is the same on any number of
 * threads. */
static void threads_make_the_same_file(void **state)
{
    (void)state;
    enum { MANY = 9001 };
    static uint16_t wide[MANY * COLS];
    struct tt_str files[2] = {{0}, {0}};
    for (int i = 0; i < MANY * COLS; i++)
        wide[i] = tt_f32_to_bf16(sinf((float)i * 1.7f) * (1.0f + (float)(i % 911)));
    const struct made made[] = {
        {{.name = "m.up_proj.weight", .dtype = TT_BF16, .rank = 2, .dims = {MANY, COLS}}, wide}};
    put_folder("source", "{}", made, 1);
    ok(tt_quant_layout_make(tt_quant_format_make(TT_QUANT_NF4, true), MANY, COLS, &layout));
    for (int run = 0; run < 2; run++) {
        char output[256];
        struct tt_quantize_report report;
        snprintf(output, sizeof output, "%s", test_at(run == 0 ? "one" : "three"));
        struct tt_quantize_options options = {.output_dir = output,
                                              .layout_of = layout_of,
                                              .threads = 1 + 2 * run,
                                              .config = {.type = TT_QUANT_NF4, .storage_dtype = TT_BF16}};
        ok(quantize(&options, &report));
        ok(tt_file_read(test_at(run == 0 ? "one/model.safetensors" : "three/model.safetensors"), 1 << 24,
                        &files[run]));
    }
    assert_int_equal(files[0].bytes, files[1].bytes);
    assert_memory_equal(files[0].data, files[1].data, files[0].bytes);
    tt_str_deinit(&files[0]);
    tt_str_deinit(&files[1]);
}

/* Each allocation fails in turn: one error, nothing kept, nothing left in the way. */
static void allocations_that_fail(void **state)
{
    (void)state;
    char output[256];
    struct tt_model_folder *folder = NULL;
    put_source();
    ok(tt_quant_layout_make(tt_quant_format_make(TT_QUANT_NF4, true), ROWS, COLS, &layout));
    snprintf(output, sizeof output, "%s", test_at("out"));
    ok(tt_model_folder_open(test_at("source"), true, &folder));
    struct tt_quantize_options options = {.output_dir = output,
                                          .layout_of = layout_of,
                                          .threads = 2,
                                          .config = {.type = TT_QUANT_NF4, .storage_dtype = TT_U8}};
    tt_status status = TT_ERR_MEMORY;
    uint64_t nth = 0;
    while (status != TT_OK) {
        struct tt_quantize_report report;
        uint64_t live = tt_alloc_live();
        tt_alloc_fail_at(++nth);
        status = tt_quantized_folder_write(folder, &options, &report);
        tt_alloc_fail_at(0);
        assert_int_equal(tt_alloc_live(), live);
        if (status == TT_OK) break;
        if (status != TT_ERR_MEMORY) fail_msg("allocation %d: %s", (int)nth, tt_error_last()->message);
        if (tt_path_exists(output)) { /* it had its name already, and so is complete */
            struct tt_model_folder *made = NULL;
            ok(tt_model_folder_open(output, true, &made));
            tt_model_folder_close(made);
            ok(tt_dir_remove(output));
        }
    }
    if (!(nth > 30)) fail_msg("only %d allocations fail", (int)nth);
    tt_model_folder_close(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_good_weight_is_found, test_root_create, test_root_remove),
        cmocka_unit_test_setup_teardown(missing_and_misshapen_parts, test_root_create, test_root_remove),
        cmocka_unit_test_setup_teardown(codes_of_another_type, test_root_create, test_root_remove),
        cmocka_unit_test_setup_teardown(states_that_do_not_fit, test_root_create, test_root_remove),
        cmocka_unit_test_setup_teardown(rows_of_int8, test_root_create, test_root_remove),
        cmocka_unit_test(configurations),
        cmocka_unit_test_setup_teardown(names_that_cannot_be_written, test_root_create, test_root_remove),
        cmocka_unit_test_setup_teardown(written_and_read, test_root_create, test_root_remove),
        cmocka_unit_test_setup_teardown(what_is_not_written, test_root_create, test_root_remove),
        cmocka_unit_test_setup_teardown(threads_make_the_same_file, test_root_create, test_root_remove),
        cmocka_unit_test_setup_teardown(allocations_that_fail, test_root_create, test_root_remove),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
