/* Rows of prompt, completion and label, as TRL 1.16's KTO trainer reads them: texts, or lists of messages. The label
 * says whether the completion is desirable; it is the value of the sample, 1 or 0. */
#include "data/conversation.h"
#include "data/row_reader_impl.h"

/* A row that is none of this kind, parsed once more with all its members. */
static tt_status refuse(const struct tt_row_reader *reader)
{
    struct tt_json json = {0};
    char members[200];
    TT_TRY(tt_row_parse(reader, NULL, true, &json));
    bool pair = tt_json_get(json.root, "chosen") != NULL && tt_json_get(json.root, "rejected") != NULL;
    tt_row_list_members(json.root, members, sizeof members);
    tt_json_deinit(&json);
    tt_row_fail(reader, TT_ERR_DATA, "the row has no prompt, completion and label; it has %s", members);
    tt_hint("%s", pair ? "write a preference as two rows: its chosen answer with label true, its rejected "
                         "one with label "
                         "false; objectives dpo, orpo and cpo read preferences"
                       : "rows are {\"prompt\": ..., \"completion\": ..., \"label\": true or false}");
    return TT_ERR_DATA;
}

/* True and false, or the numbers 1 and 0 of files without truth values. */
static tt_status read_label(const struct tt_row_reader *reader, const struct tt_json_value *label,
                            float *value)
{
    bool is_number = tt_json_is_number(label);
    *value = tt_json_is_true(label) || (is_number && tt_json_number(label) == 1) ? 1 : 0;
    if (*value == 1 || tt_json_is_false(label) || (is_number && tt_json_number(label) == 0)) return TT_OK;
    tt_row_fail(reader, TT_ERR_DATA, "'label' is neither true nor false");
    tt_hint("true: the completion is desirable; false: it is not");
    return TT_ERR_DATA;
}

static tt_status read(struct tt_row_reader *reader, const struct tt_json_value *row, struct tt_row *out)
{
    const struct tt_json_value *label = tt_json_get(row, "label");
    float value;
    bool messages = tt_conversation_has_messages(row);
    /* A list that has no border between prompt and completion would be all completion. */
    bool parted = tt_json_get(row, "prompt") != NULL && tt_json_get(row, "completion") != NULL;
    bool is_labelled = messages ? parted : tt_row_completion.accepts(reader, row);
    if (label == NULL || tt_json_is_null(label) || !is_labelled) return refuse(reader);
    TT_TRY(read_label(reader, label, &value));
    TT_TRY((messages ? &tt_row_messages : &tt_row_completion)->read(reader, row, out));
    out->value = value;
    return TT_OK;
}

static const char *const members[] = {"label", NULL};

const struct tt_row_kind tt_row_labelled = {.name = "labelled",
                                            .plural = "labels",
                                            .value = "label",
                                            .members = members,
                                            .samples_each = 1,
                                            .read = read};
