/* Lion (Chen et al., arXiv 2302.06675), with one moment; its betas are adam_beta1 and adam_beta2, as transformers'
 * Trainer passes them. */
#include "optim/optimizer.h"

#include "backend/ops/optim.h"

static tt_status update_coded(struct tt_stream *stream, const struct tt_optim_config *config,
                              const struct tt_optimizer_update *update)
{
    struct tt_lion8_args args = {
        .param = tt_tensor_1d(update->master, TT_F32, update->count),
        .grad = tt_tensor_1d((float *)update->grad, TT_F32, update->count),
        .m = tt_coded_moment(update->codes[0], update->absmax[0], update->count),
        .lr = update->lr,
        .beta1 = config->adam_beta1,
        .beta2 = config->adam_beta2,
        .weight_decay = update->weight_decay,
        .grad_scale = update->grad_scale,
    };
    return tt_lion8(stream, &args);
}

static tt_status update(struct tt_stream *stream, const struct tt_optim_config *config,
                        const struct tt_optimizer_update *update)
{
    if (update->coded) return update_coded(stream, config, update);
    struct tt_lion_args args = {
        .param = tt_tensor_1d(update->master, TT_F32, update->count),
        .grad = tt_tensor_1d((float *)update->grad, TT_F32, update->count),
        .m = tt_tensor_1d(update->values[0], TT_F32, update->count),
        .lr = update->lr,
        .beta1 = config->adam_beta1,
        .beta2 = config->adam_beta2,
        .weight_decay = update->weight_decay,
        .grad_scale = update->grad_scale,
    };
    return tt_lion(stream, &args);
}

const struct tt_rule tt_rule_lion = {
    .name = "Lion",
    .moment_count = 1,
    .prefixes = {"optimizer.exp_avg."},
    .update = update,
};
