#include "objective/objective.h"

#include <stdio.h>
#include <string.h>

static const struct tt_objective_ops *const objectives[] = {
#define OBJECTIVE(name) &tt_objective_##name,
#include "objective/objectives.def"
#undef OBJECTIVE
};

tt_status tt_objective_init(const char *name, struct tt_objective *out)
{
    char names[512] = "";
    for (size_t i = 0; i < sizeof objectives / sizeof *objectives; i++) {
        size_t used = strlen(names);
        if (strcmp(objectives[i]->name, name) == 0) {
            *out = (struct tt_objective){.ops = objectives[i]};
            for (int o = 0; o < out->ops->option_count; o++)
                out->options[o] = out->ops->options[o].by_default;
            return TT_OK;
        }
        snprintf(names + used, sizeof names - used, "%s%s", used > 0 ? ", " : "", objectives[i]->name);
    }
    tt_status status = tt_fail(TT_ERR_USAGE, "no objective is called '%.60s'", name);
    tt_hint("%s", names);
    return status;
}

tt_status tt_objective_set(struct tt_objective *objective, const char *option, double value)
{
    const struct tt_objective_ops *ops = objective->ops;
    for (int i = 0; i < ops->option_count; i++) {
        const struct tt_objective_option *row = &ops->options[i];
        if (strcmp(row->name, option) != 0) continue;
        if (!(value >= row->least && value < row->below))
            return tt_fail(TT_ERR_USAGE, "%s of objective '%s' is %g: at least %g, and below %g", option,
                           ops->name, value, row->least, row->below);
        objective->options[i] = value;
        return TT_OK;
    }
    return tt_fail(TT_ERR_USAGE, "objective '%s' has no option '%.60s'", ops->name, option);
}

tt_status tt_objective_run(const struct tt_objective *objective, const struct tt_objective_rows *rows)
{
    const struct tt_objective_ops *ops = objective->ops;
    if (ops->group_size > 0 && rows->batch->group_size != ops->group_size)
        return tt_fail(TT_ERR_DATA,
                       "objective '%s' compares groups of %d sequences, and the data has groups of %d",
                       ops->name, ops->group_size, rows->batch->group_size);
    return ops->rows(objective, rows);
}

int64_t tt_objective_rows_end(const struct tt_batch *batch, int64_t s, int64_t first)
{
    while (first < batch->row_count && batch->rows[first] < batch->cu_seqlens[s + 1]) first++;
    return first;
}

int tt_objective_step_metrics(const struct tt_objective *objective)
{
    const struct tt_objective_ops *ops = objective->ops;
    return ops->step_metric_count > 0 ? ops->step_metric_count : ops->metric_count;
}

int64_t tt_objective_samples(const struct tt_objective *objective, int64_t sequences)
{
    return objective->ops->group_size > 1 ? sequences / objective->ops->group_size : sequences;
}

const char *tt_objective_unit(const struct tt_objective *objective)
{
    return objective->ops->unit != NULL ? objective->ops->unit : "tokens";
}

const struct tt_metric *tt_objective_best_metric(const struct tt_objective *objective, const char *name)
{
    static const char prefix[] = "eval_";
    const struct tt_objective_ops *ops = objective->ops;
    if (name == NULL) return &ops->metrics[TT_METRIC_LOSS];
    if (strncmp(name, prefix, sizeof prefix - 1) == 0) name += sizeof prefix - 1;
    for (int i = 0; i < ops->metric_count; i++)
        if (ops->metrics[i].better != TT_BETTER_NONE && strcmp(ops->metrics[i].name, name) == 0)
            return &ops->metrics[i];
    return NULL;
}

void tt_objective_best_names(const struct tt_objective *objective, char *text, size_t text_bytes)
{
    const struct tt_objective_ops *ops = objective->ops;
    int count = 0, done = 0;
    size_t used = 0;
    for (int i = 0; i < ops->metric_count; i++) count += ops->metrics[i].better != TT_BETTER_NONE;
    text[0] = '\0';
    for (int i = 0; i < ops->metric_count; i++) {
        if (ops->metrics[i].better == TT_BETTER_NONE) continue;
        const char *before = done == 0 ? "" : done + 1 == count ? " and " : ", ";
        snprintf(text + used, text_bytes - used, "%s%s", before, ops->metrics[i].name);
        used = strlen(text);
        done++;
    }
}

void tt_objective_metrics(const struct tt_objective *objective, const double sums[TT_OBJECTIVE_SUMS],
                          const struct tt_objective_counts *counts, double of_none,
                          double metrics[TT_OBJECTIVE_METRICS_MAX])
{
    const struct tt_objective_ops *ops = objective->ops;
    for (int i = 0; i < ops->metric_count; i++) {
        const struct tt_metric *metric = &ops->metrics[i];
        double over = metric->over == TT_OVER_TOKENS    ? (double)counts->tokens
                      : metric->over == TT_OVER_GROUPS  ? (double)counts->groups
                      : metric->over == TT_OVER_NOTHING ? 1.0
                                                        : sums[metric->over];
        metrics[i] = over > 0 ? sums[metric->sum] / over : of_none;
    }
}
