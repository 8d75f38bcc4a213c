/* Rows of messages, in all the dialects of data/conversation.h. Those of Alpaca are a kind of their own: a text in the
 * row comes before them. */
#include <string.h>

#include "data/conversation.h"
#include "data/row_reader_impl.h"

tt_status tt_row_need_chat(struct tt_row_reader *reader)
{
    TT_TRY(tt_row_need_tokenizer(reader));
    return reader->chat != NULL ? TT_OK : tt_chat_create(reader->config, reader->tokenizer, &reader->chat);
}

/* The row is parsed once more, with what is in its lists. */
static tt_status read(struct tt_row_reader *reader, const struct tt_json_value *row, struct tt_row *out)
{
    (void)row;
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

static bool has_messages(const struct tt_row_reader *reader, const struct tt_json_value *row)
{
    (void)reader;
    return tt_conversation_has_messages(row);
}

static bool is_alpaca(const struct tt_row_reader *reader, const struct tt_json_value *row)
{
    (void)reader;
    return tt_conversation_is_alpaca(row);
}

const struct tt_row_kind tt_row_messages = {
    .name = "messages", .members = tt_conversation_members, .accepts = has_messages, .read = read};
const struct tt_row_kind tt_row_alpaca = {.name = "alpaca", .accepts = is_alpaca, .read = read};
