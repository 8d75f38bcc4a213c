/* Numbers as text: what is a number, the shortest text that reads back, and no look at the locale. */
#include <locale.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/number.h"
#include "base/rng.h"

static void prefixes(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t bytes;
        double value;
    } cases[] = {
        {"1", 1, 1},   {"-2.5e3x", 6, -2500}, {"+.5", 3, 0.5},  {"1.", 2, 1},           {"1e", 1, 1},
        {"1e+", 1, 1}, {"0x10", 1, 0},        {"-0x1p3", 2, 0}, {"1,5", 1, 1},          {"2GiB", 1, 2},
        {"", 0, 0},    {".", 0, 0},           {"-", 0, 0},      {"e5", 0, 0},           {"inf", 0, 0},
        {"nan", 0, 0}, {" 1", 0, 0},          {"+-1", 0, 0},    {"1e400", 5, INFINITY},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        double value = 0;
        size_t bytes = tt_parse_double_prefix(cases[i].text, &value);
        if (bytes != cases[i].bytes || value != cases[i].value)
            fail_msg("'%s': %zu bytes, %g", cases[i].text, bytes, value);
    }
    double value = 7;
    assert_true(tt_parse_double("1e-4", &value) && value == 1e-4);
    assert_false(tt_parse_double("1e-4 ", &value));
    assert_false(tt_parse_double("1e400", &value));
    assert_false(tt_parse_double("", &value));
    assert_true(value == 1e-4);
}

/* The right side is Python 3.11's repr(), without the ".0" of whole numbers. */
static void shortest_texts(void **state)
{
    (void)state;
    static const struct {
        double value;
        const char *text;
    } cases[] = {
        {3e-5, "3e-05"},
        {0.0001, "0.0001"},
        {0.05, "0.05"},
        {1.0, "1"},
        {-2.5, "-2.5"},
        {0.1 + 0.2, "0.30000000000000004"},
        {1e15, "1000000000000000"},
        {1e16, "1e+16"},
        {123456789012345680.0, "1.2345678901234568e+17"},
        {5e-324, "5e-324"},
        {1.7976931348623157e308, "1.7976931348623157e+308"},
        {9007199254740993.0, "9007199254740992"},
        {0.0, "0"},
        {-0.0, "-0"},
        {INFINITY, "inf"},
        {-INFINITY, "-inf"},
        {NAN, "nan"},
    };
    char text[TT_DOUBLE_TEXT_BYTES];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_string_equal(tt_format_double(cases[i].value, text, sizeof text), cases[i].text);
    for (uint64_t i = 0; i < 20000; i++) {
        uint64_t bits = tt_rng_u64(tt_rng_make(9), i);
        double value, again;
        memcpy(&value, &bits, sizeof value);
        if (!isfinite(value)) continue;
        tt_format_double(value, text, sizeof text);
        assert_true(tt_parse_double(text, &again));
        assert_memory_equal(&value, &again, sizeof value);
    }
}

/* A locale with a decimal comma in this thread: made from any that the machine has; without one the C
 * library's own functions would pass too, so the test says that it cannot run. */
static void comma_locale(void **state)
{
    (void)state;
    static const char *const names[] = {"de_DE.UTF-8", "de_DE.utf8", "de_DE", "fr_FR.UTF-8", "tt_comma"};
    locale_t comma = (locale_t)0;
    for (size_t i = 0; i < sizeof names / sizeof names[0] && comma == (locale_t)0; i++)
        comma = newlocale(LC_ALL_MASK, names[i], (locale_t)0);
    if (comma == (locale_t)0) {
        print_message("no locale with a decimal comma is installed\n");
        skip();
    }
    locale_t before = uselocale(comma);
    char plain[32], ours[32], shortest[TT_DOUBLE_TEXT_BYTES];
    double value = 0;
    snprintf(plain, sizeof plain, "%.2f", 2.5);
    tt_snprintf(ours, sizeof ours, "%.2f", 2.5);
    tt_format_double(2.5, shortest, sizeof shortest);
    bool parsed = tt_parse_double("2.5", &value);
    bool still_comma = uselocale((locale_t)0) == comma;
    uselocale(before);
    freelocale(comma);
    assert_string_equal(plain, "2,50");
    assert_string_equal(ours, "2.50");
    assert_string_equal(shortest, "2.5");
    assert_true(parsed && value == 2.5);
    assert_true(still_comma);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prefixes),
        cmocka_unit_test(shortest_texts),
        cmocka_unit_test(comma_locale),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
