#include "optim/optimizer.h"

#include <string.h>

#include "backend/ops/optim.h"

static tt_tensor run_of(const struct tt_optimizer_update *update, const float *values)
{
    if (values == NULL) return (tt_tensor){0};
    return tt_tensor_1d((float *)values + update->run.offset, TT_F32, update->run.count);
}

static double decay_of(const struct tt_optim_config *config, const struct tt_optimizer_update *update)
{
    if (update->run.weight_decay == TT_DECAY_NONE) return 0.0;
    bool of_norm = update->run.weight_decay == TT_DECAY_NORM && config->norm_weight_decay >= 0;
    return of_norm ? config->norm_weight_decay : config->weight_decay;
}

static tt_status update_adamw(struct tt_stream *stream, const struct tt_optim_config *config,
                              const struct tt_optimizer_update *update)
{
    struct tt_adamw_args args = {
        .param = run_of(update, update->master),
        .grad = run_of(update, update->grad),
        .m = run_of(update, update->moments->values[0]),
        .v = run_of(update, update->moments->values[1]),
        .lr = update->lr,
        .beta1 = config->adam_beta1,
        .beta2 = config->adam_beta2,
        .eps = config->adam_epsilon,
        .weight_decay = decay_of(config, update),
        .grad_scale = update->grad_scale,
        .step = update->step,
    };
    return tt_adamw(stream, &args);
}

static tt_status update_sgd(struct tt_stream *stream, const struct tt_optim_config *config,
                            const struct tt_optimizer_update *update)
{
    struct tt_sgd_args args = {
        .param = run_of(update, update->master),
        .grad = run_of(update, update->grad),
        .v = run_of(update, update->moments->values[0]),
        .lr = update->lr,
        .momentum = config->momentum,
        .weight_decay = decay_of(config, update),
        .grad_scale = update->grad_scale,
        .nesterov = config->nesterov,
    };
    return tt_sgd(stream, &args);
}

static const struct tt_optimizer adamw = {
    "AdamW", 2, {"optimizer.exp_avg.", "optimizer.exp_avg_sq."}, update_adamw};
static const struct tt_optimizer sgd = {"SGD", 0, {NULL}, update_sgd};
static const struct tt_optimizer sgd_momentum = {
    "SGD with momentum", 1, {"optimizer.momentum_buffer."}, update_sgd};

static bool is_sgd(const struct tt_optim_config *config)
{
    return config != NULL && config->optim != NULL && strcmp(config->optim, "sgd") == 0;
}

const struct tt_optimizer *tt_optimizer_of(const struct tt_optim_config *config)
{
    if (!is_sgd(config)) return &adamw;
    return config->momentum > 0 ? &sgd_momentum : &sgd;
}

tt_status tt_optimizer_check(const struct tt_optim_config *config)
{
    if (!is_sgd(config) && (config->momentum > 0 || config->nesterov)) {
        tt_status status = tt_fail(TT_ERR_USAGE, "%s is a setting of optim sgd, and optim is %s",
                                   config->nesterov ? "nesterov" : "momentum", config->optim);
        tt_hint("AdamW's averages are set by adam_beta1 and adam_beta2");
        return status;
    }
    if (config->nesterov && !(config->momentum > 0)) {
        tt_status status = tt_fail(TT_ERR_USAGE, "nesterov needs momentum above 0");
        tt_hint("--momentum 0.9 is usual");
        return status;
    }
    return TT_OK;
}

tt_status tt_moments_init(struct tt_device *device, const struct tt_optimizer *optimizer, int64_t count,
                          bool offload, struct tt_moments *moments)
{
    *moments = (struct tt_moments){.count = count};
    if (count == 0 || optimizer->moment_count == 0) return TT_OK;
    size_t bytes = (size_t)count * (size_t)optimizer->moment_count * sizeof(float);
    if (offload)
        TT_TRY(tt_host_buffer_create(device, bytes, TT_PURPOSE_OPTIMIZER, &moments->buffer));
    else
        TT_TRY(tt_buffer_create(device, bytes, TT_PURPOSE_OPTIMIZER, &moments->buffer));
    float *values = tt_buffer_data(moments->buffer);
    for (int i = 0; i < optimizer->moment_count; i++) moments->values[i] = values + (size_t)i * (size_t)count;
    return TT_OK;
}

void tt_moments_deinit(struct tt_moments *moments)
{
    tt_buffer_destroy(moments->buffer);
    *moments = (struct tt_moments){0};
}
