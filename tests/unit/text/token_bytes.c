/* text/token_bytes.h: the bytes of tokens by each kind of decoder, that they add up to the decoded text, and decoders
 * whose tokens have no bytes of their own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "support/must.h"
#include "text/token_bytes.h"

static struct tt_tokenizer *parse(const char *vocab, const char *decoder)
{
    char text[2048];
    struct tt_tokenizer *tokenizer = NULL;
    snprintf(
        text, sizeof text,
        "{\"added_tokens\": [], \"normalizer\": null, \"pre_tokenizer\": null, \"post_processor\": null, "
        "\"decoder\": %s, \"model\": {\"type\": \"BPE\", \"byte_fallback\": true, \"vocab\": {%s}, "
        "\"merges\": []}}",
        decoder, vocab);
    test_must(tt_tokenizer_parse(text, strlen(text), "test", &tokenizer));
    return tokenizer;
}

/* The bytes of tokens 0, 1, 2 ... are `wanted`; one after the other they are the decoded text. */
static void check(const char *vocab, const char *decoder, const char *const *wanted, int32_t count,
                  bool drops)
{
    struct tt_tokenizer *tokenizer = parse(vocab, decoder);
    struct tt_str bytes = {0}, all = {0}, text = {0};
    int32_t ids[16];
    bool drops_space;
    test_must(tt_token_bytes_check(tokenizer, &drops_space));
    assert_int_equal(drops_space, drops);
    for (int32_t id = 0; id < count; id++) {
        tt_str_clear(&bytes);
        test_must(tt_token_bytes(tokenizer, id, &bytes));
        assert_string_equal(tt_str_text(&bytes), wanted[id]);
        test_must(tt_str_append(&all, tt_str_text(&bytes), bytes.bytes));
        ids[id] = id;
    }
    test_must(tt_tokenizer_decode(tokenizer, ids, (size_t)count, false, &text));
    assert_string_equal(tt_str_text(&text), tt_str_text(&all) + (drops && *tt_str_text(&all) == ' '));
    tt_str_deinit(&bytes);
    tt_str_deinit(&all);
    tt_str_deinit(&text);
    tt_tokenizer_destroy(tokenizer);
}

static void test_decoders(void **state)
{
    static const char *const levels[] = {" a", "\xC3", "\xA9", "\xE2\x96\x81"};
    static const char *const pieces[] = {" a", "b ", "\xC3", "\xA9", "<0x4"};
    (void)state;
    /* U+2581 is not in ByteLevel's alphabet: the token is text as it is. */
    check("\"\\u0120a\": 0, \"\\u00c3\": 1, \"\\u00a9\": 2, \"\\u2581\": 3", "{\"type\": \"ByteLevel\"}",
          levels, 4, false);
    static const char vocab[] = "\"\\u2581a\": 0, \"b\\u2581\": 1, \"<0xC3>\": 2, \"<0xA9>\": 3, \"<0x4\": 4";
    check(vocab,
          "{\"type\": \"Sequence\", \"decoders\": [{\"type\": \"Replace\", \"pattern\": {\"String\": "
          "\"\\u2581\"}, "
          "\"content\": \" \"}, {\"type\": \"ByteFallback\"}, {\"type\": \"Fuse\"}, {\"type\": \"Strip\", "
          "\"content\": "
          "\" \", \"start\": 1, \"stop\": 0}]}",
          pieces, 5, true);
    check(vocab,
          "{\"type\": \"Sequence\", \"decoders\": [{\"type\": \"Replace\", \"pattern\": {\"String\": "
          "\"\\u2581\"}, "
          "\"content\": \" \"}, {\"type\": \"ByteFallback\"}, {\"type\": \"Fuse\"}]}",
          pieces, 5, false);
    static const char *const words[] = {" a", "b ", "<0xC3>"};
    check(vocab, "{\"type\": \"Metaspace\", \"replacement\": \"\\u2581\", \"prepend_scheme\": \"always\"}",
          words, 3, true);
    check(vocab,
          "{\"type\": \"Metaspace\", \"replacement\": \"\\u2581\", \"prepend_scheme\": \"never\", "
          "\"add_prefix_space\": false}",
          words, 3, false);
}

static void test_refusals(void **state)
{
    static const char *const decoders[] = {
        "{\"type\": \"WordPiece\", \"prefix\": \"##\", \"cleanup\": true}",
        "{\"type\": \"BPEDecoder\", \"suffix\": \"</w>\"}",
        "{\"type\": \"Strip\", \"content\": \" \", \"start\": 1, \"stop\": 0}",
        "{\"type\": \"Replace\", \"pattern\": {\"String\": \"a\"}, \"content\": \" \"}",
        "{\"type\": \"Sequence\", \"decoders\": [{\"type\": \"Fuse\"}, {\"type\": \"ByteLevel\"}]}",
    };
    bool drops;
    (void)state;
    for (size_t i = 0; i < sizeof decoders / sizeof *decoders; i++) {
        struct tt_tokenizer *tokenizer = parse("\"a\": 0", decoders[i]);
        assert_int_equal(tt_token_bytes_check(tokenizer, &drops), TT_ERR_UNSUPPORTED);
        assert_non_null(
            strstr(tt_error_last()->message, "the decoder of this tokenizer joins tokens to words"));
        tt_tokenizer_destroy(tokenizer);
    }
    struct tt_tokenizer *tokenizer = parse("\"a\": 0", "null");
    assert_int_equal(tt_token_bytes_check(tokenizer, &drops), TT_ERR_UNSUPPORTED);
    assert_non_null(strstr(tt_error_last()->message, "this tokenizer has no decoder"));
    tt_tokenizer_destroy(tokenizer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_decoders),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
