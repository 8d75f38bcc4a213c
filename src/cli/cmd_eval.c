#include <math.h>
#include <stddef.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json.h"
#include "base/utf8.h"
#include "cli/job_call.h"
#include "job/task.h"
#include "job/resolve.h"
#include "run/evaluate_tasks.h"
#include "run/trainer.h"

struct eval_command {
    struct tt_eval_spec spec; /* must be first: the offsets of its settings apply here */
    struct tt_job_call call;
    bool json;
    const char *tasks, *task_results;
    bool chooses_sharding; /* with tasks */
};

/* One row reads as one paragraph. */
/* clang-format off */
static const struct tt_setting own_settings[] = {
    {.name = "json", .type = TT_SETTING_BOOL, .offset = offsetof(struct eval_command, json),
     .default_text = "false", .transient = true, .help = "Print the result as one JSON object."},
    {.name = "tasks", .type = TT_SETTING_STRING, .offset = offsetof(struct eval_command, tasks), .path = TT_PATH_READ,
     .transient = true,
     .help = "File of task items, one JSON object a line, in place of a data set: contexts with choices, with an end "
             "to find, or with an answer to generate; accuracies and exact matches are lm-evaluation-harness's."},
    {.name = "task_results", .type = TT_SETTING_STRING, .offset = offsetof(struct eval_command, task_results),
     .path = TT_PATH_WRITE, .transient = true, .needs = "tasks",
     .help = "File for a JSON line of each of the tasks' items: log likelihoods, texts, scores."},
    {.name = NULL},
};
/* clang-format on */

static size_t list_sections(struct tt_setting_section *sections)
{
    return tt_job_call_sections(TT_JOB_EVALUATE, own_settings, offsetof(struct eval_command, call), sections);
}

static bool is_named(const struct tt_log_field *metric, const char *name)
{
    return strcmp(metric->name, name) == 0;
}

static tt_status append_name(struct tt_str *text, const char *name)
{
    size_t bytes = strlen(name), needed = tt_utf8_printable(name, bytes, "", NULL, 0);
    char *shown = tt_calloc(needed + 1, 1);
    if (shown == NULL) return TT_ERR_MEMORY;
    (void)tt_utf8_printable(name, bytes, "", shown, needed + 1);
    tt_status status = tt_str_append(text, shown, needed);
    tt_free(shown);
    return status;
}

static tt_status write_sources(struct tt_str *text, const struct tt_eval_metrics *metrics)
{
    if (metrics->source_count == 0) return TT_OK;
    TT_TRY(tt_str_printf(text, "\n%12s %12s %10s %12s  source\n", "loss", "accuracy", "samples", "tokens"));
    for (size_t i = 0; i < metrics->source_count; i++) {
        const struct tt_source_figures *figures = &metrics->sources[i].figures;
        TT_TRY(tt_str_printf(text, "%12.6f %12.4f %10lld %12lld  ", figures->loss, figures->accuracy,
                             (long long)figures->samples, (long long)figures->tokens));
        TT_TRY(append_name(text, metrics->sources[i].name));
        TT_TRY(tt_str_append_char(text, '\n'));
    }
    return TT_OK;
}

static tt_status write_text(struct tt_str *text, const struct tt_eval_result *result,
                            const struct tt_eval_metrics *metrics)
{
    TT_TRY(tt_str_printf(text, "loss            %.6f\n", result->loss));
    if (!isnan(result->perplexity)) TT_TRY(tt_str_printf(text, "perplexity      %.6g\n", result->perplexity));
    if (!isnan(result->token_accuracy))
        TT_TRY(tt_str_printf(text, "token accuracy  %.4f\n", result->token_accuracy));
    for (int i = 0; i < metrics->count; i++) {
        const struct tt_log_field *metric = &metrics->items[i];
        if (is_named(metric, "loss") || is_named(metric, "mean_token_accuracy")) continue;
        TT_TRY(tt_str_printf(text, "%-15s %.6f\n", metric->name, metric->value));
    }
    TT_TRY(tt_str_printf(text, "samples         %lld\ntokens          %lld supervised\n",
                         (long long)result->samples, (long long)result->tokens));
    if (result->exact_matches >= 0)
        TT_TRY(tt_str_printf(text, "exact match     %lld of %lld (%.2f %%)\n",
                             (long long)result->exact_matches, (long long)result->exact_rows,
                             result->exact_rows > 0
                                 ? 100.0 * (double)result->exact_matches / (double)result->exact_rows
                                 : 0.0));
    TT_TRY(tt_str_printf(text, "seconds         %.2f", result->seconds));
    if (result->exact_matches >= 0)
        TT_TRY(tt_str_printf(text, " (loss %.2f, completions %.2f)", result->loss_seconds,
                             result->seconds - result->loss_seconds));
    TT_TRY(tt_str_append_char(text, '\n'));
    return write_sources(text, metrics);
}

static struct tt_json_value *number(double value)
{
    return isfinite(value) ? tt_json_new_real(value) : tt_json_new_null();
}

static struct tt_json_value *sources_list(const struct tt_eval_metrics *metrics)
{
    struct tt_json_value *list = tt_json_new_list();
    for (size_t i = 0; i < metrics->source_count; i++) {
        const struct tt_source_figures *figures = &metrics->sources[i].figures;
        tt_json_append(list,
                       tt_json_pack("{s:s,s:I,s:I,s:o,s:o}", "name", metrics->sources[i].name, "samples",
                                    (int64_t)figures->samples, "tokens", (int64_t)figures->tokens, "loss",
                                    number(figures->loss), "token_accuracy", number(figures->accuracy)));
    }
    return list;
}

static tt_status write_json(struct tt_str *text, const struct tt_eval_result *result,
                            const struct tt_eval_metrics *metrics)
{
    struct tt_json_value *object =
        tt_json_pack("{s:f,s:o,s:o,s:I,s:I,s:f}", "loss", result->loss, "perplexity",
                     number(result->perplexity), "token_accuracy", number(result->token_accuracy), "samples",
                     (int64_t)result->samples, "tokens", (int64_t)result->tokens, "seconds", result->seconds);
    for (int i = 0; i < metrics->count; i++)
        if (!is_named(&metrics->items[i], "loss"))
            tt_json_set(object, metrics->items[i].name, number(metrics->items[i].value));
    if (result->exact_matches >= 0) {
        double share =
            result->exact_rows > 0 ? (double)result->exact_matches / (double)result->exact_rows : 0.0;
        tt_json_set(object, "loss_seconds", tt_json_new_real(result->loss_seconds));
        tt_json_set(object, "exact_match", tt_json_new_real(share));
        tt_json_set(object, "exact_matches", tt_json_new_integer(result->exact_matches));
        tt_json_set(object, "exact_rows", tt_json_new_integer(result->exact_rows));
    }
    if (metrics->source_count > 0) tt_json_set(object, "sources", sources_list(metrics));
    tt_status status = tt_json_write(object, 0, false, text);
    tt_json_release(object);
    return status == TT_OK ? tt_str_append_char(text, '\n') : status;
}

/* Figures of images: there are no tokens. */
static tt_status write_images_text(struct tt_str *text, const struct tt_eval_result *result,
                                   const struct tt_eval_metrics *metrics)
{
    for (int i = 0; i < metrics->count; i++) {
        const struct tt_log_field *metric = &metrics->items[i];
        TT_TRY(metric->value >= 0 ? tt_str_printf(text, "%-15s %.6f\n", metric->name, metric->value)
                                  : tt_str_printf(text, "%-15s no such boxes\n", metric->name));
    }
    return tt_str_printf(text, "images          %lld\nseconds         %.2f\n", (long long)result->samples,
                         result->seconds);
}

static tt_status write_images_json(struct tt_str *text, const struct tt_eval_result *result,
                                   const struct tt_eval_metrics *metrics)
{
    struct tt_json_value *object =
        tt_json_pack("{s:I,s:f}", "images", (int64_t)result->samples, "seconds", result->seconds);
    for (int i = 0; i < metrics->count; i++)
        tt_json_set(object, metrics->items[i].name, number(metrics->items[i].value));
    tt_status status = tt_json_write(object, 0, false, text);
    tt_json_release(object);
    return status == TT_OK ? tt_str_append_char(text, '\n') : status;
}

static tt_status write_result(const struct eval_command *command, const struct tt_eval_result *result,
                              const struct tt_eval_metrics *metrics, struct tt_str *text)
{
    bool words = tt_tasks[command->spec.job.task]->writes_text;
    if (command->json)
        return words ? write_json(text, result, metrics) : write_images_json(text, result, metrics);
    return words ? write_text(text, result, metrics) : write_images_text(text, result, metrics);
}

static tt_status resolve(void *target, struct tt_settings *settings)
{
    struct eval_command *command = target;
    TT_TRY(tt_job_call_read(&command->call, settings));
    if (command->tasks != NULL)
        return tt_evaluate_tasks_resolve(settings, &command->spec.job, &command->chooses_sharding);
    return tt_evaluate_resolve(settings, &command->spec.job);
}

/* A line for each metric of each task. */
static tt_status write_scores(const struct tt_json_value *scores, struct tt_str *text)
{
    TT_TRY(tt_str_printf(text, "%-24s %8s  %-12s %10s %10s\n", "task", "items", "metric", "value", "stderr"));
    for (size_t i = 0; i < tt_json_count(scores); i++) {
        const struct tt_json_value *task = tt_json_at(scores, i), *metric;
        const char *name;
        for (size_t at = 0; tt_json_next_member(tt_json_get(task, "metrics"), &at, &name, &metric);) {
            struct tt_str shown = {0};
            tt_status status = append_name(&shown, tt_json_text(tt_json_get(task, "task")));
            if (status == TT_OK)
                status = tt_str_printf(text, "%-24s %8lld  %-12s %10.6g %10.4f\n", tt_str_text(&shown),
                                       (long long)tt_json_integer(tt_json_get(task, "items")), name,
                                       tt_json_number(tt_json_get(metric, "value")),
                                       tt_json_number(tt_json_get(metric, "stderr")));
            tt_str_deinit(&shown);
            TT_TRY(status);
        }
    }
    return TT_OK;
}

static tt_status run_tasks(struct tt_cli *cli, const struct eval_command *command)
{
    const struct tt_tasks_config config = {.path = command->tasks,
                                           .results_path = command->task_results,
                                           .chooses_sharding = command->chooses_sharding};
    struct tt_json_value *scores = NULL;
    struct tt_str text = {0};
    TT_TRY(tt_evaluate_tasks(&command->spec, &config, cli->cancel, &scores));
    tt_status status = TT_OK;
    if (scores == NULL) return TT_OK; /* another process has the result */
    if (command->json) {
        status = tt_json_write(scores, 0, false, &text);
        if (status == TT_OK) status = tt_str_append_char(&text, '\n');
    } else {
        status = write_scores(scores, &text);
    }
    if (status == TT_OK) status = tt_report_print(cli->report, tt_str_text(&text));
    tt_json_release(scores);
    tt_str_deinit(&text);
    return status;
}

static tt_status run(struct tt_cli *cli, const struct tt_command_call *call)
{
    const struct eval_command *command = call->target;
    struct tt_train_observer observer = tt_report_observer(cli->report);
    struct tt_eval_result result;
    struct tt_eval_metrics metrics = {0};
    struct tt_str text = {0};
    if (command->call.print_config) return tt_job_call_print(cli, call->settings);
    if (command->tasks != NULL) return run_tasks(cli, command);
    tt_status status = tt_evaluate_run(&command->spec, &observer, cli->cancel, &result, &metrics);
    bool elsewhere = isnan(result.loss) && result.samples == 0; /* another process has the result */
    if (status == TT_OK && !elsewhere) status = write_result(command, &result, &metrics, &text);
    if (status == TT_OK && !elsewhere) status = tt_report_print(cli->report, tt_str_text(&text));
    tt_eval_metrics_deinit(&metrics);
    tt_str_deinit(&text);
    return status;
}

const struct tt_command_ops tt_cmd_eval = {
    .usage = " --model_name_or_path FOLDER [--adapter_name_or_path FOLDER] "
             "--eval_dataset FILE [--exact_match] [--json]\n\n"
             "By items with choices or answers: --model_name_or_path FOLDER --tasks FILE.jsonl "
             "[--task_results FILE] [--json].\n\n"
             "Of a detection: --task detection --weights_path FILE.pth --local_image_dir FOLDER [--json].\n",
    .sections = list_sections,
    .target_bytes = sizeof(struct eval_command),
    .resolve = resolve,
    .run = run,
};
