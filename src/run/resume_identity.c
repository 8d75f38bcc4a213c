/* The identity of a run: the settings that must be equal for a resume (resume.h). */
#include <stdio.h>
#include <string.h>

#include "backend/settings.h"
#include "config/value.h"
#include "job/settings.h"
#include "job/task.h"
#include "model/settings.h"
#include "optim/schedule.h"
#include "run/resume.h"
#include "run/run_data.h"
#include "tensor/quant.h"

void tt_resume_add_word(struct tt_json_value *to, const char *name, int value)
{
    char word[TT_JOB_WORD_BYTES];
    tt_json_set(to, name, tt_json_new_string(tt_job_word(name, value, word)));
}

static struct tt_json_value *text_or_null(const char *text)
{
    return text != NULL ? tt_json_new_string(text) : tt_json_new_null();
}

/* Choices of which several are set, as a list of words. */
static struct tt_json_value *list_words(const struct tt_setting *row, unsigned words)
{
    struct tt_json_value *list = tt_json_new_list();
    char word[TT_JOB_WORD_BYTES];
    for (int i = 0; words >> i != 0; i++)
        if ((words >> i & 1) != 0)
            tt_json_append(list, tt_json_new_string(tt_setting_word(row, i, word, sizeof word)));
    return list;
}

static struct tt_json_value *value_of(const struct tt_setting *row, const void *value)
{
    char word[TT_JOB_WORD_BYTES];
    switch (row->type) {
    case TT_SETTING_STRING:
    case TT_SETTING_JSON:
        return text_or_null(*(const char *const *)value);
    case TT_SETTING_INT:
        return tt_json_new_integer(*(const int64_t *)value);
    case TT_SETTING_DOUBLE:
        return tt_json_new_real(*(const double *)value);
    case TT_SETTING_BOOL:
        return tt_json_new_bool(*(const bool *)value);
    case TT_SETTING_TRISTATE:
        return *(const int *)value < 0 ? tt_json_new_null() : tt_json_new_bool(*(const int *)value != 0);
    case TT_SETTING_CHOICE:
        return tt_json_new_string(tt_setting_word(row, *(const int *)value, word, sizeof word));
    case TT_SETTING_WORDS:
        return list_words(row, *(const unsigned *)value);
    case TT_SETTING_BYTES:
        return tt_json_new_integer((int64_t) * (const size_t *)value);
    }
    return NULL;
}

/* The default of a row of a setting that is recorded if it is set: a number, a truth or a word. */
static struct tt_json_value *default_of(const struct tt_setting *row)
{
    int64_t whole = 0;
    double number = 0;
    bool truth = false;
    switch (row->type) {
    case TT_SETTING_INT:
        return tt_value_parse_int(row->default_text, &whole) ? tt_json_new_integer(whole) : NULL;
    case TT_SETTING_DOUBLE:
        return tt_value_parse_double(row->default_text, &number) ? tt_json_new_real(number) : NULL;
    case TT_SETTING_BOOL:
        return tt_value_parse_bool(row->default_text, &truth) ? tt_json_new_bool(truth) : NULL;
    case TT_SETTING_CHOICE:
    case TT_SETTING_STRING:
    case TT_SETTING_JSON:
        return text_or_null(row->default_text);
    case TT_SETTING_TRISTATE:
    case TT_SETTING_WORDS:
    case TT_SETTING_BYTES:
        break;
    }
    return NULL;
}

/* Compares without memory, whose failure would record the default. */
static bool has_default(const struct tt_setting *row, const void *field)
{
    char word[TT_JOB_WORD_BYTES];
    const char *text = NULL, *by_default = row->default_text;
    int64_t whole;
    double number;
    bool truth;
    switch (row->type) {
    case TT_SETTING_INT:
        return tt_value_parse_int(by_default, &whole) && whole == *(const int64_t *)field;
    case TT_SETTING_DOUBLE:
        return tt_value_parse_double(by_default, &number) && number == *(const double *)field;
    case TT_SETTING_BOOL:
        return tt_value_parse_bool(by_default, &truth) && truth == *(const bool *)field;
    case TT_SETTING_CHOICE:
        text = tt_setting_word(row, *(const int *)field, word, sizeof word);
        break;
    case TT_SETTING_STRING:
    case TT_SETTING_JSON:
        text = *(const char *const *)field;
        break;
    case TT_SETTING_TRISTATE:
    case TT_SETTING_WORDS:
    case TT_SETTING_BYTES:
        return false;
    }
    return text == NULL || by_default == NULL ? text == by_default : strcmp(text, by_default) == 0;
}

/* Checkpoints have the setting by its name in PEFT. */
static const char *key_of(const struct tt_setting *row)
{
    return strcmp(row->name, "lora_modules_to_save") == 0 ? "modules_to_save" : row->name;
}

/* Whether the row is of another task than this one. */
static bool is_of_others(const struct tt_setting *row, int task)
{
    for (int other = 0; other < TT_TASKS && row->of != NULL; other++)
        if (other != task && strcmp(row->of, tt_task_name(other)) == 0) return true;
    return false;
}

static void add_row(struct tt_json_value *to, const struct tt_setting *row, const void *field)
{
    const unsigned result = TT_CHANGES_RESULT | TT_CHANGES_RESULT_IF_SET;
    if ((row->changes & result) == 0) return;
    if ((row->changes & TT_CHANGES_RESULT) == 0 && has_default(row, field)) return;
    tt_json_set(to, key_of(row), value_of(row, field));
}

/* The settings that change the result, by their values. Those of LoRA are the adapter's where a run begins with one. */
static void add_rows(struct tt_json_value *to, const struct tt_run_job *job, const struct tt_inputs *inputs)
{
    const struct tt_model_options *options = &inputs->model_options;
    const struct tt_job_rows *rows = &tt_job_rows[TT_JOB_TRAIN];
    for (size_t s = 0; s < rows->count; s++) {
        const struct tt_setting_section *section = &rows->sections[s];
        bool lora = section->rows == tt_lora_settings;
        const char *base =
            lora ? (const char *)&options->lora : (const char *)job->all + section->base_offset;
        if (lora && options->train_base) continue;
        for (const struct tt_setting *row = section->rows; row->name != NULL; row++)
            if (!is_of_others(row, inputs->task)) add_row(to, row, base + row->offset);
    }
}

/* The names of the losses are of one loss where there is no `rows`. */
static void add_objective(struct tt_json_value *to, const struct tt_objective *objective)
{
    const char *own = objective->ops->name;
    char name[100], loss[TT_OBJECTIVE_WORD_BYTES];
    tt_json_set(to, "objective", tt_json_new_string(own));
    const struct tt_setting *rows = objective->ops->settings;
    for (int i = 0; rows != NULL && rows[i].name != NULL; i++) {
        snprintf(name, sizeof name, "%s (%s)", rows[i].name, own);
        if (rows[i].choices == NULL)
            tt_json_set(to, name, tt_json_new_real(objective->values[i]));
        else if (!tt_objective_has_default(objective, i)) /* of no version before */
            tt_json_set(
                to, name,
                tt_json_new_string(tt_setting_word(&rows[i], (int)objective->values[i], loss, sizeof loss)));
    }
    if (objective->ops->rows == NULL || *tt_objective_loss_word(objective, 0, loss) == '\0') return;
    snprintf(name, sizeof name, "loss_type (%s)", own);
    char words[TT_OBJECTIVE_LOSSES_MAX * (TT_OBJECTIVE_WORD_BYTES + 32)];
    tt_objective_loss_words(objective, words, sizeof words);
    tt_json_set(to, name, tt_json_new_string(words));
}

static void add_samples(struct tt_json_value *to, const struct tt_run_spec *spec, uint64_t data,
                        int data_size)
{
    char sum[20];
    snprintf(sum, sizeof sum, "%016llx", (unsigned long long)data);
    tt_json_set(to, "training data", tt_json_new_string(sum));
    tt_json_set(to, TT_RESUME_SAMPLES,
                tt_json_new_integer(data_size * spec->per_device_train_batch_size *
                                    spec->gradient_accumulation_steps));
    tt_json_set(to, "data_seed", tt_json_new_integer(spec->data_seed >= 0 ? spec->data_seed : spec->seed));
}

/* Lengths in steps, and what follows from other settings. */
static void add_optimizer(struct tt_json_value *to, const struct tt_optim_config *optim,
                          const struct tt_run_length *run)
{
    const struct tt_schedule_length length = {run->total_steps, run->steps_per_epoch};
    tt_json_set(to, TT_RESUME_STEPS, tt_json_new_integer(run->total_steps));
    tt_json_set(to, TT_RESUME_WARMUP, tt_json_new_integer(tt_schedule_warmup_steps(optim, length)));
    if (optim->momentum > 0) tt_json_set(to, "nesterov", tt_json_new_bool(optim->nesterov));
}

struct tt_json_value *tt_resume_unwritten(const char *name)
{
    const struct tt_job_rows *rows = &tt_job_rows[TT_JOB_TRAIN];
    for (size_t s = 0; s < rows->count; s++)
        for (const struct tt_setting *row = rows->sections[s].rows; row->name != NULL; row++)
            if ((row->changes & TT_CHANGES_RESULT_IF_SET) != 0 && strcmp(row->name, name) == 0)
                return default_of(row);
    if (strcmp(name, "nesterov") == 0 || strcmp(name, TT_RESUME_SHARED_PROMPT) == 0)
        return tt_json_new_bool(false);
    if (strcmp(name, TT_RESUME_LORA_INIT) == 0) return tt_json_new_string("one that keeps the base");
    return strcmp(name, "fp8_products") == 0 ? tt_json_new_string("none") : NULL;
}

struct tt_json_value *tt_resume_identity(const struct tt_run_job *job, const struct tt_inputs *inputs,
                                         const struct tt_run_length *length, int data_size)
{
    struct tt_json_value *to = tt_json_new_object();
    const struct tt_task_run_ops *task = tt_task_run_of(inputs);
    add_rows(to, job, inputs);
    add_objective(to, job->objective);
    add_samples(to, job->run, task->sum(inputs), data_size);
    add_optimizer(to, job->optim, length);
    task->identify(inputs, job->data, to);
    return tt_json_finish(to);
}

/* Codes in FP8 were products with the reciprocal of the scale in versions that did not store how they are made. */
static const char fp8_codes[] = "fp8_codes";

static bool makes_codes(const struct tt_inputs *inputs)
{
    const struct tt_base_quant *quant = &inputs->model_options.quant;
    return tt_quant_multiplies(quant->type) || quant->recodes;
}

bool tt_resume_codes_differ(const struct tt_inputs *inputs, const struct tt_json_value *tuning)
{
    return makes_codes(inputs) && tt_json_get(tuning, fp8_codes) == NULL;
}

struct tt_json_value *tt_resume_tuning(const struct tt_run_job *job, const struct tt_inputs *inputs)
{
    struct tt_json_value *to = tt_json_new_object();
    const char *tuning = (const char *)job->tuning;
    for (const struct tt_setting *row = tt_tuning_settings; row->name != NULL; row++) {
        if (row->local) continue; /* it changes no result */
        if (row->type == TT_SETTING_BOOL || row->type == TT_SETTING_CHOICE)
            tt_json_set(to, row->name, value_of(row, tuning + row->offset));
    }
    if (makes_codes(inputs)) tt_json_set(to, fp8_codes, tt_json_new_string("divided"));
    return tt_json_finish(to);
}
