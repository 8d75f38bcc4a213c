#include "data/row_reader_impl.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/number.h"
#include "base/str.h"
#include "data/csv_rows.h"
#include "data/prompt_template.h"

enum { LONG_TEXT_BYTES = 1 << 20, LONG_IDS = LONG_TEXT_BYTES / 4 };

/* ---- Set-up ---- */

static const char *token_text(const struct tt_tokenizer *tokenizer, int32_t id)
{
    return id >= 0 ? tt_tokenizer_token(tokenizer, id) : NULL;
}

/* True if the post-processor ends texts with EOS. Tested with a text that is not empty, because BOS may be the same
 * token. */
static tt_status probe_eos(struct tt_row_reader *reader)
{
    if (reader->eos_id < 0) return TT_OK;
    reader->ids.count = 0;
    TT_TRY(tt_tokenizer_encode(reader->tokenizer, reader->scratch, "a", 1, true, &reader->ids));
    reader->adds_eos = reader->ids.count > 1 && reader->ids.data[reader->ids.count - 1] == reader->eos_id;
    return TT_OK;
}

static tt_status prepare_tokenizer(struct tt_row_reader *reader)
{
    const struct tt_tokenizer *tokenizer = reader->tokenizer;
    TT_TRY(tt_tokenizer_scratch_create(tokenizer, &reader->scratch));
    reader->bos_id = tt_tokenizer_bos_id(tokenizer);
    reader->eos_id = tt_tokenizer_eos_id(tokenizer);
    const char *wanted = reader->config->eos_token;
    if (wanted != NULL) {
        reader->eos_id = tt_tokenizer_token_id(tokenizer, wanted);
        if (reader->eos_id < 0) {
            return tt_fail(TT_ERR_USAGE, "eos_token '%s' is not in the tokenizer's vocabulary", wanted);
        }
    }
    reader->bos_text = token_text(tokenizer, reader->bos_id);
    reader->eos_text = token_text(tokenizer, reader->eos_id);
    return probe_eos(reader);
}

static tt_status add_member(void *context, struct tt_span name)
{
    struct tt_row_reader *reader = context;
    TT_TRY(
        tt_grow(&reader->members, reader->member_count, &reader->member_capacity, sizeof *reader->members));
    reader->members[reader->member_count++] = name;
    return TT_OK;
}

static tt_status list_members(struct tt_row_reader *reader)
{
    const struct tt_data_config *config = reader->config;
    const char *const names[] = {"input_ids",
                                 "labels",
                                 "completion_mask",
                                 "assistant_masks",
                                 "attention_mask",
                                 config->dataset_text_field,
                                 config->dataset_prompt_field,
                                 config->dataset_completion_field};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        TT_TRY(add_member(reader, tt_span_of(names[i])));
    for (size_t i = 0; tt_row_foreign_masks[i] != NULL; i++)
        TT_TRY(add_member(reader, tt_span_of(tt_row_foreign_masks[i])));
    for (size_t i = 0; tt_conversation_members[i] != NULL; i++)
        TT_TRY(add_member(reader, tt_span_of(tt_conversation_members[i])));
    if (config->prompt_template == NULL) return TT_OK;
    return tt_prompt_template_fields(config->prompt_template, add_member, reader);
}

tt_status tt_row_reader_create(const struct tt_rows *rows, const struct tt_data_config *config,
                               const struct tt_tokenizer *tokenizer, int64_t vocab_size, size_t ids_max,
                               struct tt_row_reader **out)
{
    struct tt_row_reader *reader = tt_calloc(1, sizeof *reader);
    if (reader == NULL) return TT_ERR_MEMORY;
    *reader = (struct tt_row_reader){.rows = rows,
                                     .config = config,
                                     .tokenizer = tokenizer,
                                     .vocab_size = vocab_size,
                                     .ids_max = ids_max,
                                     .bos_id = -1,
                                     .eos_id = -1};
    tt_status status = list_members(reader);
    if (status == TT_OK && tokenizer != NULL) status = prepare_tokenizer(reader);
    if (status != TT_OK) {
        tt_row_reader_destroy(reader);
        return status;
    }
    *out = reader;
    return TT_OK;
}

void tt_row_reader_destroy(struct tt_row_reader *reader)
{
    if (reader == NULL) return;
    tt_tokenizer_scratch_destroy(reader->scratch);
    tt_pair_ids_deinit(&reader->pair);
    tt_chat_destroy(reader->chat);
    tt_free(reader->members);
    tt_json_deinit(&reader->json);
    tt_ids_deinit(&reader->ids);
    tt_ids_deinit(&reader->prompt_ids);
    tt_str_deinit(&reader->supervised);
    tt_str_deinit(&reader->text);
    tt_str_deinit(&reader->prompt);
    tt_str_deinit(&reader->completion);
    tt_free(reader);
}

/* ---- Messages ---- */

tt_status tt_row_fail(const struct tt_row_reader *reader, tt_status status, const char *format, ...)
{
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    tt_vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return tt_fail(status, "'%s', row %zu (line %llu): %s", reader->rows->path, reader->row + 1,
                   (unsigned long long)reader->rows->spans[reader->row].line, text);
}

tt_status tt_row_within(const struct tt_row_reader *reader, tt_status status)
{
    if (status != TT_OK) {
        tt_while("reading row %zu (line %llu) of '%s'", reader->row + 1,
                 (unsigned long long)reader->rows->spans[reader->row].line, reader->rows->path);
    }
    return status;
}

/* ---- Ids ---- */

tt_status tt_row_check_ids(const struct tt_row_reader *reader, bool own_tokenizer)
{
    for (size_t i = 0; i < reader->ids.count; i++) {
        int32_t id = reader->ids.data[i];
        if (id >= 0 && id < reader->vocab_size) continue;
        if (own_tokenizer) {
            tt_row_fail(reader, TT_ERR_DATA, "the tokenizer gives id %d, but the model's vocabulary has %lld",
                        (int)id, (long long)reader->vocab_size);
            tt_hint("the tokenizer does not belong to this model, or has tokens that were added without rows "
                    "for them: in "
                    "Python, model.resize_token_embeddings(len(tokenizer)), then save both");
            return TT_ERR_DATA;
        }
        return tt_row_fail(reader, TT_ERR_DATA,
                           "input_ids[%zu] is %d; the model's vocabulary has ids 0 to %lld", i, (int)id,
                           (long long)reader->vocab_size - 1);
    }
    return TT_OK;
}

void tt_row_clear_ids(struct tt_ids *ids, size_t limit)
{
    ids->count = ids->beyond = 0;
    ids->limit = limit;
}

tt_status tt_row_set_supervised(struct tt_row_reader *reader, size_t first_supervised)
{
    size_t count = reader->ids.count, before = first_supervised < count ? first_supervised : count;
    tt_str_clear(&reader->supervised);
    TT_TRY(tt_str_append_fill(&reader->supervised, 0, before));
    return tt_str_append_fill(&reader->supervised, 1, count - before);
}

static struct tt_span text_of(const struct tt_row_reader *reader)
{
    return (struct tt_span){reader->text.data, reader->text.bytes};
}

/* EOS is added as text, as TRL's add_eos does, unless the text has it or the tokenizer adds it. */
static tt_status end_text(struct tt_row_reader *reader)
{
    if (reader->eos_text == NULL || *reader->eos_text == '\0') return TT_OK;
    bool has = tt_span_ends_with(text_of(reader), reader->eos_text);
    if (reader->adds_eos && has) {
        reader->text.bytes -= strlen(reader->eos_text);
        reader->text.data[reader->text.bytes] = '\0';
    }
    if (!reader->adds_eos && !has) return tt_str_append_text(&reader->text, reader->eos_text);
    return TT_OK;
}

static tt_status encode_text(struct tt_row_reader *reader)
{
    tt_row_clear_ids(&reader->ids, reader->ids_max);
    TT_TRY(tt_row_within(reader,
                         tt_tokenizer_encode(reader->tokenizer, reader->scratch, tt_str_text(&reader->text),
                                             reader->text.bytes, true, &reader->ids)));
    const struct tt_ids *ids = &reader->ids;
    bool twice = reader->bos_text != NULL && *reader->bos_text != '\0' && ids->count > 1 &&
                 ids->data[0] == reader->bos_id && ids->data[1] == reader->bos_id &&
                 tt_span_starts_with(text_of(reader), reader->bos_text);
    if (twice) {
        tt_row_fail(reader, TT_ERR_DATA,
                    "the text begins with '%s', which the tokenizer adds: the sample would have it twice",
                    reader->bos_text);
        tt_hint("remove it from the rows");
        return TT_ERR_DATA;
    }
    if (reader->text.bytes > LONG_TEXT_BYTES) tt_str_deinit(&reader->text); /* the sample may keep a copy */
    return tt_row_check_ids(reader, true);
}

void tt_row_forget_source(struct tt_row_reader *reader)
{
    const struct tt_row_span *span = &reader->rows->spans[reader->row];
    tt_json_deinit(&reader->json);
    tt_file_map_release(span->data, span->bytes);
}

tt_status tt_row_need_tokenizer(const struct tt_row_reader *reader)
{
    if (reader->tokenizer != NULL) return TT_OK;
    tt_row_fail(reader, TT_ERR_DATA, "text needs a tokenizer, and the model folder has no tokenizer.json");
    tt_hint("rows with input_ids need none");
    return TT_ERR_DATA;
}

/* ---- Row kinds ---- */

tt_status tt_row_read_string(const struct tt_row_reader *reader, const struct tt_json_value *row,
                             const char *key, struct tt_str *out)
{
    const struct tt_json_value *value = tt_json_get(row, key);
    if (tt_json_is_list(value)) {
        return tt_row_fail(
            reader, TT_ERR_DATA,
            "'%s' is a list and not a text; the messages of a conversation are in 'messages', or in "
            "'prompt' and 'completion'",
            key);
    }
    if (!tt_json_is_string(value)) return tt_row_fail(reader, TT_ERR_DATA, "'%s' must be a string", key);
    tt_str_clear(out);
    return tt_str_append(out, tt_json_span(value).data, tt_json_span(value).bytes);
}

/* TRL has a ValueError: every token would train. `row` NULL: plain text. */
static tt_status check_conversational(const struct tt_row_reader *reader, const struct tt_json_value *row)
{
    if (!reader->config->assistant_only_loss) return TT_OK;
    tt_row_fail(reader, TT_ERR_DATA, "assistant_only_loss is set, and the row is no conversation");
    if (row != NULL && tt_conversation_is_alpaca(row))
        tt_hint(
            "its '%s' is read; another dataset_text_field, such as none, lets instruction and output be the "
            "conversation",
            reader->config->dataset_text_field);
    else
        tt_hint("all of its tokens would train: leave assistant_only_loss out, or give conversations "
                "('messages')");
    return TT_ERR_DATA;
}

static tt_status read_text_row(struct tt_row_reader *reader, const struct tt_json_value *row,
                               struct tt_row *out)
{
    const char *key = reader->config->dataset_text_field;
    if (reader->config->completion_only_loss == 1) {
        return tt_row_fail(reader, TT_ERR_DATA,
                           "completion_only_loss is set, but the row has no prompt and completion");
    }
    TT_TRY(check_conversational(reader, row));
    TT_TRY(tt_row_need_tokenizer(reader));
    TT_TRY(tt_row_read_string(reader, row, key, &reader->text));
    tt_row_forget_source(reader);
    TT_TRY(end_text(reader));
    TT_TRY(encode_text(reader));
    TT_TRY(tt_row_set_supervised(reader, 0));
    *out = (struct tt_row){0};
    return TT_OK;
}

tt_status tt_row_read_prompt(struct tt_row_reader *reader, const struct tt_json_value *row)
{
    const char *template = reader->config->prompt_template;
    if (template == NULL)
        return tt_row_read_string(reader, row, reader->config->dataset_prompt_field, &reader->prompt);
    tt_str_clear(&reader->prompt);
    return tt_row_within(reader, tt_prompt_template_render(template, row, &reader->prompt));
}

size_t tt_row_common_prefix(const struct tt_ids *a, const struct tt_ids *b)
{
    size_t count = a->count < b->count ? a->count : b->count, i = 0;
    while (i < count && a->data[i] == b->data[i]) i++;
    return i;
}

tt_status tt_row_encode_prompt(struct tt_row_reader *reader)
{
    struct tt_ids *ids = &reader->prompt_ids;
    tt_row_clear_ids(ids, reader->ids_max);
    TT_TRY(tt_row_within(reader,
                         tt_tokenizer_encode(reader->tokenizer, reader->scratch, tt_str_text(&reader->prompt),
                                             reader->prompt.bytes, true, ids)));
    if (reader->adds_eos && ids->count > 0 && ids->beyond == 0) ids->count--;
    return TT_OK;
}

tt_status tt_row_encode_answer(struct tt_row_reader *reader, const struct tt_str *answer)
{
    tt_str_clear(&reader->text);
    TT_TRY(tt_str_append(&reader->text, tt_str_text(&reader->prompt), reader->prompt.bytes));
    TT_TRY(tt_str_append(&reader->text, tt_str_text(answer), answer->bytes));
    TT_TRY(end_text(reader));
    return encode_text(reader);
}

/* A text beside a list of messages is neither kind of row. */
static tt_status check_kinds(const struct tt_row_reader *reader, const struct tt_json_value *row)
{
    const char *prompt = reader->config->dataset_prompt_field,
               *completion = reader->config->dataset_completion_field;
    const struct tt_json_value *a = tt_json_get(row, prompt), *b = tt_json_get(row, completion);
    bool prompt_is_list = tt_json_is_list(a);
    if (reader->config->prompt_template != NULL || prompt_is_list == tt_json_is_list(b)) return TT_OK;
    if (!tt_json_is_string(prompt_is_list ? b : a)) return TT_OK;
    tt_row_fail(reader, TT_ERR_DATA, "'%s' is a text and '%s' a list of messages",
                prompt_is_list ? completion : prompt, prompt_is_list ? prompt : completion);
    tt_hint("both are texts, or both are lists of messages: [{\"role\": \"%s\", \"content\": \"...\"}]",
            prompt_is_list ? "assistant" : "user");
    return TT_ERR_DATA;
}

/* Prompt and completion are tokenized as one text. The completion begins at the first token that differs from
 * those of the prompt alone (TRL 1.16, common_prefix_length): where a token spans the border, that token is
 * supervised. Such rows are counted. */
static tt_status read_completion_row(struct tt_row_reader *reader, const struct tt_json_value *row,
                                     struct tt_row *out)
{
    const struct tt_data_config *config = reader->config;
    if (config->completion_only_loss == 0) TT_TRY(check_conversational(reader, row));
    TT_TRY(tt_row_need_tokenizer(reader));
    TT_TRY(check_kinds(reader, row));
    TT_TRY(tt_row_read_prompt(reader, row));
    TT_TRY(tt_row_read_string(reader, row, config->dataset_completion_field, &reader->completion));
    tt_row_forget_source(reader);

    TT_TRY(tt_row_encode_prompt(reader));
    TT_TRY(tt_row_encode_answer(reader, &reader->completion));
    size_t first = tt_row_common_prefix(&reader->prompt_ids, &reader->ids);
    TT_TRY(tt_row_set_supervised(reader, config->completion_only_loss == 0 ? 0 : first));
    *out = (struct tt_row){.prompt = tt_str_text(&reader->prompt),
                           .completion = tt_str_text(&reader->completion),
                           .prompt_mismatch = first < reader->prompt_ids.count};
    return TT_OK;
}

/* Messages as one text, as tables (CSV) hold them. */
static tt_status refuse_texts_of_messages(const struct tt_row_reader *reader, const struct tt_json_value *row)
{
    static const char *const names[] = {"messages", "conversations"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (!tt_json_is_string(tt_json_get(row, names[i]))) continue;
        tt_row_fail(reader, TT_ERR_DATA, "'%s' is a text; a list of messages is expected", names[i]);
        tt_hint("write the list itself, in Python: row['%s'] = json.loads(row['%s'])", names[i], names[i]);
        return TT_ERR_DATA;
    }
    return TT_OK;
}

void tt_row_list_members(const struct tt_json_value *row, char *text, size_t bytes)
{
    size_t used = 0;
    const char *key;
    const struct tt_json_value *value;
    (void)snprintf(text, bytes, "no fields");
    for (size_t member = 0; tt_json_next_member(row, &member, &key, &value);)
        if (used < bytes)
            used += (size_t)snprintf(text + used, bytes - used, "%s'%s'", used > 0 ? ", " : "", key);
}

/* The field that a member of `row` is a misspelling of, and the member; NULL: none. */
static const char *find_misspelt(const struct tt_data_config *config, const struct tt_json_value *row,
                                 const char **wrong)
{
    const char *const fields[] = {"messages",
                                  "conversations",
                                  "instruction",
                                  config->dataset_text_field,
                                  config->dataset_prompt_field,
                                  config->dataset_completion_field};
    const struct tt_json_value *value;
    int distance;
    for (size_t member = 0; tt_json_next_member(row, &member, wrong, &value);)
        for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
            if (strcmp(fields[i], *wrong) != 0 && tt_name_is_near(fields[i], *wrong, &distance) &&
                distance <= 2)
                return fields[i];
    return NULL;
}

/* A row of one member is often a whole file that is read as one row. */
static bool hint_single(const struct tt_json_value *row)
{
    const struct tt_json_member member = tt_json_member(row, 0);
    if (tt_json_count(row) != 1) return false;
    if (tt_json_is_list(member.value)) {
        tt_hint("if the rows of the file are the list '%.60s': jq -c '.[\"%.60s\"][]' FILE >rows.jsonl",
                member.key.data, member.key.data);
        return true;
    }
    return tt_csv_rows_hint(member.key.data, member.key.bytes);
}

/* Fails for a row of no supported kind: lists its keys, with a hint for known dialects. */
static tt_status refuse_members(const struct tt_row_reader *reader, const struct tt_json_value *row)
{
    const struct tt_data_config *config = reader->config;
    char keys[200];
    if (tt_json_get(row, "chosen") != NULL) {
        tt_row_fail(reader, TT_ERR_DATA, "the row has a preference ('chosen', 'rejected')");
        tt_hint("objective: dpo trains on preferences; to train on the chosen answers alone, write them as "
                "'completion' of rows with 'prompt', or as the last of 'messages'");
        return TT_ERR_DATA;
    }
    TT_TRY(refuse_texts_of_messages(reader, row));
    tt_row_list_members(row, keys, sizeof keys);
    tt_row_fail(
        reader, TT_ERR_DATA, "neither 'messages', nor '%s', nor '%s' with '%s', nor 'input_ids'; it has %s",
        config->dataset_text_field, config->dataset_prompt_field, config->dataset_completion_field, keys);
    const char *wrong, *meant = find_misspelt(config, row, &wrong);
    if (meant != NULL) {
        tt_hint("'%s' may be a misspelt '%s'; trimtab data shows the rows as the model sees them", wrong,
                meant);
        return TT_ERR_DATA;
    }
    if (hint_single(row)) return TT_ERR_DATA;
    tt_hint("name the fields with dataset_text_field, or dataset_prompt_field and dataset_completion_field, "
            "or join "
            "several into the prompt with prompt_template");
    return TT_ERR_DATA;
}

tt_status tt_row_parse(const struct tt_row_reader *reader, const struct tt_span *members, bool outline,
                       struct tt_json *json)
{
    const struct tt_row_span *span = &reader->rows->spans[reader->row];
    struct tt_str origin = {0};
    tt_status status = TT_OK;
    TT_GO(tt_str_printf(&origin, "'%s', row %zu", reader->rows->path, reader->row + 1));
    TT_GO(tt_json_parse_source(&(struct tt_json_source){.text = span->data,
                                                        .bytes = span->bytes,
                                                        .origin = origin.data,
                                                        .first_line = span->line,
                                                        .nul = true,
                                                        .outline = outline,
                                                        .members = members,
                                                        .member_count = reader->member_count},
                               json));
out:
    tt_str_deinit(&origin);
    return status;
}

/* The row is parsed once more, with the members that are not read. */
static tt_status refuse_row(const struct tt_row_reader *reader)
{
    struct tt_json json = {0};
    TT_TRY(tt_row_parse(reader, NULL, true, &json));
    tt_status status = refuse_members(reader, json.root);
    tt_json_deinit(&json);
    return status;
}

tt_status tt_row_need_chat(struct tt_row_reader *reader)
{
    TT_TRY(tt_row_need_tokenizer(reader));
    return reader->chat != NULL ? TT_OK : tt_chat_create(reader->config, reader->tokenizer, &reader->chat);
}

/* The row is parsed once more, with what is in its lists. */
static tt_status read_conversation(struct tt_row_reader *reader, struct tt_row *out)
{
    struct tt_json json = {0};
    struct tt_chat_row_report report = {0};
    tt_status status = TT_OK;
    TT_TRY(tt_row_within(reader, tt_conversation_check_size(&reader->json)));
    TT_TRY(tt_row_need_chat(reader));
    TT_GO(tt_row_parse(reader, reader->members, false, &json));
    tt_row_forget_source(reader);
    tt_row_clear_ids(&reader->ids, 0);
    TT_GO(tt_row_within(reader, tt_chat_row_read(reader->chat, reader->scratch, &json, reader->part,
                                                 &reader->ids, &reader->supervised, &report)));
    TT_GO(tt_row_check_ids(reader, true));
    reader->ids.limit = reader->ids_max;
    tt_ids_clip(&reader->ids);
    memcpy(reader->roles, report.roles, sizeof reader->roles);
    *out = (struct tt_row){.prompt_mismatch = report.prompt_mismatch,
                           .parts = report.parts,
                           .conversation = true,
                           .roles_mapped = report.roles_mapped,
                           .history_differs = report.history_differs,
                           .roles = reader->roles,
                           .role_count = report.role_count,
                           .answer_empty = report.answer_empty};
out:
    tt_json_deinit(&json);
    return status;
}

static tt_status read_object(struct tt_row_reader *reader, const struct tt_json_value *row,
                             struct tt_row *out)
{
    const struct tt_data_config *config = reader->config;
    bool has_prompt =
        config->prompt_template != NULL || tt_json_get(row, config->dataset_prompt_field) != NULL;
    bool has_completion = tt_json_get(row, config->dataset_completion_field) != NULL;
    if (config->preference) return tt_row_read_pair(reader, row, out);
    if (tt_json_get(row, "input_ids") != NULL) return tt_row_read_ids(reader, row, out);
    if (tt_conversation_has_messages(row)) return read_conversation(reader, out);
    if (has_prompt && has_completion) return read_completion_row(reader, row, out);
    if (tt_json_get(row, config->dataset_text_field) != NULL) return read_text_row(reader, row, out);
    if (tt_conversation_is_alpaca(row)) return read_conversation(reader, out);
    return refuse_row(reader);
}

static tt_status read_json(struct tt_row_reader *reader, struct tt_row *out)
{
    struct tt_json *json = &reader->json;
    tt_status status = tt_row_parse(reader, reader->members, true, json);
    if (status == TT_ERR_DATA) tt_rows_hint(reader->rows, reader->row);
    TT_TRY(status);
    status = tt_json_is_object(json->root) ? read_object(reader, json->root, out)
                                           : tt_row_fail(reader, TT_ERR_DATA, "a row must be an object");
    tt_json_deinit(json);
    return status;
}

static tt_status read_plain(struct tt_row_reader *reader, const struct tt_row_span *span, struct tt_row *out)
{
    if (reader->config->preference)
        return tt_row_fail(reader, TT_ERR_DATA, "a file of plain text has no preferences");
    TT_TRY(check_conversational(reader, NULL));
    TT_TRY(tt_row_need_tokenizer(reader));
    tt_str_clear(&reader->text);
    TT_TRY(tt_str_append(&reader->text, span->data, span->bytes));
    tt_row_forget_source(reader);
    TT_TRY(end_text(reader));
    TT_TRY(encode_text(reader));
    TT_TRY(tt_row_set_supervised(reader, 0));
    *out = (struct tt_row){0};
    return TT_OK;
}

/* What a long row has filled is not kept while the next one is read. */
static void forget_row(struct tt_row_reader *reader)
{
    struct tt_str *texts[] = {&reader->prompt, &reader->completion, &reader->supervised};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        if (texts[i]->capacity > LONG_TEXT_BYTES) tt_str_deinit(texts[i]);
    struct tt_ids *ids[] = {&reader->ids, &reader->prompt_ids};
    for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++)
        if (ids[i]->capacity > LONG_IDS) tt_ids_deinit(ids[i]);
}

tt_status tt_row_read(struct tt_row_reader *reader, size_t index, size_t part, struct tt_row *out)
{
    bool other_side = reader->config->preference && part == 1;
    reader->row = index;
    reader->part = part;
    forget_row(reader);
    const struct tt_row_span *span = &reader->rows->spans[index];
    struct tt_row row = {0};
    if (other_side)
        TT_TRY(tt_row_take_side(reader, 1, &row));
    else
        TT_TRY(reader->rows->plain_text ? read_plain(reader, span, &row) : read_json(reader, &row));
    row.ids = reader->ids.data;
    row.supervised = (const uint8_t *)reader->supervised.data;
    row.count = reader->ids.count;
    row.total = reader->ids.count + reader->ids.beyond;
    if (row.parts == 0) row.parts = 1;
    *out = row;
    return TT_OK;
}
