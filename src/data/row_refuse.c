/* Rows of no kind: what is wrong with them. */
#include <stdio.h>
#include <string.h>

#include "base/number.h"
#include "data/csv_rows.h"
#include "data/row_reader_impl.h"

/* Messages as one text, as tables (CSV) hold them. */
static tt_status refuse_texts_of_messages(const struct tt_row_reader *reader, const struct tt_json_value *row)
{
    static const char *const names[] = {"messages", "conversations", "conversation"};
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
                                  "conversation",
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
        tt_hint(
            "objectives dpo, orpo and cpo train on preferences; to train on the chosen answers alone, write "
            "them as 'completion' of rows with 'prompt', or as the last of 'messages'");
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

tt_status tt_row_lacks(const struct tt_row_reader *reader, const char *what)
{
    struct tt_json json = {0};
    char members[200];
    TT_TRY(tt_row_parse(reader, NULL, true, &json));
    tt_row_list_members(json.root, members, sizeof members);
    tt_json_deinit(&json);
    return tt_row_fail(reader, TT_ERR_DATA, "the row has no %s; it has %s", what, members);
}

/* The row is parsed once more, with the members that are not read. */
tt_status tt_row_refuse(const struct tt_row_reader *reader)
{
    struct tt_json json = {0};
    TT_TRY(tt_row_parse(reader, NULL, true, &json));
    tt_status status = refuse_members(reader, json.root);
    tt_json_deinit(&json);
    return status;
}
