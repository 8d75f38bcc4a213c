/* Text that is decoded token by token, where its bytes are no characters. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/utf8.h"
#include "text/tokenizer.h"

/* Bytes that wait too long are shown as broken, and become a character later: what follows is not lost, and all that is
 * shown is UTF-8. */
static void a_stream_of_broken_characters(void **state)
{
    static const char json[] =
        "{\"decoder\": {\"type\": \"Sequence\", \"decoders\": [{\"type\": \"ByteFallback\"}, "
        "{\"type\": \"Fuse\"}]}, \"model\": {\"vocab\": {\"a\": 0, \"<0xE2>\": 1, \"<0x82>\": 2, "
        "\"<0xAC>\": 3, \"b\": 4, \"<0x00>\": 5, \"<0xC3>\": 6, \"<0xA9>\": 7}, \"merges\": []}}";
    static const int32_t endings[][6] = {
        {2, 3, 0, 4, 0, 4}, {0, 2, 3, 0, 5, 4}, {6, 7, 0, 4, 0, 4}, {3, 3, 6, 7, 0, 4}};
    (void)state;
    for (size_t e = 0; e < sizeof endings / sizeof *endings; e++) {
        for (int lead = 1; lead <= 6; lead += 5) {
            for (int broken = 0; broken < 20; broken++) {
                struct tt_tokenizer *tokenizer = NULL;
                assert_int_equal(tt_tokenizer_parse(json, sizeof json - 1, "test.json", &tokenizer), TT_OK);
                struct tt_tokenizer_stream stream = {.skip_special = true};
                struct tt_str shown = {0};
                for (int k = 0; k < broken; k++)
                    assert_int_equal(tt_tokenizer_stream_push(tokenizer, &stream, lead, &shown), TT_OK);
                for (int k = 0; k < 6; k++) {
                    assert_int_equal(tt_tokenizer_stream_push(tokenizer, &stream, endings[e][k], &shown),
                                     TT_OK);
                    assert_int_equal(tt_utf8_invalid_at(tt_str_text(&shown), shown.bytes), shown.bytes);
                }
                assert_int_equal(tt_tokenizer_stream_finish(tokenizer, &stream, &shown), TT_OK);
                size_t letters = 0, wanted = 0;
                for (size_t i = 0; i < shown.bytes; i++) letters += strchr("ab", shown.data[i]) != NULL;
                for (int k = 0; k < 6; k++)
                    wanted += endings[e][k] == 0 || endings[e][k] == 4 || endings[e][k] == 5;
                assert_int_equal(letters, wanted); /* a zero byte is one, too: strchr finds it */
                tt_tokenizer_stream_deinit(&stream);
                tt_str_deinit(&shown);
                tt_tokenizer_destroy(tokenizer);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_stream_of_broken_characters)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
