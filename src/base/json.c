/* Documents of base/json.h and the getters with messages. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/json_value.h"
#include "base/number.h"
#include "base/str.h"

tt_status tt_json_parse(const char *text, size_t bytes, const char *origin, struct tt_json *json)
{
    return tt_json_parse_source(&(struct tt_json_source){.text = text, .bytes = bytes, .origin = origin},
                                json);
}

tt_status tt_json_parse_nul(const char *text, size_t bytes, const char *origin, struct tt_json *json)
{
    return tt_json_parse_source(
        &(struct tt_json_source){.text = text, .bytes = bytes, .origin = origin, .nul = true}, json);
}

static tt_status read_file(const char *path, size_t max_bytes, bool nul, struct tt_json *json)
{
    static const char mark[] = "\xef\xbb\xbf";
    struct tt_str text = {0};
    TT_TRY(tt_file_read(path, max_bytes, &text));
    struct tt_json_source source = {
        .text = tt_str_text(&text), .bytes = text.bytes, .origin = path, .nul = nul};
    if (text.bytes >= 3 && memcmp(source.text, mark, 3) == 0) {
        source.text += 3;
        source.bytes -= 3;
    }
    tt_status status = tt_json_parse_source(&source, json);
    if (status == TT_ERR_DATA && tt_starts_with(tt_str_text(&text), "version https://git-lfs"))
        tt_hint("it looks like a Git LFS pointer: run 'git lfs pull' in that folder");
    tt_str_deinit(&text);
    return status;
}

tt_status tt_json_read(const char *path, size_t max_bytes, struct tt_json *json)
{
    return read_file(path, max_bytes, false, json);
}

tt_status tt_json_read_nul(const char *path, size_t max_bytes, struct tt_json *json)
{
    return read_file(path, max_bytes, true, json);
}

void tt_json_deinit(struct tt_json *json)
{
    tt_json_release(json->root);
    tt_arena_deinit(&json->arena);
    *json = (struct tt_json){0};
}

static bool holds_others(const struct tt_json_value *value)
{
    return tt_json_is_object(value) || tt_json_is_list(value);
}

/* Appends the path from `at` to `object` ("layers[3].rope"); false when `object` is not below `at`. It searches
 * the whole document, which is acceptable because only error messages use it. */
static bool find_path(const struct tt_json_value *at, const struct tt_json_value *object, struct tt_str *path)
{
    if (at == object) return true;
    size_t start = path->bytes;
    for (size_t i = 0; i < tt_json_count(at); i++) {
        struct tt_json_member member = tt_json_member(at, i);
        const struct tt_json_value *value = tt_json_is_list(at) ? tt_json_at(at, i) : member.value;
        if (!holds_others(value)) continue;
        tt_status status = tt_json_is_list(at)
                               ? tt_str_printf(path, "[%zu]", i)
                               : tt_str_printf(path, "%s%s", start > 0 ? "." : "", member.key.data);
        if (status != TT_OK) return false;
        if (find_path(value, object, path)) return true;
        path->bytes = start;
    }
    return false;
}

static const char *describe(const struct tt_json_value *value, char *text, size_t text_bytes)
{
    switch (tt_json_type(value)) {
    case TT_JSON_OBJECT:
        return "an object";
    case TT_JSON_LIST:
        return "a list";
    case TT_JSON_TRUE:
        return "true";
    case TT_JSON_FALSE:
        return "false";
    case TT_JSON_NULL:
        return "null";
    case TT_JSON_INTEGER:
        snprintf(text, text_bytes, "%" PRId64, value->integer);
        return text;
    case TT_JSON_HUGE:
        snprintf(text, text_bytes, "%.60s%s, which is beyond 64 bits", value->text,
                 value->count > 60 ? "..." : "");
        return text;
    case TT_JSON_REAL:
        return tt_format_double(value->real, text, text_bytes);
    case TT_JSON_STRING:
        snprintf(text, text_bytes, "the string \"%.60s\"", value->text);
        return text;
    }
    return "something else";
}

/* value == NULL: the member is missing. */
static tt_status complain(const struct tt_json *json, const struct tt_json_value *object, const char *key,
                          const struct tt_json_value *value, const char *wanted)
{
    const char *origin = json->origin != NULL ? json->origin : "JSON";
    char found[128];
    if (!tt_json_is_object(object)) {
        return tt_fail(TT_ERR_DATA, "%s: an object with '%s' is expected, not %s", origin, key,
                       object == NULL ? "nothing" : describe(object, found, sizeof found));
    }
    struct tt_str path = {0};
    if (!find_path(json->root, object, &path)) tt_str_clear(&path);
    if (path.data != NULL) path.data[path.bytes] = '\0';
    const char *point = path.bytes > 0 ? "." : "";
    if (value == NULL) {
        tt_fail(TT_ERR_DATA, "%s: '%s%s%s' is missing; it must be %s", origin, tt_str_text(&path), point, key,
                wanted);
    } else {
        tt_fail(TT_ERR_DATA, "%s: '%s%s%s' must be %s, not %s", origin, tt_str_text(&path), point, key,
                wanted, describe(value, found, sizeof found));
    }
    tt_str_deinit(&path);
    return TT_ERR_DATA;
}

tt_status tt_json_int(const struct tt_json *json, const struct tt_json_value *object, const char *key,
                      int64_t *out)
{
    const struct tt_json_value *value = tt_json_get(object, key);
    if (!tt_json_is_integer(value)) return complain(json, object, key, value, "an integer");
    *out = tt_json_integer(value);
    return TT_OK;
}

tt_status tt_json_double(const struct tt_json *json, const struct tt_json_value *object, const char *key,
                         double *out)
{
    const struct tt_json_value *value = tt_json_get(object, key);
    if (!tt_json_is_number(value)) return complain(json, object, key, value, "a number");
    double number = tt_json_number(value);
    if (!isfinite(number)) return complain(json, object, key, value, "a finite number");
    *out = number;
    return TT_OK;
}

tt_status tt_json_bool(const struct tt_json *json, const struct tt_json_value *object, const char *key,
                       bool *out)
{
    const struct tt_json_value *value = tt_json_get(object, key);
    if (!tt_json_is_bool(value)) return complain(json, object, key, value, "true or false");
    *out = tt_json_is_true(value);
    return TT_OK;
}

tt_status tt_json_string(const struct tt_json *json, const struct tt_json_value *object, const char *key,
                         const char **out)
{
    const struct tt_json_value *value = tt_json_get(object, key);
    if (!tt_json_is_string(value)) return complain(json, object, key, value, "a string");
    if (tt_json_text(value) == NULL) {
        return complain(json, object, key, value, "a string without U+0000");
    }
    *out = tt_json_text(value);
    return TT_OK;
}

tt_status tt_json_array(const struct tt_json *json, const struct tt_json_value *object, const char *key,
                        const struct tt_json_value **out)
{
    const struct tt_json_value *value = tt_json_get(object, key);
    if (!tt_json_is_list(value)) return complain(json, object, key, value, "a list");
    *out = value;
    return TT_OK;
}

tt_status tt_json_object(const struct tt_json *json, const struct tt_json_value *object, const char *key,
                         const struct tt_json_value **out)
{
    const struct tt_json_value *value = tt_json_get(object, key);
    if (!tt_json_is_object(value)) return complain(json, object, key, value, "an object");
    *out = value;
    return TT_OK;
}

/* Whether the member of an object is missing or null. For other types than objects the answer is false, so that
 * the required getter reports the error. */
static bool is_absent(const struct tt_json_value *object, const char *key)
{
    const struct tt_json_value *value = tt_json_get(object, key);
    return tt_json_is_object(object) && (value == NULL || tt_json_is_null(value));
}

tt_status tt_json_opt_int(const struct tt_json *json, const struct tt_json_value *object, const char *key,
                          int64_t *out)
{
    return is_absent(object, key) ? TT_OK : tt_json_int(json, object, key, out);
}

tt_status tt_json_opt_double(const struct tt_json *json, const struct tt_json_value *object, const char *key,
                             double *out)
{
    return is_absent(object, key) ? TT_OK : tt_json_double(json, object, key, out);
}

tt_status tt_json_opt_bool(const struct tt_json *json, const struct tt_json_value *object, const char *key,
                           bool *out)
{
    return is_absent(object, key) ? TT_OK : tt_json_bool(json, object, key, out);
}

tt_status tt_json_opt_string(const struct tt_json *json, const struct tt_json_value *object, const char *key,
                             const char **out)
{
    return is_absent(object, key) ? TT_OK : tt_json_string(json, object, key, out);
}
