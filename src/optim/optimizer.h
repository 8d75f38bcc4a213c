/* Update rules over the flat slices of one rank. Independent of model and rank: the input of an update is a run of
 * elements with the same weight decay. A rule is one file in optim/rules/ and one line in rules.def; a value of `optim`
 * is one line in spellings.def. State: the rule's moments in fp32, in device memory of purpose OPTIMIZER;
 * offloaded, in page-locked host memory that the device reads and writes over its link during the update (each value
 * once). */
#ifndef TT_OPTIM_OPTIMIZER_H
#define TT_OPTIM_OPTIMIZER_H

#include "backend/device.h"
#include "optim/config.h"
#include "tensor/param.h"

enum { TT_MOMENTS_MAX = 2 };

struct tt_optimizer_update;

struct tt_rule {
    const char *name; /* "AdamW" */
    int moment_count; /* values that it keeps for each element */
    /* before the parameter's name in a checkpoint: "optimizer.exp_avg."; the last part is torch's name of the value */
    const char *prefixes[TT_MOMENTS_MAX];
    /* its settings are momentum and nesterov, not adam_beta1, adam_beta2 and adam_epsilon */
    bool has_momentum;
    bool (*fits)(const struct tt_optim_config *config); /* NULL: any configuration */
    tt_status (*update)(struct tt_stream *stream, const struct tt_optim_config *config,
                        const struct tt_optimizer_update *update);
};
#define RULE(name) extern const struct tt_rule tt_rule_##name;
#include "optim/rules.def"
#undef RULE

struct tt_optimizer {
    const char *spelling; /* the value of `optim` */
    const struct tt_rule *rule;
};
/* The optimizer of a configuration. NULL, or a configuration without `optim`: the first of spellings.def. */
const struct tt_optimizer *tt_optimizer_of(const struct tt_optim_config *config);
/* Refuses settings of another rule than `optim`. */
TT_MUST_USE tt_status tt_optimizer_check(const struct tt_optim_config *config);

struct tt_moments {
    struct tt_buffer *buffer;      /* owned: the values one after another; NULL: there are none */
    float *values[TT_MOMENTS_MAX]; /* [count] each */
    int64_t count;
};
/* A zeroed struct is empty; deinit takes it. */
TT_MUST_USE tt_status tt_moments_init(struct tt_device *device, const struct tt_optimizer *optimizer,
                                      int64_t count, bool offload, struct tt_moments *moments);
void tt_moments_deinit(struct tt_moments *moments);

struct tt_slices_run {
    int64_t offset, count; /* of the slices */
    enum tt_decay weight_decay;
    double lr_scale; /* of the run's learning rate (optim/groups.h) */
};
struct tt_optimizer_update {
    struct tt_moments *moments;
    float *master; /* [moments->count], as grad */
    const float *grad;
    struct tt_slices_run run;
    double lr;
    float grad_scale; /* the clipping coefficient */
    int64_t step;     /* from 1 */
};

/* For the rules: the values of an update's run as a vector (NULL: an empty tensor), and its weight decay. */
tt_tensor tt_optimizer_run(const struct tt_optimizer_update *update, const float *values);
double tt_optimizer_decay(const struct tt_optim_config *config, const struct tt_optimizer_update *update);

#endif
