/* io/pth.h: the tensors of files that torch wrote (tests/golden/pth), what is refused and why, nothing executed, and
 * files written here. */
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
#include "base/json.h"
#include "io/pth.h"
#include "support/allocations.h"
#include "support/root.h"

#define GOLDEN TT_TEST_ROOT "/golden/pth/"

static int fresh(void **state)
{
    return test_root_create(state);
}

/* ---- Against torch ---- */

static void check_values(const struct tt_safetensors *file, const struct tt_safetensors_entry *entry,
                         const struct tt_json_value *values)
{
    double got[256], part[256];
    int64_t count = (int64_t)tt_json_count(values);
    assert_true(count <= 256);
    if (tt_dtype_is_float(entry->dtype)) {
        assert_int_equal(tt_safetensors_read(file, entry, 0, count, got, TT_F64), TT_OK);
        for (int64_t i = 0; i < count; i++) {
            assert_true(got[i] == tt_json_number(tt_json_at(values, (size_t)i)));
            assert_int_equal(tt_safetensors_read(file, entry, i, count - i, part, TT_F64), TT_OK);
            assert_memory_equal(part, got + i, (size_t)(count - i) * sizeof *got);
        }
        return;
    }
    size_t width = tt_dtype_bytes(entry->dtype);
    uint8_t raw[512];
    assert_int_equal(tt_safetensors_read(file, entry, 0, count, raw, entry->dtype), TT_OK);
    for (int64_t i = 0; i < count; i++) {
        int64_t wanted = (int64_t)tt_json_number(tt_json_at(values, (size_t)i));
        assert_memory_equal(raw + (size_t)i * width, &wanted, width); /* little-endian */
    }
}

static void check_file(const char *path, const char *key)
{
    static const char *const types[][2] = {
        {"F32", "float32"}, {"BF16", "bfloat16"}, {"F16", "float16"}, {"F64", "float64"}, {"I64", "int64"},
        {"I32", "int32"},   {"I16", "int16"},     {"I8", "int8"},     {"U8", "uint8"},    {"BOOL", "bool"}};
    struct tt_json json = {0};
    struct tt_safetensors *file = NULL;
    assert_int_equal(tt_json_read(GOLDEN "values.json", 1 << 20, &json), TT_OK);
    const struct tt_json_value *tensors = tt_json_get(json.root, key), *tensor;
    if (tt_pth_open(path, &file) != TT_OK) fail_msg("%s", tt_error_last()->message);
    assert_int_equal(tt_safetensors_count(file), tt_json_count(tensors));
    const char *name;
    for (size_t member = 0; tt_json_next_member(tensors, &member, &name, &tensor);) {
        const struct tt_safetensors_entry *entry = tt_safetensors_find(file, name);
        assert_non_null(entry);
        const char *type = tt_json_text(tt_json_get(tensor, "dtype"));
        for (size_t t = 0; t < sizeof types / sizeof types[0]; t++)
            if (strcmp(types[t][1], type) == 0) assert_string_equal(entry->dtype_name, types[t][0]);
        const struct tt_json_value *shape = tt_json_get(tensor, "shape");
        assert_int_equal(entry->rank, tt_json_count(shape));
        for (int i = 0; i < entry->rank; i++)
            assert_int_equal(entry->dims[i], tt_json_integer(tt_json_at(shape, (size_t)i)));
        check_values(file, entry, tt_json_get(tensor, "values"));
    }
    tt_safetensors_close(file);
    tt_json_deinit(&json);
}

static void as_torch_reads(void **state)
{
    (void)state;
    check_file(GOLDEN "archive.pth", "archive");
    check_file(GOLDEN "stream.pth", "archive");
    check_file(GOLDEN "protocol4.pth", "archive");
    check_file(GOLDEN "checkpoint.pth", "checkpoint");
}

static void nothing_is_executed(void **state)
{
    (void)state;
    assert_int_equal(chdir(test_root()), 0);
    check_file(GOLDEN "attack.pth", "attack");
    check_file(GOLDEN "attack_stream.pth", "attack");
    assert_false(tt_path_exists(test_at("executed")));
}

static void other_types(void **state)
{
    (void)state;
    struct tt_safetensors *file = NULL;
    assert_int_equal(tt_pth_open(GOLDEN "float8.pth", &file), TT_OK);
    uint8_t raw[4];
    const struct tt_safetensors_entry *entry = tt_safetensors_find(file, "e4m3");
    assert_string_equal(entry->dtype_name, "F8_E4M3");
    assert_int_equal(tt_safetensors_read(file, entry, 0, 2, raw, TT_F8_E4M3), TT_OK);
    assert_memory_equal(raw, "\x38\xfe", 2); /* 1, -448 */
    entry = tt_safetensors_find(file, "u16");
    assert_int_equal(tt_safetensors_read(file, entry, 0, 2, raw, TT_U16), TT_OK);
    assert_memory_equal(raw, "\1\0\xff\xff", 4);
    tt_safetensors_close(file);
}

/* ---- What is refused ---- */

static void assert_refused(const char *path, tt_status status, const char *part)
{
    struct tt_safetensors *file = NULL;
    uint64_t live = tt_alloc_live();
    tt_status got = tt_pth_open(path, &file);
    const struct tt_error *error = tt_error_last();
    if (got != status)
        fail_msg("%s: status %d: '%s'", part, (int)got, got != TT_OK ? error->message : "opened");
    assert_null(file);
    if (strstr(error->message, part) == NULL) fail_msg("'%s' not in '%s'", part, error->message);
    assert_int_equal(tt_alloc_live(), live);
}

/* Not tt_file_write_atomic, which waits for the disk. */
static void put_bytes(const char *name, const void *data, size_t bytes)
{
    FILE *file = fopen(test_at(name), "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
}

static void assert_refused_bytes(const void *data, size_t bytes, tt_status status, const char *part)
{
    put_bytes("x.pth", data, bytes);
    assert_refused(test_at("x.pth"), status, part);
}

static void wrong_files(void **state)
{
    (void)state;
    char tar[1024] = "archive/";
    memcpy(tar + 257, "ustar", 5);
    assert_refused_bytes(tar, sizeof tar, TT_ERR_UNSUPPORTED, "is a tar archive");
    assert_non_null(strstr(tt_error_last()->hint, "torch 1.6"));
    assert_refused_bytes("", 0, TT_ERR_DATA, "not a file of torch.save");
    assert_refused_bytes("version https://git-lfs", 23, TT_ERR_DATA, "not a file of torch.save");
    assert_non_null(strstr(tt_error_last()->hint, "git lfs pull"));
    assert_refused_bytes("\x80\x02K\1.", 5, TT_ERR_DATA, "is a pickle, but not a file of torch.save");
    assert_refused(GOLDEN "whole.pth", TT_ERR_UNSUPPORTED, "class 'torch.nn.modules.linear.Linear'");
    assert_refused(GOLDEN "tensor.pth", TT_ERR_DATA, "holds no tensors by name");
    assert_refused(test_at("absent.pth"), TT_ERR_DATA, "No such file");
}

/* Every cut of a file is refused. */
static void cut_anywhere(void **state)
{
    (void)state;
    static const char *const names[] = {GOLDEN "archive.pth", GOLDEN "stream.pth"};
    for (size_t n = 0; n < 2; n++) {
        struct tt_str data = {0};
        assert_int_equal(tt_file_read(names[n], 1 << 20, &data), TT_OK);
        for (size_t bytes = 0; bytes < data.bytes; bytes += bytes < 600 ? 1 : 37) {
            put_bytes("cut.pth", data.data, bytes);
            assert_refused(test_at("cut.pth"), TT_ERR_DATA, "");
        }
        tt_str_deinit(&data);
    }
}

static size_t find(const struct tt_str *data, const char *mark, size_t mark_bytes, size_t from)
{
    for (size_t at = from; at + mark_bytes <= data->bytes; at++)
        if (memcmp(data->data + at, mark, mark_bytes) == 0) return at;
    fail_msg("the file lacks '%s'", mark);
    return 0;
}

/* The entry in the central directory of a member. */
static size_t entry_of(const struct tt_str *data, const char *name)
{
    size_t directory = find(data, "PK\1\2", 4, 0);
    return find(data, name, strlen(name), directory) - 46;
}

static void damaged_archives(void **state)
{
    (void)state;
    static const struct {
        const char *member;
        int offset; /* in its entry of the directory */
        char value;
        tt_status status;
        const char *part;
    } cases[] = {
        {"archive/data.pkl", 10, 8, TT_ERR_UNSUPPORTED, "'archive/data.pkl' is compressed"},
        {"archive/data/0", 10, 8, TT_ERR_UNSUPPORTED, "'archive/data/0' is compressed"},
        {"archive/data/0", 8, 9, TT_ERR_UNSUPPORTED, "'archive/data/0' is encrypted"},
        {"archive/data/0", 20, 1, TT_ERR_UNSUPPORTED, "'archive/data/0' is compressed"},
        {"archive/data/0", 46 + 13, 'x', TT_ERR_DATA, "has no member 'archive/data/0'"},
        {"archive/data/0", 46 + 13, '1', TT_ERR_DATA, "two members 'archive/data/1'"},
        {"archive/data.pkl", 46 + 8, 'x', TT_ERR_DATA, "has no data.pkl"},
        {"archive/data/0", 45, 1, TT_ERR_DATA, "'archive/data/0' begins beyond the data"},
        {"archive/data/0", 42, 1, TT_ERR_DATA, "'archive/data/0'"},
    };
    struct tt_str data = {0};
    assert_int_equal(tt_file_read(GOLDEN "archive.pth", 1 << 20, &data), TT_OK);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        size_t at = entry_of(&data, cases[i].member) + (size_t)cases[i].offset;
        char before = data.data[at];
        data.data[at] = cases[i].value;
        assert_refused_bytes(data.data, data.bytes, cases[i].status, cases[i].part);
        data.data[at] = before;
    }
    /* Both sizes of a member, so that it is neither compressed nor that of its elements. */
    size_t entry = entry_of(&data, "archive/data/0");
    data.data[entry + 20]--;
    data.data[entry + 24]--;
    assert_refused_bytes(data.data, data.bytes, TT_ERR_DATA, "not those of 12 elements");
    data.data[entry + 22] = data.data[entry + 26] = 1;
    assert_refused_bytes(data.data, data.bytes, TT_ERR_DATA, "the member 'archive/data/0' of ");
    data.data[entry + 20]++;
    data.data[entry + 24]++;
    data.data[entry + 22] = data.data[entry + 26] = 0;
    memcpy(data.data + find(&data, "little", 6, 0), "bigger", 6);
    assert_refused_bytes(data.data, data.bytes, TT_ERR_UNSUPPORTED,
                         "has the byte order 'bigger'; only little is supported");
    tt_str_deinit(&data);
}

/* A stream whose object is the given pickle, with the list of keys ['0'] and one storage of two floats. */
static void put_stream_with_tail(const char *object, size_t bytes, const char *tail, size_t tail_bytes)
{
    static const char head[] = "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19."
                               "\x80\x02M\xe9\x03."
                               "\x80\x02}X\x0d\0\0\0little_endian\x88s.";
    struct tt_str file = {0};
    assert_int_equal(tt_str_append(&file, head, sizeof head - 1), TT_OK);
    assert_int_equal(tt_str_append(&file, object, bytes), TT_OK);
    assert_int_equal(tt_str_append(&file, tail, tail_bytes), TT_OK);
    put_bytes("x.pth", file.data, file.bytes);
    tt_str_deinit(&file);
}

#define KEYS "\x80\x02]X\1\0\0\0000a."
#define DATA "\2\0\0\0\0\0\0\0\0\0\x80?\0\0\0@"

static void put_stream(const char *object, size_t bytes)
{
    put_stream_with_tail(object, bytes, KEYS DATA, sizeof KEYS DATA - 1);
}

#define STORAGE "(X\7\0\0\0storagectorch\nFloatStorage\nX\1\0\0\0000X\3\0\0\0cpuK\2NtQ"
#define START "\x80\x02}X\1\0\0\0wctorch._utils\n_rebuild_tensor_v2\n("
#define END "\x89}tRs."

static void objects(void **state)
{
    (void)state;
#define OBJECT(text) text, sizeof text - 1
    static const struct {
        const char *object;
        size_t bytes;
        tt_status status;
        const char *part;
    } cases[] = {
        {OBJECT(START STORAGE "K\0K\2\x85K\1\x85" END), TT_OK, ""},
        {OBJECT(START STORAGE "K\0K\2\x85K\2\x85" END), TT_ERR_DATA, "'w' reaches beyond its storage of 2"},
        {OBJECT(START STORAGE "K\1K\2\x85K\1\x85" END), TT_ERR_DATA, "'w' reaches beyond"},
        {OBJECT(START STORAGE "K\3K\0\x85K\1\x85" END), TT_ERR_DATA, "'w' reaches beyond"},
        {OBJECT(START STORAGE "K\0J\xff\xff\xff\x7fJ\xff\xff\xff\x7f\x86K\0K\0\x86" END), TT_ERR_DATA,
         "reaches"},
        {OBJECT(START STORAGE "J\xff\xff\xff\xffK\2\x85K\1\x85" END), TT_ERR_DATA, "has no storage"},
        {OBJECT(START STORAGE "K\0K\2\x85J\xff\xff\xff\xff\x85" END), TT_ERR_DATA,
         "tensor 'w' has a size or stride below 0"},
        {OBJECT(START STORAGE "K\0K\2\x85)" END), TT_ERR_DATA,
         "x.pth': tensor 'w' has 1 sizes and 0 strides"},
        {OBJECT(START STORAGE "K\0(K\1K\1K\1K\1K\1K\1K\1K\1K\1tK\1\x85" END), TT_ERR_UNSUPPORTED,
         "9 dimensions"},
        {OBJECT(START "N" STORAGE "K\2\x85K\1\x85" END), TT_ERR_DATA, "'w' has no storage"},
        {OBJECT("\x80\x02}X\1\0\0\0wctorch._utils\n_rebuild_qtensor\n)Rs}(X\1\0\0\0vNu."), TT_ERR_DATA,
         "one value"},
        {OBJECT("\x80\x02}X\1\0\0\0w" STORAGE "s."), TT_ERR_DATA, "holds no tensors"},
        {OBJECT("\x80\x02(."), TT_ERR_DATA, "more or less than one value"},
        {OBJECT("\x80\x02NN."), TT_ERR_DATA, "more or less than one value"},
        {OBJECT("\x80\x02s."), TT_ERR_DATA, "takes more values than it has"},
        {OBJECT("\x80\x02N(\x85."), TT_ERR_DATA, "takes more values than it has"},
        {OBJECT("\x80\x02t."), TT_ERR_DATA, "takes a mark that it has not set"},
        {OBJECT("\x80\x02(\x90."), TT_ERR_DATA, "takes more values than it has"},
        {OBJECT("\x80\x02h\5."), TT_ERR_DATA, "reads a memo that it has not set"},
        {OBJECT("\x80\x02Nr\xff\xff\xff\xff."), TT_ERR_DATA, "a memo of more values"},
        {OBJECT("\x80\x02NNa."), TT_ERR_DATA, "appends to a value that is not a list"},
        {OBJECT("\x80\x02NNNs."), TT_ERR_DATA, "sets a key of a value that is not a dictionary"},
        {OBJECT("\x80\x02}(Nu."), TT_ERR_DATA, "a key without a value"},
        {OBJECT("\x80\x02NNR."), TT_ERR_DATA, "arguments that are no tuple"},
        {OBJECT("\x80\x02I1\n."), TT_ERR_DATA, "has the opcode 0x49, which torch.save does not write"},
        {OBJECT("\x80\x09N."), TT_ERR_DATA,
         "x.pth': the pickle at byte 47 is of a protocol that torch does not write"},
        {OBJECT("\x80\x02X\xff\xff\xff\xffx."), TT_ERR_DATA, "longer than the file"},
        {OBJECT("\x80\2ca\0b\nc\n."), TT_ERR_DATA, "a global that is no name"},
        {OBJECT("\x80\x02NQ."), TT_ERR_DATA, "a persistent id is not one of a storage"},
        {OBJECT(START
                "(X\7\0\0\0storagectorch\nFloatStorage\nX\1\0\0\0001X\3\0\0\0cpuK\2NtQK\0K\2\x85K\1\x85" END),
         TT_ERR_DATA, "a storage that its object does not name"},
        {OBJECT(START
                "(X\7\0\0\0storagectorch\nFooStorage\nX\1\0\0\0000X\3\0\0\0cpuK\2NtQK\0K\2\x85K\1\x85" END),
         TT_ERR_UNSUPPORTED, "x.pth': storage '0' is of the unknown type 'FooStorage'"},
        {OBJECT("\x80\x02}X\1\0\0\0wctorch._utils\n_rebuild_tensor_v3\n(("
                "X\7\0\0\0storagectorch\nUntypedStorage\nX\1\0"
                "\0\0000X\3\0\0\0cpuK\2NtQK\0K\1\x85K\1\x85\x89}ctorch\nint3\ntRs."),
         TT_ERR_UNSUPPORTED, "x.pth': tensor 'w' is of the unknown type 'int3'"},
        {OBJECT(START
                "(X\7\0\0\0storagectorch\nFloatStorage\nX\1\0\0\0000X\3\0\0\0cpuK\3NtQK\0K\2\x85K\1\x85" END),
         TT_ERR_DATA, "has 2 elements in one place, 3 in another"},
        {OBJECT(START STORAGE "K\0NK\1\x85" END), TT_ERR_DATA, "the shape of tensor 'w' is no tuple"},
        {OBJECT("\x80\x02}X\1\0\0\0wctorch._utils\n_rebuild_tensor_v3\n(" STORAGE
                "K\0K\2\x85K\1\x85\x89}NtRs."),
         TT_ERR_DATA, "tensor 'w' has no type"},
        {OBJECT(START "(X\7\0\0\0storagectorch\nFloatStorage\nX\1\0\0\0000X\3\0\0\0cpuK\2("
                      "X\1\0\0\000aK\3K\1ttQK\0K\1\x85K\1\x85" END),
         TT_ERR_DATA, "a view of storage '0' begins outside it"},
        {OBJECT("\x80\x02(" STORAGE
                "(X\7\0\0\0storagectorch\nFloatStorage\nX\1\0\0\0000X\3\0\0\0cpuK\3NtQt."),
         TT_ERR_DATA, "storage '0' is given two types or sizes"},
        {OBJECT("\x80\x02(" STORAGE
                "(X\7\0\0\0storagectorch\nDoubleStorage\nX\1\0\0\0000X\3\0\0\0cpuK\2NtQt."),
         TT_ERR_DATA, "storage '0' is given two types or sizes"},
        {OBJECT("\x80\2ccollections\nOrderedDict\n](NNe\x85R."), TT_ERR_DATA,
         "makes an OrderedDict of what are no pairs"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        put_stream(cases[i].object, cases[i].bytes);
        if (cases[i].status != TT_OK) {
            assert_refused(test_at("x.pth"), cases[i].status, cases[i].part);
            continue;
        }
        struct tt_safetensors *file = NULL;
        float values[2];
        assert_int_equal(tt_pth_open(test_at("x.pth"), &file), TT_OK);
        assert_int_equal(tt_safetensors_read(file, tt_safetensors_find(file, "w"), 0, 2, values, TT_F32),
                         TT_OK);
        assert_true(values[0] == 1 && values[1] == 2);
        tt_safetensors_close(file);
    }
}

/* One element of each kind of storage, and of each type that a tensor of an untyped storage may name. */
static void kinds(void **state)
{
    (void)state;
    static const struct {
        const char *storage, *named;
        uint8_t width;
        tt_dtype dtype;
    } rows[] = {
        {"FloatStorage", NULL, 4, TT_F32},
        {"HalfStorage", NULL, 2, TT_F16},
        {"BFloat16Storage", NULL, 2, TT_BF16},
        {"DoubleStorage", NULL, 8, TT_F64},
        {"LongStorage", NULL, 8, TT_I64},
        {"IntStorage", NULL, 4, TT_I32},
        {"ShortStorage", NULL, 2, TT_I16},
        {"CharStorage", NULL, 1, TT_I8},
        {"ByteStorage", NULL, 1, TT_U8},
        {"BoolStorage", NULL, 1, TT_BOOL},
        {"UntypedStorage", NULL, 1, TT_DTYPE_NONE},
        {"ComplexFloatStorage", NULL, 8, TT_DTYPE_NONE},
        {"ComplexDoubleStorage", NULL, 16, TT_DTYPE_NONE},
        {"QInt8Storage", NULL, 1, TT_DTYPE_NONE},
        {"QUInt8Storage", NULL, 1, TT_DTYPE_NONE},
        {"QInt32Storage", NULL, 4, TT_DTYPE_NONE},
        {"UntypedStorage", "float8_e4m3fn", 1, TT_F8_E4M3},
        {"UntypedStorage", "float8_e5m2", 1, TT_F8_E5M2},
        {"UntypedStorage", "uint16", 2, TT_U16},
        {"UntypedStorage", "uint32", 4, TT_U32},
        {"UntypedStorage", "uint64", 8, TT_U64},
        {"UntypedStorage", "bfloat16", 2, TT_BF16},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct tt_str object = {0}, tail = {0};
        struct tt_safetensors *file = NULL;
        uint8_t stored = rows[i].named != NULL ? rows[i].width : 1; /* elements */
        assert_int_equal(tt_str_append(&object, "\x80\x02}X\1\0\0\0w", 9), TT_OK);
        assert_int_equal(
            tt_str_printf(&object, "ctorch._utils\n_rebuild_tensor_v%d\n(", rows[i].named != NULL ? 3 : 2),
            TT_OK);
        assert_int_equal(tt_str_append(&object, "(X\7\0\0\0storagectorch\n", 20), TT_OK);
        assert_int_equal(tt_str_append_text(&object, rows[i].storage), TT_OK);
        assert_int_equal(tt_str_append(&object, "\nX\1\0\0\0000X\3\0\0\0cpuK", 16), TT_OK);
        assert_int_equal(tt_str_append_char(&object, (char)stored), TT_OK);
        assert_int_equal(tt_str_append(&object, "NtQK\0K\1\x85K\1\x85\x89}", 13), TT_OK);
        if (rows[i].named != NULL)
            assert_int_equal(tt_str_printf(&object, "ctorch\n%s\n", rows[i].named), TT_OK);
        assert_int_equal(tt_str_append(&object, "tRs.", 4), TT_OK);
        assert_int_equal(tt_str_append(&tail, KEYS, sizeof KEYS - 1), TT_OK);
        assert_int_equal(tt_str_append_char(&tail, (char)stored), TT_OK);
        assert_int_equal(tt_str_append_fill(&tail, 0, 7 + (size_t)rows[i].width), TT_OK);
        put_stream_with_tail(object.data, object.bytes, tail.data, tail.bytes);
        if (tt_pth_open(test_at("x.pth"), &file) != TT_OK)
            fail_msg("%s: %s", rows[i].storage, tt_error_last()->message);
        assert_int_equal(tt_safetensors_entry(file, 0)->dtype, rows[i].dtype);
        assert_int_equal(tt_safetensors_entry(file, 0)->bytes, rows[i].width);
        tt_safetensors_close(file);
        tt_str_deinit(&object);
        tt_str_deinit(&tail);
    }
}

/* What follows the object of a stream: the keys of its storages, then their sizes and data. */
static void tails(void **state)
{
    (void)state;
    static const char object[] = START STORAGE "K\0K\2\x85K\1\x85" END;
    static const char twice[] =
        "\x80\x02}(" /* both values are the tensor in the memo */
        "X\1\0\0\0wctorch._utils\n_rebuild_tensor_v2\n(" STORAGE "K\0K\2\x85K\1\x85\x89}tRq\1X\1\0\0\0wh\1u.";
    static const struct {
        const char *tail;
        size_t bytes;
        const char *part;
    } cases[] = {
        {OBJECT("\x80\x02N."), "x.pth': the list of storages is none"},
        {OBJECT("\x80\x02]."), "x.pth' does not hold storage '0'"},
        {OBJECT(KEYS "\2\0\0\0"), "x.pth' is truncated: storage '0' is missing"},
        {OBJECT(KEYS "\2\0\0\0\0\0\0\0\0\0\x80?"), "x.pth' is truncated in storage '0' of 2 elements"},
        {OBJECT(KEYS "\3\0\0\0\0\0\0\0"), "x.pth': storage '0' has 3 elements in one place, 2 in another"},
        {OBJECT("\x80\x02]X\1\0\0\0001a." DATA), "lists a storage that its object does not name"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        put_stream_with_tail(object, sizeof object - 1, cases[i].tail, cases[i].bytes);
        assert_refused(test_at("x.pth"), TT_ERR_DATA, cases[i].part);
    }
    put_stream(twice, sizeof twice - 1);
    assert_refused(test_at("x.pth"), TT_ERR_DATA, "x.pth' has two tensors 'w'");
}

/* Nesting, stack and number of values are bounded. */
static void bombs(void **state)
{
    (void)state;
    static const struct {
        char op;
        size_t count;
        const char *part;
    } cases[] = {{'(', 300, "is nested deeper than a model is"},
                 {'N', 2 << 20, "a deeper stack"},
                 {'}', 2 << 20, "a deeper stack"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct tt_str object = {0};
        assert_int_equal(tt_str_append(&object, "\x80\x02", 2), TT_OK);
        assert_int_equal(tt_str_append_fill(&object, cases[i].op, cases[i].count), TT_OK);
        put_stream(object.data, object.bytes);
        tt_str_deinit(&object);
        assert_refused(test_at("x.pth"), TT_ERR_DATA, cases[i].part);
    }
    /* A list that doubles itself: appends its memo to itself. */
    struct tt_str object = {0};
    assert_int_equal(tt_str_append_text(&object, "\x80\x02]q\1"), TT_OK);
    for (int i = 0; i < 3000000; i++) assert_int_equal(tt_str_append(&object, "h\1a", 3), TT_OK);
    for (int i = 0; i < 1500000; i++) assert_int_equal(tt_str_append(&object, "h\1a", 3), TT_OK);
    put_stream(object.data, object.bytes);
    tt_str_deinit(&object);
    assert_refused(test_at("x.pth"), TT_ERR_DATA, "has more elements than a model has");
}

static void unknown_tensors(void **state)
{
    (void)state;
    static const char object[] = "\x80\x02}(X\1\0\0\0wctorch._utils\n_rebuild_tensor_v2\n(" STORAGE
                                 "K\0K\2\x85K\1\x85\x89}tRX\1\0\0\0qctorch._utils\n_rebuild_qtensor\n)Ru.";
    put_stream(object, sizeof object - 1);
    assert_refused(test_at("x.pth"), TT_ERR_UNSUPPORTED, "'q' is made by 'torch._utils._rebuild_qtensor'");
}

/* ---- Writing ---- */

static tt_status give(void *context, size_t index, int64_t first, int64_t count, void *to)
{
    (void)context;
    float *out = to;
    uint16_t *half = to;
    for (int64_t i = 0; i < count; i++) {
        if (index == 1)
            half[i] = tt_f32_to_bf16((float)(first + i));
        else
            out[i] = (float)(first + i) * 0.5f;
    }
    return TT_OK;
}

static struct tt_safetensors_entry written[3] = {
    {.name = "layer.weight", .dtype = TT_F32, .rank = 2, .dims = {700, 1000}},
    {.name = "layer.bias", .dtype = TT_BF16, .rank = 1, .dims = {5}},
    {.name = "none", .dtype = TT_F32, .rank = 2, .dims = {0, 3}},
};

static void reads_what_it_wrote(void **state)
{
    (void)state;
    struct tt_safetensors *file = NULL;
    bool pickled = false;
    assert_int_equal(tt_pth_write(test_at("own.pth"), written, 3, give, NULL), TT_OK);
    assert_false(tt_path_exists(test_at("own.pth.unfinished")));
    assert_int_equal(tt_weights_open(test_at("own.pth"), &file, &pickled), TT_OK);
    assert_true(pickled);
    assert_int_equal(tt_safetensors_count(file), 3);
    for (size_t i = 0; i < 3; i++) {
        const struct tt_safetensors_entry *entry = tt_safetensors_find(file, written[i].name);
        assert_non_null(entry);
        assert_int_equal(entry->dtype, written[i].dtype);
        assert_int_equal(entry->offset % 64, 0);
        float value;
        int64_t last = i == 0 ? 699999 : i == 1 ? 4 : -1;
        if (last < 0) continue;
        assert_int_equal(tt_safetensors_read(file, entry, last, 1, &value, TT_F32), TT_OK);
        assert_true(value == (i == 1 ? 4.0f : 349999.5f));
    }
    tt_safetensors_close(file);
    struct tt_safetensors_entry wrong = {.name = "x", .dtype = TT_F8_E4M3, .rank = 1, .dims = {1}};
    assert_int_equal(tt_pth_write(test_at("own.pth"), &wrong, 1, give, NULL), TT_ERR_UNSUPPORTED);
    assert_non_null(strstr(tt_error_last()->message, "torch has no storage for tensor 'x' of type F8_E4M3"));
    tt_file_fail_at(3, 28, true); /* ENOSPC */
    assert_int_equal(tt_pth_write(test_at("full.pth"), written, 3, give, NULL), TT_ERR_IO);
    tt_file_fail_at(0, 0, false);
    assert_false(tt_path_exists(test_at("full.pth")));
}

static tt_status open_archive(void *context)
{
    struct tt_safetensors *file = NULL;
    tt_status status = tt_pth_open(context, &file);
    if (status == TT_OK) {
        float values[120];
        status =
            tt_safetensors_read(file, tt_safetensors_find(file, "channels_last"), 0, 120, values, TT_F32);
    }
    tt_safetensors_close(file);
    return status;
}

static tt_status write_archive(void *context)
{
    (void)context;
    return tt_pth_write(test_at("own.pth"), written, 3, give, NULL);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    char archive[] = GOLDEN "archive.pth", stream[] = GOLDEN "stream.pth";
    test_allocations_fail(open_archive, archive);
    test_allocations_fail(open_archive, stream);
    test_allocations_fail(write_archive, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_torch_reads),
        cmocka_unit_test_setup_teardown(nothing_is_executed, fresh, test_root_remove),
        cmocka_unit_test(other_types),
        cmocka_unit_test_setup_teardown(wrong_files, fresh, test_root_remove),
        cmocka_unit_test_setup_teardown(cut_anywhere, fresh, test_root_remove),
        cmocka_unit_test_setup_teardown(damaged_archives, fresh, test_root_remove),
        cmocka_unit_test_setup_teardown(objects, fresh, test_root_remove),
        cmocka_unit_test_setup_teardown(tails, fresh, test_root_remove),
        cmocka_unit_test_setup_teardown(kinds, fresh, test_root_remove),
        cmocka_unit_test_setup_teardown(bombs, fresh, test_root_remove),
        cmocka_unit_test_setup_teardown(unknown_tensors, fresh, test_root_remove),
        cmocka_unit_test_setup_teardown(reads_what_it_wrote, fresh, test_root_remove),
        cmocka_unit_test_setup_teardown(every_allocation_may_fail, fresh, test_root_remove),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
