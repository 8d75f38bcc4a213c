/* Methods of texts, dicts, lists and tuples. */
#include <string.h>

#include "text/jinja/strings.h"

enum { ARGUMENTS_MAX = 3 };

struct method_call {
    struct jinja_render *render;
    const char *name;
    const struct jinja_value *self;
    struct jinja_value arguments[ARGUMENTS_MAX]; /* JINJA_MISSING where not given */
    struct jinja_call *call;
    int mode;
};

typedef tt_status run_method(struct method_call *method, struct jinja_value *out);

static bool given(const struct method_call *method, int place)
{
    return method->arguments[place].type != JINJA_MISSING;
}

static tt_status int_argument(const struct method_call *method, int place, int64_t absent, int64_t *out)
{
    const struct jinja_value *value = &method->arguments[place];
    *out = absent;
    if (value->type == JINJA_MISSING) return TT_OK;
    if (!jinja_is_int(value))
        return jinja_fail(method->render, "'%s' object cannot be interpreted as an integer",
                          jinja_type_name(value));
    *out = jinja_int_of(value);
    return TT_OK;
}

static tt_status text_argument(const struct method_call *method, int place)
{
    const struct jinja_value *value = &method->arguments[place];
    if (jinja_is_text(value)) return TT_OK;
    return jinja_fail(method->render, "%s() argument %d must be str, not %s", method->name, place + 1,
                      jinja_type_name(value));
}

/* ---- Texts ---- */

static tt_status text_strip(struct method_call *method, struct jinja_value *out)
{
    const struct jinja_value *chars = &method->arguments[0];
    if (!given(method, 0) || chars->type == JINJA_NONE) chars = NULL;
    if (chars != NULL && !jinja_is_text(chars))
        return jinja_fail(method->render, "%s arg must be None or str", method->name);
    return jinja_strip(method->render, method->self, chars, method->mode, out);
}

static tt_status text_split(struct method_call *method, struct jinja_value *out)
{
    const struct jinja_value *separator = &method->arguments[0];
    int64_t most;
    if (!given(method, 0) || separator->type == JINJA_NONE) separator = NULL;
    if (separator != NULL && !jinja_is_text(separator))
        return jinja_fail(method->render, "must be str or None, not %s", jinja_type_name(separator));
    TT_TRY(int_argument(method, 1, -1, &most));
    return jinja_split(method->render, method->self, separator, most < 0 ? -1 : most, method->mode != 0, out);
}

static tt_status text_splitlines(struct method_call *method, struct jinja_value *out)
{
    struct tt_span text = jinja_span(method->self);
    struct jinja_value list, part;
    size_t capacity = 0;
    bool keeps = given(method, 0) && jinja_truth(&method->arguments[0]);
    TT_TRY(jinja_new_list(method->render, 0, false, &list));
    TT_TRY(jinja_charge(method->render, text.bytes / 16));
    for (size_t at = 0, end, next; at < text.bytes; at = next) {
        jinja_line(text, at, &end, &next);
        TT_TRY(jinja_part(method->render, method->self, at, keeps ? next : end, &part));
        TT_TRY(jinja_list_append(method->render, list.list, &capacity, part));
    }
    *out = list;
    return TT_OK;
}

static bool has_affix(const struct jinja_value *text, size_t from, size_t to, const struct jinja_value *affix,
                      bool at_start)
{
    size_t bytes = affix->text->bytes;
    if (to < from || bytes > to - from) return false;
    const char *at = text->text->data + (at_start ? from : to - bytes);
    return bytes == 0 || memcmp(at, affix->text->data, bytes) == 0;
}

/* The bytes between the code points that the arguments `place` and the next one give, as slices clamp them; false where
 * the range begins behind the text. */
static tt_status range_arguments(struct method_call *method, int place, size_t *from, size_t *to,
                                 bool *is_valid)
{
    int64_t bounds[2], length = (int64_t)jinja_points(method->self);
    for (int i = 0; i < 2; i++) {
        struct jinja_value *value = &method->arguments[place + i];
        if (given(method, place + i) && value->type == JINJA_NONE) value->type = JINJA_MISSING;
        TT_TRY(int_argument(method, place + i, i == 0 ? 0 : length, &bounds[i]));
        if (bounds[i] < 0) bounds[i] = bounds[i] + length < 0 ? 0 : bounds[i] + length;
    }
    if (bounds[1] > length) bounds[1] = length;
    *is_valid = bounds[0] <= bounds[1];
    *from = jinja_byte_of(method->self, (size_t)(bounds[0] > length ? length : bounds[0]));
    *to = jinja_byte_of(method->self, (size_t)bounds[1]);
    return TT_OK;
}

static tt_status text_affix(struct method_call *method, struct jinja_value *out)
{
    const struct jinja_value *affix = &method->arguments[0];
    size_t from, to;
    bool is_valid, found = false;
    TT_TRY(range_arguments(method, 1, &from, &to, &is_valid));
    if (affix->type == JINJA_TUPLE) {
        for (size_t i = 0; i < affix->list->count; i++) {
            const struct jinja_value *each = &affix->list->elements[i];
            if (!jinja_is_text(each))
                return jinja_fail(method->render, "tuple for %s must only contain str, not %s", method->name,
                                  jinja_type_name(each));
            found = found || (is_valid && has_affix(method->self, from, to, each, method->mode == 0));
        }
    } else if (jinja_is_text(affix)) {
        found = is_valid && has_affix(method->self, from, to, affix, method->mode == 0);
    } else {
        return jinja_fail(method->render, "%s first arg must be str or a tuple of str, not %s", method->name,
                          jinja_type_name(affix));
    }
    *out = jinja_bool(found);
    return TT_OK;
}

/* find, rfind, index, rindex, count */
static tt_status text_find(struct method_call *method, struct jinja_value *out)
{
    size_t from, to, found;
    bool is_valid;
    TT_TRY(text_argument(method, 0));
    TT_TRY(range_arguments(method, 1, &from, &to, &is_valid));
    struct tt_span all = {method->self->text->data, is_valid ? to : 0},
                   part = jinja_span(&method->arguments[0]);
    TT_TRY(jinja_charge(method->render, all.bytes / 8));
    if (method->mode == 'c') {
        int64_t count = 0;
        if (part.bytes == 0) {
            struct jinja_value range;
            TT_TRY(jinja_part(method->render, method->self, from, is_valid ? to : from, &range));
            count = is_valid ? (int64_t)jinja_points(&range) + 1 : 0;
        }
        while (part.bytes > 0 && is_valid && (found = jinja_find(all, part, from)) != SIZE_MAX) {
            count++;
            from = found + part.bytes;
        }
        *out = jinja_integer(count);
        return TT_OK;
    }
    bool is_right = method->name[0] == 'r';
    found = !is_valid ? SIZE_MAX : is_right ? jinja_rfind(all, part) : jinja_find(all, part, from);
    if (is_right && found != SIZE_MAX && found < from) found = SIZE_MAX;
    if (found == SIZE_MAX && method->mode == 'i') return jinja_fail(method->render, "substring not found");
    struct jinja_value before;
    if (found != SIZE_MAX) TT_TRY(jinja_part(method->render, method->self, 0, found, &before));
    *out = jinja_integer(found == SIZE_MAX ? -1 : (int64_t)jinja_points(&before));
    return TT_OK;
}

/* The arguments of Markup's methods are escaped where the method inserts them. */
static tt_status escape_argument(struct method_call *method, int place)
{
    struct jinja_writer writer = jinja_writer_new(method->render);
    struct jinja_value *value = &method->arguments[place];
    if (!method->self->is_markup || !given(method, place) || value->is_markup) return TT_OK;
    TT_TRY(text_argument(method, place));
    TT_TRY(jinja_write_escaped(&writer, value));
    return jinja_writer_value(&writer, value);
}

static tt_status text_replace(struct method_call *method, struct jinja_value *out)
{
    int64_t count;
    TT_TRY(text_argument(method, 0));
    TT_TRY(text_argument(method, 1));
    TT_TRY(escape_argument(method, 1));
    TT_TRY(int_argument(method, 2, -1, &count));
    return jinja_replace(method->render, method->self, &method->arguments[0], &method->arguments[1],
                         count < 0 ? -1 : count, out);
}

static tt_status text_case(struct method_call *method, struct jinja_value *out)
{
    return jinja_in_case(method->render, method->self, (enum jinja_case)method->mode, out);
}

static tt_status text_is(struct method_call *method, struct jinja_value *out)
{
    TT_TRY(jinja_charge(method->render, method->self->text->bytes / 16));
    *out = jinja_bool(jinja_text_is(jinja_span(method->self), (enum jinja_class)method->mode));
    return TT_OK;
}

static tt_status text_justify(struct method_call *method, struct jinja_value *out)
{
    static const struct jinja_text zero = {.data = "0", .bytes = 1, .points = 1};
    struct jinja_value zeros = {.type = JINJA_TEXT, .text = &zero};
    const struct jinja_value *fill = method->mode == 'z' ? &zeros
                                     : given(method, 1)  ? &method->arguments[1]
                                                         : NULL;
    int64_t width;
    TT_TRY(int_argument(method, 0, 0, &width));
    if (fill == &method->arguments[1]) {
        TT_TRY(text_argument(method, 1));
        TT_TRY(escape_argument(method, 1));
    }
    return jinja_justify(method->render, method->self, width, (char)method->mode, fill, out);
}

static tt_status text_remove(struct method_call *method, struct jinja_value *out)
{
    size_t from = 0, to = method->self->text->bytes;
    TT_TRY(text_argument(method, 0));
    bool is_prefix = method->mode == 0;
    if (has_affix(method->self, from, to, &method->arguments[0], is_prefix)) {
        if (is_prefix)
            from += method->arguments[0].text->bytes;
        else
            to -= method->arguments[0].text->bytes;
    }
    return jinja_part(method->render, method->self, from, to, out);
}

static tt_status text_partition(struct method_call *method, struct jinja_value *out)
{
    struct jinja_value made;
    struct tt_span text = jinja_span(method->self);
    TT_TRY(text_argument(method, 0));
    struct tt_span part = jinja_span(&method->arguments[0]);
    if (part.bytes == 0) return jinja_fail(method->render, "empty separator");
    TT_TRY(jinja_charge(method->render, text.bytes / 16));
    bool is_right = method->mode != 0;
    size_t found = is_right ? jinja_rfind(text, part) : jinja_find(text, part, 0);
    size_t from = found != SIZE_MAX ? found : is_right ? 0 : text.bytes;
    size_t to = found != SIZE_MAX ? found + part.bytes : from;
    TT_TRY(jinja_new_list(method->render, 3, true, &made));
    TT_TRY(jinja_part(method->render, method->self, 0, from, &made.list->elements[0]));
    TT_TRY(jinja_part(method->render, method->self, from, to, &made.list->elements[1]));
    TT_TRY(jinja_part(method->render, method->self, to, text.bytes, &made.list->elements[2]));
    *out = made;
    return TT_OK;
}

static tt_status text_join(struct method_call *method, struct jinja_value *out)
{
    struct jinja_writer writer = jinja_writer_new(method->render);
    struct jinja_iterator iterator;
    TT_TRY(jinja_iterate(method->render, &method->arguments[0], &iterator));
    for (size_t i = 0;; i++) {
        struct jinja_value item;
        bool more;
        TT_TRY(jinja_next(method->render, &iterator, &item, &more));
        if (!more) break;
        bool escapes = method->self->is_markup && !item.is_markup;
        if (escapes) TT_TRY(jinja_to_text(method->render, &item, &item));
        if (!jinja_is_text(&item))
            return jinja_fail(method->render, "sequence item %zu: expected str instance, %s found", i,
                              jinja_type_name(&item));
        if (i > 0) TT_TRY(jinja_write_value(&writer, method->self));
        TT_TRY(escapes ? jinja_write_escaped(&writer, &item) : jinja_write_value(&writer, &item));
    }
    TT_TRY(jinja_writer_value(&writer, out));
    out->is_markup = method->self->is_markup;
    return TT_OK;
}

/* ---- Dicts and lists ---- */

static tt_status dict_get(struct method_call *method, struct jinja_value *out)
{
    const struct jinja_value *found;
    TT_TRY(jinja_dict_find(method->render, method->self->dict, &method->arguments[0], &found));
    *out = found != NULL ? *found : given(method, 1) ? method->arguments[1] : jinja_none();
    return TT_OK;
}

static tt_status dict_view(struct method_call *method, struct jinja_value *out)
{
    *out = *method->self;
    out->type = JINJA_VIEW;
    out->kind = (uint8_t)method->mode;
    return TT_OK;
}

/* Nothing changes a list or a dict, so a copy may be the same one. */
static tt_status same(struct method_call *method, struct jinja_value *out)
{
    *out = *method->self;
    return TT_OK;
}

/* count, index */
static tt_status list_find(struct method_call *method, struct jinja_value *out)
{
    const struct jinja_list *list = method->self->list;
    int64_t count = 0;
    for (size_t i = 0; i < list->count; i++) {
        bool equal;
        TT_TRY(jinja_equal(method->render, &list->elements[i], &method->arguments[0], &equal));
        count += equal;
        if (!equal || method->mode == 'c') continue;
        *out = jinja_integer((int64_t)i);
        return TT_OK;
    }
    if (method->mode == 'i') return jinja_fail(method->render, "the list has no such element");
    *out = jinja_integer(count);
    return TT_OK;
}

static tt_status loop_call(struct method_call *method, struct jinja_value *out)
{
    return jinja_loop_call(method->render, method->self->loop, method->mode != 0, method->call, out);
}

/* ---- The table ---- */

enum { OF_TEXT = 1, OF_DICT = 2, OF_LIST = 4, OF_LOOP = 8 };

/* `names`: of the arguments, which only those methods take by name that have NAMED; NULL: they bind on their own. */
enum { NAMED = 16 };
static const struct {
    const char *name;
    int of;
    const char *names;
    size_t least;
    run_method *run;
    int mode;
} methods[] = {
    [JINJA_METHOD_CYCLE] = {"cycle", OF_LOOP, NULL, 0, loop_call, 1},
    [JINJA_METHOD_CHANGED] = {"changed", OF_LOOP, NULL, 0, loop_call, 0},
    {"split", OF_TEXT | NAMED, "sep,maxsplit", 0, text_split, 0},
    {"rsplit", OF_TEXT | NAMED, "sep,maxsplit", 0, text_split, 1},
    {"strip", OF_TEXT, "chars", 0, text_strip, JINJA_LEFT | JINJA_RIGHT},
    {"lstrip", OF_TEXT, "chars", 0, text_strip, JINJA_LEFT},
    {"rstrip", OF_TEXT, "chars", 0, text_strip, JINJA_RIGHT},
    {"startswith", OF_TEXT, "prefix,start,end", 1, text_affix, 0},
    {"endswith", OF_TEXT, "suffix,start,end", 1, text_affix, 1},
    {"replace", OF_TEXT, "old,new,count", 2, text_replace, 0},
    {"upper", OF_TEXT, "", 0, text_case, JINJA_UPPER},
    {"lower", OF_TEXT, "", 0, text_case, JINJA_LOWER},
    {"title", OF_TEXT, "", 0, text_case, JINJA_TITLE},
    {"capitalize", OF_TEXT, "", 0, text_case, JINJA_CAPITALIZE},
    {"swapcase", OF_TEXT, "", 0, text_case, JINJA_SWAPCASE},
    {"find", OF_TEXT, "sub,start,end", 1, text_find, 'f'},
    {"rfind", OF_TEXT, "sub,start,end", 1, text_find, 'f'},
    {"rindex", OF_TEXT, "sub,start,end", 1, text_find, 'i'},
    {"splitlines", OF_TEXT | NAMED, "keepends", 0, text_splitlines, 0},
    {"partition", OF_TEXT, "sep", 1, text_partition, 0},
    {"rpartition", OF_TEXT, "sep", 1, text_partition, 1},
    {"removeprefix", OF_TEXT, "prefix", 1, text_remove, 0},
    {"removesuffix", OF_TEXT, "suffix", 1, text_remove, 1},
    {"join", OF_TEXT, "iterable", 1, text_join, 0},
    {"ljust", OF_TEXT, "width,fillchar", 1, text_justify, 'l'},
    {"rjust", OF_TEXT, "width,fillchar", 1, text_justify, 'r'},
    {"center", OF_TEXT, "width,fillchar", 1, text_justify, 'c'},
    {"zfill", OF_TEXT, "width", 1, text_justify, 'z'},
    {"isalpha", OF_TEXT, "", 0, text_is, JINJA_IS_ALPHA},
    {"isdecimal", OF_TEXT, "", 0, text_is, JINJA_IS_DECIMAL},
    {"isalnum", OF_TEXT, "", 0, text_is, JINJA_IS_ALNUM},
    {"isspace", OF_TEXT, "", 0, text_is, JINJA_IS_SPACE},
    {"isprintable", OF_TEXT, "", 0, text_is, JINJA_IS_PRINTABLE},
    {"isupper", OF_TEXT, "", 0, text_is, JINJA_IS_UPPER},
    {"islower", OF_TEXT, "", 0, text_is, JINJA_IS_LOWER},
    {"istitle", OF_TEXT, "", 0, text_is, JINJA_IS_TITLE},
    {"isascii", OF_TEXT, "", 0, text_is, JINJA_IS_ASCII},
    {"get", OF_DICT, "key,default", 1, dict_get, 0},
    {"items", OF_DICT, "", 0, dict_view, JINJA_ITEMS},
    {"keys", OF_DICT, "", 0, dict_view, JINJA_KEYS},
    {"values", OF_DICT, "", 0, dict_view, JINJA_VALUES},
    {"copy", OF_DICT | OF_LIST, "", 0, same, 0},
    {"count", OF_TEXT | OF_LIST, "value,start,end", 1, NULL, 'c'},
    {"index", OF_TEXT | OF_LIST, "value,start,end", 1, NULL, 'i'},
};

int jinja_method_id(struct tt_span name)
{
    for (size_t i = 0; i < sizeof methods / sizeof methods[0]; i++)
        if (tt_span_equals(name, methods[i].name)) return (int)i;
    return -1;
}

bool jinja_has_method(const struct jinja_value *self, int id)
{
    int of = methods[id].of;
    switch (self->type) {
    case JINJA_TEXT:
        return (of & OF_TEXT) != 0;
    case JINJA_DICT:
        return (of & OF_DICT) != 0;
    case JINJA_LIST:
        return (of & OF_LIST) != 0;
    case JINJA_TUPLE:
        return (of & OF_LIST) != 0 && methods[id].run != same;
    case JINJA_LOOP:
        return (of & OF_LOOP) != 0;
    default:
        return false;
    }
}

tt_status jinja_call_method(struct jinja_render *render, int id, const struct jinja_value *self,
                            struct jinja_call *call, struct jinja_value *out)
{
    struct method_call method = {
        .render = render, .name = methods[id].name, .self = self, .call = call, .mode = methods[id].mode};
    run_method *run = methods[id].run;
    struct jinja_value result;
    if (run == NULL) run = self->type == JINJA_TEXT ? text_find : list_find;
    if (methods[id].names != NULL) {
        if (call->named.count > 0 && (methods[id].of & NAMED) == 0)
            return jinja_fail(render, "%s() takes no keyword arguments", method.name);
        TT_TRY(jinja_bind(render, method.name, call, methods[id].names, methods[id].least, method.arguments));
    }
    if (run == list_find && call->count != 1)
        return jinja_fail(render, "%s() of a list with more than one argument is not supported", method.name);
    TT_TRY(run(&method, &result));
    *out = result;
    return TT_OK;
}
