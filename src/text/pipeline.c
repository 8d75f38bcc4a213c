#include "text/pipeline.h"

tt_status pipeline_type(const struct tt_json *json, const struct tt_json_value *object, const char **type)
{
    if (!tt_json_is_object(object)) return tt_fail(TT_ERR_DATA, "%s: a step is not an object", json->origin);
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

size_t pipeline_limit(size_t bytes)
{
    static const size_t least = 1 << 20, much = 256 << 20;
    if (bytes >= TEXT_BYTES_MAX / 4) return TEXT_BYTES_MAX;
    size_t most = 4 * bytes > much ? 4 * bytes : much, usual = least + 32 * bytes;
    return usual < most ? usual : most;
}

/* One character stays one character. */
static bool keeps_offsets(const struct normalizer *step)
{
    if (step->kind == NORMALIZE_LOWERCASE) return true;
    return step->kind == NORMALIZE_REPLACE && tt_pattern_is_character(step->pattern) &&
           step->content[0] != 0 && step->content[tt_utf8_length((unsigned char)step->content[0])] == 0;
}

/* "first" depends on the offset of a piece in the original text. The output of Prepend, and of a normalizer for the
 * first character, has the offset of that character, 0. While it stays the beginning of the first piece, that piece is
 * at the start of the text. Steps that remove a part of it, or split inside it, would change that. */
tt_status pipeline_check_first(const struct tt_json *json, const struct normalizers *normalizers,
                               const struct pretokenizers *pretokenizers)
{
    size_t metaspace = 0;
    while (metaspace < pretokenizers->count &&
           !(pretokenizers->steps[metaspace].kind == PRETOKENIZE_METASPACE &&
             pretokenizers->steps[metaspace].prepend == PREPEND_FIRST)) {
        metaspace++;
    }
    if (metaspace == pretokenizers->count) return TT_OK;
    bool prepended = false;
    for (size_t i = 0; i < normalizers->count; i++) {
        const struct normalizer *step = &normalizers->steps[i];
        bool form = step->kind == NORMALIZE_FORM || step->kind == NORMALIZE_BYTE_LEVEL ||
                    step->kind == NORMALIZE_PREPEND;
        if ((prepended && !form && !keeps_offsets(step)) ||
            (metaspace > 0 && step->kind != NORMALIZE_STRIP && !keeps_offsets(step))) {
            return tt_fail(TT_ERR_UNSUPPORTED,
                           "%s: Metaspace with prepend_scheme 'first' after a normalizer that %s",
                           json->origin,
                           prepended ? "may remove the output of Prepend"
                                     : "may make several characters of one, and after another pre-tokenizer");
        }
        prepended = prepended || step->kind == NORMALIZE_PREPEND;
    }
    return TT_OK;
}
