/* Values of base/json.h: reading, making and comparing them. */
#include <math.h>
#include <string.h>
#include <sys/random.h>

#include "base/alloc.h"
#include "base/json_value.h"
#include "base/number.h"
#include "base/utf8.h"

/* ---- The index of an object ---- */

static uint64_t rotate(uint64_t x, int by)
{
    return x << by | x >> (64 - by);
}

static void sip_round(uint64_t v[4])
{
    v[0] += v[1], v[1] = rotate(v[1], 13) ^ v[0], v[0] = rotate(v[0], 32);
    v[2] += v[3], v[3] = rotate(v[3], 16) ^ v[2];
    v[0] += v[3], v[3] = rotate(v[3], 21) ^ v[0];
    v[2] += v[1], v[1] = rotate(v[1], 17) ^ v[2], v[2] = rotate(v[2], 32);
}

/* SipHash-1-3 (Aumasson, Bernstein: "SipHash: a fast short-input PRF", 2012). */
uint64_t json_hash_key(const uint64_t seed[2], const char *key, size_t bytes)
{
    uint64_t v[4] = {seed[0] ^ 0x736f6d6570736575u, seed[1] ^ 0x646f72616e646f6du,
                     seed[0] ^ 0x6c7967656e657261u, seed[1] ^ 0x7465646279746573u};
    size_t at = 0;
    for (; at + 8 <= bytes; at += 8) {
        uint64_t word;
        memcpy(&word, key + at, 8);
        v[3] ^= word;
        sip_round(v);
        v[0] ^= word;
    }
    uint64_t last = (uint64_t)bytes << 56;
    for (size_t i = at; i < bytes; i++) last |= (uint64_t)(unsigned char)key[i] << (8 * (i - at));
    v[3] ^= last;
    sip_round(v);
    v[0] ^= last;
    v[2] ^= 0xff;
    for (int i = 0; i < 3; i++) sip_round(v);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

static bool has_key(const struct json_member *member, const char *key, size_t key_bytes)
{
    return member->key_bytes == key_bytes && memcmp(member->key, key, key_bytes) == 0;
}

/* The slot of the key, or the empty slot for it. */
static uint32_t find_slot(const struct json_members *members, const char *key, size_t key_bytes)
{
    uint32_t mask = members->slots - 1;
    uint32_t slot = (uint32_t)json_hash_key(members->seed, key, key_bytes) & mask;
    while (members->index[slot] != 0 && !has_key(&members->list[members->index[slot] - 1], key, key_bytes))
        slot = (slot + 1) & mask;
    return slot;
}

uint32_t json_index_slots(uint32_t count)
{
    uint32_t slots = 4 * JSON_UNINDEXED_MAX;
    while (slots < count * (uint64_t)2 && slots < UINT32_C(1) << 31) slots *= 2;
    return slots;
}

void json_make_seed(uint64_t seed[2], const void *address)
{
    /* The seed consists of addresses of this process where there is no source of entropy. */
    if (getentropy(seed, 2 * sizeof seed[0]) == 0) return;
    seed[0] = (uint64_t)(uintptr_t)address * 0x9e3779b97f4a7c15u;
    seed[1] = (uint64_t)(uintptr_t)&address;
}

uint32_t json_index_fill(struct json_members *members, uint32_t count)
{
    json_make_seed(members->seed, members->index);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t slot = find_slot(members, members->list[i].key, members->list[i].key_bytes);
        if (members->index[slot] != 0) return i;
        members->index[slot] = i + 1;
    }
    return count;
}

/* Index of the member, UINT32_MAX when there is none. */
static uint32_t find_member(const struct tt_json_value *object, const char *key, size_t key_bytes)
{
    const struct json_members *members = object->members;
    if (object->count > 0 && members->index != NULL) {
        uint32_t slot = members->index[find_slot(members, key, key_bytes)];
        return slot == 0 ? UINT32_MAX : slot - 1;
    }
    for (uint32_t i = 0; i < object->count; i++)
        if (has_key(&members->list[i], key, key_bytes)) return i;
    return UINT32_MAX;
}

/* ---- Reading ---- */

enum tt_json_type tt_json_type(const struct tt_json_value *value)
{
    return value != NULL ? (enum tt_json_type)value->type : TT_JSON_NULL;
}

static bool is(const struct tt_json_value *value, enum tt_json_type type)
{
    return value != NULL && value->type == type;
}

bool tt_json_is_null(const struct tt_json_value *value)
{
    return is(value, TT_JSON_NULL);
}

bool tt_json_is_bool(const struct tt_json_value *value)
{
    return is(value, TT_JSON_TRUE) || is(value, TT_JSON_FALSE);
}

bool tt_json_is_true(const struct tt_json_value *value)
{
    return is(value, TT_JSON_TRUE);
}

bool tt_json_is_false(const struct tt_json_value *value)
{
    return is(value, TT_JSON_FALSE);
}

bool tt_json_is_integer(const struct tt_json_value *value)
{
    return is(value, TT_JSON_INTEGER);
}

bool tt_json_is_number(const struct tt_json_value *value)
{
    return is(value, TT_JSON_INTEGER) || is(value, TT_JSON_REAL) || is(value, TT_JSON_HUGE);
}

bool tt_json_is_string(const struct tt_json_value *value)
{
    return is(value, TT_JSON_STRING);
}

bool tt_json_is_list(const struct tt_json_value *value)
{
    return is(value, TT_JSON_LIST);
}

bool tt_json_is_object(const struct tt_json_value *value)
{
    return is(value, TT_JSON_OBJECT);
}

int64_t tt_json_integer(const struct tt_json_value *value)
{
    return is(value, TT_JSON_INTEGER) ? value->integer : 0;
}

double tt_json_number(const struct tt_json_value *value)
{
    double number = 0;
    if (is(value, TT_JSON_INTEGER)) return (double)value->integer;
    if (is(value, TT_JSON_REAL)) return value->real;
    if (is(value, TT_JSON_HUGE)) (void)tt_parse_double_prefix(value->text, &number);
    return number;
}

const char *tt_json_text(const struct tt_json_value *value)
{
    return is(value, TT_JSON_STRING) && !value->has_nul ? value->text : NULL;
}

struct tt_span tt_json_span(const struct tt_json_value *value)
{
    return is(value, TT_JSON_STRING) ? (struct tt_span){value->text, value->count}
                                     : (struct tt_span){NULL, 0};
}

size_t tt_json_count(const struct tt_json_value *value)
{
    if (!is(value, TT_JSON_LIST) && !is(value, TT_JSON_OBJECT)) return 0;
    return value->is_outlined ? value->outlined->count : value->count;
}

const struct tt_json_value *tt_json_at(const struct tt_json_value *list, size_t index)
{
    return is(list, TT_JSON_LIST) && index < list->count ? &list->elements[index] : NULL;
}

const struct tt_json_value *tt_json_get(const struct tt_json_value *object, const char *key)
{
    return tt_json_get_span(object, tt_span_of(key));
}

const struct tt_json_value *tt_json_get_span(const struct tt_json_value *object, struct tt_span key)
{
    if (!is(object, TT_JSON_OBJECT)) return NULL;
    uint32_t found = find_member(object, key.data, key.bytes);
    return found == UINT32_MAX ? NULL : &object->members->list[found].value;
}

struct tt_json_member tt_json_member(const struct tt_json_value *object, size_t index)
{
    if (!is(object, TT_JSON_OBJECT) || index >= object->count)
        return (struct tt_json_member){{NULL, 0}, NULL};
    const struct json_member *member = &object->members->list[index];
    return (struct tt_json_member){{member->key, member->key_bytes}, &member->value};
}

bool tt_json_next_member(const struct tt_json_value *object, size_t *index, const char **key,
                         const struct tt_json_value **value)
{
    struct tt_json_member member = tt_json_member(object, *index);
    if (member.value == NULL) return false;
    *key = member.key.data;
    *value = member.value;
    (*index)++;
    return true;
}

static bool equal_members(const struct tt_json_value *a, const struct tt_json_value *b)
{
    for (uint32_t i = 0; i < a->count; i++) {
        const struct json_member *member = &a->members->list[i];
        uint32_t found = find_member(b, member->key, member->key_bytes);
        if (found == UINT32_MAX || !tt_json_equal(&member->value, &b->members->list[found].value))
            return false;
    }
    return true;
}

bool tt_json_equal(const struct tt_json_value *a, const struct tt_json_value *b)
{
    if (a == NULL || b == NULL || a->type != b->type) return false;
    switch ((enum tt_json_type)a->type) {
    case TT_JSON_NULL:
    case TT_JSON_FALSE:
    case TT_JSON_TRUE:
        return true;
    case TT_JSON_INTEGER:
        return a->integer == b->integer;
    case TT_JSON_REAL:
        return a->real == b->real || (isnan(a->real) && isnan(b->real));
    case TT_JSON_HUGE:
    case TT_JSON_STRING:
        return a->count == b->count && memcmp(a->text, b->text, a->count) == 0;
    case TT_JSON_LIST:
        if (a->count != b->count) return false;
        for (uint32_t i = 0; i < a->count; i++)
            if (!tt_json_equal(&a->elements[i], &b->elements[i])) return false;
        return true;
    case TT_JSON_OBJECT:
        return a->count == b->count && equal_members(a, b);
    }
    return false;
}

/* ---- Making ---- */

static struct tt_json_value *new_value(enum tt_json_type type)
{
    struct tt_json_value *value = tt_calloc(1, sizeof *value);
    if (value != NULL) value->type = (uint8_t)type;
    return value;
}

struct tt_json_value *tt_json_new_null(void)
{
    return new_value(TT_JSON_NULL);
}

struct tt_json_value *tt_json_new_bool(bool truth)
{
    return new_value(truth ? TT_JSON_TRUE : TT_JSON_FALSE);
}

struct tt_json_value *tt_json_new_integer(int64_t integer)
{
    struct tt_json_value *value = new_value(TT_JSON_INTEGER);
    if (value != NULL) value->integer = integer;
    return value;
}

struct tt_json_value *tt_json_new_real(double real)
{
    if (!isfinite(real)) return tt_json_new_null();
    struct tt_json_value *value = new_value(TT_JSON_REAL);
    if (value != NULL) value->real = real;
    return value;
}

/* Copies UTF-8 and replaces each invalid byte by U+FFFD; NULL when memory is exhausted. */
static char *copy_utf8(const char *text, size_t bytes, uint32_t *count)
{
    struct tt_str copy = {0};
    tt_status status = bytes < UINT32_MAX / 3
                           ? tt_str_append(&copy, "", 0)
                           : tt_fail(TT_ERR_MEMORY, "out of memory: a string of %zu bytes", bytes);
    for (size_t at = 0; at < bytes && status == TT_OK;) {
        size_t valid = tt_utf8_invalid_at(text + at, bytes - at);
        status = tt_str_append(&copy, text + at, valid);
        at += valid;
        if (at < bytes && status == TT_OK) status = tt_str_append_text(&copy, "\xef\xbf\xbd");
        if (at < bytes) at++;
    }
    if (status != TT_OK) {
        tt_str_deinit(&copy);
        return NULL;
    }
    *count = (uint32_t)copy.bytes;
    return copy.data;
}

static struct tt_json_value *new_text(enum tt_json_type type, const char *text, size_t bytes)
{
    struct tt_json_value *value = new_value(type);
    if (value == NULL) return NULL;
    value->text = copy_utf8(text, bytes, &value->count);
    if (value->text != NULL) {
        value->has_nul = memchr(text, 0, bytes) != NULL;
        return value;
    }
    tt_free(value);
    return NULL;
}

struct tt_json_value *tt_json_new_string(const char *text)
{
    if (text != NULL) return new_text(TT_JSON_STRING, text, strlen(text));
    (void)tt_fail(TT_ERR_INTERNAL, "no text for a JSON string");
    return NULL;
}

struct tt_json_value *tt_json_new_text(struct tt_span text)
{
    return new_text(TT_JSON_STRING, text.bytes > 0 ? text.data : "", text.bytes);
}

struct tt_json_value *tt_json_new_list(void)
{
    return new_value(TT_JSON_LIST);
}

struct tt_json_value *tt_json_new_object(void)
{
    return new_value(TT_JSON_OBJECT);
}

/* Releases the memory that a value on the heap owns. */
static void release_content(struct tt_json_value *value)
{
    if (value->in_arena) return;
    if (value->type == TT_JSON_STRING || value->type == TT_JSON_HUGE) tt_free(value->text);
    if (value->type == TT_JSON_LIST) {
        for (uint32_t i = 0; i < value->count; i++) release_content(&value->elements[i]);
        tt_free(value->elements);
    }
    if (value->type == TT_JSON_OBJECT && value->members != NULL) {
        for (uint32_t i = 0; i < value->count; i++) {
            tt_free(value->members->list[i].key);
            release_content(&value->members->list[i].value);
        }
        tt_free(value->members->list);
        tt_free(value->members->index);
        tt_free(value->members);
    }
}

void tt_json_release(struct tt_json_value *value)
{
    if (value == NULL || value->in_arena) return;
    release_content(value);
    tt_free(value);
}

/* Makes room for one more than `count`; arrays grow at powers of two. */
static int grow(void **array, uint32_t count, size_t element_bytes)
{
    if ((count & (count - 1)) != 0) return 0;
    if (count >= UINT32_MAX / 4) {
        (void)tt_fail(TT_ERR_MEMORY, "out of memory: a JSON value with %u members", (unsigned)count);
        return -1;
    }
    void *grown = tt_realloc(*array, count == 0 ? 1 : (size_t)count * 2, element_bytes);
    if (grown == NULL) return -1;
    *array = grown;
    return 0;
}

/* Whether `value` can be added to `container`. */
static bool can_add(const struct tt_json_value *container, enum tt_json_type type,
                    const struct tt_json_value *value)
{
    if (container == NULL || value == NULL) return false; /* their constructor has set the record */
    if (is(container, type) && !container->in_arena && !value->in_arena) return true;
    (void)tt_fail(TT_ERR_INTERNAL, "a JSON value cannot be changed: it is parsed, or of another type");
    return false;
}

/* The end of an addition that failed: the container lacks it. */
static int give_up(struct tt_json_value *container, struct tt_json_value *value)
{
    if (container != NULL && !container->in_arena) container->lacks = true;
    tt_json_release(value);
    return -1;
}

int tt_json_append(struct tt_json_value *list, struct tt_json_value *value)
{
    if (!can_add(list, TT_JSON_LIST, value) ||
        grow((void **)&list->elements, list->count, sizeof *list->elements) != 0)
        return give_up(list, value);
    list->elements[list->count++] = *value;
    list->lacks |= value->lacks;
    tt_free(value);
    return 0;
}

/* Extends the index to object->count members: the last one is new, or all are (`again`). */
static int update_index(struct tt_json_value *object, bool again)
{
    struct json_members *members = object->members;
    if (object->count <= JSON_UNINDEXED_MAX) {
        tt_free(members->index);
        members->index = NULL;
        return 0;
    }
    uint32_t slots = json_index_slots(object->count);
    if (!again && members->index != NULL && slots == members->slots) {
        const struct json_member *last = &members->list[object->count - 1];
        members->index[find_slot(members, last->key, last->key_bytes)] = object->count;
        return 0;
    }
    uint32_t *index = tt_calloc(slots, sizeof *index);
    if (index == NULL) return -1;
    tt_free(members->index);
    members->index = index;
    members->slots = slots;
    (void)json_index_fill(members, object->count);
    return 0;
}

static int add_member(struct tt_json_value *object, const char *key, size_t key_bytes,
                      struct tt_json_value value)
{
    if (object->members == NULL) object->members = tt_calloc(1, sizeof *object->members);
    if (object->members == NULL ||
        grow((void **)&object->members->list, object->count, sizeof *object->members->list))
        return -1;
    struct json_member member = {.value = value};
    member.key = copy_utf8(key, key_bytes, &member.key_bytes);
    if (member.key == NULL) return -1;
    object->members->list[object->count++] = member;
    if (update_index(object, false) == 0) return 0;
    object->count--;
    tt_free(member.key);
    return -1;
}

int tt_json_set(struct tt_json_value *object, const char *key, struct tt_json_value *value)
{
    return tt_json_set_span(object, tt_span_of(key), value);
}

int tt_json_set_span(struct tt_json_value *object, struct tt_span key, struct tt_json_value *value)
{
    if (!can_add(object, TT_JSON_OBJECT, value)) return give_up(object, value);
    uint32_t found = find_member(object, key.data, key.bytes);
    if (found != UINT32_MAX) {
        release_content(&object->members->list[found].value);
        object->members->list[found].value = *value;
    } else if (add_member(object, key.data, key.bytes, *value) != 0) {
        return give_up(object, value);
    }
    object->lacks |= value->lacks;
    tt_free(value);
    return 0;
}

static int copy_content(const struct tt_json_value *from, struct tt_json_value *to)
{
    for (uint32_t i = 0; from->type == TT_JSON_LIST && i < from->count; i++)
        if (tt_json_append(to, tt_json_copy(&from->elements[i])) != 0) return -1;
    for (uint32_t i = 0; from->type == TT_JSON_OBJECT && i < from->count; i++) {
        const struct json_member *member = &from->members->list[i];
        struct tt_json_value *value = tt_json_copy(&member->value);
        if (value == NULL) return -1;
        if (add_member(to, member->key, member->key_bytes, *value) != 0) {
            tt_json_release(value);
            return -1;
        }
        tt_free(value);
    }
    return 0;
}

struct tt_json_value *tt_json_finish(struct tt_json_value *value)
{
    if (value != NULL && !value->lacks) return value;
    tt_json_release(value);
    return NULL;
}

void tt_json_forgive(struct tt_json_value *value)
{
    if (value != NULL) value->lacks = false;
}

struct tt_json_value *tt_json_copy(const struct tt_json_value *value)
{
    if (value == NULL) return NULL;
    if (value->type == TT_JSON_STRING || value->type == TT_JSON_HUGE)
        return new_text((enum tt_json_type)value->type, value->text, value->count);
    struct tt_json_value *copy = new_value((enum tt_json_type)value->type);
    if (copy == NULL) return NULL;
    copy->lacks = value->lacks;
    if (value->type == TT_JSON_INTEGER) copy->integer = value->integer;
    if (value->type == TT_JSON_REAL) copy->real = value->real;
    if (copy_content(value, copy) == 0) return copy;
    tt_json_release(copy);
    return NULL;
}

int tt_json_set_copy(struct tt_json_value *object, const char *key, const struct tt_json_value *value)
{
    return tt_json_set(object, key, tt_json_copy(value));
}

int tt_json_append_copy(struct tt_json_value *list, const struct tt_json_value *value)
{
    return tt_json_append(list, tt_json_copy(value));
}

int tt_json_update(struct tt_json_value *object, const struct tt_json_value *from)
{
    if (from == NULL || from->lacks) return give_up(object, NULL);
    for (size_t i = 0; i < tt_json_count(from); i++) {
        struct tt_json_member member = tt_json_member(from, i);
        if (tt_json_set_span(object, member.key, tt_json_copy(member.value)) != 0) return -1;
    }
    return 0;
}

bool tt_json_remove(struct tt_json_value *object, const char *key)
{
    if (!is(object, TT_JSON_OBJECT) || object->in_arena) return false;
    uint32_t found = find_member(object, key, strlen(key));
    if (found == UINT32_MAX) return false;
    struct json_member *list = object->members->list;
    tt_free(list[found].key);
    release_content(&list[found].value);
    memmove(&list[found], &list[found + 1], (object->count - found - 1) * sizeof *list);
    object->count--;
    /* The number of slots does not grow: the existing index is filled again. */
    if (object->members->index != NULL) {
        memset(object->members->index, 0, object->members->slots * sizeof *object->members->index);
        (void)json_index_fill(object->members, object->count);
    }
    return true;
}

tt_status tt_json_make_editable(struct tt_json *json)
{
    struct tt_json_value *copy = tt_json_copy(json->root);
    struct tt_arena arena = {0};
    char *origin = json->origin != NULL ? tt_arena_strdup(&arena, json->origin) : NULL;
    if (copy == NULL || (json->origin != NULL && origin == NULL)) {
        tt_json_release(copy);
        tt_arena_deinit(&arena);
        return TT_ERR_MEMORY;
    }
    tt_json_deinit(json);
    *json = (struct tt_json){copy, origin, arena};
    return TT_OK;
}
