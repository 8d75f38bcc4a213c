/* Calls of gpt-oss, which are messages of harmony:
 *     <|channel|>commentary to=functions.NAME <|constrain|>json<|message|>{...}
 * serve/thought.h reads the messages of an answer, and makes a call of another form of such a one. */
#include "serve/call_format.h"

static const char channel[] = "<|channel|>", constrain[] = "<|constrain|>", message[] = "<|message|>";
static const char *const marks[] = {channel, NULL};

struct tt_json_value *tt_call_harmony_message(const struct tt_tokenizer *tokenizer,
                                              struct tt_json_value *header, struct tt_json_value *body)
{
    return tt_json_pack("{s:[o, o, o, o]}", "sequence", tt_call_token_part(tokenizer, channel), header,
                        tt_call_token_part(tokenizer, message), body);
}

static tt_status find(struct tt_call_search *search, struct tt_span text, bool *are)
{
    (void)search, (void)text;
    *are = false;
    return TT_OK;
}

static tt_status write(const struct tt_call_model *model, const struct tt_json_value *function,
                       struct tt_json_value **part)
{
    struct tt_json_value *header = tt_json_pack(
        "{s:[o, o, {s:s}]}", "sequence", tt_call_name_part(function, "commentary to=functions.", false, " "),
        tt_call_token_part(model->tokenizer, constrain), "text", "json");
    *part = tt_call_harmony_message(model->tokenizer, header,
                                    tt_json_pack("{s:o}", "json", tt_call_schema(function)));
    return *part != NULL ? TT_OK : TT_ERR_MEMORY;
}

const struct tt_call_format tt_call_format_harmony = {
    .name = "harmony", .marks = marks, .find = find, .write = write};
