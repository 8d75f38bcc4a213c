#include "data/row_reader.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json.h"
#include "base/number.h"
#include "base/str.h"
#include "data/chat_row.h"
#include "data/prompt_template.h"

enum { LONG_TEXT_BYTES = 1 << 20, LONG_IDS = LONG_TEXT_BYTES / 4 };

struct tt_row_reader {
    const struct tt_rows *rows;
    const struct tt_data_config *config;
    const struct tt_tokenizer *tokenizer;
    int64_t vocab_size;
    size_t ids_max;                  /* of a text; 0: all */
    const char *bos_text, *eos_text; /* NULL: the tokenizer has none */
    int32_t bos_id, eos_id;
    bool adds_eos; /* the tokenizer itself ends every text with EOS */
    struct tt_tokenizer_scratch *scratch;
    struct tt_span *members; /* that are read: of long rows the others take no memory */
    size_t member_count, member_capacity;
    struct tt_json json; /* of the current row, until its texts are copied */
    struct tt_ids ids, prompt_ids;
    struct tt_str supervised;   /* one byte per id */
    struct tt_str text, prompt; /* the text to tokenize; the prompt alone */
    struct tt_str completion;
    struct tt_chat *chat; /* NULL until a row is a conversation */
    size_t row, part;     /* the current row, for messages; the sample of it */
};

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
    if (tt_grow((void **)&reader->members, reader->member_count, &reader->member_capacity,
                sizeof *reader->members) != 0)
        return TT_ERR_MEMORY;
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
                                 config->dataset_text_field,
                                 config->dataset_prompt_field,
                                 config->dataset_completion_field};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        TT_TRY(add_member(reader, tt_span_of(names[i])));
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

static tt_status fail_row(const struct tt_row_reader *reader, tt_status status, const char *format, ...)
    TT_PRINTF(3, 4);

static tt_status fail_row(const struct tt_row_reader *reader, tt_status status, const char *format, ...)
{
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    tt_vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return tt_fail(status, "'%s', row %zu (line %llu): %s", reader->rows->path, reader->row + 1,
                   (unsigned long long)reader->rows->spans[reader->row].line, text);
}

/* Adds the row to the record of a callee that does not know it. */
static tt_status in_row(const struct tt_row_reader *reader, tt_status status)
{
    if (status != TT_OK) {
        tt_while("reading row %zu (line %llu) of '%s'", reader->row + 1,
                 (unsigned long long)reader->rows->spans[reader->row].line, reader->rows->path);
    }
    return status;
}

/* ---- Ids ---- */

static tt_status check_ids(const struct tt_row_reader *reader, bool own_tokenizer)
{
    for (size_t i = 0; i < reader->ids.count; i++) {
        int32_t id = reader->ids.data[i];
        if (id >= 0 && id < reader->vocab_size) continue;
        if (own_tokenizer) {
            fail_row(reader, TT_ERR_DATA, "the tokenizer gives id %d, but the model's vocabulary has %lld",
                     (int)id, (long long)reader->vocab_size);
            tt_hint("the tokenizer does not belong to this model");
            return TT_ERR_DATA;
        }
        return fail_row(reader, TT_ERR_DATA, "input_ids[%zu] is %d; the model's vocabulary has ids 0 to %lld",
                        i, (int)id, (long long)reader->vocab_size - 1);
    }
    return TT_OK;
}

/* Drops the ids of the previous row. */
static void clear_ids(struct tt_ids *ids, size_t limit)
{
    ids->count = ids->beyond = 0;
    ids->limit = limit;
}

static tt_status set_supervised(struct tt_row_reader *reader, size_t first_supervised)
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
    clear_ids(&reader->ids, reader->ids_max);
    TT_TRY(in_row(reader, tt_tokenizer_encode(reader->tokenizer, reader->scratch, tt_str_text(&reader->text),
                                              reader->text.bytes, true, &reader->ids)));
    const struct tt_ids *ids = &reader->ids;
    bool twice = reader->bos_text != NULL && *reader->bos_text != '\0' && ids->count > 1 &&
                 ids->data[0] == reader->bos_id && ids->data[1] == reader->bos_id &&
                 tt_span_starts_with(text_of(reader), reader->bos_text);
    if (twice) {
        fail_row(reader, TT_ERR_DATA,
                 "the text begins with '%s', which the tokenizer adds: the sample would have it twice",
                 reader->bos_text);
        tt_hint("remove it from the rows");
        return TT_ERR_DATA;
    }
    if (reader->text.bytes > LONG_TEXT_BYTES) tt_str_deinit(&reader->text); /* the sample may keep a copy */
    return check_ids(reader, true);
}

/* What is read of the row is copied: a long row is not kept as JSON values and as pages of the file, too, while
 * it is tokenized. */
static void forget_source(struct tt_row_reader *reader)
{
    const struct tt_row_span *span = &reader->rows->spans[reader->row];
    tt_json_deinit(&reader->json);
    tt_file_map_release(span->data, span->bytes);
}

static tt_status need_tokenizer(const struct tt_row_reader *reader)
{
    if (reader->tokenizer != NULL) return TT_OK;
    fail_row(reader, TT_ERR_DATA, "text needs a tokenizer, and the model folder has no tokenizer.json");
    tt_hint("rows with input_ids need none");
    return TT_ERR_DATA;
}

/* ---- Row kinds ---- */

static tt_status read_string(const struct tt_row_reader *reader, const struct tt_json_value *row,
                             const char *key, struct tt_str *out)
{
    const struct tt_json_value *value = tt_json_get(row, key);
    if (tt_json_is_list(value)) {
        return fail_row(
            reader, TT_ERR_DATA,
            "'%s' is a list and not a text; the messages of a conversation are in 'messages', or in "
            "'prompt' and 'completion'",
            key);
    }
    if (!tt_json_is_string(value)) return fail_row(reader, TT_ERR_DATA, "'%s' must be a string", key);
    tt_str_clear(out);
    return tt_str_append(out, tt_json_span(value).data, tt_json_span(value).bytes);
}

static tt_status read_text_row(struct tt_row_reader *reader, const struct tt_json_value *row,
                               struct tt_row *out)
{
    const char *key = reader->config->dataset_text_field;
    if (reader->config->completion_only_loss == 1) {
        return fail_row(reader, TT_ERR_DATA,
                        "completion_only_loss is set, but the row has no prompt and completion");
    }
    TT_TRY(need_tokenizer(reader));
    TT_TRY(read_string(reader, row, key, &reader->text));
    forget_source(reader);
    TT_TRY(end_text(reader));
    TT_TRY(encode_text(reader));
    TT_TRY(set_supervised(reader, 0));
    *out = (struct tt_row){0};
    return TT_OK;
}

static tt_status read_prompt(struct tt_row_reader *reader, const struct tt_json_value *row)
{
    const char *template = reader->config->prompt_template;
    if (template == NULL)
        return read_string(reader, row, reader->config->dataset_prompt_field, &reader->prompt);
    tt_str_clear(&reader->prompt);
    return in_row(reader, tt_prompt_template_render(template, row, &reader->prompt));
}

static size_t common_prefix(const struct tt_ids *a, const struct tt_ids *b)
{
    size_t count = a->count < b->count ? a->count : b->count, i = 0;
    while (i < count && a->data[i] == b->data[i]) i++;
    return i;
}

/* Prompt and completion are tokenized as one text. The completion begins at the first token that differs from
 * those of the prompt alone (TRL 1.16, common_prefix_length): where a token spans the border, that token is
 * supervised. Such rows are counted. */
static tt_status read_completion_row(struct tt_row_reader *reader, const struct tt_json_value *row,
                                     struct tt_row *out)
{
    const struct tt_data_config *config = reader->config;
    TT_TRY(need_tokenizer(reader));
    TT_TRY(read_prompt(reader, row));
    TT_TRY(read_string(reader, row, config->dataset_completion_field, &reader->completion));
    forget_source(reader);

    struct tt_ids *prompt_ids = &reader->prompt_ids;
    clear_ids(prompt_ids, reader->ids_max);
    TT_TRY(
        in_row(reader, tt_tokenizer_encode(reader->tokenizer, reader->scratch, tt_str_text(&reader->prompt),
                                           reader->prompt.bytes, true, prompt_ids)));
    if (reader->adds_eos && prompt_ids->count > 0 && prompt_ids->beyond == 0) prompt_ids->count--;

    tt_str_clear(&reader->text);
    TT_TRY(tt_str_append(&reader->text, tt_str_text(&reader->prompt), reader->prompt.bytes));
    TT_TRY(tt_str_append(&reader->text, tt_str_text(&reader->completion), reader->completion.bytes));
    TT_TRY(end_text(reader));
    TT_TRY(encode_text(reader));

    size_t first = common_prefix(prompt_ids, &reader->ids);
    TT_TRY(set_supervised(reader, config->completion_only_loss == 0 ? 0 : first));
    *out = (struct tt_row){.prompt = tt_str_text(&reader->prompt),
                           .completion = tt_str_text(&reader->completion),
                           .prompt_mismatch = first < prompt_ids->count};
    return TT_OK;
}

/* A list of integers as long as input_ids, or NULL when the row has none. */
static tt_status find_list(const struct tt_row_reader *reader, const struct tt_json_value *row,
                           const char *key, size_t count, const struct tt_json_value **out)
{
    const struct tt_json_value *list = tt_json_get(row, key);
    *out = NULL;
    if (list == NULL || tt_json_is_null(list)) return TT_OK;
    if (!tt_json_is_list(list)) return fail_row(reader, TT_ERR_DATA, "'%s' must be a list", key);
    if (tt_json_count(list) != count) {
        return fail_row(reader, TT_ERR_DATA, "'%s' has %zu entries, but input_ids has %zu", key,
                        tt_json_count(list), count);
    }
    *out = list;
    return TT_OK;
}

static tt_status read_ids(struct tt_row_reader *reader, const struct tt_json_value *list)
{
    struct tt_json_walk walk = tt_json_walk(list);
    enum tt_json_type type;
    int64_t id;
    clear_ids(&reader->ids, 0);
    while (tt_json_walk_next(&walk, &type, &id)) {
        if (type != TT_JSON_INTEGER || id < 0 || id > INT32_MAX) {
            return fail_row(reader, TT_ERR_DATA, "input_ids[%zu] is not a token id", reader->ids.count);
        }
        TT_TRY(tt_ids_append(&reader->ids, (int32_t)id));
    }
    return check_ids(reader, false);
}

static tt_status apply_labels(struct tt_row_reader *reader, const struct tt_json_value *labels)
{
    struct tt_json_walk walk = tt_json_walk(labels);
    enum tt_json_type type;
    int64_t label;
    for (size_t i = 0; tt_json_walk_next(&walk, &type, &label); i++) {
        if (type != TT_JSON_INTEGER) return fail_row(reader, TT_ERR_DATA, "labels[%zu] is not an integer", i);
        if (label != TT_LABEL_NONE && label != reader->ids.data[i]) {
            return fail_row(reader, TT_ERR_UNSUPPORTED,
                            "labels[%zu] is %lld: a label must repeat its input id (%d) or be -100", i,
                            (long long)label, (int)reader->ids.data[i]);
        }
        if (label == TT_LABEL_NONE) reader->supervised.data[i] = 0;
    }
    return TT_OK;
}

static tt_status apply_mask(struct tt_row_reader *reader, const char *key, const struct tt_json_value *mask)
{
    struct tt_json_walk walk = tt_json_walk(mask);
    enum tt_json_type type;
    int64_t value;
    for (size_t i = 0; tt_json_walk_next(&walk, &type, &value); i++) {
        bool on = type == TT_JSON_TRUE || (type == TT_JSON_INTEGER && value == 1);
        bool off = type == TT_JSON_FALSE || (type == TT_JSON_INTEGER && value == 0);
        if (!on && !off) return fail_row(reader, TT_ERR_DATA, "%s[%zu] must be 0 or 1", key, i);
        if (off) reader->supervised.data[i] = 0;
    }
    return TT_OK;
}

static tt_status read_ids_row(struct tt_row_reader *reader, const struct tt_json_value *row,
                              struct tt_row *out)
{
    const struct tt_json_value *ids = tt_json_get(row, "input_ids"), *labels, *mask, *assistant;
    if (!tt_json_is_list(ids)) return fail_row(reader, TT_ERR_DATA, "'input_ids' must be a list of integers");
    TT_TRY(read_ids(reader, ids));
    TT_TRY(find_list(reader, row, "labels", reader->ids.count, &labels));
    TT_TRY(find_list(reader, row, "completion_mask", reader->ids.count, &mask));
    TT_TRY(find_list(reader, row, "assistant_masks", reader->ids.count, &assistant));
    if (reader->config->completion_only_loss == 0) mask = NULL;
    if (reader->config->assistant_only_loss && assistant == NULL && labels == NULL)
        return fail_row(reader, TT_ERR_DATA,
                        "assistant_only_loss is set, but the row has no assistant_masks");
    if (reader->config->completion_only_loss == 1 && mask == NULL && labels == NULL) {
        return fail_row(reader, TT_ERR_DATA,
                        "completion_only_loss is set, but the row has no completion_mask");
    }
    TT_TRY(set_supervised(reader, 0));
    if (labels != NULL) TT_TRY(apply_labels(reader, labels));
    if (mask != NULL) TT_TRY(apply_mask(reader, "completion_mask", mask));
    if (assistant != NULL) TT_TRY(apply_mask(reader, "assistant_masks", assistant));
    forget_source(reader);
    *out = (struct tt_row){0};
    return TT_OK;
}

/* Messages as one text, as tables (CSV) hold them. */
static tt_status refuse_texts_of_messages(const struct tt_row_reader *reader, const struct tt_json_value *row)
{
    static const char *const names[] = {"messages", "conversations"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (!tt_json_is_string(tt_json_get(row, names[i]))) continue;
        fail_row(reader, TT_ERR_DATA, "'%s' is a text; a list of messages is expected", names[i]);
        tt_hint("write the list itself, in Python: row['%s'] = json.loads(row['%s'])", names[i], names[i]);
        return TT_ERR_DATA;
    }
    return TT_OK;
}

/* Fails for a row of no supported kind: lists its keys, with a hint for known dialects. */
static tt_status refuse_members(const struct tt_row_reader *reader, const struct tt_json_value *row)
{
    const struct tt_data_config *config = reader->config;
    if (tt_json_get(row, "chosen") != NULL) {
        fail_row(reader, TT_ERR_UNSUPPORTED, "preference rows ('chosen', 'rejected') are not supported");
        tt_hint("to train on the chosen answers, write them as 'completion' of rows with 'prompt', or as the "
                "last of "
                "'messages'");
        return TT_ERR_UNSUPPORTED;
    }
    TT_TRY(refuse_texts_of_messages(reader, row));
    char keys[200] = "";
    size_t used = 0;
    const char *key;
    const struct tt_json_value *value;
    for (size_t member = 0; tt_json_next_member(row, &member, &key, &value);) {
        if (used < sizeof keys) {
            used += (size_t)snprintf(keys + used, sizeof keys - used, "%s'%s'", used > 0 ? ", " : "", key);
        }
    }
    fail_row(reader, TT_ERR_DATA, "neither '%s', nor '%s' with '%s', nor 'input_ids'; it has %s",
             config->dataset_text_field, config->dataset_prompt_field, config->dataset_completion_field,
             used > 0 ? keys : "no fields");
    tt_hint("name the fields with dataset_text_field, or dataset_prompt_field and dataset_completion_field, "
            "or join "
            "several into the prompt with prompt_template");
    return TT_ERR_DATA;
}

/* `outline`: lists and objects of the row are not parsed. */
static tt_status parse_row(const struct tt_row_reader *reader, const struct tt_span *members, bool outline,
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
    TT_TRY(parse_row(reader, NULL, true, &json));
    tt_status status = refuse_members(reader, json.root);
    tt_json_deinit(&json);
    return status;
}

/* The row is parsed once more, with what is in its lists. */
static tt_status read_conversation(struct tt_row_reader *reader, struct tt_row *out)
{
    struct tt_json json = {0};
    struct tt_chat_row_report report = {0};
    tt_status status = TT_OK;
    TT_TRY(need_tokenizer(reader));
    if (reader->chat == NULL) TT_TRY(tt_chat_create(reader->config, reader->tokenizer, &reader->chat));
    TT_GO(parse_row(reader, reader->members, false, &json));
    forget_source(reader);
    clear_ids(&reader->ids, 0);
    TT_GO(in_row(reader, tt_chat_row_read(reader->chat, reader->scratch, &json, reader->part, &reader->ids,
                                          &reader->supervised, &report)));
    TT_GO(check_ids(reader, true));
    reader->ids.limit = reader->ids_max;
    tt_ids_clip(&reader->ids);
    *out = (struct tt_row){.prompt_mismatch = report.prompt_mismatch,
                           .parts = report.parts,
                           .conversation = true,
                           .roles_mapped = report.roles_mapped,
                           .history_differs = report.history_differs};
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
    if (tt_json_get(row, "input_ids") != NULL) return read_ids_row(reader, row, out);
    if (tt_conversation_has_messages(row)) return read_conversation(reader, out);
    if (has_prompt && has_completion) return read_completion_row(reader, row, out);
    if (tt_json_get(row, config->dataset_text_field) != NULL) return read_text_row(reader, row, out);
    if (tt_conversation_is_alpaca(row)) return read_conversation(reader, out);
    return refuse_row(reader);
}

static tt_status read_json(struct tt_row_reader *reader, struct tt_row *out)
{
    struct tt_json *json = &reader->json;
    tt_status status = parse_row(reader, reader->members, true, json);
    if (status == TT_ERR_DATA) tt_rows_hint(reader->rows, reader->row);
    TT_TRY(status);
    status = tt_json_is_object(json->root) ? read_object(reader, json->root, out)
                                           : fail_row(reader, TT_ERR_DATA, "a row must be an object");
    tt_json_deinit(json);
    return status;
}

static tt_status read_plain(struct tt_row_reader *reader, const struct tt_row_span *span, struct tt_row *out)
{
    TT_TRY(need_tokenizer(reader));
    tt_str_clear(&reader->text);
    TT_TRY(tt_str_append(&reader->text, span->data, span->bytes));
    forget_source(reader);
    TT_TRY(end_text(reader));
    TT_TRY(encode_text(reader));
    TT_TRY(set_supervised(reader, 0));
    *out = (struct tt_row){0};
    return TT_OK;
}

/* What a long row has filled is not kept while the next one is read. */
static void forget_row(struct tt_row_reader *reader)
{
    struct tt_str *texts[] = {&reader->prompt, &reader->completion, &reader->supervised};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        if (texts[i]->capacity > LONG_TEXT_BYTES) tt_str_deinit(texts[i]);
    if (reader->ids.capacity > LONG_IDS) tt_ids_deinit(&reader->ids);
    if (reader->prompt_ids.capacity > LONG_IDS) tt_ids_deinit(&reader->prompt_ids);
}

tt_status tt_row_read(struct tt_row_reader *reader, size_t index, size_t part, struct tt_row *out)
{
    reader->row = index;
    reader->part = part;
    forget_row(reader);
    const struct tt_row_span *span = &reader->rows->spans[index];
    struct tt_row row = {0};
    TT_TRY(reader->rows->plain_text ? read_plain(reader, span, &row) : read_json(reader, &row));
    row.ids = reader->ids.data;
    row.supervised = (const uint8_t *)reader->supervised.data;
    row.count = reader->ids.count;
    row.total = reader->ids.count + reader->ids.beyond;
    if (row.parts == 0) row.parts = 1;
    *out = row;
    return TT_OK;
}
