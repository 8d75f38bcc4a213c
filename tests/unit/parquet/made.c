/* Files made here, byte by byte: the shapes of lists and maps that older programs wrote, and what must be refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/file.h"
#include "data/parquet/codec.h"
#include "data/parquet/metadata.h"
#include "data/parquet/parquet.h"
#include "data/parquet/values.h"
#include "support/made_parquet.h"

#pragma GCC diagnostic ignored "-Wmissing-field-initializers" /* columns without codec, encoding and flags */

/* ---- Tests ---- */

#define INTS(...)                                                                                            \
    (const char *)(const int32_t[]){__VA_ARGS__}, sizeof(int32_t[])                                          \
    {                                                                                                        \
        __VA_ARGS__                                                                                          \
    }
#define G PARQUET_GROUP
enum { NO = PARQUET_REQUIRED, MAYBE = PARQUET_OPTIONAL, MANY = PARQUET_REPEATED };

static void old_lists(void **state)
{
    (void)state;
    const struct column ints[] = {{PARQUET_INT32, 5, "00 02 12 01 02", INTS(1, 2, 3)}};
    /* Two levels: the repeated field is the element. */
    const struct element two[] = {{"a", G, MAYBE, 1, PARQUET_OLD_LIST, 0},
                                  {"array", PARQUET_INT32, MANY, 0, -1, 0}};
    CHECK("{\"a\": null}\n{\"a\": [1, 2]}\n{\"a\": []}\n{\"a\": [3]}\n", two, 1, ints, 4);
    /* A repeated group with two fields, or with a name of old, is the element. */
    const struct element pair[] = {{"a", G, MAYBE, 1, PARQUET_OLD_LIST, 0},
                                   {"list", G, MANY, 2, -1, 0},
                                   {"x", PARQUET_INT32, NO, 0, -1, 0},
                                   {"y", PARQUET_INT32, NO, 0, -1, 0}};
    const struct column both[] = {ints[0], {PARQUET_INT32, 5, "00 02 12 01 02", INTS(7, 8, 9)}};
    CHECK("{\"a\": null}\n{\"a\": [{\"x\": 1, \"y\": 7}, {\"x\": 2, \"y\": 8}]}\n{\"a\": []}\n{\"a\": "
          "[{\"x\": 3, \"y\": 9}]}\n",
          pair, 1, both, 4);
    struct element named[] = {{"a", G, MAYBE, 1, PARQUET_OLD_LIST, 0},
                              {"a_tuple", G, MANY, 1, -1, 0},
                              {"x", PARQUET_INT32, NO, 0, -1, 0}};
    const char *objects =
        "{\"a\": null}\n{\"a\": [{\"x\": 1}, {\"x\": 2}]}\n{\"a\": []}\n{\"a\": [{\"x\": 3}]}\n";
    CHECK(objects, named, 1, ints, 4);
    named[1].name = "array";
    CHECK(objects, named, 1, ints, 4);
    named[1].name = "element";
    CHECK("{\"a\": null}\n{\"a\": [1, 2]}\n{\"a\": []}\n{\"a\": [3]}\n", named, 1, ints, 4);
    /* Repeated without being in a list, as protocol buffers have it. */
    const struct element plain[] = {{"a", PARQUET_INT32, MANY, 0, -1, 0}};
    const struct column bare[] = {{PARQUET_INT32, 4, "00 01 11 01", INTS(1, 2, 3)}};
    CHECK("{\"a\": []}\n{\"a\": [1, 2]}\n{\"a\": [3]}\n", plain, 1, bare, 3);
    const struct element group[] = {{"a", G, MANY, 1, -1, 0}, {"x", PARQUET_INT32, NO, 0, -1, 0}};
    CHECK("{\"a\": []}\n{\"a\": [{\"x\": 1}, {\"x\": 2}]}\n{\"a\": [{\"x\": 3}]}\n", group, 1, bare, 3);
    /* A list that is itself repeated. */
    const struct element twice[] = {{"a", G, MANY, 1, PARQUET_OLD_LIST, 0},
                                    {"list", G, MANY, 1, -1, 0},
                                    {"element", PARQUET_INT32, NO, 0, -1, 0}};
    const struct column deep[] = {{PARQUET_INT32, 5, "02 22 11 12 00", INTS(1, 2, 3)}};
    CHECK("{\"a\": [[1, 2], [], [3]]}\n{\"a\": []}\n", twice, 1, deep, 2);
}

static void maps(void **state)
{
    (void)state;
    struct element map[] = {{"m", G, MAYBE, 1, PARQUET_OLD_MAP_KEY_VALUE, 0},
                            {"map", G, MANY, 2, PARQUET_OLD_MAP_KEY_VALUE, 0},
                            {"key", PARQUET_BYTES, NO, 0, PARQUET_OLD_UTF8, 0},
                            {"value", PARQUET_INT32, MAYBE, 0, -1, 0}};
    struct column columns[] = {{PARQUET_BYTES, 4, "00 02 12 01", "\1\0\0\0a\1\0\0\0b", 10},
                               {PARQUET_INT32, 4, "00 03 12 01", INTS(5)}};
    CHECK("{\"m\": null}\n{\"m\": {\"a\": 5, \"b\": null}}\n{\"m\": {}}\n", map, 1, columns, 3);
    map[2].repetition = MAYBE;
    REFUSE(TT_ERR_UNSUPPORTED, "column 'm': a map whose keys are not texts", map, 1, columns, 3);
    map[2] = (struct element){"key", PARQUET_INT32, NO, 0, -1, 0};
    REFUSE(TT_ERR_UNSUPPORTED, "column 'm': a map whose keys are not texts", map, 1, columns, 3);
    map[1].repetition = NO;
    REFUSE(TT_ERR_DATA, "a map that has not one repeated pair", map, 1, columns, 3);
    map[0].converted = PARQUET_OLD_LIST;
    map[1].converted = -1;
    REFUSE(TT_ERR_DATA, "column 'm': a list that has not one repeated field", map, 1, columns, 3);
}

static void levels(void **state)
{
    (void)state;
    const struct element e[] = {
        {"s", G, MAYBE, 2, -1, 0}, {"x", PARQUET_INT32, NO, 0, -1, 0}, {"l", PARQUET_INT32, MANY, 0, -1, 0}};
    struct column c[] = {{PARQUET_INT32, 2, ".1 .0", INTS(4)}, {PARQUET_INT32, 3, "02 12 00", INTS(1, 2)}};
    CHECK("{\"s\": {\"x\": 4, \"l\": [1, 2]}}\n{\"s\": null}\n", e, 1, c, 2);
    c[1].levels = "02 12 01";
    REFUSE(TT_ERR_DATA, "row 2, column 's': its fields do not agree", e, 1, c, 2);
    c[1].levels = "12 12 00";
    REFUSE(TT_ERR_DATA, "row 1, column 's.l': its fields do not agree", e, 1, c, 2);
    c[1].levels = "02 00 00";
    REFUSE(TT_ERR_DATA, "row 2, column 's.l': it has more values than rows", e, 1, c, 2);
    c[1].levels = "02 12 12";
    REFUSE(TT_ERR_DATA, "column 's.l', byte", e, 1, c, 2); /* a value too few */
    c[1].levels = "02 12 03";
    REFUSE(TT_ERR_DATA, "a level is too high", e, 1, c, 2);
    c[1].levels = "02 12";
    REFUSE(TT_ERR_DATA, "its levels end early", e, 1, c, 2);
    c[1].levels = "02 12 00";
    REFUSE(TT_ERR_DATA, "row 3, column 's': its fields do not agree", e, 1, c, 3);
    REFUSE(TT_ERR_DATA, "it has more values than rows", e, 1, c, 1);
    REFUSE(TT_ERR_DATA, "the schema in the footer has fields without a parent", e, 0, c, 2);
    REFUSE(TT_ERR_DATA, "the schema in the footer ends early", e, 2, c, 2);
    c[0].type = PARQUET_INT64;
    REFUSE(TT_ERR_DATA, "its type differs from the schema's", e, 1, c, 2);
    /* One of two fields in a list goes on. */
    const struct element two[] = {
        {"a", G, MANY, 2, -1, 0}, {"x", PARQUET_INT32, NO, 0, -1, 0}, {"y", PARQUET_INT32, NO, 0, -1, 0}};
    const struct column uneven[] = {{PARQUET_INT32, 2, "01 11", INTS(1, 2)},
                                    {PARQUET_INT32, 1, "01", INTS(1)}};
    REFUSE(TT_ERR_DATA, "row 1, column 'a': its fields do not agree", two, 1, uneven, 1);
}

static void values(void **state)
{
    (void)state;
    struct element e[] = {{"t", PARQUET_BYTES, NO, 0, PARQUET_OLD_UTF8, 0}};
    struct column c[] = {{PARQUET_BYTES, 1, "..", "\2\0\0\0\xc3\xa9", 6, 0, 0, 0}};
    CHECK("{\"t\": \"\xc3\xa9\"}\n", e, 1, c, 1);
    c[0].data = "\2\0\0\0\xc3\x28";
    REFUSE(TT_ERR_DATA, "row 1, column 't': a value is not text: its bytes are not UTF-8", e, 1, c, 1);
    c[0].data = "\3\0\0\0\xc3\xa9";
    REFUSE(TT_ERR_DATA, "its values are damaged", e, 1, c, 1);
    c[0].data = "\xff\xff\xff\xff\xc3\xa9";
    REFUSE(TT_ERR_DATA, "its values are damaged", e, 1, c, 1);
    c[0].encoding = PARQUET_RLE_DICTIONARY;
    REFUSE(TT_ERR_DATA, "it refers to a dictionary that is not there", e, 1, c, 1);
    c[0].encoding = PARQUET_DELTA_BINARY_PACKED;
    REFUSE(TT_ERR_UNSUPPORTED, "an encoding that is not supported", e, 1, c, 1);
    c[0].encoding = PARQUET_DELTA_BYTE_ARRAY;
    REFUSE(TT_ERR_DATA, "its values are damaged", e, 1, c, 1);
    c[0].encoding = 10;
    REFUSE(TT_ERR_UNSUPPORTED, "an encoding that is not supported", e, 1, c, 1);
    c[0].encoding = 0;
    static const char *const codecs[] = {"LZO", "Brotli", "old frames"};
    for (int i = 0; i < 3; i++) {
        c[0].codec = 3 + i;
        REFUSE(TT_ERR_UNSUPPORTED, codecs[i], e, 1, c, 1);
    }
    c[0].codec = 77;
    REFUSE(TT_ERR_UNSUPPORTED, "unknown way", e, 1, c, 1);
    c[0].codec = 0;
    c[0].flags = ENCRYPTED;
    REFUSE(TT_ERR_UNSUPPORTED, "it is encrypted", e, 1, c, 1);
    c[0].flags = ELSEWHERE;
    REFUSE(TT_ERR_UNSUPPORTED, "its values are in another file", e, 1, c, 1);
    c[0].flags = 0;
    e[0].name = "\xff";
    REFUSE(TT_ERR_DATA, "its name is not UTF-8", e, 1, c, 1);
    struct element interval[] = {{"i", PARQUET_FIXED_BYTES, NO, 0, PARQUET_OLD_INTERVAL, 12}};
    REFUSE(TT_ERR_UNSUPPORTED, "column 'i': its type cannot be written as JSON", interval, 1, c, 1);
    interval[0] = (struct element){"d", PARQUET_FIXED_BYTES, NO, 0, PARQUET_OLD_DECIMAL, 17};
    REFUSE(TT_ERR_UNSUPPORTED, "column 'd': its type cannot be written as JSON", interval, 1, c, 1);
    interval[0] = (struct element){"d", PARQUET_FIXED_BYTES, NO, 0, -1, 0};
    REFUSE(TT_ERR_DATA, "a fixed length of 0 bytes", interval, 1, c, 1);
    struct element clock[] = {{"c", PARQUET_INT32, NO, 0, PARQUET_OLD_TIME_MILLIS, 0}};
    const struct column late[] = {{PARQUET_INT32, 1, "..", INTS(86400000)}};
    REFUSE(TT_ERR_DATA, "a time of day is not within a day", clock, 1, late, 1);
}

/* Prefixes and lengths as deltas: a header of the block, its parts, the count, and the first value. */
static void deltas(void **state)
{
    (void)state;
    const struct element t[] = {{"t", PARQUET_BYTES, NO, 0, PARQUET_OLD_UTF8, 0}};
    struct column c[] = {
        {PARQUET_BYTES, 1, "..", "\x80\1\4\1\0\x80\1\4\1\2a", 11, 0, PARQUET_DELTA_BYTE_ARRAY, 0}};
    CHECK("{\"t\": \"a\"}\n", t, 1, c, 1);
    c[0].data = "\x80\1\4\1\2\x80\1\4\1\2a"; /* a prefix of a value that is not there */
    REFUSE(TT_ERR_DATA, "its values are damaged", t, 1, c, 1);
    c[0].data = "\x80\1\4\1\0\x80\1\4\1\4a"; /* longer than the page */
    REFUSE(TT_ERR_DATA, "its values are damaged", t, 1, c, 1);
    c[0].data = "\x80\1\4\1\0\x80\1\4\1\1a"; /* of -1 bytes */
    REFUSE(TT_ERR_DATA, "its values are damaged", t, 1, c, 1);
    c[0].data = "\x80\1\4\2\0\x80\1\4\1\2a"; /* more values than the page has */
    REFUSE(TT_ERR_DATA, "its values are damaged", t, 1, c, 1);
    const struct element n[] = {{"n", PARQUET_INT64, NO, 0, -1, 0}};
    static char wide[400] = "\x80\1\4\2\2\0\x40";
    struct column d[] = {{PARQUET_INT64, 2, ".. ..", wide, sizeof wide, 0, PARQUET_DELTA_BINARY_PACKED, 0}};
    CHECK("{\"n\": 1}\n{\"n\": 1}\n", n, 1, d, 2);
    wide[6] = 0x41; /* of 65 bits */
    REFUSE(TT_ERR_DATA, "its values are damaged", n, 1, d, 2);
    wide[6] = 0x40;
    d[0].bytes = 200; /* a part that is cut */
    REFUSE(TT_ERR_DATA, "its values are damaged", n, 1, d, 2);
    d[0].bytes = sizeof wide;
    wide[0] = (char)0x81; /* blocks of 129 values */
    REFUSE(TT_ERR_DATA, "its values are damaged", n, 1, d, 2);
}

/* The ends of what 64 bits hold: no sum overflows. */
static void far_times(void **state)
{
    (void)state;
    const struct element e[] = {{"t", PARQUET_INT64, NO, 0, PARQUET_OLD_TIMESTAMP_MILLIS, 0}};
    const int64_t ends[] = {INT64_MIN, INT64_MAX};
    const struct column c[] = {{PARQUET_INT64, 2, ".. ..", (const char *)ends, sizeof ends}};
    CHECK("{\"t\": \"-292275055-05-16 16:47:04.192000\"}\n{\"t\": \"292278994-08-17 07:12:55.807000\"}\n", e,
          1, c, 2);
}

/* Two billion rows in a hundred bytes. */
static void bombs(void **state)
{
    (void)state;
    const struct element e[] = {{"n", PARQUET_INT32, MAYBE, 0, -1, 0}};
    struct out run = {0};
    varint(&run, (uint64_t)INT32_MAX << 1);
    byte(&run, 0);
    char page[64] = {0};
    uint32_t bytes = (uint32_t)run.text.bytes;
    memcpy(page, &bytes, 4);
    memcpy(page + 4, run.text.data, bytes);
    const struct column c[] = {{PARQUET_INT32, INT32_MAX, "", page, 4 + bytes}};
    REFUSE(TT_ERR_DATA, "the rows have more than 64.0 KiB", e, 1, c, INT32_MAX);
    const struct element list_of[] = {{"n", PARQUET_INT32, MANY, 0, -1, 0}};
    struct out runs = {0};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(tt_str_append(&runs.text, (char *)&bytes, 4), TT_OK);
        varint(&runs, (uint64_t)INT32_MAX << 1);
        byte(&runs, 1);
    }
    const struct column endless[] = {{PARQUET_INT32, INT32_MAX, "", runs.text.data, runs.text.bytes}};
    REFUSE(TT_ERR_DATA, "row 1, column 'n': its fields do not agree", list_of, 1, endless, 1);
    /* No columns: rows of two bytes without any data. */
    struct tt_file_map none = make(e, 0, 0, c, 0, INT64_MAX);
    expect_error(TT_ERR_DATA, "the rows have more than 64.0 KiB", none);
    struct element deep[120];
    for (size_t i = 0; i < COUNT(deep); i++) deep[i] = (struct element){"x", G, NO, 1, -1, 0};
    REFUSE(TT_ERR_UNSUPPORTED, "it is nested too deeply", deep, 1, c, 1);
    deep[0].children = 0;
    expect_error(TT_ERR_UNSUPPORTED, "a group without fields", make(deep, 1, 1, c, 1, 1));
    tt_str_deinit(&run.text);
    tt_str_deinit(&runs.text);
}

/* A page with more values than its column, and a value that no program knows, nested without end. */
static void untrue_counts(void **state)
{
    (void)state;
    const struct element e[] = {{"n", PARQUET_INT32, NO, 0, -1, 0}};
    const struct column more[] = {{PARQUET_INT32, 3, "", INTS(1, 2, 3), .stated = 2}};
    REFUSE(TT_ERR_DATA, "a page has more values than the column", e, 1, more, 2);
    struct out file = {0};
    assert_int_equal(tt_str_append_text(&file.text, "PAR1"), TT_OK);
    field(&file, 15, 9);
    assert_int_equal(tt_str_append_fill(&file.text, 0x19, 4 << 20), TT_OK); /* lists of one list */
    byte(&file, 0);
    uint32_t footer = (uint32_t)file.text.bytes - 4;
    assert_int_equal(tt_str_append(&file.text, (char *)&footer, 4), TT_OK);
    assert_int_equal(tt_str_append_text(&file.text, "PAR1"), TT_OK);
    expect_error(TT_ERR_DATA, "footer",
                 (struct tt_file_map){(const uint8_t *)file.text.data, file.text.bytes});
}

/* The repeated group of a list, with one repeated field, is the element: a list where it says so, else an object. */
static void annotated_elements(void **state)
{
    (void)state;
    struct element e[] = {{"a", G, MAYBE, 1, PARQUET_OLD_LIST, 0},
                          {"list", G, MANY, 1, PARQUET_OLD_LIST, 0},
                          {"list", PARQUET_INT32, MANY, 0, -1, 0}};
    const struct column c[] = {{PARQUET_INT32, 5, "03 23 13 00 02", INTS(1, 2, 3)}};
    CHECK("{\"a\": [[1, 2], [3]]}\n{\"a\": null}\n{\"a\": [[]]}\n", e, 1, c, 3);
    e[1].converted = -1;
    CHECK("{\"a\": [{\"list\": [1, 2]}, {\"list\": [3]}]}\n{\"a\": null}\n{\"a\": [{\"list\": []}]}\n", e, 1,
          c, 3);
}

/* Packed bytes in hexadecimal, and the 8 bytes that they give; NULL: damage. */
static const struct {
    int codec;
    const char *packed, *expected;
} packings[] = {
    {PARQUET_CODEC_SNAPPY, "08 04 6162 09 02", "abababab"},          /* a copy of 6, distance 2 */
    {PARQUET_CODEC_SNAPPY, "08 0c 61626364 01 04", "abcdabcd"},      /* of 4, distance 4 */
    {PARQUET_CODEC_SNAPPY, "08 00 61 0d 01", "aaaaaaaa"},            /* of 7, distance 1 */
    {PARQUET_CODEC_SNAPPY, "08 04 6162 16 0200", "abababab"},        /* distance in 2 bytes */
    {PARQUET_CODEC_SNAPPY, "08 04 6162 17 02000000", "abababab"},    /* in 4 */
    {PARQUET_CODEC_SNAPPY, "08 f0 07 6162636465666768", "abcdefgh"}, /* length in a byte of its own */
    {PARQUET_CODEC_SNAPPY, "08 f0 08 616263646566676869", NULL},     /* too long */
    {PARQUET_CODEC_SNAPPY, "08 04 6162 16 0300", NULL},              /* before the start */
    {PARQUET_CODEC_SNAPPY, "08 04 6162 16 0000", NULL},              /* distance 0 */
    {PARQUET_CODEC_SNAPPY, "08 04 6162 16 02", NULL},                /* cut */
    {PARQUET_CODEC_SNAPPY, "08 0c 61626364", NULL},                  /* an early end */
    {PARQUET_CODEC_SNAPPY, "09 0c 61626364 01 04", NULL},            /* another length */
    {PARQUET_CODEC_SNAPPY, "ffffffffff", NULL},
    {PARQUET_CODEC_SNAPPY, "", NULL},
    {PARQUET_CODEC_LZ4_RAW, "80 6162636465666768", "abcdefgh"},
    {PARQUET_CODEC_LZ4_RAW, "11 61 0100 20 797a", "aaaaaayz"}, /* a copy of 5, distance 1 */
    {PARQUET_CODEC_LZ4_RAW, "11 61 0200 20 797a", NULL},       /* before the start */
    {PARQUET_CODEC_LZ4_RAW, "11 61 0000 20 797a", NULL},
    {PARQUET_CODEC_LZ4_RAW, "11 61 01", NULL},
    {PARQUET_CODEC_LZ4_RAW, "f0", NULL},
    {PARQUET_CODEC_LZ4_RAW, "1f 61 0100 ffff", NULL},
    {PARQUET_CODEC_NONE, "6162636465666768", "abcdefgh"},
    {PARQUET_CODEC_NONE, "61626364656667", NULL},
    {PARQUET_CODEC_GZIP, "61626364656667", NULL},
    {PARQUET_CODEC_ZSTD, "61626364656667", NULL},
};

static void codecs(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(packings); i++) {
        struct parquet_codec memory = {0};
        const char *why = NULL;
        size_t bytes = 0;
        uint8_t *out = malloc(8), *in = malloc(strlen(packings[i].packed) / 2 + 1), *packed;
        for (const char *at = packings[i].packed; *at != '\0'; at += 2) {
            unsigned value;
            at += *at == ' ';
            assert_int_equal(sscanf(at, "%2x", &value), 1);
            in[bytes++] = (uint8_t)value;
        }
        packed = memcpy(malloc(bytes > 0 ? bytes : 1), in, bytes); /* a sanitizer sees its end */
        tt_status status = parquet_unpack(&memory, packings[i].codec, packed, bytes, out, 8, &why);
        if (status != (packings[i].expected != NULL ? TT_OK : TT_ERR_DATA)) fail_msg("case %zu", i);
        if (packings[i].expected != NULL)
            assert_memory_equal(out, packings[i].expected, 8);
        else
            assert_non_null(why);
        free(out);
        free(in);
        free(packed);
        parquet_codec_deinit(&memory);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(old_lists),     cmocka_unit_test(maps),
        cmocka_unit_test(levels),        cmocka_unit_test(values),
        cmocka_unit_test(deltas),        cmocka_unit_test(far_times),
        cmocka_unit_test(bombs),         cmocka_unit_test(codecs),
        cmocka_unit_test(untrue_counts), cmocka_unit_test(annotated_elements),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
