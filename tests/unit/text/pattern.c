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

static void assert_pattern_refused(const char *text, const char *message)
{
    struct tt_pattern *pattern = NULL;
    tt_status status = tt_pattern_compile(text, strlen(text), &pattern);
    const char *said = status == TT_OK ? "nothing" : tt_error_last()->message;
    if (status != TT_ERR_UNSUPPORTED || strstr(said, message) == NULL)
        fail_msg("%.100s: %s, not %s", text, said, message);
}

/* What is refused says so by a name that a reader of the pattern knows. */
static const char *const refused[][2] = {
    {"(", "a group without an end"},
    {")", "a closing parenthesis too many at byte 1 of a pattern"},
    {"[", "brackets without an end"},
    {"[]", "empty brackets"},
    {"[a", "brackets without an end"},
    {"*a", "a quantifier without a target"},
    {"a|*", "a quantifier without a target"},
    {"(?", "an unknown kind of group"},
    {"(?<a", "an unusual name"},
    {"(?<\u00e4>b)", "an unusual name"},
    {"(?~a)", "an unknown kind of group"},
    {"(?(1)a)", "an unknown kind of group"},
    {"(*FAIL)", "a callout"},
    {"(?#a", "a comment without an end"},
    {"(?x: a)", "an unknown kind of group"},
    {"(?iiiiiiiiiiiiiiii)a", "too many flags"},
    {"\\p{Nothing}", "the property 'nothing'"},
    {"\\p{L", "a broken name"},
    {"\\p{\u00e4}", "a broken name"},
    {"\\p{L.}", "a broken name"},
    {"\\pL", "a property without braces"},
    {"\\xFF", "an escaped byte above 7F"},
    {"\\x{41 42}", "a list of code points"},
    {"\\x{110000}", "an escape that is no character"},
    {"\\uD800", "an escape that is no character"},
    {"\\u12", "an incomplete escape"},
    {"\\x", "an incomplete escape"},
    {"\\g<1>", "an unknown escape"},
    {"\\K", "an unknown escape"},
    {"\\C", "an unknown escape"},
    {"\\", "an unknown escape"},
    {"[\\g]", "an unknown escape in brackets"},
    {"[\\", "an unknown escape in brackets"},
    {"[[:none:]]", "the property 'none'"},
    {"[\\d-x]", "a range that begins with a set"},
    {"[b-a]", "an empty range"},
    {"a{5,2}", "a repetition from more to less"},
    {"(?<=a+)b", "cannot compile the pattern: lookbehind assertion is not fixed length"},
    {"\\1", "cannot compile the pattern: reference to non-existent subpattern"},
    {"(?R)", "an unknown kind of group"},
    {"\\X", "\\X (grapheme clusters depend on the version of Unicode) at byte 2"},
    {"\\p{Cn}", "the property 'cn'"},
    {"\\p{Zzzz}", "the property 'zzzz'"},
    {"\\p{Dash}", "the property 'dash' at byte 8 of a pattern is not supported"},
    {"[[:graph:]]", "the property 'graph'"},
    {"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[a", "brackets nested too deeply"},
    /* Where case is ignored Oniguruma folds letters to several. */
    {"(?i)\u00df", "a case-insensitive letter that folds to several letters at byte 6"},
    {"(?i)ss", "two case-insensitive letters that one letter folds to at byte 6"},
    {"(?i:S)(?i)\u017fs", "two case-insensitive letters that one letter folds to"},
    {"(?i)(?:s)s", "two case-insensitive letters that one letter folds to"},
    {"(?i)f(?#note)i", "two case-insensitive letters that one letter folds to"},
    {"(?i:\ufb03)", "a case-insensitive letter that folds to several letters"},
    {"(?i)[\u00df]", "a case-insensitive letter that folds to several letters"},
    {"(?i)[\u00c0-\u00ff]", "a case-insensitive letter that folds to several letters"},
    {"(?i)[\\p{L}]", "a set in case-insensitive brackets"},
    {"(?i)[\\p{Lu}]", "a set in case-insensitive brackets at byte 11"},
    {"(?i)[[:lower:]]", "a set in case-insensitive brackets"},
    {"(?i)[^\\W]", "a set in case-insensitive brackets"},
    {"(?i)[^\\P{L}]", "a set in case-insensitive brackets"},
    {"(?i)[a[^b]]", "negated brackets in case-insensitive ones"},
    {"(?i)[a-z&&[^b]]", "a case-insensitive intersection"},
    {"(?i)(a)\\1", "a case-insensitive back reference"},
    {"(?i)(?<a>b)\\k<a>", "a case-insensitive back reference"},
    {"a(?i)|\u0130", "a case-insensitive letter that folds to several letters"},
    {"(?i)\U00010d50", "a case-insensitive letter that folds to several letters"},
};

static void refusals(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++)
        assert_pattern_refused(refused[i][0], refused[i][1]);
    static char text[70000];
    memset(text, 'a', sizeof text - 1);
    assert_pattern_refused(text, "a pattern of 69999 bytes; at most 65536 are read");
    memset(text, '(', 250);
    text[250] = 0;
    assert_pattern_refused(text, "groups nested too deeply");
    for (size_t i = 0; i < 250; i += 5) memcpy(text + i, "(?m)a", 5);
    assert_pattern_refused(strcat(text, "(?m)"), "too many flags");
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
        cmocka_unit_test(refusals), cmocka_unit_test(empty_matches),    cmocka_unit_test(run_away),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
