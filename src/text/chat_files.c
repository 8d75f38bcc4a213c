#include "text/chat_files.h"

#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"
#include "base/utf8.h"
#include "text/beside.h"
#include "text/jinja/jinja.h"

enum { CONFIG_BYTES_MAX = 64 << 20 };

static const char *keep(struct tt_chat_files *files, const char *text, size_t bytes)
{
    return tt_arena_strndup(&files->arena, text, bytes);
}

static tt_status add_template(struct tt_chat_files *files, const char *name, struct tt_span text,
                              const char *path)
{
    TT_TRY(tt_grow(&files->templates, files->template_count, &files->template_capacity));
    struct tt_chat_template *added = &files->templates[files->template_count];
    *added = (struct tt_chat_template){keep(files, name, strlen(name)), keep(files, text.data, text.bytes),
                                       keep(files, path, strlen(path))};
    if (added->name == NULL || added->text == NULL || added->path == NULL) return TT_ERR_MEMORY;
    files->template_count++;
    return TT_OK;
}

static tt_status read_template_file(struct tt_chat_files *files, const char *name, const char *path)
{
    struct tt_str text = {0};
    tt_status status = TT_OK;
    TT_GO(tt_file_read(path, TT_JINJA_SOURCE_MAX, &text));
    if (memchr(tt_str_text(&text), 0, text.bytes) != NULL ||
        tt_utf8_invalid_at(tt_str_text(&text), text.bytes) != text.bytes)
        TT_GO(tt_fail(TT_ERR_DATA, "%s: not UTF-8 text", path));
    TT_GO(add_template(files, name, (struct tt_span){tt_str_text(&text), text.bytes}, path));
out:
    tt_str_deinit(&text);
    return status;
}

struct listing {
    struct tt_chat_files *files;
    const char *folder;
};

static tt_status add_listed(void *context, const char *name)
{
    const struct listing *listing = context;
    struct tt_path path;
    size_t bytes = strlen(name), ending = strlen(".jinja");
    if (bytes <= ending || strcmp(name + bytes - ending, ".jinja") != 0) return TT_OK;
    char *stem = tt_strndup(name, bytes - ending);
    if (stem == NULL) return TT_ERR_MEMORY;
    tt_status status = tt_path_set(&path, listing->folder, name);
    if (status == TT_OK) status = read_template_file(listing->files, stem, path.text);
    tt_free(stem);
    return status;
}

static tt_status read_template_files(struct tt_chat_files *files, const char *folder)
{
    struct tt_path path;
    TT_TRY(tt_path_set(&path, folder, "chat_template.jinja"));
    if (tt_path_exists(path.text)) TT_TRY(read_template_file(files, "default", path.text));
    TT_TRY(tt_path_set(&path, folder, "additional_chat_templates"));
    struct listing listing = {files, path.text};
    return tt_path_is_dir(path.text) ? tt_dir_list(path.text, add_listed, &listing) : TT_OK;
}

/* A text, or a list of {"name", "template"}. */
static tt_status read_inline(struct tt_chat_files *files, const struct tt_json *json)
{
    const struct tt_json_value *value = tt_json_get(json->root, "chat_template");
    if (value == NULL || tt_json_is_null(value)) return TT_OK;
    if (tt_json_is_string(value)) return add_template(files, "default", tt_json_span(value), json->origin);
    if (!tt_json_is_list(value))
        return tt_fail(TT_ERR_DATA, "%s: chat_template must be a string or a list", json->origin);
    for (size_t i = 0; i < tt_json_count(value); i++) {
        const struct tt_json_value *item = tt_json_at(value, i);
        const char *name = NULL, *text = NULL;
        if (!tt_json_is_object(item))
            return tt_fail(TT_ERR_DATA, "%s: chat_template[%zu] is not an object", json->origin, i);
        TT_TRY(tt_json_string(json, item, "name", &name));
        TT_TRY(tt_json_string(json, item, "template", &text));
        TT_TRY(add_template(files, name, tt_span_of(text), json->origin));
    }
    return TT_OK;
}

/* The first one of equal names counts. */
static tt_status add_token(struct tt_chat_files *files, const char *name, const struct tt_json_value *value)
{
    const char *text = tt_json_text(tt_json_is_object(value) ? tt_json_get(value, "content") : value);
    if (text == NULL) return TT_OK;
    for (size_t i = 0; i < files->token_count; i++)
        if (strcmp(files->tokens[i].name, name) == 0) return TT_OK;
    TT_TRY(tt_grow(&files->tokens, files->token_count, &files->token_capacity));
    struct tt_chat_token *token = &files->tokens[files->token_count];
    *token = (struct tt_chat_token){keep(files, name, strlen(name)), keep(files, text, strlen(text))};
    if (token->name == NULL || token->text == NULL) return TT_ERR_MEMORY;
    files->token_count++;
    return TT_OK;
}

static tt_status read_tokens(struct tt_chat_files *files, const struct tt_json_value *object, bool all)
{
    const char *name;
    const struct tt_json_value *value;
    for (size_t i = 0; tt_json_next_member(object, &i, &name, &value);) {
        size_t bytes = strlen(name);
        bool named = bytes > 6 && strcmp(name + bytes - 6, "_token") == 0;
        if (all || named) TT_TRY(add_token(files, name, value));
        bool lists =
            strcmp(name, "extra_special_tokens") == 0 || strcmp(name, "model_specific_special_tokens") == 0;
        if (!all && lists && tt_json_is_object(value)) TT_TRY(read_tokens(files, value, true));
    }
    return TT_OK;
}

static tt_status read_optional(const char *folder, const char *name, struct tt_json *json)
{
    struct tt_path path;
    TT_TRY(tt_path_set(&path, folder, name));
    return tt_path_exists(path.text) ? tt_json_read(path.text, CONFIG_BYTES_MAX, json) : TT_OK;
}

/* One id or a list of them. */
static tt_status read_ends(struct tt_chat_files *files, const struct tt_json *json)
{
    const struct tt_json_value *value = tt_json_get(json->root, "eos_token_id");
    if (tt_json_is_integer(value)) return tt_ids_append(&files->ends, (int32_t)tt_json_integer(value));
    for (size_t i = 0; i < tt_json_count(value); i++)
        if (tt_json_is_integer(tt_json_at(value, i)))
            TT_TRY(tt_ids_append(&files->ends, (int32_t)tt_json_integer(tt_json_at(value, i))));
    return TT_OK;
}

static tt_status read_folder(struct tt_chat_files *files, const char *folder, bool only_templates)
{
    struct tt_beside beside = {0};
    struct tt_json generation = {0};
    tt_status status = TT_OK;
    TT_GO(read_template_files(files, folder));
    TT_GO(tt_beside_open(folder, &beside));
    if (files->template_count == 0) TT_GO(read_inline(files, &beside.config));
    if (only_templates) goto out;
    TT_GO(read_optional(folder, "generation_config.json", &generation));
    TT_GO(read_tokens(files, beside.map.root, false));
    TT_GO(read_tokens(files, beside.config.root, false));
    TT_GO(read_ends(files, &generation));
out:
    tt_beside_close(&beside);
    tt_json_deinit(&generation);
    return status;
}

tt_status tt_chat_files_load(const char *path, struct tt_chat_files *files)
{
    return path == NULL ? TT_OK : read_folder(files, path, false);
}

tt_status tt_chat_files_add_templates(const char *folder, struct tt_chat_files *files)
{
    return read_folder(files, folder, true);
}

tt_status tt_chat_files_complete(const char *folder, struct tt_chat_files *files)
{
    struct tt_json generation = {0};
    if (folder == NULL) return TT_OK;
    if (files->template_count == 0) TT_TRY(read_folder(files, folder, true));
    if (files->ends.count > 0) return TT_OK;
    tt_status status = read_optional(folder, "generation_config.json", &generation);
    if (status == TT_OK) status = read_ends(files, &generation);
    tt_json_deinit(&generation);
    return status;
}

tt_status tt_chat_files_take_template(const char *path, struct tt_chat_files *files)
{
    files->template_count = 0;
    if (!tt_path_is_dir(path)) {
        tt_status status = read_template_file(files, "default", path);
        if (status != TT_OK) tt_while("reading chat_template_path");
        return status;
    }
    TT_TRY(read_folder(files, path, true));
    if (files->template_count > 0) return TT_OK;
    tt_fail(TT_ERR_USAGE, "chat_template_path '%s' has no chat template", path);
    tt_hint("it is a file with a template, or a tokenizer's folder with chat_template.jinja or "
            "tokenizer_config.json");
    return TT_ERR_USAGE;
}

static const struct {
    const char *name, *text;
} named_templates[] = {
#define TEMPLATE(name_, text_) {name_, text_},
#include "text/chat_templates.def"
#undef TEMPLATE
};

tt_status tt_chat_files_take_text(const char *text, struct tt_chat_files *files)
{
    static const char *const path = "the setting chat_template";
    files->template_count = 0;
    for (size_t i = 0; i < sizeof named_templates / sizeof *named_templates; i++)
        if (strcmp(named_templates[i].name, text) == 0)
            return add_template(files, "default", tt_span_of(named_templates[i].text), path);
    if (strstr(text, "{{") != NULL || strstr(text, "{%") != NULL)
        return add_template(files, "default", tt_span_of(text), path);
    tt_fail(TT_ERR_USAGE, "chat_template '%.100s' is no template, and no template has this name", text);
    tt_hint("it is Jinja, or one of llama3, chatml, gemma, alpaca; remove it for the model's own template");
    return TT_ERR_USAGE;
}

void tt_chat_files_deinit(struct tt_chat_files *files)
{
    tt_arena_deinit(&files->arena);
    tt_free(files->templates);
    tt_free(files->tokens);
    tt_ids_deinit(&files->ends);
    *files = (struct tt_chat_files){0};
}

static const struct tt_chat_template *find(const struct tt_chat_files *files, const char *name)
{
    for (size_t i = 0; i < files->template_count; i++)
        if (strcmp(files->templates[i].name, name) == 0) return &files->templates[i];
    return NULL;
}

tt_status tt_chat_files_choose(const struct tt_chat_files *files, bool tools,
                               const struct tt_chat_template **out)
{
    const struct tt_chat_template *found = tools ? find(files, "tool_use") : NULL;
    if (found == NULL) found = find(files, "default");
    if (found != NULL) {
        *out = found;
        return TT_OK;
    }
    if (files->template_count == 0) {
        tt_fail(TT_ERR_DATA, "conversations need a chat template, and the tokenizer has none");
        tt_hint("give one with chat_template_path: a file, or the folder of another tokenizer");
        return TT_ERR_DATA;
    }
    return tt_fail(TT_ERR_DATA, "no chat template is named 'default'; the first of %zu is '%s'",
                   files->template_count, files->templates[0].name);
}
