/* Filters that make texts. */
#include <string.h>

#include "text/jinja/filters.h"
#include "text/jinja/strings.h"

tt_status jinja_write_escaped(struct jinja_writer *writer, const struct jinja_value *text)
{
    static const char special[] = "&<>'\"";
    static const char *const entities[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
    const struct jinja_text *of = text->text;
    size_t kept = 0;
    for (size_t at = 0; at < of->bytes; at++) {
        const char *found = of->data[at] != '\0' ? strchr(special, of->data[at]) : NULL;
        if (found == NULL) continue;
        TT_TRY(jinja_write_part(writer, text, kept, at));
        TT_TRY(jinja_write_literal(writer, entities[found - special], jinja_origin_at(text, at)));
        kept = at + 1;
    }
    return jinja_write_part(writer, text, kept, of->bytes);
}

tt_status jinja_filter_string(struct jinja_filter_call *filter, struct jinja_value *out)
{
    return jinja_to_text(filter->render, filter->value, out);
}

tt_status jinja_filter_safe(struct jinja_filter_call *filter, struct jinja_value *out)
{
    TT_TRY(jinja_to_text(filter->render, filter->value, out));
    out->is_markup = true;
    return TT_OK;
}

tt_status jinja_filter_escape(struct jinja_filter_call *filter, struct jinja_value *out)
{
    struct jinja_value text;
    struct jinja_writer writer = jinja_writer_new(filter->render);
    TT_TRY(jinja_to_text(filter->render, filter->value, &text));
    *out = text;
    if (text.is_markup && strcmp(filter->name, "forceescape") != 0) return TT_OK;
    TT_TRY(jinja_write_escaped(&writer, &text));
    TT_TRY(jinja_writer_value(&writer, out));
    out->is_markup = true;
    return TT_OK;
}

tt_status jinja_filter_trim(struct jinja_filter_call *filter, struct jinja_value *out)
{
    struct jinja_value text;
    const struct jinja_value *chars = jinja_given(filter, 0) ? &filter->arguments[0] : NULL;
    TT_TRY(jinja_to_text(filter->render, filter->value, &text));
    if (chars != NULL && chars->type == JINJA_NONE) chars = NULL;
    if (chars != NULL && !jinja_is_text(chars))
        return jinja_fail(filter->render, "strip arg must be None or str");
    return jinja_strip(filter->render, &text, chars, JINJA_LEFT | JINJA_RIGHT, out);
}

tt_status jinja_filter_case(struct jinja_filter_call *filter, struct jinja_value *out)
{
    struct jinja_value text;
    enum jinja_case mode = filter->name[0] == 'u'   ? JINJA_UPPER
                           : filter->name[0] == 'l' ? JINJA_LOWER
                                                    : JINJA_CAPITALIZE;
    TT_TRY(jinja_to_text(filter->render, filter->value, &text));
    return jinja_in_case(filter->render, &text, mode, out);
}

/* Words begin, other than those of the method, behind white space and - ( { [ <. */
tt_status jinja_filter_title(struct jinja_filter_call *filter, struct jinja_value *out)
{
    struct jinja_value text;
    struct jinja_writer writer = jinja_writer_new(filter->render);
    TT_TRY(jinja_to_text(filter->render, filter->value, &text));
    const char *data = text.text->data;
    size_t bytes = text.text->bytes, word = 0, length;
    bool was_border = true;
    for (size_t at = 0; at < bytes; at += length) {
        uint32_t point = jinja_point_at(data + at, bytes - at, &length);
        bool is_border =
            jinja_is_space(point) || (point > 0 && point < 0x80 && strchr("-({[<", (int)point) != NULL);
        if (is_border || was_border) {
            TT_TRY(jinja_write_case(&writer, &text, word, at, JINJA_LOWER));
            TT_TRY(jinja_write_case(&writer, &text, at, at + length, JINJA_UPPER));
            word = at + length;
        }
        was_border = is_border;
    }
    TT_TRY(jinja_write_case(&writer, &text, word, bytes, JINJA_LOWER));
    return jinja_writer_value(&writer, out);
}

tt_status jinja_filter_replace(struct jinja_filter_call *filter, struct jinja_value *out)
{
    struct jinja_value text, old, with;
    int64_t count = -1;
    TT_TRY(jinja_to_text(filter->render, filter->value, &text));
    TT_TRY(jinja_to_text(filter->render, &filter->arguments[0], &old));
    TT_TRY(jinja_to_text(filter->render, &filter->arguments[1], &with));
    if (jinja_given(filter, 2) && filter->arguments[2].type != JINJA_NONE)
        TT_TRY(jinja_int_argument(filter, 2, -1, &count));
    text.is_markup = false;
    return jinja_replace(filter->render, &text, &old, &with, count, out);
}

tt_status jinja_filter_indent(struct jinja_filter_call *filter, struct jinja_value *out)
{
    struct jinja_render *render = filter->render;
    const struct jinja_value *value = filter->value, *width = &filter->arguments[0];
    struct jinja_writer writer = jinja_writer_new(render);
    struct jinja_value indent, one, times = jinja_integer(4);
    bool first = jinja_flag(filter, 1, false), blank = jinja_flag(filter, 2, false);
    if (value->type == JINJA_UNDEFINED) return jinja_fail_undefined(render, value);
    if (!jinja_is_text(value))
        return jinja_fail(render, "the filter 'indent' needs a text, not '%s'", jinja_type_name(value));
    TT_TRY(jinja_text_of(render, " ", 1, 0, &one));
    if (width->type == JINJA_TEXT)
        indent = *width;
    else
        TT_TRY(jinja_binary(render, '*', &one, jinja_given(filter, 0) ? width : &times, &indent));
    if (indent.type == JINJA_TEXT && indent.is_markup && !value->is_markup)
        return jinja_fail(render, "the filter 'indent' with Markup as its width is not supported");
    struct tt_span text = jinja_span(value);
    for (size_t at = 0, end, next, line = 0; at <= text.bytes; at = next, line++) {
        jinja_line(text, at, &end, &next);
        if (line > 0) TT_TRY(jinja_write(&writer, "\n", 1, jinja_origin_at(value, at - 1)));
        bool indents = line == 0 ? first : blank || end > at;
        if (indents) TT_TRY(jinja_write_part(&writer, &indent, 0, indent.text->bytes));
        TT_TRY(jinja_write_part(&writer, value, at, end));
        TT_TRY(jinja_charge(render, 1));
        /* The line behind the last newline counts, unless it was a carriage return. */
        if (next == text.bytes && (end == next || text.data[next - 1] == '\r')) break;
    }
    TT_TRY(jinja_writer_value(&writer, out));
    out->is_markup = value->is_markup;
    return TT_OK;
}

tt_status jinja_filter_center(struct jinja_filter_call *filter, struct jinja_value *out)
{
    struct jinja_value text;
    int64_t width;
    TT_TRY(jinja_int_argument(filter, 0, 80, &width));
    TT_TRY(jinja_to_text(filter->render, filter->value, &text));
    return jinja_justify(filter->render, &text, width, 'c', NULL, out);
}

tt_status jinja_filter_format(struct jinja_filter_call *filter, struct jinja_value *out)
{
    struct jinja_value text, arguments;
    struct jinja_call *call = filter->call;
    TT_TRY(jinja_to_text(filter->render, filter->value, &text));
    if (call->count > 0 && call->named.count > 0)
        return jinja_fail(filter->render, "can't handle positional and keyword arguments at the same time");
    if (call->named.count > 0) {
        arguments = (struct jinja_value){.type = JINJA_DICT, .dict = &call->named};
        return jinja_percent(filter->render, &text, &arguments, out);
    }
    TT_TRY(jinja_new_list(filter->render, call->count, true, &arguments));
    for (size_t i = 0; i < call->count; i++) arguments.list->elements[i] = call->positional[i];
    return jinja_percent(filter->render, &text, &arguments, out);
}

static tt_status separators_of(struct jinja_filter_call *filter, struct jinja_json_style *style)
{
    const struct jinja_value *given = &filter->arguments[2];
    struct jinja_value pair;
    style->item_separator = tt_span_of(style->is_indented ? "," : ", ");
    style->key_separator = tt_span_of(": ");
    if (!jinja_given(filter, 2) || given->type == JINJA_NONE) return TT_OK;
    TT_TRY(jinja_collect(filter->render, given, &pair));
    if (pair.list->count != 2 || !jinja_is_text(&pair.list->elements[0]) ||
        !jinja_is_text(&pair.list->elements[1]))
        return jinja_fail(filter->render, "separators of tojson are two texts");
    style->item_separator = jinja_span(&pair.list->elements[0]);
    style->key_separator = jinja_span(&pair.list->elements[1]);
    return TT_OK;
}

tt_status jinja_filter_tojson(struct jinja_filter_call *filter, struct jinja_value *out)
{
    struct jinja_render *render = filter->render;
    struct jinja_json_style style = {.ensure_ascii = jinja_flag(filter, 0, false),
                                     .sort_keys = jinja_flag(filter, 3, false)};
    const struct jinja_value *indent = &filter->arguments[1];
    struct jinja_writer writer = jinja_writer_new(render);
    struct jinja_value one, made;
    if (jinja_given(filter, 1) && indent->type != JINJA_NONE) {
        style.is_indented = true;
        if (jinja_is_text(indent)) {
            made = *indent;
        } else {
            TT_TRY(jinja_text_of(render, " ", 1, 0, &one));
            TT_TRY(jinja_binary(render, '*', &one, indent, &made));
        }
        style.indent = jinja_span(&made);
    }
    TT_TRY(separators_of(filter, &style));
    TT_TRY(jinja_write_json(&writer, filter->value, &style));
    return jinja_writer_value(&writer, out);
}

tt_status jinja_filter_join(struct jinja_filter_call *filter, struct jinja_value *out)
{
    struct jinja_render *render = filter->render;
    struct jinja_writer writer = jinja_writer_new(render);
    struct jinja_iterator iterator;
    struct jinja_value separator = {.type = JINJA_UNDEFINED};
    if (jinja_given(filter, 0)) TT_TRY(jinja_to_text(render, &filter->arguments[0], &separator));
    TT_TRY(jinja_iterate(render, filter->value, &iterator));
    for (bool is_first = true;; is_first = false) {
        struct jinja_value element, member;
        bool more;
        TT_TRY(jinja_next(render, &iterator, &element, &more));
        if (!more) break;
        TT_TRY(jinja_item_path(render, &element, &filter->arguments[1], &member));
        if (!is_first) TT_TRY(jinja_write_value(&writer, &separator));
        TT_TRY(jinja_write_value(&writer, &member));
    }
    return jinja_writer_value(&writer, out);
}
