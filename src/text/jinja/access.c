/* Members, elements and slices, as the sandbox of Jinja2 gives them: value.name looks for an attribute first and then
 * for a key, value['name'] the other way round; a missing member is undefined. */
#include <string.h>

#include "text/jinja/render.h"

struct jinja_value jinja_undefined(const struct jinja_value *of, const struct jinja_text *name)
{
    return (struct jinja_value){
        .type = JINJA_UNDEFINED, .kind = of != NULL ? (uint8_t)(of->type + 1) : 0, .text = name};
}

tt_status jinja_fail_undefined(struct jinja_render *render, const struct jinja_value *value)
{
    const struct jinja_text *name = value->text;
    int bytes = name == NULL ? 0 : name->bytes < 80 ? (int)name->bytes : 80;
    if (name == NULL) return jinja_fail(render, "the value is undefined");
    if (value->kind == 0) return jinja_fail(render, "'%.*s' is undefined", bytes, name->data);
    struct jinja_value of = {.type = (uint8_t)(value->kind - 1)};
    return jinja_fail(render, "'%s object' has no attribute '%.*s'", jinja_type_name(&of), bytes, name->data);
}

static bool name_is(const struct jinja_text *name, const char *text)
{
    return tt_span_equals((struct tt_span){name->data, name->bytes}, text);
}

/* The attributes that Python's types have beside methods that are served here: their use is refused. Those that the
 * sandbox hides are undefined. */
static bool is_refused_attribute(const struct jinja_value *value, const struct jinja_text *name)
{
    static const char *const of_numbers[] = {
        "real",     "imag",       "numerator",        "denominator", "conjugate", "bit_length", "bit_count",
        "to_bytes", "from_bytes", "as_integer_ratio", "is_integer",  "hex",       "fromhex",    NULL};
    static const char *const of_texts[] = {"encode",   "format",    "maketrans",    "translate", "format_map",
                                           "casefold", "isnumeric", "isidentifier", "isdigit",   "expandtabs",
                                           "unescape", "striptags", "escape",       NULL};
    static const char *const of_dicts[] = {"fromkeys", NULL};
    static const char *const of_ranges[] = {"start", "stop", "step", "count", "index", NULL};
    static const char *const of_views[] = {"isdisjoint", "mapping", NULL};
    static const char *const of_generators[] = {"send",       "throw",   "close",        "gi_frame",
                                                "gi_running", "gi_code", "gi_yieldfrom", NULL};
    static const char *const of_macros[] = {
        "name", "arguments", "catch_kwargs", "catch_varargs", "caller", "explicit_caller", NULL};
    const char *const *names = NULL;
    if (jinja_is_number(value)) names = of_numbers;
    if (value->type == JINJA_TEXT) names = of_texts;
    if (value->type == JINJA_DICT) names = of_dicts;
    if (value->type == JINJA_RANGE) names = of_ranges;
    if (value->type == JINJA_VIEW) names = of_views;
    if (value->type == JINJA_ITERATOR) names = of_generators;
    if (value->type == JINJA_MACRO) names = of_macros;
    if (value->type == JINJA_FUNCTION && value->integer == JINJA_FUNCTION_DICT) names = of_dicts;
    for (; names != NULL && *names != NULL; names++)
        if (name_is(name, *names)) return true;
    return false;
}

/* Names that the sandbox hides, also where a key has one: methods that change a dict, and Python's own names. Those
 * that change a list are no attributes here. */
static bool is_hidden_attribute(const struct jinja_value *value, const struct jinja_text *name)
{
    bool is_own = name->bytes > 4 && memcmp(name->data, "__", 2) == 0 &&
                  memcmp(name->data + name->bytes - 2, "__", 2) == 0;
    if (is_own) return true;
    static const char *const of_dicts[] = {"clear", "pop", "popitem", "setdefault", "update"};
    for (size_t i = 0; value->type == JINJA_DICT && i < sizeof of_dicts / sizeof of_dicts[0]; i++)
        if (name_is(name, of_dicts[i])) return true;
    return false;
}

/* The attribute of a value; *found is false where it has none. */
static tt_status find_attribute(struct jinja_render *render, const struct jinja_value *value,
                                const struct jinja_text *name, int id, struct jinja_value *out, bool *found)
{
    *found = true;
    if (value->type == JINJA_UNDEFINED) return jinja_fail_undefined(render, value);
    if (value->type == JINJA_NAMESPACE) {
        const struct jinja_value *member = jinja_dict_get(value->dict, name->data, name->bytes);
        *found = member != NULL;
        if (member != NULL) *out = *member;
        return TT_OK;
    }
    if (value->type == JINJA_LOOP) {
        TT_TRY(jinja_loop_attribute(render, value->loop, name, out));
        *found = out->type != JINJA_MISSING;
        return TT_OK;
    }
    if (id >= 0 && jinja_has_method(value, id)) {
        struct jinja_method *method = jinja_alloc(render, sizeof *method);
        if (method == NULL) return TT_ERR_MEMORY;
        *method = (struct jinja_method){.self = *value, .id = id};
        *out = (struct jinja_value){.type = JINJA_METHOD, .method = method};
        return TT_OK;
    }
    if (is_hidden_attribute(value, name)) {
        *out = jinja_undefined(value, name);
        return TT_OK;
    }
    if (is_refused_attribute(value, name))
        return jinja_fail(render, "the attribute '%.*s' of '%s' is not supported",
                          name->bytes < 80 ? (int)name->bytes : 80, name->data, jinja_type_name(value));
    *found = false;
    return TT_OK;
}

tt_status jinja_attribute(struct jinja_render *render, const struct jinja_value *value,
                          const struct jinja_text *name, int id, struct jinja_value *out)
{
    bool found;
    /* Most attributes are keys. */
    if (value->type == JINJA_DICT && id < 0 && name->data[0] != '_') {
        const struct jinja_value *member = jinja_dict_get(value->dict, name->data, name->bytes);
        if (member != NULL && !is_hidden_attribute(value, name) && !is_refused_attribute(value, name)) {
            *out = *member;
            return TT_OK;
        }
    }
    TT_TRY(find_attribute(render, value, name, id, out, &found));
    if (found) return TT_OK;
    const struct jinja_value *member =
        value->type == JINJA_DICT ? jinja_dict_get(value->dict, name->data, name->bytes) : NULL;
    *out = member != NULL ? *member : jinja_undefined(value, name);
    return TT_OK;
}

static bool resolve_index(int64_t index, int64_t length, int64_t *out)
{
    if (index < 0) index += length;
    *out = index;
    return index >= 0 && index < length;
}

/* value[index] of a sequence; *found is false beyond its ends. */
static tt_status find_element(struct jinja_render *render, const struct jinja_value *value, int64_t index,
                              struct jinja_value *out, bool *found)
{
    int64_t length = 0;
    *found = (value->type == JINJA_TEXT || value->type == JINJA_LIST || value->type == JINJA_TUPLE ||
              value->type == JINJA_RANGE) &&
             jinja_length(value, &length) && resolve_index(index, length, &index);
    if (!*found) return TT_OK;
    if (value->type == JINJA_RANGE) {
        *out = jinja_integer(value->range->start + index * value->range->step);
    } else if (value->type == JINJA_TEXT) {
        size_t from = jinja_byte_of(value, (size_t)index), bytes;
        TT_TRY(jinja_charge(render, from / 256));
        jinja_point_at(value->text->data + from, value->text->bytes - from, &bytes);
        TT_TRY(jinja_part(render, value, from, from + bytes, out));
    } else {
        *out = value->list->elements[index];
    }
    return TT_OK;
}

tt_status jinja_item(struct jinja_render *render, const struct jinja_value *value,
                     const struct jinja_value *key, struct jinja_value *out)
{
    bool found = false;
    const struct jinja_text *name = key->type == JINJA_TEXT ? key->text : NULL;
    struct jinja_value made;
    if (value->type == JINJA_UNDEFINED) return jinja_fail_undefined(render, value);
    if (value->type == JINJA_DICT && jinja_is_hashable(key)) {
        const struct jinja_value *member;
        TT_TRY(jinja_dict_find(render, value->dict, key, &member));
        found = member != NULL;
        if (found) made = *member;
    } else if (jinja_is_int(key)) {
        TT_TRY(find_element(render, value, jinja_int_of(key), &made, &found));
    }
    if (!found && name != NULL)
        TT_TRY(find_attribute(render, value, name, jinja_method_id(jinja_span(key)), &made, &found));
    *out = found ? made : jinja_undefined(value, name);
    return TT_OK;
}

/* ---- Slices ---- */

struct bounds {
    int64_t start, step, count;
};

static bool is_bound(const struct jinja_value *value)
{
    return value == NULL || value->type == JINJA_NONE || jinja_is_int(value);
}

static int64_t clamp(const struct jinja_value *value, int64_t absent, int64_t length, int64_t least,
                     int64_t most)
{
    if (value == NULL || value->type == JINJA_NONE) return absent;
    int64_t index = jinja_int_of(value);
    if (index < 0) index = index < -length ? INT64_MIN / 2 : index + length;
    return index < least ? least : index > most ? most : index;
}

/* PySlice_AdjustIndices. */
static struct bounds bounds_of(const struct jinja_value *from, const struct jinja_value *to, int64_t step,
                               int64_t length)
{
    int64_t least = step < 0 ? -1 : 0, most = step < 0 ? length - 1 : length;
    int64_t start = clamp(from, step < 0 ? most : least, length, least, most);
    int64_t stop = clamp(to, step < 0 ? least : most, length, least, most);
    int64_t count = 0;
    if (step < 0 && stop < start) count = (start - stop - 1) / -step + 1;
    if (step > 0 && start < stop) count = (stop - start - 1) / step + 1;
    return (struct bounds){start, step, count};
}

static tt_status slice_text(struct jinja_render *render, const struct jinja_value *value,
                            const struct bounds *bounds, struct jinja_value *out)
{
    if (bounds->step == 1) {
        size_t from = jinja_byte_of(value, (size_t)bounds->start);
        size_t to = jinja_byte_of(value, (size_t)(bounds->start + bounds->count));
        TT_TRY(jinja_charge(render, to / 256));
        return jinja_part(render, value, from, to, out);
    }
    struct jinja_writer writer = jinja_writer_new(render);
    /* Each character is found from the one before it. */
    size_t at = jinja_byte_of(value, (size_t)bounds->start), length;
    const struct jinja_text *text = value->text;
    for (int64_t i = 0; i < bounds->count; i++) {
        TT_TRY(jinja_charge(render, 1));
        jinja_point_at(text->data + at, text->bytes - at, &length);
        TT_TRY(jinja_write_part(&writer, value, at, at + length));
        for (int64_t moved = 0; i + 1 < bounds->count && moved < bounds->step; moved++) {
            do at++;
            while (((unsigned char)text->data[at] & 0xc0) == 0x80);
        }
        for (int64_t moved = 0; i + 1 < bounds->count && moved > bounds->step; moved--) {
            do at--;
            while (((unsigned char)text->data[at] & 0xc0) == 0x80);
        }
    }
    TT_TRY(jinja_writer_value(&writer, out));
    out->is_markup = value->is_markup;
    return TT_OK;
}

static tt_status slice_range(struct jinja_render *render, const struct jinja_range *range,
                             const struct bounds *bounds, struct jinja_value *out)
{
    struct jinja_range *made = jinja_alloc(render, sizeof *made);
    if (made == NULL) return TT_ERR_MEMORY;
    int64_t stop = bounds->start + bounds->count * bounds->step;
    made->start = range->start + bounds->start * range->step;
    made->stop = range->start + stop * range->step;
    made->step = range->step * bounds->step;
    made->count = bounds->count;
    *out = (struct jinja_value){.type = JINJA_RANGE, .range = made};
    return TT_OK;
}

tt_status jinja_slice(struct jinja_render *render, const struct jinja_value *value,
                      const struct jinja_value *from, const struct jinja_value *to,
                      const struct jinja_value *step, struct jinja_value *out)
{
    int64_t length, by = step == NULL || step->type == JINJA_NONE ? 1 : 0;
    bool is_sequence = value->type == JINJA_TEXT || value->type == JINJA_LIST || value->type == JINJA_TUPLE ||
                       value->type == JINJA_RANGE;
    if (value->type == JINJA_UNDEFINED) return jinja_fail_undefined(render, value);
    if (!is_sequence) return jinja_fail(render, "'%s' object cannot be sliced", jinja_type_name(value));
    if (!is_bound(from) || !is_bound(to) || !is_bound(step))
        return jinja_fail(render, "slice indices must be integers or None");
    if (by == 0) by = jinja_int_of(step);
    if (by == 0) return jinja_fail(render, "slice step cannot be zero");
    /* Steps beyond any length act alike. */
    if (by > INT32_MAX) by = INT32_MAX;
    if (by < -INT32_MAX) by = -INT32_MAX;
    jinja_length(value, &length);
    struct bounds bounds = bounds_of(from, to, by, length);
    if (value->type == JINJA_TEXT) return slice_text(render, value, &bounds, out);
    if (value->type == JINJA_RANGE) return slice_range(render, value->range, &bounds, out);
    struct jinja_value made;
    TT_TRY(jinja_charge(render, (size_t)bounds.count / 8));
    TT_TRY(jinja_new_list(render, (size_t)bounds.count, value->type == JINJA_TUPLE, &made));
    for (int64_t i = 0; i < bounds.count; i++)
        made.list->elements[i] = value->list->elements[bounds.start + i * bounds.step];
    made.origin = value->origin;
    *out = made;
    return TT_OK;
}
