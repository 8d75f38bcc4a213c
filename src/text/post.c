/* Post-processors of tokenizer.json: special tokens around a text. */
#include <string.h>

#include "base/alloc.h"
#include "text/pipeline.h"

static tt_status add_piece(struct post_processor *out, bool is_text, int32_t id)
{
    TT_TRY(tt_grow(&out->pieces, out->count, &out->capacity));
    out->pieces[out->count++] = (struct post_piece){is_text, id};
    return TT_OK;
}

static tt_status check_id(const struct tt_json *json, const struct tt_json_value *value, int32_t *id)
{
    if (!tt_json_is_integer(value) || tt_json_integer(value) < 0 || tt_json_integer(value) > INT32_MAX) {
        return tt_fail(TT_ERR_DATA, "%s: the post-processor has an invalid id", json->origin);
    }
    *id = (int32_t)tt_json_integer(value);
    return TT_OK;
}

static tt_status add_special(const struct tt_json *json, const struct tt_json_value *specials,
                             const char *name, struct post_processor *out)
{
    const struct tt_json_value *special = tt_json_get(specials, name), *ids = NULL;
    if (!tt_json_is_object(special)) {
        return tt_fail(TT_ERR_DATA, "%s: the post-processor uses '%s' and does not list it", json->origin,
                       name);
    }
    TT_TRY(tt_json_array(json, special, "ids", &ids));
    for (size_t i = 0; i < tt_json_count(ids); i++) {
        int32_t id = 0;
        TT_TRY(check_id(json, tt_json_at(ids, i), &id));
        TT_TRY(add_piece(out, false, id));
    }
    return TT_OK;
}

static tt_status read_template(const struct tt_json *json, const struct tt_json_value *value,
                               struct post_processor *out)
{
    const struct tt_json_value *single = NULL, *specials = NULL;
    TT_TRY(tt_json_array(json, value, "single", &single));
    TT_TRY(tt_json_object(json, value, "special_tokens", &specials));
    for (size_t i = 0; i < tt_json_count(single); i++) {
        const struct tt_json_value *piece = tt_json_at(single, i);
        const struct tt_json_value *special = tt_json_get(piece, "SpecialToken"),
                                   *text = tt_json_get(piece, "Sequence");
        const char *id = NULL;
        if ((special == NULL) == (text == NULL)) {
            return tt_fail(TT_ERR_DATA,
                           "%s: piece %zu of the template is neither a SpecialToken nor a Sequence",
                           json->origin, i);
        }
        TT_TRY(tt_json_string(json, special != NULL ? special : text, "id", &id));
        if (special != NULL) {
            TT_TRY(add_special(json, specials, id, out));
        } else if (strcmp(id, "A") == 0) {
            TT_TRY(add_piece(out, true, 0));
        } else {
            return tt_fail(TT_ERR_DATA, "%s: the template for one text uses sequence '%s'", json->origin, id);
        }
    }
    return TT_OK;
}

/* BertProcessing and RobertaProcessing: ["</s>", 2] members. */
static tt_status read_pair(const struct tt_json *json, const struct tt_json_value *value, const char *key,
                           int32_t *id)
{
    const struct tt_json_value *pair = NULL;
    TT_TRY(tt_json_array(json, value, key, &pair));
    if (tt_json_count(pair) != 2)
        return tt_fail(TT_ERR_DATA, "%s: %s must be [token, id]", json->origin, key);
    return check_id(json, tt_json_at(pair, 1), id);
}

static tt_status read_around(const struct tt_json *json, const struct tt_json_value *value,
                             struct post_processor *out)
{
    int32_t cls = 0, sep = 0;
    TT_TRY(read_pair(json, value, "cls", &cls));
    TT_TRY(read_pair(json, value, "sep", &sep));
    TT_TRY(add_piece(out, false, cls));
    TT_TRY(add_piece(out, true, 0));
    return add_piece(out, false, sep);
}

static tt_status read_value(const struct tt_json *json, const struct tt_json_value *value, int depth,
                            struct post_processor *out)
{
    const char *type = NULL;
    TT_TRY(pipeline_type(json, value, &type));
    if (strcmp(type, "ByteLevel") == 0) return TT_OK; /* it changes offsets only */
    if (strcmp(type, "Sequence") == 0) {
        const struct tt_json_value *items = NULL;
        if (depth == PIPELINE_DEPTH_MAX)
            return tt_fail(TT_ERR_UNSUPPORTED, "%s: sequences too deep", json->origin);
        TT_TRY(tt_json_array(json, value, "processors", &items));
        for (size_t i = 0; i < tt_json_count(items); i++) {
            TT_TRY(read_value(json, tt_json_at(items, i), depth + 1, out));
        }
        return TT_OK;
    }
    if (out->count > 0) {
        return tt_fail(TT_ERR_UNSUPPORTED, "%s: more than one post-processor that adds tokens", json->origin);
    }
    if (strcmp(type, "TemplateProcessing") == 0) return read_template(json, value, out);
    if (strcmp(type, "BertProcessing") == 0 || strcmp(type, "RobertaProcessing") == 0) {
        return read_around(json, value, out);
    }
    return tt_fail(TT_ERR_UNSUPPORTED, "%s: post-processor '%s' is not supported", json->origin, type);
}

tt_status post_processor_read(const struct tt_json *json, const struct tt_json_value *value,
                              struct post_processor *out)
{
    if (value != NULL && !tt_json_is_null(value)) TT_TRY(read_value(json, value, 0, out));
    return out->count == 0 ? add_piece(out, true, 0) : TT_OK;
}

void post_processor_deinit(struct post_processor *processor)
{
    tt_free(processor->pieces);
    *processor = (struct post_processor){0};
}
