/* Conversations as text with what trains between [[ and ]], for tests. */
#ifndef TT_TESTS_UNIT_DATA_MARKED_CHAT_H
#define TT_TESTS_UNIT_DATA_MARKED_CHAT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "base/file.h"
#include "data/chat_row.h"
#include "support/root.h"

static struct tt_tokenizer *tokenizer;
static struct tt_tokenizer_scratch *scratch;

#define CHATML                                                                                               \
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}"   \
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
#define TALK                                                                                                 \
    "{'messages': [{'role': 'system', 'content': 'S'}, {'role': 'user', 'content': 'q'}, {'role': "          \
    "'assistant', 'content': 'a'}, {'role': 'user', 'content': 'r'}, {'role': 'assistant', 'content': "      \
    "'b'}]}"

static struct tt_chat_row_report report;
static size_t test_part; /* of the row */

/* The row's text with what trains between [[ and ]], or NULL after an error. Rows are written with ' for ". */
static tt_status mark(const struct tt_data_config *config, const char *template, const char *row,
                      struct tt_str *out)
{
    struct tt_chat *chat = NULL;
    struct tt_json json = {0};
    struct tt_ids ids = {0};
    struct tt_str supervised = {0}, piece = {0};
    struct tt_data_config with = *config;
    char *quoted = tt_strdup(row);
    for (char *at = quoted; *at != '\0'; at++)
        if (*at == '\'') *at = '"';
    test_put("t.jinja", template);
    if (with.chat_template_path == NULL) with.chat_template_path = test_at("t.jinja");
    tt_status status = TT_OK;
    TT_GO(tt_json_parse(quoted, strlen(quoted), "row 1", &json));
    TT_GO(tt_chat_create(&with, tokenizer, &chat));
    TT_GO(tt_chat_row_read(chat, scratch, &json, test_part, &ids, &supervised, &report));
    assert_int_equal(ids.count, supervised.bytes);
    for (size_t i = 0, end; i < ids.count; i = end) {
        for (end = i; end < ids.count && supervised.data[end] == supervised.data[i];) end++;
        TT_GO(tt_tokenizer_decode(tokenizer, ids.data + i, end - i, false, &piece));
        TT_GO(tt_str_printf(out, supervised.data[i] ? "[[%s]]" : "%s", tt_str_text(&piece)));
    }
out:
    tt_chat_destroy(chat);
    tt_json_deinit(&json);
    tt_ids_deinit(&ids);
    tt_str_deinit(&supervised);
    tt_str_deinit(&piece);
    tt_free(quoted);
    return status;
}

static void expect(const struct tt_data_config *config, const char *template, const char *row,
                   const char *wanted)
{
    struct tt_str text = {0};
    if (mark(config, template, row, &text) != TT_OK) fail_msg("%s", tt_error_last()->message);
    assert_string_equal(tt_str_text(&text), wanted);
    tt_str_deinit(&text);
}

static void expect_error(const struct tt_data_config *config, const char *template, const char *row,
                         tt_status status, const char *part)
{
    struct tt_str text = {0};
    assert_int_equal(mark(config, template, row, &text), status);
    if (strstr(tt_error_last()->message, part) == NULL)
        fail_msg("'%s' is not in '%s'", part, tt_error_last()->message);
    tt_str_deinit(&text);
}

static struct tt_data_config assistant(void)
{
    return (struct tt_data_config){.assistant_only_loss = true, .completion_only_loss = -1};
}

#define S "<|im_start|>"
#define E "<|im_end|>"

static int setup(void **state)
{
    char from[1024], to[1024];
    if (test_root_create(state) != 0) return -1;
    mkdir(test_at("qwen2"), 0777);
    snprintf(from, sizeof from, TT_TEST_ROOT "/golden/tokenizer/qwen2/tokenizer.json");
    snprintf(to, sizeof to, "%s/tokenizer.json", test_at("qwen2"));
    if (symlink(from, to) != 0) return -1;
    test_put("qwen2/tokenizer_config.json", "{\"eos_token\": \"<|im_end|>\"}");
    if (tt_tokenizer_load(test_at("qwen2"), &tokenizer) != TT_OK) return -1;
    return tt_tokenizer_scratch_create(tokenizer, &scratch) == TT_OK ? 0 : -1;
}

static int teardown(void **state)
{
    tt_tokenizer_scratch_destroy(scratch);
    tt_tokenizer_destroy(tokenizer);
    return test_root_remove(state);
}

#endif
