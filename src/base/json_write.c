/* The writing half of base/json.h: the text of Python's json.dumps. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/json_value.h"
#include "base/number.h"

/* Python's float.__repr__: whole numbers end in ".0". */
static tt_status write_real(double value, struct tt_str *text)
{
    char number[TT_DOUBLE_TEXT_BYTES];
    if (isnan(value)) return tt_str_append_text(text, "NaN");
    if (isinf(value)) return tt_str_append_text(text, value < 0 ? "-Infinity" : "Infinity");
    TT_TRY(tt_str_append_text(text, tt_format_double(value, number, sizeof number)));
    return strpbrk(number, ".e") == NULL ? tt_str_append_text(text, ".0") : TT_OK;
}

/* Values hold only valid UTF-8, so the lead byte gives the length. */
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

/* Escapes everything but printable ASCII, as ensure_ascii does. */
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

static tt_status write_value(const struct tt_json_value *value, struct style style, int depth,
                             struct tt_str *text);

static tt_status write_break(struct style style, int depth, bool first, struct tt_str *text)
{
    if (!first) TT_TRY(tt_str_append_text(text, style.indent > 0 ? "," : ", "));
    if (style.indent <= 0) return TT_OK;
    return tt_str_printf(text, "\n%*s", style.indent * depth, "");
}

static tt_status write_array(const struct tt_json_value *array, struct style style, int depth,
                             struct tt_str *text)
{
    size_t count = tt_json_count(array);
    if (count == 0) return tt_str_append_text(text, "[]");
    TT_TRY(tt_str_append_char(text, '['));
    for (size_t i = 0; i < count; i++) {
        TT_TRY(write_break(style, depth + 1, i == 0, text));
        TT_TRY(write_value(tt_json_at(array, i), style, depth + 1, text));
    }
    if (style.indent > 0) TT_TRY(write_break(style, depth, true, text));
    return tt_str_append_char(text, ']');
}

static int compare_keys(const void *a, const void *b)
{
    /* The byte order of UTF-8 is the order of code points, which is Python's. */
    const struct tt_json_member *x = a, *y = b;
    size_t bytes = x->key.bytes < y->key.bytes ? x->key.bytes : y->key.bytes;
    int order = memcmp(x->key.data, y->key.data, bytes);
    return order != 0 ? order : (x->key.bytes > y->key.bytes) - (x->key.bytes < y->key.bytes);
}

static tt_status write_members(const struct tt_json_member *members, size_t count, struct style style,
                               int depth, struct tt_str *text)
{
    TT_TRY(tt_str_append_char(text, '{'));
    for (size_t i = 0; i < count; i++) {
        TT_TRY(write_break(style, depth + 1, i == 0, text));
        TT_TRY(write_string(members[i].key.data, members[i].key.bytes, text));
        TT_TRY(tt_str_append_text(text, ": "));
        TT_TRY(write_value(members[i].value, style, depth + 1, text));
    }
    if (style.indent > 0) TT_TRY(write_break(style, depth, true, text));
    return tt_str_append_char(text, '}');
}

static tt_status write_object(const struct tt_json_value *object, struct style style, int depth,
                              struct tt_str *text)
{
    size_t count = tt_json_count(object);
    if (count == 0) return tt_str_append_text(text, "{}");
    struct tt_json_member *members = tt_calloc(count, sizeof *members);
    if (members == NULL) return TT_ERR_MEMORY;
    for (size_t i = 0; i < count; i++) members[i] = tt_json_member(object, i);
    if (style.sort_keys) qsort(members, count, sizeof *members, compare_keys);
    tt_status status = write_members(members, count, style, depth, text);
    tt_free(members);
    return status;
}

static tt_status write_value(const struct tt_json_value *value, struct style style, int depth,
                             struct tt_str *text)
{
    switch (tt_json_type(value)) {
    case TT_JSON_OBJECT:
        return write_object(value, style, depth, text);
    case TT_JSON_LIST:
        return write_array(value, style, depth, text);
    case TT_JSON_STRING:
        return write_string(value->text, value->count, text);
    case TT_JSON_INTEGER:
        return tt_str_printf(text, "%" PRId64, value->integer);
    case TT_JSON_HUGE:
        return tt_str_append(text, value->text, value->count);
    case TT_JSON_REAL:
        return write_real(value->real, text);
    case TT_JSON_TRUE:
        return tt_str_append_text(text, "true");
    case TT_JSON_FALSE:
        return tt_str_append_text(text, "false");
    case TT_JSON_NULL:
        return tt_str_append_text(text, "null");
    }
    return tt_fail(TT_ERR_INTERNAL, "a JSON value of unknown type %d", (int)tt_json_type(value));
}

tt_status tt_json_write(const struct tt_json_value *value, int indent, bool sort_keys, struct tt_str *text)
{
    if (value == NULL || value->lacks) return tt_fail(TT_ERR_MEMORY, "out of memory for a document in JSON");
    return write_value(value, (struct style){indent, sort_keys}, 0, text);
}

tt_status tt_json_write_file(const struct tt_json_value *value, int indent, bool sort_keys,
                             const char *folder, const char *name)
{
    tt_status status = TT_OK;
    struct tt_str text = {0};
    struct tt_path path;
    TT_GO(tt_path_set(&path, folder, name));
    TT_GO(tt_json_write(value, indent, sort_keys, &text));
    TT_GO(tt_str_append_char(&text, '\n'));
    TT_GO(tt_file_write_atomic(path.text, text.data, text.bytes));
out:
    tt_str_deinit(&text);
    return status;
}
