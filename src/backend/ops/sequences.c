#include "backend/ops/sequences.h"

void tt_check_sequences(struct tt_check *check, const struct tt_sequences *sequences, int64_t rows)
{
    const int32_t *cu = sequences->cu;
    tt_check_that(check, sequences->count >= 0, "%lld sequences", (long long)sequences->count);
    tt_check_that(check, cu != NULL, "cu is not given");
    if (check->status != TT_OK) return;
    tt_check_that(check, cu[0] == 0, "cu begins with %d instead of 0", cu[0]);
    for (int64_t b = 0; b < sequences->count && check->status == TT_OK; b++)
        tt_check_that(check, cu[b + 1] >= cu[b], "cu falls from %d to %d at sequence %lld", cu[b], cu[b + 1],
                      (long long)b);
    if (check->status != TT_OK) return;
    tt_check_that(check, cu[sequences->count] == rows, "cu covers %d of %lld rows", cu[sequences->count],
                  (long long)rows);
    if (tt_tensor_is_empty(sequences->device_cu)) return;
    tt_check_shape(check, "device_cu", sequences->device_cu, TT_TYPES_I32, 1, TT_DIMS(sequences->count + 1));
}

void tt_check_states(struct tt_check *check, const struct tt_states *states, int64_t count, int rank,
                     const int64_t *dims)
{
    if (check->status != TT_OK || tt_tensor_is_empty(states->pool)) return;
    int64_t wanted[TT_RANK_MAX] = {states->pool.dims[0]};
    for (int d = 1; d < rank; d++) wanted[d] = dims[d - 1];
    tt_check_shape(check, "states", states->pool, TT_TYPES_F32, rank, wanted);
    tt_check_contiguous(check, "states", states->pool);
    tt_check_shape(check, "from", states->from_B, TT_TYPES_I32, 1, TT_DIMS(count));
    tt_check_shape(check, "to", states->to_B, TT_TYPES_I32, 1, TT_DIMS(count));
}
