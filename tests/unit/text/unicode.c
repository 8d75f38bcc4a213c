/* text/unicode.h: which bytes are UTF-8, replacement of what is not, normal forms, categories of new
 * characters. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/clock.h"
#include "text/unicode.h"

static void validity(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t valid;
        const char *lossy; /* with '?' for U+FFFD */
    } cases[] = {
        {"", 0, ""},
        {"plain text of more than eight bytes", 35, "plain text of more than eight bytes"},
        {"\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80", 9, "\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80"},
        {"12345678\x80", 8, "12345678?"},
        {"a\xC0\x80", 1, "a??"},           /* overlong */
        {"a\xE0\x9F\xBF", 1, "a???"},      /* overlong */
        {"a\xED\xA0\x80z", 1, "a???z"},    /* a surrogate */
        {"a\xF4\x90\x80\x80", 1, "a????"}, /* above U+10FFFF */
        {"a\xF5", 1, "a?"},
        {"a\xE2\x82", 1, "a?"}, /* cut off: one maximal part */
        {"a\xF0\x9F\x98z", 1, "a?z"},
        {"\xF0\x9F\xF0\x9F\x98\x80", 0, "?\xF0\x9F\x98\x80"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct tt_str out = {0}, expected = {0};
        size_t bytes = strlen(cases[i].text);
        size_t valid = tt_utf8_invalid_at(cases[i].text, bytes);
        if (valid != cases[i].valid) fail_msg("case %zu: valid up to %zu", i, valid);
        assert_int_equal(tt_utf8_append_lossy(&out, cases[i].text, bytes), TT_OK);
        for (const char *c = cases[i].lossy; *c != 0; c++) {
            assert_int_equal(tt_str_append(&expected, *c == '?' ? "\xEF\xBF\xBD" : c, *c == '?' ? 3 : 1),
                             TT_OK);
        }
        assert_string_equal(tt_str_text(&out), tt_str_text(&expected));
        tt_str_deinit(&out);
        tt_str_deinit(&expected);
    }
}

static void encode_and_decode(void **state)
{
    (void)state;
    for (int32_t code = 0; code < 0x110000; code++) {
        if (code >= 0xD800 && code < 0xE000) continue;
        char text[5] = "x";
        size_t bytes = tt_utf8_encode(code, text + 1), length = 0;
        assert_int_equal(tt_utf8_invalid_at(text + 1, bytes), bytes);
        assert_int_equal(tt_utf8_length((unsigned char)text[1]), bytes);
        assert_int_equal(tt_utf8_decode(text + 1, &length), code);
        assert_int_equal(length, bytes);
        assert_int_equal(tt_utf8_decode_before(text, bytes + 1, &length), code);
        assert_int_equal(length, bytes);
    }
}

static void normal_forms(void **state)
{
    (void)state;
    static const struct {
        const char *text, *forms[4]; /* NFC, NFD, NFKC, NFKD */
    } cases[] = {
        {"", {"", "", "", ""}},
        {"plain", {"plain", "plain", "plain", "plain"}},
        {"e\u0301", {"\u00e9", "e\u0301", "\u00e9", "e\u0301"}},
        {"x\u00c5ngstr\u00f6m \u212b",
         {"x\u00c5ngstr\u00f6m \u00c5", "xA\u030angstro\u0308m A\u030a", "x\u00c5ngstr\u00f6m \u00c5",
          "xA\u030angstro\u0308m A\u030a"}},
        /* marks out of order; the lower one has the smaller class */
        {"q\u0307\u0323", {"q\u0323\u0307", "q\u0323\u0307", "q\u0323\u0307", "q\u0323\u0307"}},
        {"\u1e9b\u0323", {"\u1e9b\u0323", "\u017f\u0323\u0307", "\u1e69", "s\u0323\u0307"}},
        {"\ufb01\u2460\u00bd", {"\ufb01\u2460\u00bd", "\ufb01\u2460\u00bd", "fi11\u20442", "fi11\u20442"}},
        {"\uac01\ud4db",
         {"\uac01\ud4db", "\u1100\u1161\u11a8\u1111\u1171\u11b6", "\uac01\ud4db",
          "\u1100\u1161\u11a8\u1111\u1171\u11b6"}},
        {"\u1100\u1161\u11a8", {"\uac01", "\u1100\u1161\u11a8", "\uac01", "\u1100\u1161\u11a8"}},
        /* excluded from composition */
        {"\u0958", {"\u0915\u093c", "\u0915\u093c", "\u0915\u093c", "\u0915\u093c"}},
        /* a new decomposition that the reference's tables do not have */
        {"\u32ff", {"\u32ff", "\u32ff", "\u32ff", "\u32ff"}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        for (int form = 0; form < 4; form++) {
            struct tt_str out = {0};
            tt_status status = tt_unicode_normalize((enum tt_normal_form)form, cases[i].text,
                                                    strlen(cases[i].text), SIZE_MAX, &out);
            assert_int_equal(status, TT_OK);
            if (strcmp(tt_str_text(&out), cases[i].forms[form]) != 0) fail_msg("case %zu, form %d", i, form);
            tt_str_deinit(&out);
        }
    }
}

/* Half a million combining marks in alternating order: sorting them by insertion would take hours. */
static void many_marks(void **state)
{
    (void)state;
    struct tt_str text = {0}, out = {0};
    enum { PAIRS = 250000 };
    assert_int_equal(tt_str_append_text(&text, "q"), TT_OK);
    for (int i = 0; i < PAIRS; i++) assert_int_equal(tt_str_append_text(&text, "\u0307\u0323"), TT_OK);
    double start = tt_clock_seconds();
    assert_int_equal(tt_unicode_normalize(TT_NFC, text.data, text.bytes, SIZE_MAX, &out), TT_OK);
    assert_true(tt_clock_seconds() - start < 20);
    assert_int_equal(out.bytes, text.bytes);
    assert_memory_equal(out.data, "q\u0323\u0323\u0323", 7);
    assert_memory_equal(out.data + out.bytes - 4, "\u0307\u0307", 4);
    tt_str_deinit(&text);
    tt_str_deinit(&out);
}

static void properties(void **state)
{
    (void)state;
    assert_int_equal(tt_unicode_category(0x31350), UTF8PROC_CATEGORY_LO); /* Unicode 15 */
    assert_int_equal(tt_unicode_category(0x2EBF0), UTF8PROC_CATEGORY_LO); /* Unicode 15.1 */
    assert_true(tt_unicode_is_number(0x116D0));                           /* Unicode 16 */
    assert_true(tt_unicode_is_number(0xBD) && tt_unicode_is_number(0x2167) && !tt_unicode_is_number('a'));
    static const int32_t spaces[] = {9,      13,     32,     0x85,   0xA0,   0x1680, 0x2000,
                                     0x200A, 0x2028, 0x2029, 0x202F, 0x205F, 0x3000};
    for (size_t i = 0; i < sizeof spaces / sizeof spaces[0]; i++) assert_true(tt_unicode_is_space(spaces[i]));
    assert_false(tt_unicode_is_space(0x180E) || tt_unicode_is_space(0x200B) || tt_unicode_is_space(0xFEFF));
    assert_true(tt_unicode_is_word('_') && tt_unicode_is_word(0x301) && tt_unicode_is_word(0x200D));
    assert_false(tt_unicode_is_word('-') || tt_unicode_is_word(0xB2));
    int32_t lower[2];
    assert_int_equal(tt_unicode_lower(0x130, lower), 2);
    assert_true(lower[0] == 'i' && lower[1] == 0x307);
    assert_true(tt_unicode_lower(0x10D50, lower) == 1 && lower[0] == 0x10D70);
    assert_true(tt_unicode_lower('A', lower) == 1 && lower[0] == 'a');
}

/* The 104 code points of status F in CaseFolding.txt and 54 with a partner newer than Unicode 14. */
static void case_folding(void **state)
{
    (void)state;
    int unusual = 0;
    for (int32_t code = 0; code < 0x110000; code++) unusual += !tt_unicode_folds_simply(code, code);
    assert_int_equal(unusual, 104 + 54);
    assert_true(tt_unicode_folds_simply(0xE0, 0x12F) && !tt_unicode_folds_simply(0xC0, 0xDF));
    assert_true(tt_unicode_folds_together('s', 0x17F) && tt_unicode_folds_together('S', 'T'));
    assert_true(tt_unicode_folds_together('f', 'I') && tt_unicode_folds_together(0x3B1, 0x399));
    assert_true(tt_unicode_folds_together('A', 0x2BE) && tt_unicode_folds_together(0x544, 0x546));
    assert_false(tt_unicode_folds_together('l', 'l') || tt_unicode_folds_together('t', 's'));
    assert_false(tt_unicode_folds_together('\'', 's') || tt_unicode_folds_together('r', 'e'));
}

/* A long run without a place to stop at is written in parts; its normal form is that of its pieces, which
 * stand alone. */
static void long_runs(void **state)
{
    (void)state;
    static const char *const pieces[] = {"\uFDFA",       "\uAC01\u1112\u1161\u11AB", "\u1E9B\u0323\u0307",
                                         "\u0958\u0301", "\u00e9\u0323\u0345",       "\u0627\u0653\u0655"};
    for (size_t i = 0; i < sizeof pieces / sizeof pieces[0]; i++) {
        for (int form = TT_NFC; form <= TT_NFKD; form++) {
            struct tt_str text = {0}, once = {0}, all = {0};
            assert_int_equal(tt_unicode_normalize((enum tt_normal_form)form, pieces[i], strlen(pieces[i]),
                                                  SIZE_MAX, &once),
                             TT_OK);
            for (int j = 0; j < 9000; j++) assert_int_equal(tt_str_append_text(&text, pieces[i]), TT_OK);
            assert_int_equal(
                tt_unicode_normalize((enum tt_normal_form)form, text.data, text.bytes, SIZE_MAX, &all),
                TT_OK);
            assert_int_equal(all.bytes, 9000 * once.bytes);
            for (size_t j = 0; j < 9000; j++)
                assert_memory_equal(all.data + j * once.bytes, once.data, once.bytes);
            tt_str_deinit(&text);
            tt_str_deinit(&once);
            tt_str_deinit(&all);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(case_folding), cmocka_unit_test(validity),  cmocka_unit_test(encode_and_decode),
        cmocka_unit_test(normal_forms), cmocka_unit_test(long_runs), cmocka_unit_test(many_marks),
        cmocka_unit_test(properties),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
