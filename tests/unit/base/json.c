/* base/json.h: messages of the readers, and the writer against what Python's json.dumps prints. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/json.h"
#include "base/rng.h"
#include "base/file.h"
#include "support/allocations.h"
#include "support/temporary.h"

static struct tt_json parse(const char *text)
{
    struct tt_json json = {0};
    assert_int_equal(tt_json_parse(text, strlen(text), "test.json", &json), TT_OK);
    return json;
}

static void assert_message(const char *part)
{
    if (strstr(tt_error_last()->message, part) == NULL)
        fail_msg("'%s' not in '%s'", part, tt_error_last()->message);
}

static void refusals(void **state)
{
    (void)state;
    static const struct {
        const char *text, *part;
    } cases[] = {
        {"{\"a\": 1,\n \"a\": 2}", "line 2"},
        {"{\"a\": 1,\n \"a\": 2}", "test.json"},
        {"{\"a\": 1,\n\"b\" 2}", "line 2, column 5"},
        {"", "not valid JSON"},
        {"{\"a\": 1} x", "not valid JSON"},
        {"[\"\\u0000\"]", "not valid JSON"},
        {"[\"\xff\"]", "not valid JSON"},
        {"[1,\n  tru]", "line 2, column 3 (byte 6): not valid JSON: a value is expected"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct tt_json json = {0};
        assert_int_equal(tt_json_parse(cases[i].text, strlen(cases[i].text), "test.json", &json),
                         TT_ERR_DATA);
        assert_message(cases[i].part);
        assert_null(json.root);
    }
    char deep[100001];
    memset(deep, '[', sizeof deep - 1);
    struct tt_json json = {0};
    assert_int_equal(tt_json_parse(deep, sizeof deep - 1, "deep", &json), TT_ERR_DATA);
}

static void getters(void **state)
{
    (void)state;
    struct tt_json json = parse("{\"n\": 3, \"x\": 1.5, \"s\": \"t\", \"z\": null, \"f\": false,"
                                " \"rope\": {\"factor\": \"big\"}, \"list\": [{\"k\": []}]}");
    int64_t n = 7;
    double x = 0;
    bool f = true;
    const char *s = "kept";
    const struct tt_json_value *child;
    assert_int_equal(tt_json_int(&json, json.root, "n", &n), TT_OK);
    assert_int_equal(n, 3);
    assert_int_equal(tt_json_double(&json, json.root, "n", &x), TT_OK);
    assert_true(x == 3.0);
    assert_int_equal(tt_json_bool(&json, json.root, "f", &f), TT_OK);
    assert_false(f);
    assert_int_equal(tt_json_opt_string(&json, json.root, "z", &s), TT_OK);
    assert_int_equal(tt_json_opt_string(&json, json.root, "absent", &s), TT_OK);
    assert_string_equal(s, "kept");
    assert_int_equal(tt_json_opt_int(&json, json.root, "x", &n), TT_ERR_DATA);
    assert_message("'x' must be an integer, not 1.5");
    assert_int_equal(n, 3);
    assert_int_equal(tt_json_int(&json, json.root, "absent", &n), TT_ERR_DATA);
    assert_message("'absent' is missing");
    assert_int_equal(tt_json_object(&json, json.root, "rope", &child), TT_OK);
    assert_int_equal(tt_json_double(&json, child, "factor", &x), TT_ERR_DATA);
    assert_message("'rope.factor' must be a number, not the string \"big\"");
    const struct tt_json_value *first = tt_json_at(tt_json_get(json.root, "list"), 0);
    assert_int_equal(tt_json_int(&json, first, "k", &n), TT_ERR_DATA);
    assert_message("'list[0].k' must be an integer, not a list");
    assert_int_equal(tt_json_opt_int(&json, tt_json_get(json.root, "s"), "k", &n), TT_ERR_DATA);
    tt_json_deinit(&json);
    tt_json_deinit(&json);
}

static void assert_written(const char *text, int indent, bool sort, const char *wanted)
{
    struct tt_json json = parse(text);
    struct tt_str written = {0};
    assert_int_equal(tt_json_write(json.root, indent, sort, &written), TT_OK);
    assert_string_equal(written.data, wanted);
    tt_str_deinit(&written);
    tt_json_deinit(&json);
}

static void writes_as_python(void **state)
{
    (void)state;
    assert_written(
        "{\"b\": [1, 2, {\"z\": null}], \"a\": {}, \"c\": []}", 2, true,
        "{\n  \"a\": {},\n  \"b\": [\n    1,\n    2,\n    {\n      \"z\": null\n    }\n  ],\n  \"c\": []\n}");
    assert_written("{\"b\": [1, 2], \"a\": true}", 0, false, "{\"b\": [1, 2], \"a\": true}");
    assert_written("[\"\\u00e9\\ud83d\\ude00\\u007f\\u001f\\n\\t\\\"\\\\/\"]", 0, false,
                   "[\"\\u00e9\\ud83d\\ude00\\u007f\\u001f\\n\\t\\\"\\\\/\"]");
    /* Each is what Python 3.11's repr(float) gives. */
    static const char *const floats[] = {
        "1e-05",
        "2e-05",
        "1.0",
        "0.1",
        "0.0001",
        "0.00012345",
        "1e+16",
        "1000000000000000.0",
        "123.456",
        "1e+22",
        "5e-324",
        "-0.0",
        "100.0",
        "1.5e-07",
        "0.3",
        "5.684341886080802e-14",
        "0.30000000000000004",
        "1.7976931348623157e+308",
        "2.2250738585072014e-308",
        "9007199254740993.0",
        "1234567890123456.8",
        "9.5367431640625e-07",
        "1e+100",
        "0.001",
    };
    for (size_t i = 0; i < sizeof floats / sizeof floats[0]; i++) {
        char text[64];
        snprintf(text, sizeof text, "[%s]", floats[i]);
        if (strcmp(floats[i], "9007199254740993.0") == 0) {
            assert_written(text, 0, false, "[9007199254740992.0]");
        } else {
            assert_written(text, 0, false, text);
        }
    }
}

/* Any double reads back as itself, and no shorter text does. */
static void floats_round_trip(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 20000; i++) {
        uint64_t bits = tt_rng_u64(tt_rng_make(9), i);
        if (i % 4 == 0) bits &= 0xfff0000000000000u; /* powers of two: uneven neighbours */
        double value;
        memcpy(&value, &bits, sizeof value);
        if (value != value || value - value != 0) continue;
        struct tt_json_value *real = tt_json_new_real(value);
        struct tt_str text = {0};
        assert_int_equal(tt_json_write(real, 0, false, &text), TT_OK);
        assert_true(strtod(text.data, NULL) == value);
        char shorter[64];
        size_t digits = 0;
        for (const char *at = text.data; *at != '\0' && *at != 'e'; at++) digits += *at >= '0' && *at <= '9';
        if (digits > 1 && strchr(text.data, 'e') != NULL) {
            snprintf(shorter, sizeof shorter, "%.*e", (int)digits - 2, value);
            assert_true(strtod(shorter, NULL) != value);
        }
        tt_str_deinit(&text);
        tt_json_release(real);
    }
}

/* What is not kept is checked all the same. */
static void outlines(void **state)
{
    (void)state;
    static const struct tt_span names[] = {{"text", 4}, {"ids", 3}, {"n", 1}};
    static const char many[] =
        "{\"a1\": 1, \"a2\": 1, \"a3\": 1, \"a4\": 1, \"a5\": 1, \"a6\": 1, \"a7\": 1, \"a8\": 1, \"a9\": 1, "
        "\"b1\": 1, \"b2\": 1, \"b3\": 1, \"b4\": 1, \"b5\": 1, \"b6\": 1, \"b7\": 1, \"b8\": 1, "
        "\"\\u0061\\u0037\": 1}";
    static const struct {
        const char *text, *part;
    } cases[] = {
        {"{\"x\": [1, {\"k\": 1, \"l\": [2],\n\"\\u006b\": 3}]}",
         "line 2, column 1 (byte 29): not valid JSON: duplicate key \"k\""},
        {"{\"x\": 1, \"text\": \"\", \"x\": 1}", "(byte 21): not valid JSON: duplicate key \"x\""},
        {"{\"text\": 1, \"y\": {}, \"text\": 1}", "(byte 21): not valid JSON: duplicate key \"text\""},
        {many, "(byte 154): not valid JSON: duplicate key \"a7\""},
        {"{\"x\": [1, 02]}", "(byte 10): not valid JSON: a number with a leading zero"},
        {"{\"x\": {\"y\": \"\xff\"}}", "(byte 13): not valid JSON: invalid UTF-8"},
        {"{\"x\": [1, 2}", "',' or ']' is expected"},
        {"{\"x\": tru}", "a value is expected"},
        {"{\"ids\": [1, tru]}", "a value is expected"},
    };
    struct tt_json json = {0};
    struct tt_json_source source = {
        .origin = "row", .outline = true, .members = names, .member_count = sizeof names / sizeof names[0]};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        source.text = cases[i].text;
        source.bytes = strlen(cases[i].text);
        assert_int_equal(tt_json_parse_source(&source, &json), TT_ERR_DATA);
        assert_message(cases[i].part);
    }
    source.text =
        "{\"x\": [[], {}], \"ids\": [ 7 ,-8,true,1.5, 9223372036854775808,null], \"n\": 1e2, \"text\": "
        "\"\\u00e9\", \"y\": \"long\"}";
    source.bytes = strlen(source.text);
    assert_int_equal(tt_json_parse_source(&source, &json), TT_OK);
    assert_int_equal(tt_json_count(json.root), 3);
    assert_null(tt_json_get(json.root, "x"));
    assert_string_equal(tt_json_text(tt_json_get(json.root, "text")), "\xc3\xa9");
    assert_true(tt_json_number(tt_json_get(json.root, "n")) == 100.0);
    const struct tt_json_value *ids = tt_json_get(json.root, "ids");
    static const struct {
        enum tt_json_type type;
        int64_t integer;
    } wanted[] = {{TT_JSON_INTEGER, 7}, {TT_JSON_INTEGER, -8}, {TT_JSON_TRUE, 0},
                  {TT_JSON_REAL, 0},    {TT_JSON_HUGE, 0},     {TT_JSON_NULL, 0}};
    struct tt_json_walk walk = tt_json_walk(ids);
    enum tt_json_type type;
    int64_t integer;
    assert_int_equal(tt_json_count(ids), sizeof wanted / sizeof wanted[0]);
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        assert_true(tt_json_walk_next(&walk, &type, &integer));
        assert_int_equal(type, wanted[i].type);
        assert_int_equal(integer, wanted[i].integer);
    }
    assert_false(tt_json_walk_next(&walk, &type, &integer));
    tt_json_deinit(&json);
}

static tt_status parse_and_write(void *context)
{
    static const char source[] = "{\"b\": {\"c\": [1.5, \"\\u00e9\"]}}";
    struct tt_json json = {0};
    struct tt_str text = {0};
    (void)context;
    tt_status status = tt_json_parse(source, sizeof source - 1, "x", &json);
    if (status == TT_OK) status = tt_json_write(json.root, 2, true, &text);
    tt_json_deinit(&json);
    tt_str_deinit(&text);
    return status;
}

/* Of an object with more keys than are compared one by one. */
static tt_status parse_outline(void *context)
{
    static const char source[] =
        "{\"x\": {\"a\": 0, \"b\": 0, \"c\": 0, \"d\": 0, \"e\": 0, \"f\": 0, \"g\": 0, \"h\": 0, \"i\": 0, "
        "\"j\": 0, \"k\": 0, \"l\": 0, \"m\": 0, \"n\": 0, \"o\": 0, \"p\": 0, \"q\": 0}, \"text\": [1]}";
    static const struct tt_span names[] = {{"text", 4}};
    struct tt_json json = {0};
    (void)context;
    tt_status status = tt_json_parse_source(&(struct tt_json_source){.text = source,
                                                                     .bytes = sizeof source - 1,
                                                                     .origin = "x",
                                                                     .outline = true,
                                                                     .members = names,
                                                                     .member_count = 1},
                                            &json);
    tt_json_deinit(&json);
    return status;
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    test_allocations_fail(parse_and_write, NULL);
    test_allocations_fail(parse_outline, NULL);
}

/* A file may begin with a byte order mark, which is no part of the text. */
static void byte_order_mark(void **state)
{
    (void)state;
    char folder[160], path[200];
    struct tt_json json = {0};
    int64_t n = 0;
    test_temporary_of(folder, sizeof folder, "tt-json", (long)getpid(), "");
    assert_int_equal(tt_dir_create(folder), TT_OK);
    snprintf(path, sizeof path, "%s/config.json", folder);
    static const char text[] = "\xef\xbb\xbf{\"n\": 3}";
    assert_int_equal(tt_file_write_atomic(path, text, strlen(text)), TT_OK);
    assert_int_equal(tt_json_read(path, 1000, &json), TT_OK);
    assert_int_equal(tt_json_int(&json, json.root, "n", &n), TT_OK);
    assert_int_equal(n, 3);
    tt_json_deinit(&json);
    assert_int_equal(tt_file_write_atomic(path, text, 3), TT_OK);
    assert_int_equal(tt_json_read(path, 1000, &json), TT_ERR_DATA);
    assert_int_equal(tt_dir_remove(folder), TT_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refusals),         cmocka_unit_test(getters),
        cmocka_unit_test(writes_as_python), cmocka_unit_test(floats_round_trip),
        cmocka_unit_test(outlines),         cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(byte_order_mark),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
