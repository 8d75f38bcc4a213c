/* tokenizer_config.json: special tokens, and settings that override tokenizer.json. */
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "text/tokenizer_impl.h"

enum { CONFIG_BYTES_MAX = 64 << 20 };

/* Parses an optional file of the folder; *json stays empty when the file does not exist. */
static tt_status read_optional(const char *folder, const char *name, struct tt_json *json)
{
    struct tt_path path;
    TT_TRY(tt_path_set(&path, folder, name));
    tt_status status = tt_path_exists(path.text) ? tt_json_read(path.text, CONFIG_BYTES_MAX, json) : TT_OK;
    if (status == TT_OK && json->root != NULL && !tt_json_is_object(json->root)) {
        status = tt_fail(TT_ERR_DATA, "%s: not a JSON object", path.text);
    }
    return status;
}

/* A token that no file had before was added (text/beside.h). */
static void read_token(const struct tt_tokenizer *tokenizer, const struct tt_beside *beside, const char *key,
                       int32_t *id)
{
    const struct tt_json_value *value = tt_beside_get(beside, key, NULL);
    const char *text = tt_json_text(tt_json_is_object(value) ? tt_json_get(value, "content") : value);
    if (text != NULL) *id = tt_tokenizer_token_id(tokenizer, text);
}

/* A string, or a list of {"name", "template"} of which "default" counts. */
static tt_status read_template(const struct tt_json *json, char **out)
{
    const struct tt_json_value *value = tt_json_get(json->root, "chat_template");
    const char *text = tt_json_text(value);
    for (size_t i = 0; i < tt_json_count(value); i++) {
        const struct tt_json_value *item = tt_json_at(value, i);
        const char *name = NULL, *candidate = NULL;
        if (!tt_json_is_object(item))
            return tt_fail(TT_ERR_DATA, "%s: chat_template[%zu] is not an object", json->origin, i);
        TT_TRY(tt_json_string(json, item, "name", &name));
        TT_TRY(tt_json_string(json, item, "template", &candidate));
        if (strcmp(name, "default") == 0) text = candidate;
    }
    if (value != NULL && !tt_json_is_string(value) && !tt_json_is_list(value) && !tt_json_is_null(value)) {
        return tt_fail(TT_ERR_DATA, "%s: chat_template must be a string or a list", json->origin);
    }
    if (text == NULL) return TT_OK;
    *out = tt_strdup(text);
    return *out == NULL ? TT_ERR_MEMORY : TT_OK;
}

static tt_status read_template_file(const char *folder, char **out)
{
    struct tt_str text = {0};
    struct tt_path path;
    TT_TRY(tt_path_set(&path, folder, "chat_template.jinja"));
    tt_status status = TT_OK;
    if (!tt_path_exists(path.text)) goto out;
    TT_GO(tt_file_read(path.text, CONFIG_BYTES_MAX, &text));
    if (tt_utf8_invalid_at(tt_str_text(&text), text.bytes) != text.bytes ||
        memchr(tt_str_text(&text), 0, text.bytes) != NULL) {
        status = tt_fail(TT_ERR_DATA, "%s: not UTF-8 text", path.text);
        goto out;
    }
    char *copy = tt_strdup(tt_str_text(&text));
    if (copy == NULL) {
        status = TT_ERR_MEMORY;
        goto out;
    }
    tt_free(*out);
    *out = copy;
out:
    tt_str_deinit(&text);
    return status;
}

tt_status tokenizer_read_config(const char *folder, const struct tt_beside *beside,
                                struct tt_tokenizer *tokenizer)
{
    struct tt_json model = {0};
    tt_status status = TT_OK;
    read_token(tokenizer, beside, "bos_token", &tokenizer->bos_id);
    read_token(tokenizer, beside, "eos_token", &tokenizer->eos_id);
    read_token(tokenizer, beside, "pad_token", &tokenizer->pad_id);
    if (beside->config.root != NULL) TT_GO(read_template(&beside->config, &tokenizer->chat_template));
    TT_GO(read_template_file(folder, &tokenizer->chat_template));
    TT_GO(read_optional(folder, "config.json", &model));
    tokenizer_check_class(&beside->config, &model, tokenizer);
out:
    tt_json_deinit(&model);
    return status;
}
