/* Rows with a preference, as TRL 1.16's DPO trainer reads them: texts, or lists of messages. Prompt and answer are
 * tokenized as one text. Both answers begin at the first id where either of them differs from the prompt alone. */
#include <string.h>

#include "data/conversation.h"
#include "data/row_reader_impl.h"

enum { PAIR = 2 };

void tt_pair_ids_deinit(struct tt_pair_ids *pair)
{
    tt_ids_deinit(&pair->sides[0]);
    tt_ids_deinit(&pair->sides[1]);
}

static void swap_ids(struct tt_ids *a, struct tt_ids *b)
{
    struct tt_ids other = *a;
    *a = *b;
    *b = other;
}

/* Bytes of the prompt that two texts share, as TRL's extract_prompt finds it: whole characters, a space before the
 * first difference belongs to the answers, and at least the last character of the shorter one does. */
static size_t shared_prompt(const struct tt_str *a, const struct tt_str *b)
{
    size_t most = a->bytes < b->bytes ? a->bytes : b->bytes, i = 0;
    while (i < most && a->data[i] == b->data[i]) i++;
    bool differs = i < most;
    const char *text = a->bytes < b->bytes ? a->data : b->data;
    if (!differs && i > 0) i--;
    while (i > 0 && ((unsigned char)text[i] & 0xC0) == 0x80) i--;
    if (differs && i > 0 && text[i - 1] == ' ') i--;
    return i;
}

static void drop_first(struct tt_str *text, size_t bytes)
{
    memmove(text->data, text->data + bytes, text->bytes - bytes + 1);
    text->bytes -= bytes;
}

/* `chosen` and `rejected` begin with the prompt. */
static tt_status take_prompt(struct tt_row_reader *reader, struct tt_str answers[2])
{
    size_t bytes = shared_prompt(&answers[0], &answers[1]);
    tt_str_clear(&reader->prompt);
    if (bytes == 0) return TT_OK;
    TT_TRY(tt_str_append(&reader->prompt, answers[0].data, bytes));
    drop_first(&answers[0], bytes);
    drop_first(&answers[1], bytes);
    return TT_OK;
}

static tt_status encode_texts(struct tt_row_reader *reader, const struct tt_str answers[2])
{
    TT_TRY(tt_row_encode_prompt(reader));
    for (size_t side = 0; side < 2; side++) {
        TT_TRY(tt_row_encode_answer(reader, &answers[side]));
        swap_ids(&reader->ids, &reader->pair.sides[side]);
    }
    return TT_OK;
}

static tt_status read_texts(struct tt_row_reader *reader, const struct tt_json_value *row)
{
    const struct tt_data_config *config = reader->config;
    struct tt_str answers[2] = {{0}, {0}};
    bool has_prompt =
        config->prompt_template != NULL || tt_json_get(row, config->dataset_prompt_field) != NULL;
    tt_status status = tt_row_need_tokenizer(reader);
    TT_GO(status);
    TT_GO(tt_row_read_string(reader, row, "chosen", &answers[0]));
    TT_GO(tt_row_read_string(reader, row, "rejected", &answers[1]));
    TT_GO(has_prompt ? tt_row_read_prompt(reader, row) : take_prompt(reader, answers));
    tt_row_forget_source(reader);
    TT_GO(encode_texts(reader, answers));
out:
    tt_str_deinit(&answers[0]);
    tt_str_deinit(&answers[1]);
    return status;
}

static void clip(const struct tt_row_reader *reader, struct tt_ids *ids)
{
    ids->limit = reader->ids_max;
    tt_ids_clip(ids);
}

/* The row is parsed once more, with what is in its lists. */
static tt_status read_messages(struct tt_row_reader *reader)
{
    struct tt_json json = {0};
    struct tt_pair_ids *pair = &reader->pair;
    tt_status status = TT_OK;
    TT_TRY(tt_row_within(reader, tt_conversation_check_size(&reader->json)));
    TT_TRY(tt_row_need_chat(reader));
    TT_GO(tt_row_parse(reader, reader->members, false, &json));
    tt_row_forget_source(reader);
    tt_row_clear_ids(&reader->prompt_ids, 0);
    tt_row_clear_ids(&pair->sides[0], 0);
    tt_row_clear_ids(&pair->sides[1], 0);
    TT_GO(tt_row_within(reader, tt_chat_pair_read(reader->chat, reader->scratch, &json, &reader->prompt_ids,
                                                  pair->sides, &pair->roles_mapped)));
    pair->conversation = true;
    for (size_t side = 0; side < 2; side++) {
        swap_ids(&reader->ids, &pair->sides[side]);
        TT_GO(tt_row_check_ids(reader, true));
        clip(reader, &reader->ids);
        swap_ids(&reader->ids, &pair->sides[side]);
    }
    clip(reader, &reader->prompt_ids);
out:
    tt_json_deinit(&json);
    return status;
}

/* A row that is none of this kind. */
static tt_status refuse(const struct tt_row_reader *reader)
{
    tt_status status = tt_row_lacks(reader, "preference, 'chosen' and 'rejected'");
    if (status == TT_ERR_DATA)
        tt_hint("preferences are rows of prompt, chosen and rejected; rows of answers alone are trained with "
                "objective: sft");
    return status;
}

/* Gives the answer reader->part of the pair that was read: 0 the chosen one, 1 the rejected one. */
static tt_status take_side(struct tt_row_reader *reader, struct tt_row *out)
{
    const struct tt_pair_ids *pair = &reader->pair;
    swap_ids(&reader->ids, &reader->pair.sides[reader->part]);
    *out = (struct tt_row){.parts = PAIR,
                           .prompt_mismatch = pair->prompt_mismatch,
                           .conversation = pair->conversation,
                           .roles_mapped = pair->roles_mapped,
                           .pair = true,
                           .border = pair->border,
                           .shortest = pair->shortest,
                           .longest = pair->longest};
    return tt_row_set_supervised(reader, pair->border);
}

static tt_status read(struct tt_row_reader *reader, const struct tt_json_value *row, struct tt_row *out)
{
    struct tt_pair_ids *pair = &reader->pair;
    const struct tt_json_value *chosen = tt_json_get(row, "chosen"), *rejected = tt_json_get(row, "rejected");
    if (chosen == NULL || rejected == NULL || tt_json_is_null(chosen) || tt_json_is_null(rejected))
        return refuse(reader);
    pair->conversation = pair->roles_mapped = false;
    TT_TRY(tt_conversation_is_preference(row) ? read_messages(reader) : read_texts(reader, row));
    size_t first = tt_row_common_prefix(&reader->prompt_ids, &pair->sides[0]);
    size_t second = tt_row_common_prefix(&reader->prompt_ids, &pair->sides[1]);
    pair->border = first < second ? first : second;
    pair->prompt_mismatch = pair->border < reader->prompt_ids.count;
    size_t a = pair->sides[0].count + pair->sides[0].beyond, b = pair->sides[1].count + pair->sides[1].beyond;
    pair->shortest = a < b ? a : b;
    pair->longest = a > b ? a : b;
    return take_side(reader, out);
}

/* The members are those of conversations. */
const struct tt_row_kind tt_row_pair = {
    .name = "pair", .plural = "preferences", .samples_each = PAIR, .read = read, .next = take_side};
