#include "cli/plan_table.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "cli/wrap.h"

enum { AXES_MAX = 6, VALUES_MAX = 32, ROWS_MAX = 256, FIGURES = 4, LEVELS_LEAST = 16, APART = 4 };

struct axis {
    const char *name;
    const char *values[VALUES_MAX];
    int count;
    char flag[128]; /* "--device=h200", of the current row */
};

/* A row: the values of the axes, the figures of its plan, and what is computed again. */
struct row {
    const char *values[AXES_MAX];
    char figures[FIGURES][32], levels[160];
};

struct table {
    struct axis axes[AXES_MAX];
    int axis_count;
    int row_count;
    struct row rows[ROWS_MAX];
    enum tt_count_unit unit; /* of its plans */
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
    table->row_count = 1;
    for (char *word = strtok_r(words, " ", &position); word != NULL; word = strtok_r(NULL, " ", &position)) {
        if (table->axis_count == AXES_MAX) return fail_axes(word);
        struct axis *axis = &table->axes[table->axis_count++];
        TT_TRY(parse_axis(word, axis));
        table->row_count *= axis->count;
        if (table->row_count > ROWS_MAX) return fail_axes(axis->name);
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

static void describe_plan(const struct tt_plan *plan, struct row *row)
{
    char levels[160];
    double seconds = tt_plan_estimate(plan);
    tt_format_bytes((double)plan->memory.total_peak, row->figures[0], sizeof row->figures[0]);
    for (int i = 1; i < FIGURES; i++) snprintf(row->figures[i], sizeof row->figures[i], "-");
    if (plan->limit_bytes > 0 && plan->fits)
        tt_format_bytes((double)(plan->limit_bytes - tt_plan_need(plan)), row->figures[1],
                        sizeof row->figures[1]);
    if (!plan->fits) snprintf(row->figures[1], sizeof row->figures[1], "does not fit");
    if (seconds > 0) {
        double each = (double)plan->step_count * plan->ranks.count / seconds;
        snprintf(row->figures[2], sizeof row->figures[2], "%.3g s", seconds);
        snprintf(row->figures[3], sizeof row->figures[3], "%.*f", tt_count_unit_digits(plan->unit, each),
                 each);
    }
    tt_plan_recompute_text(plan, levels, sizeof levels);
    snprintf(row->levels, sizeof row->levels, "%s", levels + strlen("recompute "));
}

/* Rows count through the values of the last setting first. */
static tt_status make_row(struct table *table, int number, tt_plan_of_flags plan_of, void *context)
{
    char *flags[AXES_MAX];
    int rest = number;
    struct row *row = &table->rows[number];
    struct tt_plan *plan = tt_calloc(1, sizeof *plan);
    if (plan == NULL) return TT_ERR_MEMORY;
    for (int a = table->axis_count - 1; a >= 0; a--) {
        struct axis *axis = &table->axes[a];
        row->values[a] = axis->values[rest % axis->count];
        snprintf(axis->flag, sizeof axis->flag, "--%s=%s", axis->name, row->values[a]);
        rest /= axis->count;
        flags[a] = axis->flag;
    }
    tt_status status = plan_of(context, table->axis_count, flags, plan);
    if (status == TT_OK) describe_plan(plan, row);
    table->unit = plan->unit;
    tt_free(plan);
    return status;
}

/* A line of the table. Where its parts do not stand beside each other, the axes have a line of their own; the last part
 * continues below itself. */
static tt_status append_line(const struct table *table, const struct row *row, const int *widths, int columns,
                             struct tt_str *text)
{
    int axes = 0, figures = 0;
    struct tt_str line = {0};
    tt_status status = TT_OK;
    for (int a = 0; a < table->axis_count; a++) axes += width_of(&table->axes[a]) + 2;
    for (int i = 0; i < FIGURES; i++) figures += widths[i] + 2;
    bool apart = axes + figures + LEVELS_LEAST > columns;
    for (int a = 0; a < table->axis_count; a++)
        TT_GO(!apart ? tt_str_printf(&line, "%-*s  ", width_of(&table->axes[a]), row->values[a])
              : row->values[a] == table->axes[a].name
                  ? TT_OK
                  : tt_str_printf(&line, "%s%s=%s", a > 0 ? "  " : "", table->axes[a].name, row->values[a]));
    if (apart) TT_GO(tt_str_printf(&line, "%s%*s", line.bytes > 0 ? "\n" : "", APART, ""));
    for (int i = 0; i < FIGURES; i++) TT_GO(tt_str_printf(&line, "%*s  ", widths[i], row->figures[i]));
    TT_GO(tt_str_printf(&line, "%s\n", row->levels));
    const struct tt_wrap wrap = {.columns = columns, .indent = apart ? figures : axes + figures};
    TT_GO(tt_wrap_append(text, tt_str_text(&line), &wrap));
out:
    tt_str_deinit(&line);
    return status;
}

static tt_status format_table(const struct table *table, int columns, struct tt_str *text)
{
    struct row head = {.figures = {"a rank", "left", "a step"}, .levels = "recompute"};
    int widths[FIGURES];
    snprintf(head.figures[3], sizeof head.figures[3], "%s/s", tt_count_units[table->unit].name);
    for (int a = 0; a < table->axis_count; a++) head.values[a] = table->axes[a].name;
    for (int i = 0; i < FIGURES; i++) {
        widths[i] = (int)strlen(head.figures[i]);
        for (int r = 0; r < table->row_count; r++)
            if ((int)strlen(table->rows[r].figures[i]) > widths[i])
                widths[i] = (int)strlen(table->rows[r].figures[i]);
    }
    TT_TRY(append_line(table, &head, widths, columns, text));
    for (int r = 0; r < table->row_count; r++)
        TT_TRY(append_line(table, &table->rows[r], widths, columns, text));
    return TT_OK;
}

tt_status tt_plan_table(const char *axes, tt_plan_of_flags plan_of, void *context, int columns,
                        struct tt_str *text)
{
    tt_status status = TT_OK;
    struct table *table = tt_calloc(1, sizeof *table);
    char *words = tt_strdup(axes);
    if (table == NULL || words == NULL) TT_GO(TT_ERR_MEMORY);
    TT_GO(parse_axes(words, table));
    for (int row = 0; row < table->row_count; row++) TT_GO(make_row(table, row, plan_of, context));
    TT_GO(format_table(table, columns, text));
out:
    tt_free(words);
    tt_free(table);
    return status;
}
