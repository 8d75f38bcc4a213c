/* text/jinja/jinja.h: every row of its tables of names: what the sandbox hides, what is refused, tests, and the letters
 * of strftime_now. The expected values are those of Jinja2 3.1.6 and of Python. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "text/jinja/jinja.h"

static struct tt_jinja_date date = {2024, 2, 3, 4, 5, 6};

/* The output of the template, or the message of its refusal; valid until the next call. */
static const char *render(const char *template)
{
    static char text[700];
    struct tt_jinja *jinja = NULL;
    struct tt_jinja_output output = {0};
    const struct tt_jinja_source source = {.text = template, .bytes = strlen(template), .name = "t.jinja"};
    tt_status status = tt_jinja_parse(&source, &jinja);
    if (status == TT_OK) status = tt_jinja_render(jinja, &(struct tt_jinja_input){.date = date}, &output);
    snprintf(text, sizeof text, "%s", status == TT_OK ? output.text : tt_error_last()->message);
    tt_jinja_output_deinit(&output);
    tt_jinja_destroy(jinja);
    return text;
}

/* Calls `check` with each of the names, which a blank separates. */
static void each(const char *names, void (*check)(const char *of, const char *name), const char *of)
{
    char name[40];
    while (*names != '\0') {
        size_t bytes = strcspn(names, " ");
        assert_in_range(bytes, 1, sizeof name - 1);
        memcpy(name, names, bytes);
        name[bytes] = '\0';
        check(of, name);
        names += bytes + (names[bytes] == ' ');
    }
}

static void check_hidden(const char *of, const char *name)
{
    char template[200];
    snprintf(template, sizeof template, "{%% set v = %s %%}{{ v.%s is defined }} {{ v['%s'] is defined }}",
             of, name, name);
    if (strcmp(render(template), "False False") != 0) fail_msg("%s: %s", template, render(template));
}

/* Methods that change their object, and what Python's objects have besides. */
static void hidden(void **state)
{
    (void)state;
    each("append clear pop reverse insert sort extend remove __class__ __init__", check_hidden, "[1]");
    each("clear pop popitem setdefault update __class__ __len__", check_hidden, "{'a': 1}");
    each("__class__ __add__", check_hidden, "'a'");
    /* A key of that name is an item, and no attribute. */
    assert_string_equal(render("{% set v = {'update': 1} %}{{ v.update is defined }} {{ v['update'] }}"),
                        "False 1");
}

static void check_refused(const char *of, const char *name)
{
    char template[200], wanted[80];
    snprintf(template, sizeof template, "{%% macro m() %%}{%% endmacro %%}{%% set v = %s %%}{{ v.%s }}", of,
             name);
    snprintf(wanted, sizeof wanted, "the attribute '%s' of '", name);
    if (strstr(render(template), wanted) == NULL) fail_msg("%s: %s", template, render(template));
}

/* Attributes of Python that are neither hidden nor served. */
static void refused(void **state)
{
    (void)state;
    static const char *const rows[][2] = {
        {"1", "real imag numerator denominator conjugate bit_length bit_count to_bytes from_bytes "
              "as_integer_ratio "
              "is_integer hex fromhex"},
        {"'a'",
         "encode format maketrans translate format_map casefold isnumeric isidentifier isdigit expandtabs "
         "unescape striptags escape"},
        {"{}", "fromkeys"},
        {"dict", "fromkeys"},
        {"range(2)", "start stop step count index"},
        {"{}.keys()", "isdisjoint mapping"},
        {"'a'|map('upper')", "send throw close gi_frame gi_running gi_code gi_yieldfrom"},
        {"m", "name arguments catch_kwargs catch_varargs caller explicit_caller"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) each(rows[i][1], check_refused, rows[i][0]);
}

/* A letter for each value: T where it passes. */
static void expect_tests(const char *name, const char *argument, const char *const *values,
                         const char *expected)
{
    char template[200], got[40] = "";
    for (size_t i = 0; expected[i] != '\0'; i++) {
        snprintf(template, sizeof template, "{{ 'T' if [%s]|select('%s'%s%s)|list else 'F' }}", values[i],
                 name, argument[0] != '\0' ? ", " : "", argument);
        snprintf(got + i, sizeof got - i, "%.20s", render(template));
    }
    if (strcmp(got, expected) != 0) fail_msg("%s: %s, not %s", name, got, expected);
}

static void tests_without_arguments(void **state)
{
    (void)state;
    static const char *const values[] = {"missing", "none", "'a'", "'A'",  "{}",       "true",      "false",
                                         "1.5",     "1",    "[]",  "(1,)", "range(2)", "''|escape", "dict"};
    static const char *const rows[][2] = {
        {"defined", "FTTTTTTTTTTTTT"},  {"undefined", "TFFFFFFFFFFFFF"}, {"none", "FTFFFFFFFFFFFF"},
        {"string", "FFTTFFFFFFFFTF"},   {"mapping", "FFFFTFFFFFFFFF"},   {"boolean", "FFFFFTTFFFFFFF"},
        {"float", "FFFFFFFTFFFFFF"},    {"integer", "FFFFFFFFTFFFFF"},   {"number", "FFFFFTTTTFFFFF"},
        {"true", "FFFFFTFFFFFFFF"},     {"false", "FFFFFFTFFFFFFF"},     {"iterable", "TFTTTFFFFTTTTF"},
        {"sequence", "TFTTTFFFFTTTTF"}, {"callable", "TFFFFFFFFFFFFT"},  {"escaped", "FFFFFFFFFFFFTF"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        expect_tests(rows[i][0], "", values, rows[i][1]);
    static const char *const words[] = {"'a'", "'A'", "'aB'", "''", "'1'"};
    expect_tests("lower", "", words, "TFFFF");
    expect_tests("upper", "", words, "FTFFF");
    static const char *const numbers[] = {"0", "1", "2", "-1"};
    expect_tests("even", "", numbers, "TFTF");
    expect_tests("odd", "", numbers, "FTFT");
    static const char *const names[] = {"'upper'", "'defined'", "'trim'"};
    expect_tests("filter", "", names, "TFT");
    expect_tests("test", "", names, "TTF");
}

static void tests_with_an_argument(void **state)
{
    (void)state;
    static const char *const values[] = {"1", "2", "3", "4"};
    static const char *const rows[][2] = {
        {"divisibleby", "FTFT"}, {"equalto", "FTFF"}, {"eq", "FTFF"}, {"==", "FTFF"},
        {"ne", "TFTT"},          {"!=", "TFTT"},      {"lt", "TFFF"}, {"lessthan", "TFFF"},
        {"<", "TFFF"},           {"le", "TTFF"},      {"<=", "TTFF"}, {"gt", "FFTT"},
        {"greaterthan", "FFTT"}, {">", "FFTT"},       {"ge", "FTTT"}, {">=", "FTTT"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        expect_tests(rows[i][0], "2", values, rows[i][1]);
    expect_tests("in", "[1, 4]", values, "TFFT");
    static const char *const ones[] = {"1", "2", "1.0", "true"};
    expect_tests("sameas", "1", ones, "TFFF");
}

/* Days on both sides of a week's border, a leap day, and the last one of a year. */
static void letters_of_dates(void **state)
{
    (void)state;
    static const struct {
        int year, month, day;
        const char *expected;
    } rows[] = {
        {2024, 2, 3, "04 05 034 6 6 24 20  3|Sat Saturday Feb February AM 04"},
        {2024, 2, 4, "05 05 035 7 0 24 20  4|Sun Sunday Feb February AM 04"},
        {2024, 2, 5, "05 06 036 1 1 24 20  5|Mon Monday Feb February AM 04"},
        {2023, 1, 1, "01 00 001 7 0 23 20  1|Sun Sunday Jan January AM 04"},
        {2024, 12, 31, "52 53 366 2 2 24 20 31|Tue Tuesday Dec December AM 04"},
        {2000, 2, 29, "09 09 060 2 2 00 20 29|Tue Tuesday Feb February AM 04"},
        {1999, 1, 3, "01 00 003 7 0 99 19  3|Sun Sunday Jan January AM 04"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        date = (struct tt_jinja_date){rows[i].year, rows[i].month, rows[i].day, 4, 5, 6};
        assert_string_equal(render("{{ strftime_now('%U %W %j %u %w %y %C %e|%a %A %b %B %p %I') }}"),
                            rows[i].expected);
    }
    date = (struct tt_jinja_date){2024, 2, 3, 16, 5, 6};
    assert_string_equal(render("{{ strftime_now('%F %D %x %T %X %R %r') }}"),
                        "2024-02-03 02/03/24 02/03/24 16:05:06 16:05:06 16:05 04:05:06 PM");
    assert_string_equal(render("{{ strftime_now('%c|%h %-d %-m %-I %-H %-M %-S %-j|%Z%z|%%|%n%t') }}"),
                        "Sat Feb  3 16:05:06 2024|Feb 3 2 4 16 5 6 34||%|\n\t");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hidden),
        cmocka_unit_test(refused),
        cmocka_unit_test(tests_without_arguments),
        cmocka_unit_test(tests_with_an_argument),
        cmocka_unit_test(letters_of_dates),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
