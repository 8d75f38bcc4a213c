#include "base/json.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"

tt_status tt_json_parse(const char *text, size_t bytes, const char *origin, struct tt_json *json)
{
    json_error_t error;
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
    if (root == NULL) {
        /* Not every place in jansson that runs out of memory says so; some say nothing. */
        if (json_error_code(&error) == json_error_out_of_memory || error.text[0] == '\0') {
            return tt_fail(TT_ERR_MEMORY, "out of memory while reading %s", origin);
        }
        return tt_fail(TT_ERR_DATA, "%s: line %d, column %d: not valid JSON: %s", origin, error.line,
                       error.column, error.text);
    }
    char *name = tt_strdup(origin);
    if (name == NULL) {
        json_decref(root);
        return TT_ERR_MEMORY;
    }
    *json = (struct tt_json){root, name};
    return TT_OK;
}

tt_status tt_json_read(const char *path, size_t max_bytes, struct tt_json *json)
{
    struct tt_str text = {0};
    TT_TRY(tt_file_read(path, max_bytes, &text));
    tt_status status = tt_json_parse(tt_str_text(&text), text.bytes, path, json);
    tt_str_deinit(&text);
    return status;
}

void tt_json_deinit(struct tt_json *json)
{
    json_decref(json->root);
    tt_free(json->origin);
    *json = (struct tt_json){0};
}

/* Appends the way from `at` to `object` ("layers[3].rope."); false when it is not below `at`. Only used to
 * make a message, so that a search of the whole document does no harm. */
static bool find_path(const json_t *at, const json_t *object, struct tt_str *path)
{
    if (at == object) return true;
    size_t start = path->bytes;
    if (json_is_object(at)) {
        const char *key;
        json_t *value;
        json_object_foreach((json_t *)(uintptr_t)at, key, value)
        {
            if (!json_is_object(value) && !json_is_array(value)) continue;
            if (tt_str_printf(path, "%s.", key) != TT_OK) return false;
            if (find_path(value, object, path)) return true;
            path->bytes = start;
        }
    } else if (json_is_array(at)) {
        for (size_t i = 0; i < json_array_size(at); i++) {
            const json_t *value = json_array_get(at, i);
            if (!json_is_object(value) && !json_is_array(value)) break;
            if (path->bytes > 0 && path->data[path->bytes - 1] == '.') path->bytes--;
            if (tt_str_printf(path, "[%zu].", i) != TT_OK) return false;
            if (find_path(value, object, path)) return true;
            path->bytes = start;
        }
    }
    return false;
}

static const char *describe(const json_t *value, char *text, size_t text_bytes)
{
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        return "an object";
    case JSON_ARRAY:
        return "a list";
    case JSON_TRUE:
        return "true";
    case JSON_FALSE:
        return "false";
    case JSON_NULL:
        return "null";
    case JSON_INTEGER:
        snprintf(text, text_bytes, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
        return text;
    case JSON_REAL:
        snprintf(text, text_bytes, "%.17g", json_real_value(value));
        return text;
    case JSON_STRING:
        snprintf(text, text_bytes, "the string \"%.60s\"", json_string_value(value));
        return text;
    }
    return "something else";
}

/* value == NULL: the member is missing. */
static tt_status complain(const struct tt_json *json, const json_t *object, const char *key,
                          const json_t *value, const char *wanted)
{
    const char *origin = json->origin != NULL ? json->origin : "JSON";
    if (!json_is_object(object)) {
        char found[96];
        return tt_fail(TT_ERR_DATA, "%s: an object with '%s' is expected, not %s", origin, key,
                       object == NULL ? "nothing" : describe(object, found, sizeof found));
    }
    struct tt_str path = {0};
    if (!find_path(json->root, object, &path)) tt_str_clear(&path);
    if (path.data != NULL) path.data[path.bytes] = '\0';
    if (value == NULL) {
        tt_fail(TT_ERR_DATA, "%s: '%s%s' is missing; it must be %s", origin, tt_str_text(&path), key, wanted);
    } else {
        char found[96];
        tt_fail(TT_ERR_DATA, "%s: '%s%s' must be %s, not %s", origin, tt_str_text(&path), key, wanted,
                describe(value, found, sizeof found));
    }
    tt_str_deinit(&path);
    return TT_ERR_DATA;
}

tt_status tt_json_int(const struct tt_json *json, const json_t *object, const char *key, int64_t *out)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_integer(value)) return complain(json, object, key, value, "an integer");
    *out = json_integer_value(value);
    return TT_OK;
}

tt_status tt_json_double(const struct tt_json *json, const json_t *object, const char *key, double *out)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_number(value)) return complain(json, object, key, value, "a number");
    *out = json_number_value(value);
    return TT_OK;
}

tt_status tt_json_bool(const struct tt_json *json, const json_t *object, const char *key, bool *out)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_boolean(value)) return complain(json, object, key, value, "true or false");
    *out = json_is_true(value);
    return TT_OK;
}

tt_status tt_json_string(const struct tt_json *json, const json_t *object, const char *key, const char **out)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_string(value)) return complain(json, object, key, value, "a string");
    if (strlen(json_string_value(value)) != json_string_length(value)) {
        return complain(json, object, key, value, "a string without U+0000");
    }
    *out = json_string_value(value);
    return TT_OK;
}

tt_status tt_json_array(const struct tt_json *json, const json_t *object, const char *key, const json_t **out)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_array(value)) return complain(json, object, key, value, "a list");
    *out = value;
    return TT_OK;
}

tt_status tt_json_object(const struct tt_json *json, const json_t *object, const char *key,
                         const json_t **out)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_object(value)) return complain(json, object, key, value, "an object");
    *out = value;
    return TT_OK;
}

/* A missing member, or null, of an object. What is no object falls through to the required getter's message.
 */
static bool is_absent(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return json_is_object(object) && (value == NULL || json_is_null(value));
}

tt_status tt_json_opt_int(const struct tt_json *json, const json_t *object, const char *key, int64_t *out)
{
    return is_absent(object, key) ? TT_OK : tt_json_int(json, object, key, out);
}

tt_status tt_json_opt_double(const struct tt_json *json, const json_t *object, const char *key, double *out)
{
    return is_absent(object, key) ? TT_OK : tt_json_double(json, object, key, out);
}

tt_status tt_json_opt_bool(const struct tt_json *json, const json_t *object, const char *key, bool *out)
{
    return is_absent(object, key) ? TT_OK : tt_json_bool(json, object, key, out);
}

tt_status tt_json_opt_string(const struct tt_json *json, const json_t *object, const char *key,
                             const char **out)
{
    return is_absent(object, key) ? TT_OK : tt_json_string(json, object, key, out);
}
