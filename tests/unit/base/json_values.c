/* base/json.h: values that are made, changed, packed and copied; large objects; numbers at the limits. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "base/json.h"

static struct tt_json parse(const char *text)
{
    struct tt_json json = {0};
    if (tt_json_parse(text, strlen(text), "test.json", &json) != TT_OK)
        fail_msg("%s", tt_error_last()->message);
    return json;
}

static void assert_written(const struct tt_json_value *value, const char *wanted)
{
    struct tt_str text = {0};
    assert_int_equal(tt_json_write(value, 0, false, &text), TT_OK);
    assert_string_equal(text.data, wanted);
    tt_str_deinit(&text);
}

static void numbers(void **state)
{
    (void)state;
    struct tt_json json =
        parse("{\"max\": 9223372036854775807, \"min\": -9223372036854775808, "
              "\"above\": 9223372036854775808, \"below\": -9223372036854775809, "
              "\"none\": 1000000000000000019884624838656, \"nan\": NaN, \"inf\": -Infinity, "
              "\"over\": 1e999, \"zero\": -0, \"real\": 1.5}");
    int64_t whole = 1;
    double real = 1;
    assert_int_equal(tt_json_int(&json, json.root, "max", &whole), TT_OK);
    assert_true(whole == INT64_MAX);
    assert_int_equal(tt_json_int(&json, json.root, "min", &whole), TT_OK);
    assert_true(whole == INT64_MIN);
    assert_int_equal(tt_json_int(&json, json.root, "above", &whole), TT_ERR_DATA);
    assert_int_equal(tt_json_int(&json, json.root, "below", &whole), TT_ERR_DATA);
    assert_int_equal(tt_json_int(&json, json.root, "none", &whole), TT_ERR_DATA);
    assert_non_null(
        strstr(tt_error_last()->message,
               "must be an integer, not 1000000000000000019884624838656, which is beyond 64 bits"));
    assert_int_equal(tt_json_double(&json, json.root, "none", &real), TT_OK);
    assert_true(real == 1000000000000000019884624838656.0);
    static const char *const infinite[] = {"nan", "inf", "over"};
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(tt_json_double(&json, json.root, infinite[i], &real), TT_ERR_DATA);
        assert_non_null(strstr(tt_error_last()->message, "must be a finite number, not "));
    }
    assert_true(real == 1000000000000000019884624838656.0);
    assert_written(
        json.root,
        "{\"max\": 9223372036854775807, \"min\": -9223372036854775808, \"above\": 9223372036854775808, "
        "\"below\": -9223372036854775809, \"none\": 1000000000000000019884624838656, \"nan\": NaN, "
        "\"inf\": -Infinity, \"over\": Infinity, \"zero\": 0, \"real\": 1.5}");
    tt_json_deinit(&json);
}

/* A vocabulary as large as the largest: each key is found, a missing one is not, and one that is there twice
 * is named. */
static void large_objects(void **state)
{
    (void)state;
    enum { COUNT = 256000 };
    struct tt_str text = {0};
    struct tt_json json = {0};
    char key[32];
    assert_int_equal(tt_str_append_char(&text, '{'), TT_OK);
    for (int i = 0; i < COUNT; i++) assert_int_equal(tt_str_printf(&text, "\"word%d\": %d,\n", i, i), TT_OK);
    size_t open = text.bytes;
    assert_int_equal(tt_str_append_text(&text, "\"last\": 0}"), TT_OK);
    assert_int_equal(tt_json_parse(text.data, text.bytes, "vocabulary", &json), TT_OK);
    assert_int_equal(tt_json_count(json.root), COUNT + 1);
    for (int i = 0; i < COUNT; i++) {
        snprintf(key, sizeof key, "word%d", i);
        if (tt_json_integer(tt_json_get(json.root, key)) != i ||
            !tt_json_is_integer(tt_json_get(json.root, key)))
            fail_msg("'%s' is not found", key);
    }
    assert_null(tt_json_get(json.root, "word"));
    tt_json_deinit(&json);
    text.bytes = open;
    assert_int_equal(tt_str_append_text(&text, "\"word77\": 0}"), TT_OK);
    assert_int_equal(tt_json_parse(text.data, text.bytes, "vocabulary", &json), TT_ERR_DATA);
    assert_non_null(strstr(tt_error_last()->message, "line 256001, column 1 (byte"));
    assert_non_null(strstr(tt_error_last()->message, "duplicate key \"word77\""));
    tt_str_deinit(&text);
}

static void made_and_changed(void **state)
{
    (void)state;
    uint64_t live = tt_alloc_live();
    struct tt_json_value *object = tt_json_new_object();
    char key[32];
    for (int i = 0; i < 1000; i++) {
        snprintf(key, sizeof key, "k%d", i);
        assert_int_equal(tt_json_set(object, key, tt_json_new_integer(i)), 0);
    }
    assert_int_equal(tt_json_set(object, "k5", tt_json_new_string("five")), 0);
    for (int i = 0; i < 1000; i++) {
        if (i % 100 == 0) continue;
        snprintf(key, sizeof key, "k%d", i);
        assert_true(tt_json_remove(object, key));
        assert_false(tt_json_remove(object, key));
    }
    assert_int_equal(tt_json_count(object), 10);
    assert_int_equal(tt_json_integer(tt_json_get(object, "k900")), 900);
    assert_string_equal(tt_json_member(object, 1).key.data, "k100");
    struct tt_json_value *copy = tt_json_copy(object);
    assert_true(tt_json_equal(copy, object));
    assert_int_equal(tt_json_set(copy, "k100", tt_json_new_real(0.5)), 0);
    assert_false(tt_json_equal(copy, object));
    tt_json_release(copy);
    tt_json_release(object);
    /* A parsed document refuses changes until it is made editable; what was to be added is given back. */
    struct tt_json json = parse("{\"a\": [1, {\"b\": 1e999}]}");
    assert_int_equal(tt_json_set(json.root, "c", tt_json_new_null()), -1);
    assert_int_equal(tt_json_make_editable(&json), TT_OK);
    assert_int_equal(tt_json_set(json.root, "c", tt_json_new_string("bad \xff byte")), 0);
    assert_written(json.root, "{\"a\": [1, {\"b\": Infinity}], \"c\": \"bad \\ufffd byte\"}");
    tt_json_deinit(&json);
    assert_int_equal(tt_alloc_live(), live);
}

static struct tt_json_value *packed(void)
{
    struct tt_json_value *list = tt_json_new_list(), *kept = tt_json_new_integer(7);
    (void)tt_json_append(list, tt_json_new_bool(true));
    struct tt_json_value *value =
        tt_json_pack("{s:s, s:[i, I, f, f, b, n], s:o, s:O, s:{}}", "text", "t\n", "list", -1,
                     (int64_t)1 << 40, 0.1, (double)NAN, 2, "taken", list, "copied", kept, "empty");
    tt_json_release(kept);
    return value;
}

static void packs(void **state)
{
    (void)state;
    struct tt_json_value *value = packed();
    assert_written(
        value,
        "{\"text\": \"t\\n\", \"list\": [-1, 1099511627776, 0.1, null, true, null], \"taken\": [true], "
        "\"copied\": 7, \"empty\": {}}");
    tt_json_release(value);
    uint64_t live = tt_alloc_live();
    for (uint64_t nth = 1;; nth++) {
        tt_alloc_fail_at(nth);
        value = packed();
        tt_alloc_fail_at(0);
        tt_json_release(value);
        assert_int_equal(tt_alloc_live(), live);
        if (value != NULL) break;
    }
}

static void zero_bytes(void **state)
{
    (void)state;
    static const char text[] = "{\"\\u0000\": 5, \"a\\u0000b\": \"c\\u0000d\"}";
    struct tt_json json = {0};
    assert_int_equal(tt_json_parse(text, sizeof text - 1, "config.json", &json), TT_ERR_DATA);
    struct tt_json_source source = {.text = text, .bytes = sizeof text - 1, .origin = "x", .nul = true};
    assert_int_equal(tt_json_parse_source(&source, &json), TT_OK);
    assert_int_equal(tt_json_count(json.root), 2);
    assert_int_equal(tt_json_member(json.root, 0).key.bytes, 1);
    assert_int_equal(tt_json_span(tt_json_member(json.root, 1).value).bytes, 3);
    /* No C string, so that nobody takes "c" for the whole. */
    assert_null(tt_json_text(tt_json_member(json.root, 1).value));
    assert_null(tt_json_get(json.root, "a"));
    tt_json_deinit(&json);
}

/* Texts with their length: zero bytes are written, bytes that are no UTF-8 become U+FFFD, and both read back. */
static void texts_of_any_bytes(void **state)
{
    static const char bytes[] = "a\0b\x80"
                                "c\xC3";
    const struct tt_span text = {bytes, sizeof bytes - 1}, key = {"k\0", 2}, other = {"k\0x", 3};
    struct tt_json_value *object =
        tt_json_pack("{s:t, s:[t]}", "text", text, "list", (struct tt_span){NULL, 0});
    struct tt_json json = {0};
    struct tt_str written = {0};
    (void)state;
    assert_int_equal(tt_json_set_span(object, key, tt_json_new_integer(1)), 0);
    assert_int_equal(tt_json_set_span(object, other, tt_json_new_text(text)), 0);
    assert_int_equal(tt_json_set_span(object, key, tt_json_new_integer(2)), 0);
    static const char wanted[] =
        "{\"text\": \"a\\u0000b\\ufffdc\\ufffd\", \"list\": [\"\"], \"k\\u0000\": 2, "
        "\"k\\u0000x\": \"a\\u0000b\\ufffdc\\ufffd\"}";
    assert_written(object, wanted);
    assert_int_equal(tt_json_write(object, 0, false, &written), TT_OK);
    assert_int_equal(tt_json_parse(written.data, written.bytes, "text", &json), TT_ERR_DATA);
    tt_json_deinit(&json);
    assert_int_equal(tt_json_parse_nul(written.data, written.bytes, "text", &json), TT_OK);
    assert_true(tt_json_equal(json.root, object));
    struct tt_json_value *copy = tt_json_new_object();
    assert_int_equal(tt_json_update(copy, object), 0);
    assert_true(tt_json_equal(copy, object));
    tt_error_clear();
    tt_json_deinit(&json);
    tt_str_deinit(&written);
    tt_json_release(copy);
    tt_json_release(object);
}

/* A document that nobody looked at while it was made: small and indexed objects, lists, copies, replaced members. */
static struct tt_json_value *make_blindly(void)
{
    struct tt_json_value *object = tt_json_new_object(), *list = tt_json_new_list(),
                         *many = tt_json_new_object();
    char key[16];
    for (int i = 0; i < 40; i++) {
        snprintf(key, sizeof key, "k%d", i);
        tt_json_set(many, key, tt_json_new_integer(i));
    }
    for (int i = 0; i < 5; i++) tt_json_append(list, tt_json_pack("{s:i, s:[f, n]}", "i", i, "more", 0.5));
    tt_json_append_copy(list, many);
    tt_json_set(object, "text", tt_json_new_string("before"));
    tt_json_set(object, "text", tt_json_new_string("after"));
    tt_json_set(object, "list", list);
    tt_json_set(object, "packed", tt_json_pack("{s:o, s:b}", "many", many, "true", 1));
    struct tt_json_value *copy = tt_json_copy(object);
    tt_json_update(copy, object);
    tt_json_set(object, "copy", copy);
    return object;
}

/* Without memory at any one allocation there is no document, or the whole one. */
static void a_document_keeps_its_first_failure(void **state)
{
    struct tt_str whole = {0};
    struct tt_json_value *value = make_blindly();
    uint64_t nth = 1;
    bool failed = true;
    (void)state;
    assert_int_equal(tt_json_write(value, 0, false, &whole), TT_OK);
    assert_ptr_equal(tt_json_finish(value), value);
    tt_json_release(value);
    for (; failed; nth++) {
        struct tt_str text = {0};
        uint64_t live = tt_alloc_live();
        tt_alloc_fail_at(nth);
        value = make_blindly();
        failed = tt_alloc_fail_at(0) == 0; /* not reached otherwise */
        tt_status status = tt_json_write(value, 0, false, &text);
        assert_int_equal(status, failed ? TT_ERR_MEMORY : TT_OK);
        if (!failed) assert_string_equal(tt_str_text(&text), tt_str_text(&whole));
        value = tt_json_finish(value);
        assert_int_equal(value == NULL, failed);
        tt_json_release(value);
        tt_str_deinit(&text);
        assert_int_equal(tt_alloc_live(), live);
    }
    assert_true(nth > 200);
    assert_int_equal(tt_json_write(NULL, 0, false, &whole), TT_ERR_MEMORY);
    tt_error_clear();
    tt_str_deinit(&whole);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers),
        cmocka_unit_test(large_objects),
        cmocka_unit_test(made_and_changed),
        cmocka_unit_test(packs),
        cmocka_unit_test(zero_bytes),
        cmocka_unit_test(texts_of_any_bytes),
        cmocka_unit_test(a_document_keeps_its_first_failure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
