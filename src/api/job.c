#include "api/job.h"

#include <stddef.h>

#include "base/alloc.h"
#include "job/accelerate.h"
#include "job/resolve.h"
#include "run/trainer.h"
#include "store/s3.h"

/* One row reads as one paragraph. */
/* clang-format off */
static const struct tt_setting own_settings[] = {
    {.name = "exact_match", .type = TT_SETTING_BOOL, .offset = offsetof(struct tt_job_target, exact_match),
     .default_text = "false", .transient = true,
     .help = "Evaluation also completes each prompt greedily and counts the completions that equal the row's."},
    {.name = "max_prompt_tokens", .type = TT_SETTING_INT,
     .offset = offsetof(struct tt_job_target, max_prompt_tokens), .default_text = "0", .transient = true,
     .minimum = 0, .maximum = 1 << 20,
     .help = "Largest number of tokens of a prompt; 0: the model's positions minus max_new_tokens, at most 1024."},
    {.name = NULL},
};
/* clang-format on */

static size_t list_sections(struct tt_setting_section *sections)
{
    size_t count = 0;
    const struct tt_job_rows *train = &tt_job_rows[TT_JOB_TRAIN];
    while (count < train->count) sections[count] = train->sections[count], count++;
    sections[count++] = (struct tt_setting_section){"Completions", tt_completion_settings,
                                                    offsetof(struct tt_job_target, generate)};
    sections[count++] = (struct tt_setting_section){"Generation", tt_generate_settings,
                                                    offsetof(struct tt_job_target, generate)};
    sections[count++] = (struct tt_setting_section){"Evaluation", own_settings, 0};
    return count;
}

tt_status tt_job_create(struct tt_job **out)
{
    tt_s3_store_register();
    struct tt_job *job = tt_calloc(1, sizeof *job);
    if (job == NULL) return TT_ERR_MEMORY;
    size_t count = list_sections(job->sections);
    tt_status status =
        tt_settings_create(job->sections, count, &job->target, sizeof job->target, &job->settings);
    if (status == TT_OK)
        *out = job;
    else
        tt_job_destroy(job);
    return status;
}

void tt_job_destroy(struct tt_job *job)
{
    if (job == NULL) return;
    tt_settings_destroy(job->settings);
    tt_str_deinit(&job->yaml);
    tt_free(job);
}

static tt_status check_open(const struct tt_job *job)
{
    if (!job->resolved) return TT_OK;
    tt_status status =
        tt_fail(TT_ERR_USAGE, "the settings of this job are resolved already and cannot change");
    tt_hint("create another job");
    return status;
}

tt_status tt_job_set(struct tt_job *job, const char *name, const char *value)
{
    TT_TRY(check_open(job));
    return tt_settings_set(job->settings, name, value, "tt_job_set");
}

tt_status tt_job_read_yaml(struct tt_job *job, const char *path)
{
    TT_TRY(check_open(job));
    return tt_settings_read_yaml(job->settings, path);
}

tt_status tt_job_parse_yaml(struct tt_job *job, const char *text, size_t bytes, const char *origin)
{
    TT_TRY(check_open(job));
    return tt_settings_parse_yaml(job->settings, text, bytes, origin);
}

tt_status tt_job_read_accelerate(struct tt_job *job, const char *path)
{
    TT_TRY(check_open(job));
    return tt_accelerate_read(path, job->settings);
}

static tt_status resolve_training(struct tt_job *job)
{
    job->resolved = true;
    if (job->train_resolved) return TT_OK;
    TT_TRY(tt_train_resolve(job->settings, &job->target.config));
    job->train_resolved = true;
    return TT_OK;
}

tt_status tt_job_describe(struct tt_job *job, const char **yaml)
{
    TT_TRY(resolve_training(job));
    tt_str_clear(&job->yaml);
    TT_TRY(tt_settings_write_yaml(job->settings, &job->yaml));
    *yaml = tt_str_text(&job->yaml);
    return TT_OK;
}

void tt_job_stop(struct tt_job *job)
{
    atomic_fetch_add(&job->cancel.requests, 1);
}

static tt_status check_not_stopped(struct tt_job *job)
{
    if (atomic_load(&job->cancel.requests) == 0) return TT_OK;
    return tt_fail(TT_ERR_CANCELLED, "stopped on request before the start");
}

tt_status tt_job_train(struct tt_job *job, const struct tt_train_observer *observer,
                       struct tt_train_summary *summary)
{
    TT_TRY(check_not_stopped(job));
    TT_TRY(resolve_training(job));
    return tt_trainer_run(&job->target.config, job->settings, observer, &job->cancel, summary);
}

tt_status tt_job_evaluate(struct tt_job *job, const struct tt_train_observer *observer,
                          struct tt_eval_result *result)
{
    TT_TRY(check_not_stopped(job));
    job->resolved = true;
    TT_TRY(tt_evaluate_resolve(job->settings, &job->target.config));
    struct tt_eval_spec spec = {.job = job->target.config,
                                .exact_match = job->target.exact_match,
                                .max_new_tokens = job->target.generate.max_new_tokens};
    return tt_evaluate_run(&spec, observer, &job->cancel, result, NULL);
}
