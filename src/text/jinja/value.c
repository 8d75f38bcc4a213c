/* Truth, length, equality, order and membership: Python's. */
#include <math.h>
#include <string.h>

#include "text/jinja/render.h"

const char *jinja_type_name(const struct jinja_value *value)
{
    static const char *const names[JINJA_TYPE_COUNT] = {
        [JINJA_MISSING] = "Undefined",   [JINJA_UNDEFINED] = "Undefined",
        [JINJA_NONE] = "NoneType",       [JINJA_BOOL] = "bool",
        [JINJA_INTEGER] = "int",         [JINJA_HUGE] = "int",
        [JINJA_FLOAT] = "float",         [JINJA_TEXT] = "str",
        [JINJA_LIST] = "list",           [JINJA_TUPLE] = "tuple",
        [JINJA_DICT] = "dict",           [JINJA_VIEW] = "dict_items",
        [JINJA_RANGE] = "range",         [JINJA_ITERATOR] = "generator",
        [JINJA_NAMESPACE] = "Namespace", [JINJA_LOOP] = "LoopContext",
        [JINJA_MACRO] = "Macro",         [JINJA_METHOD] = "method",
        [JINJA_FUNCTION] = "function",
    };
    static const char *const views[] = {"dict_keys", "dict_values", "dict_items"};
    return value->type == JINJA_VIEW ? views[value->kind] : names[value->type];
}

bool jinja_length(const struct jinja_value *value, int64_t *length)
{
    switch (value->type) {
    case JINJA_UNDEFINED:
        *length = 0;
        return true;
    case JINJA_TEXT:
        *length = (int64_t)jinja_points(value);
        return true;
    case JINJA_LIST:
    case JINJA_TUPLE:
        *length = (int64_t)value->list->count;
        return true;
    case JINJA_DICT:
    case JINJA_VIEW:
        *length = (int64_t)value->dict->count;
        return true;
    case JINJA_RANGE:
        *length = value->range->count;
        return true;
    default:
        return false;
    }
}

bool jinja_truth(const struct jinja_value *value)
{
    int64_t length;
    switch (value->type) {
    case JINJA_MISSING:
    case JINJA_UNDEFINED:
    case JINJA_NONE:
        return false;
    case JINJA_BOOL:
        return value->boolean;
    case JINJA_INTEGER:
        return value->integer != 0;
    case JINJA_FLOAT:
        return value->real != 0;
    case JINJA_TEXT:
        return value->text->bytes > 0;
    default:
        return !jinja_length(value, &length) || length > 0;
    }
}

/* -1, 0, 1; 2 where one is NaN. A long double holds every integer of 64 bits and every double. */
static int order_numbers(const struct jinja_value *a, const struct jinja_value *b)
{
    if (jinja_is_int(a) && jinja_is_int(b)) {
        int64_t x = jinja_int_of(a), y = jinja_int_of(b);
        return (x > y) - (x < y);
    }
    long double x = jinja_is_int(a) ? (long double)jinja_int_of(a) : (long double)a->real;
    long double y = jinja_is_int(b) ? (long double)jinja_int_of(b) : (long double)b->real;
    return isnan(x) || isnan(y) ? 2 : (x > y) - (x < y);
}

static int order_texts(const struct jinja_value *a, const struct jinja_value *b)
{
    /* The order of UTF-8's bytes is that of code points. */
    size_t common = a->text->bytes < b->text->bytes ? a->text->bytes : b->text->bytes;
    int order = common > 0 ? memcmp(a->text->data, b->text->data, common) : 0;
    if (order != 0) return order < 0 ? -1 : 1;
    return (a->text->bytes > b->text->bytes) - (a->text->bytes < b->text->bytes);
}

static tt_status enter_values(struct jinja_render *render, int depth)
{
    if (depth > TT_JINJA_VALUE_DEPTH_MAX)
        return jinja_fail(render, "more than %d lists and dicts within each other", TT_JINJA_VALUE_DEPTH_MAX);
    return jinja_charge(render, 1);
}

static tt_status equal_at(struct jinja_render *render, const struct jinja_value *a,
                          const struct jinja_value *b, int depth, bool *equal);

/* Elements of containers. Python takes the same object for equal, also NaN; which NaN is the same object is unknown. */
static tt_status equal_elements(struct jinja_render *render, const struct jinja_value *a,
                                const struct jinja_value *b, int depth, bool *equal)
{
    if (a->type == JINJA_FLOAT && b->type == JINJA_FLOAT && isnan(a->real) && isnan(b->real))
        return jinja_fail(render, "comparing NaN within lists or dicts is not supported");
    return equal_at(render, a, b, depth, equal);
}

static tt_status equal_lists(struct jinja_render *render, const struct jinja_list *a,
                             const struct jinja_list *b, int depth, bool *equal)
{
    *equal = a->count == b->count;
    for (size_t i = 0; *equal && i < a->count; i++)
        TT_TRY(equal_elements(render, &a->elements[i], &b->elements[i], depth + 1, equal));
    return TT_OK;
}

static tt_status equal_dicts(struct jinja_render *render, const struct jinja_dict *a,
                             const struct jinja_dict *b, int depth, bool *equal)
{
    *equal = a->count == b->count;
    for (size_t i = 0; *equal && i < a->count; i++) {
        const struct jinja_value *other;
        TT_TRY(jinja_dict_find(render, b, &a->entries[i].key, &other));
        *equal = other != NULL;
        if (*equal) TT_TRY(equal_elements(render, &a->entries[i].value, other, depth + 1, equal));
    }
    return TT_OK;
}

static tt_status equal_at(struct jinja_render *render, const struct jinja_value *a,
                          const struct jinja_value *b, int depth, bool *equal)
{
    TT_TRY(enter_values(render, depth));
    *equal = false;
    if (jinja_is_number(a) && jinja_is_number(b)) {
        if (a->type == JINJA_HUGE && b->type == JINJA_HUGE)
            *equal = order_texts(a, b) == 0;
        else if (a->type == JINJA_HUGE || b->type == JINJA_HUGE)
            *equal = false;
        else
            *equal = order_numbers(a, b) == 0;
        if ((a->type == JINJA_HUGE && b->type == JINJA_FLOAT) ||
            (b->type == JINJA_HUGE && a->type == JINJA_FLOAT))
            return jinja_fail(render, "integers beyond 64 bits are not supported here");
        return TT_OK;
    }
    if (a->type != b->type) return TT_OK;
    switch (a->type) {
    case JINJA_UNDEFINED:
    case JINJA_NONE:
        *equal = true;
        return TT_OK;
    case JINJA_TEXT:
        TT_TRY(jinja_charge(render, a->text->bytes / 64));
        *equal = a->text->bytes == b->text->bytes && order_texts(a, b) == 0;
        return TT_OK;
    case JINJA_LIST:
    case JINJA_TUPLE:
        return equal_lists(render, a->list, b->list, depth, equal);
    case JINJA_DICT:
        return equal_dicts(render, a->dict, b->dict, depth, equal);
    case JINJA_RANGE:
        *equal = a->range->count == b->range->count &&
                 (a->range->count == 0 || (a->range->start == b->range->start &&
                                           (a->range->count == 1 || a->range->step == b->range->step)));
        return TT_OK;
    case JINJA_VIEW:
    case JINJA_METHOD:
        return jinja_fail(render, "comparing two '%s' objects is not supported", jinja_type_name(a));
    case JINJA_FUNCTION:
        *equal = a->integer == b->integer;
        return TT_OK;
    default:
        *equal = a->dict == b->dict;
        return TT_OK; /* the same object */
    }
}

tt_status jinja_equal(struct jinja_render *render, const struct jinja_value *a, const struct jinja_value *b,
                      bool *equal)
{
    return equal_at(render, a, b, 0, equal);
}

static tt_status order_at(struct jinja_render *render, const struct jinja_value *a,
                          const struct jinja_value *b, const char *sign, int depth, int *order)
{
    TT_TRY(enter_values(render, depth));
    if (a->type == JINJA_UNDEFINED) return jinja_fail_undefined(render, a);
    if (b->type == JINJA_UNDEFINED) return jinja_fail_undefined(render, b);
    if (a->type == JINJA_HUGE || b->type == JINJA_HUGE)
        return jinja_fail(render, "integers beyond 64 bits are not supported here");
    if (jinja_is_number(a) && jinja_is_number(b)) {
        *order = order_numbers(a, b);
        return TT_OK;
    }
    if (a->type == JINJA_TEXT && b->type == JINJA_TEXT) {
        TT_TRY(jinja_charge(render, a->text->bytes / 64));
        *order = order_texts(a, b);
        return TT_OK;
    }
    if (a->type != b->type || (a->type != JINJA_LIST && a->type != JINJA_TUPLE))
        return jinja_fail(render, "'%s' not supported between instances of '%s' and '%s'", sign,
                          jinja_type_name(a), jinja_type_name(b));
    for (size_t i = 0; i < a->list->count && i < b->list->count; i++) {
        bool equal;
        TT_TRY(equal_elements(render, &a->list->elements[i], &b->list->elements[i], depth + 1, &equal));
        if (!equal)
            return order_at(render, &a->list->elements[i], &b->list->elements[i], sign, depth + 1, order);
    }
    *order = (a->list->count > b->list->count) - (a->list->count < b->list->count);
    return TT_OK;
}

tt_status jinja_order(struct jinja_render *render, const struct jinja_value *a, const struct jinja_value *b,
                      const char *sign, int *order)
{
    return order_at(render, a, b, sign, 0, order);
}

tt_status jinja_contains(struct jinja_render *render, const struct jinja_value *a,
                         const struct jinja_value *b, bool *found)
{
    *found = false;
    if (b->type == JINJA_TEXT) {
        if (a->type == JINJA_UNDEFINED || a->type != JINJA_TEXT)
            return jinja_fail(render, "'in <string>' requires string as left operand, not %s",
                              jinja_type_name(a));
        TT_TRY(jinja_charge(render, b->text->bytes / 64));
        *found = jinja_find(jinja_span(b), jinja_span(a), 0) != SIZE_MAX;
        return TT_OK;
    }
    if (b->type == JINJA_DICT || (b->type == JINJA_VIEW && b->kind == JINJA_KEYS)) {
        const struct jinja_value *value;
        TT_TRY(jinja_dict_find(render, b->dict, a, &value));
        *found = value != NULL;
        return TT_OK;
    }
    struct jinja_iterator iterator;
    if (!jinja_is_iterable(b))
        return jinja_fail(render, "argument of type '%s' is not iterable", jinja_type_name(b));
    TT_TRY(jinja_iterate(render, b, &iterator));
    for (bool more = true; !*found;) {
        struct jinja_value element;
        TT_TRY(jinja_next(render, &iterator, &element, &more));
        if (!more) break;
        TT_TRY(equal_elements(render, a, &element, 0, found));
    }
    return TT_OK;
}
