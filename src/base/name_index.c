#include "base/name_index.h"

#include <stdint.h>
#include <string.h>

#include "base/alloc.h"

enum { FIRST_CAPACITY = 64 };

/* FNV-1a. Names come from a model's own modules, so nobody chooses them to collide. */
static size_t hash(const char *name)
{
    uint64_t sum = 0xcbf29ce484222325u;
    for (; *name != '\0'; name++) sum = (sum ^ (unsigned char)*name) * 0x100000001b3u;
    return (size_t)(sum ^ (sum >> 32));
}

/* The slot with this name, or the free one where it belongs. */
static struct tt_name_slot *slot_of(const struct tt_name_index *index, const char *name)
{
    size_t at = hash(name) & (index->capacity - 1);
    while (index->slots[at].name != NULL && strcmp(index->slots[at].name, name) != 0)
        at = (at + 1) & (index->capacity - 1);
    return &index->slots[at];
}

static tt_status grow(struct tt_name_index *index)
{
    struct tt_name_index larger = {.capacity = index->capacity > 0 ? 2 * index->capacity : FIRST_CAPACITY,
                                   .count = index->count};
    larger.slots = tt_calloc(larger.capacity, sizeof *larger.slots);
    if (larger.slots == NULL) return TT_ERR_MEMORY;
    for (size_t i = 0; i < index->capacity; i++)
        if (index->slots[i].name != NULL) *slot_of(&larger, index->slots[i].name) = index->slots[i];
    tt_free(index->slots);
    *index = larger;
    return TT_OK;
}

tt_status tt_name_index_add(struct tt_name_index *index, const char *name, size_t number)
{
    if (2 * (index->count + 1) > index->capacity) TT_TRY(grow(index));
    struct tt_name_slot *slot = slot_of(index, name);
    if (slot->name != NULL) return TT_OK;
    *slot = (struct tt_name_slot){name, number};
    index->count++;
    return TT_OK;
}

bool tt_name_index_find(const struct tt_name_index *index, const char *name, size_t *number)
{
    if (index->count == 0) return false;
    const struct tt_name_slot *slot = slot_of(index, name);
    if (slot->name == NULL) return false;
    *number = slot->number;
    return true;
}

void tt_name_index_deinit(struct tt_name_index *index)
{
    tt_free(index->slots);
    *index = (struct tt_name_index){0};
}
