/* The writing half of base/json.h: the text that Python's json.dumps makes. */
#include "base/json.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/number.h"

/* Python's float.__repr__: whole numbers end in ".0". */
static tt_status write_real(double value, struct tt_str *text)
{
    char number[TT_DOUBLE_TEXT_BYTES];
    TT_TRY(tt_str_append_text(text, tt_format_double(value, number, sizeof number)));
    return strpbrk(number, ".en") == NULL ? tt_str_append_text(text, ".0") : TT_OK;
}

/* jansson holds only valid UTF-8, so the lead byte gives the length. */
static uint32_t decode(const unsigned char *at, int *length)
{
    if (at[0] < 0x80) return *length = 1, at[0];
    if (at[0] < 0xe0) return *length = 2, (at[0] & 0x1fu) << 6 | (at[1] & 0x3fu);
    if (at[0] < 0xf0) return *length = 3, (at[0] & 0x0fu) << 12 | (at[1] & 0x3fu) << 6 | (at[2] & 0x3fu);
    return *length = 4,
           (at[0] & 0x07u) << 18 | (at[1] & 0x3fu) << 12 | (at[2] & 0x3fu) << 6 | (at[3] & 0x3fu);
}

static tt_status write_escape(uint32_t c, struct tt_str *text)
{
    switch (c) {
    case '"':
        return tt_str_append_text(text, "\\\"");
    case '\\':
        return tt_str_append_text(text, "\\\\");
    case '\n':
        return tt_str_append_text(text, "\\n");
    case '\r':
        return tt_str_append_text(text, "\\r");
    case '\t':
        return tt_str_append_text(text, "\\t");
    case '\f':
        return tt_str_append_text(text, "\\f");
    case '\b':
        return tt_str_append_text(text, "\\b");
    }
    if (c < 0x10000) return tt_str_printf(text, "\\u%04x", (unsigned)c);
    /* A surrogate pair. */
    c -= 0x10000;
    return tt_str_printf(text, "\\u%04x\\u%04x", 0xd800u | (unsigned)(c >> 10),
                         0xdc00u | (unsigned)(c & 0x3ff));
}

/* ensure_ascii: whatever is not printable ASCII is escaped. */
static tt_status write_string(const char *data, size_t bytes, struct tt_str *text)
{
    TT_TRY(tt_str_append_char(text, '"'));
    size_t plain = 0;
    for (size_t at = 0; at < bytes;) {
        unsigned char c = (unsigned char)data[at];
        if (c >= ' ' && c <= '~' && c != '"' && c != '\\') {
            at++;
            continue;
        }
        TT_TRY(tt_str_append(text, data + plain, at - plain));
        int length;
        uint32_t code = decode((const unsigned char *)data + at, &length);
        TT_TRY(write_escape(code, text));
        at += (size_t)length;
        plain = at;
    }
    TT_TRY(tt_str_append(text, data + plain, bytes - plain));
    return tt_str_append_char(text, '"');
}

struct style {
    int indent;
    bool sort_keys;
};

static tt_status write_value(const json_t *value, struct style style, int depth, struct tt_str *text);

static tt_status write_break(struct style style, int depth, bool first, struct tt_str *text)
{
    if (!first) TT_TRY(tt_str_append_text(text, style.indent > 0 ? "," : ", "));
    if (style.indent <= 0) return TT_OK;
    return tt_str_printf(text, "\n%*s", style.indent * depth, "");
}

static tt_status write_array(const json_t *array, struct style style, int depth, struct tt_str *text)
{
    size_t count = json_array_size(array);
    if (count == 0) return tt_str_append_text(text, "[]");
    TT_TRY(tt_str_append_char(text, '['));
    for (size_t i = 0; i < count; i++) {
        TT_TRY(write_break(style, depth + 1, i == 0, text));
        TT_TRY(write_value(json_array_get(array, i), style, depth + 1, text));
    }
    if (style.indent > 0) TT_TRY(write_break(style, depth, true, text));
    return tt_str_append_char(text, ']');
}

static int compare_keys(const void *a, const void *b)
{
    /* The byte order of UTF-8 is the order of code points, which is Python's. */
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static tt_status write_members(const json_t *object, const char **keys, size_t count, struct style style,
                               int depth, struct tt_str *text)
{
    TT_TRY(tt_str_append_char(text, '{'));
    for (size_t i = 0; i < count; i++) {
        TT_TRY(write_break(style, depth + 1, i == 0, text));
        TT_TRY(write_string(keys[i], strlen(keys[i]), text));
        TT_TRY(tt_str_append_text(text, ": "));
        TT_TRY(write_value(json_object_get(object, keys[i]), style, depth + 1, text));
    }
    if (style.indent > 0) TT_TRY(write_break(style, depth, true, text));
    return tt_str_append_char(text, '}');
}

static tt_status write_object(const json_t *object, struct style style, int depth, struct tt_str *text)
{
    size_t count = json_object_size(object);
    if (count == 0) return tt_str_append_text(text, "{}");
    const char **keys = tt_calloc(count, sizeof *keys);
    if (keys == NULL) return TT_ERR_MEMORY;
    size_t at = 0;
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)object, key, value) keys[at++] = key;
    if (style.sort_keys) qsort(keys, count, sizeof *keys, compare_keys);
    tt_status status = write_members(object, keys, count, style, depth, text);
    tt_free(keys);
    return status;
}

static tt_status write_value(const json_t *value, struct style style, int depth, struct tt_str *text)
{
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        return write_object(value, style, depth, text);
    case JSON_ARRAY:
        return write_array(value, style, depth, text);
    case JSON_STRING:
        return write_string(json_string_value(value), json_string_length(value), text);
    case JSON_INTEGER:
        return tt_str_printf(text, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
    case JSON_REAL:
        return write_real(json_real_value(value), text);
    case JSON_TRUE:
        return tt_str_append_text(text, "true");
    case JSON_FALSE:
        return tt_str_append_text(text, "false");
    case JSON_NULL:
        return tt_str_append_text(text, "null");
    }
    return tt_fail(TT_ERR_INTERNAL, "a JSON value of unknown type %d", (int)json_typeof(value));
}

tt_status tt_json_write(const json_t *value, int indent, bool sort_keys, struct tt_str *text)
{
    if (value == NULL) return tt_fail(TT_ERR_INTERNAL, "no JSON value to write");
    return write_value(value, (struct style){indent, sort_keys}, 0, text);
}

tt_status tt_json_write_file(const json_t *value, int indent, bool sort_keys, const char *folder,
                             const char *name)
{
    tt_status status = TT_OK;
    struct tt_str text = {0};
    char *path = tt_path_join(folder, name);
    if (path == NULL) TT_GO(TT_ERR_MEMORY);
    TT_GO(tt_json_write(value, indent, sort_keys, &text));
    TT_GO(tt_str_append_char(&text, '\n'));
    TT_GO(tt_file_write_atomic(path, text.data, text.bytes));
out:
    tt_str_deinit(&text);
    tt_free(path);
    return status;
}
