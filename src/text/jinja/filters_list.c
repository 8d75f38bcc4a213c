/* Filters over lists, dicts and all other iterable values. */
#include <string.h>

#include "text/jinja/filters.h"
#include "text/jinja/strings.h"

/* One step of a path: the next name up to a dot; digits are an index. */
static tt_status path_step(struct jinja_render *render, const struct jinja_value *item,
                           const struct jinja_value *path, size_t from, size_t to, struct jinja_value *out)
{
    struct jinja_value key;
    int64_t index = 0;
    bool is_index = to > from && to - from < 18;
    for (size_t i = from; i < to; i++) {
        char c = path->text->data[i];
        is_index = is_index && c >= '0' && c <= '9';
        if (is_index) index = index * 10 + (c - '0');
    }
    key = jinja_integer(index);
    if (!is_index) TT_TRY(jinja_part(render, path, from, to, &key));
    return jinja_item(render, item, &key, out);
}

tt_status jinja_item_path(struct jinja_render *render, const struct jinja_value *item,
                          const struct jinja_value *path, struct jinja_value *out)
{
    struct jinja_value at = *item;
    if (jinja_is_int(path)) return jinja_item(render, item, path, out);
    if (path->type == JINJA_TEXT) {
        struct tt_span names = jinja_span(path);
        for (size_t from = 0; from <= names.bytes;) {
            size_t to = jinja_find(names, tt_span_of("."), from);
            if (to == SIZE_MAX) to = names.bytes;
            TT_TRY(path_step(render, &at, path, from, to, &at));
            from = to + 1;
        }
    } else if (path->type != JINJA_MISSING && path->type != JINJA_NONE) {
        return jinja_fail(render, "an attribute is a text or an integer, not '%s'", jinja_type_name(path));
    }
    *out = at;
    return TT_OK;
}

tt_status jinja_filter_items(struct jinja_filter_call *filter, struct jinja_value *out)
{
    struct jinja_value view = *filter->value, list;
    if (view.type != JINJA_UNDEFINED && view.type != JINJA_DICT)
        return jinja_fail(filter->render, "can only get item pairs from a mapping");
    if (view.type == JINJA_DICT) {
        view.type = JINJA_VIEW;
        view.kind = JINJA_ITEMS;
    }
    TT_TRY(jinja_collect(filter->render, &view, &list));
    return jinja_new_iterator(filter->render, list, out);
}

tt_status jinja_filter_list(struct jinja_filter_call *filter, struct jinja_value *out)
{
    return jinja_collect(filter->render, filter->value, out);
}

tt_status jinja_filter_first(struct jinja_filter_call *filter, struct jinja_value *out)
{
    struct jinja_iterator iterator;
    bool more;
    TT_TRY(jinja_iterate(filter->render, filter->value, &iterator));
    TT_TRY(jinja_next(filter->render, &iterator, out, &more));
    if (!more) *out = jinja_undefined(NULL, NULL);
    return TT_OK;
}

tt_status jinja_filter_last(struct jinja_filter_call *filter, struct jinja_value *out)
{
    struct jinja_value list, index = jinja_integer(-1);
    if (filter->value->type == JINJA_ITERATOR)
        return jinja_fail(filter->render, "'generator' object is not reversible");
    if (filter->value->type == JINJA_TEXT) {
        TT_TRY(jinja_item(filter->render, filter->value, &index, out));
        return TT_OK;
    }
    TT_TRY(jinja_collect(filter->render, filter->value, &list));
    *out = list.list->count > 0 ? list.list->elements[list.list->count - 1] : jinja_undefined(NULL, NULL);
    return TT_OK;
}

tt_status jinja_filter_reverse(struct jinja_filter_call *filter, struct jinja_value *out)
{
    struct jinja_value made, step = jinja_integer(-1), reversed;
    if (filter->value->type == JINJA_TEXT)
        return jinja_slice(filter->render, filter->value, NULL, NULL, &step, out);
    TT_TRY(jinja_collect(filter->render, filter->value, &made));
    TT_TRY(jinja_slice(filter->render, &made, NULL, NULL, &step, &reversed));
    if (filter->value->type == JINJA_ITERATOR) {
        *out = reversed;
        return TT_OK;
    }
    return jinja_new_iterator(filter->render, reversed, out);
}

/* ---- map, select, reject ---- */

/* The arguments from place `from` on. */
static struct jinja_call rest_of(const struct jinja_call *call, size_t from)
{
    struct jinja_call rest = *call;
    size_t skipped = from < call->count ? from : call->count;
    if (skipped > 0) rest.positional += skipped; /* without arguments there is no array */
    rest.count -= skipped;
    return rest;
}

static tt_status map_attribute(struct jinja_filter_call *filter, const struct jinja_value *item,
                               struct jinja_value *out)
{
    const struct jinja_value *otherwise = jinja_dict_get(&filter->call->named, "default", 7);
    struct jinja_value at = *item;
    const struct jinja_value *path = jinja_dict_get(&filter->call->named, "attribute", 9);
    bool replaces = otherwise != NULL && otherwise->type != JINJA_NONE;
    if (replaces && path->type == JINJA_TEXT && jinja_find(jinja_span(path), tt_span_of("."), 0) != SIZE_MAX)
        return jinja_fail(filter->render,
                          "map() with a default for a path of several names is not supported");
    TT_TRY(jinja_item_path(filter->render, item, path, &at));
    *out = replaces && at.type == JINJA_UNDEFINED ? *otherwise : at;
    return TT_OK;
}

static tt_status check_map(struct jinja_filter_call *filter, bool *by_attribute, int *id)
{
    struct jinja_call *call = filter->call;
    *by_attribute = call->count == 0 && jinja_dict_get(&call->named, "attribute", 9) != NULL;
    if (*by_attribute) {
        size_t known = jinja_dict_get(&call->named, "default", 7) != NULL ? 2 : 1;
        if (call->named.count > known)
            return jinja_fail(filter->render, "map() got an unexpected keyword argument");
        return TT_OK;
    }
    if (call->count == 0) return jinja_fail(filter->render, "map() requires a filter argument");
    if (!jinja_is_text(&call->positional[0]))
        return jinja_fail(filter->render, "the name of a filter is a text");
    *id = jinja_filter_id(jinja_span(&call->positional[0]));
    if (*id >= 0) return TT_OK;
    return jinja_fail(filter->render, "there is no filter '%.*s'", (int)call->positional[0].text->bytes,
                      call->positional[0].text->data);
}

/* map, select and reject may call each other through their arguments: they count as nested evaluations. */
static tt_status enter(struct jinja_render *render)
{
    if (++render->depth <= TT_JINJA_DEPTH_MAX) return TT_OK;
    return jinja_fail(render, "more than %d evaluations within each other", TT_JINJA_DEPTH_MAX);
}

tt_status jinja_filter_map(struct jinja_filter_call *filter, struct jinja_value *out)
{
    struct jinja_render *render = filter->render;
    struct jinja_iterator iterator;
    struct jinja_value list;
    size_t capacity = 0;
    bool by_attribute, more;
    int id = -1;
    TT_TRY(jinja_new_list(render, 0, false, &list));
    if (!jinja_truth(filter->value)) return jinja_new_iterator(render, list, out);
    TT_TRY(check_map(filter, &by_attribute, &id));
    TT_TRY(jinja_iterate(render, filter->value, &iterator));
    TT_TRY(enter(render));
    for (;;) {
        struct jinja_value item, made;
        struct jinja_call rest = rest_of(filter->call, 1);
        TT_TRY(jinja_next(render, &iterator, &item, &more));
        if (!more) break;
        TT_TRY(by_attribute ? map_attribute(filter, &item, &made)
                            : jinja_apply_filter(render, id, &item, &rest, &made));
        TT_TRY(jinja_list_append(render, list.list, &capacity, made));
    }
    render->depth--;
    return jinja_new_iterator(render, list, out);
}

struct selection {
    bool by_attribute, keeps; /* what passes */
    int test;                 /* -1: truth */
    struct jinja_call arguments;
};

static tt_status prepare_selection(struct jinja_filter_call *filter, struct selection *selection)
{
    struct jinja_call *call = filter->call;
    size_t place = strstr(filter->name, "attr") != NULL ? 1 : 0;
    *selection = (struct selection){.by_attribute = place == 1, .keeps = filter->name[0] == 's', .test = -1};
    if (call->count < place) return jinja_fail(filter->render, "missing parameter for attribute name");
    selection->arguments = rest_of(call, place + 1);
    if (call->count <= place) return TT_OK;
    const struct jinja_value *name = &call->positional[place];
    if (!jinja_is_text(name)) return jinja_fail(filter->render, "the name of a test is a text");
    selection->test = jinja_test_id(jinja_span(name));
    if (selection->test >= 0) return TT_OK;
    return jinja_fail(filter->render, "there is no test '%.*s'", (int)name->text->bytes, name->text->data);
}

static tt_status passes(struct jinja_filter_call *filter, struct selection *selection,
                        const struct jinja_value *item, bool *out)
{
    struct jinja_value value = *item;
    if (selection->by_attribute)
        TT_TRY(jinja_item_path(filter->render, item, &filter->call->positional[0], &value));
    bool result = jinja_truth(&value);
    if (selection->test >= 0)
        TT_TRY(jinja_apply_test(filter->render, selection->test, &value, &selection->arguments, &result));
    *out = result == selection->keeps;
    return TT_OK;
}

tt_status jinja_filter_select(struct jinja_filter_call *filter, struct jinja_value *out)
{
    struct jinja_render *render = filter->render;
    struct jinja_iterator iterator;
    struct jinja_value list, item;
    struct selection selection;
    size_t capacity = 0;
    bool more, keeps;
    TT_TRY(jinja_new_list(render, 0, false, &list));
    if (!jinja_truth(filter->value)) return jinja_new_iterator(render, list, out);
    TT_TRY(prepare_selection(filter, &selection));
    TT_TRY(jinja_iterate(render, filter->value, &iterator));
    for (;;) {
        TT_TRY(jinja_next(render, &iterator, &item, &more));
        if (!more) break;
        TT_TRY(passes(filter, &selection, &item, &keeps));
        if (keeps) TT_TRY(jinja_list_append(render, list.list, &capacity, item));
    }
    return jinja_new_iterator(render, list, out);
}

/* ---- Order ---- */

/* The value by which an item is compared. */
static tt_status key_of(struct jinja_filter_call *filter, const struct jinja_value *item,
                        const struct jinja_value *attribute, bool by_case, struct jinja_value *out)
{
    struct jinja_value key;
    TT_TRY(jinja_item_path(filter->render, item, attribute, &key));
    if (!by_case && key.type == JINJA_TEXT) return jinja_in_case(filter->render, &key, JINJA_LOWER, out);
    *out = key;
    return TT_OK;
}

struct keyed {
    struct jinja_value key, item;
};

/* Merge sort: stable, also in reverse. */
static tt_status sort(struct jinja_render *render, struct keyed *items, struct keyed *spare, size_t count,
                      bool reverse)
{
    if (count < 2) return TT_OK;
    size_t half = count / 2, left = 0, right = half, made = 0;
    TT_TRY(sort(render, items, spare, half, reverse));
    TT_TRY(sort(render, items + half, spare, count - half, reverse));
    while (left < half && right < count) {
        int order;
        const struct jinja_value *a = &items[right].key, *b = &items[left].key;
        TT_TRY(jinja_order(render, reverse ? b : a, reverse ? a : b, "<", &order));
        spare[made++] = order == -1 ? items[right++] : items[left++];
    }
    while (left < half) spare[made++] = items[left++];
    memcpy(items, spare, made * sizeof *items);
    return TT_OK;
}

static tt_status sort_list(struct jinja_filter_call *filter, const struct jinja_list *items,
                           struct keyed *keyed, bool reverse, struct jinja_value *out)
{
    TT_TRY(sort(filter->render, keyed, keyed + items->count, items->count, reverse));
    TT_TRY(jinja_new_list(filter->render, items->count, false, out));
    for (size_t i = 0; i < items->count; i++) out->list->elements[i] = keyed[i].item;
    return TT_OK;
}

tt_status jinja_filter_sort(struct jinja_filter_call *filter, struct jinja_value *out)
{
    struct jinja_value list, paths, path = filter->arguments[2];
    bool by_case = jinja_flag(filter, 1, false);
    TT_TRY(jinja_collect(filter->render, filter->value, &list));
    struct keyed *keyed = jinja_alloc(filter->render, 2 * list.list->count * sizeof *keyed);
    if (keyed == NULL) return TT_ERR_MEMORY;
    /* "a,b": by several members, as lists. */
    if (path.type == JINJA_TEXT) {
        struct jinja_value comma;
        TT_TRY(jinja_text_of(filter->render, ",", 1, 0, &comma));
        TT_TRY(jinja_split(filter->render, &path, &comma, -1, false, &paths));
    } else {
        TT_TRY(jinja_new_list(filter->render, 1, false, &paths));
        paths.list->elements[0] = path;
    }
    for (size_t i = 0; i < list.list->count; i++) {
        keyed[i].item = list.list->elements[i];
        TT_TRY(jinja_new_list(filter->render, paths.list->count, false, &keyed[i].key));
        for (size_t j = 0; j < paths.list->count; j++)
            TT_TRY(key_of(filter, &keyed[i].item, &paths.list->elements[j], by_case,
                          &keyed[i].key.list->elements[j]));
    }
    return sort_list(filter, list.list, keyed, jinja_flag(filter, 0, false), out);
}

tt_status jinja_filter_dictsort(struct jinja_filter_call *filter, struct jinja_value *out)
{
    struct jinja_value view = *filter->value, list, place = jinja_integer(0);
    const struct jinja_value *by = &filter->arguments[1];
    if (view.type != JINJA_DICT)
        return jinja_fail(filter->render, "'%s' object has no attribute 'items'", jinja_type_name(&view));
    if (jinja_given(filter, 1)) {
        struct tt_span name = jinja_is_text(by) ? jinja_span(by) : (struct tt_span){"", 0};
        if (!tt_span_equals(name, "key") && !tt_span_equals(name, "value"))
            return jinja_fail(filter->render, "you can only sort by either \"key\" or \"value\"");
        place.integer = tt_span_equals(name, "value");
    }
    view.type = JINJA_VIEW;
    view.kind = JINJA_ITEMS;
    TT_TRY(jinja_collect(filter->render, &view, &list));
    struct keyed *keyed = jinja_alloc(filter->render, 2 * list.list->count * sizeof *keyed);
    if (keyed == NULL) return TT_ERR_MEMORY;
    for (size_t i = 0; i < list.list->count; i++) {
        keyed[i].item = list.list->elements[i];
        TT_TRY(key_of(filter, &keyed[i].item, &place, jinja_flag(filter, 0, false), &keyed[i].key));
    }
    return sort_list(filter, list.list, keyed, jinja_flag(filter, 2, false), out);
}

tt_status jinja_filter_unique(struct jinja_filter_call *filter, struct jinja_value *out)
{
    struct jinja_render *render = filter->render;
    struct jinja_value list, seen, made, key;
    size_t capacity = 0;
    TT_TRY(jinja_collect(render, filter->value, &list));
    TT_TRY(jinja_new_dict(render, &seen));
    TT_TRY(jinja_new_list(render, 0, false, &made));
    for (size_t i = 0; i < list.list->count; i++) {
        const struct jinja_value *known;
        TT_TRY(key_of(filter, &list.list->elements[i], &filter->arguments[1], jinja_flag(filter, 0, false),
                      &key));
        TT_TRY(jinja_dict_find(render, seen.dict, &key, &known));
        if (known != NULL) continue;
        TT_TRY(jinja_dict_set(render, seen.dict, key, jinja_none()));
        TT_TRY(jinja_list_append(render, made.list, &capacity, list.list->elements[i]));
    }
    return jinja_new_iterator(render, made, out);
}

tt_status jinja_filter_extreme(struct jinja_filter_call *filter, struct jinja_value *out)
{
    struct jinja_value list, best = {0}, key;
    bool by_case = jinja_flag(filter, 0, false), is_least = strcmp(filter->name, "min") == 0;
    TT_TRY(jinja_collect(filter->render, filter->value, &list));
    *out = jinja_undefined(NULL, NULL);
    for (size_t i = 0; i < list.list->count; i++) {
        int order = is_least ? -1 : 1;
        TT_TRY(key_of(filter, &list.list->elements[i], &filter->arguments[1], by_case, &key));
        if (i > 0) TT_TRY(jinja_order(filter->render, &key, &best, is_least ? "<" : ">", &order));
        if (order != (is_least ? -1 : 1)) continue;
        best = key;
        *out = list.list->elements[i];
    }
    return TT_OK;
}

tt_status jinja_filter_sum(struct jinja_filter_call *filter, struct jinja_value *out)
{
    struct jinja_value list, member, total = jinja_given(filter, 1) ? filter->arguments[1] : jinja_integer(0);
    TT_TRY(jinja_collect(filter->render, filter->value, &list));
    if (total.type == JINJA_TEXT) return jinja_fail(filter->render, "sum() can't sum strings");
    for (size_t i = 0; i < list.list->count; i++) {
        TT_TRY(jinja_item_path(filter->render, &list.list->elements[i], &filter->arguments[0], &member));
        TT_TRY(jinja_binary(filter->render, '+', &total, &member, &total));
    }
    *out = total;
    return TT_OK;
}
