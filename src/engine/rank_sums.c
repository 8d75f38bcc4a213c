/* Sums of a rank in device memory. */
#include <string.h>

#include "backend/ops/cross_entropy.h"
#include "backend/ops/optim.h"
#include "engine/rank_impl.h"

/* The buffer has the sums of the objective by name, at least as many as the op loss_sums, then the sum of squares and
 * the loss that balances experts. */
enum { LOSS_SUMS = 3 };

/* The sums of rows that stand alone, in the order of the op loss_sums. */
static const char *const row_sums[] = {TT_SUM_LOSS, "correct", "entropy", NULL};

static const char *const *names_of(const struct tt_rank *rank)
{
    const char *const *names = rank->objective.ops->pass_sums;
    return names != NULL ? names : row_sums;
}

/* The place of the sum of squares. */
static int squares_at(const struct tt_rank *rank)
{
    const char *const *names = names_of(rank);
    int count = 0;
    while (names[count] != NULL) count++;
    return count > LOSS_SUMS ? count : LOSS_SUMS;
}

static int balance_at(const struct tt_rank *rank)
{
    return squares_at(rank) + 1;
}

tt_tensor tt_rank_balance_sum(const struct tt_rank *rank)
{
    double *sums = tt_buffer_data(rank->sums_buffer);
    return tt_tensor_1d(sums + balance_at(rank), TT_F64, 1);
}

static size_t sum_bytes(const struct tt_rank *rank)
{
    return (size_t)(balance_at(rank) + 1) * sizeof(double);
}

tt_status tt_rank_lend_sums(struct tt_rank *rank)
{
    const char *const *names = names_of(rank);
    double *sums = tt_buffer_data(rank->sums_buffer);
    for (int i = 0; names[i] != NULL; i++) TT_TRY(tt_pass_lend_sum(&rank->results, names[i], sums + i));
    return TT_OK;
}

/* The op loss_sums writes three values from the place of the loss on. */
static tt_status check_order(const struct tt_rank *rank)
{
    const char *const *names = names_of(rank);
    int at = 0;
    while (names[at] != NULL && strcmp(names[at], TT_SUM_LOSS) != 0) at++;
    for (int i = 0; names[at] != NULL && i < LOSS_SUMS; i++)
        if (names[at + i] == NULL || strcmp(names[at + i], row_sums[i]) != 0)
            return tt_fail(TT_ERR_INTERNAL, "objective %s: pass_sums has no '%s' in place %d after the loss",
                           rank->objective.ops->name, row_sums[i], i);
    return TT_OK;
}

tt_status tt_rank_sums_init(const struct tt_rank_config *config, struct tt_rank *rank)
{
    size_t params = rank->model->param_count + 1;
    TT_TRY(check_order(rank));
    TT_TRY(tt_buffer_create(rank->device, sum_bytes(rank), TT_PURPOSE_BATCH, &rank->sums_buffer));
    if (!config->train) return TT_OK;
    return tt_buffer_create(rank->device, params * sizeof(double), TT_PURPOSE_BATCH,
                            &rank->param_squares_buffer);
}

tt_status tt_rank_clear_sums(struct tt_rank *rank)
{
    memset(rank->rows.sums, 0, sizeof rank->rows.sums);
    if (rank->rows.tallies != NULL)
        memset(rank->rows.tallies, 0, rank->rows.tally_count * sizeof *rank->rows.tallies);
    return tt_fill_zero(rank->stream, tt_buffer_data(rank->sums_buffer), sum_bytes(rank));
}

tt_status tt_rank_add_loss(struct tt_rank *rank, const struct tt_batch *batch,
                           const struct tt_objective_counts *counts, const struct tt_pass *pass)
{
    if (pass->in.batch->token_count == 0) return TT_OK;
    if (rank->objective.ops->rows == NULL && pass->in.batch->row_count == 0) return TT_OK;
    if (rank->objective.ops->rows != NULL) return tt_rank_run_objective(rank, batch, counts, pass);
    tt_tensor first = tt_pass_sum(pass, TT_SUM_LOSS);
    if (tt_tensor_is_empty(first)) return TT_OK;
    struct tt_loss_sums_args args = {
        .loss_N = tt_pass_result(pass->out, TT_RESULT_LOSS, 0),
        .correct_N = tt_pass_result(pass->out, TT_RESULT_CORRECT, 0),
        .entropy_N = tt_pass_result(pass->out, TT_RESULT_ENTROPY, 0),
        .sums = tt_tensor_1d(first.data, TT_F64, LOSS_SUMS),
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
    return add_squares(rank, sums + squares_at(rank), values, count);
}

tt_status tt_rank_read_sums(struct tt_rank *rank, double sums[TT_SUM_COUNT])
{
    double device[TT_PASS_SUMS_MAX + 2];
    int squares = squares_at(rank);
    memset(sums, 0, TT_SUM_COUNT * sizeof *sums);
    if (tt_device_is_plan(rank->device)) return TT_OK;
    TT_TRY(tt_copy_to_host(rank->stream, device, tt_buffer_data(rank->sums_buffer), sum_bytes(rank)));
    TT_TRY(tt_stream_synchronize(rank->stream));
    if (rank->objective.ops->rows != NULL)
        memcpy(sums, rank->rows.sums, sizeof rank->rows.sums);
    else
        memcpy(sums, device, (size_t)squares * sizeof *sums);
    if (rank->objective.ops->derive != NULL) rank->objective.ops->derive(sums);
    sums[TT_SUM_SQUARES] = device[squares];
    sums[TT_SUM_OF_BALANCE] = device[balance_at(rank)];
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
