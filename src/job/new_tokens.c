#include "job/new_tokens.h"

#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/hub_cache.h"
#include "base/integer.h"
#include "base/log.h"
#include "base/str.h"
#include "io/grown_rows.h"
#include "job/inputs.h"
#include "model/adapter_config.h"
#include "model/pattern.h"

/* The files of a tokenizer of which an adapter's counts as a whole. */
static const char *const tokenizer_files[] = {"tokenizer.json", "tokenizer_config.json",
                                              "special_tokens_map.json", "added_tokens.json"};
enum { TOKENIZER_FILES = sizeof tokenizer_files / sizeof *tokenizer_files };

/* ---- Tokens of the settings ---- */

struct listed {
    struct tt_new_token *tokens; /* owned */
    size_t count, room;
    struct tt_arena texts;
};

static tt_status add_listed(struct listed *listed, const char *text, size_t bytes, bool special)
{
    const char *kept = tt_arena_strndup(&listed->texts, text, bytes);
    if (kept == NULL) return TT_ERR_MEMORY;
    TT_TRY(tt_grow(&listed->tokens, listed->count, &listed->room));
    listed->tokens[listed->count++] = (struct tt_new_token){kept, special};
    return TT_OK;
}

/* A list of JSON; a text without brackets is one with commas, as LLaMA-Factory has it. */
static tt_status list_texts(const char *setting, const char *text, bool special, struct listed *listed)
{
    tt_status status = TT_OK;
    struct tt_json json = {0};
    if (text == NULL) return TT_OK;
    if (text[strspn(text, " ")] != '[') {
        for (const char *at = text; *at != 0;) {
            size_t blank = strspn(at, " "), bytes = strcspn(at, ",");
            const char *next = at + bytes + (at[bytes] == ',');
            size_t end = bytes;
            while (end > blank && at[end - 1] == ' ') end--;
            TT_TRY(add_listed(listed, at + tt_smaller_size(blank, end), end - tt_smaller_size(blank, end),
                              special));
            at = next;
        }
        return TT_OK;
    }
    TT_GO(tt_pattern_parse(setting, text, &json));
    for (size_t i = 0; i < tt_json_count(json.root); i++) {
        const char *entry = tt_json_text(tt_json_at(json.root, i));
        if (entry == NULL) TT_GO(tt_fail(TT_ERR_USAGE, "%s has an entry that is no text", setting));
        TT_GO(add_listed(listed, entry, strlen(entry), special));
    }
out:
    tt_json_deinit(&json);
    return status;
}

static void listed_deinit(struct listed *listed)
{
    tt_free(listed->tokens);
    tt_arena_deinit(&listed->texts);
}

static tt_status list_settings(const struct tt_model_spec *model, struct listed *listed)
{
    TT_TRY(list_texts("add_tokens", model->add_tokens, false, listed));
    return list_texts("add_special_tokens", model->add_special_tokens, true, listed);
}

/* There are as many rows as tokens at least, and a multiple of the setting. */
static int64_t rows_for(int64_t tokens, int64_t multiple, int64_t rows)
{
    int64_t needed = multiple > 1 ? (tokens + multiple - 1) / multiple * multiple : tokens;
    return needed > rows ? needed : rows;
}

static tt_status open_settings(const struct tt_model_spec *model, const char *folder,
                               struct tt_inputs *inputs)
{
    struct tt_new_tokens *own = &inputs->new_tokens;
    struct listed listed = {0};
    tt_status status = list_settings(model, &listed);
    if (status == TT_OK && listed.count > 0)
        status =
            tt_new_tokens_add(folder, listed.tokens, listed.count, &inputs->tokenizer, &own->json, &own->ids);
    if (status == TT_OK && listed.count > 0)
        tt_info("%zu of %zu tokens of add_tokens and add_special_tokens are new to the tokenizer",
                own->ids.count, listed.count);
    listed_deinit(&listed);
    return status;
}

/* ---- Tokens of an adapter ---- */

/* Whoever opens the adapter says what is wrong with its folder. */
static tt_status open_adapter(const char *given, struct tt_inputs *inputs)
{
    struct tt_new_tokens *own = &inputs->new_tokens;
    if (tt_hub_locate(given, NULL, "adapter", &own->folder) != TT_OK || !tt_path_is_dir(own->folder)) {
        tt_error_clear();
        tt_free(own->folder);
        own->folder = NULL;
        return TT_OK;
    }
    const char *base = tt_model_folder_path(inputs->folder);
    TT_TRY(tt_new_tokens_of_folder(own->folder, base, &inputs->tokenizer));
    if (inputs->tokenizer == NULL) return TT_OK;
    tt_info("the tokenizer is that of the adapter '%s', which has other tokens than the model folder", given);
    return tt_kept_files_read(own->folder, false, &own->kept);
}

/* ---- Rows ---- */

static tt_status grow(const struct tt_inputs_config *config, bool weights, struct tt_inputs *inputs)
{
    tt_status status = TT_OK;
    const struct tt_new_tokens *own = &inputs->new_tokens;
    struct tt_model_facts *facts = &inputs->model_facts;
    struct tt_new_rows rows = {0};
    int64_t tokens = inputs->tokenizer != NULL ? tt_tokenizer_vocab_size(inputs->tokenizer) : 0;
    if (own->folder != NULL) TT_GO(tt_new_rows_of_adapter(own->folder, tokens, &rows));
    if (own->folder == NULL)
        rows.count = rows_for(tokens, config->model->resize_to_multiple_of, facts->vocab_size);
    if (rows.count <= facts->vocab_size) goto out;
    tt_info("embeddings and head have %lld rows in place of %lld, for new tokens", (long long)rows.count,
            (long long)facts->vocab_size);
    TT_GO(tt_new_rows_grow(facts, &rows, weights ? inputs->folder : NULL));
out:
    tt_new_rows_close(&rows);
    return status;
}

/* ---- Files of a save ---- */

static const struct tt_kept_file *find_kept(const struct tt_kept_files *kept, const char *name)
{
    for (size_t i = 0; i < kept->count; i++)
        if (strcmp(kept->files[i].name, name) == 0) return &kept->files[i];
    return NULL;
}

static tt_status list_files(struct tt_new_tokens *own)
{
    own->files = tt_calloc(TOKENIZER_FILES, sizeof *own->files);
    if (own->files == NULL) return TT_ERR_MEMORY;
    if (own->json.bytes > 0) {
        own->files[own->file_count++] =
            (struct tt_save_template){tokenizer_files[0], tt_str_text(&own->json)};
        return TT_OK;
    }
    for (int i = 0; i < TOKENIZER_FILES; i++) {
        const struct tt_kept_file *file = find_kept(&own->kept, tokenizer_files[i]);
        own->files[own->file_count++] =
            (struct tt_save_template){tokenizer_files[i], file != NULL ? file->data : NULL};
    }
    return TT_OK;
}

tt_status tt_new_tokens_open(const struct tt_inputs_config *config, bool weights, struct tt_inputs *inputs)
{
    const struct tt_model_spec *model = config->model;
    const char *given = model->adapter_name_or_path;
    bool adds = model->add_tokens != NULL || model->add_special_tokens != NULL;
    bool alone =
        given != NULL && model->adapter_places == 0 && (strchr(given, ',') == NULL || tt_path_exists(given));
    if (adds && given != NULL) {
        tt_status status =
            tt_fail(TT_ERR_USAGE, "add_tokens and add_special_tokens are for a new adapter, and "
                                  "adapter_name_or_path names one that is there");
        tt_hint(
            "leave them out: the adapter has its tokens; for further ones merge it first (trimtab merge)");
        return status;
    }
    if (adds) TT_TRY(open_settings(model, tt_model_folder_path(inputs->folder), inputs));
    if (alone) TT_TRY(open_adapter(given, inputs));
    if (!adds && !alone) return TT_OK;
    TT_TRY(grow(config, weights, inputs));
    return inputs->tokenizer != NULL ? list_files(&inputs->new_tokens) : TT_OK;
}

tt_status tt_inputs_load_tokenizer(const struct tt_inputs *inputs, struct tt_tokenizer **out)
{
    const struct tt_new_tokens *own = &inputs->new_tokens;
    const char *base = tt_model_folder_path(inputs->folder);
    if (own->json.bytes > 0)
        return tt_tokenizer_load_text(base, tt_str_text(&own->json), own->json.bytes, out);
    if (own->file_count == 0) return tt_tokenizer_load(base, out);
    TT_TRY(tt_tokenizer_load(own->folder, out));
    return tt_tokenizer_stand_in(*out, base);
}

tt_status tt_new_tokens_plan(const struct tt_model_spec *model, const char *folder,
                             struct tt_model_facts *facts, struct tt_ids *ids)
{
    tt_status status = TT_OK;
    struct listed listed = {0};
    struct tt_tokenizer *tokenizer = NULL;
    struct tt_str json = {0};
    bool has = false;
    int64_t tokens = facts->vocab_size;
    TT_GO(list_settings(model, &listed));
    if (listed.count == 0) goto out;
    if (folder != NULL) TT_GO(tt_new_tokens_has_tokenizer(folder, &has));
    if (has) {
        TT_GO(tt_new_tokens_add(folder, listed.tokens, listed.count, &tokenizer, &json, ids));
        tokens = tt_tokenizer_vocab_size(tokenizer);
    }
    for (size_t i = 0; i < listed.count && !has; i++) TT_GO(tt_ids_append(ids, (int32_t)tokens++));
    struct tt_new_rows rows = {.count = rows_for(tokens, model->resize_to_multiple_of, facts->vocab_size)};
    if (rows.count > facts->vocab_size) TT_GO(tt_new_rows_grow(facts, &rows, NULL));
out:
    listed_deinit(&listed);
    tt_tokenizer_destroy(tokenizer);
    tt_str_deinit(&json);
    return status;
}

void tt_new_tokens_close(struct tt_new_tokens *tokens)
{
    tt_ids_deinit(&tokens->ids);
    tt_str_deinit(&tokens->json);
    tt_kept_files_deinit(&tokens->kept);
    tt_free(tokens->folder);
    tt_free(tokens->files);
    *tokens = (struct tt_new_tokens){0};
}
