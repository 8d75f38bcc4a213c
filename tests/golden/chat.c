/* Conversations against SFTTrainer of TRL 1.16 (chat/make_chat.py): ids and labels of rows of messages under twelve
 * templates with {% generation %}; the same labels from the same templates without the tag, by the origin of bytes;
 * rows of prompt and completion that are messages. With the arguments TOKENIZER TEMPLATE ROWS GOLDEN it compares those
 * rows and prints the number that differ (chat/compare_trl.py); only_header: the reference trains tokens of the header,
 * directly before the answer, and nothing else differs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/file.h"
#include "base/json.h"
#include "data/chat_parts.h"
#include "data/chat_row.h"
#include "support/golden.h"
#include "support/root.h"

#define FOLDER TT_TEST_ROOT "/golden/chat"

static const struct {
    const char *name, *tokenizer;
} templates[] = {
    {"chatml", "qwen2"},       {"chatml_default_system", "qwen2"},
    {"tools", "qwen2"},        {"think", "qwen2"},
    {"parts", "qwen2"},        {"marker", "qwen2"},
    {"headers", "llama3"},     {"final_eos", "llama3"},
    {"turns", "llama2"},       {"inst", "llama2"},
    {"instruction", "llama2"}, {"one_line", "llama2"},
};
enum { TEMPLATES = sizeof templates / sizeof templates[0] };

/* Appends the template with its tags made conditions, which leave the same white space. */
static void remove_tags(const char *text, struct tt_str *out)
{
    static const struct {
        const char *tag, *instead;
    } tags[] = {{"endgeneration", "endif"}, {"generation", "if true"}};
    tt_status status = TT_OK;
    while (*text != '\0' && status == TT_OK) {
        bool found = false;
        for (size_t i = 0; i < 2 && !found; i++) {
            size_t bytes = strlen(tags[i].tag);
            /* add_generation_prompt is a name, not a tag */
            found = strncmp(text, tags[i].tag, bytes) == 0 && text[-1] == ' ';
            if (!found) continue;
            status = tt_str_append_text(out, tags[i].instead);
            text += bytes;
        }
        if (!found) status = tt_str_append_char(out, *text++);
    }
    assert_int_equal(status, TT_OK);
}

struct subject {
    const char *name;
    const struct tt_tokenizer *tokenizer;
    struct tt_chat *chat;
    struct tt_tokenizer_scratch *scratch;
    bool labels; /* are compared */
    size_t rows, refused, joined, newlines;
};

/* transformers finds the last token of a tagged span by the first token that has its last character. Where a tokenizer
 * puts a blank before the line feed behind a special token, both have it, and the line feed is left out there. */
static bool is_left_out(const struct subject *subject, const struct tt_ids *ids, size_t at, bool mine)
{
    return mine && strcmp(subject->name, "turns") == 0 && at > 1 &&
           ids->data[at] == tt_tokenizer_token_id(subject->tokenizer, "<0x0A>") &&
           ids->data[at - 2] == tt_tokenizer_eos_id(subject->tokenizer);
}

static void show(const struct subject *subject, const struct tt_ids *ids, const struct tt_str *mine,
                 const struct tt_json_value *mask, struct tt_str *text)
{
    struct tt_str piece = {0};
    for (size_t i = 0; i < ids->count; i++) {
        bool ours = mine->data[i] != 0, theirs = tt_json_integer(tt_json_at(mask, i)) != 0;
        assert_int_equal(tt_tokenizer_decode(subject->tokenizer, &ids->data[i], 1, false, &piece), TT_OK);
        const char *sign = ours && theirs ? "+" : ours ? "OURS" : theirs ? "THEIRS" : "";
        assert_int_equal(tt_str_printf(text, "%s{%s}", sign, tt_str_text(&piece)), TT_OK);
    }
    tt_str_deinit(&piece);
}

/* The row with each content of text parts as one text; *out stays empty where there is none. */
static void join_parts(const struct tt_json *row, struct tt_json *out)
{
    struct tt_json_value *copy = tt_json_copy(row->root), *list = tt_json_new_list();
    const struct tt_json_value *messages = tt_json_get(copy, "messages");
    bool any = false;
    for (size_t i = 0; i < tt_json_count(messages); i++) {
        struct tt_json_value *message = tt_json_copy(tt_json_at(messages, i)), *joined;
        const struct tt_json_value *content = tt_json_get(message, "content");
        if (tt_chat_parts_are_text(content)) {
            any = true;
            assert_int_equal(tt_chat_parts_join(content, &joined), TT_OK);
            assert_int_equal(tt_json_set(message, "content", joined), 0);
        }
        assert_int_equal(tt_json_append(list, message), 0);
    }
    struct tt_str text = {0};
    assert_int_equal(tt_json_set(copy, "messages", list), 0);
    assert_int_equal(tt_json_write(copy, 0, false, &text), TT_OK);
    if (any) assert_int_equal(tt_json_parse(text.data, text.bytes, "joined", out), TT_OK);
    tt_str_deinit(&text);
    tt_json_release(copy);
}

/* With a template of texts, TRL refuses parts or prints the list. Here they are as good as the text. */
static bool check_parts(struct subject *subject, const struct tt_json *row, const struct tt_ids *ids,
                        const struct tt_str *supervised)
{
    struct tt_json joined = {0};
    struct tt_ids same = {0};
    struct tt_str mask = {0};
    struct tt_chat_row_report report;
    join_parts(row, &joined);
    if (joined.root == NULL) return false;
    assert_int_equal(tt_chat_row_read(subject->chat, subject->scratch, &joined, 0, &same, &mask, &report),
                     TT_OK);
    assert_int_equal(same.count, ids->count);
    assert_memory_equal(same.data, ids->data, same.count * sizeof *same.data);
    assert_memory_equal(mask.data, supervised->data, mask.bytes);
    tt_json_deinit(&joined);
    tt_ids_deinit(&same);
    tt_str_deinit(&mask);
    return true;
}

static void check_row(struct subject *subject, const struct tt_json *row, const struct tt_json_value *golden)
{
    struct tt_ids ids = {0};
    struct tt_str supervised = {0}, shown = {0};
    struct tt_chat_row_report report;
    tt_status status = tt_chat_row_read(subject->chat, subject->scratch, row, 0, &ids, &supervised, &report);
    subject->rows++;
    if (strcmp(subject->name, "parts") != 0 && status == TT_OK &&
        check_parts(subject, row, &ids, &supervised)) {
        subject->joined++;
        goto out;
    }
    if (tt_json_is_null(golden)) {
        assert_int_not_equal(status, TT_OK);
        subject->refused++;
        goto out;
    }
    if (status != TT_OK) fail_msg("%s, row %zu: %s", subject->name, subject->rows, tt_error_last()->message);
    const struct tt_json_value *expected = tt_json_at(golden, 0), *mask = tt_json_at(golden, 1);
    assert_int_equal(ids.count, tt_json_count(expected));
    for (size_t i = 0; i < ids.count; i++) {
        if (ids.data[i] != tt_json_integer(tt_json_at(expected, i)))
            fail_msg("%s, row %zu: id %zu is %d", subject->name, subject->rows, i, ids.data[i]);
        if (!subject->labels || supervised.data[i] == tt_json_integer(tt_json_at(mask, i))) continue;
        if (is_left_out(subject, &ids, i, supervised.data[i])) {
            subject->newlines++;
            continue;
        }
        show(subject, &ids, &supervised, mask, &shown);
        fail_msg("%s, row %zu: labels: %s", subject->name, subject->rows, tt_str_text(&shown));
    }
out:
    tt_ids_deinit(&ids);
    tt_str_deinit(&supervised);
    tt_str_deinit(&shown);
}

static void read_lines(const char *prefix, const char *name, struct tt_str *text)
{
    char path[1024];
    snprintf(path, sizeof path, FOLDER "/%s%s.jsonl", prefix, name);
    assert_int_equal(tt_file_read(path, 16 << 20, text), TT_OK);
}

static void check_rows(struct subject *subject, const char *rows_name, const char *prefix)
{
    struct tt_str rows = {0}, golden = {0};
    read_lines("", rows_name, &rows);
    read_lines(prefix, subject->name, &golden);
    char *line = rows.data, *answer = golden.data, *end, *answer_end;
    for (; (end = strchr(line, '\n')) != NULL; line = end + 1, answer = answer_end + 1) {
        struct tt_json row = {0}, expected = {0};
        answer_end = strchr(answer, '\n');
        assert_non_null(answer_end);
        assert_int_equal(tt_json_parse(line, (size_t)(end - line), "row", &row), TT_OK);
        /* null is no document of its own */
        struct tt_str list = {0};
        assert_int_equal(tt_str_printf(&list, "[%.*s]", (int)(answer_end - answer), answer), TT_OK);
        assert_int_equal(tt_json_parse(list.data, list.bytes, "golden", &expected), TT_OK);
        check_row(subject, &row, tt_json_at(expected.root, 0));
        tt_str_deinit(&list);
        tt_json_deinit(&row);
        tt_json_deinit(&expected);
    }
    tt_str_deinit(&rows);
    tt_str_deinit(&golden);
}

enum kind { TAGGED, UNTAGGED, COMPLETIONS };

static void check_template(size_t index, enum kind kind, size_t *rows, size_t *refused)
{
    char path[1024];
    struct tt_data_config config = {
        .assistant_only_loss = kind != COMPLETIONS, .completion_only_loss = -1, .chat_template_path = path};
    struct tt_tokenizer *tokenizer = test_golden_tokenizer(templates[index].tokenizer);
    struct subject subject = {.name = templates[index].name, .tokenizer = tokenizer, .labels = true};
    snprintf(path, sizeof path, FOLDER "/templates/%s.jinja", subject.name);
    if (kind == UNTAGGED) {
        struct tt_str text = {0}, untagged = {0};
        assert_int_equal(tt_file_read(path, 1 << 20, &text), TT_OK);
        remove_tags(text.data, &untagged);
        assert_null(strstr(untagged.data, "{% generation"));
        snprintf(path, sizeof path, "%s", test_at("untagged.jinja"));
        test_put("untagged.jinja", untagged.data);
        tt_str_deinit(&text);
        tt_str_deinit(&untagged);
    }
    if (tt_chat_create(&config, tokenizer, &subject.chat) != TT_OK) fail_msg("%s", tt_error_last()->message);
    assert_int_equal(tt_tokenizer_scratch_create(tokenizer, &subject.scratch), TT_OK);
    check_rows(&subject, kind == COMPLETIONS ? "completions" : "rows",
               kind == COMPLETIONS ? "completion_" : "");
    bool leaves_out = kind != COMPLETIONS && strcmp(subject.name, "turns") == 0;
    assert_int_equal(subject.newlines > 0, leaves_out);
    *rows += subject.rows;
    *refused += subject.refused + subject.joined;
    bool reads_parts = strcmp(subject.name, "parts") == 0;
    if (kind != COMPLETIONS) assert_true(reads_parts ? subject.joined == 0 : subject.joined <= 1);
    tt_chat_destroy(subject.chat);
    tt_tokenizer_scratch_destroy(subject.scratch);
    tt_tokenizer_destroy(tokenizer);
}

static void check_all(enum kind kind, size_t least)
{
    size_t rows = 0, refused = 0;
    for (size_t i = 0; i < TEMPLATES; i++) check_template(i, kind, &rows, &refused);
    assert_true(rows - refused >= least);
}

static void tagged(void **state)
{
    (void)state;
    check_all(TAGGED, 120);
}

static void untagged(void **state)
{
    (void)state;
    check_all(UNTAGGED, 120);
}

static void completions(void **state)
{
    (void)state;
    check_all(COMPLETIONS, 120);
}

static void print_row(const struct subject *subject, const struct tt_ids *ids,
                      const struct tt_str *supervised, const struct tt_json_value *mask)
{
    struct tt_str shown = {0};
    show(subject, ids, supervised, mask, &shown);
    fprintf(stderr, "%s\n", tt_str_text(&shown));
    tt_str_deinit(&shown);
}

/* The rows of a file against those of another; prints what differs. */
static int compare_files(char **paths)
{
    struct tt_data_config config = {
        .assistant_only_loss = true, .completion_only_loss = -1, .chat_template_path = paths[1]};
    struct tt_tokenizer *tokenizer = NULL;
    struct tt_tokenizer_scratch *scratch = NULL;
    struct tt_chat *chat = NULL;
    struct tt_str rows = {0}, golden = {0};
    size_t same = 0, headers = 0, refused = 0, other_ids = 0, other_labels = 0, differ = 0, tokens = 0;
    if (tt_tokenizer_load(paths[0], &tokenizer) != TT_OK || tt_file_read(paths[2], 1 << 30, &rows) != TT_OK ||
        tt_file_read(paths[3], 1 << 30, &golden) != TT_OK ||
        tt_tokenizer_scratch_create(tokenizer, &scratch) != TT_OK ||
        tt_chat_create(&config, tokenizer, &chat) != TT_OK) {
        fprintf(stderr, "%s\n", tt_error_last()->message);
        return 2;
    }
    struct subject subject = {.tokenizer = tokenizer, .labels = true};
    char *line = rows.data, *answer = golden.data, *end, *answer_end;
    for (; (end = strchr(line, '\n')) != NULL; line = end + 1, answer = answer_end + 1) {
        struct tt_json row = {0}, expected = {0};
        struct tt_ids ids = {0};
        struct tt_str supervised = {0};
        struct tt_chat_row_report report = {0};
        answer_end = strchr(answer, '\n');
        bool parsed = answer_end != NULL && tt_json_parse(line, (size_t)(end - line), "row", &row) == TT_OK &&
                      tt_json_parse(answer, (size_t)(answer_end - answer), "golden", &expected) == TT_OK;
        if (!parsed) return 2;
        tt_status status = tt_chat_row_read(chat, scratch, &row, 0, &ids, &supervised, &report);
        const struct tt_json_value *wanted = tt_json_at(expected.root, 0),
                                   *mask = tt_json_at(expected.root, 1);
        bool is_null = tt_json_count(expected.root) == 0;
        differ += report.history_differs;
        if (status != TT_OK || is_null) {
            refused += status != TT_OK && is_null;
            other_ids += (status == TT_OK) != !is_null;
            if ((status == TT_OK) == is_null && other_ids < 4)
                fprintf(stderr, "refused: %s\n",
                        status == TT_OK ? "rendered here alone" : tt_error_last()->message);
        } else {
            bool equal = ids.count == tt_json_count(wanted), labels = true, header = true;
            for (size_t i = ids.count; equal && i-- > 0;) {
                bool mine = supervised.data[i] != 0, theirs = tt_json_integer(tt_json_at(mask, i)) != 0;
                equal = ids.data[i] == tt_json_integer(tt_json_at(wanted, i));
                labels = labels && mine == theirs;
                /* of the header of the answer, whose text add_generation_prompt gives the model: directly before it */
                bool before =
                    theirs && !mine && i + 1 < ids.count && tt_json_integer(tt_json_at(mask, i + 1)) != 0;
                header = header && (mine == theirs || before);
            }
            tokens += ids.count;
            same += equal && labels;
            other_ids += !equal;
            headers += equal && !labels && header;
            other_labels += equal && !labels && !header;
            if (equal && !labels && !header && other_labels < 3) print_row(&subject, &ids, &supervised, mask);
        }
        tt_ids_deinit(&ids);
        tt_str_deinit(&supervised);
        tt_json_deinit(&row);
        tt_json_deinit(&expected);
    }
    printf("{\"same\": %zu, \"only_header\": %zu, \"refused_by_both\": %zu, \"other_ids\": %zu, "
           "\"other_labels\": %zu, \"history_differs\": %zu, \"tokens\": %zu}\n",
           same, headers, refused, other_ids, other_labels, differ, tokens);
    return other_ids + other_labels > 0;
}

int main(int argc, char **argv)
{
    if (argc == 5) return compare_files(argv + 1);
    const struct CMUnitTest tests[] = {cmocka_unit_test(tagged), cmocka_unit_test(untagged),
                                       cmocka_unit_test(completions)};
    return cmocka_run_group_tests(tests, test_root_create, test_root_remove);
}
