/* Evaluation by task items (run/task_items.h): log likelihoods and greedy texts over the ranks of a run, and their
 * scores as lm-evaluation-harness has them. */
#ifndef TT_RUN_EVALUATE_TASKS_H
#define TT_RUN_EVALUATE_TASKS_H

#include "base/json.h"
#include "job/spec.h"
#include "run/generate_run.h"

struct tt_tasks_config {
    const char *path;         /* of the items */
    const char *results_path; /* NULL: no file; a JSON line an item */
    bool chooses_sharding;    /* no strategy was asked for */
};
/* *scores: a list of {task, items, metrics: {acc: {value, stderr}, ...}}, owned; NULL in processes without rank 0. */
TT_MUST_USE tt_status tt_evaluate_tasks(const struct tt_eval_spec *spec, const struct tt_tasks_config *config,
                                        const struct tt_cancel *cancel, struct tt_json_value **scores);

#endif
