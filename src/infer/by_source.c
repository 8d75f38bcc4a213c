#include "infer/by_source.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "comm/host_values.h"

enum { LOSS, CORRECT, TOKENS, SUMS };

/* A row key is (sample << 24) | position. */
enum { KEY_POSITION_BITS = 24 };

tt_status tt_by_source_init(struct tt_by_source *by_source, const struct tt_dataset *dataset,
                            const struct tt_objective *objective, bool named)
{
    *by_source = (struct tt_by_source){.dataset = dataset};
    size_t count = tt_dataset_source_count(dataset);
    if (named && count == 0) count = 1;
    if ((count < 2 && !named) || objective->ops->rows != NULL) return TT_OK;
    by_source->list = tt_calloc(count, sizeof *by_source->list);
    by_source->sums = tt_calloc(count * SUMS, sizeof *by_source->sums);
    if (by_source->list == NULL || by_source->sums == NULL) {
        tt_by_source_deinit(by_source);
        return TT_ERR_MEMORY;
    }
    by_source->count = count;
    for (size_t i = 0; i < tt_dataset_count(dataset); i++)
        by_source->list[tt_dataset_source(dataset, i)].samples++;
    return TT_OK;
}

void tt_by_source_deinit(struct tt_by_source *by_source)
{
    tt_free(by_source->list);
    tt_free(by_source->sums);
    tt_free(by_source->loss_N);
    tt_free(by_source->correct_N);
    *by_source = (struct tt_by_source){0};
}

void tt_by_source_clear(struct tt_by_source *by_source)
{
    if (by_source->count > 0) memset(by_source->sums, 0, by_source->count * SUMS * sizeof *by_source->sums);
}

static tt_status reserve_rows(struct tt_by_source *by_source, size_t rows)
{
    if (rows <= by_source->row_capacity) return TT_OK;
    float *loss_N = tt_realloc(by_source->loss_N, rows, sizeof *loss_N);
    if (loss_N == NULL) return TT_ERR_MEMORY;
    by_source->loss_N = loss_N;
    int32_t *correct_N = tt_realloc(by_source->correct_N, rows, sizeof *correct_N);
    if (correct_N == NULL) return TT_ERR_MEMORY;
    by_source->correct_N = correct_N;
    by_source->row_capacity = rows;
    return TT_OK;
}

tt_status tt_by_source_add(struct tt_by_source *by_source, struct tt_rank *rank, const struct tt_batch *batch,
                           const struct tt_pass *pass)
{
    size_t rows = (size_t)batch->row_count;
    if (by_source->count == 0 || rows == 0 || tt_device_is_plan(rank->device)) return TT_OK;
    TT_TRY(reserve_rows(by_source, rows));
    TT_TRY(tt_copy_to_host(rank->stream, by_source->loss_N, tt_pass_result(pass->out, TT_RESULT_LOSS, 0).data,
                           rows * sizeof(float)));
    TT_TRY(tt_copy_to_host(rank->stream, by_source->correct_N,
                           tt_pass_result(pass->out, TT_RESULT_CORRECT, 0).data, rows * sizeof(int32_t)));
    TT_TRY(tt_stream_synchronize(rank->stream));
    for (size_t n = 0; n < rows; n++) {
        size_t sample = (size_t)(batch->row_keys[batch->rows[n]] >> KEY_POSITION_BITS);
        double *sums = by_source->sums + tt_dataset_source(by_source->dataset, sample) * SUMS;
        sums[LOSS] += (double)by_source->loss_N[n];
        sums[CORRECT] += by_source->correct_N[n];
        sums[TOKENS] += 1;
    }
    return TT_OK;
}

tt_status tt_by_source_finish(struct tt_by_source *by_source, struct tt_comm *world)
{
    if (by_source->count == 0) return TT_OK;
    TT_TRY(tt_comm_host_sum(world, by_source->sums, by_source->count * SUMS));
    for (size_t i = 0; i < by_source->count; i++) {
        const double *sums = by_source->sums + i * SUMS;
        struct tt_source_figures *figures = &by_source->list[i];
        figures->tokens = (int64_t)sums[TOKENS];
        figures->loss = sums[TOKENS] > 0 ? sums[LOSS] / sums[TOKENS] : NAN;
        figures->accuracy = sums[TOKENS] > 0 ? sums[CORRECT] / sums[TOKENS] : NAN;
    }
    return TT_OK;
}
