/* The objective of a language model: which one and which loss of it, the settings that follow, and what it needs. Its
 * own settings stand in its file (objective/objective.h). */
#include <string.h>

#include "base/number.h"
#include "job/resolve.h"
#include "job/task.h"
#include "objective/reference.h"

#define FIELD(member) .offset = offsetof(struct tt_job_spec, member)

/* One row reads as one paragraph. */
/* clang-format off */
#define OBJECTIVE(name, what, losses) " " #name
static const char choices[] =
#include "objective/objectives.def"
    ;
#define OBJECTIVE(name, what, losses) #name ": " what "; "
static const char help[] =
#include "objective/objectives.def"
    "each has settings of its own.";
#define OBJECTIVE(name, what, losses) "; of " #name ": " losses
static const char losses[] =
    "The loss, the first by default"
#include "objective/objectives.def"
    ".";

const struct tt_setting tt_objective_settings[] = {
    {.name = "objective", .type = TT_SETTING_CHOICE, FIELD(objectives.objective), .default_text = "sft",
     .choices = &choices[1], .only_reason = help, .is_axis = true, .of = "language", .help = help},
    {.name = NULL},
};
const struct tt_setting tt_loss_settings[] = {
    {.name = "loss_type", .type = TT_SETTING_JSON, FIELD(objectives.loss_type), .default_text = "nll", .of = "language",
     .help = losses},
    {.name = "loss_weights", .type = TT_SETTING_JSON, FIELD(objectives.loss_weights), .of = "dpo",
     .help = "With dpo and a list of losses: a weight for each, 1 by default."},
    {.name = "precompute_ref_log_probs", .type = TT_SETTING_BOOL, FIELD(objectives.precompute_ref_log_probs),
     .default_text = "false", .of = "dpo kto",
     .help = "With dpo and kto: log p by the reference is computed once before the first step, kept beside prepared "
     "rows or in output_dir, and read from there; rows may bring it."},
    {.name = "precompute_ref_batch_size", .type = TT_SETTING_INT, FIELD(objectives.precompute_ref_batch_size),
     .default_text = "0", .null_text = "0", .maximum = 1 << 20, .of = "dpo kto", .needs = "precompute_ref_log_probs",
     .help = "With precompute_ref_log_probs: rows of a batch of it; 0: as many as a micro batch has."},
    {.name = NULL},
};
/* clang-format on */

bool tt_objective_is_named(const char *name)
{
    for (int i = 0; i < TT_OBJECTIVES; i++)
        if (strcmp(tt_objectives[i]->name, name) == 0) return true;
    return false;
}

/* The message has a place for the name of the objective. */
static tt_status refuse(const struct tt_objective_ops *ops, const char *format, const char *hint)
{
    tt_status status = tt_fail(TT_ERR_USAGE, format, ops->name);
    tt_hint("%s", hint);
    return status;
}

tt_status tt_objective_suggest(struct tt_settings *settings, const struct tt_job_spec *job)
{
    char origin[80], loss[TT_OBJECTIVE_WORD_BYTES];
    const struct tt_objective objective = {.ops = tt_objectives[job->objectives.objective]};
    (void)tt_snprintf(origin, sizeof origin, "objective: %s", objective.ops->name);
    if (!tt_settings_has_default(settings, "objective") &&
        *tt_objective_loss_word(&objective, 0, loss) != '\0')
        TT_TRY(tt_settings_suggest(settings, "loss_type", loss, origin));
    for (const struct tt_objective_default *row = objective.ops->defaults; row != NULL && row->name != NULL;
         row++)
        TT_TRY(tt_settings_suggest(settings, row->name, row->value, origin));
    return TT_OK;
}

static tt_status check_needs(const struct tt_objective_ops *ops, const struct tt_job_spec *job)
{
    const struct tt_data_config *data = &job->data;
    if ((ops->needs & TT_NEEDS_UNPACKED) != 0 && (data->packing || data->eval_packing > 0))
        return refuse(ops, "objective %s compares pairs of samples, which are not packed",
                      "leave packing out");
    if ((ops->needs & TT_NEEDS_WHOLE_ANSWERS) != 0 &&
        (data->assistant_only_loss || data->sample_per_turn || data->completion_only_loss == 0))
        return refuse(ops, "objective %s compares the whole of both answers, and nothing else",
                      "leave assistant_only_loss, sample_per_turn and completion_only_loss out");
    return TT_OK;
}

/* Rows that are read once have no place for values of theirs, and answers of other rows are the same in every epoch
 * where the order is. */
static tt_status check_precomputed(const struct tt_objective *objective, const struct tt_job_spec *job)
{
    if (job->data.streaming)
        return refuse(objective->ops, "objective %s precomputes its reference for rows that are read before",
                      "leave streaming out, or precompute_ref_log_probs");
    if (tt_objective_mismatches(objective) && job->run.train_sampling_strategy != TT_SAMPLING_SEQUENTIAL)
        return refuse(
            objective->ops,
            "objective %s precomputes the reference of answers to other prompts, which another order "
            "changes",
            "set train_sampling_strategy: sequential");
    return TT_OK;
}

tt_status tt_objective_settle(const struct tt_settings *settings, struct tt_job_spec *job)
{
    const struct tt_objectives_spec *spec = &job->objectives;
    struct tt_objective *objective = &job->objective;
    const char *own = tt_tasks[job->task]->objective;
    if (own != NULL) return tt_objective_init(own, objective);
    *objective = (struct tt_objective){.ops = tt_objectives[spec->objective]};
    if (!tt_settings_has(settings, "objective")) return TT_OK;
    memcpy(objective->values, spec->values[spec->objective], sizeof objective->values);
    objective->loss_weights[0] = objective->loss_count = 1;
    if (spec->loss_type != NULL) TT_TRY(tt_objective_set_loss(objective, spec->loss_type));
    if (spec->loss_weights != NULL) TT_TRY(tt_objective_set_loss_weights(objective, spec->loss_weights));
    TT_TRY(tt_objective_check(objective));
    TT_TRY(check_needs(objective->ops, job));
    objective->precomputed =
        spec->precompute_ref_log_probs && (objective->ops->needs & TT_NEEDS_REFERENCE) != 0;
    if (objective->precomputed) TT_TRY(check_precomputed(objective, job));
    bool brings = objective->precomputed && objective->ops->referenced != NULL;
    job->data.rows_kind = brings ? objective->ops->referenced : objective->ops->rows_kind;
    job->model.scores = (struct tt_scores){.wanted = objective->ops->labels != 0,
                                           .labels = objective->ops->labels > 0 ? objective->ops->labels : 0,
                                           .names = job->data.id2label};
    return TT_OK;
}
