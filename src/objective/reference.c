#include "objective/reference.h"

#include <string.h>

#include "data/row_kind.h"

bool tt_objective_runs_reference(const struct tt_objective *objective)
{
    return (objective->ops->needs & TT_NEEDS_REFERENCE) != 0 && !objective->precomputed;
}

bool tt_objective_mismatches(const struct tt_objective *objective)
{
    return (objective->ops->needs & TT_NEEDS_MISMATCHED) != 0 && tt_objective_shares(objective);
}

static void spread(const struct tt_batch *batch, const float *values, float sign, float *ref_logp_N)
{
    int64_t first = 0;
    memset(ref_logp_N, 0, (size_t)batch->row_count * sizeof *ref_logp_N);
    for (int64_t s = 0; s < batch->sequence_count; s++) {
        int64_t end = tt_objective_rows_end(batch, s, first);
        if (end > first) ref_logp_N[first] = sign * values[s];
        first = end;
    }
}

tt_status tt_objective_take_reference(const struct tt_objective *objective, const struct tt_batch *batch,
                                      bool shared, float *ref_logp_N)
{
    bool mismatched = shared && tt_objective_mismatches(objective);
    const struct tt_row_kind *kind = objective->ops->referenced;
    const float *rows = tt_batch_column(batch, TT_REFERENCE_ROWS, TT_PER_ROW);
    const float *whole = kind != NULL ? tt_batch_column(batch, kind->value, TT_PER_SEQUENCE) : NULL;
    const float *other = tt_batch_column(batch, TT_REFERENCE_MISMATCHED, TT_PER_SEQUENCE);
    if (mismatched && other != NULL)
        spread(batch, other, 1, ref_logp_N);
    else if (!mismatched && rows != NULL)
        memcpy(ref_logp_N, rows, (size_t)batch->row_count * sizeof *rows);
    else if (!mismatched && whole != NULL)
        spread(batch, whole, -1, ref_logp_N);
    else
        return tt_fail(TT_ERR_INTERNAL, "objective '%s' has no reference for a batch of %lld rows",
                       objective->ops->name, (long long)batch->row_count);
    return TT_OK;
}
