/* Sums of a rank in device memory. */
#include <string.h>

#include "backend/ops/cross_entropy.h"
#include "backend/ops/optim.h"
#include "engine/rank_impl.h"

/* Indices in the buffer of sums: the sums of the op loss_sums come first, or those that the objective names. */
enum { LOSS_SUMS = 3, SQUARES = LOSS_SUMS, DEVICE_SUMS };

tt_status tt_rank_lend_sums(struct tt_rank *rank)
{
    const char *const *names = rank->objective.ops->pass_sums;
    double *sums = tt_buffer_data(rank->sums_buffer);
    for (int i = 0; names != NULL && i < LOSS_SUMS && names[i] != NULL; i++)
        TT_TRY(tt_pass_lend_sum(&rank->results, names[i], sums + i));
    return TT_OK;
}

tt_status tt_rank_sums_init(const struct tt_rank_config *config, struct tt_rank *rank)
{
    size_t params = rank->model->param_count + 1;
    TT_TRY(
        tt_buffer_create(rank->device, DEVICE_SUMS * sizeof(double), TT_PURPOSE_BATCH, &rank->sums_buffer));
    if (!config->train) return TT_OK;
    return tt_buffer_create(rank->device, params * sizeof(double), TT_PURPOSE_BATCH,
                            &rank->param_squares_buffer);
}

tt_status tt_rank_clear_sums(struct tt_rank *rank)
{
    memset(rank->rows.sums, 0, sizeof rank->rows.sums);
    return tt_fill_zero(rank->stream, tt_buffer_data(rank->sums_buffer), DEVICE_SUMS * sizeof(double));
}

tt_status tt_rank_add_loss(struct tt_rank *rank, const struct tt_batch *batch,
                           const struct tt_objective_counts *counts, const struct tt_pass *pass)
{
    if (pass->in.batch->token_count == 0 || pass->in.batch->row_count == 0) return TT_OK;
    if (rank->objective.ops->rows != NULL) return tt_rank_run_objective(rank, batch, counts, pass);
    double *sums = tt_buffer_data(rank->sums_buffer);
    struct tt_loss_sums_args args = {
        .loss_N = tt_pass_result(pass->out, TT_RESULT_LOSS, 0),
        .correct_N = tt_pass_result(pass->out, TT_RESULT_CORRECT, 0),
        .entropy_N = tt_pass_result(pass->out, TT_RESULT_ENTROPY, 0),
        .sums = tt_tensor_1d(sums, TT_F64, LOSS_SUMS),
    };
    return tt_loss_sums(rank->stream, &args);
}

static tt_status add_squares(struct tt_rank *rank, double *to, const float *values, int64_t count)
{
    if (count == 0) return TT_OK;
    struct tt_sum_squares_args args = {
        .x = tt_tensor_1d((float *)values, TT_F32, count),
        .out = tt_tensor_1d(to, TT_F64, 1),
    };
    return tt_sum_squares(rank->stream, &args);
}

tt_status tt_rank_add_squares(struct tt_rank *rank, const float *values, int64_t count)
{
    double *sums = tt_buffer_data(rank->sums_buffer);
    return add_squares(rank, sums + SQUARES, values, count);
}

tt_status tt_rank_read_sums(struct tt_rank *rank, double sums[TT_SUM_COUNT])
{
    double device[DEVICE_SUMS];
    memset(sums, 0, TT_SUM_COUNT * sizeof *sums);
    if (tt_device_is_plan(rank->device)) return TT_OK;
    TT_TRY(tt_copy_to_host(rank->stream, device, tt_buffer_data(rank->sums_buffer), sizeof device));
    TT_TRY(tt_stream_synchronize(rank->stream));
    if (rank->objective.ops->rows != NULL)
        memcpy(sums, rank->rows.sums, sizeof rank->rows.sums);
    else
        memcpy(sums, device, LOSS_SUMS * sizeof *sums);
    if (rank->objective.ops->derive != NULL) rank->objective.ops->derive(sums);
    sums[TT_SUM_SQUARES] = device[SQUARES];
    return TT_OK;
}

tt_status tt_rank_add_param_squares(struct tt_rank *rank, size_t index, const float *values, int64_t count)
{
    double *squares = tt_buffer_data(rank->param_squares_buffer);
    return add_squares(rank, squares + index, values, count);
}

tt_status tt_rank_read_param_squares(struct tt_rank *rank, double *squares)
{
    void *device = tt_buffer_data(rank->param_squares_buffer);
    size_t bytes = rank->model->param_count * sizeof *squares;
    if (tt_device_is_plan(rank->device)) return TT_OK;
    TT_TRY(tt_copy_to_host(rank->stream, squares, device, bytes));
    TT_TRY(tt_stream_synchronize(rank->stream));
    return tt_fill_zero(rank->stream, device, bytes);
}
