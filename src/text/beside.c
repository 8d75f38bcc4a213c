#include "text/beside.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/ascii.h"
#include "base/file.h"
#include "base/str.h"

enum { FILE_BYTES_MAX = 64 << 20 };

static const char decoder_key[] = "added_tokens_decoder", extra_key[] = "extra_special_tokens",
                  additional_key[] = "additional_special_tokens";
/* SPECIAL_TOKENS_ATTRIBUTES */
static const char *const named_keys[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                         "pad_token", "cls_token", "mask_token"};
enum { NAMED_KEYS = sizeof named_keys / sizeof *named_keys };

static tt_status read_optional(const char *folder, const char *name, struct tt_json *json)
{
    struct tt_path path;
    TT_TRY(tt_path_set(&path, folder, name));
    tt_status status = tt_path_exists(path.text) ? tt_json_read(path.text, FILE_BYTES_MAX, json) : TT_OK;
    if (status == TT_OK && json->root != NULL && !tt_json_is_object(json->root))
        status = tt_fail(TT_ERR_DATA, "%s: not a JSON object", path.text);
    return status;
}

tt_status tt_beside_open(const char *folder, struct tt_beside *beside)
{
    tt_status status = TT_OK;
    *beside = (struct tt_beside){0};
    TT_GO(read_optional(folder, "tokenizer_config.json", &beside->config));
    if (tt_json_get(beside->config.root, decoder_key) != NULL) return TT_OK;
    TT_GO(read_optional(folder, "special_tokens_map.json", &beside->map));
    TT_GO(read_optional(folder, "added_tokens.json", &beside->added));
out:
    if (status != TT_OK) tt_beside_close(beside);
    return status;
}

void tt_beside_close(struct tt_beside *beside)
{
    tt_json_deinit(&beside->config);
    tt_json_deinit(&beside->map);
    tt_json_deinit(&beside->added);
    *beside = (struct tt_beside){0};
}

const struct tt_json_value *tt_beside_get(const struct tt_beside *beside, const char *key,
                                          const struct tt_json **file)
{
    const struct tt_json *files[] = {&beside->map, &beside->config};
    for (int i = 0; i < 2; i++) {
        const struct tt_json_value *value = tt_json_get(files[i]->root, key);
        if (file != NULL) *file = files[i];
        if (value != NULL) return value;
    }
    return NULL;
}

/* ---- Tokens ---- */

struct list {
    const struct tt_beside *beside;
    const struct tt_beside_visitor *visitor;
};

/* A text is a special token; an object has the members of AddedToken, with its defaults. */
static tt_status read_token(const struct tt_json *json, const struct tt_json_value *value,
                            struct tt_beside_token *token)
{
    *token = (struct tt_beside_token){.content = tt_json_text(value), .id = -1, .special = true};
    if (token->content != NULL) return TT_OK;
    token->special = false;
    if (!tt_json_is_object(value))
        return tt_fail(TT_ERR_DATA, "%s: a token is neither a text nor an object", json->origin);
    TT_TRY(tt_json_string(json, value, "content", &token->content));
    TT_TRY(tt_json_opt_bool(json, value, "special", &token->special));
    TT_TRY(tt_json_opt_bool(json, value, "single_word", &token->single_word));
    TT_TRY(tt_json_opt_bool(json, value, "lstrip", &token->lstrip));
    TT_TRY(tt_json_opt_bool(json, value, "rstrip", &token->rstrip));
    token->normalized = !token->special;
    return tt_json_opt_bool(json, value, "normalized", &token->normalized);
}

/* A token without an id, unless it is there already; one with a name is special. */
static tt_status visit_one(const struct list *list, const struct tt_json *json,
                           const struct tt_json_value *value, bool named)
{
    struct tt_beside_token token;
    if (value == NULL || tt_json_is_null(value)) return TT_OK;
    TT_TRY(read_token(json, value, &token));
    if (named && !token.special) {
        token.special = true;
        if (tt_json_get(value, "normalized") == NULL) token.normalized = false;
    }
    if (list->visitor->is_added(list->visitor->context, token.content)) return TT_OK;
    return list->visitor->visit(list->visitor->context, json->origin, &token);
}

static bool is_named_key(const char *key)
{
    for (size_t i = 0; i < NAMED_KEYS; i++)
        if (strcmp(key, named_keys[i]) == 0) return true;
    return false;
}

/* The tokens of other keys that end in "_token", first the objects, then the texts, and those of extra_special_tokens
 * where it is an object. */
static tt_status visit_own_names(const struct list *list, const struct tt_json *json)
{
    const char *key;
    const struct tt_json_value *value, *extra = tt_json_get(json->root, extra_key);
    for (int texts = 0; texts < 2; texts++) {
        for (size_t i = 0; tt_json_next_member(json->root, &i, &key, &value);) {
            bool token = texts ? tt_json_is_string(value) : tt_json_get(value, "content") != NULL;
            if (tt_ends_with(key, "_token") && token && !is_named_key(key))
                TT_TRY(visit_one(list, json, value, true));
        }
    }
    if (!tt_json_is_object(extra)) return TT_OK;
    for (size_t i = 0; tt_json_next_member(extra, &i, &key, &value);)
        TT_TRY(visit_one(list, json, value, true));
    return TT_OK;
}

static tt_status visit_named(const struct list *list)
{
    const struct tt_beside *beside = list->beside;
    for (size_t i = 0; i < NAMED_KEYS; i++) {
        const struct tt_json *file;
        const struct tt_json_value *value = tt_beside_get(beside, named_keys[i], &file);
        TT_TRY(visit_one(list, file, value, true));
    }
    TT_TRY(visit_own_names(list, &beside->config));
    return visit_own_names(list, &beside->map);
}

static tt_status visit_list(const struct list *list, const struct tt_json *json, const char *key)
{
    const struct tt_json_value *tokens = tt_json_get(json->root, key);
    for (size_t i = 0; tt_json_is_list(tokens) && i < tt_json_count(tokens); i++)
        TT_TRY(visit_one(list, json, tt_json_at(tokens, i), false));
    return TT_OK;
}

/* additional_special_tokens is the old name of the list: it counts where the new one is not there. */
static tt_status visit_extra(const struct list *list)
{
    const struct tt_beside *beside = list->beside;
    const struct tt_json_value *extra = tt_json_get(beside->config.root, extra_key);
    bool renamed = tt_json_count(extra) == 0 && tt_json_get(beside->config.root, additional_key) != NULL;
    TT_TRY(visit_list(list, &beside->config, renamed ? additional_key : extra_key));
    bool any = renamed || extra != NULL || tt_json_get(beside->map.root, extra_key) != NULL;
    return visit_list(list, &beside->map, any ? extra_key : additional_key);
}

struct numbered {
    const struct tt_json_value *value; /* of added_tokens_decoder */
    const char *content;               /* of added_tokens.json */
    int64_t id;
};

static int compare_ids(const void *a, const void *b)
{
    const struct numbered *x = a, *y = b;
    return x->id < y->id ? -1 : x->id > y->id;
}

static bool parse_id(const char *text, int64_t *id)
{
    *id = 0;
    if (*text == '\0') return false;
    for (; *text != '\0'; text++) {
        if (!tt_ascii_is_digit(*text) || *id > INT32_MAX) return false;
        *id = 10 * *id + (*text - '0');
    }
    return true;
}

/* {"32000": {...}} or {"<tool>": 32000}, sorted by id; `numbered` has room for all. */
static tt_status collect_numbered(const struct tt_json *json, const struct tt_json_value *object,
                                  bool decoder, struct numbered *numbered)
{
    const char *key;
    const struct tt_json_value *value;
    for (size_t member = 0, i = 0; tt_json_next_member(object, &member, &key, &value); i++) {
        numbered[i] = (struct numbered){value, decoder ? NULL : key, tt_json_integer(value)};
        bool good =
            decoder ? parse_id(key, &numbered[i].id) && tt_json_is_object(value) : tt_json_is_integer(value);
        if (!good || numbered[i].id < 0)
            return tt_fail(TT_ERR_DATA, "%s: '%.100s' is not an id with its token", json->origin, key);
    }
    qsort(numbered, tt_json_count(object), sizeof *numbered, compare_ids);
    return TT_OK;
}

static bool is_text_of(const struct tt_json_value *value, const char *content)
{
    const char *text = tt_json_text(tt_json_is_object(value) ? tt_json_get(value, "content") : value);
    return text != NULL && strcmp(text, content) == 0;
}

/* One of the seven names, or with `own` also another one, is for this token. */
static bool is_named(const struct tt_beside *beside, const char *content, bool own)
{
    const struct tt_json *files[] = {&beside->map, &beside->config};
    for (size_t i = 0; i < NAMED_KEYS; i++)
        if (is_text_of(tt_beside_get(beside, named_keys[i], NULL), content)) return true;
    for (int f = 0; f < 2 && own; f++) {
        const char *key;
        const struct tt_json_value *value, *extra = tt_json_get(files[f]->root, extra_key);
        for (size_t i = 0; tt_json_next_member(files[f]->root, &i, &key, &value);)
            if (tt_ends_with(key, "_token") && is_text_of(value, content)) return true;
        for (size_t i = 0; tt_json_is_object(extra) && tt_json_next_member(extra, &i, &key, &value);)
            if (is_text_of(value, content)) return true;
    }
    return false;
}

/* Special are those of added_tokens.json that a name or a list has too. */
static bool is_listed(const struct tt_beside *beside, const char *content)
{
    const struct tt_json *files[] = {&beside->map, &beside->config};
    const char *const lists[] = {extra_key, additional_key};
    for (int f = 0; f < 4; f++) {
        const struct tt_json_value *list = tt_json_get(files[f / 2]->root, lists[f % 2]);
        for (size_t i = 0; tt_json_is_list(list) && i < tt_json_count(list); i++)
            if (is_text_of(tt_json_at(list, i), content)) return true;
    }
    return is_named(beside, content, false);
}

static tt_status visit_numbered(const struct list *list)
{
    const struct tt_beside *beside = list->beside;
    const struct tt_json_value *object = tt_json_get(beside->config.root, decoder_key);
    bool decoder = object != NULL;
    const struct tt_json *json = decoder ? &beside->config : &beside->added;
    tt_status status = TT_OK;
    if (!decoder) object = beside->added.root;
    if (object == NULL || tt_json_is_null(object)) return TT_OK;
    if (!tt_json_is_object(object))
        return tt_fail(TT_ERR_DATA, "%s: %s is not an object", json->origin, decoder_key);
    struct numbered *numbered = tt_calloc(tt_json_count(object) + 1, sizeof *numbered);
    if (numbered == NULL) return TT_ERR_MEMORY;
    TT_GO(collect_numbered(json, object, decoder, numbered));
    for (size_t i = 0; i < tt_json_count(object); i++) {
        struct tt_beside_token token = {.content = numbered[i].content};
        if (decoder)
            TT_GO(read_token(json, numbered[i].value, &token));
        else
            token.special = is_listed(beside, token.content);
        if (!decoder) token.normalized = !token.special;
        token.id = numbered[i].id;
        token.named = is_named(beside, token.content, true);
        TT_GO(list->visitor->visit(list->visitor->context, json->origin, &token));
    }
out:
    tt_free(numbered);
    return status;
}

tt_status tt_beside_list(const struct tt_beside *beside, const struct tt_beside_visitor *visitor)
{
    const struct list list = {beside, visitor};
    TT_TRY(visit_numbered(&list));
    TT_TRY(visit_named(&list));
    return visit_extra(&list);
}
