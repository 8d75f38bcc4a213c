/* Global functions. */
#include "text/jinja/render.h"

static const struct {
    const char *name;
    enum jinja_function function;
} functions[] = {
    {"range", JINJA_FUNCTION_RANGE},
    {"namespace", JINJA_FUNCTION_NAMESPACE},
    {"dict", JINJA_FUNCTION_DICT},
    {"raise_exception", JINJA_FUNCTION_RAISE},
    {"strftime_now", JINJA_FUNCTION_STRFTIME},
    {"cycler", JINJA_FUNCTION_CYCLER},
    {"joiner", JINJA_FUNCTION_JOINER},
    {"lipsum", JINJA_FUNCTION_LIPSUM},
};

bool jinja_global(const struct jinja_text *name, struct jinja_value *out)
{
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++) {
        if (!tt_span_equals((struct tt_span){name->data, name->bytes}, functions[i].name)) continue;
        *out = (struct jinja_value){.type = JINJA_FUNCTION, .integer = functions[i].function};
        return true;
    }
    return false;
}

static tt_status call_range(struct jinja_render *render, struct jinja_call *call, struct jinja_value *out)
{
    int64_t bounds[3] = {0, 0, 1};
    if (call->named.count > 0) return jinja_fail(render, "range() takes no keyword arguments");
    if (call->count < 1 || call->count > 3)
        return jinja_fail(render, "range expected 1 to 3 arguments, got %zu", call->count);
    for (size_t i = 0; i < call->count; i++) {
        const struct jinja_value *value = &call->positional[i];
        if (!jinja_is_int(value))
            return jinja_fail(render, "'%s' object cannot be interpreted as an integer",
                              jinja_type_name(value));
        bounds[call->count == 1 ? 1 : i] = jinja_int_of(value);
    }
    int64_t start = bounds[0], stop = bounds[1], step = bounds[2];
    if (step == 0) return jinja_fail(render, "range() arg 3 must not be zero");
    __int128 width = step > 0 ? (__int128)stop - start : (__int128)start - stop;
    __int128 stride = step > 0 ? (__int128)step : -(__int128)step,
             count = width > 0 ? (width - 1) / stride + 1 : 0;
    if (count > TT_JINJA_RANGE_MAX)
        return jinja_fail(render, "a range may have at most %d elements", TT_JINJA_RANGE_MAX);
    struct jinja_range *range = jinja_alloc(render, sizeof *range);
    if (range == NULL) return TT_ERR_MEMORY;
    *range = (struct jinja_range){.start = start, .stop = stop, .step = step, .count = (int64_t)count};
    *out = (struct jinja_value){.type = JINJA_RANGE, .range = range};
    return TT_OK;
}

static tt_status add_pair(struct jinja_render *render, struct jinja_dict *dict,
                          const struct jinja_value *pair)
{
    struct jinja_value list;
    if (!jinja_is_iterable(pair))
        return jinja_fail(render, "cannot convert dictionary update sequence element to a sequence");
    TT_TRY(jinja_collect(render, pair, &list));
    if (list.list->count != 2)
        return jinja_fail(render, "dictionary update sequence element has length %zu; 2 is required",
                          list.list->count);
    return jinja_dict_set(render, dict, list.list->elements[0], list.list->elements[1]);
}

/* dict(mapping or pairs, **named) */
static tt_status call_dict(struct jinja_render *render, struct jinja_call *call, struct jinja_value *out)
{
    struct jinja_value made;
    TT_TRY(jinja_new_dict(render, &made));
    if (call->count > 1) return jinja_fail(render, "dict expected at most 1 argument, got %zu", call->count);
    if (call->count == 1 && call->positional[0].type == JINJA_DICT) {
        const struct jinja_dict *from = call->positional[0].dict;
        for (size_t i = 0; i < from->count; i++)
            TT_TRY(jinja_dict_set(render, made.dict, from->entries[i].key, from->entries[i].value));
    } else if (call->count == 1) {
        struct jinja_value pairs;
        TT_TRY(jinja_collect(render, &call->positional[0], &pairs));
        for (size_t i = 0; i < pairs.list->count; i++)
            TT_TRY(add_pair(render, made.dict, &pairs.list->elements[i]));
    }
    for (size_t i = 0; i < call->named.count; i++)
        TT_TRY(jinja_dict_set(render, made.dict, call->named.entries[i].key, call->named.entries[i].value));
    *out = made;
    return TT_OK;
}

static tt_status call_raise(struct jinja_render *render, struct jinja_call *call)
{
    struct jinja_value message = {.type = JINJA_MISSING}, text;
    TT_TRY(jinja_bind(render, "raise_exception()", call, "message", 1, &message));
    TT_TRY(jinja_to_text(render, &message, &text));
    size_t bytes = text.text->bytes < 300 ? text.text->bytes : 300;
    while (bytes < text.text->bytes && bytes > 0 && ((unsigned char)text.text->data[bytes] & 0xc0) == 0x80)
        bytes--;
    return jinja_fail(render, "the template refuses this conversation: %.*s", (int)bytes, text.text->data);
}

static tt_status call_strftime(struct jinja_render *render, struct jinja_call *call, struct jinja_value *out)
{
    struct jinja_value format = {.type = JINJA_MISSING};
    TT_TRY(jinja_bind(render, "strftime_now()", call, "format", 1, &format));
    if (!jinja_is_text(&format))
        return jinja_fail(render, "strftime() argument 1 must be str, not %s", jinja_type_name(&format));
    return jinja_strftime(render, jinja_span(&format), out);
}

tt_status jinja_call_function(struct jinja_render *render, const struct jinja_value *function,
                              struct jinja_call *call, struct jinja_value *out)
{
    switch (function->integer) {
    case JINJA_FUNCTION_RANGE:
        return call_range(render, call, out);
    case JINJA_FUNCTION_DICT:
        return call_dict(render, call, out);
    case JINJA_FUNCTION_NAMESPACE:
        TT_TRY(call_dict(render, call, out));
        out->type = JINJA_NAMESPACE;
        return TT_OK;
    case JINJA_FUNCTION_RAISE:
        return call_raise(render, call);
    case JINJA_FUNCTION_STRFTIME:
        return call_strftime(render, call, out);
    default:
        return jinja_fail(render, "the functions cycler(), joiner() and lipsum() are not supported");
    }
}
