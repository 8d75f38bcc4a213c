/* Stochastic gradient descent, as torch.optim.SGD; without momentum it keeps nothing. */
#include "optim/optimizer.h"

#include "backend/ops/optim.h"

static tt_status update(struct tt_stream *stream, const struct tt_optim_config *config,
                        const struct tt_optimizer_update *update)
{
    struct tt_sgd_args args = {
        .param = tt_optimizer_run(update, update->master),
        .grad = tt_optimizer_run(update, update->grad),
        .v = tt_optimizer_run(update, update->moments->values[0]),
        .lr = update->lr * update->run.lr_scale,
        .momentum = config->momentum,
        .weight_decay = tt_optimizer_decay(config, update),
        .grad_scale = update->grad_scale,
        .nesterov = config->nesterov,
    };
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
