#include "nn/pass.h"

#include <string.h>

#include "base/error.h"

tt_tensor tt_device_batch_column(const struct tt_device_batch *batch, const char *name)
{
    for (int c = 0; c < batch->column_count; c++)
        if (strcmp(batch->columns[c].name, name) == 0) return batch->columns[c].values;
    return (tt_tensor){0};
}

static struct tt_result *find(struct tt_pass_results *results, const char *name, int part)
{
    for (int i = 0; i < results->count; i++)
        if (results->slots[i].part == part && strcmp(results->slots[i].name, name) == 0)
            return &results->slots[i];
    return NULL;
}

tt_status tt_pass_give(const struct tt_pass *pass, const char *name, int part, tt_tensor value)
{
    struct tt_pass_results *results = pass->out;
    struct tt_result *slot = find(results, name, part);
    if (slot == NULL && results->count == TT_RESULTS_MAX)
        return tt_fail(TT_ERR_INTERNAL, "result '%s' of a pass is one of more than %d", name, TT_RESULTS_MAX);
    if (slot == NULL) slot = &results->slots[results->count++];
    *slot = (struct tt_result){name, part, value};
    return TT_OK;
}

tt_tensor tt_pass_result(const struct tt_pass_results *results, const char *name, int part)
{
    const struct tt_result *slot = find((struct tt_pass_results *)results, name, part);
    return slot != NULL ? slot->value : (tt_tensor){0};
}

tt_status tt_pass_lend_sum(struct tt_pass_results *results, const char *name, double *sum)
{
    if (results->sum_count == TT_PASS_SUMS_MAX)
        return tt_fail(TT_ERR_INTERNAL, "sum '%s' of a pass is one of more than %d", name, TT_PASS_SUMS_MAX);
    results->sums[results->sum_count++] = (struct tt_result){name, 0, tt_tensor_1d(sum, TT_F64, 1)};
    return TT_OK;
}

tt_tensor tt_pass_sum(const struct tt_pass *pass, const char *name)
{
    if (pass->in.again) return (tt_tensor){0};
    for (int i = 0; i < pass->out->sum_count; i++)
        if (strcmp(pass->out->sums[i].name, name) == 0) return pass->out->sums[i].value;
    return (tt_tensor){0};
}
