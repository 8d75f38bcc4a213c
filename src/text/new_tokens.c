#include "text/new_tokens.h"

#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/log.h"
#include "text/tokenizer_impl.h"

enum { TOKENIZER_BYTES_MAX = 512 << 20 };

static const char list_key[] = "added_tokens", tokenizer_name[] = "tokenizer.json";

static tt_status append(struct tt_json_value *list, const struct added_token *token)
{
    struct tt_json_value *entry = tt_json_pack(
        "{s:I, s:s, s:b, s:b, s:b, s:b, s:b}", "id", (int64_t)token->id, "content", token->content,
        "single_word", (int)token->single_word, "lstrip", (int)token->lstrip, "rstrip", (int)token->rstrip,
        "normalized", (int)token->normalized, "special", (int)token->special);
    return tt_json_append(list, entry) == 0 ? TT_OK : TT_ERR_MEMORY;
}

/* The tokens of the files beside tokenizer.json, in order of their ids. */
static tt_status append_beside(const struct tt_tokenizer *base, const struct tt_json_value *listed,
                               struct tt_json_value *list)
{
    tt_status status = TT_OK;
    bool *known = tt_calloc(base->added_count + 1, sizeof *known);
    if (known == NULL) return TT_ERR_MEMORY;
    for (size_t i = 0; i < tt_json_count(listed); i++) {
        const char *text = tt_json_text(tt_json_get(tt_json_at(listed, i), "content"));
        int32_t index = text != NULL ? vocab_id(&base->names, text, strlen(text)) : -1;
        if (index >= 0) known[index] = true;
    }
    for (size_t i = 0; i < base->added_count && status == TT_OK; i++)
        if (!known[base->added_by_id[i]]) status = append(list, &base->added[base->added_by_id[i]]);
    tt_free(known);
    return status;
}

static tt_status check(const struct tt_new_token *tokens, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (tokens[i].text[0] == 0) return tt_fail(TT_ERR_USAGE, "a new token has no text");
        for (size_t j = 0; j < i; j++)
            if (strcmp(tokens[i].text, tokens[j].text) == 0)
                return tt_fail(TT_ERR_USAGE, "the new token '%s' is listed twice", tokens[i].text);
    }
    return TT_OK;
}

/* Not normalized: a normalizer that puts a blank before a text would put it before the token's. */
static tt_status append_new(const struct tt_tokenizer *base, const struct tt_new_token *tokens, size_t count,
                            struct tt_json_value *list, struct tt_ids *ids)
{
    int32_t next = base->vocab_size;
    for (size_t i = 0; i < count; i++) {
        struct added_token token = {.content = tokens[i].text, .special = tokens[i].special};
        token.id = tt_tokenizer_token_id(base, token.content);
        if (token.id >= 0 && tt_tokenizer_is_added(base, token.id) &&
            (!token.special || tt_tokenizer_is_special(base, token.id)))
            continue;
        if (token.id < 0) {
            token.id = next++;
            TT_TRY(tt_ids_append(ids, token.id));
        }
        TT_TRY(append(list, &token));
    }
    return TT_OK;
}

static tt_status write(const struct tt_json *json, const struct tt_tokenizer *base,
                       const struct tt_new_token *tokens, size_t count, struct tt_str *text,
                       struct tt_ids *ids)
{
    tt_status status = TT_OK;
    const struct tt_json_value *listed = tt_json_get(json->root, list_key);
    struct tt_json_value *root = tt_json_copy(json->root),
                         *list = tt_json_is_list(listed) ? tt_json_copy(listed) : tt_json_new_list();
    if (root == NULL || list == NULL) TT_GO(TT_ERR_MEMORY);
    TT_GO(append_beside(base, listed, list));
    TT_GO(append_new(base, tokens, count, list, ids));
    int failed = tt_json_set(root, list_key, list);
    list = NULL;
    if (failed != 0) TT_GO(TT_ERR_MEMORY);
    TT_GO(tt_json_write(root, 2, false, text));
    TT_GO(tt_str_append_char(text, '\n'));
out:
    tt_json_release(root);
    tt_json_release(list);
    return status;
}

/* The reader numbers tokens itself (tokenizer_read.c). */
static tt_status check_ids(const struct tt_tokenizer *tokenizer, const struct tt_new_token *tokens,
                           size_t count, const struct tt_ids *ids, size_t first)
{
    for (size_t i = 0; i < count; i++) {
        int32_t id = tt_tokenizer_token_id(tokenizer, tokens[i].text);
        if (first < ids->count && id == ids->data[first]) first++;
        if (id < 0) return tt_fail(TT_ERR_INTERNAL, "the new token '%s' has no id", tokens[i].text);
    }
    return first == ids->count ? TT_OK
                               : tt_fail(TT_ERR_INTERNAL, "a new token has another id than its file says");
}

tt_status tt_new_tokens_add(const char *folder, const struct tt_new_token *tokens, size_t count,
                            struct tt_tokenizer **out, struct tt_str *json, struct tt_ids *ids)
{
    tt_status status = TT_OK;
    struct tt_tokenizer *base = NULL, *grown = NULL;
    struct tt_json read = {0};
    size_t first = ids->count;
    TT_GO(check(tokens, count));
    TT_GO(tt_tokenizer_load(folder, &base));
    TT_GO(tt_tokenizer_json(folder, &read));
    TT_GO(write(&read, base, tokens, count, json, ids));
    TT_GO(tt_tokenizer_load_text(folder, tt_str_text(json), json->bytes, &grown));
    TT_GO(check_ids(grown, tokens, count, ids, first));
    *out = grown;
    grown = NULL;
out:
    tt_tokenizer_destroy(base);
    tt_tokenizer_destroy(grown);
    tt_json_deinit(&read);
    return status;
}

/* Whether `other` has tokens that `tokenizer` lacks or has by other ids. */
static bool differ(const struct tt_tokenizer *tokenizer, const struct tt_tokenizer *other)
{
    if (other->vocab_size != tokenizer->vocab_size) return true;
    for (size_t i = 0; i < other->added_count; i++)
        if (tt_tokenizer_token_id(tokenizer, other->added[i].content) != other->added[i].id) return true;
    return false;
}

tt_status tt_new_tokens_has_tokenizer(const char *folder, bool *has)
{
    struct tt_path path;
    TT_TRY(tt_path_set(&path, folder, tokenizer_name));
    *has = tt_path_exists(path.text);
    return TT_OK;
}

static tt_status same_bytes(const char *a, const char *b, bool *same)
{
    tt_status status = TT_OK;
    struct tt_path path;
    struct tt_str texts[2] = {{0}, {0}};
    for (int i = 0; i < 2; i++) {
        TT_GO(tt_path_set(&path, i == 0 ? a : b, tokenizer_name));
        TT_GO(tt_file_read(path.text, TOKENIZER_BYTES_MAX, &texts[i]));
    }
    *same = texts[0].bytes == texts[1].bytes &&
            memcmp(tt_str_text(&texts[0]), tt_str_text(&texts[1]), texts[0].bytes) == 0;
out:
    tt_str_deinit(&texts[0]);
    tt_str_deinit(&texts[1]);
    return status;
}

tt_status tt_new_tokens_of_folder(const char *folder, const char *base, struct tt_tokenizer **out)
{
    tt_status status = TT_OK;
    bool has[2], same;
    struct tt_tokenizer *tokenizer = NULL, *other = NULL;
    *out = NULL;
    TT_TRY(tt_new_tokens_has_tokenizer(folder, &has[0]));
    TT_TRY(tt_new_tokens_has_tokenizer(base, &has[1]));
    if (!has[0] || !has[1]) return TT_OK;
    TT_TRY(same_bytes(folder, base, &same));
    if (same) return TT_OK;
    TT_GO(tt_tokenizer_load(base, &tokenizer));
    if (tt_tokenizer_load(folder, &other) != TT_OK) {
        tt_warn("the tokenizer of '%s' is left out, and the model's counts: %s", folder,
                tt_error_last()->message);
        tt_error_clear();
        goto out;
    }
    if (!differ(tokenizer, other)) goto out;
    TT_GO(tt_tokenizer_stand_in(other, base));
    *out = other;
    other = NULL;
out:
    tt_tokenizer_destroy(tokenizer);
    tt_tokenizer_destroy(other);
    return status;
}
