/* json.dumps() of Python. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "text/jinja/render.h"

struct dump {
    struct jinja_writer *writer;
    const struct jinja_json_style *style;
};

static tt_status write_escape(struct jinja_writer *writer, uint32_t point, uint32_t origin)
{
    static const char plain[] = "\"\\\n\r\t\f\b", letters[] = "\"\\nrtfb";
    const char *found = point > 0 && point < 0x80 ? strchr(plain, (int)point) : NULL;
    char text[16] = {'\\'};
    if (found != NULL)
        text[1] = letters[found - plain];
    else if (point < 0x10000)
        snprintf(text, sizeof text, "\\u%04x", (unsigned)point);
    else
        snprintf(text, sizeof text, "\\u%04x\\u%04x", (unsigned)(0xd800 + ((point - 0x10000) >> 10)),
                 (unsigned)(0xdc00 + ((point - 0x10000) & 0x3ff)));
    return jinja_write_literal(writer, text, origin);
}

static tt_status write_text(const struct dump *dump, const struct jinja_value *value)
{
    struct jinja_writer *writer = dump->writer;
    const struct jinja_text *text = value->text;
    size_t kept = 0;
    TT_TRY(jinja_write_literal(writer, "\"", value->origin));
    for (size_t at = 0, length = 1; at < text->bytes; at += length) {
        unsigned char c = (unsigned char)text->data[at];
        length = 1;
        bool is_plain = c >= 0x20 && c != '"' && c != '\\' && (!dump->style->ensure_ascii || c < 0x7f);
        if (is_plain) continue;
        uint32_t point = jinja_point_at(text->data + at, text->bytes - at, &length);
        TT_TRY(jinja_write_part(writer, value, kept, at));
        TT_TRY(write_escape(writer, point, jinja_origin_at(value, at)));
        kept = at + length;
    }
    TT_TRY(jinja_write_part(writer, value, kept, text->bytes));
    return jinja_write_literal(writer, "\"", value->origin);
}

static const char *float_text(double value, char text[40])
{
    if (isnan(value)) return "NaN";
    if (isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
    return jinja_format_float(value, text);
}

static tt_status write_line(const struct dump *dump, int depth, uint32_t origin)
{
    if (!dump->style->is_indented) return TT_OK;
    TT_TRY(jinja_write_literal(dump->writer, "\n", origin));
    for (int i = 0; i < depth; i++)
        TT_TRY(jinja_write(dump->writer, dump->style->indent.data, dump->style->indent.bytes, origin));
    return TT_OK;
}

static tt_status write_value(const struct dump *dump, const struct jinja_value *value, int depth);

/* A separator before all but the first element, and the line of each. */
static tt_status begin_element(const struct dump *dump, size_t index, int depth, uint32_t origin)
{
    if (index > 0)
        TT_TRY(jinja_write(dump->writer, dump->style->item_separator.data, dump->style->item_separator.bytes,
                           origin));
    return write_line(dump, depth + 1, origin);
}

static tt_status write_list(const struct dump *dump, const struct jinja_value *value, int depth)
{
    const struct jinja_list *list = value->list;
    if (list->count == 0) return jinja_write_literal(dump->writer, "[]", value->origin);
    TT_TRY(jinja_write_literal(dump->writer, "[", value->origin));
    for (size_t i = 0; i < list->count; i++) {
        TT_TRY(begin_element(dump, i, depth, value->origin));
        TT_TRY(write_value(dump, &list->elements[i], depth + 1));
    }
    TT_TRY(write_line(dump, depth, value->origin));
    return jinja_write_literal(dump->writer, "]", value->origin);
}

static tt_status write_key(const struct dump *dump, const struct jinja_value *key, uint32_t origin)
{
    struct jinja_value text = *key;
    char number[40];
    const char *name = NULL;
    switch (key->type) {
    case JINJA_TEXT:
        return write_text(dump, key);
    case JINJA_NONE:
        name = "null";
        break;
    case JINJA_BOOL:
        name = key->boolean ? "true" : "false";
        break;
    case JINJA_FLOAT:
        name = float_text(key->real, number);
        break;
    case JINJA_INTEGER:
        snprintf(number, sizeof number, "%lld", (long long)key->integer);
        name = number;
        break;
    default:
        return jinja_fail(dump->writer->render, "keys must be str, int, float, bool or None, not %s",
                          jinja_type_name(key));
    }
    TT_TRY(jinja_text_of(dump->writer->render, name, strlen(name), origin, &text));
    return write_text(dump, &text);
}

/* The entries by their keys, stable. */
static tt_status sort_entries(struct jinja_render *render, const struct jinja_entry **entries,
                              const struct jinja_entry **spare, size_t count)
{
    if (count < 2) return TT_OK;
    size_t half = count / 2, left = 0, right = half, made = 0;
    TT_TRY(sort_entries(render, entries, spare, half));
    TT_TRY(sort_entries(render, entries + half, spare, count - half));
    while (left < half && right < count) {
        int order;
        TT_TRY(jinja_order(render, &entries[right]->key, &entries[left]->key, "<", &order));
        spare[made++] = order == -1 ? entries[right++] : entries[left++];
    }
    while (left < half) spare[made++] = entries[left++];
    memcpy(entries, spare, made * sizeof *entries);
    return TT_OK;
}

static tt_status write_dict(const struct dump *dump, const struct jinja_value *value, int depth)
{
    struct jinja_render *render = dump->writer->render;
    const struct jinja_dict *dict = value->dict;
    const struct jinja_entry **entries = NULL;
    if (dict->count == 0) return jinja_write_literal(dump->writer, "{}", value->origin);
    if (dump->style->sort_keys) {
        entries = jinja_alloc(render, 2 * dict->count * sizeof *entries);
        if (entries == NULL) return TT_ERR_MEMORY;
        for (size_t i = 0; i < dict->count; i++) entries[i] = &dict->entries[i];
        TT_TRY(sort_entries(render, entries, entries + dict->count, dict->count));
    }
    TT_TRY(jinja_write_literal(dump->writer, "{", value->origin));
    for (size_t i = 0; i < dict->count; i++) {
        const struct jinja_entry *entry = entries != NULL ? entries[i] : &dict->entries[i];
        TT_TRY(begin_element(dump, i, depth, value->origin));
        TT_TRY(write_key(dump, &entry->key, value->origin));
        TT_TRY(jinja_write(dump->writer, dump->style->key_separator.data, dump->style->key_separator.bytes,
                           value->origin));
        TT_TRY(write_value(dump, &entry->value, depth + 1));
    }
    TT_TRY(write_line(dump, depth, value->origin));
    return jinja_write_literal(dump->writer, "}", value->origin);
}

static tt_status write_value(const struct dump *dump, const struct jinja_value *value, int depth)
{
    struct jinja_render *render = dump->writer->render;
    char number[40];
    if (depth > TT_JINJA_VALUE_DEPTH_MAX)
        return jinja_fail(render, "more than %d lists and dicts within each other", TT_JINJA_VALUE_DEPTH_MAX);
    TT_TRY(jinja_charge(render, 1));
    switch (value->type) {
    case JINJA_NONE:
        return jinja_write_literal(dump->writer, "null", value->origin);
    case JINJA_BOOL:
        return jinja_write_literal(dump->writer, value->boolean ? "true" : "false", value->origin);
    case JINJA_INTEGER:
    case JINJA_HUGE:
        return jinja_write_repr(dump->writer, value, depth);
    case JINJA_FLOAT:
        return jinja_write_literal(dump->writer, float_text(value->real, number), value->origin);
    case JINJA_TEXT:
        return write_text(dump, value);
    case JINJA_LIST:
    case JINJA_TUPLE:
        return write_list(dump, value, depth);
    case JINJA_DICT:
        return write_dict(dump, value, depth);
    default:
        return jinja_fail(render, "Object of type %s is not JSON serializable", jinja_type_name(value));
    }
}

tt_status jinja_write_json(struct jinja_writer *writer, const struct jinja_value *value,
                           const struct jinja_json_style *style)
{
    struct dump dump = {.writer = writer, .style = style};
    return write_value(&dump, value, 0);
}
