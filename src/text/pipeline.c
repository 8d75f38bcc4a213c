#include "text/pipeline.h"

#include <string.h>

tt_status pipeline_type(const struct tt_json *json, const json_t *object, const char **type)
{
    if (!json_is_object(object)) return tt_fail(TT_ERR_DATA, "%s: a step that is no object", json->origin);
    return tt_json_string(json, object, "type", type);
}

tt_status pipeline_pattern(const struct tt_json *json, const json_t *object, struct tt_pattern **out,
                           enum tt_scan *scan)
{
    const json_t *pattern = NULL;
    TT_TRY(tt_json_object(json, object, "pattern", &pattern));
    const json_t *text = json_object_get(pattern, "Regex");
    bool literal = text == NULL;
    if (literal) text = json_object_get(pattern, "String");
    if (!json_is_string(text) || json_object_size(pattern) != 1) {
        return tt_fail(TT_ERR_DATA, "%s: a pattern must be {\"String\": ...} or {\"Regex\": ...}",
                       json->origin);
    }
    const char *data = json_string_value(text);
    size_t bytes = json_string_length(text);
    *scan = literal ? TT_SCAN_NONE : tt_scan_of_pattern(data, bytes);
    return literal ? tt_pattern_compile_literal(data, bytes, out) : tt_pattern_compile(data, bytes, out);
}

tt_status pipeline_character(const struct tt_json *json, const json_t *object, const char *key, int32_t *code)
{
    const char *text = NULL;
    TT_TRY(tt_json_string(json, object, key, &text));
    size_t length = 0;
    if (text[0] != 0) *code = tt_utf8_decode(text, &length);
    if (length == 0 || text[length] != 0) {
        return tt_fail(TT_ERR_DATA, "%s: %s must be one character, not '%s'", json->origin, key, text);
    }
    return TT_OK;
}
