/* Rows of conversations. The first byte chooses the template and the settings; the rest is the row. Each token gets one
 * mark, and a row that is accepted is accepted again with the same marks.
 * words: src/data */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/chat_row.h"
#include "folder.h"
#include "text/byte_level.h"
#include "text/unicode.h"

static const char *const templates[] = {
    "{% for m in messages %}{{ '<s>' + m.role + '\n' + m.content + '</s>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<s>assistant\n' }}{% endif %}",
    "{% for m in messages %}{{ m.role + ': ' }}{% if m.role == 'assistant' %}{% generation %}{{ m.content "
    "}}</s>"
    "{% endgeneration %}{% else %}{{ m.content }}{% endif %}{% endfor %}",
    "{{ tools | tojson }}{{ documents }}{% for m in messages %}<s>{{ m.role }} {% if loop.last and "
    "m.thinking %}"
    "<think>{{ m.thinking }}</think>{% endif %}{{ m.content | trim }}{{ m.tool_calls | tojson if "
    "m.tool_calls }}"
    "</s>{% endfor %}{% if add_generation_prompt %}<s>assistant {% endif %}",
    "{% for m in messages[::-1] %}{{ m.content | string | upper }}{{ eos_token }}{% endfor %}",
};
enum { TEMPLATES = sizeof templates / sizeof templates[0] };

/* A token for each byte, and two special ones. */
static struct tt_tokenizer *make_tokenizer(void)
{
    struct tt_str json = {0};
    struct tt_tokenizer *tokenizer = NULL;
    tt_status status = tt_str_append_text(&json, "{\"added_tokens\": [");
    for (int i = 0; i < 2 && status == TT_OK; i++) {
        status =
            tt_str_printf(&json,
                          "%s{\"id\": %d, \"content\": \"%s\", \"single_word\": false, \"lstrip\": false, "
                          "\"rstrip\": false, \"normalized\": false, \"special\": true}",
                          i > 0 ? ", " : "", 300 + i, i == 0 ? "<s>" : "</s>");
    }
    if (status == TT_OK)
        status = tt_str_append_text(
            &json, "], \"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": "
                   "false, \"trim_offsets\": true}, \"model\": {\"merges\": [], \"vocab\": {");
    for (int byte = 0; byte < 256 && status == TT_OK; byte++) {
        char name[8] = "";
        tt_utf8_encode(byte_level_code((unsigned char)byte), name);
        const char *escape = name[0] == '"' || name[0] == '\\' ? "\\" : "";
        status = tt_str_printf(&json, "%s\"%s%s\": %d", byte > 0 ? ", " : "", escape, name, byte);
    }
    if (status == TT_OK) status = tt_str_append_text(&json, ", \"<s>\": 300, \"</s>\": 301}}}");
    if (status != TT_OK || tt_tokenizer_parse(json.data, json.bytes, "fuzz", &tokenizer) != TT_OK) abort();
    tt_str_deinit(&json);
    return tokenizer;
}

struct subject {
    struct tt_data_config config;
    struct tt_chat *chat;
};

static struct subject *find_subject(const struct tt_tokenizer *tokenizer, uint8_t choice)
{
    static struct subject subjects[256];
    static char paths[256][256];
    struct subject *subject = &subjects[choice];
    if (subject->chat != NULL) return subject;
    char name[32];
    snprintf(name, sizeof name, "%d.jinja", choice);
    const char *text = templates[choice % TEMPLATES];
    snprintf(paths[choice], sizeof paths[choice], "%s", fuzz_write(name, text, strlen(text)));
    subject->config = (struct tt_data_config){.assistant_only_loss = choice & 4,
                                              .completion_only_loss = -1,
                                              .eos_token = "</s>",
                                              .date = "2024-01-02",
                                              .train_on_eos = (enum tt_train_eos)(choice >> 3 & 3),
                                              .train_last_turn_only = choice & 32,
                                              .roles_to_train = choice & 64 ? "user,assistant" : NULL,
                                              .special_tokens_in_messages = choice & 128,
                                              .chat_template_path = paths[choice]};
    if (tt_chat_create(&subject->config, tokenizer, &subject->chat) != TT_OK) abort();
    return subject;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct tt_tokenizer *tokenizer;
    static struct tt_tokenizer_scratch *scratch;
    if (tokenizer == NULL) {
        tokenizer = make_tokenizer();
        if (tt_tokenizer_scratch_create(tokenizer, &scratch) != TT_OK) abort();
    }
    if (size == 0) return 0;
    struct subject *subject = find_subject(tokenizer, data[0]);
    struct tt_json row = {0};
    struct tt_ids ids = {0}, again_ids = {0};
    struct tt_str marks = {0}, again = {0};
    struct tt_chat_row_report report;
    struct tt_json_source source = {
        .text = (const char *)data + 1, .bytes = size - 1, .origin = "fuzz", .nul = true};
    if (tt_json_parse_source(&source, &row) == TT_OK && tt_json_is_object(row.root) &&
        tt_chat_row_read(subject->chat, scratch, &row, 0, &ids, &marks, &report) == TT_OK) {
        if (ids.count != marks.bytes) abort();
        if (tt_chat_row_read(subject->chat, scratch, &row, 0, &again_ids, &again, &report) != TT_OK) abort();
        if (again.bytes != marks.bytes) abort();
        if (marks.bytes > 0 && memcmp(again.data, marks.data, marks.bytes) != 0) abort();
    }
    tt_json_deinit(&row);
    tt_ids_deinit(&ids);
    tt_ids_deinit(&again_ids);
    tt_str_deinit(&marks);
    tt_str_deinit(&again);
    return 0;
}
