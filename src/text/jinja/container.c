/* Lists, dicts, and iteration over anything. */
#include <string.h>

#include "text/jinja/render.h"

/* ---- Lists ---- */

tt_status jinja_new_list(struct jinja_render *render, size_t count, bool tuple, struct jinja_value *out)
{
    struct jinja_list *list = jinja_alloc(render, sizeof *list);
    if (list == NULL) return TT_ERR_MEMORY;
    list->elements = jinja_alloc(render, count * sizeof *list->elements);
    if (list->elements == NULL) return TT_ERR_MEMORY;
    list->count = count;
    *out = (struct jinja_value){.type = tuple ? JINJA_TUPLE : JINJA_LIST, .list = list};
    return TT_OK;
}

tt_status jinja_list_append(struct jinja_render *render, struct jinja_list *list, size_t *capacity,
                            struct jinja_value value)
{
    if (list->count >= *capacity) {
        size_t grown_capacity = list->count < 4 ? 8 : list->count * 2;
        struct jinja_value *grown = jinja_alloc(render, grown_capacity * sizeof *grown);
        if (grown == NULL) return TT_ERR_MEMORY;
        if (list->count > 0) memcpy(grown, list->elements, list->count * sizeof *grown);
        list->elements = grown;
        *capacity = grown_capacity;
    }
    list->elements[list->count++] = value;
    return TT_OK;
}

/* ---- Dicts ---- */

bool jinja_is_hashable(const struct jinja_value *value)
{
    if (value->type == JINJA_LIST || value->type == JINJA_DICT || value->type == JINJA_VIEW) return false;
    if (value->type == JINJA_TUPLE)
        for (size_t i = 0; i < value->list->count; i++)
            if (!jinja_is_hashable(&value->list->elements[i])) return false;
    return true;
}

static uint64_t hash_bytes(const char *data, size_t bytes)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < bytes; i++) hash = (hash ^ (unsigned char)data[i]) * 0x100000001b3u;
    return hash ^ hash >> 32;
}

/* Equal values have equal hashes: of numbers only those that a double holds differ. */
static uint64_t hash_of(const struct jinja_value *value)
{
    double number = 0;
    if (value->type == JINJA_TEXT || value->type == JINJA_HUGE)
        return hash_bytes(value->text->data, value->text->bytes);
    if (jinja_is_int(value)) number = (double)jinja_int_of(value);
    if (value->type == JINJA_FLOAT) number = value->real;
    if (number == 0) number = 0; /* -0.0 equals 0 */
    char bytes[sizeof number];
    memcpy(bytes, &number, sizeof number);
    return hash_bytes(bytes, sizeof bytes);
}

/* Keys are compared without errors: those that are not comparable differ. */
static bool same_key(struct jinja_render *render, const struct jinja_value *a, const struct jinja_value *b,
                     bool *same)
{
    *same = false;
    if (a->type == JINJA_TEXT || b->type == JINJA_TEXT) {
        *same = a->type == b->type && a->text->bytes == b->text->bytes &&
                memcmp(a->text->data, b->text->data, a->text->bytes) == 0;
        return true;
    }
    return jinja_equal(render, a, b, same) == TT_OK;
}

static tt_status find_entry(struct jinja_render *render, const struct jinja_dict *dict,
                            const struct jinja_value *key, size_t *at)
{
    bool same = false;
    size_t visited = 0;
    *at = SIZE_MAX;
    if (dict->index == NULL) {
        for (size_t i = 0; i < dict->count; i++) {
            if (!same_key(render, key, &dict->entries[i].key, &same)) return TT_ERR_DATA;
            if (!same) continue;
            *at = i;
            return TT_OK;
        }
        return TT_OK;
    }
    for (size_t slot = hash_of(key) & (dict->slots - 1); dict->index[slot] != 0;
         slot = (slot + 1) & (dict->slots - 1)) {
        size_t entry = dict->index[slot] - 1;
        visited++;
        if (!same_key(render, key, &dict->entries[entry].key, &same)) return TT_ERR_DATA;
        if (same) {
            *at = entry;
            break;
        }
    }
    return jinja_charge(render, visited);
}

tt_status jinja_dict_find(struct jinja_render *render, const struct jinja_dict *dict,
                          const struct jinja_value *key, const struct jinja_value **out)
{
    size_t at;
    if (!jinja_is_hashable(key)) return jinja_fail(render, "unhashable type: '%s'", jinja_type_name(key));
    TT_TRY(find_entry(render, dict, key, &at));
    *out = at != SIZE_MAX ? &dict->entries[at].value : NULL;
    return TT_OK;
}

const struct jinja_value *jinja_dict_get(const struct jinja_dict *dict, const char *key, size_t bytes)
{
    if (dict->index == NULL) {
        for (size_t i = 0; i < dict->count; i++) {
            const struct jinja_value *known = &dict->entries[i].key;
            if (known->type == JINJA_TEXT && known->text->bytes == bytes &&
                memcmp(known->text->data, key, bytes) == 0)
                return &dict->entries[i].value;
        }
        return NULL;
    }
    size_t slot = hash_bytes(key, bytes) & (dict->slots - 1);
    for (; dict->index[slot] != 0; slot = (slot + 1) & (dict->slots - 1)) {
        const struct jinja_entry *entry = &dict->entries[dict->index[slot] - 1];
        if (entry->key.type == JINJA_TEXT && entry->key.text->bytes == bytes &&
            memcmp(entry->key.text->data, key, bytes) == 0)
            return &entry->value;
    }
    return NULL;
}

static void index_entry(struct jinja_dict *dict, size_t entry)
{
    size_t slot = hash_of(&dict->entries[entry].key) & (dict->slots - 1);
    while (dict->index[slot] != 0) slot = (slot + 1) & (dict->slots - 1);
    dict->index[slot] = (uint32_t)entry + 1;
}

static tt_status grow_dict(struct jinja_render *render, struct jinja_dict *dict)
{
    size_t capacity = dict->capacity == 0 ? 4 : dict->capacity * 2;
    struct jinja_entry *grown = jinja_alloc(render, capacity * sizeof *grown);
    if (grown == NULL) return TT_ERR_MEMORY;
    if (dict->count > 0) memcpy(grown, dict->entries, dict->count * sizeof *grown);
    dict->entries = grown;
    dict->capacity = capacity;
    if (capacity <= JINJA_UNINDEXED_MAX) return TT_OK;
    dict->slots = capacity * 2;
    dict->index = jinja_alloc(render, dict->slots * sizeof *dict->index);
    if (dict->index == NULL) return TT_ERR_MEMORY;
    for (size_t i = 0; i < dict->count; i++) index_entry(dict, i);
    return TT_OK;
}

tt_status jinja_new_dict(struct jinja_render *render, struct jinja_value *out)
{
    struct jinja_dict *dict = jinja_alloc(render, sizeof *dict);
    if (dict == NULL) return TT_ERR_MEMORY;
    *out = (struct jinja_value){.type = JINJA_DICT, .dict = dict};
    return TT_OK;
}

tt_status jinja_dict_set(struct jinja_render *render, struct jinja_dict *dict, struct jinja_value key,
                         struct jinja_value value)
{
    size_t at;
    if (!jinja_is_hashable(&key)) return jinja_fail(render, "unhashable type: '%s'", jinja_type_name(&key));
    TT_TRY(find_entry(render, dict, &key, &at));
    if (at != SIZE_MAX) {
        dict->entries[at].value = value;
        return TT_OK;
    }
    if (dict->count == dict->capacity) TT_TRY(grow_dict(render, dict));
    dict->entries[dict->count++] = (struct jinja_entry){key, value};
    if (dict->index != NULL) index_entry(dict, dict->count - 1);
    return TT_OK;
}

/* ---- Iteration ---- */

bool jinja_is_iterable(const struct jinja_value *value)
{
    switch (value->type) {
    case JINJA_UNDEFINED:
    case JINJA_TEXT:
    case JINJA_LIST:
    case JINJA_TUPLE:
    case JINJA_DICT:
    case JINJA_VIEW:
    case JINJA_RANGE:
    case JINJA_ITERATOR:
    case JINJA_LOOP:
        return true;
    default:
        return false;
    }
}

tt_status jinja_iterate(struct jinja_render *render, const struct jinja_value *value,
                        struct jinja_iterator *iterator)
{
    if (value->type == JINJA_LOOP) return jinja_fail(render, "iterating over 'loop' is not supported");
    if (!jinja_is_iterable(value))
        return jinja_fail(render, "'%s' object is not iterable", jinja_type_name(value));
    *iterator = (struct jinja_iterator){.source = *value};
    return TT_OK;
}

static tt_status next_character(struct jinja_render *render, struct jinja_iterator *iterator,
                                struct jinja_value *out)
{
    const struct jinja_text *text = iterator->source.text;
    size_t length;
    jinja_point_at(text->data + iterator->at, text->bytes - iterator->at, &length);
    TT_TRY(jinja_part(render, &iterator->source, iterator->at, iterator->at + length, out));
    out->is_markup = false;
    iterator->at += length;
    return TT_OK;
}

static tt_status view_element(struct jinja_render *render, enum jinja_view view,
                              const struct jinja_entry *entry, struct jinja_value *out)
{
    if (view != JINJA_ITEMS) {
        *out = view == JINJA_KEYS ? entry->key : entry->value;
        return TT_OK;
    }
    TT_TRY(jinja_new_list(render, 2, true, out));
    out->list->elements[0] = entry->key;
    out->list->elements[1] = entry->value;
    return TT_OK;
}

tt_status jinja_next(struct jinja_render *render, struct jinja_iterator *iterator, struct jinja_value *out,
                     bool *more)
{
    const struct jinja_value *source = &iterator->source;
    TT_TRY(jinja_charge(render, 1));
    *more = true;
    switch (source->type) {
    case JINJA_TEXT:
        if (iterator->at < source->text->bytes) return next_character(render, iterator, out);
        break;
    case JINJA_LIST:
    case JINJA_TUPLE:
        if (iterator->at >= source->list->count) break;
        *out = source->list->elements[iterator->at++];
        return TT_OK;
    case JINJA_DICT:
    case JINJA_VIEW:
        if (iterator->at >= source->dict->count) break;
        return view_element(render, source->type == JINJA_DICT ? JINJA_KEYS : (enum jinja_view)source->kind,
                            &source->dict->entries[iterator->at++], out);
    case JINJA_RANGE:
        if (iterator->at >= (size_t)source->range->count) break;
        *out = jinja_integer(source->range->start + (int64_t)iterator->at++ * source->range->step);
        return TT_OK;
    case JINJA_ITERATOR:
        return jinja_next(render, source->iterator, out, more);
    default:
        break;
    }
    *more = false;
    return TT_OK;
}

tt_status jinja_collect(struct jinja_render *render, const struct jinja_value *value,
                        struct jinja_value *list)
{
    struct jinja_iterator iterator;
    struct jinja_value element, made;
    size_t capacity = 0;
    bool more;
    TT_TRY(jinja_iterate(render, value, &iterator));
    TT_TRY(jinja_new_list(render, 0, false, &made));
    made.origin = value->type == JINJA_LIST || value->type == JINJA_TUPLE ? value->origin : 0;
    for (;;) {
        TT_TRY(jinja_next(render, &iterator, &element, &more));
        if (!more) break;
        TT_TRY(jinja_list_append(render, made.list, &capacity, element));
    }
    *list = made;
    return TT_OK;
}

tt_status jinja_new_iterator(struct jinja_render *render, struct jinja_value list, struct jinja_value *out)
{
    struct jinja_iterator *iterator = jinja_alloc(render, sizeof *iterator);
    if (iterator == NULL) return TT_ERR_MEMORY;
    iterator->source = list;
    *out = (struct jinja_value){.type = JINJA_ITERATOR, .iterator = iterator};
    return TT_OK;
}
