/* Lists of token ids. */
#ifndef TT_TEXT_IDS_H
#define TT_TEXT_IDS_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* A growing list of token ids. A zeroed struct is valid and empty. With a `limit` it keeps the first ids and only
 * counts the others, so that a very long text takes little memory. */
struct tt_ids {
    int32_t *data;
    size_t count;
    size_t capacity;
    size_t limit;  /* 0: none */
    size_t beyond; /* ids that were not kept */
};
void tt_ids_deinit(struct tt_ids *ids);
TT_MUST_USE tt_status tt_ids_append(struct tt_ids *ids, int32_t id);
TT_MUST_USE tt_status tt_ids_reserve(struct tt_ids *ids, size_t count); /* room for `count` in all */
/* Drops and counts the ids beyond the limit. */
static inline void tt_ids_clip(struct tt_ids *ids)
{
    if (ids->limit == 0 || ids->count <= ids->limit) return;
    ids->beyond += ids->count - ids->limit;
    ids->count = ids->limit;
}

#endif
