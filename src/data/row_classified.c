/* Rows of a text, a conversation or ids with the label of the whole. Texts are tokenized as transformers' tokenizers do
 * it for a classifier: no token ends them. The label is a number, or one of the names of id2label; the value of the
 * sample is its number. */
#include "data/conversation.h"
#include "data/row_reader_impl.h"

enum { LABEL_MOST = 1 << 20 }; /* exact as a float */

/* A row that is none of this kind. */
static tt_status refuse(const struct tt_row_reader *reader)
{
    tt_status status = tt_row_lacks(reader, "label with a text, a conversation or ids");
    if (status == TT_ERR_DATA)
        tt_hint("rows are {\"%s\": ..., \"label\": 0}", reader->config->dataset_text_field);
    return status;
}

static tt_status find_name(struct tt_row_reader *reader, const char *name, int64_t *label)
{
    const char *names = reader->config->id2label;
    *label = -1;
    if (names != NULL && reader->labels.count == 0)
        TT_TRY(tt_labels_parse(names, "id2label", &reader->labels));
    if (names != NULL) *label = tt_labels_find(&reader->labels, name);
    if (*label >= 0) return TT_OK;
    tt_row_fail(reader, TT_ERR_DATA, "'label' is '%.60s', which id2label does not name", name);
    tt_hint("name the labels in the order of their numbers: --id2label negative positive");
    return TT_ERR_DATA;
}

static tt_status read_label(struct tt_row_reader *reader, const struct tt_json_value *value, float *label)
{
    int64_t number = tt_json_integer(value);
    const char *name = tt_json_text(value);
    if (name != NULL) TT_TRY(find_name(reader, name, &number));
    if (name == NULL && (!tt_json_is_integer(value) || number < 0 || number >= LABEL_MOST))
        return tt_row_fail(reader, TT_ERR_DATA, "'label' is neither the number of a label nor its name");
    *label = (float)number;
    return TT_OK;
}

static tt_status read_text(struct tt_row_reader *reader, const struct tt_json_value *row, struct tt_row *out)
{
    TT_TRY(tt_row_need_tokenizer(reader));
    TT_TRY(tt_row_read_string(reader, row, reader->config->dataset_text_field, &reader->text));
    tt_row_forget_source(reader);
    tt_row_clear_ids(&reader->ids, reader->ids_max);
    TT_TRY(tt_row_within(reader,
                         tt_tokenizer_encode(reader->tokenizer, reader->scratch, tt_str_text(&reader->text),
                                             reader->text.bytes, true, &reader->ids)));
    *out = (struct tt_row){0};
    return tt_row_check_ids(reader, true);
}

static tt_status read(struct tt_row_reader *reader, const struct tt_json_value *row, struct tt_row *out)
{
    const struct tt_json_value *value = tt_json_get(row, "label");
    float label;
    if (value == NULL || tt_json_is_null(value)) return refuse(reader);
    TT_TRY(read_label(reader, value, &label));
    if (tt_conversation_has_messages(row))
        TT_TRY(tt_row_messages.read(reader, row, out));
    else if (tt_row_ids.accepts(reader, row))
        TT_TRY(tt_row_ids.read(reader, row, out));
    else if (tt_row_text.accepts(reader, row))
        TT_TRY(read_text(reader, row, out));
    else
        return refuse(reader);
    out->value = label;
    return tt_row_set_supervised(reader, 0); /* the score is of the whole */
}

static const char *const members[] = {"label", NULL};

const struct tt_row_kind tt_row_classified = {.name = "classified",
                                              .plural = "labels of classes",
                                              .value = "label",
                                              .members = members,
                                              .samples_each = 1,
                                              .read = read};
