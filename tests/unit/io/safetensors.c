/* io/safetensors.h: what is refused and why, conversion on reading, and the reference library's layout. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/thread.h"
#include "io/safetensors.h"
#include "io/safetensors_types.h"
#include "support/allocations.h"
#include "support/temporary.h"

static char path[256];

static int setup(void **state)
{
    (void)state;
    test_temporary_of(path, sizeof path, "tt-safetensors", (long)getpid(), "");
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    unlink(path);
    return 0;
}

/* A file of a header and `data_bytes` bytes 0, 1, 2, ... `claimed` is the header size it states. */
static void write_file(const char *header, uint64_t claimed, size_t data_bytes)
{
    struct tt_str file = {0};
    for (int i = 0; i < 8; i++)
        assert_int_equal(tt_str_append_char(&file, (char)(claimed >> (8 * i))), TT_OK);
    assert_int_equal(tt_str_append_text(&file, header), TT_OK);
    for (size_t i = 0; i < data_bytes; i++) assert_int_equal(tt_str_append_char(&file, (char)i), TT_OK);
    assert_int_equal(tt_file_write_atomic(path, file.data, file.bytes), TT_OK);
    tt_str_deinit(&file);
}

static void assert_message(const char *part)
{
    const struct tt_error *error = tt_error_last();
    if (strstr(error->message, part) == NULL) fail_msg("'%s' not in '%s'", part, error->message);
}

static void refusals(void **state)
{
    (void)state;
    static const struct {
        const char *header;
        size_t data_bytes;
        tt_status status;
        const char *part;
    } cases[] = {
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}", 3, TT_ERR_DATA,
         "of which the file has 3"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}", 5, TT_ERR_DATA,
         "': 1 bytes follow the last tensor"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[1,5]}}", 5, TT_ERR_DATA,
         "tensor 'a' leaves a hole after the header: it begins at byte 1 of the data, not at 0"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
         "\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[2,6]}}",
         6, TT_ERR_DATA, "'b' overlaps with a"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
         "\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[6,10]}}",
         10, TT_ERR_DATA, "'b' leaves a hole after a"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
         "\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[4,8]}}",
         8, TT_ERR_DATA, "duplicate key"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,4]}}", 4, TT_ERR_DATA,
         "tensor 'a' has 4 bytes, but its type and shape need 16"},
        {"{\"a\":{\"dtype\":\"F33\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, TT_ERR_DATA,
         "tensor 'a' has the unknown type 'F33'"},
        {"{\"a\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 4, TT_ERR_DATA, "tensor 'a' has no 'dtype'"},
        {"{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4, TT_ERR_DATA,
         "tensor 'a' has no list 'shape'"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, TT_ERR_DATA,
         "tensor 'a' has no list 'data_offsets'"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}}", 4, TT_ERR_DATA,
         "integers of 0 and more"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1.0],\"data_offsets\":[0,4]}}", 4, TT_ERR_DATA,
         "integers of 0"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,0]}}", 4, TT_ERR_DATA,
         "before it begins"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]}}", 4, TT_ERR_DATA, "two numbers"},
        {"{\"a\":{\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,1]}}", 1, TT_ERR_DATA,
         "does not end at a byte"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296,4294967296],\"data_offsets\":[0,0]}}", 0,
         TT_ERR_DATA, "tensor 'a' has a shape of more elements than a file can hold"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904,4],\"data_offsets\":[0,0]}}", 0,
         TT_ERR_DATA, "more elements"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[0,4611686018427387904,4611686018427387904],\"data_offsets\":[0,"
         "0]}}",
         0, TT_ERR_DATA, "more elements"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,1]}}", 1,
         TT_ERR_UNSUPPORTED, "9 dimensions"},
        {"{\"a\":3}", 0, TT_ERR_DATA, "no 'dtype'"},
        {"{\"__metadata__\":{\"n\":1}}", 0, TT_ERR_DATA, "': __metadata__ 'n' must be a string"},
        {"{\"__metadata__\":[]}", 0, TT_ERR_DATA, "': __metadata__ must be an object of strings"},
        {"[]", 0, TT_ERR_DATA, "does not start with '{'"},
        {"{} x", 0, TT_ERR_DATA, "not valid JSON"},
        {"", 0, TT_ERR_DATA, "does not start with '{'"},
    };
    uint64_t live = tt_alloc_live();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct tt_safetensors *file = NULL;
        write_file(cases[i].header, strlen(cases[i].header), cases[i].data_bytes);
        if (tt_safetensors_open(path, &file) != cases[i].status)
            fail_msg("case %zu: %s", i, tt_error_last()->message);
        assert_message(cases[i].part);
        assert_null(file);
        assert_int_equal(tt_alloc_live(), live);
    }
    struct tt_safetensors *file = NULL;
    assert_int_equal(tt_safetensors_open("/nowhere/x.safetensors", &file), TT_ERR_DATA);
    write_file("{}", 3, 0);
    assert_int_equal(tt_safetensors_open(path, &file), TT_ERR_DATA);
    assert_string_equal(tt_error_last()->hint, "the file is incomplete: download or write it again");
    assert_message("is not a safetensors file: it claims a header of 3 bytes; the file has 10");
    write_file("{}", UINT64_MAX, 0);
    assert_int_equal(tt_safetensors_open(path, &file), TT_ERR_DATA);
    assert_message("it claims a header of 18446744073709551615 bytes; the file has 10");
    assert_int_equal(tt_file_write_atomic(path, "short", 5), TT_OK);
    assert_int_equal(tt_safetensors_open(path, &file), TT_ERR_DATA);
    assert_message("is not a safetensors file: it has only 5 bytes");
    static const char pointer[] = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n";
    assert_int_equal(tt_file_write_atomic(path, pointer, sizeof pointer - 1), TT_OK);
    assert_int_equal(tt_safetensors_open(path, &file), TT_ERR_DATA);
    assert_non_null(strstr(tt_error_last()->hint, "git lfs pull"));
}

/* Every type of the format: eight elements have as many bytes as one has bits. */
static void types(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        size_t bits;
    } rows[] = {{"BOOL", 8},        {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"U8", 8},
                {"I8", 8},          {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8},
                {"F8_E5M2FNUZ", 8}, {"I16", 16},    {"U16", 16},    {"F16", 16},    {"BF16", 16},
                {"I32", 32},        {"U32", 32},    {"F32", 32},    {"C64", 64},    {"F64", 64},
                {"I64", 64},        {"U64", 64}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char header[200];
        struct tt_safetensors *file = NULL;
        for (size_t more = 0; more < 2; more++) {
            size_t bytes = rows[i].bits + more;
            snprintf(header, sizeof header,
                     "{\"a\":{\"dtype\":\"%s\",\"shape\":[8],\"data_offsets\":[0,%zu]}}", rows[i].name,
                     bytes);
            write_file(header, strlen(header), bytes);
            assert_int_equal(tt_safetensors_open(path, &file), more == 0 ? TT_OK : TT_ERR_DATA);
        }
        assert_string_equal(tt_safetensors_entry(file, 0)->dtype_name, rows[i].name);
        assert_int_equal(tt_safetensors_entry(file, 0)->bytes, rows[i].bits);
        assert_int_equal(tt_safetensors_type_find(rows[i].name)->order, i); /* the library's order */
        tt_safetensors_close(file);
    }
}

static void accepted(void **state)
{
    (void)state;
    static const char header[] =
        "{\"__metadata__\":{\"format\":\"pt\",\"k\":\"v\"},"
        "\"late\":{\"dtype\":\"U8\",\"shape\":[2,1],\"data_offsets\":[12,14],\"extra\":1},"
        "\"c\":{\"dtype\":\"C64\",\"shape\":[1],\"data_offsets\":[0,8]},"
        "\"none\":{\"dtype\":\"BF16\",\"shape\":[0,7],\"data_offsets\":[8,8]},"
        "\"scalar\":{\"dtype\":\"I32\",\"shape\":[],\"data_offsets\":[8,12]}}   ";
    write_file(header, sizeof header - 1, 14);
    struct tt_safetensors *file = NULL;
    assert_int_equal(tt_safetensors_open(path, &file), TT_OK);
    assert_int_equal(tt_safetensors_count(file), 4);
    assert_string_equal(tt_safetensors_entry(file, 0)->name, "c");
    assert_string_equal(tt_safetensors_entry(file, 1)->name, "none");
    assert_string_equal(tt_safetensors_entry(file, 3)->name, "late");
    assert_null(tt_safetensors_entry(file, 4));
    assert_string_equal(tt_safetensors_metadata(file, "k"), "v");
    assert_null(tt_safetensors_metadata(file, "x"));
    assert_null(tt_safetensors_find(file, "lat"));
    const struct tt_safetensors_entry *late = tt_safetensors_find(file, "late");
    uint8_t bytes[2] = {0};
    assert_int_equal(tt_safetensors_read(file, late, 0, 2, bytes, TT_U8), TT_OK);
    assert_int_equal(bytes[0], 12);
    assert_int_equal(bytes[1], 13);
    int32_t scalar = 0;
    assert_int_equal(tt_safetensors_read(file, tt_safetensors_find(file, "scalar"), 0, 1, &scalar, TT_I32),
                     TT_OK);
    assert_int_equal(scalar, 0x0b0a0908);
    assert_int_equal(tt_safetensors_read(file, tt_safetensors_find(file, "none"), 0, 0, NULL, TT_F32), TT_OK);
    const struct tt_safetensors_entry *complex = tt_safetensors_find(file, "c");
    assert_int_equal(complex->dtype, TT_DTYPE_NONE);
    assert_string_equal(complex->dtype_name, "C64");
    assert_int_equal(tt_safetensors_read(file, complex, 0, 1, bytes, TT_F32), TT_ERR_UNSUPPORTED);
    assert_message("tensor 'c' of type C64 cannot be read as F32");
    assert_int_equal(tt_safetensors_read(file, late, 0, 2, bytes, TT_F32), TT_ERR_UNSUPPORTED);
    assert_int_equal(tt_safetensors_read(file, late, 1, 2, bytes, TT_U8), TT_ERR_INTERNAL);
    assert_int_equal(tt_safetensors_read(file, late, -1, 1, bytes, TT_U8), TT_ERR_INTERNAL);
    assert_int_equal(tt_safetensors_read(file, late, INT64_MAX, INT64_MAX, bytes, TT_U8), TT_ERR_INTERNAL);
    /* The file shrinks after it was opened. */
    assert_int_equal(truncate(path, (off_t)tt_safetensors_file_bytes(file) - 1), 0);
    assert_int_equal(tt_safetensors_read(file, late, 0, 2, bytes, TT_U8), TT_ERR_DATA);
    assert_string_equal(tt_error_last()->context[0], "reading tensor 'late'");
    tt_safetensors_close(file);
    tt_safetensors_close(NULL);
}

/* Writes `count` floats 0, 1, 2 ... in steps of 1/4 as one tensor of `dtype` through tt_safetensors_layout.
 */
static void write_tensor(tt_dtype dtype, int64_t count)
{
    struct tt_safetensors_entry entry = {.name = "x", .dtype = dtype, .rank = 1, .dims = {count}};
    struct tt_str header = {0};
    uint64_t bytes;
    int descriptor = -1;
    assert_int_equal(tt_safetensors_layout(&entry, 1, &header, &bytes), TT_OK);
    assert_int_equal(entry.bytes, (uint64_t)count * tt_dtype_bytes(dtype));
    float *values = tt_calloc((size_t)count, sizeof *values);
    char *data = tt_calloc((size_t)count, tt_dtype_bytes(dtype));
    for (int64_t i = 0; i < count; i++) values[i] = (float)(i % 200) * 0.25f;
    assert_true(tt_dtype_convert(data, dtype, values, TT_F32, (size_t)count));
    assert_int_equal(tt_file_create(path, bytes, &descriptor), TT_OK);
    assert_int_equal(tt_file_pwrite(descriptor, path, data, entry.bytes, entry.offset), TT_OK);
    assert_int_equal(tt_file_pwrite(descriptor, path, header.data, header.bytes, 0), TT_OK);
    assert_int_equal(tt_file_sync_close(descriptor, path), TT_OK);
    tt_free(values);
    tt_free(data);
    tt_str_deinit(&header);
}

/* Any range in any type, through more than one buffer. */
static void conversion(void **state)
{
    (void)state;
    static const tt_dtype kinds[] = {TT_F32, TT_BF16, TT_F16, TT_F64};
    enum { COUNT = 700001 };
    double *values = tt_calloc(COUNT, sizeof *values);
    char *raw = tt_calloc(COUNT, sizeof(double));
    for (int x = 0; x < 4; x++) {
        write_tensor(kinds[x], COUNT);
        struct tt_safetensors *file = NULL;
        assert_int_equal(tt_safetensors_open(path, &file), TT_OK);
        const struct tt_safetensors_entry *entry = tt_safetensors_find(file, "x");
        for (int y = 0; y < 4; y++) {
            int64_t first = 12345 * y, count = COUNT - first - y;
            assert_int_equal(tt_safetensors_read(file, entry, first, count, raw, kinds[y]), TT_OK);
            assert_true(tt_dtype_convert(values, TT_F64, raw, kinds[y], (size_t)count));
            for (int64_t i = 0; i < count; i++) {
                if (values[i] != (double)((first + i) % 200) * 0.25)
                    fail_msg("%d -> %d at %ld", x, y, (long)i);
            }
        }
        tt_safetensors_close(file);
    }
    tt_free(values);
    tt_free(raw);
}

/* The reference library wrote the golden files: their headers must come out of our layout byte for byte. */
static void assert_same_header(const char *name)
{
    char golden[512];
    snprintf(golden, sizeof golden, "%s/golden/%s", TT_TEST_ROOT, name);
    if (!tt_path_exists(golden)) skip();
    struct tt_safetensors *file = NULL;
    assert_int_equal(tt_safetensors_open(golden, &file), TT_OK);
    size_t count = tt_safetensors_count(file);
    struct tt_safetensors_entry *entries = tt_calloc(count, sizeof *entries);
    /* Backwards, so that the order is the layout's doing. */
    for (size_t i = 0; i < count; i++) {
        const struct tt_safetensors_entry *entry = tt_safetensors_entry(file, count - 1 - i);
        entries[i].name = entry->name;
        entries[i].dtype = entry->dtype;
        entries[i].rank = entry->rank;
        memcpy(entries[i].dims, entry->dims, sizeof entry->dims);
    }
    struct tt_str header = {0}, content = {0};
    uint64_t bytes;
    assert_int_equal(tt_safetensors_layout(entries, count, &header, &bytes), TT_OK);
    assert_int_equal(bytes, tt_safetensors_file_bytes(file));
    assert_int_equal(tt_file_read(golden, 64 << 20, &content), TT_OK);
    assert_true(header.bytes <= content.bytes);
    assert_memory_equal(header.data, content.data, header.bytes);
    for (size_t i = 0; i < count; i++) {
        assert_string_equal(entries[i].name, tt_safetensors_entry(file, i)->name);
        assert_int_equal(entries[i].offset, tt_safetensors_entry(file, i)->offset);
    }
    tt_str_deinit(&header);
    tt_str_deinit(&content);
    tt_free(entries);
    tt_safetensors_close(file);
}

static void layout_as_reference(void **state)
{
    (void)state;
    assert_same_header("llama3/adapter_random/adapter_model.safetensors");
    assert_same_header("qwen2/model/model.safetensors");
    assert_same_header("mistral/model/model.safetensors");
}

static void layout_order_and_names(void **state)
{
    (void)state;
    struct tt_safetensors_entry entries[] = {
        {.name = "b\"\\\n", .dtype = TT_U8, .rank = 1, .dims = {3}},
        {.name = "z", .dtype = TT_F16, .rank = 0},
        {.name = "a", .dtype = TT_BF16, .rank = 2, .dims = {2, 2}},
        {.name = "y", .dtype = TT_F32, .rank = 1, .dims = {0}},
        {.name = "x", .dtype = TT_F32, .rank = 1, .dims = {2}},
        {.name = "i", .dtype = TT_I64, .rank = 1, .dims = {1}},
    };
    struct tt_str header = {0};
    uint64_t bytes;
    assert_int_equal(tt_safetensors_layout(entries, 6, &header, &bytes), TT_OK);
    static const char *const order[] = {"i", "x", "y", "a", "z", "b\"\\\n"};
    for (int i = 0; i < 6; i++) assert_string_equal(entries[i].name, order[i]);
    assert_int_equal(header.bytes % 8, 0);
    assert_int_equal(bytes, header.bytes + 8 + 8 + 0 + 8 + 2 + 3);
    struct tt_str content = {0};
    assert_int_equal(tt_str_append(&content, header.data, header.bytes), TT_OK);
    for (int i = 0; i < 29; i++) assert_int_equal(tt_str_append_char(&content, 0), TT_OK);
    assert_int_equal(tt_file_write_atomic(path, content.data, content.bytes), TT_OK);
    struct tt_safetensors *file = NULL;
    assert_int_equal(tt_safetensors_open(path, &file), TT_OK);
    assert_non_null(tt_safetensors_find(file, "b\"\\\n"));
    assert_string_equal(tt_safetensors_metadata(file, "format"), "pt");
    tt_safetensors_close(file);
    tt_str_deinit(&content);
    tt_str_clear(&header);
    entries[5].name = "a";
    assert_int_equal(tt_safetensors_layout(entries, 6, &header, &bytes), TT_ERR_DATA);
    assert_message("'a'");
    assert_int_equal(header.bytes, 0);
    assert_int_equal(tt_safetensors_layout(NULL, 0, &header, &bytes), TT_OK);
    assert_int_equal(bytes, header.bytes);
    tt_str_deinit(&header);
}

static tt_status read_often(void *argument)
{
    const struct tt_safetensors *file = argument;
    const struct tt_safetensors_entry *entry = tt_safetensors_find(file, "x");
    float values[1000];
    for (int64_t i = 0; i < 300; i++) {
        TT_TRY(tt_safetensors_read(file, entry, i * 7, 1000, values, TT_F32));
        for (int j = 0; j < 1000; j++) {
            if (values[j] != (float)((i * 7 + j) % 200) * 0.25f)
                return tt_fail(TT_ERR_INTERNAL, "wrong value");
        }
    }
    return TT_OK;
}

static void many_threads_read(void **state)
{
    (void)state;
    write_tensor(TT_BF16, 4000);
    struct tt_safetensors *file = NULL;
    struct tt_thread *threads[4];
    assert_int_equal(tt_safetensors_open(path, &file), TT_OK);
    for (int i = 0; i < 4; i++)
        assert_int_equal(tt_thread_start("read", read_often, file, &threads[i]), TT_OK);
    for (int i = 0; i < 4; i++) assert_int_equal(tt_thread_join(threads[i]), TT_OK);
    tt_safetensors_close(file);
}

static tt_status read_tensor(void *context)
{
    struct tt_safetensors *file = NULL;
    float values[100];
    (void)context;
    tt_status status = tt_safetensors_open(path, &file);
    if (status == TT_OK)
        status = tt_safetensors_read(file, tt_safetensors_entry(file, 0), 0, 100, values, TT_F32);
    tt_safetensors_close(file);
    return status;
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    write_tensor(TT_BF16, 100);
    test_allocations_fail(read_tensor, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refusals),
        cmocka_unit_test(accepted),
        cmocka_unit_test(types),
        cmocka_unit_test(conversion),
        cmocka_unit_test(layout_as_reference),
        cmocka_unit_test(layout_order_and_names),
        cmocka_unit_test(many_threads_read),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
