/* Stochastic gradient descent, as torch.optim.SGD; without momentum it keeps nothing. */
#include "optim/optimizer.h"

#include "backend/ops/optim.h"

static tt_status update(struct tt_stream *stream, const struct tt_optim_config *config,
                        const struct tt_optimizer_update *update)
{
    struct tt_sgd_args args = {
        .param = tt_tensor_1d(update->master, TT_F32, update->count),
        .grad = tt_tensor_1d((float *)update->grad, TT_F32, update->count),
        .lr = update->lr,
        .momentum = config->momentum,
        .weight_decay = update->weight_decay,
        .grad_scale = update->grad_scale,
        .nesterov = config->nesterov,
    };
    if (update->values[0] != NULL) args.v = tt_tensor_1d(update->values[0], TT_F32, update->count);
    return tt_sgd(stream, &args);
}

static bool has_momentum(const struct tt_optim_config *config)
{
    return config->momentum > 0;
}

const struct tt_rule tt_rule_sgd = {
    .name = "SGD with momentum",
    .moment_count = 1,
    .prefixes = {"optimizer.momentum_buffer."},
    .has_momentum = true,
    .fits = has_momentum,
    .update = update,
};
const struct tt_rule tt_rule_sgd_plain = {.name = "SGD", .has_momentum = true, .update = update};
