/* The loss that balances experts (backend/ops/route.h), of the tokens that all ranks have in a micro step, as TRL's
 * SFTTrainer adds it: its mean over the micro steps of a step. Between the forward and the backward pass the loads of
 * the ranks are added, so that the loss does not depend on their number; each rank reports its share,
 * with the coefficient and without. */
#include "backend/ops/route.h"
#include "engine/rank_impl.h"

/* Objectives that compare rows have scales of their own; their losses stay as they are. */
bool tt_rank_balances(const struct tt_rank *rank)
{
    return rank->balance_buffer != NULL && rank->objective.ops->rows == NULL;
}

static bool is_wanted(const struct tt_rank *rank, const struct tt_pass *pass)
{
    return tt_rank_balances(rank) && pass->in.gradient && !pass->in.scales_follow;
}

tt_status tt_rank_balance_init(const struct tt_rank_config *config, struct tt_rank *rank)
{
    size_t floats = 3 * (size_t)rank->model->facts.balance.experts;
    if (!config->train || rank->model->facts.balance.coefficient == 0) return TT_OK;
    return tt_buffer_create(rank->device, floats * sizeof(float), TT_PURPOSE_BATCH, &rank->balance_buffer);
}

tt_status tt_rank_balance_begin(struct tt_rank *rank, struct tt_pass *pass)
{
    int64_t experts = rank->model->facts.balance.experts;
    if (!is_wanted(rank, pass)) return TT_OK;
    float *values = tt_buffer_data(rank->balance_buffer);
    pass->lent.balance.load_2X = tt_tensor_2d(values, TT_F32, 2, experts);
    pass->lent.balance.dload_X = tt_tensor_1d(values + 2 * experts, TT_F32, experts);
    return tt_fill_zero(rank->stream, values, 2 * (size_t)experts * sizeof(float));
}

tt_status tt_rank_balance_end(struct tt_rank *rank, const struct tt_pass *pass, int64_t micro_steps)
{
    const struct tt_mesh_axis *data = &rank->mesh.axes[TT_AXIS_DATA];
    const struct tt_balance *balance = &pass->lent.balance;
    if (tt_tensor_is_empty(balance->load_2X)) return TT_OK;
    if (data->comm != NULL)
        TT_TRY(tt_comm_all_reduce(data->comm, rank->stream, balance->load_2X.data,
                                  (size_t)tt_tensor_count(balance->load_2X), TT_F32, TT_REDUCE_SUM));
    double weight = rank->model->facts.balance.coefficient / (double)micro_steps;
    struct tt_route_balance_args args = {
        .load_2X = balance->load_2X,
        .slots = rank->model->facts.balance.slots,
        .scale = (float)weight,
        .dload_X = balance->dload_X,
        .loss_scale = (float)(weight / ((double)pass->in.loss_scale * (double)data->size)),
        .loss = tt_pass_sum(pass, TT_SUM_LOSS)};
    TT_TRY(tt_route_balance(rank->stream, &args));
    /* The log has the loss without its coefficient; the gradient is the same. */
    args.loss_scale = (float)(1 / ((double)micro_steps * (double)data->size));
    args.loss = tt_rank_balance_sum(rank);
    return tt_route_balance(rank->stream, &args);
}
