/* AdamW (Loshchilov and Hutter, arXiv 1711.05101), as torch.optim.AdamW. */
#include "optim/optimizer.h"

#include "backend/ops/optim.h"

static tt_status update(struct tt_stream *stream, const struct tt_optim_config *config,
                        const struct tt_optimizer_update *update)
{
    struct tt_adamw_args args = {
        .param = tt_optimizer_run(update, update->master),
        .grad = tt_optimizer_run(update, update->grad),
        .m = tt_optimizer_run(update, update->moments->values[0]),
        .v = tt_optimizer_run(update, update->moments->values[1]),
        .lr = update->lr * update->run.lr_scale,
        .beta1 = config->adam_beta1,
        .beta2 = config->adam_beta2,
        .eps = config->adam_epsilon,
        .weight_decay = tt_optimizer_decay(config, update),
        .grad_scale = update->grad_scale,
        .step = update->step,
    };
    return tt_adamw(stream, &args);
}

const struct tt_rule tt_rule_adamw = {
    .name = "AdamW",
    .moment_count = 2,
    .prefixes = {"optimizer.exp_avg.", "optimizer.exp_avg_sq."},
    .update = update,
};
