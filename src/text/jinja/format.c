/* text % arguments: the conversions of Python's that chat templates need. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/number.h"
#include "text/jinja/strings.h"

/* %[flags][width][.precision]type */
struct spec {
    char align, sign, type;
    bool is_alternate, has_precision, is_zero;
    int64_t width, precision;
};

enum { DIGITS_MAX = 100 };

static bool parse_digits(struct tt_span text, size_t *at, int64_t *out)
{
    size_t start = *at;
    for (*out = 0; *at < text.bytes && text.data[*at] >= '0' && text.data[*at] <= '9' && *out < 1 << 24;
         ++*at)
        *out = *out * 10 + (text.data[*at] - '0');
    return *at > start;
}

/* The digits of an integer, without its sign. */
static void int_digits(uint64_t value, char type, char out[DIGITS_MAX])
{
    char text[72], *at = text + sizeof text - 1;
    unsigned base = type == 'x' || type == 'X' ? 16 : type == 'o' ? 8 : 10;
    const char *letters = type == 'X' ? "0123456789ABCDEF" : "0123456789abcdef";
    *at = '\0';
    do {
        *--at = letters[value % base];
        value /= base;
    } while (value > 0);
    snprintf(out, DIGITS_MAX, "%s", at);
}

/* The digits of a float without its sign; false where they do not fit. */
static bool float_digits(double value, const struct spec *spec, char *out, size_t out_bytes)
{
    char format[16], type = spec->type;
    int64_t precision = spec->has_precision ? spec->precision : 6;
    value = fabs(value);
    if (!isfinite(value)) {
        bool is_upper = type == 'F' || type == 'E' || type == 'G';
        snprintf(out, out_bytes, "%s", isnan(value) ? (is_upper ? "NAN" : "nan") : is_upper ? "INF" : "inf");
        return true;
    }
    snprintf(format, sizeof format, "%%%s.*%c", spec->is_alternate ? "#" : "", type);
    return tt_snprintf(out, out_bytes, format, (int)precision, value) < (int)out_bytes;
}

/* `body` with a sign before it, padded to the width. */
static tt_status write_padded(struct jinja_writer *writer, const struct spec *spec, const char *sign,
                              const struct jinja_value *body, char align)
{
    int64_t used = (int64_t)strlen(sign) + (int64_t)jinja_points(body);
    int64_t margin = spec->width > used ? spec->width - used : 0;
    TT_TRY(jinja_charge(writer->render, (size_t)margin / 8));
    for (int64_t i = 0; align == '>' && i < margin; i++) TT_TRY(jinja_write(writer, " ", 1, 0));
    TT_TRY(jinja_write_literal(writer, sign, body->origin));
    for (int64_t i = 0; align == '=' && i < margin; i++) TT_TRY(jinja_write(writer, "0", 1, 0));
    TT_TRY(jinja_write_part(writer, body, 0, body->text->bytes));
    for (int64_t i = 0; align == '<' && i < margin; i++) TT_TRY(jinja_write(writer, " ", 1, 0));
    return TT_OK;
}

static const char *sign_of(const struct spec *spec, bool is_negative)
{
    return is_negative ? "-" : spec->sign == '+' ? "+" : spec->sign == ' ' ? " " : "";
}

static tt_status write_number(struct jinja_writer *writer, const struct spec *spec,
                              const struct jinja_value *value, bool as_float)
{
    struct jinja_render *render = writer->render;
    char digits[500];
    bool is_negative;
    if (value->type == JINJA_HUGE)
        return jinja_fail(render, "integers beyond 64 bits are not supported here");
    if (as_float) {
        double number = value->type == JINJA_FLOAT ? value->real : (double)jinja_int_of(value);
        is_negative = signbit(number) && !isnan(number);
        if (!float_digits(number, spec, digits, sizeof digits - 1))
            return jinja_fail(render, "a number of that many digits is not supported");
    } else {
        int64_t number = value->type == JINJA_FLOAT ? (int64_t)value->real : jinja_int_of(value);
        is_negative = number < 0;
        int_digits(is_negative ? -(uint64_t)number : (uint64_t)number, spec->type, digits);
    }
    struct jinja_value body;
    TT_TRY(jinja_new_text(render, digits, strlen(digits), &body));
    body.origin = value->origin;
    char align = spec->align != '\0' ? spec->align : spec->is_zero ? '=' : '>';
    return write_padded(writer, spec, sign_of(spec, is_negative), &body, align);
}

static tt_status write_text(struct jinja_writer *writer, const struct spec *spec,
                            const struct jinja_value *text)
{
    struct jinja_value body = *text;
    if (spec->has_precision && spec->precision < (int64_t)jinja_points(text))
        TT_TRY(jinja_part(writer->render, text, 0, jinja_byte_of(text, (size_t)spec->precision), &body));
    return write_padded(writer, spec, "", &body, spec->align != '\0' ? spec->align : '<');
}

/* ---- text % arguments ---- */

struct percent {
    struct jinja_render *render;
    struct jinja_writer writer;
    const struct jinja_value *text, *arguments;
    size_t used; /* arguments of a tuple */
};

static tt_status next_argument(struct percent *percent, struct jinja_value *out)
{
    const struct jinja_value *arguments = percent->arguments;
    size_t count = arguments->type == JINJA_TUPLE ? arguments->list->count : 1;
    if (percent->used >= count) return jinja_fail(percent->render, "not enough arguments for format string");
    *out = arguments->type == JINJA_TUPLE ? arguments->list->elements[percent->used] : *arguments;
    percent->used++;
    return TT_OK;
}

static tt_status named_argument(struct percent *percent, size_t *at, struct jinja_value *out)
{
    struct tt_span text = jinja_span(percent->text);
    size_t start = ++*at, depth = 1;
    const struct jinja_value *found;
    if (percent->arguments->type != JINJA_DICT)
        return jinja_fail(percent->render, "format requires a mapping");
    for (; *at < text.bytes && depth > 0; ++*at) {
        depth += text.data[*at] == '(';
        depth -= text.data[*at] == ')';
    }
    if (depth > 0) return jinja_fail(percent->render, "incomplete format key");
    found = jinja_dict_get(percent->arguments->dict, text.data + start, *at - 1 - start);
    if (found == NULL)
        return jinja_fail(percent->render, "the format asks for the missing key '%.*s'",
                          (int)(*at - 1 - start < 80 ? *at - 1 - start : 80), text.data + start);
    *out = *found;
    return TT_OK;
}

/* A width or a precision: digits, or * for an argument. */
static tt_status percent_size(struct percent *percent, size_t *at, int64_t *out)
{
    struct jinja_value value;
    if (*at >= percent->text->text->bytes || percent->text->text->data[*at] != '*') {
        parse_digits(jinja_span(percent->text), at, out);
        return TT_OK;
    }
    ++*at;
    TT_TRY(next_argument(percent, &value));
    if (!jinja_is_int(&value)) return jinja_fail(percent->render, "* wants int");
    *out = jinja_int_of(&value);
    if (*out < 0 || *out > TT_JINJA_TEXT_MAX)
        return jinja_fail(percent->render, "a width of %lld is not supported", (long long)*out);
    return TT_OK;
}

static tt_status percent_value(struct percent *percent, struct spec *spec, const struct jinja_value *value)
{
    struct jinja_writer writer = jinja_writer_new(percent->render);
    struct jinja_value text;
    bool is_left = spec->align == '<';
    switch (spec->type) {
    case 's':
    case 'r':
        TT_TRY(spec->type == 's' ? jinja_write_value(&writer, value) : jinja_write_repr(&writer, value, 0));
        TT_TRY(jinja_writer_value(&writer, &text));
        spec->align = is_left ? '<' : '>';
        spec->is_zero = false;
        return write_text(&percent->writer, spec, &text);
    case 'd':
    case 'i':
    case 'u':
        spec->type = 'd';
        if (!jinja_is_number(value))
            return jinja_fail(percent->render, "%%d format: a real number is required, not %s",
                              jinja_type_name(value));
        if (value->type == JINJA_FLOAT && !(fabs(value->real) < 0x1p63))
            return jinja_fail(percent->render, "integers beyond 64 bits are not supported");
        if (spec->has_precision) return jinja_fail(percent->render, "%%d with a precision is not supported");
        return write_number(&percent->writer, spec, value, false);
    case 'x':
    case 'X':
    case 'o':
        if (!jinja_is_int(value))
            return jinja_fail(percent->render, "%%%c format: an integer is required, not %s", spec->type,
                              jinja_type_name(value));
        if (spec->has_precision || spec->is_alternate)
            return jinja_fail(percent->render, "%%%c with a precision or # is not supported", spec->type);
        return write_number(&percent->writer, spec, value, false);
    case 'e':
    case 'E':
    case 'f':
    case 'F':
    case 'g':
    case 'G':
        if (!jinja_is_number(value))
            return jinja_fail(percent->render, "must be real number, not %s", jinja_type_name(value));
        return write_number(&percent->writer, spec, value, true);
    default:
        return jinja_fail(percent->render, "the format '%%%c' is not supported",
                          spec->type >= ' ' && spec->type < 0x7f ? spec->type : '?');
    }
}

/* One % and what belongs to it. */
static tt_status percent_one(struct percent *percent, size_t *at)
{
    struct tt_span text = jinja_span(percent->text);
    struct spec spec = {0};
    struct jinja_value value;
    bool is_named = ++*at < text.bytes && text.data[*at] == '(';
    if (is_named) TT_TRY(named_argument(percent, at, &value));
    for (; *at < text.bytes && text.data[*at] != '\0' && strchr("-+ #0", text.data[*at]) != NULL; ++*at) {
        char flag = text.data[*at];
        if (flag == '-') spec.align = '<';
        if (flag == '+' || (flag == ' ' && spec.sign == '\0')) spec.sign = flag;
        if (flag == '#') spec.is_alternate = true;
        if (flag == '0') spec.is_zero = true;
    }
    TT_TRY(percent_size(percent, at, &spec.width));
    if (*at < text.bytes && text.data[*at] == '.') {
        spec.has_precision = true;
        ++*at;
        TT_TRY(percent_size(percent, at, &spec.precision));
    }
    while (*at < text.bytes && (text.data[*at] == 'l' || text.data[*at] == 'h' || text.data[*at] == 'L'))
        ++*at;
    if (*at >= text.bytes) return jinja_fail(percent->render, "incomplete format");
    spec.type = text.data[(*at)++];
    if (spec.align == '<') spec.is_zero = false;
    if (spec.type == '%')
        return jinja_write(&percent->writer, "%", 1, jinja_origin_at(percent->text, *at - 1));
    if (!is_named) TT_TRY(next_argument(percent, &value));
    return percent_value(percent, &spec, &value);
}

tt_status jinja_percent(struct jinja_render *render, const struct jinja_value *text,
                        const struct jinja_value *arguments, struct jinja_value *out)
{
    struct percent percent = {
        .render = render, .writer = jinja_writer_new(render), .text = text, .arguments = arguments};
    struct tt_span all = jinja_span(text);
    if (text->is_markup) return jinja_fail(render, "%% of Markup is not supported");
    for (size_t at = 0; at < all.bytes;) {
        size_t found = jinja_find(all, tt_span_of("%"), at);
        if (found == SIZE_MAX) found = all.bytes;
        TT_TRY(jinja_write_part(&percent.writer, text, at, found));
        TT_TRY(jinja_charge(render, 1));
        at = found;
        if (at < all.bytes) TT_TRY(percent_one(&percent, &at));
    }
    size_t count = arguments->type == JINJA_TUPLE ? arguments->list->count : 1;
    bool is_mapping = arguments->type == JINJA_DICT || arguments->type == JINJA_LIST ||
                      arguments->type == JINJA_UNDEFINED || arguments->type == JINJA_RANGE;
    if (percent.used < count && !is_mapping)
        return jinja_fail(render, "not all arguments converted during string formatting");
    return jinja_writer_value(&percent.writer, out);
}
