#include "text/ids.h"

#include "base/alloc.h"

void tt_ids_deinit(struct tt_ids *ids)
{
    tt_free(ids->data);
    *ids = (struct tt_ids){0};
}

tt_status tt_ids_reserve(struct tt_ids *ids, size_t count)
{
    return tt_reserve(&ids->data, count, &ids->capacity);
}

tt_status tt_ids_append(struct tt_ids *ids, int32_t id)
{
    if (ids->count == ids->capacity && tt_grow(&ids->data, ids->count, &ids->capacity) != 0) {
        return TT_ERR_MEMORY;
    }
    ids->data[ids->count++] = id;
    tt_ids_clip(ids);
    return TT_OK;
}
