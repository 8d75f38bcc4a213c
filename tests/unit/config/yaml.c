/* The YAML reader: what it takes, and that hostile files end in one clear error. */
#include <stdarg.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "config/value.h"
#include "config/yaml.h"

static tt_status parse(const char *text, struct tt_yaml *yaml)
{
    return tt_yaml_parse(text, strlen(text), "t.yaml", yaml);
}

static void tree_keeps_texts_and_lines(void **state)
{
    struct tt_yaml yaml;
    (void)state;
    assert_int_equal(
        parse("# c\na: 2e-5\nb: 'x'\n\nc:\n  - 1\n  - {d: e}\nf: |\n  two\n  lines\ng: &h i\n", &yaml),
        TT_OK);
    const struct tt_yaml_node *b = tt_yaml_find(yaml.root, "b"), *c = tt_yaml_find(yaml.root, "c");
    assert_string_equal(tt_yaml_find(yaml.root, "a")->text, "2e-5");
    assert_false(tt_yaml_find(yaml.root, "a")->quoted);
    assert_true(b->quoted);
    assert_int_equal(b->line, 3);
    assert_int_equal(c->kind, TT_YAML_LIST);
    assert_int_equal(c->line, 5);
    assert_string_equal(tt_yaml_find(c->first->next, "d")->text, "e");
    assert_string_equal(tt_yaml_find(yaml.root, "f")->text, "two\nlines\n");
    assert_string_equal(tt_yaml_find(yaml.root, "g")->text, "i");
    assert_null(tt_yaml_find(yaml.root, "z"));
    tt_yaml_deinit(&yaml);
}

static void empty_files_are_empty(void **state)
{
    static const char *const texts[] = {"", "\n", "# only a comment\n", "---\n...\n"};
    (void)state;
    for (size_t i = 0; i < 4; i++) {
        struct tt_yaml yaml;
        assert_int_equal(parse(texts[i], &yaml), TT_OK);
        assert_true(yaml.root == NULL || tt_yaml_is_null(yaml.root));
        tt_yaml_deinit(&yaml);
    }
}

static void assert_refused(const char *text, size_t bytes, const char *message)
{
    struct tt_yaml yaml;
    uint64_t live = tt_alloc_live();
    tt_status status = tt_yaml_parse(text, bytes, "t.yaml", &yaml);
    if (status != TT_ERR_USAGE) fail_msg("status %d for: %.60s", status, text);
    if (strstr(tt_error_last()->message, message) == NULL)
        fail_msg("no '%s' in: %s", message, tt_error_last()->message);
    assert_null(yaml.root);
    assert_int_equal(tt_alloc_live(), live);
}

static void hostile_files_are_refused(void **state)
{
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"a: 1\nb: 2\na: 3\n", "line 3: key 'a' was given before, at line 1"},
        {"a: &a [*a]\n", "no anchor"},
        {"a: 1\n---\nb: 2\n", "line 2: a second document begins"},
        {"a: !!python/object:os.system x\n", "line 1: tags other than !!str"},
        {"a: !!binary aGk=\n", "tags other than !!str"},
        {"[1]: 2\n", "a key must be a word"},
        {"? {a: b}\n: c\n", "a key must be a word"},
        {"a: [1, 2\n", "not valid YAML"},
        {"a: 'x\n", "not valid YAML"},
        {"\ta: 1\n", "not valid YAML"},
        {"a: b: c\n", "not valid YAML"},
        {"a: \"\\0\"\n", "holds a 0 byte"},
        {"\"\\0\": 1\n", "holds a 0 byte"},
        {"a: \xff\xfe\n", "not valid YAML"},
        {"a: \x01\n", "not valid YAML"},
        {"%YAML 9.9\n---\na: 1\n", "not valid YAML"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_refused(cases[i].text, strlen(cases[i].text), cases[i].message);
    assert_refused("a: \0b\n", 6, "not valid YAML");
}

static void sizes_are_limited(void **state)
{
    (void)state;
    char *text = malloc(TT_YAML_BYTES_MAX + 16);
    memset(text, '[', 1000);
    assert_refused(text, 1000, "nested too deeply");
    for (size_t i = 0; i < TT_YAML_BYTES_MAX; i += 2) memcpy(text + i, "a,", 2);
    text[0] = '[';
    text[1] = 'a';
    assert_refused(text, TT_YAML_BYTES_MAX, "too many values");
    assert_refused(text, TT_YAML_BYTES_MAX + 1, "too many for a configuration");
    free(text);
}

static void numbers_format_for_every_reader(void **state)
{
    static const struct {
        double value;
        const char *text;
    } cases[] = {{2e-5, "2.0e-05"},
                 {10, "10"},
                 {0.1, "0.1"},
                 {1.5e-7, "1.5e-07"},
                 {1e20, "1.0e+20"},
                 {-0.25, "-0.25"},
                 {1.0 / 3, "0.3333333333333333"}};
    char text[48];
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        double back;
        assert_string_equal(tt_value_format_double(cases[i].value, text, sizeof text), cases[i].text);
        assert_true(tt_value_parse_double(text, &back) && back == cases[i].value);
    }
}

static void utf8_is_checked(void **state)
{
    (void)state;
    assert_true(tt_value_is_utf8("a\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80"));
    static const char *const bad[] = {"\x80",
                                      "\xc0\x80",
                                      "\xc3",
                                      "\xe2\x82",
                                      "\xed\xa0\x80",
                                      "\xf4\x90\x80\x80",
                                      "\xf8\x88\x80\x80\x80",
                                      "\xe0\x80\x80"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) assert_false(tt_value_is_utf8(bad[i]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tree_keeps_texts_and_lines),      cmocka_unit_test(empty_files_are_empty),
        cmocka_unit_test(hostile_files_are_refused),       cmocka_unit_test(sizes_are_limited),
        cmocka_unit_test(numbers_format_for_every_reader), cmocka_unit_test(utf8_is_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
