#include "text/pipeline.h"

#include <string.h>

tt_status pipeline_type(const struct tt_json *json, const struct tt_json_value *object, const char **type)
{
    if (!tt_json_is_object(object)) return tt_fail(TT_ERR_DATA, "%s: a step that is no object", json->origin);
    return tt_json_string(json, object, "type", type);
}

tt_status pipeline_pattern(const struct tt_json *json, const struct tt_json_value *object,
                           struct tt_pattern **out, enum tt_scan *scan)
{
    const struct tt_json_value *pattern = NULL;
    TT_TRY(tt_json_object(json, object, "pattern", &pattern));
    const struct tt_json_value *text = tt_json_get(pattern, "Regex");
    bool literal = text == NULL;
    if (literal) text = tt_json_get(pattern, "String");
    if (!tt_json_is_string(text) || tt_json_count(pattern) != 1) {
        return tt_fail(TT_ERR_DATA, "%s: a pattern must be {\"String\": ...} or {\"Regex\": ...}",
                       json->origin);
    }
    const char *data = tt_json_span(text).data;
    size_t bytes = tt_json_span(text).bytes;
    *scan = literal ? TT_SCAN_NONE : tt_scan_of_pattern(data, bytes);
    return literal ? tt_pattern_compile_literal(data, bytes, out) : tt_pattern_compile(data, bytes, out);
}

tt_status pipeline_character(const struct tt_json *json, const struct tt_json_value *object, const char *key,
                             int32_t *code)
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
