/* Templates of any bytes, rendered with a fixed conversation. What renders does so twice with the same bytes, in UTF-8,
 * with spans that cover them; what does not ends in an error that says where. */
/* links: tt_text */
/* words: src/text/jinja */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "text/jinja/jinja.h"

enum { BYTES_MAX = 4096 }; /* of a template: longer ones are slower, and nothing else */

static const char conversation[] = "{\"messages\": [{\"role\": \"system\", \"content\": \"s\\u00e9s\"}, "
                                   "{\"role\": \"user\", \"content\": [{\"type\": "
                                   "\"text\", \"text\": \"a\\nb\"}, 1, 2.5, null]}, {\"role\": "
                                   "\"assistant\", \"content\": \"<think>x</think>y\", "
                                   "\"tool_calls\": [{\"items\": {\"a\": true, \"huge\": "
                                   "123456789012345678901}}]}], \"l\": [3, 1, 2, \"b\", \"A\"], "
                                   "\"n\": 7, \"f\": -1.5, \"s\": \"Hello W\\u00f6rld \\ud83d\\ude00\"}";

static void check_output(const struct tt_jinja_output *output)
{
    uint32_t begin = 0, index, member;
    struct tt_str path = {0};
    if (tt_utf8_invalid_at(output->text, output->bytes) != output->bytes) abort();
    for (size_t i = 0; i < output->span_count; i++) {
        const struct tt_jinja_span *span = &output->spans[i], *before = span - 1;
        if (span->end <= begin || span->origin >= output->origin_count) abort();
        if (i > 0 && span->origin == before->origin && span->generation == before->generation) abort();
        if (tt_jinja_origin_path(output, span->origin, &path) != TT_OK) abort();
        (void)tt_jinja_origin_element(output, span->origin, "messages", &index, &member);
        begin = span->end;
    }
    if (begin != output->bytes) abort();
    tt_str_deinit(&path);
}

static void render(const struct tt_jinja *jinja, const struct tt_json *json)
{
    struct tt_jinja_variable variables[16];
    struct tt_jinja_input input = {.variables = variables, .date = {2026, 3, 5, 7, 8, 9}};
    for (struct tt_json_member member;
         (member = tt_json_member(json->root, input.variable_count)).value != NULL;)
        variables[input.variable_count++] =
            (struct tt_jinja_variable){.name = member.key.data, .kind = TT_JINJA_JSON, .json = member.value};
    struct tt_jinja_output first = {0}, second = {0};
    if (tt_jinja_render(jinja, &input, &first) != TT_OK) {
        if (strstr(tt_error_last()->message, "fuzz line ") == NULL) abort();
        return;
    }
    check_output(&first);
    if (tt_jinja_render(jinja, &input, &second) != TT_OK) abort();
    if (first.bytes != second.bytes || memcmp(first.text, second.text, first.bytes) != 0) abort();
    if (first.span_count != second.span_count) abort();
    tt_jinja_output_deinit(&first);
    tt_jinja_output_deinit(&second);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct tt_jinja *jinja = NULL;
    struct tt_json json = {0};
    if (bytes > BYTES_MAX) return 0;
    if (tt_jinja_parse(&(struct tt_jinja_source){(const char *)data, bytes, "fuzz"}, &jinja) != TT_OK)
        return 0;
    if (tt_json_parse(conversation, sizeof conversation - 1, "conversation", &json) != TT_OK) abort();
    render(jinja, &json);
    tt_jinja_destroy(jinja);
    tt_json_deinit(&json);
    return 0;
}
