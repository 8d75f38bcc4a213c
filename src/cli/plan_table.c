#include "cli/plan_table.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"

enum { AXES_MAX = 6, VALUES_MAX = 32, ROWS_MAX = 256 };

struct axis {
    const char *name;
    const char *values[VALUES_MAX];
    int count;
    char flag[128]; /* "--device=h200", of the current row */
};

struct table {
    struct axis axes[AXES_MAX];
    int axis_count;
    int rows;
    bool counts_images; /* its plans are of images */
};

static tt_status fail_axes(const char *word)
{
    tt_status status = tt_fail(TT_ERR_USAGE, "compare: '%.60s' is not KEY=VALUE,VALUE,...", word);
    tt_hint("such as --compare 'device=h200,h100 ranks=2,4', at most %d settings and %d rows", AXES_MAX,
            ROWS_MAX);
    return status;
}

/* Splits `word`, which is changed. */
static tt_status parse_axis(char *word, struct axis *axis)
{
    char *rest = strchr(word, '='), *position = NULL;
    if (rest == NULL || rest == word || rest[1] == '\0' || strlen(word) > 100) return fail_axes(word);
    *rest++ = '\0';
    axis->name = word;
    for (char *value = strtok_r(rest, ",", &position); value != NULL;
         value = strtok_r(NULL, ",", &position)) {
        if (axis->count == VALUES_MAX) return fail_axes(word);
        axis->values[axis->count++] = value;
    }
    return axis->count > 0 ? TT_OK : fail_axes(word);
}

static tt_status parse_axes(char *words, struct table *table)
{
    char *position = NULL;
    table->rows = 1;
    for (char *word = strtok_r(words, " ", &position); word != NULL; word = strtok_r(NULL, " ", &position)) {
        if (table->axis_count == AXES_MAX) return fail_axes(word);
        struct axis *axis = &table->axes[table->axis_count++];
        TT_TRY(parse_axis(word, axis));
        table->rows *= axis->count;
        if (table->rows > ROWS_MAX) return fail_axes(axis->name);
    }
    return table->axis_count > 0 ? TT_OK : fail_axes("");
}

static int width_of(const struct axis *axis)
{
    size_t width = strlen(axis->name);
    for (int i = 0; i < axis->count; i++)
        if (strlen(axis->values[i]) > width) width = strlen(axis->values[i]);
    return (int)width;
}

static tt_status format_plan(const struct tt_plan *plan, struct tt_str *text)
{
    char need[32], left[40] = "-", step[32] = "-", speed[32] = "-", levels[160];
    double seconds = tt_plan_estimate(plan);
    if (plan->limit_bytes > 0 && plan->fits)
        tt_format_bytes((double)(plan->limit_bytes - plan->memory.total_peak), left, sizeof left);
    if (!plan->fits) snprintf(left, sizeof left, "does not fit");
    if (seconds > 0) {
        snprintf(step, sizeof step, "%.3g s", seconds);
        double each = (double)plan->step_tokens * plan->ranks.count / seconds;
        snprintf(speed, sizeof speed, "%.*f", plan->counts_images && each < 100.0 ? 1 : 0, each);
    }
    tt_plan_recompute_text(plan, levels, sizeof levels);
    return tt_str_printf(text, "%10s  %12s  %9s  %9s  %s\n",
                         tt_format_bytes((double)plan->memory.total_peak, need, sizeof need), left, step,
                         speed, levels + strlen("recompute "));
}

/* Rows count through the values of the last setting first. */
static tt_status format_row(struct table *table, int row, tt_plan_of_flags plan_of, void *context,
                            struct tt_str *text)
{
    char *flags[AXES_MAX];
    int rest = row;
    struct tt_plan *plan = tt_calloc(1, sizeof *plan);
    if (plan == NULL) return TT_ERR_MEMORY;
    for (int a = table->axis_count - 1; a >= 0; a--) {
        struct axis *axis = &table->axes[a];
        snprintf(axis->flag, sizeof axis->flag, "--%s=%s", axis->name, axis->values[rest % axis->count]);
        rest /= axis->count;
        flags[a] = axis->flag;
    }
    tt_status status = plan_of(context, table->axis_count, flags, plan);
    for (int a = 0; a < table->axis_count && status == TT_OK; a++)
        status = tt_str_printf(text, "%-*s  ", width_of(&table->axes[a]),
                               table->axes[a].flag + strlen(table->axes[a].name) + 3);
    if (status == TT_OK) status = format_plan(plan, text);
    table->counts_images = plan->counts_images;
    tt_free(plan);
    return status;
}

tt_status tt_plan_table(const char *axes, tt_plan_of_flags plan_of, void *context, struct tt_str *text)
{
    tt_status status = TT_OK;
    struct tt_str rows = {0};
    struct table *table = tt_calloc(1, sizeof *table);
    char *words = tt_strdup(axes);
    if (table == NULL || words == NULL) TT_GO(TT_ERR_MEMORY);
    TT_GO(parse_axes(words, table));
    for (int row = 0; row < table->rows; row++) TT_GO(format_row(table, row, plan_of, context, &rows));
    for (int a = 0; a < table->axis_count; a++)
        TT_GO(tt_str_printf(text, "%-*s  ", width_of(&table->axes[a]), table->axes[a].name));
    TT_GO(tt_str_printf(text, "%10s  %12s  %9s  %9s  %s\n%s", "a rank", "left", "a step",
                        table->counts_images ? "images/s" : "tokens/s", "recompute", tt_str_text(&rows)));
out:
    tt_str_deinit(&rows);
    tt_free(words);
    tt_free(table);
    return status;
}
