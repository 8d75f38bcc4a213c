#include "data/chat_parts.h"

#include <string.h>

/* Types of parts, and members of parts without a type, that are no text: transformers' and OpenAI's names. */
static const char *const media[] = {"image",       "image_url", "input_image", "video",      "video_url",
                                    "input_audio", "audio",     "audio_url",   "input_video"};

static bool is_set(const struct tt_json_value *object, const char *key)
{
    const struct tt_json_value *value = tt_json_get(object, key);
    return value != NULL && !tt_json_is_null(value);
}

/* The name of a part's content beside text; NULL: none. */
static const char *medium_of(const struct tt_json_value *part)
{
    const char *type = tt_json_text(tt_json_get(part, "type"));
    for (size_t i = 0; i < sizeof media / sizeof *media; i++)
        if ((type != NULL && strcmp(type, media[i]) == 0) || is_set(part, media[i])) return media[i];
    return NULL;
}

static tt_status copy_part(const struct tt_json_value *part, struct tt_json_value *list)
{
    const char *key;
    const struct tt_json_value *value;
    if (!tt_json_is_object(part)) return tt_json_append_copy(list, part) == 0 ? TT_OK : TT_ERR_MEMORY;
    struct tt_json_value *copy = tt_json_new_object();
    bool made = copy != NULL;
    for (size_t i = 0; made && tt_json_next_member(part, &i, &key, &value);)
        if (!tt_json_is_null(value)) made = tt_json_set_copy(copy, key, value) == 0;
    if (made) return tt_json_append(list, copy) == 0 ? TT_OK : TT_ERR_MEMORY;
    tt_json_release(copy);
    return TT_ERR_MEMORY;
}

tt_status tt_chat_parts_copy(const struct tt_json_value *content, const char *where,
                             struct tt_json_value **out)
{
    if (!tt_json_is_list(content)) {
        *out = tt_json_copy(content);
        return *out != NULL ? TT_OK : TT_ERR_MEMORY;
    }
    struct tt_json_value *list = tt_json_new_list();
    tt_status status = list != NULL ? TT_OK : TT_ERR_MEMORY;
    for (size_t i = 0; status == TT_OK && i < tt_json_count(content); i++) {
        const char *medium = medium_of(tt_json_at(content, i));
        if (medium == NULL) {
            status = copy_part(tt_json_at(content, i), list);
            continue;
        }
        status =
            tt_fail(TT_ERR_UNSUPPORTED, "%s: part %zu of the content is '%s', and only text is supported",
                    where, i + 1, medium);
        tt_hint("leave out the rows with images or sounds, or these parts of them: of a model that sees or "
                "hears the text part is served");
    }
    if (status == TT_OK)
        *out = list;
    else
        tt_json_release(list);
    return status;
}

bool tt_chat_parts_are_text(const struct tt_json_value *content)
{
    for (size_t i = 0; i < tt_json_count(content); i++) {
        const struct tt_json_value *part = tt_json_at(content, i);
        const char *type = tt_json_text(tt_json_get(part, "type"));
        if (type == NULL || strcmp(type, "text") != 0 || !tt_json_is_string(tt_json_get(part, "text")))
            return false;
    }
    return tt_json_is_list(content) && tt_json_count(content) > 0;
}

tt_status tt_chat_parts_join(const struct tt_json_value *content, struct tt_json_value **out)
{
    struct tt_str text = {0};
    tt_status status = TT_OK;
    for (size_t i = 0; status == TT_OK && i < tt_json_count(content); i++) {
        struct tt_span piece = tt_json_span(tt_json_get(tt_json_at(content, i), "text"));
        if (piece.bytes > 0) status = tt_str_append(&text, piece.data, piece.bytes);
    }
    *out = status == TT_OK ? tt_json_new_text((struct tt_span){tt_str_text(&text), text.bytes}) : NULL;
    if (status == TT_OK && *out == NULL) status = TT_ERR_MEMORY;
    tt_str_deinit(&text);
    return status;
}
