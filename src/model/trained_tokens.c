#include "model/trained_tokens.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/ascii.h"
#include "base/str.h"
#include "model/pattern.h"

static const char setting[] = "trainable_token_indices";

static int compare_ids(const void *a, const void *b)
{
    int32_t left = *(const int32_t *)a, right = *(const int32_t *)b;
    return (left > right) - (left < right);
}

/* A list in order, in which equal ids are neighbours. */
static tt_status refuse_twice(const int32_t *ids, int64_t count)
{
    int32_t *sorted = tt_calloc((size_t)count + 1, sizeof *sorted);
    tt_status status = TT_OK;
    if (sorted == NULL) return TT_ERR_MEMORY;
    memcpy(sorted, ids, (size_t)count * sizeof *sorted);
    qsort(sorted, (size_t)count, sizeof *sorted, compare_ids);
    for (int64_t i = 1; i < count && status == TT_OK; i++)
        if (sorted[i] == sorted[i - 1])
            status = tt_fail(TT_ERR_USAGE, "%s lists token %" PRId32 " twice", setting, sorted[i]);
    tt_free(sorted);
    return status;
}

static tt_status refuse_id(int64_t id, int64_t vocab)
{
    tt_status status = tt_fail(TT_ERR_USAGE, "%s lists token %" PRId64 "; the model has tokens 0 to %" PRId64,
                               setting, id, vocab - 1);
    tt_hint("trimtab data shows the ids of the tokens of a row");
    return status;
}

static tt_status read_ids(struct tt_model *model, const struct tt_json_value *list, struct tt_module *module)
{
    int64_t count = (int64_t)tt_json_count(list), vocab = model->facts.vocab_size;
    if (!tt_json_is_list(list) || count == 0)
        return tt_fail(TT_ERR_USAGE, "%s must be a list of ids of tokens, or an object of such lists",
                       setting);
    int32_t *ids = tt_arena_alloc(&model->arena, (size_t)count * sizeof *ids);
    if (ids == NULL) return TT_ERR_MEMORY;
    for (int64_t i = 0; i < count; i++) {
        const struct tt_json_value *value = tt_json_at(list, (size_t)i);
        if (!tt_json_is_integer(value))
            return tt_fail(TT_ERR_USAGE, "%s has an entry that is no integer", setting);
        int64_t id = tt_json_integer(value);
        if (id < 0 || id >= vocab) return refuse_id(id, vocab);
        ids[i] = (int32_t)id;
    }
    TT_TRY(refuse_twice(ids, count));
    module->tokens = ids;
    module->token_count = count;
    return TT_OK;
}

/* The modules that have rows of tokens. */
struct tables {
    struct tt_module *embedding, *head;
};

static struct tables find_tables(struct tt_model *model)
{
    struct tables tables = {0};
    for (size_t i = 0; i < model->modules.count; i++) {
        struct tt_module *module = &model->modules.items[i];
        if (module->kind == TT_MODULE_EMBEDDING && tables.embedding == NULL) tables.embedding = module;
        if (module->kind == TT_MODULE_HEAD) tables.head = module;
    }
    if (model->facts.label_count > 0) tables.head = NULL; /* it gives scores, not logits of tokens */
    return tables;
}

static tt_status read_object(struct tt_model *model, const struct tt_json_value *object,
                             const struct tables *tables)
{
    struct tt_module *all[] = {tables->embedding, tables->head};
    const struct tt_json_value *list;
    const char *key;
    for (size_t member = 0; tt_json_next_member(object, &member, &key, &list);) {
        bool found = false;
        for (int i = 0; i < 2; i++) {
            if (all[i] == NULL || !tt_ends_with(all[i]->path, key)) continue;
            TT_TRY(read_ids(model, list, all[i]));
            found = true;
        }
        if (found) continue;
        tt_status status =
            tt_fail(TT_ERR_USAGE, "%s: '%s' is no module with a row for each token", setting, key);
        tt_hint("those of this model are '%s'%s%s%s", tables->embedding->path,
                tables->head != NULL ? " and '" : "", tables->head != NULL ? tables->head->path : "",
                tables->head != NULL ? "'" : "");
        return status;
    }
    return TT_OK;
}

/* A module trains in one way. */
static tt_status check_module(const struct tt_module *module)
{
    if (module == NULL || module->tokens == NULL || (!module->saved && !module->adapted)) return TT_OK;
    tt_status status = tt_fail(TT_ERR_USAGE, "%s has tokens of '%s', which %s trains too", setting,
                               module->path, module->saved ? "modules_to_save" : "target_modules");
    tt_hint("PEFT refuses a table that trains as a whole too: name it in one of the settings");
    return status;
}

static bool same_tokens(const struct tt_module *a, const struct tt_module *b)
{
    return a->token_count == b->token_count &&
           memcmp(a->tokens, b->tokens, (size_t)a->token_count * sizeof *a->tokens) == 0;
}

/* One table for both: the head has the rows of the embeddings, and no list of its own. */
static tt_status share_tokens(const struct tt_model *model, const struct tables *tables)
{
    struct tt_module *embedding = tables->embedding, *head = tables->head;
    if (!model->facts.tie_word_embeddings || head == NULL || embedding->tokens == NULL) return TT_OK;
    if (head->tokens == NULL || same_tokens(embedding, head)) {
        head->tokens = embedding->tokens;
        head->token_count = embedding->token_count;
        head->shares_tokens = true;
        return TT_OK;
    }
    if (!model->options.lora.ensure_weight_tying) return TT_OK;
    return tt_fail(TT_ERR_USAGE, "ensure_weight_tying: %s has other tokens of '%s' than of '%s'", setting,
                   head->path, embedding->path);
}

/* The ids as a list of JSON. */
static tt_status write_ids(const struct tt_lora_config *lora, struct tt_str *text)
{
    TT_TRY(tt_str_append_char(text, '['));
    for (int64_t i = 0; i < lora->new_count; i++)
        TT_TRY(tt_str_printf(text, "%s%" PRId32, i > 0 ? ", " : "", lora->new_tokens[i]));
    return tt_str_append_char(text, ']');
}

/* The setting that trains the rows of new tokens: of each table that nothing else trains. One table for both is trained
 * as a whole where the settings name either. */
static tt_status choose_new(struct tt_model *model, const struct tables *tables)
{
    tt_status status = TT_OK;
    struct tt_lora_config *lora = &model->options.lora;
    struct tt_str ids = {0}, text = {0};
    const struct tt_module *all[] = {tables->embedding, tables->head};
    bool one = model->facts.tie_word_embeddings, trained = false, free[2], any = false;
    for (int i = 0; i < 2; i++) {
        free[i] = all[i] != NULL && !all[i]->saved && !all[i]->adapted;
        trained |= all[i] != NULL && !free[i];
    }
    if (one && trained) return TT_OK;
    TT_GO(write_ids(lora, &ids));
    if (one || !free[1]) {
        if (free[0]) lora->trainable_token_indices = tt_arena_strdup(&model->arena, tt_str_text(&ids));
        any = free[0];
    } else {
        if (free[0]) TT_GO(tt_str_printf(&text, "{\"%s\": %s, ", TT_MODEL_EMBEDDING, tt_str_text(&ids)));
        TT_GO(tt_str_printf(&text, "%s\"%s\": %s}", free[0] ? "" : "{", TT_MODEL_HEAD, tt_str_text(&ids)));
        lora->trainable_token_indices = tt_arena_strdup(&model->arena, tt_str_text(&text));
        any = true;
    }
    if (any && lora->trainable_token_indices == NULL) TT_GO(TT_ERR_MEMORY);
out:
    tt_str_deinit(&ids);
    tt_str_deinit(&text);
    return status;
}

tt_status tt_trained_tokens_apply(struct tt_model *model)
{
    tt_status status = TT_OK;
    const struct tables tables = find_tables(model);
    struct tt_json json = {0};
    if (model->options.lora.trainable_token_indices == NULL && model->options.lora.new_count > 0)
        TT_TRY(choose_new(model, &tables));
    model->options.lora.new_tokens = NULL;
    model->options.lora.new_count = 0;
    const char *text = model->options.lora.trainable_token_indices;
    if (text == NULL) return TT_OK;
    if (tables.embedding == NULL) return tt_fail(TT_ERR_USAGE, "%s: the model has no embeddings", setting);
    TT_TRY(tt_pattern_parse(setting, text, &json));
    if (tt_json_is_object(json.root))
        TT_GO(read_object(model, json.root, &tables));
    else
        TT_GO(read_ids(model, json.root, tables.embedding));
    TT_GO(share_tokens(model, &tables));
    TT_GO(check_module(tables.embedding));
    TT_GO(check_module(tables.head));
out:
    tt_json_deinit(&json);
    return status;
}
