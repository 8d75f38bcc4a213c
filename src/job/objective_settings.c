/* Settings of the objective of a language model, and the settings that follow from it. Names and defaults are those of
 * TRL's DPOConfig. */
#include <math.h>
#include <string.h>

#include "base/json.h"
#include "base/number.h"
#include "job/resolve.h"
#include "objective/dpo_losses.h"

#define FIELD(member) .offset = offsetof(struct tt_job_spec, member)

/* One row reads as one paragraph. */
/* clang-format off */
const struct tt_setting tt_objective_settings[] = {
    {.name = "objective", .type = TT_SETTING_CHOICE, FIELD(objectives.objective), .default_text = "sft",
     .choices = "sft dpo",
     .only_reason = "sft: supervised fine-tuning; dpo: direct preference optimization",
     .is_axis = true, .of = "language",
     .help = "sft: supervised fine-tuning; dpo: direct preference optimization, on rows of prompt, chosen and "
             "rejected, with LoRA. The reference is the model with adapters off. With dpo learning_rate is 1e-6 and "
             "lora_dropout 0 unless they are given."},
    {.name = "beta", .type = TT_SETTING_DOUBLE, FIELD(objectives.beta), .default_text = "0.1", .minimum = 1e-6,
     .maximum = INFINITY, .of = "dpo", .help = "With dpo: how much a deviation from the reference counts."},
    {.name = "label_smoothing", .type = TT_SETTING_DOUBLE, FIELD(objectives.label_smoothing), .default_text = "0",
     .minimum = 0, .maximum = 0.5, .of = "dpo",
     .help = "With dpo and loss_type robust or exo_pair: the probability that a preference is the wrong way round."},
    {.name = "discopop_tau", .type = TT_SETTING_DOUBLE, FIELD(objectives.discopop_tau), .default_text = "0.05",
     .minimum = 1e-6, .maximum = INFINITY, .of = "dpo",
     .help = "With dpo and loss_type discopop: where its two losses blend."},
    {.name = "loss_type", .type = TT_SETTING_JSON, FIELD(objectives.loss_type), .default_text = "nll", .of = "language",
     .help = "nll or chunked_nll: the loss of sft. Of dpo: sigmoid (its default), robust, hinge, ipo, exo_pair, "
             "nca_pair, bco_pair, sppo_hard, apo_zero, apo_down, discopop or sigmoid_norm."},
    {.name = NULL},
};
/* clang-format on */

static tt_status usage(const char *message, const char *hint)
{
    tt_status status = tt_fail(TT_ERR_USAGE, "%s", message);
    tt_hint("%s", hint);
    return status;
}

tt_status tt_objective_suggest(struct tt_settings *settings, const struct tt_job_spec *job)
{
    static const char origin[] = "objective: dpo";
    if (job->objectives.objective != TT_OBJECTIVE_DPO) return TT_OK;
    TT_TRY(tt_settings_suggest(settings, "loss_type", "sigmoid", origin));
    TT_TRY(tt_settings_suggest(settings, "learning_rate", "1e-6", origin));
    return tt_settings_suggest(settings, "lora_dropout", "0", origin);
}

static void hint_losses(bool dpo)
{
    char names[200] = "";
    for (int i = 0; i < TT_DPO_LOSSES; i++) {
        size_t used = strlen(names);
        (void)tt_snprintf(names + used, sizeof names - used, "%s%s", i > 0 ? ", " : "", tt_dpo_loss_name(i));
    }
    if (dpo)
        tt_hint("the losses of dpo are %s, one at a time", names);
    else
        tt_hint("the loss of sft is nll; objective: dpo has %s", names);
}

/* The loss by its name, or by a list that has one name. *loss: of dpo. */
static tt_status check_loss(const struct tt_job_spec *job, int *loss)
{
    bool dpo = job->objectives.objective == TT_OBJECTIVE_DPO;
    const char *given = job->objectives.loss_type, *word = given;
    struct tt_json json = {0};
    *loss = TT_DPO_SIGMOID;
    if (given == NULL) return TT_OK;
    if (*given == '[') {
        TT_TRY(tt_json_parse(given, strlen(given), "loss_type", &json));
        word = tt_json_count(json.root) == 1 ? tt_json_text(tt_json_at(json.root, 0)) : NULL;
    }
    *loss = word != NULL && dpo ? tt_dpo_loss_find(word) : -1;
    bool nll = word != NULL && (strcmp(word, "nll") == 0 || strcmp(word, "chunked_nll") == 0);
    bool known = dpo ? *loss >= 0 : nll;
    tt_json_deinit(&json);
    if (known) return TT_OK;
    tt_status status = tt_fail(TT_ERR_UNSUPPORTED, "loss_type '%.60s' is no loss of the objective %s", given,
                               dpo ? "dpo" : "sft");
    hint_losses(dpo);
    return status;
}

/* Options of single losses, which TRL ignores with others. */
static tt_status check_options(const struct tt_settings *settings, const struct tt_objective_spec *spec,
                               int loss)
{
    static const struct {
        const char *option;
        int losses[2];
    } options[] = {{"label_smoothing", {TT_DPO_ROBUST, TT_DPO_EXO_PAIR}},
                   {"discopop_tau", {TT_DPO_DISCOPOP, TT_DPO_DISCOPOP}}};
    const char *name = tt_dpo_loss_name(loss);
    if (loss == TT_DPO_EXO_PAIR && spec->label_smoothing == 0)
        return usage("loss_type exo_pair needs a label_smoothing above 0", "its paper recommends 1e-3");
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        const int *losses = options[i].losses;
        if (loss == losses[0] || loss == losses[1]) continue;
        if (tt_settings_has_default(settings, options[i].option)) continue;
        tt_status status = tt_fail(TT_ERR_USAGE, "%s is given, and loss_type is %s", options[i].option, name);
        tt_hint("TRL's %s ignores it: set loss_type: %s", name, tt_dpo_loss_name(losses[0]));
        return status;
    }
    return TT_OK;
}

static tt_status check_dpo_model(const struct tt_settings *settings, const struct tt_job_spec *job)
{
    if (!tt_settings_has(settings, "use_peft")) return TT_OK; /* nothing trains */
    if (!job->model.use_peft)
        return usage("objective dpo needs LoRA, and use_peft is off",
                     "the reference is the model with adapters off: leave use_peft on");
    if (job->model.adapter_name_or_path != NULL)
        return usage("objective dpo begins with a new adapter, and adapter_name_or_path is given",
                     "the reference would be the model without that adapter: merge it first (trimtab merge), "
                     "and train on the result");
    return TT_OK;
}

static tt_status check_dpo_data(const struct tt_job_spec *job)
{
    const struct tt_data_config *data = &job->data;
    if (data->packing || data->eval_packing > 0)
        return usage("objective dpo compares pairs of samples, which are not packed", "leave packing out");
    if (data->assistant_only_loss || data->sample_per_turn || data->completion_only_loss == 0)
        return usage("objective dpo trains on the whole of both answers, and on nothing else",
                     "leave assistant_only_loss, sample_per_turn and completion_only_loss out");
    return TT_OK;
}

tt_status tt_objective_settle(const struct tt_settings *settings, struct tt_job_spec *job)
{
    const struct tt_objective_spec *spec = &job->objectives;
    bool dpo = spec->objective == TT_OBJECTIVE_DPO;
    int loss = TT_DPO_SIGMOID;
    const char *language = dpo ? "dpo" : "sft";
    TT_TRY(tt_objective_init(job->task == TT_TASK_DETECTION ? "detection" : language, &job->objective));
    if (!tt_settings_has(settings, "objective")) return TT_OK;
    TT_TRY(check_loss(job, &loss));
    if (!dpo) return TT_OK;
    TT_TRY(check_options(settings, spec, loss));
    TT_TRY(check_dpo_model(settings, job));
    TT_TRY(check_dpo_data(job));
    job->data.preference = true;
    TT_TRY(tt_objective_set(&job->objective, "beta", spec->beta));
    TT_TRY(tt_objective_set(&job->objective, "loss_type", loss));
    TT_TRY(tt_objective_set(&job->objective, "discopop_tau", spec->discopop_tau));
    return tt_objective_set(&job->objective, "label_smoothing", spec->label_smoothing);
}
