/* Values as Python prints them. */
#include <stdio.h>
#include <string.h>

#include "base/number.h"
#include "text/jinja/render.h"

const char *jinja_format_float(double value, char text[40])
{
    tt_format_double(value, text, 36);
    /* repr() of a whole number has ".0"; inf, nan and exponents have letters. */
    if (text[strspn(text, "-0123456789")] == '\0') strcat(text, ".0");
    return text;
}

static tt_status write_number(struct jinja_writer *writer, const struct jinja_value *value)
{
    char text[40];
    switch (value->type) {
    case JINJA_INTEGER:
        snprintf(text, sizeof text, "%lld", (long long)value->integer);
        return jinja_write_literal(writer, text, value->origin);
    case JINJA_FLOAT:
        return jinja_write_literal(writer, jinja_format_float(value->real, text), value->origin);
    default:
        return jinja_write(writer, value->text->data, value->text->bytes, value->origin);
    }
}

/* One character of repr() of a text. */
static tt_status write_character(struct jinja_writer *writer, const char *data, size_t length, uint32_t point,
                                 char quote, uint32_t origin)
{
    char escape[12] = {'\\'};
    static const char plain[] = "\t\n\r\\", letters[] = "tnr\\";
    const char *found = point > 0 && point < 0x80 ? strchr(plain, (int)point) : NULL;
    if (found != NULL || point == (unsigned char)quote) {
        escape[1] = found != NULL ? letters[found - plain] : quote;
        return jinja_write(writer, escape, 2, origin);
    }
    if (jinja_is_printable(point)) return jinja_write(writer, data, length, origin);
    const char *format = point < 0x100 ? "\\x%02x" : point < 0x10000 ? "\\u%04x" : "\\U%08x";
    snprintf(escape, sizeof escape, format, (unsigned)point);
    return jinja_write_literal(writer, escape, origin);
}

static tt_status write_text(struct jinja_writer *writer, const struct jinja_value *value)
{
    const struct jinja_text *text = value->text;
    bool has_single = memchr(text->data, '\'', text->bytes) != NULL;
    bool has_double = memchr(text->data, '"', text->bytes) != NULL;
    char quote[] = {has_single && !has_double ? '"' : '\'', '\0'};
    if (value->is_markup) TT_TRY(jinja_write_literal(writer, "Markup(", value->origin));
    TT_TRY(jinja_write_literal(writer, quote, value->origin));
    TT_TRY(jinja_charge(writer->render, text->bytes / 16));
    for (size_t at = 0, length; at < text->bytes; at += length) {
        uint32_t point = jinja_point_at(text->data + at, text->bytes - at, &length);
        TT_TRY(write_character(writer, text->data + at, length, point, quote[0], jinja_origin_at(value, at)));
    }
    TT_TRY(jinja_write_literal(writer, quote, value->origin));
    return value->is_markup ? jinja_write_literal(writer, ")", value->origin) : TT_OK;
}

static tt_status write_list(struct jinja_writer *writer, const struct jinja_value *value, int depth)
{
    bool is_tuple = value->type == JINJA_TUPLE;
    TT_TRY(jinja_write_literal(writer, is_tuple ? "(" : "[", value->origin));
    for (size_t i = 0; i < value->list->count; i++) {
        if (i > 0) TT_TRY(jinja_write_literal(writer, ", ", value->origin));
        TT_TRY(jinja_write_repr(writer, &value->list->elements[i], depth + 1));
    }
    const char *end = !is_tuple ? "]" : value->list->count == 1 ? ",)" : ")";
    return jinja_write_literal(writer, end, value->origin);
}

static tt_status write_dict(struct jinja_writer *writer, const struct jinja_value *value, int depth)
{
    const struct jinja_dict *dict = value->dict;
    TT_TRY(jinja_write_literal(writer, "{", value->origin));
    for (size_t i = 0; i < dict->count; i++) {
        if (i > 0) TT_TRY(jinja_write_literal(writer, ", ", value->origin));
        TT_TRY(jinja_write_repr(writer, &dict->entries[i].key, depth + 1));
        TT_TRY(jinja_write_literal(writer, ": ", value->origin));
        TT_TRY(jinja_write_repr(writer, &dict->entries[i].value, depth + 1));
    }
    return jinja_write_literal(writer, "}", value->origin);
}

static tt_status write_view(struct jinja_writer *writer, const struct jinja_value *value, int depth)
{
    struct jinja_value list;
    TT_TRY(jinja_collect(writer->render, value, &list));
    list.origin = value->origin;
    TT_TRY(jinja_write_literal(writer, jinja_type_name(value), value->origin));
    TT_TRY(jinja_write_literal(writer, "(", value->origin));
    TT_TRY(write_list(writer, &list, depth));
    return jinja_write_literal(writer, ")", value->origin);
}

static tt_status write_range(struct jinja_writer *writer, const struct jinja_range *range)
{
    char text[100], step[30] = "";
    if (range->step != 1) snprintf(step, sizeof step, ", %lld", (long long)range->step);
    snprintf(text, sizeof text, "range(%lld, %lld%s)", (long long)range->start, (long long)range->stop, step);
    return jinja_write_literal(writer, text, 0);
}

static tt_status write_loop(struct jinja_writer *writer, struct jinja_loop *loop)
{
    char text[80];
    int64_t length;
    TT_TRY(jinja_loop_length(loop, &length));
    snprintf(text, sizeof text, "<LoopContext %lld/%lld>", (long long)loop->index0 + 1, (long long)length);
    return jinja_write_literal(writer, text, 0);
}

static tt_status write_macro(struct jinja_writer *writer, const struct jinja_macro *macro)
{
    const struct jinja_text *name = macro->node->signature->name;
    if (name == NULL) return jinja_write_literal(writer, "<Macro anonymous>", 0);
    TT_TRY(jinja_write_literal(writer, "<Macro '", 0));
    TT_TRY(jinja_write(writer, name->data, name->bytes, 0));
    return jinja_write_literal(writer, "'>", 0);
}

tt_status jinja_write_repr(struct jinja_writer *writer, const struct jinja_value *value, int depth)
{
    struct jinja_render *render = writer->render;
    if (depth > TT_JINJA_VALUE_DEPTH_MAX)
        return jinja_fail(render, "more than %d lists and dicts within each other", TT_JINJA_VALUE_DEPTH_MAX);
    TT_TRY(jinja_charge(render, 1));
    switch (value->type) {
    case JINJA_UNDEFINED:
        return jinja_write_literal(writer, "Undefined", 0);
    case JINJA_NONE:
        return jinja_write_literal(writer, "None", value->origin);
    case JINJA_BOOL:
        return jinja_write_literal(writer, value->boolean ? "True" : "False", value->origin);
    case JINJA_INTEGER:
    case JINJA_HUGE:
    case JINJA_FLOAT:
        return write_number(writer, value);
    case JINJA_TEXT:
        return write_text(writer, value);
    case JINJA_LIST:
    case JINJA_TUPLE:
        return write_list(writer, value, depth);
    case JINJA_DICT:
        return write_dict(writer, value, depth);
    case JINJA_VIEW:
        return write_view(writer, value, depth);
    case JINJA_RANGE:
        return write_range(writer, value->range);
    case JINJA_NAMESPACE: {
        struct jinja_value members = {.type = JINJA_DICT, .dict = value->dict};
        TT_TRY(jinja_write_literal(writer, "<Namespace ", 0));
        TT_TRY(write_dict(writer, &members, depth));
        return jinja_write_literal(writer, ">", 0);
    }
    case JINJA_LOOP:
        return write_loop(writer, value->loop);
    case JINJA_MACRO:
        return write_macro(writer, value->macro);
    default:
        /* The reference prints an address, which no text should depend on. */
        return jinja_fail(render, "printing a '%s' object is not supported", jinja_type_name(value));
    }
}
