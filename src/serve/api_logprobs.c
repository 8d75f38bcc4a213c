#include "serve/api_logprobs.h"

#include <stdio.h>
#include <string.h>

#include "base/str.h"

struct writing {
    const struct tt_tokenizer *tokenizer;
    const struct tt_api_tokens *tokens;
    bool ids;
    char name[32]; /* of a token by its id */
    struct tt_str text, context;
};

/* The text of `id` behind the token before number `index`. A tokenizer may drop the blank that a text begins with, so
 * the token is decoded behind another one. */
static tt_status decode(struct writing *w, size_t index, int32_t id, struct tt_span *text)
{
    const struct tt_api_tokens *tokens = w->tokens;
    int32_t before = index > 0 ? tokens->ids[index - 1] : tokens->before, pair[2] = {before, id};
    if (before >= 0) {
        TT_TRY(tt_tokenizer_decode(w->tokenizer, pair, 1, false, &w->context));
        TT_TRY(tt_tokenizer_decode(w->tokenizer, pair, 2, false, &w->text));
        size_t known = w->context.bytes;
        if (w->text.bytes >= known && memcmp(tt_str_text(&w->text), tt_str_text(&w->context), known) == 0) {
            *text = (struct tt_span){tt_str_text(&w->text) + known, w->text.bytes - known};
            return TT_OK;
        }
    }
    TT_TRY(tt_tokenizer_decode(w->tokenizer, &id, 1, false, &w->text));
    *text = (struct tt_span){tt_str_text(&w->text), w->text.bytes};
    return TT_OK;
}

/* -9999 stands for log 0, as elsewhere: JSON has no infinity. */
static double as_number(float logprob)
{
    return logprob > -9999.0f ? (double)logprob : -9999.0;
}

static struct tt_json_value *bytes_of(struct tt_span text)
{
    if (memmem(text.data, text.bytes, "\xEF\xBF\xBD", 3) != NULL) return tt_json_new_null();
    struct tt_json_value *list = tt_json_new_list();
    for (size_t i = 0; i < text.bytes; i++)
        tt_json_append(list, tt_json_new_integer((unsigned char)text.data[i]));
    return list;
}

/* NULL: log p of the token is not known. */
static const struct tt_token_logprobs *logprobs_of(const struct writing *w, size_t index)
{
    return index < w->tokens->unknown ? NULL : &w->tokens->logprobs[index - w->tokens->unknown];
}

static int32_t top_of(const struct writing *w, const struct tt_token_logprobs *logprobs)
{
    return logprobs->count < w->tokens->top ? logprobs->count : w->tokens->top;
}

/* The name of the token of this text. */
static struct tt_span name_of(struct writing *w, int32_t id, struct tt_span text)
{
    if (!w->ids) return text;
    return (struct tt_span){w->name, (size_t)snprintf(w->name, sizeof w->name, "token_id:%d", (int)id)};
}

/* {token, logprob, bytes} */
static tt_status describe(struct writing *w, size_t index, int32_t id, float logprob,
                          struct tt_json_value **out)
{
    struct tt_span text;
    TT_TRY(decode(w, index, id, &text));
    *out = tt_json_pack("{s:t, s:f, s:o}", "token", name_of(w, id, text), "logprob", as_number(logprob),
                        "bytes", bytes_of(text));
    return *out != NULL ? TT_OK : TT_ERR_MEMORY;
}

static tt_status add_chat_token(struct writing *w, size_t index, struct tt_json_value *list)
{
    const struct tt_token_logprobs *logprobs = logprobs_of(w, index);
    struct tt_json_value *token = NULL, *top = tt_json_new_list();
    tt_status status = top != NULL ? TT_OK : TT_ERR_MEMORY;
    for (int32_t i = 0; i < top_of(w, logprobs) && status == TT_OK; i++) {
        struct tt_json_value *one = NULL;
        status = describe(w, index, logprobs->ids[i], logprobs->logprobs[i], &one);
        if (status == TT_OK && tt_json_append(top, one) != 0) status = TT_ERR_MEMORY;
    }
    if (status == TT_OK) status = describe(w, index, w->tokens->ids[index], logprobs->logprob, &token);
    if (status != TT_OK || tt_json_set(token, "top_logprobs", top) != 0) {
        if (status != TT_OK) tt_json_release(top);
        tt_json_release(token);
        return status != TT_OK ? status : TT_ERR_MEMORY;
    }
    return tt_json_append(list, token) == 0 ? TT_OK : TT_ERR_MEMORY;
}

static tt_status write_chat(struct writing *w, const struct tt_api_tokens *runs, size_t count,
                            struct tt_json_value **out)
{
    struct tt_json_value *list = tt_json_new_list();
    tt_status status = list != NULL ? TT_OK : TT_ERR_MEMORY;
    for (size_t r = 0; r < count; r++) {
        w->tokens = &runs[r];
        for (size_t i = runs[r].first; i < runs[r].end && status == TT_OK; i++)
            status = add_chat_token(w, i, list);
    }
    if (status != TT_OK) {
        tt_json_release(list);
        return status;
    }
    *out = tt_json_pack("{s:o, s:n}", "content", list, "refusal");
    return *out != NULL ? TT_OK : TT_ERR_MEMORY;
}

/* The likeliest tokens and the chosen one. Of tokens with the same text the likeliest counts, so that a client can tell
 * whether the chosen one was the likeliest of all. */
static tt_status list_top(struct writing *w, size_t index, struct tt_json_value *list)
{
    const struct tt_token_logprobs *logprobs = logprobs_of(w, index);
    if (logprobs == NULL) return tt_json_append(list, tt_json_new_null()) == 0 ? TT_OK : TT_ERR_MEMORY;
    struct tt_json_value *top = tt_json_new_object();
    tt_status status = top != NULL ? TT_OK : TT_ERR_MEMORY;
    for (int32_t i = -1; i < top_of(w, logprobs) && status == TT_OK; i++) {
        struct tt_span text;
        int32_t id = i < 0 ? w->tokens->ids[index] : logprobs->ids[i];
        float logprob = i < 0 ? logprobs->logprob : logprobs->logprobs[i];
        status = decode(w, index, id, &text);
        if (status != TT_OK) break;
        text = name_of(w, id, text);
        const struct tt_json_value *known = tt_json_get_span(top, text);
        if ((known == NULL || tt_json_number(known) < as_number(logprob)) &&
            tt_json_set_span(top, text, tt_json_new_real(as_number(logprob))) != 0)
            status = TT_ERR_MEMORY;
    }
    if (status == TT_OK) return tt_json_append(list, top) == 0 ? TT_OK : TT_ERR_MEMORY;
    tt_json_release(top);
    return status;
}

static int64_t count_characters(struct tt_span text)
{
    int64_t count = 0;
    for (size_t i = 0; i < text.bytes; i++) count += ((unsigned char)text.data[i] & 0xC0) != 0x80;
    return count;
}

/* lists: tokens, token_logprobs, top_logprobs, text_offset */
static tt_status add_text_token(struct writing *w, size_t index, int64_t *offset,
                                struct tt_json_value *lists[4])
{
    const struct tt_token_logprobs *logprobs = logprobs_of(w, index);
    struct tt_span text;
    TT_TRY(list_top(w, index, lists[2]));
    TT_TRY(decode(w, index, w->tokens->ids[index], &text));
    struct tt_span name = name_of(w, w->tokens->ids[index], text);
    bool ok = tt_json_append(lists[0], tt_json_new_text(name)) == 0;
    ok = ok && tt_json_append(lists[1], logprobs != NULL ? tt_json_new_real(as_number(logprobs->logprob))
                                                         : tt_json_new_null()) == 0;
    ok = ok && tt_json_append(lists[3], tt_json_new_integer(*offset)) == 0;
    *offset += count_characters(text);
    return ok ? TT_OK : TT_ERR_MEMORY;
}

static tt_status write_text(struct writing *w, const struct tt_api_tokens *runs, size_t count,
                            int64_t *offset, struct tt_json_value **out)
{
    struct tt_json_value *lists[4];
    bool made = true;
    for (size_t i = 0; i < 4; i++) made = (lists[i] = tt_json_new_list()) != NULL && made;
    tt_status status = made ? TT_OK : TT_ERR_MEMORY;
    for (size_t r = 0; r < count; r++) {
        w->tokens = &runs[r];
        for (size_t i = runs[r].first; i < runs[r].end && status == TT_OK; i++)
            status = add_text_token(w, i, offset, lists);
    }
    if (status != TT_OK) {
        for (size_t i = 0; i < 4; i++) tt_json_release(lists[i]);
        return status;
    }
    *out = tt_json_pack("{s:o, s:o, s:o, s:o}", "tokens", lists[0], "token_logprobs", lists[1],
                        "top_logprobs", lists[2], "text_offset", lists[3]);
    return *out != NULL ? TT_OK : TT_ERR_MEMORY;
}

static void writing_deinit(struct writing *w)
{
    tt_str_deinit(&w->text);
    tt_str_deinit(&w->context);
}

tt_status tt_api_write_logprobs(const struct tt_tokenizer *tokenizer, const struct tt_api_tokens *runs,
                                size_t count, const struct tt_api_logprobs_form *form, int64_t *offset,
                                struct tt_json_value **out)
{
    struct writing w = {.tokenizer = tokenizer, .ids = form->ids};
    tt_status status =
        form->chat ? write_chat(&w, runs, count, out) : write_text(&w, runs, count, offset, out);
    writing_deinit(&w);
    return status;
}

/* {"5": {logprob, rank, decoded_token}} */
static tt_status add_ranked(struct writing *w, size_t index, int32_t id, float logprob, int32_t rank,
                            struct tt_json_value *object)
{
    struct tt_span text;
    char name[16];
    snprintf(name, sizeof name, "%d", (int)id);
    TT_TRY(decode(w, index, id, &text));
    struct tt_json_value *one = tt_json_pack("{s:f, s:i, s:t}", "logprob", as_number(logprob), "rank",
                                             (int)rank, "decoded_token", text);
    return tt_json_set(object, name, one) == 0 ? TT_OK : TT_ERR_MEMORY;
}

/* The token itself, then the likeliest. */
static tt_status add_ranks(struct writing *w, size_t index, struct tt_json_value *list)
{
    const struct tt_token_logprobs *logprobs = logprobs_of(w, index);
    if (logprobs == NULL) return tt_json_append(list, tt_json_new_null()) == 0 ? TT_OK : TT_ERR_MEMORY;
    struct tt_json_value *object = tt_json_new_object();
    int32_t id = w->tokens->ids[index];
    tt_status status = add_ranked(w, index, id, logprobs->logprob, logprobs->rank, object);
    for (int32_t i = 0; i < top_of(w, logprobs) && status == TT_OK; i++)
        if (logprobs->ids[i] != id)
            status = add_ranked(w, index, logprobs->ids[i], logprobs->logprobs[i], i + 1, object);
    if (status == TT_OK) return tt_json_append(list, object) == 0 ? TT_OK : TT_ERR_MEMORY;
    tt_json_release(object);
    return status;
}

tt_status tt_api_write_prompt_logprobs(const struct tt_tokenizer *tokenizer, const struct tt_api_tokens *run,
                                       struct tt_json_value **out)
{
    struct writing w = {.tokenizer = tokenizer, .tokens = run};
    struct tt_json_value *list = tt_json_new_list();
    tt_status status = list != NULL ? TT_OK : TT_ERR_MEMORY;
    for (size_t i = run->first; i < run->end && status == TT_OK; i++) status = add_ranks(&w, i, list);
    writing_deinit(&w);
    if (status != TT_OK)
        tt_json_release(list);
    else
        *out = list;
    return status;
}
