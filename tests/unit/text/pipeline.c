/* text/pipeline.h: steps of tokenizer.json that the reference library fails on, or decides by offsets that
 * are not kept here, are refused when the file is read; their neighbours are not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/error.h"
#include "text/tokenizer.h"

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
    static const char prepended[] = "may take away what Prepend has written";
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
    check("{\"type\": \"NFKC\"}", AFTER_DIGITS("never"), NULL);
    check("{\"type\": \"Lowercase\"}", AFTER_DIGITS("first"), NULL);
    check("null", AFTER_DIGITS("first"), NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(empty_matches),
        cmocka_unit_test(metaspace_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
