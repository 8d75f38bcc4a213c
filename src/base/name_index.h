/* Finds a number by a name: a hash table with open addressing. Names are borrowed and must outlive the index. */
#ifndef TT_BASE_NAME_INDEX_H
#define TT_BASE_NAME_INDEX_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

/* A zeroed struct is empty. */
struct tt_name_index {
    struct tt_name_slot {
        const char *name; /* NULL: free */
        size_t number;
    } * slots;
    size_t capacity; /* a power of two */
    size_t count;
};

/* A name that is there already keeps its number. */
TT_MUST_USE tt_status tt_name_index_add(struct tt_name_index *index, const char *name, size_t number);
bool tt_name_index_find(const struct tt_name_index *index, const char *name, size_t *number);
void tt_name_index_deinit(struct tt_name_index *index);

#endif
