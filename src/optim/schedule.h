/* Learning-rate schedules with the names and formulas of transformers (src/transformers/optimization.py), and
 * `multistep`, that of torchvision's detectors (references/detection/train.py): torch's LinearLR over the warm-up times
 * MultiStepLR. The rate is a pure function of the optimizer step. */
#ifndef TT_OPTIM_SCHEDULE_H
#define TT_OPTIM_SCHEDULE_H

#include "base/error.h"
#include "optim/config.h"

struct tt_schedule_length {
    int64_t total_steps, steps_per_epoch;
};
/* Factor of the peak rate at step `step` (from 0) of a run. */
double tt_schedule_factor(const struct tt_optim_config *config, int64_t step,
                          struct tt_schedule_length length);
/* Steps of warm-up: warmup_steps when >= 1, a share of total_steps when in (0, 1), else warmup_ratio of them; else
 * those of warmup_epochs but for the last, at most TT_WARMUP_EPOCH_STEPS_MAX, as torchvision's references. */
enum { TT_WARMUP_EPOCH_STEPS_MAX = 1000 };
int64_t tt_schedule_warmup_steps(const struct tt_optim_config *config, struct tt_schedule_length length);
/* Not NULL for a name of transformers' SchedulerType that is not served: what to write instead. */
const char *tt_schedule_instead(const char *name);
/* Checks lr_scheduler_kwargs. */
TT_MUST_USE tt_status tt_schedule_check(const struct tt_optim_config *config);

#endif
