/* What an evaluation measures and a checkpoint can be the best by. */
#ifndef TT_JOB_METRIC_H
#define TT_JOB_METRIC_H

#include <stdbool.h>

enum tt_metric_kind { TT_METRIC_LOSS, TT_METRIC_TOKEN_ACCURACY };

struct tt_metric {
    const char *name; /* as logs have it; of an evaluation with "eval_" before it */
    enum tt_metric_kind kind;
    bool greater_is_better;
};
/* By name, with "eval_" or without; NULL: none of that name. The loss where `name` is NULL. */
const struct tt_metric *tt_metric_find(const char *name);

#endif
