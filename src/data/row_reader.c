#include "data/row_reader_impl.h"

#include <stdarg.h>
#include <string.h>

#include "base/alloc.h"
#include "base/number.h"
#include "base/str.h"
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
    TT_TRY(tt_grow(&reader->members, reader->member_count, &reader->member_capacity));
    reader->members[reader->member_count++] = name;
    return TT_OK;
}

static const struct tt_row_kind *const kinds[] = {
#define ROW_KIND(name) &tt_row_##name,
#include "data/row_kinds.def"
#undef ROW_KIND
};
enum { KINDS = sizeof kinds / sizeof *kinds };

/* Columns of rows for models that see images or videos: names of TRL's data sets. */
static const char *const image_members[] = {"images", "image", "videos", "video"};
enum { IMAGE_MEMBERS = sizeof image_members / sizeof *image_members };

static tt_status list_members(struct tt_row_reader *reader)
{
    const struct tt_data_config *config = reader->config;
    for (int i = 0; config->text_part && i < IMAGE_MEMBERS; i++)
        TT_TRY(add_member(reader, tt_span_of(image_members[i])));
    const char *const fields[] = {config->dataset_text_field, config->dataset_prompt_field,
                                  config->dataset_completion_field};
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
        TT_TRY(add_member(reader, tt_span_of(fields[i])));
    for (size_t k = 0; k < KINDS; k++)
        for (const char *const *name = kinds[k]->members; name != NULL && *name != NULL; name++)
            TT_TRY(add_member(reader, tt_span_of(*name)));
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
    tt_labels_deinit(&reader->labels);
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
    return tt_fail(status, "'%s', row %zu (line %llu): %s", reader->rows->path,
                   reader->rows->before + reader->row + 1,
                   (unsigned long long)reader->rows->spans[reader->row].line, text);
}

tt_status tt_row_within(const struct tt_row_reader *reader, tt_status status)
{
    if (status != TT_OK) {
        tt_while("reading row %zu (line %llu) of '%s'", reader->rows->before + reader->row + 1,
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

tt_status tt_row_encode_text(struct tt_row_reader *reader)
{
    TT_TRY(end_text(reader));
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
    if (!reader->rows->in_memory) tt_file_map_release(span->data, span->bytes);
}

tt_status tt_row_need_tokenizer(const struct tt_row_reader *reader)
{
    if (reader->tokenizer != NULL) return TT_OK;
    tt_row_fail(reader, TT_ERR_DATA, "text needs a tokenizer, and the model folder has no tokenizer.json");
    tt_hint("rows with input_ids need none");
    return TT_ERR_DATA;
}

/* ---- Rows ---- */

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

size_t tt_row_common_prefix(const struct tt_ids *a, const struct tt_ids *b)
{
    size_t count = a->count < b->count ? a->count : b->count, i = 0;
    while (i < count && a->data[i] == b->data[i]) i++;
    return i;
}

tt_status tt_row_parse(const struct tt_row_reader *reader, const struct tt_span *members, bool outline,
                       struct tt_json *json)
{
    const struct tt_row_span *span = &reader->rows->spans[reader->row];
    struct tt_str origin = {0};
    tt_status status = TT_OK;
    TT_GO(
        tt_str_printf(&origin, "'%s', row %zu", reader->rows->path, reader->rows->before + reader->row + 1));
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

const char *tt_row_image_column(const struct tt_json_value *row)
{
    for (int i = 0; i < IMAGE_MEMBERS; i++) {
        const struct tt_json_value *value = tt_json_get(row, image_members[i]);
        bool none = value == NULL || tt_json_is_null(value) ||
                    (tt_json_is_list(value) && tt_json_count(value) == 0) ||
                    (tt_json_is_string(value) && *tt_json_text(value) == '\0');
        if (!none) return image_members[i];
    }
    return NULL;
}

/* The text of such a row speaks of what the text part does not see. */
static tt_status check_images(const struct tt_row_reader *reader, const struct tt_json_value *row)
{
    const char *column = reader->config->text_part ? tt_row_image_column(row) : NULL;
    if (column == NULL) return TT_OK;
    tt_row_fail(reader, TT_ERR_UNSUPPORTED, "the row has '%s', and of this model the text part is served",
                column);
    tt_hint("leave out the rows with images");
    return TT_ERR_UNSUPPORTED;
}

static tt_status read_object(struct tt_row_reader *reader, const struct tt_json_value *row,
                             struct tt_row *out)
{
    const struct tt_row_kind *wanted = reader->config->rows_kind;
    TT_TRY(check_images(reader, row));
    if (wanted != NULL) return wanted->read(reader, row, out);
    for (size_t k = 0; k < KINDS; k++)
        if (kinds[k]->plural == NULL && kinds[k]->accepts(reader, row))
            return kinds[k]->read(reader, row, out);
    return tt_row_refuse(reader);
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

void tt_row_reader_turn(struct tt_row_reader *reader, const struct tt_rows *rows)
{
    reader->rows = rows;
}

/* Memory that a long row has filled is not kept while the next one is read. */
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
    const struct tt_row_kind *wanted = reader->config->rows_kind;
    reader->row = index;
    reader->part = part;
    forget_row(reader);
    struct tt_row row = {0};
    if (part > 0 && wanted != NULL)
        TT_TRY(wanted->next(reader, &row));
    else
        TT_TRY(reader->rows->plain_text ? tt_row_read_plain(reader, &row) : read_json(reader, &row));
    row.ids = reader->ids.data;
    row.supervised = (const uint8_t *)reader->supervised.data;
    row.count = reader->ids.count;
    row.total = reader->ids.count + reader->ids.beyond;
    if (row.parts == 0) row.parts = 1;
    *out = row;
    return TT_OK;
}
