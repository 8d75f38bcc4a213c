/* text/pipeline.h: steps of tokenizer.json that the reference library fails on, or decides by offsets that
 * are not kept here, are refused when the file is read; their neighbours are not. No step makes more of a
 * text than the limit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/error.h"
#include "text/tokenizer_impl.h"

#define REGEX(pattern, content)                                                                              \
    "{\"type\": \"Replace\", \"pattern\": {\"Regex\": \"" pattern "\"}, \"content\": \"" content "\"}"
#define TEXT(pattern, content)                                                                               \
    "{\"type\": \"Replace\", \"pattern\": {\"String\": \"" pattern "\"}, \"content\": \"" content "\"}"
#define LIST(steps) "{\"type\": \"Sequence\", \"normalizers\": [" steps "]}"
#define PREPEND "{\"type\": \"Prepend\", \"prepend\": \"\u2581\"}"
#define STRIP "{\"type\": \"Strip\", \"strip_left\": true, \"strip_right\": true}"
#define METASPACE(scheme)                                                                                    \
    "{\"type\": \"Metaspace\", \"replacement\": \"\u2581\", \"prepend_scheme\": \"" scheme "\"}"
#define AFTER_DIGITS(scheme)                                                                                 \
    "{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Digits\", \"individual_digits\": "            \
    "true}, " METASPACE(scheme) "]}"

/* `part` is in the message, NULL when the tokenizer loads. */
static void check(const char *normalizer, const char *pretokenizer, const char *part)
{
    struct tt_str json = {0};
    struct tt_tokenizer *tokenizer = NULL;
    assert_int_equal(
        tt_str_printf(&json,
                      "{\"normalizer\": %s, \"pre_tokenizer\": %s, \"model\": {\"type\": \"BPE\", "
                      "\"vocab\": {\"a\": 0}, \"merges\": []}}",
                      normalizer, pretokenizer),
        TT_OK);
    tt_status status = tt_tokenizer_parse(json.data, json.bytes, "test.json", &tokenizer);
    if (status != (part == NULL ? TT_OK : TT_ERR_UNSUPPORTED))
        fail_msg("%s: %s", json.data, tt_status_name(status));
    if (part != NULL && strstr(tt_error_last()->message, part) == NULL)
        fail_msg("'%s' not in '%s'", part, tt_error_last()->message);
    tt_tokenizer_destroy(tokenizer);
    tt_str_deinit(&json);
}

/* tokenizers 0.23.3 panics when an empty match is replaced by something. */
static void empty_matches(void **state)
{
    (void)state;
    static const char part[] = "may match no character";
    check(REGEX("x*", "-"), "null", part);
    check(REGEX("^", "\u2581"), "null", part);
    check(TEXT("", "-"), "null", part);
    check(LIST(STRIP ", " REGEX("a|", "b")), "null", part);
    check(REGEX("x*", ""), "null", NULL);
    check(TEXT("", ""), "null", NULL);
    check(REGEX("x+", "-"), "null", NULL);
}

static void metaspace_first(void **state)
{
    (void)state;
    static const char prepended[] = "may remove the output of Prepend";
    static const char several[] = "may make several characters of one";
    check(LIST(PREPEND ", " STRIP), METASPACE("first"), prepended);
    check(LIST(PREPEND ", {\"type\": \"StripAccents\"}"), METASPACE("first"), prepended);
    check(LIST(PREPEND ", " TEXT("ab", "c")), METASPACE("first"), prepended);
    check(LIST(PREPEND ", " TEXT("a", "")), METASPACE("first"), prepended);
    check(LIST(PREPEND ", " REGEX("a", "b")), METASPACE("first"), prepended);
    check(LIST(PREPEND ", " STRIP), METASPACE("always"), NULL);
    check(LIST(STRIP ", " PREPEND ", " TEXT(" ", "\u2581") ", {\"type\": \"NFC\"}"), METASPACE("first"),
          NULL);
    check(PREPEND, AFTER_DIGITS("first"), several);
    check("{\"type\": \"NFKC\"}", AFTER_DIGITS("first"), several);
    check("{\"type\": \"Nmt\"}", AFTER_DIGITS("first"), several);
    check("{\"type\": \"NFKC\"}", AFTER_DIGITS("never"), NULL);
    check("{\"type\": \"Lowercase\"}", AFTER_DIGITS("first"), NULL);
    check("null", AFTER_DIGITS("first"), NULL);
}

/* Steps that make `each` bytes of each of COUNT pieces of text, and `once` more. The limit that this fits is
 * enough, one less is not; and a limit far below ends the step early: of 16 MiB, no more than the limit is
 * ever kept. */
static void limit_of_steps(void **state)
{
    (void)state;
    enum { COUNT = 1000 };
    static const char bytes[] =
        "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"use_regex\": false}";
    static const char two[] = "{\"type\": \"Sequence\", \"pretokenizers\": [%s, %s]}";
    char twice[400];
    snprintf(twice, sizeof twice, two, bytes, bytes);
    const struct {
        const char *normalizer, *pretokenizer, *piece;
        size_t each, once;
    } cases[] = {
        {"{\"type\": \"NFKD\"}", "null", "\uFDFA", 33, 0},
        {"{\"type\": \"NFKC\"}", "null", "\uFDFA", 33, 0},
        {"{\"type\": \"NFD\"}", "null", "\uAC01", 9, 0},
        {"{\"type\": \"NFC\"}", "null", "\uAC01", 3, 0},
        {"{\"type\": \"Prepend\", \"prepend\": \"abc\"}", "null", "x", 1, 3},
        {TEXT("x", "0123456789"), "null", "x", 10, 0},
        {REGEX("x", "0123456789"), "null", "x", 10, 0},
        {LIST(PREPEND ", " TEXT("x", "01234")), "null", "x", 5, 3},
        {"{\"type\": \"ByteLevel\"}", "null", " ", 2, 0},
        {"{\"type\": \"Lowercase\"}", "null", "\u0130", 3, 0},
        {"{\"type\": \"BertNormalizer\", \"clean_text\": false, \"handle_chinese_chars\": true, "
         "\"strip_accents\": false, \"lowercase\": false}",
         "null", "\u4E00", 5, 0},
        {"null",
         "{\"type\": \"Metaspace\", \"replacement\": \"\u2582\", \"prepend_scheme\": \"never\", \"split\": "
         "false}",
         " ", 3, 0},
        {"null", METASPACE("always"), "x", 1, 3},
        {"null", twice, " ", 2, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct tt_str json = {0}, text = {0};
        struct tt_tokenizer *tokenizer = NULL;
        struct tt_tokenizer_scratch *scratch = NULL;
        struct tt_ids ids = {0};
        assert_int_equal(tt_str_printf(&json,
                                       "{\"normalizer\": %s, \"pre_tokenizer\": %s, \"model\": {\"type\": "
                                       "\"BPE\", \"vocab\": {\"a\": 0}, \"merges\": []}}",
                                       cases[i].normalizer, cases[i].pretokenizer),
                         TT_OK);
        assert_int_equal(tt_tokenizer_parse(json.data, json.bytes, "test.json", &tokenizer), TT_OK);
        assert_int_equal(tt_tokenizer_scratch_create(tokenizer, &scratch), TT_OK);
        for (int j = 0; j < COUNT; j++) assert_int_equal(tt_str_append_text(&text, cases[i].piece), TT_OK);
        size_t limit = COUNT * cases[i].each + cases[i].once;
        for (size_t less = 0; less < 2; less++) {
            tokenizer->normalizers.limit = tokenizer->pretokenizers.limit = limit - less;
            tt_status status = tt_tokenizer_encode(tokenizer, scratch, text.data, text.bytes, false, &ids);
            if (status != (less == 0 ? TT_OK : TT_ERR_DATA)) fail_msg("case %zu, %zu less", i, less);
        }
        assert_non_null(strstr(tt_error_last()->message, "bytes of the text"));
        while (text.bytes < 16 << 20) assert_int_equal(tt_str_append_text(&text, cases[i].piece), TT_OK);
        assert_int_equal(tt_tokenizer_encode(tokenizer, scratch, text.data, text.bytes, false, &ids),
                         TT_ERR_DATA);
        assert_true(scratch->normal[0].bytes <= limit && scratch->normal[1].bytes <= limit);
        assert_true(scratch->pieces[0].bytes <= limit && scratch->pieces[1].bytes <= limit);
        tt_ids_deinit(&ids);
        tt_tokenizer_scratch_destroy(scratch);
        tt_tokenizer_destroy(tokenizer);
        tt_str_deinit(&text);
        tt_str_deinit(&json);
    }
}

static struct tt_tokenizer *parse_ok(const char *normalizer, const char *decoder, const char *added)
{
    struct tt_str json = {0};
    struct tt_tokenizer *tokenizer = NULL;
    assert_int_equal(tt_str_printf(&json,
                                   "{\"normalizer\": %s, \"pre_tokenizer\": null, \"decoder\": %s, "
                                   "\"added_tokens\": [%s], \"model\": {\"type\": \"BPE\", \"vocab\": "
                                   "{\"a\": 0, \"zz\": 1}, \"merges\": []}}",
                                   normalizer, decoder, added),
                     TT_OK);
    if (tt_tokenizer_parse(json.data, json.bytes, "test.json", &tokenizer) != TT_OK) tokenizer = NULL;
    tt_str_deinit(&json);
    return tokenizer;
}

#define TEN "aaaaaaaaaa"
#define TIMES_TEN TEXT("a", TEN)
#define TIMES_THOUSAND TIMES_TEN ", " TIMES_TEN ", " TIMES_TEN
#define DECODER(steps) "{\"type\": \"Sequence\", \"decoders\": [" steps "]}"

/* Replacements one after the other multiply a text: what they may make depends on its length. */
static void steps_that_multiply(void **state)
{
    (void)state;
    struct tt_tokenizer *thousand = parse_ok(LIST(TIMES_THOUSAND), DECODER(TIMES_THOUSAND), "");
    struct tt_tokenizer *million =
        parse_ok(LIST(TIMES_THOUSAND ", " TIMES_THOUSAND), DECODER(TIMES_THOUSAND ", " TIMES_THOUSAND), "");
    struct tt_tokenizer_scratch *scratch = NULL;
    struct tt_ids ids = {0};
    struct tt_str text = {0};
    const int32_t some[3] = {0};
    assert_non_null(thousand);
    assert_non_null(million);
    assert_int_equal(tt_tokenizer_scratch_create(thousand, &scratch), TT_OK);
    assert_int_equal(tt_tokenizer_encode(thousand, scratch, TEN, 10, false, &ids), TT_OK);
    assert_int_equal(ids.count, 10000);
    assert_int_equal(tt_tokenizer_decode(thousand, some, 3, false, &text), TT_OK);
    assert_int_equal(text.bytes, 3000);
    tt_tokenizer_scratch_destroy(scratch);
    assert_int_equal(tt_tokenizer_scratch_create(million, &scratch), TT_OK);
    assert_int_equal(tt_tokenizer_encode(million, scratch, TEN, 10, false, &ids), TT_ERR_DATA);
    assert_non_null(strstr(tt_error_last()->message, "makes more than 1048896 bytes of the text"));
    assert_true(scratch->normal[0].capacity + scratch->normal[1].capacity < 8 << 20);
    assert_int_equal(tt_tokenizer_decode(million, some, 3, false, &text), TT_ERR_DATA);
    assert_non_null(strstr(tt_error_last()->message, "makes more than 1048672 bytes of the text"));
    tt_tokenizer_scratch_destroy(scratch);
    tt_tokenizer_destroy(thousand);
    tt_tokenizer_destroy(million);
    tt_ids_deinit(&ids);
    tt_str_deinit(&text);
    static const char added[] = "{\"id\": 1, \"content\": \"zz\", \"special\": false, \"normalized\": true, "
                                "\"single_word\": false, \"lstrip\": false, \"rstrip\": false}";
    assert_null(parse_ok(LIST(TEXT("z", TEN) ", " TIMES_THOUSAND ", " TIMES_TEN), "null", added));
    assert_non_null(strstr(tt_error_last()->message, "makes 200000 bytes of the added token 'zz'"));
}

static void limits_by_length(void **state)
{
    (void)state;
    assert_int_equal(pipeline_limit(0), 1 << 20);
    assert_int_equal(pipeline_limit(1 << 20), 33 << 20);
    assert_int_equal(pipeline_limit(16 << 20), 256 << 20);
    assert_int_equal(pipeline_limit(100 << 20), 400 << 20);
    assert_int_equal(pipeline_limit(TEXT_BYTES_MAX), TEXT_BYTES_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(empty_matches),    cmocka_unit_test(metaspace_first),
        cmocka_unit_test(limit_of_steps),   cmocka_unit_test(steps_that_multiply),
        cmocka_unit_test(limits_by_length),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
