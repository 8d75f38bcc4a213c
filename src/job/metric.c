#include "job/metric.h"

#include <stddef.h>
#include <string.h>

static const struct tt_metric metrics[] = {
    {"loss", TT_METRIC_LOSS, false},
    {"mean_token_accuracy", TT_METRIC_TOKEN_ACCURACY, true},
};

const struct tt_metric *tt_metric_find(const char *name)
{
    static const char prefix[] = "eval_";
    if (name == NULL) return &metrics[TT_METRIC_LOSS];
    if (strncmp(name, prefix, sizeof prefix - 1) == 0) name += sizeof prefix - 1;
    for (size_t i = 0; i < sizeof metrics / sizeof *metrics; i++)
        if (strcmp(metrics[i].name, name) == 0) return &metrics[i];
    return NULL;
}
