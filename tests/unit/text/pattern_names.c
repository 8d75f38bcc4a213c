/* text/pattern.h: every name of a set of characters, by one character of each general category. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "text/pattern.h"

static const struct {
    const char *category, *character;
} samples[] = {
    {"Lu", "A"},      {"Ll", "a"},      {"Lt", "\u01c5"}, {"Lm", "\u02b0"}, {"Lo", "\u4e00"},
    {"Mn", "\u0300"}, {"Mc", "\u0903"}, {"Me", "\u20dd"}, {"Nd", "1"},      {"Nl", "\u2160"},
    {"No", "\u00b2"}, {"Pc", "_"},      {"Pd", "-"},      {"Ps", "("},      {"Pe", ")"},
    {"Pi", "\u00ab"}, {"Pf", "\u00bb"}, {"Po", "!"},      {"Sm", "+"},      {"Sc", "$"},
    {"Sk", "^"},      {"So", "\u00a9"}, {"Zs", " "},      {"Zl", "\u2028"}, {"Zp", "\u2029"},
    {"Cc", "\x01"},   {"Cf", "\u00ad"}, {"Co", "\ue000"},
};
enum { SAMPLES = sizeof samples / sizeof samples[0] };

static bool matches(const char *pattern, const char *text)
{
    struct tt_pattern *compiled = NULL;
    struct tt_pattern_runner *runner = NULL;
    bool found;
    size_t start, end;
    if (tt_pattern_compile(pattern, strlen(pattern), &compiled) != TT_OK)
        fail_msg("%s: %s", pattern, tt_error_last()->message);
    assert_int_equal(tt_pattern_runner_create(&runner), TT_OK);
    struct tt_pattern_iterator it = tt_pattern_matches(text, strlen(text));
    assert_int_equal(tt_pattern_next(compiled, runner, &it, &start, &end, &found), TT_OK);
    tt_pattern_destroy(compiled);
    tt_pattern_runner_destroy(runner);
    return found;
}

static void expect(const char *format, const char *name, const char *wanted)
{
    char pattern[80], got[3 * SAMPLES + 1] = "";
    snprintf(pattern, sizeof pattern, format, name);
    for (size_t i = 0; i < SAMPLES; i++)
        if (matches(pattern, samples[i].character))
            strcat(strcat(got, got[0] != '\0' ? " " : ""), samples[i].category);
    if (strcmp(got, wanted) != 0) fail_msg("%s: '%s', not '%s'", pattern, got, wanted);
}

/* Names of one set, each behind a blank. */
static void expect_names(const char *names, const char *wanted)
{
    char name[40];
    while (*names != '\0') {
        size_t bytes = strcspn(names, " ");
        assert_in_range(bytes, 1, sizeof name - 1);
        memcpy(name, names, bytes);
        name[bytes] = '\0';
        expect("\\p{%s}", name, wanted);
        names += bytes + (names[bytes] == ' ');
    }
}

static void properties(void **state)
{
    (void)state;
    static const char *const rows[][2] = {
        {"L Letter", "Lu Ll Lt Lm Lo"},
        {"Lu Uppercase_Letter", "Lu"},
        {"Ll Lowercase_Letter", "Ll"},
        {"Lt Titlecase_Letter", "Lt"},
        {"Lm Modifier_Letter", "Lm"},
        {"Lo Other_Letter", "Lo"},
        {"LC Cased_Letter", "Lu Ll Lt"},
        {"M Mark Combining_Mark", "Mn Mc Me"},
        {"Mn Nonspacing_Mark", "Mn"},
        {"Mc Spacing_Mark", "Mc"},
        {"Me Enclosing_Mark", "Me"},
        {"N Number", "Nd Nl No"},
        {"Nd Decimal_Number Digit", "Nd"},
        {"Nl Letter_Number", "Nl"},
        {"No Other_Number", "No"},
        {"P Punctuation Punct", "Pc Pd Ps Pe Pi Pf Po"},
        {"Pc Connector_Punctuation", "Pc"},
        {"Pd Dash_Punctuation", "Pd"},
        {"Ps Open_Punctuation", "Ps"},
        {"Pe Close_Punctuation", "Pe"},
        {"Pi Initial_Punctuation", "Pi"},
        {"Pf Final_Punctuation", "Pf"},
        {"Po Other_Punctuation", "Po"},
        {"S Symbol", "Sm Sc Sk So"},
        {"Sm Math_Symbol", "Sm"},
        {"Sc Currency_Symbol", "Sc"},
        {"Sk Modifier_Symbol", "Sk"},
        {"So Other_Symbol", "So"},
        {"Z Separator", "Zs Zl Zp"},
        {"Zs Space_Separator", "Zs"},
        {"Zl Line_Separator", "Zl"},
        {"Zp Paragraph_Separator", "Zp"},
        {"C Other", "Cc Cf Co"},
        {"Cc Control Cntrl", "Cc"},
        {"Cf Format", "Cf"},
        {"Co Private_Use", "Co"},
        {"ASCII", "Lu Ll Nd Pc Pd Ps Pe Po Sm Sc Sk Zs Cc"},
        {"Blank", "Zs"},
        {"Space White_Space", "Zs Zl Zp"},
        {"XDigit", "Lu Ll Nd"},
        {"Alpha Alphabetic", "Lu Ll Lt Lm Lo Mc Nl"},
        {"Alnum", "Lu Ll Lt Lm Lo Mc Nd Nl"},
        {"Upper Uppercase", "Lu Nl"},
        {"Lower Lowercase", "Ll Lm"},
        {"Word", "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc"}, /* outside of brackets with those of Latin 1 */
        {"Han Hani Ideographic Unified_Ideograph", "Lo"},
        {"Emoji", "Nd So"},
        {"Emoji_Component", "Nd"},
        {"Emoji_Presentation Emoji_Modifier Emoji_Modifier_Base Regional_Indicator Variation_Selector "
         "Join_Control",
         ""},
        {"Extended_Pictographic", "So"},
        {"Quotation_Mark", "Pi Pf"},
        {"Any", "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Co"},
        {"Latin Latn", "Lu Ll Lt Lm Nl"},
        {"Devanagari Deva", "Mc"},
        {"Common Zyyy", "Nd No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) expect_names(rows[i][0], rows[i][1]);
}

static void brackets(void **state)
{
    (void)state;
    static const char *const rows[][2] = {
        {"alpha", "Lu Ll Lt Lm Lo Mc Nl"},
        {"alnum", "Lu Ll Lt Lm Lo Mc Nd Nl"},
        {"blank", "Zs"},
        {"cntrl", "Cc"},
        {"digit", "Nd"},
        {"lower", "Ll Lm"},
        {"upper", "Lu Nl"},
        {"punct", "Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So"},
        {"space", "Zs Zl Zp"},
        {"xdigit", "Lu Ll Nd"},
        {"word", "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl Pc"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) expect("[[:%s:]]", rows[i][0], rows[i][1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(properties), cmocka_unit_test(brackets)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
