/* Rows with a text, of which every token trains; the rows of a file of plain text. */
#include "data/conversation.h"
#include "data/row_reader_impl.h"

/* TRL has a ValueError: every token would train. `row` NULL: plain text. */
tt_status tt_row_check_conversational(const struct tt_row_reader *reader, const struct tt_json_value *row)
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

static tt_status read(struct tt_row_reader *reader, const struct tt_json_value *row, struct tt_row *out)
{
    const char *key = reader->config->dataset_text_field;
    if (reader->config->completion_only_loss == 1) {
        return tt_row_fail(reader, TT_ERR_DATA,
                           "completion_only_loss is set, but the row has no prompt and completion");
    }
    TT_TRY(tt_row_check_conversational(reader, row));
    TT_TRY(tt_row_need_tokenizer(reader));
    TT_TRY(tt_row_read_string(reader, row, key, &reader->text));
    tt_row_forget_source(reader);
    TT_TRY(tt_row_encode_text(reader));
    TT_TRY(tt_row_set_supervised(reader, 0));
    *out = (struct tt_row){0};
    return TT_OK;
}

tt_status tt_row_read_plain(struct tt_row_reader *reader, struct tt_row *out)
{
    const struct tt_row_span *span = &reader->rows->spans[reader->row];
    const struct tt_row_kind *wanted = reader->config->rows_kind;
    if (wanted != NULL)
        return tt_row_fail(reader, TT_ERR_DATA, "a file of plain text has no %s", wanted->plural);
    TT_TRY(tt_row_check_conversational(reader, NULL));
    TT_TRY(tt_row_need_tokenizer(reader));
    tt_str_clear(&reader->text);
    TT_TRY(tt_str_append(&reader->text, span->data, span->bytes));
    tt_row_forget_source(reader);
    TT_TRY(tt_row_encode_text(reader));
    TT_TRY(tt_row_set_supervised(reader, 0));
    *out = (struct tt_row){0};
    return TT_OK;
}

static bool accepts(const struct tt_row_reader *reader, const struct tt_json_value *row)
{
    return tt_json_get(row, reader->config->dataset_text_field) != NULL;
}

const struct tt_row_kind tt_row_text = {.name = "text", .accepts = accepts, .read = read};
