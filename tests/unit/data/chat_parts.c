/* data/chat_parts.h: parts of a message that are no text are refused by their names. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "data/chat_parts.h"

/* NULL where the content is copied, else why not. */
static const char *why_refused(const char *text)
{
    struct tt_json json = {0};
    struct tt_json_value *copy = NULL;
    assert_int_equal(tt_json_parse(text, strlen(text), "test", &json), TT_OK);
    tt_status status = tt_chat_parts_copy(json.root, "messages[0]", &copy);
    tt_json_release(copy);
    tt_json_deinit(&json);
    return status == TT_OK ? NULL : tt_error_last()->message;
}

static void media(void **state)
{
    (void)state;
    static const char *const names[] = {"image",       "image_url", "input_image", "video",      "video_url",
                                        "input_audio", "audio",     "audio_url",   "input_video"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char text[200], wanted[120];
        snprintf(wanted, sizeof wanted,
                 "messages[0]: part 2 of the content is '%s', and only text is supported", names[i]);
        snprintf(text, sizeof text, "[{\"type\": \"text\", \"text\": \"a\"}, {\"type\": \"%s\"}]", names[i]);
        assert_string_equal(why_refused(text), wanted);
        snprintf(text, sizeof text, "[{\"type\": \"text\", \"text\": \"a\"}, {\"%s\": \"x\"}]", names[i]);
        assert_string_equal(why_refused(text), wanted);
        snprintf(text, sizeof text, "[{\"type\": \"text\", \"text\": \"a\", \"%s\": null}]", names[i]);
        assert_null(why_refused(text));
    }
    assert_null(why_refused("\"text\""));
    assert_null(why_refused("[\"text\", {\"type\": \"other\"}]"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(media)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
