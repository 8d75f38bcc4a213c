/* text/pattern.h: Oniguruma's meaning on PCRE2. The expected matches are those of Oniguruma 6.9. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/clock.h"
#include "text/pattern.h"

/* Matches of the pattern, each followed by '/'. */
static void assert_matches(const char *pattern, const char *text, const char *expected)
{
    struct tt_pattern *compiled = NULL;
    struct tt_pattern_runner *runner = NULL;
    struct tt_str got = {0};
    if (tt_pattern_compile(pattern, strlen(pattern), &compiled) != TT_OK) {
        fail_msg("%s: %s", pattern, tt_error_last()->message);
    }
    assert_int_equal(tt_pattern_runner_create(&runner), TT_OK);
    struct tt_pattern_iterator it = tt_pattern_matches(text, strlen(text));
    bool found;
    size_t start, end;
    for (;;) {
        assert_int_equal(tt_pattern_next(compiled, runner, &it, &start, &end, &found), TT_OK);
        if (!found) break;
        assert_int_equal(tt_str_append(&got, text + start, end - start), TT_OK);
        assert_int_equal(tt_str_append_char(&got, '/'), TT_OK);
    }
    if (strcmp(tt_str_text(&got), expected) != 0)
        fail_msg("%s: '%s', not '%s'", pattern, tt_str_text(&got), expected);
    tt_str_deinit(&got);
    tt_pattern_destroy(compiled);
    tt_pattern_runner_destroy(runner);
}

static void meaning(void **state)
{
    (void)state;
    static const struct {
        const char *pattern, *text, *expected;
    } cases[] = {
        {"a|b", "xaby", "a/b/"},
        {"x*", "axxb", "/xx//"}, /* no empty match right after a match */
        {"\\s+", "a \t\u00a0\u3000b\u180ec", " \t\u00a0\u3000/"},
        {"\\S", "\u180e ", "\u180e/"},
        {"[\\s\\S]", "\u180e ", "\u180e/ /"},
        {"\\h+", "xfF9g", "fF9/"},
        {"\\v", "\n\v\f", "\v/"},
        {"\\w+", "a\u0301_\u203f1\u00bd-", "a\u0301_\u203f1\u00bd/"},
        {"[\\w]+", "1\u00bd", "1/"},
        {"[\\W_]+", "a\u00bd_b", "\u00bd_/"},
        {"\\W", "\u00bd-", "-/"},
        {"\\p{L}+", "a\u2167\u4e00\U00031350", "a/\u4e00\U00031350/"},
        {"\\p{^L}|\\P{L}", "a1", "1/"},
        {"\\p{Uppercase_Letter}\\p{ll}", "aBc", "Bc/"},
        {"\\p{Han}+", "a\u4e00\u3005\u30ab\u30fc", "\u4e00\u3005/"},
        {"[\\p{L}&&[^\\p{Latin}]]+", "ab\u0436\u4e00c", "\u0436\u4e00/"},
        {"[a-z&&[^aeiou]]+", "hello", "h/ll/"},
        {"[^a-z&&[^0-9]]+", "ab1-", "1-/"},
        {"[[a-c][x]]+", "axz", "ax/"},
        {"[a[^b]]", "abc", "a/c/"},
        {" ?[^(\\s|[.,!?])]+", "a (b) c|d.", "a/b/ c/d/"}, /* a bracket in brackets nests */
        {"[[:punct:]]+", "a+-$", "+-$/"},
        {"\\p{Punct}+", "a+-$", "-/"},
        {"[[:^alpha:]]", "a1", "1/"},
        {"[]a]+", "x]a", "]a/"},
        {"[a-]+", "b-a", "-a/"},
        {"[\\]\\-\\\\]+", "]-\\", "]-\\/"},
        {"[\\x{4e00}-\\x{9fff}]", "\u4e2d", "\u4e2d/"},
        {"\\u4e2d\\x41\\t", "\u4e2dA\t", "\u4e2dA\t/"},
        {"[0-9]{2}+", "12345", "1234/"}, /* a repetition, not possessive */
        {"\\d{1,3}+1", "2221", "2221/"},
        {"\\d++1", "2221", ""},
        {"a{,2}b", "aaab", "aab/"},
        {"a{2}?b", "aab b", "aab/b/"}, /* optional, not lazy */
        {"a{1,2}?", "aa", "a/a/"},
        {"a{2", "a{2", "a{2/"},
        {"a**b", "aab", "aab/"},
        {"a(?i)b|c", "aB aC", "aB/aC/"}, /* the flag takes the alternative along */
        {"(?i:'s|'LL)", "'S 'ſ 'll", "'S/'ſ/'ll/"},
        {"(?m:a.b)|c.d", "a\nb c\nd", "a\nb/"},
        {"^.", "ab\ncd", "a/c/"},
        {".$", "ab\ncd\n", "b/d/"},
        {"\\Aa|b\\z", "ab\nab", "a/b/"},
        {"(?<=a)b|c(?=d)|e(?!f)|(?<!x)g", "ab cd ef eg xg", "b/c/e/g/"},
        {"(?<n>[ab])\\k<n>", "ab aa", "aa/"},
        {"([ab])\\1", "ab bb", "bb/"},
        {"(?>a+)b|(?#note)c", "aab c", "aab/c/"},
        {"\\bfoo\\B.", "foox foo", "foox/"},
        {"\\R", "a\r\nb\n\u2028", "\r\n/\n/\u2028/"},
        {"#+ !\"'", "## !\"'", "## !\"'/"},
        {"}]", "}]", "}]/"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_matches(cases[i].pattern, cases[i].text, cases[i].expected);
    }
}

/* Sets whose tables in PCRE2 may be older than the reference's, and case. */
static void unicode_and_case(void **state)
{
    (void)state;
    static const struct {
        const char *pattern, *text, *expected;
    } cases[] = {
        /* All code points that differ are in tests/golden/tokenizer. */
        {"[[:alpha:]]+", "\u0363\u0364-\u0897", "\u0363\u0364/\u0897/"},
        {"[[:lower:]]+", "a\u10fc\ua7f2B", "a\u10fc\ua7f2/"},
        {"\\p{Emoji}+", "\U0001f6dc\U0001f600a", "\U0001f6dc\U0001f600/"},
        {"\\p{Mn}|\\p{Mc}b", "\U0001171ea\U0001171eb", "\U0001171eb/"},
        {"[^\\p{Mn}a]|[\\P{Mn}]x", "a\U0001171e", "\U0001171e/"},
        {"\\p{C}", "\u0897\u200b", "\u200b/"},
        {"\\P{C}", "\u0897\u200b", "\u0897/"},
        {"\\p{Hani}+|\\p{Latn}+", "\U00031350\ua7cb1", "\U00031350/\ua7cb/"},
        /* Case: sets outside of brackets stay as they are, in brackets they take in the other cases. */
        {"(?i)\\p{Lu}+|k", "aBC\u212aD", "BC\u212aD/"},
        {"(?i:[k-m]+)\\p{Ll}", "KL\u212amK", "KL\u212am/"},
        {"(?i)[^\\p{L}0-9]+", "a\u0345-1", "-/"},
        {"(?i:a)s(?i:s)", "AsS as", "AsS/"},
        {"(?i)a(?-i:ss|\u00df)A", "aSSA assa a\u00dfA", "assa/a\u00dfA/"},
        {"(?i)s|s+t|s.s", "St", "S/"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_matches(cases[i].pattern, cases[i].text, cases[i].expected);
    }
}

static void literal(void **state)
{
    (void)state;
    struct tt_pattern *pattern = NULL;
    struct tt_pattern_runner *runner = NULL;
    size_t start, end;
    bool found;
    assert_int_equal(tt_pattern_compile_literal("a.", 2, &pattern), TT_OK);
    assert_int_equal(tt_pattern_runner_create(&runner), TT_OK);
    struct tt_pattern_iterator it = tt_pattern_matches("aba.a.", 6);
    assert_int_equal(tt_pattern_next(pattern, runner, &it, &start, &end, &found), TT_OK);
    assert_true(found && start == 2 && end == 4);
    assert_int_equal(tt_pattern_next(pattern, runner, &it, &start, &end, &found), TT_OK);
    assert_true(found && start == 4 && end == 6);
    assert_int_equal(tt_pattern_next(pattern, runner, &it, &start, &end, &found), TT_OK);
    assert_false(found);
    tt_pattern_destroy(pattern);
    tt_pattern_runner_destroy(runner);
}

static void refusals(void **state)
{
    (void)state;
    static const char *const patterns[] = {
        "(",
        ")",
        "[",
        "[]",
        "[a",
        "*a",
        "a|*",
        "(?",
        "(?<a",
        "(?~a)",
        "(?(1)a)",
        "(*FAIL)",
        "(?x: a)",
        "\\p{Nothing}",
        "\\p{L",
        "\\pL",
        "\\xFF",
        "\\x{110000}",
        "\\uD800",
        "\\u12",
        "\\g<1>",
        "\\K",
        "\\C",
        "[[:none:]]",
        "[\\d-x]",
        "[b-a]",
        "\\",
        "[\\",
        "a{5,2}",
        "(?<=a+)b",
        "\\1",
        "(?R)",
        "\\X",
        "\\p{Cn}",
        "\\p{Zzzz}",
        "\\p{Dash}",
        "[[:graph:]]",
        /* Where case is ignored Oniguruma folds letters to several. */
        "(?i)\u00df",
        "(?i)ss",
        "(?i:S)(?i)\u017fs",
        "(?i)(?:s)s",
        "(?i)f(?#note)i",
        "(?i:\ufb03)",
        "(?i)[\u00df]",
        "(?i)[\u00c0-\u00ff]",
        "(?i)[\\p{L}]",
        "(?i)[[:lower:]]",
        "(?i)[^\\W]",
        "(?i)[^\\P{L}]",
        "(?i)[a[^b]]",
        "(?i)[a-z&&[^b]]",
        "(?i)(a)\\1",
        "a(?i)|\u0130",
        "(?i)\U00010d50",
        "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[a",
    };
    for (size_t i = 0; i < sizeof patterns / sizeof patterns[0]; i++) {
        struct tt_pattern *pattern = NULL;
        tt_status status = tt_pattern_compile(patterns[i], strlen(patterns[i]), &pattern);
        if (status != TT_ERR_UNSUPPORTED) fail_msg("%s: %s", patterns[i], tt_status_name(status));
    }
    static char long_pattern[70000];
    memset(long_pattern, 'a', sizeof long_pattern);
    struct tt_pattern *pattern = NULL;
    assert_int_equal(tt_pattern_compile(long_pattern, sizeof long_pattern, &pattern), TT_ERR_UNSUPPORTED);
}

/* What is refused says so by a name that a reader of the pattern knows. */
static void messages(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"\\X", "\\X (grapheme clusters depend on the version of Unicode) at byte 2"},
        {"\\p{Dash}", "the property 'dash' at byte 8 of a pattern is not supported"},
        {"(?i)\u00df", "a case-insensitive letter that folds to several letters at byte 6"},
        {"(?i)ss", "two case-insensitive letters that one letter folds to at byte 6"},
        {"(?i)[\\p{Lu}]", "a set in case-insensitive brackets at byte 11"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct tt_pattern *pattern = NULL;
        assert_int_equal(tt_pattern_compile(cases[i][0], strlen(cases[i][0]), &pattern), TT_ERR_UNSUPPORTED);
        if (strstr(tt_error_last()->message, cases[i][1]) == NULL)
            fail_msg("%s: %s", cases[i][0], tt_error_last()->message);
    }
}

static void empty_matches(void **state)
{
    (void)state;
    static const struct {
        const char *pattern;
        bool empty;
    } cases[] = {{"x*", true},  {"", true},    {"^", true},   {"(?=a)", true},         {"a|", true},
                 {"\\b", true}, {"x+", false}, {"^a", false}, {"(?<=a)b|c{1,}", false}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct tt_pattern *pattern = NULL;
        assert_int_equal(tt_pattern_compile(cases[i].pattern, strlen(cases[i].pattern), &pattern), TT_OK);
        if (tt_pattern_matches_empty(pattern) != cases[i].empty) fail_msg("%s", cases[i].pattern);
        assert_false(tt_pattern_is_character(pattern));
        tt_pattern_destroy(pattern);
    }
    static const char *const literals[] = {"", "ab", "\u2581", "a"};
    for (size_t i = 0; i < sizeof literals / sizeof literals[0]; i++) {
        struct tt_pattern *pattern = NULL;
        assert_int_equal(tt_pattern_compile_literal(literals[i], strlen(literals[i]), &pattern), TT_OK);
        assert_int_equal(tt_pattern_matches_empty(pattern), i == 0);
        assert_int_equal(tt_pattern_is_character(pattern), i >= 2);
        tt_pattern_destroy(pattern);
    }
}

/* A pattern of exponential effort stops with an error, and soon. */
static void run_away(void **state)
{
    (void)state;
    static const char *const patterns[] = {"(a+)+[bc]", "(?:a|a)*[bc]", "(a+)+\\1[bc]"};
    static char text[2000];
    memset(text, 'a', sizeof text);
    for (size_t i = 0; i < sizeof patterns / sizeof patterns[0]; i++) {
        struct tt_pattern *pattern = NULL;
        struct tt_pattern_runner *runner = NULL;
        size_t start, end;
        bool found;
        assert_int_equal(tt_pattern_compile(patterns[i], strlen(patterns[i]), &pattern), TT_OK);
        assert_int_equal(tt_pattern_runner_create(&runner), TT_OK);
        tt_pattern_runner_reset(runner, sizeof text);
        struct tt_pattern_iterator it = tt_pattern_matches(text, sizeof text);
        double begun = tt_clock_seconds();
        tt_status status = tt_pattern_next(pattern, runner, &it, &start, &end, &found);
        double seconds = tt_clock_seconds() - begun;
        if (status != TT_ERR_DATA) fail_msg("%s: %s", patterns[i], tt_status_name(status));
        if (seconds > 60) fail_msg("%s: %g s", patterns[i], seconds);
        tt_pattern_destroy(pattern);
        tt_pattern_runner_destroy(runner);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(meaning),  cmocka_unit_test(unicode_and_case), cmocka_unit_test(literal),
        cmocka_unit_test(refusals), cmocka_unit_test(messages),         cmocka_unit_test(empty_matches),
        cmocka_unit_test(run_away),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
