#include "objective/objective.h"

#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/number.h"
#include "config/value.h"
#include "data/row_kind.h"

const struct tt_objective_ops *const tt_objectives[TT_OBJECTIVES] = {
#define OBJECTIVE(name, what, losses) &tt_objective_##name,
#include "objective/objectives.def"
};

static const struct {
    const struct tt_objective_ops *ops;
    const char *losses;
} all[] = {
#define OBJECTIVE(name, what, losses) {&tt_objective_##name, losses},
#define TASK_OBJECTIVE(name) {&tt_objective_##name, ""},
#include "objective/objectives.def"
};
enum { COUNT = sizeof all / sizeof *all };

static double default_of(const struct tt_setting *row)
{
    double value = 0;
    char word[TT_OBJECTIVE_WORD_BYTES];
    for (int i = 0; row->choices != NULL && *tt_setting_word(row, i, word, sizeof word) != '\0'; i++)
        if (strcmp(word, row->default_text) == 0) return i;
    (void)tt_value_parse_double(row->default_text, &value);
    return value;
}

tt_status tt_objective_init(const char *name, struct tt_objective *out)
{
    char names[512] = "";
    for (size_t i = 0; i < COUNT; i++) {
        size_t used = strlen(names);
        if (strcmp(all[i].ops->name, name) == 0) {
            *out = (struct tt_objective){.ops = all[i].ops, .loss_weights = {1}, .loss_count = 1};
            for (int s = 0; out->ops->settings != NULL && out->ops->settings[s].name != NULL; s++)
                out->values[s] = default_of(&out->ops->settings[s]);
            return TT_OK;
        }
        snprintf(names + used, sizeof names - used, "%s%s", used > 0 ? ", " : "", all[i].ops->name);
    }
    tt_status status = tt_fail(TT_ERR_USAGE, "no objective is called '%.60s'", name);
    tt_hint("%s", names);
    return status;
}

/* ---- The loss ---- */

static const char *losses_of(const struct tt_objective *objective)
{
    for (size_t i = 0; i < COUNT; i++)
        if (all[i].ops == objective->ops) return all[i].losses;
    return "";
}

const char *tt_objective_loss_word(const struct tt_objective *objective, int loss,
                                   char word[TT_OBJECTIVE_WORD_BYTES])
{
    const struct tt_setting row = {.choices = losses_of(objective)};
    return tt_setting_word(&row, loss, word, TT_OBJECTIVE_WORD_BYTES);
}

void tt_objective_loss_words(const struct tt_objective *objective, char *text, size_t text_bytes)
{
    text[0] = '\0';
    for (int i = 0; i < objective->loss_count; i++) {
        char word[TT_OBJECTIVE_WORD_BYTES], weight[32] = "";
        size_t used = strlen(text);
        if (objective->loss_weights[i] != 1)
            tt_snprintf(weight, sizeof weight, "%.17g ", objective->loss_weights[i]);
        snprintf(text + used, text_bytes - used, "%s%s%s", i > 0 ? " + " : "", weight,
                 tt_objective_loss_word(objective, objective->losses[i], word));
    }
}

static int find_loss(const struct tt_objective *objective, const char *name)
{
    char word[TT_OBJECTIVE_WORD_BYTES];
    for (int i = 0; *tt_objective_loss_word(objective, i, word) != '\0'; i++)
        if (strcmp(word, name) == 0) return i;
    return -1;
}

static void hint_losses(const struct tt_objective *objective)
{
    char names[512] = "";
    for (size_t i = 0; i < COUNT; i++) {
        size_t used = strlen(names);
        if (all[i].ops != objective->ops && all[i].losses[0] != '\0')
            snprintf(names + used, sizeof names - used, "; objective: %s has %s", all[i].ops->name,
                     all[i].losses);
    }
    if (losses_of(objective)[0] == '\0')
        tt_hint("%s has one loss: leave loss_type out%s", objective->ops->name, names);
    else
        tt_hint("%s has %s, %s%s", objective->ops->name, losses_of(objective),
                objective->ops->adds_losses ? "or a list of up to four" : "one at a time", names);
}

static tt_status fail_loss(const struct tt_objective *objective, const char *loss_type)
{
    tt_status status = tt_fail(TT_ERR_UNSUPPORTED, "loss_type '%.60s' is no loss of the objective %s",
                               loss_type, objective->ops->name);
    hint_losses(objective);
    return status;
}

static tt_status set_losses(struct tt_objective *objective, const struct tt_json_value *list,
                            const char *loss_type)
{
    size_t count = tt_json_count(list);
    size_t most = objective->ops->adds_losses ? TT_OBJECTIVE_LOSSES_MAX : 1;
    if (count < 1 || count > most) return fail_loss(objective, loss_type);
    for (size_t i = 0; i < count; i++) {
        const char *word = tt_json_text(tt_json_at(list, i));
        objective->losses[i] = word != NULL ? find_loss(objective, word) : -1;
        objective->loss_weights[i] = 1;
        if (objective->losses[i] < 0) return fail_loss(objective, loss_type);
        for (size_t j = 0; j < i; j++)
            if (objective->losses[j] == objective->losses[i])
                return tt_fail(TT_ERR_USAGE, "loss_type names '%s' twice", word);
    }
    objective->loss_count = (int)count;
    return TT_OK;
}

tt_status tt_objective_set_loss(struct tt_objective *objective, const char *loss_type)
{
    struct tt_json json = {0};
    if (*loss_type == '[') {
        TT_TRY(tt_json_parse(loss_type, strlen(loss_type), "loss_type", &json));
        tt_status status = set_losses(objective, json.root, loss_type);
        tt_json_deinit(&json);
        return status;
    }
    int loss = find_loss(objective, loss_type);
    if (loss < 0) return fail_loss(objective, loss_type);
    objective->losses[0] = loss;
    objective->loss_weights[0] = 1;
    objective->loss_count = 1;
    return TT_OK;
}

static tt_status set_weights(struct tt_objective *objective, const struct tt_json_value *list)
{
    size_t count = tt_json_count(list);
    if (!tt_json_is_list(list) || (count > 0 && count != (size_t)objective->loss_count))
        return tt_fail(TT_ERR_USAGE, "loss_weights has %zu numbers, and loss_type %d losses", count,
                       objective->loss_count);
    for (size_t i = 0; i < count; i++) {
        const struct tt_json_value *weight = tt_json_at(list, i);
        double value = tt_json_number(weight);
        bool is_number = tt_json_is_number(weight);
        /* A word of a flag. */
        if (tt_json_is_string(weight)) is_number = tt_value_parse_double(tt_json_text(weight), &value);
        if (!is_number || !(value >= 0 && value <= 1e6))
            return tt_fail(TT_ERR_USAGE, "loss_weights are numbers of at least 0");
        objective->loss_weights[i] = value;
    }
    return TT_OK;
}

tt_status tt_objective_set_loss_weights(struct tt_objective *objective, const char *loss_weights)
{
    struct tt_json json = {0};
    TT_TRY(tt_json_parse(loss_weights, strlen(loss_weights), "loss_weights", &json));
    tt_status status = set_weights(objective, json.root);
    tt_json_deinit(&json);
    return status;
}

/* ---- Values ---- */

bool tt_objective_has_default(const struct tt_objective *objective, int index)
{
    return objective->values[index] == default_of(&objective->ops->settings[index]);
}

tt_status tt_objective_check(const struct tt_objective *objective)
{
    const struct tt_objective_ops *ops = objective->ops;
    for (int i = 0; ops->settings != NULL && ops->settings[i].name != NULL; i++) {
        const struct tt_setting *row = &ops->settings[i];
        double value = objective->values[i];
        if (row->choices != NULL) continue;
        if (!(value >= row->minimum && value < row->maximum))
            return tt_fail(TT_ERR_USAGE, "%s of objective '%s' is %g: at least %g, and below %g", row->name,
                           ops->name, value, row->minimum, row->maximum);
    }
    return ops->check != NULL ? ops->check(objective) : TT_OK;
}

/* ---- Rows and metrics ---- */

/* Sequences of a group; 0: any number. */
static int group_size(const struct tt_objective *objective)
{
    const struct tt_row_kind *kind = objective->ops->rows_kind;
    return kind != NULL ? (int)kind->samples_each : 0;
}

tt_status tt_objective_check_columns(const struct tt_objective *objective, const struct tt_batch *batch)
{
    const struct tt_objective_column *column = objective->ops->columns;
    if (batch->token_count == 0) return TT_OK;
    for (; column != NULL && column->name != NULL; column++)
        if (tt_batch_column(batch, column->name, column->per) == NULL)
            return tt_fail(TT_ERR_DATA,
                           "objective '%s' reads the column '%s', one value a %s, and the data has none",
                           objective->ops->name, column->name, tt_per_name(column->per));
    return TT_OK;
}

tt_status tt_objective_run(const struct tt_objective *objective, const struct tt_objective_rows *rows,
                           double *shared)
{
    const struct tt_objective_ops *ops = objective->ops;
    int size = group_size(objective);
    if (size > 0 && rows->batch->group_size != size)
        return tt_fail(TT_ERR_DATA,
                       "objective '%s' compares groups of %d sequences, and the data has groups of %d",
                       ops->name, size, rows->batch->group_size);
    return shared != NULL ? ops->share(objective, rows, shared) : ops->rows(objective, rows);
}

bool tt_objective_shares(const struct tt_objective *objective)
{
    const struct tt_objective_ops *ops = objective->ops;
    bool shares = ops->share_losses == 0;
    for (int i = 0; i < objective->loss_count; i++)
        shares = shares || (ops->share_losses >> objective->losses[i] & 1) != 0;
    return ops->share != NULL && shares;
}

bool tt_objective_reads_squares(const struct tt_objective *objective)
{
    return objective->ops->reads_squares != NULL && objective->ops->reads_squares(objective);
}

void tt_objective_count(struct tt_objective_counts *counts, const struct tt_step_facts *facts)
{
    counts->tokens += facts->supervised;
    counts->leading_tokens += facts->leading;
    counts->groups += facts->groups;
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

bool tt_objective_suggests(const struct tt_objective_ops *ops, const char *name)
{
    for (const struct tt_objective_default *row = ops->defaults; row != NULL && row->name != NULL; row++)
        if (strcmp(row->name, name) == 0) return true;
    return false;
}

int64_t tt_objective_samples(const struct tt_objective *objective, int64_t sequences)
{
    int size = group_size(objective);
    return size > 1 ? sequences / size : sequences;
}

const char *tt_objective_unit(const struct tt_objective *objective)
{
    return tt_count_units[objective->ops->unit].name;
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
        if (metric->over == TT_OF_METRICS) {
            metrics[i] = metrics[metric->sum] - metrics[metric->sum + 1];
            continue;
        }
        double over = metric->over == TT_OVER_TOKENS    ? (double)counts->tokens
                      : metric->over == TT_OVER_GROUPS  ? (double)counts->groups
                      : metric->over == TT_OVER_NOTHING ? 1.0
                                                        : sums[metric->over];
        metrics[i] = over > 0 ? sums[metric->sum] / over : of_none;
    }
}
