#include "optim/optimizer.h"

#include <string.h>

tt_tensor tt_optimizer_run(const struct tt_optimizer_update *update, const float *values)
{
    if (values == NULL) return (tt_tensor){0};
    return tt_tensor_1d((float *)values + update->run.offset, TT_F32, update->run.count);
}

double tt_optimizer_decay(const struct tt_optim_config *config, const struct tt_optimizer_update *update)
{
    if (update->run.weight_decay == TT_DECAY_NONE) return 0.0;
    bool of_norm = update->run.weight_decay == TT_DECAY_NORM && config->norm_weight_decay >= 0;
    return of_norm ? config->norm_weight_decay : config->weight_decay;
}

static const struct tt_optimizer optimizers[] = {
#define SPELLING(name, rule) {name, &tt_rule_##rule},
#define VARIANT(name, rule) {name, &tt_rule_##rule},
#include "optim/spellings.def"
#undef SPELLING
#undef VARIANT
};

const struct tt_optimizer *tt_optimizer_of(const struct tt_optim_config *config)
{
    const char *name = config != NULL ? config->optim : NULL;
    for (size_t i = 0; i < sizeof optimizers / sizeof *optimizers && name != NULL; i++) {
        const struct tt_rule *rule = optimizers[i].rule;
        if (strcmp(optimizers[i].spelling, name) == 0 && (rule->fits == NULL || rule->fits(config)))
            return &optimizers[i];
    }
    return optimizers;
}

tt_status tt_optimizer_check(const struct tt_optim_config *config)
{
    const struct tt_rule *rule = tt_optimizer_of(config)->rule;
    if (!rule->has_momentum && (config->momentum > 0 || config->nesterov)) {
        tt_status status = tt_fail(TT_ERR_USAGE, "%s is a setting of optim sgd, and optim is %s",
                                   config->nesterov ? "nesterov" : "momentum", config->optim);
        tt_hint("%s's averages are set by adam_beta1 and adam_beta2", rule->name);
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
    if (count == 0 || optimizer->rule->moment_count == 0) return TT_OK;
    size_t bytes = (size_t)count * (size_t)optimizer->rule->moment_count * sizeof(float);
    if (offload)
        TT_TRY(tt_host_buffer_create(device, bytes, TT_PURPOSE_OPTIMIZER, &moments->buffer));
    else
        TT_TRY(tt_buffer_create(device, bytes, TT_PURPOSE_OPTIMIZER, &moments->buffer));
    float *values = tt_buffer_data(moments->buffer);
    for (int i = 0; i < optimizer->rule->moment_count; i++)
        moments->values[i] = values + (size_t)i * (size_t)count;
    return TT_OK;
}

void tt_moments_deinit(struct tt_moments *moments)
{
    tt_buffer_destroy(moments->buffer);
    *moments = (struct tt_moments){0};
}
