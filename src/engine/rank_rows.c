/* Objectives that compare rows: the values of a pass in host memory, and the scales of its gradient. */
#include <string.h>

#include "base/alloc.h"
#include "comm/host_values.h"
#include "engine/rank_impl.h"
#include "objective/reference.h"

int64_t tt_rank_labels(const struct tt_rank *rank)
{
    return rank->objective.ops->labels != 0 ? rank->model->facts.label_count : 0;
}

tt_status tt_rank_rows_init(const struct tt_rank_config *config, struct tt_rank *rank)
{
    const struct tt_objective_ops *ops = rank->objective.ops;
    const struct tt_batch_limits *limits = &config->limits;
    size_t rows = (size_t)(limits->all_rows > limits->rows ? limits->all_rows : limits->rows);
    size_t scores = (size_t)(tt_rank_labels(rank) * config->limits.sequences);
    if (ops->rows == NULL || tt_device_is_plan(rank->device)) return TT_OK;
    float *block = tt_calloc(8 * rows + 2 * scores + 1, sizeof *block);
    if (block == NULL) return TT_ERR_MEMORY;
    rank->rows = (struct tt_rank_rows){.block = block,
                                       .logp_N = block,
                                       .ref_logp_N = block + rows,
                                       .entropy_N = block + 2 * rows,
                                       .mean_N = block + 3 * rows,
                                       .scale_N = block + 4 * rows,
                                       .correct_N = (int32_t *)(block + 5 * rows),
                                       .folded_N = block + 6 * rows,
                                       .squares_N = block + 7 * rows,
                                       .scores_BL = block + 8 * rows,
                                       .dscores_BL = block + 8 * rows + scores,
                                       .tally_count = (size_t)(tt_rank_labels(rank) * ops->tallies_of_label)};
    rank->rows.tallies = tt_calloc(rank->rows.tally_count + 1, sizeof *rank->rows.tallies);
    return rank->rows.tallies != NULL ? TT_OK : TT_ERR_MEMORY;
}

/* log p of the labels is -loss: there is no label smoothing. */
tt_status tt_rank_read_logp(struct tt_rank *rank, const struct tt_pass *pass, float *logp_N)
{
    int64_t rows = pass->in.batch->row_count;
    if (rows == 0 || tt_device_is_plan(rank->device)) return TT_OK;
    tt_tensor loss_N = tt_pass_result(pass->out, TT_RESULT_LOSS, 0);
    TT_TRY(tt_copy_to_host(rank->stream, logp_N, loss_N.data, tt_tensor_bytes(loss_N)));
    TT_TRY(tt_stream_synchronize(rank->stream));
    for (int64_t n = 0; n < rows; n++) logp_N[n] = -logp_N[n];
    tt_rank_unfold_rows(rank, logp_N);
    return TT_OK;
}

/* Four bytes for each row with a label. */
static tt_status read_rows(struct tt_rank *rank, const struct tt_pass *pass, const char *name, void *values)
{
    tt_tensor value_N = tt_pass_result(pass->out, name, 0);
    return tt_copy_to_host(rank->stream, values, value_N.data, tt_tensor_bytes(value_N));
}

/* The values of the pass; with `shared` for the objective's `share`. */
static tt_status run_objective(struct tt_rank *rank, const struct tt_batch *batch,
                               const struct tt_objective_counts *counts, const struct tt_pass *pass,
                               double *shared)
{
    struct tt_rank_rows *own = &rank->rows;
    struct tt_objective_rows rows = {
        .batch = batch,
        .counts = counts,
        .logp_N = own->logp_N,
        .ref_logp_N = tt_rank_has_reference(rank) ? own->ref_logp_N : NULL,
        .correct_N = own->correct_N,
        .entropy_N = own->entropy_N,
        .mean_N = own->mean_N,
        .squares_N = pass->in.want_squares ? own->squares_N : NULL,
        .shared = own->shared,
        .scale_N = shared == NULL ? own->scale_N : NULL,
        .sums = shared == NULL ? own->sums : NULL,
    };
    if (shared != NULL && rank->objective.ops->listed > 0) {
        rows.listed = tt_step_lists_add(&own->lists, batch->group_count);
        if (rows.listed == NULL) return TT_ERR_MEMORY;
    } else if (shared == NULL) {
        rows.lists = tt_step_lists_take(&own->lists, batch->group_count);
    }
    if (tt_rank_has_reference(rank) && rank->objective.precomputed)
        TT_TRY(tt_objective_take_reference(&rank->objective, batch, shared != NULL, own->ref_logp_N));
    TT_TRY(read_rows(rank, pass, TT_RESULT_CORRECT, own->correct_N));
    TT_TRY(read_rows(rank, pass, TT_RESULT_ENTROPY, own->entropy_N));
    TT_TRY(read_rows(rank, pass, TT_RESULT_MEAN, own->mean_N));
    if (pass->in.want_squares) TT_TRY(read_rows(rank, pass, TT_RESULT_SQUARES, own->squares_N));
    TT_TRY(tt_rank_read_logp(rank, pass, own->logp_N));
    if (pass->in.want_squares) tt_rank_unfold_rows(rank, own->squares_N);
    tt_rank_unfold_rows(rank, own->correct_N);
    tt_rank_unfold_rows(rank, own->entropy_N);
    tt_rank_unfold_rows(rank, own->mean_N);
    return tt_objective_run(&rank->objective, &rows, shared);
}

/* An objective of scores, and the gradient of these. */
static tt_status run_scores(struct tt_rank *rank, const struct tt_batch *batch,
                            const struct tt_objective_counts *counts, const struct tt_pass *pass)
{
    struct tt_rank_rows *own = &rank->rows;
    tt_tensor scores_BL = tt_pass_result(pass->out, TT_RESULT_SCORES, 0);
    const struct tt_objective_rows rows = {.batch = batch,
                                           .counts = counts,
                                           .scores_BL = own->scores_BL,
                                           .label_count = tt_rank_labels(rank),
                                           .shared = own->shared,
                                           .dscores_BL = own->dscores_BL,
                                           .tallies = own->tallies,
                                           .sums = own->sums};
    TT_TRY(tt_copy_to_host(rank->stream, own->scores_BL, scores_BL.data, tt_tensor_bytes(scores_BL)));
    TT_TRY(tt_stream_synchronize(rank->stream));
    TT_TRY(tt_objective_run(&rank->objective, &rows, NULL));
    tt_tensor dscores_BL = pass->in.dscores_BL;
    return pass->in.gradient ? tt_copy_to_device(rank->stream, dscores_BL.data, own->dscores_BL,
                                                 tt_tensor_bytes(dscores_BL))
                             : TT_OK;
}

tt_status tt_rank_run_objective(struct tt_rank *rank, const struct tt_batch *batch,
                                const struct tt_objective_counts *counts, const struct tt_pass *pass)
{
    if (tt_device_is_plan(rank->device)) return TT_OK;
    if (tt_rank_labels(rank) > 0) return run_scores(rank, batch, counts, pass);
    if (batch->row_count == 0) return TT_OK;
    TT_TRY(run_objective(rank, batch, counts, pass, NULL));
    if (!pass->in.gradient) return TT_OK;
    const float *scale_N = tt_rank_fold_scales(rank, rank->rows.scale_N, rank->rows.folded_N);
    return tt_copy_to_device(rank->stream, pass->in.scale_N.data, scale_N, tt_tensor_bytes(pass->in.scale_N));
}

tt_status tt_rank_finish_sums(struct tt_rank *rank, double sums[TT_SUM_COUNT])
{
    struct tt_rank_rows *own = &rank->rows;
    if (rank->objective.ops->finish == NULL || tt_device_is_plan(rank->device)) return TT_OK;
    TT_TRY(tt_comm_host_sum(rank->mesh.axes[TT_AXIS_DATA].comm, own->tallies, own->tally_count));
    rank->objective.ops->finish(own->tallies, tt_rank_labels(rank), sums);
    return TT_OK;
}

/* ---- Values that the micro batches of a step share ---- */

bool tt_rank_share_begin(struct tt_rank *rank)
{
    memset(rank->rows.shared, 0, sizeof rank->rows.shared);
    tt_step_lists_begin(&rank->rows.lists, rank->objective.ops->listed);
    return tt_objective_shares(&rank->objective);
}

tt_status tt_rank_share(struct tt_rank *rank, const struct tt_batch *batch,
                        const struct tt_objective_counts *counts, const struct tt_pass *pass)
{
    struct tt_pass_results results = {0};
    struct tt_pass own = *pass;
    tt_status status = TT_OK;
    own.out = &results;
    TT_GO(tt_rank_reference(rank, pass));
    own.in.training = own.in.gradient = false;
    own.in.loss_scale = 1.0f;
    TT_GO(tt_executor_forward(rank->executor, &own));
    bool has_rows = pass->in.batch->token_count > 0 && pass->in.batch->row_count > 0;
    if (has_rows && !tt_device_is_plan(rank->device))
        TT_GO(run_objective(rank, batch, counts, &own, rank->rows.shared));
out:
    if (status != TT_OK) tt_while("running the pass before the gradients");
    tt_executor_end(rank->executor);
    return status;
}

/* The lists of all ranks, one after the other, in memory of the longest for each. */
static tt_status gather_lists(struct tt_comm *comm, const struct tt_step_lists *lists, const int64_t *counts,
                              int64_t longest, double *all)
{
    size_t columns = (size_t)lists->columns, row = columns * sizeof(double);
    int ranks = tt_comm_world_size(comm);
    double *padded = tt_calloc((size_t)longest * columns + 1, sizeof *padded);
    if (padded == NULL) return TT_ERR_MEMORY;
    if (lists->own_count > 0) memcpy(padded, lists->own, lists->own_count * row);
    tt_status status = tt_comm_host_all_gather(comm, padded, all, (size_t)longest * row);
    size_t count = 0;
    for (int r = 0; r < ranks && status == TT_OK; r++) {
        memmove(all + count * columns, all + (size_t)r * (size_t)longest * columns, (size_t)counts[r] * row);
        count += (size_t)counts[r];
    }
    tt_free(padded);
    return status;
}

static tt_status sort_lists(struct tt_comm *comm, struct tt_step_lists *lists)
{
    tt_status status = TT_OK;
    int ranks = tt_comm_world_size(comm);
    int64_t own = (int64_t)lists->own_count, longest = 0, count = 0, first = 0;
    double *all = NULL;
    int64_t *counts = tt_calloc((size_t)ranks, sizeof *counts);
    if (counts == NULL) TT_GO(TT_ERR_MEMORY);
    TT_GO(tt_comm_host_all_gather(comm, &own, counts, sizeof own));
    for (int r = 0; r < ranks; r++) {
        if (r < tt_comm_rank(comm)) first += counts[r];
        if (counts[r] > longest) longest = counts[r];
        count += counts[r];
    }
    all = tt_calloc((size_t)(longest * ranks * lists->columns) + 1, sizeof *all);
    if (all == NULL) TT_GO(TT_ERR_MEMORY);
    TT_GO(gather_lists(comm, lists, counts, longest, all));
    status = tt_step_lists_sort(lists, all, count, first);
out:
    tt_free(all);
    tt_free(counts);
    return status;
}

tt_status tt_rank_share_end(struct tt_rank *rank)
{
    struct tt_comm *comm = rank->mesh.axes[TT_AXIS_DATA].comm;
    TT_TRY(tt_comm_host_sum(comm, rank->rows.shared, TT_OBJECTIVE_SHARED_MAX));
    return rank->objective.ops->listed > 0 ? sort_lists(comm, &rank->rows.lists) : TT_OK;
}
