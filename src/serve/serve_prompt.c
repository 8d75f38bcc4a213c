#include "serve/serve_prompt.h"

#include <string.h>

void tt_serve_prompt_deinit(struct tt_serve_prompt *prompt)
{
    tt_ids_deinit(&prompt->ids);
    tt_str_deinit(&prompt->text);
    *prompt = (struct tt_serve_prompt){0};
}

static tt_status copy_ids(const struct tt_json_value *list, struct tt_ids *ids)
{
    for (size_t i = 0; i < tt_json_count(list); i++)
        TT_TRY(tt_ids_append(ids, (int32_t)tt_json_integer(tt_json_at(list, i))));
    return TT_OK;
}

static tt_status encode(struct tt_talk *talk, const struct tt_api_request *request, size_t index,
                        struct tt_ids *ids)
{
    ids->count = ids->beyond = 0;
    if (request->row != NULL) return tt_talk_prompt(talk, request->row, "the request", ids);
    const struct tt_api_prompt *prompt = &request->prompts[index];
    if (prompt->ids != NULL) return copy_ids(prompt->ids, ids);
    return tt_tokenizer_encode(talk->inputs->tokenizer, talk->scratch, prompt->text.data, prompt->text.bytes,
                               !request->plain_prompt, ids);
}

/* Leaves the end of the prompt. True: it was longer. */
static bool truncate_prompt(const struct tt_talk *talk, const struct tt_api_request *request,
                            int64_t new_tokens, struct tt_ids *ids)
{
    int64_t most = request->truncate_prompt;
    if (most == 0) return false;
    if (most < 0) most = tt_talk_length(talk) - new_tokens;
    if (most < 1) most = 1;
    if (ids->count <= (size_t)most) return false;
    memmove(ids->data, ids->data + ids->count - (size_t)most, (size_t)most * sizeof *ids->data);
    ids->count = (size_t)most;
    return true;
}

tt_status tt_serve_prompt_make(struct tt_talk *talk, const struct tt_api_request *request, size_t index,
                               int64_t new_tokens, struct tt_serve_prompt *prompt)
{
    TT_TRY(encode(talk, request, index, &prompt->ids));
    bool cut = truncate_prompt(talk, request, new_tokens, &prompt->ids);
    if (!request->echo) return TT_OK;
    const struct tt_span given = request->prompts[index].text;
    if (given.data != NULL && !cut) return tt_str_append(&prompt->text, given.data, given.bytes);
    return tt_tokenizer_decode(talk->inputs->tokenizer, prompt->ids.data, prompt->ids.count, false,
                               &prompt->text);
}

/* A word's tokens behind `blank`, without the blanks that it begins with. */
static tt_status encode_word(struct tt_talk *talk, const char *blank, struct tt_span word, struct tt_ids *ids)
{
    struct tt_str text = {0};
    while (word.bytes > 0 && (*word.data == ' ' || (*word.data >= '\t' && *word.data <= '\r'))) {
        word.data++;
        word.bytes--;
    }
    ids->count = 0;
    tt_status status = tt_str_append_text(&text, blank);
    if (status == TT_OK) status = tt_str_append(&text, word.data, word.bytes);
    if (status == TT_OK)
        status = tt_tokenizer_encode(talk->inputs->tokenizer, talk->scratch, tt_str_text(&text), text.bytes,
                                     false, ids);
    tt_str_deinit(&text);
    return status;
}

static tt_status ban(const struct tt_ids *ids, struct tt_ids *banned)
{
    TT_TRY(tt_ids_append(banned, (int32_t)ids->count));
    for (size_t i = 0; i < ids->count; i++) TT_TRY(tt_ids_append(banned, ids->data[i]));
    return TT_OK;
}

tt_status tt_serve_bad_words(struct tt_talk *talk, const struct tt_json_value *words, struct tt_ids *banned)
{
    struct tt_ids plain = {0}, behind = {0};
    tt_status status = TT_OK;
    for (size_t i = 0; words != NULL && i < tt_json_count(words); i++) {
        struct tt_span word = tt_json_span(tt_json_at(words, i));
        TT_GO(encode_word(talk, "", word, &plain));
        TT_GO(encode_word(talk, " ", word, &behind));
        if (plain.count == 0) TT_GO(tt_fail(TT_ERR_USAGE, "'bad_words' has a word without tokens"));
        TT_GO(ban(&plain, banned));
        if (behind.count == plain.count && behind.data[0] != plain.data[0]) TT_GO(ban(&behind, banned));
    }
out:
    tt_ids_deinit(&plain);
    tt_ids_deinit(&behind);
    return status;
}

/* The tokens as the vocabulary spells them; null: not wanted, or no token of that id. */
static struct tt_json_value *spell(const struct tt_talk *talk, const struct tt_ids *ids, bool wanted)
{
    if (!wanted) return tt_json_new_null();
    struct tt_json_value *list = tt_json_new_list();
    for (size_t i = 0; i < ids->count; i++) {
        const char *token = tt_tokenizer_token(talk->inputs->tokenizer, ids->data[i]);
        tt_json_append(list, token != NULL ? tt_json_new_string(token) : tt_json_new_null());
    }
    return list;
}

static tt_status write(struct tt_json_value *value, struct tt_str *out)
{
    tt_status status = tt_json_write(value, 0, false, out);
    tt_json_release(value);
    return status;
}

tt_status tt_serve_describe_tokenizer(const struct tt_talk *talk, struct tt_str *out)
{
    const struct tt_tokenizer *tokenizer = talk->inputs->tokenizer;
    const struct {
        const char *name;
        int32_t id;
    } tokens[] = {
        {"bos_token", tt_tokenizer_bos_id(tokenizer)},
        {"eos_token", tt_tokenizer_eos_id(tokenizer)},
        {"pad_token", tt_tokenizer_pad_id(tokenizer)},
    };
    const char *chat_template = tt_tokenizer_chat_template(tokenizer);
    struct tt_json_value *answer = tt_json_pack("{s:s, s:I}", "tokenizer_class", "PreTrainedTokenizerFast",
                                                "model_max_length", tt_talk_length(talk));
    for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++)
        if (tokens[i].id >= 0)
            tt_json_set(answer, tokens[i].name,
                        tt_json_new_string(tt_tokenizer_token(tokenizer, tokens[i].id)));
    if (chat_template != NULL) tt_json_set(answer, "chat_template", tt_json_new_string(chat_template));
    return write(answer, out);
}

tt_status tt_serve_tokenize(struct tt_talk *talk, const struct tt_api_request *request, struct tt_str *out)
{
    struct tt_ids ids = {0};
    tt_status status = encode(talk, request, 0, &ids);
    struct tt_json_value *list = tt_json_new_list();
    for (size_t i = 0; i < ids.count && status == TT_OK; i++)
        tt_json_append(list, tt_json_new_integer(ids.data[i]));
    struct tt_json_value *answer = tt_json_pack(
        "{s:I, s:I, s:o, s:o}", "count", (int64_t)ids.count, "max_model_len", tt_talk_length(talk), "tokens",
        list, "token_strs", spell(talk, &ids, request->return_token_strs && status == TT_OK));
    if (status == TT_OK)
        status = write(answer, out);
    else
        tt_json_release(answer);
    tt_ids_deinit(&ids);
    return status;
}

tt_status tt_serve_detokenize(struct tt_talk *talk, const struct tt_api_request *request, struct tt_str *out)
{
    struct tt_ids ids = {0};
    struct tt_str text = {0};
    tt_status status = copy_ids(request->ids.ids, &ids);
    if (status == TT_OK)
        status = tt_tokenizer_decode(talk->inputs->tokenizer, ids.data, ids.count, false, &text);
    if (status == TT_OK)
        status =
            write(tt_json_pack("{s:t}", "prompt", (struct tt_span){tt_str_text(&text), text.bytes}), out);
    tt_ids_deinit(&ids);
    tt_str_deinit(&text);
    return status;
}
