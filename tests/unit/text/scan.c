/* text/scan.h against the patterns themselves: random texts of characters that the patterns tell apart. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/rng.h"
#include "text/pattern.h"
#include "text/scan.h"
#include "text/unicode.h"

static const char *const alphabet[] = {
    "a",          "s",          "S",    "T",      "r",          "e",      "E",      "v",      "l",
    "L",          "d",          "M",    "\u017f", "\u00e9",     "\u4e00", "\u0436", "\u01c5", "\u02b0",
    "\U00031350", "0",          "7",    "\u0663", "\u00bd",     "\u2167", " ",      " ",      " ",
    "\n",         "\r",         "\t",   "\v",     "\xC2\x85",   "\u00a0", "\u2028", "\u3000", "\u180e",
    "\u200b",     "'",          "'",    "\u2019", ".",          "!",      "-",      "_",      "\u0301",
    "\u20ac",     "\U0001f600", "\x01", "\u0e33", "\U0001e030",
};

static void compare(enum tt_scan scan, const struct tt_pattern *pattern, struct tt_pattern_runner *runner,
                    const struct tt_str *text)
{
    struct tt_pattern_iterator it = tt_pattern_matches(text->data, text->bytes);
    size_t at = 0, start, end;
    bool found;
    while (at < text->bytes) {
        size_t next = tt_scan_next(scan, text->data, text->bytes, at);
        assert_int_equal(tt_pattern_next(pattern, runner, &it, &start, &end, &found), TT_OK);
        if (!found || start != at || end != next) {
            fail_msg("scan %d of '%s': piece at %zu ends at %zu, the pattern's at %zu", scan, text->data, at,
                     next, end);
        }
        at = next;
    }
    assert_int_equal(tt_pattern_next(pattern, runner, &it, &start, &end, &found), TT_OK);
    assert_false(found);
}

static void random_texts(void **state)
{
    (void)state;
    enum { TEXTS = 20000, LENGTH = 24 };
    for (enum tt_scan scan = TT_SCAN_GPT2; scan <= TT_SCAN_QWEN2; scan++) {
        const char *source = tt_scan_pattern(scan);
        struct tt_pattern *pattern = NULL;
        struct tt_pattern_runner *runner = NULL;
        struct tt_str text = {0};
        assert_int_equal(tt_pattern_compile(source, strlen(source), &pattern), TT_OK);
        assert_int_equal(tt_pattern_runner_create(&runner), TT_OK);
        struct tt_rng rng = tt_rng_derive_index(tt_rng_make(7), (uint64_t)scan);
        for (uint64_t i = 0; i < TEXTS; i++) {
            struct tt_rng draws = tt_rng_derive_index(rng, i);
            uint64_t length = 1 + tt_rng_below(draws, 0, LENGTH);
            tt_str_clear(&text);
            for (uint64_t k = 1; k <= length; k++) {
                uint64_t letter = tt_rng_below(draws, k, sizeof alphabet / sizeof alphabet[0]);
                assert_int_equal(tt_str_append_text(&text, alphabet[letter]), TT_OK);
            }
            compare(scan, pattern, runner, &text);
        }
        tt_str_deinit(&text);
        tt_pattern_destroy(pattern);
        tt_pattern_runner_destroy(runner);
    }
}

static void every_character(void **state)
{
    (void)state;
    for (enum tt_scan scan = TT_SCAN_GPT2; scan <= TT_SCAN_QWEN2; scan++) {
        const char *source = tt_scan_pattern(scan);
        struct tt_pattern *pattern = NULL;
        struct tt_pattern_runner *runner = NULL;
        struct tt_str text = {0};
        assert_int_equal(tt_pattern_compile(source, strlen(source), &pattern), TT_OK);
        assert_int_equal(tt_pattern_runner_create(&runner), TT_OK);
        for (int32_t code = 1; code < 0x110000; code++) {
            if (code >= 0xD800 && code < 0xE000) continue;
            char encoded[5] = "";
            tt_utf8_encode(code, encoded);
            tt_str_clear(&text);
            assert_int_equal(tt_str_printf(&text, "a%s%s1 %s-", encoded, encoded, encoded), TT_OK);
            compare(scan, pattern, runner, &text);
        }
        tt_str_deinit(&text);
        tt_pattern_destroy(pattern);
        tt_pattern_runner_destroy(runner);
    }
}

static void known_patterns(void **state)
{
    (void)state;
    for (enum tt_scan scan = TT_SCAN_GPT2; scan <= TT_SCAN_QWEN2; scan++) {
        const char *source = tt_scan_pattern(scan);
        assert_int_equal(tt_scan_of_pattern(source, strlen(source)), scan);
        assert_int_equal(tt_scan_of_pattern(source, strlen(source) - 1), TT_SCAN_NONE);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_texts),
        cmocka_unit_test(every_character),
        cmocka_unit_test(known_patterns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
