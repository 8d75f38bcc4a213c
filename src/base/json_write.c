/* The writing half of base/json.h: the text that Python's json.dumps makes. */
#include "base/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"

/* A decimal number d.ddd x 10^exponent of `count` digits, as an integer. */
struct decimal {
    uint64_t digits;
    int count;
    int exponent;
};

static double decimal_value(struct decimal decimal)
{
    char text[48];
    snprintf(text, sizeof text, "%llue%d", (unsigned long long)decimal.digits,
             decimal.exponent - (decimal.count - 1));
    return strtod(text, NULL);
}

static struct decimal decimal_round(double value, int count)
{
    char text[48];
    snprintf(text, sizeof text, "%.*e", count - 1, value);
    char *mark = strchr(text, 'e');
    struct decimal decimal = {0, count, atoi(mark + 1)};
    for (char *at = text; at < mark; at++) {
        if (*at >= '0' && *at <= '9') decimal.digits = decimal.digits * 10 + (uint64_t)(*at - '0');
    }
    return decimal;
}

/* The shortest decimal that reads back as `value` (> 0), and of those the nearest to it. Just above a power
 * of two the gap below is half the gap above, so the nearest decimal of a length may read back wrong while
 * its neighbour reads back right. */
static struct decimal decimal_shortest(double value)
{
    for (int count = 1; count < 17; count++) {
        struct decimal nearest = decimal_round(value, count);
        if (decimal_value(nearest) == value) return nearest;
        struct decimal above = nearest, below = nearest;
        above.digits++;
        if (decimal_value(above) == value) return above;
        below.digits--;
        if (decimal_value(below) == value) return below;
    }
    return decimal_round(value, 17);
}

/* Python's float.__repr__: an exponent below -4 or from 16 on is written out, with at least two digits. */
static tt_status write_real(double value, struct tt_str *text)
{
    if (signbit(value)) TT_TRY(tt_str_append_char(text, '-'));
    value = fabs(value);
    if (value == 0.0) return tt_str_append_text(text, "0.0");
    struct decimal decimal = decimal_shortest(value);
    char digits[24];
    int count = snprintf(digits, sizeof digits, "%llu", (unsigned long long)decimal.digits);
    while (count > 1 && digits[count - 1] == '0') count--;
    int exponent = decimal.exponent;
    if (exponent < -4 || exponent >= 16) {
        TT_TRY(tt_str_append_char(text, digits[0]));
        if (count > 1) TT_TRY(tt_str_printf(text, ".%.*s", count - 1, digits + 1));
        return tt_str_printf(text, "e%c%02d", exponent < 0 ? '-' : '+', abs(exponent));
    }
    if (exponent < 0) return tt_str_printf(text, "0.%.*s%.*s", -exponent - 1, "0000", count, digits);
    for (int i = 0; i <= exponent; i++) TT_TRY(tt_str_append_char(text, i < count ? digits[i] : '0'));
    if (count <= exponent + 1) return tt_str_append_text(text, ".0");
    return tt_str_printf(text, ".%.*s", count - exponent - 1, digits + exponent + 1);
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
