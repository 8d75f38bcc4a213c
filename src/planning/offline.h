/* A plan without a run: from settings and the config.json of a model, for a device that need not be present. Reads no
 * weights, tokenizer or data: every row counts with the maximal number of tokens, all of them supervised, every image
 * with the largest canvas that it can have. */
#ifndef TT_PLANNING_OFFLINE_H
#define TT_PLANNING_OFFLINE_H

#include "engine/plan.h"
#include "job/spec.h"

/* The setting whose largest value a plan searches. */
enum { TT_PLAN_MAX_NONE, TT_PLAN_MAX_BATCH, TT_PLAN_MAX_SIZE }; /* SIZE + task: of its samples (job/task.h) */
const char *tt_plan_max_setting(int what);                      /* the name of that setting */

/* The largest run that fits. */
struct tt_plan_largest {
    int64_t value;       /* of the setting */
    const char *follows; /* another setting, in the proportion that was given; NULL: none */
    int64_t follower;    /* its value */
    bool bounded; /* the next one is not possible at all: the model's positions end, or a batch's limit */
    size_t next_bytes; /* of a rank, for the next one; 0 if `bounded` */
};

/* Sets the batch size, the length of rows or the size of images in `spec` to the largest that fits, and plans it.
 * TT_ERR_MEMORY if none does. TT_ERR_USAGE where the device has no limit. */
TT_MUST_USE tt_status tt_plan_offline_largest(struct tt_plan_spec *spec, int what, struct tt_plan *plan,
                                              struct tt_plan_largest *largest);

/* Every unit with its tensors, their types and bytes, appended; the bytes are those of the whole unit before it is
 * split over the ranks. */
TT_MUST_USE tt_status tt_plan_offline_units(const struct tt_plan_spec *spec, struct tt_str *text);

/* Appends a line that says what bounds the step, and proposes a strategy that is faster and fits. */
TT_MUST_USE tt_status tt_plan_offline_bounds(const struct tt_plan_spec *spec, const struct tt_plan *plan,
                                             struct tt_str *text);

/* The same as tt_plan_offline, without its advice. */
TT_MUST_USE tt_status tt_plan_offline_try(const struct tt_plan_spec *spec, struct tt_plan *plan);
/* Creates the model of the plan alone; the caller owns it. */
TT_MUST_USE tt_status tt_plan_offline_model(const struct tt_plan_spec *spec, struct tt_model **model);

/* `spec` is resolved. Fills `plan`, which is also filled for a run that does not fit; with auto_find_batch_size it is
 * that of the batch which is found. */
TT_MUST_USE tt_status tt_plan_offline(const struct tt_plan_spec *spec, struct tt_plan *plan);

#endif
