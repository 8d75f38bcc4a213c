/* The table of filters, and the small ones. */
#include "text/jinja/filters.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"

tt_status jinja_int_argument(const struct jinja_filter_call *filter, int place, int64_t absent, int64_t *out)
{
    const struct jinja_value *value = &filter->arguments[place];
    *out = absent;
    if (value->type == JINJA_MISSING) return TT_OK;
    if (!jinja_is_int(value))
        return jinja_fail(filter->render, "the filter '%s' needs an integer, not '%s'", filter->name,
                          jinja_type_name(value));
    *out = jinja_int_of(value);
    return TT_OK;
}

static tt_status filter_default(struct jinja_filter_call *filter, struct jinja_value *out)
{
    bool replaces = filter->value->type == JINJA_UNDEFINED ||
                    (jinja_flag(filter, 1, false) && !jinja_truth(filter->value));
    *out = *filter->value;
    if (!replaces) return TT_OK;
    if (!jinja_given(filter, 0)) return jinja_new_text(filter->render, "", 0, out);
    *out = filter->arguments[0];
    return TT_OK;
}

static tt_status filter_length(struct jinja_filter_call *filter, struct jinja_value *out)
{
    int64_t length;
    if (filter->value->type == JINJA_LOOP)
        TT_TRY(jinja_loop_length(filter->value->loop, &length));
    else if (!jinja_length(filter->value, &length))
        return jinja_fail(filter->render, "object of type '%s' has no len()", jinja_type_name(filter->value));
    *out = jinja_integer(length);
    return TT_OK;
}

static tt_status filter_abs(struct jinja_filter_call *filter, struct jinja_value *out)
{
    const struct jinja_value *value = filter->value;
    if (value->type == JINJA_FLOAT) {
        *out = jinja_float(fabs(value->real));
        return TT_OK;
    }
    if (!jinja_is_int(value))
        return jinja_fail(filter->render, "bad operand type for abs(): '%s'", jinja_type_name(value));
    if (jinja_int_of(value) < 0) return jinja_negate(filter->render, value, true, out);
    *out = jinja_integer(jinja_int_of(value));
    return TT_OK;
}

static tt_status filter_round(struct jinja_filter_call *filter, struct jinja_value *out)
{
    int64_t precision;
    const struct jinja_value *method = &filter->arguments[1];
    char letter = 'm';
    TT_TRY(jinja_int_argument(filter, 0, 0, &precision));
    if (jinja_given(filter, 1)) {
        struct tt_span name = jinja_is_text(method) ? jinja_span(method) : (struct tt_span){"", 0};
        letter = tt_span_equals(name, "common") ? 'm' : tt_span_equals(name, "ceil") ? 'c' : 'f';
        if (letter == 'f' && !tt_span_equals(name, "floor"))
            return jinja_fail(filter->render, "method must be common, ceil or floor");
    }
    return jinja_round(filter->render, filter->value, precision, letter, out);
}

/* The number that a text is as a whole, white space around it and underscores between digits aside. */
static bool clean_number(const struct jinja_value *text, char out[64])
{
    size_t from = 0, to = text->text->bytes, length, used = 0;
    const char *data = text->text->data;
    while (from < to && jinja_is_space(jinja_point_at(data + from, to - from, &length))) from += length;
    while (to > from && jinja_is_space((unsigned char)data[to - 1])) to--;
    for (size_t i = from; i < to; i++) {
        bool joins = data[i] == '_' && i > from && i + 1 < to && data[i - 1] >= '0' && data[i - 1] <= '9' &&
                     data[i + 1] >= '0' && data[i + 1] <= '9';
        if (joins) continue;
        if (used + 1 >= 64 || data[i] == '\0') return false;
        out[used++] = data[i];
    }
    out[used] = '\0';
    return used > 0;
}

static bool parse_int(const char *text, int64_t base, int64_t *out)
{
    bool is_negative = *text == '-';
    int64_t value = 0;
    if (*text == '-' || *text == '+') text++;
    if (*text == '\0') return false;
    for (; *text != '\0'; text++) {
        int digit = *text >= '0' && *text <= '9' ? *text - '0' : (*text | 0x20) - 'a' + 10;
        if (((*text | 0x20) < 'a' && (*text < '0' || *text > '9')) || digit < 0 || digit >= base)
            return false;
        if (__builtin_mul_overflow(value, base, &value) || __builtin_sub_overflow(value, digit, &value))
            return false;
    }
    if (!is_negative && value == INT64_MIN) return false;
    *out = is_negative ? value : -value;
    return true;
}

static bool parse_float(const char *text, double *out)
{
    size_t bytes = tt_parse_double_prefix(text, out);
    if (bytes > 0) return text[bytes] == '\0';
    bool is_negative = *text == '-';
    char word[12];
    size_t used = 0;
    if (*text == '-' || *text == '+') text++;
    for (; *text != '\0' && used + 1 < sizeof word; text++) word[used++] = (char)(*text | 0x20);
    word[used] = '\0';
    bool is_infinite = strcmp(word, "inf") == 0 || strcmp(word, "infinity") == 0;
    *out = is_infinite ? (is_negative ? -INFINITY : INFINITY) : NAN;
    return is_infinite || strcmp(word, "nan") == 0;
}

/* float(value) as the filters see it: false where Python raises TypeError or ValueError. */
static bool to_float(const struct jinja_value *value, double *out)
{
    char text[64];
    if (value->type == JINJA_FLOAT) *out = value->real;
    if (jinja_is_int(value)) *out = (double)jinja_int_of(value);
    if (value->type == JINJA_TEXT) return clean_number(value, text) && parse_float(text, out);
    return value->type == JINJA_FLOAT || jinja_is_int(value);
}

static tt_status filter_float(struct jinja_filter_call *filter, struct jinja_value *out)
{
    double value;
    if (filter->value->type == JINJA_UNDEFINED) return jinja_fail_undefined(filter->render, filter->value);
    if (filter->value->type == JINJA_HUGE)
        return jinja_fail(filter->render, "integers beyond 64 bits are not supported here");
    *out = jinja_given(filter, 0) ? filter->arguments[0] : jinja_float(0);
    if (to_float(filter->value, &value)) *out = jinja_float(value);
    return TT_OK;
}

static tt_status filter_int(struct jinja_filter_call *filter, struct jinja_value *out)
{
    int64_t base, whole;
    double value;
    char text[64];
    TT_TRY(jinja_int_argument(filter, 1, 10, &base));
    if (base != 10)
        return jinja_fail(filter->render, "the filter 'int' with another base than 10 is not supported");
    if (filter->value->type == JINJA_UNDEFINED) return jinja_fail_undefined(filter->render, filter->value);
    if (filter->value->type == JINJA_HUGE || jinja_is_int(filter->value)) {
        *out = *filter->value;
        if (out->type == JINJA_BOOL) *out = jinja_integer(out->boolean);
        return TT_OK;
    }
    *out = jinja_given(filter, 0) ? filter->arguments[0] : jinja_integer(0);
    if (filter->value->type == JINJA_TEXT && clean_number(filter->value, text)) {
        if (parse_int(text, 10, &whole)) {
            *out = jinja_integer(whole);
            return TT_OK;
        }
        if (text[strspn(text, "+-0123456789")] == '\0' && strlen(text) > 18)
            return jinja_fail(filter->render, "integers beyond 64 bits are not supported");
    }
    if (!to_float(filter->value, &value)) return TT_OK;
    if (!isfinite(value)) {
        /* int(inf) raises OverflowError, which only the second attempt, for texts, catches; int(nan) ValueError. */
        if (isinf(value) && filter->value->type == JINJA_FLOAT)
            return jinja_fail(filter->render, "cannot convert float infinity to integer");
        return TT_OK;
    }
    if (fabs(value) >= 0x1p63) return jinja_fail(filter->render, "integers beyond 64 bits are not supported");
    *out = jinja_integer((int64_t)value);
    return TT_OK;
}

/* `parameters`: names for jinja_bind; NULL: the filter binds on its own. */
static const struct {
    const char *name, *parameters;
    size_t least;
    jinja_filter *run;
} filters[] = {
    {"tojson", "ensure_ascii,indent,separators,sort_keys", 0, jinja_filter_tojson},
    {"trim", "chars", 0, jinja_filter_trim},
    {"length", "", 0, filter_length},
    {"count", "", 0, filter_length},
    {"string", "", 0, jinja_filter_string},
    {"default", "default_value,boolean", 0, filter_default},
    {"d", "default_value,boolean", 0, filter_default},
    {"list", "", 0, jinja_filter_list},
    {"items", "", 0, jinja_filter_items},
    {"selectattr", NULL, 0, jinja_filter_select},
    {"rejectattr", NULL, 0, jinja_filter_select},
    {"select", NULL, 0, jinja_filter_select},
    {"reject", NULL, 0, jinja_filter_select},
    {"join", "d,attribute", 0, jinja_filter_join},
    {"safe", "", 0, jinja_filter_safe},
    {"map", NULL, 0, jinja_filter_map},
    {"upper", "", 0, jinja_filter_case},
    {"lower", "", 0, jinja_filter_case},
    {"capitalize", "", 0, jinja_filter_case},
    {"title", "", 0, jinja_filter_title},
    {"dictsort", "case_sensitive,by,reverse", 0, jinja_filter_dictsort},
    {"replace", "old,new,count", 2, jinja_filter_replace},
    {"last", "", 0, jinja_filter_last},
    {"first", "", 0, jinja_filter_first},
    {"int", "default,base", 0, filter_int},
    {"float", "default", 0, filter_float},
    {"indent", "width,first,blank", 0, jinja_filter_indent},
    {"unique", "case_sensitive,attribute", 0, jinja_filter_unique},
    {"sort", "reverse,case_sensitive,attribute", 0, jinja_filter_sort},
    {"min", "case_sensitive,attribute", 0, jinja_filter_extreme},
    {"max", "case_sensitive,attribute", 0, jinja_filter_extreme},
    {"sum", "attribute,start", 0, jinja_filter_sum},
    {"reverse", "", 0, jinja_filter_reverse},
    {"abs", "", 0, filter_abs},
    {"round", "precision,method", 0, filter_round},
    {"e", "", 0, jinja_filter_escape},
    {"escape", "", 0, jinja_filter_escape},
    {"forceescape", "", 0, jinja_filter_escape},
    {"center", "width", 0, jinja_filter_center},
    {"format", NULL, 0, jinja_filter_format},
};

int jinja_filter_id(struct tt_span name)
{
    for (size_t i = 0; i < sizeof filters / sizeof filters[0]; i++)
        if (tt_span_equals(name, filters[i].name)) return (int)i;
    return -1;
}

bool jinja_filter_is_refused(struct tt_span name)
{
    static const char *const names[] = {"attr",   "batch",     "filesizeformat", "groupby",  "pprint",
                                        "random", "slice",     "striptags",      "truncate", "urlencode",
                                        "urlize", "wordcount", "wordwrap",       "xmlattr"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (tt_span_equals(name, names[i])) return true;
    return false;
}

tt_status jinja_apply_filter(struct jinja_render *render, int id, const struct jinja_value *value,
                             struct jinja_call *call, struct jinja_value *out)
{
    struct jinja_filter_call filter = {
        .render = render, .name = filters[id].name, .value = value, .call = call};
    struct jinja_value result;
    if (filters[id].parameters != NULL)
        TT_TRY(jinja_bind(render, filters[id].name, call, filters[id].parameters, filters[id].least,
                          filter.arguments));
    TT_TRY(filters[id].run(&filter, &result));
    *out = result;
    return TT_OK;
}
