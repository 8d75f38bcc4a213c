/* AdamW (Loshchilov and Hutter, arXiv 1711.05101), as torch.optim.AdamW; with moments of 8 bits as bitsandbytes. */
#include "optim/optimizer.h"

#include "backend/ops/optim.h"

static tt_status update_coded(struct tt_stream *stream, const struct tt_optim_config *config,
                              const struct tt_optimizer_update *update)
{
    struct tt_adamw8_args args = {
        .param = tt_tensor_1d(update->master, TT_F32, update->count),
        .grad = tt_tensor_1d((float *)update->grad, TT_F32, update->count),
        .m = tt_coded_moment(update->codes[0], update->absmax[0], update->count),
        .v = tt_coded_moment(update->codes[1], update->absmax[1], update->count),
        .lr = update->lr,
        .beta1 = config->adam_beta1,
        .beta2 = config->adam_beta2,
        .eps = config->adam_epsilon,
        .weight_decay = update->weight_decay,
        .grad_scale = update->grad_scale,
        .step = update->step,
    };
    return tt_adamw8(stream, &args);
}

static tt_status update(struct tt_stream *stream, const struct tt_optim_config *config,
                        const struct tt_optimizer_update *update)
{
    if (update->coded) return update_coded(stream, config, update);
    struct tt_adamw_args args = {
        .param = tt_tensor_1d(update->master, TT_F32, update->count),
        .grad = tt_tensor_1d((float *)update->grad, TT_F32, update->count),
        .m = tt_tensor_1d(update->values[0], TT_F32, update->count),
        .v = tt_tensor_1d(update->values[1], TT_F32, update->count),
        .lr = update->lr,
        .beta1 = config->adam_beta1,
        .beta2 = config->adam_beta2,
        .eps = config->adam_epsilon,
        .weight_decay = update->weight_decay,
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
