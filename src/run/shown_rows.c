#include "run/shown_rows.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "infer/generation_rank.h"
#include "run/journal.h"
#include "run/record_file.h"
#include "run/run_job.h"

/* Prompts that a rank completes at the same time; bytes of a text that are shown. */
enum { SLOTS_MAX = 8, SHOWN_BYTES = 2000 };

tt_status tt_shown_rows_init(const struct tt_inputs *inputs, const struct tt_watch_spec *watch,
                             const struct tt_device_config *device, int ranks, struct tt_shown_rows *rows)
{
    tt_status status = TT_OK;
    int64_t most = watch->eval_generate, positions = inputs->model_facts.max_position_embeddings;
    *rows = (struct tt_shown_rows){.options.max_new_tokens = watch->eval_generate_tokens};
    if (most == 0) return TT_OK;
    TT_GO(tt_row_prompts_read(inputs, inputs->eval, (size_t)most, &rows->prompts));
    int64_t room = positions - (int64_t)rows->prompts.longest;
    int64_t slots = ((int64_t)rows->prompts.count + ranks - 1) / ranks;
    if (room > 0 && rows->options.max_new_tokens > room) rows->options.max_new_tokens = room;
    TT_GO(tt_generator_limits(inputs, slots < SLOTS_MAX ? slots : SLOTS_MAX, (int64_t)rows->prompts.longest,
                              &rows->options, &rows->limits));
    tt_generation_limits_fill(device, &rows->limits);
out:
    if (status != TT_OK) tt_while("preparing the rows of eval_generate");
    if (status != TT_OK) tt_shown_rows_deinit(rows);
    return status;
}

void tt_shown_rows_deinit(struct tt_shown_rows *rows)
{
    tt_row_prompts_deinit(&rows->prompts);
    tt_record_file_close(rows->file);
    *rows = (struct tt_shown_rows){0};
}

tt_status tt_shown_rows_open(const char *output_dir, int64_t first_step, struct tt_shown_rows *rows)
{
    struct tt_path path;
    if (rows->prompts.count == 0) return TT_OK;
    TT_TRY(tt_path_set(&path, output_dir, "generations.jsonl"));
    return tt_record_file_continue(path.text, first_step, &rows->file);
}

/* The leader's part of an evaluation. */
struct showing {
    const struct tt_shown_rows *rows;
    const struct tt_shown_rows_to *to;
    int64_t step;
    struct tt_str prompt, completion, text;
};

/* Indents the lines, so that they cannot be mistaken for lines of the program. */
static tt_status add_lines(const char *title, const struct tt_str *content, struct tt_str *text)
{
    size_t bytes = content->bytes < SHOWN_BYTES ? content->bytes : SHOWN_BYTES;
    TT_TRY(tt_str_printf(text, "\n  %s: ", title));
    for (size_t i = 0; i < bytes; i++) {
        TT_TRY(tt_str_append_char(text, content->data[i]));
        if (content->data[i] == '\n' && i + 1 < bytes) TT_TRY(tt_str_append_text(text, "    "));
    }
    return content->bytes > bytes ? tt_str_append_text(text, " ...") : TT_OK;
}

static struct tt_span span_of(const struct tt_str *text)
{
    return (struct tt_span){tt_str_text(text), text->bytes};
}

/* The texts of a row: the prompt, the completion, and the answers of the data. */
struct title {
    const char *name;
    const struct tt_str *text;
};
enum { TEXTS_MAX = 4 };

static int list_texts(const struct showing *showing, int index, struct title texts[TEXTS_MAX])
{
    const struct tt_row_prompts *prompts = &showing->rows->prompts;
    int count = 0;
    texts[count++] = (struct title){"prompt", &showing->prompt};
    texts[count++] = (struct title){"completion", &showing->completion};
    texts[count++] = (struct title){"reference", &prompts->references[index]};
    if (prompts->rejected != NULL) texts[count++] = (struct title){"rejected", &prompts->rejected[index]};
    return count;
}

static tt_status record(struct showing *showing, size_t row, const struct title *texts, int count)
{
    tt_status status = TT_OK;
    struct tt_json_value *object = tt_json_pack("{s:I,s:I}", "step", showing->step, "row", (int64_t)row + 1);
    tt_str_clear(&showing->text);
    for (int i = 0; i < count; i++)
        (void)tt_json_set(object, texts[i].name, tt_json_pack("t", span_of(texts[i].text)));
    TT_GO(tt_json_write(object, 0, false, &showing->text));
    TT_GO(tt_str_append_char(&showing->text, '\n'));
    tt_record_file_append(showing->rows->file, showing->text.data, showing->text.bytes);
out:
    tt_json_release(object);
    return status;
}

/* Markdown: a heading and a block of code, in which nothing has a meaning. */
static tt_status add_block(const char *title, const struct tt_str *content, struct tt_str *text)
{
    TT_TRY(tt_str_printf(text, "**%s**\n\n    ", title));
    for (size_t i = 0; i < content->bytes; i++) {
        TT_TRY(tt_str_append_char(text, content->data[i]));
        if (content->data[i] == '\n') TT_TRY(tt_str_append_text(text, "    "));
    }
    return tt_str_append_text(text, "\n\n");
}

static tt_status add_to_board(struct showing *showing, size_t row, const struct title *texts, int count)
{
    char tag[64];
    snprintf(tag, sizeof tag, "eval_generate/row_%zu", row + 1);
    tt_str_clear(&showing->text);
    for (int i = 0; i < count; i++) TT_TRY(add_block(texts[i].name, texts[i].text, &showing->text));
    tt_journal_text(showing->to->journal, tag, showing->step, &showing->text);
    return TT_OK;
}

static tt_status show(void *context, int index, const int32_t *ids, size_t count)
{
    struct showing *showing = context;
    const struct tt_row_prompts *prompts = &showing->rows->prompts;
    const struct tt_tokenizer *tokenizer = showing->to->tokenizer;
    const struct tt_ids *prompt = &prompts->prompts[index];
    struct title texts[TEXTS_MAX];
    int texts_count = list_texts(showing, index, texts);
    TT_TRY(tt_tokenizer_decode(tokenizer, prompt->data, prompt->count, false, &showing->prompt));
    TT_TRY(tt_tokenizer_decode(tokenizer, ids, count, true, &showing->completion));
    TT_TRY(record(showing, prompts->rows[index], texts, texts_count));
    TT_TRY(add_to_board(showing, prompts->rows[index], texts, texts_count));
    tt_str_clear(&showing->text);
    TT_TRY(tt_str_printf(&showing->text, "row %zu of the evaluation data after step %lld:",
                         prompts->rows[index] + 1, (long long)showing->step));
    for (int i = 0; i < texts_count; i++) TT_TRY(add_lines(texts[i].name, texts[i].text, &showing->text));
    tt_run_report_span(showing->to->job, span_of(&showing->text));
    return TT_OK;
}

static tt_status lead(void *context, struct tt_generation_team *team)
{
    struct showing *showing = context;
    const struct tt_shown_rows *rows = showing->rows;
    const struct tt_generate_visitor visitor = {.done = show, .context = showing};
    struct tt_generator *generator = NULL;
    TT_TRY(tt_generator_borrow(team, &rows->options, &generator));
    tt_status status =
        tt_generator_run(generator, rows->prompts.prompts, (int)rows->prompts.count, &visitor, NULL);
    tt_generator_destroy(generator);
    return status;
}

tt_status tt_shown_rows_run(const struct tt_shown_rows *rows, const struct tt_shown_rows_to *to,
                            struct tt_generation_team *team, int64_t step)
{
    struct showing showing = {.rows = rows, .to = to, .step = step};
    if (team == NULL) return TT_OK;
    tt_status status = tt_generation_team_run(team, lead, &showing);
    if (status != TT_OK) tt_while("completing rows of the evaluation data after step %lld", (long long)step);
    tt_str_deinit(&showing.prompt);
    tt_str_deinit(&showing.completion);
    tt_str_deinit(&showing.text);
    return status;
}
