/* Writes and reads training_state.json (resume.h). */
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "job/settings.h"
#include "run/memory.h"
#include "run/resume.h"
#include "run/resume_text.h"

enum { VERSION = 2 };

/* JSON has no NaN. */
static struct tt_json_value *real(double value)
{
    return isfinite(value) ? tt_json_new_real(value) : tt_json_new_null();
}

static struct tt_json_value *counters_object(const struct tt_counters *counters)
{
    return tt_json_pack("{s:o, s:o, s:o, s:o, s:I, s:I, s:I, s:I, s:I, s:o}", "train_seconds",
                        real(counters->train_seconds), "loss_sum", real(counters->loss_sum), "window_tokens",
                        real(counters->window_tokens), "window_seconds", real(counters->window_seconds),
                        "window_steps", (int64_t)counters->window_steps, "steps_done",
                        (int64_t)counters->steps_done, "tokens", (int64_t)counters->tokens,
                        "supervised_tokens", (int64_t)counters->supervised_tokens, "samples",
                        (int64_t)counters->samples, "last_eval_loss", real(counters->last_eval_loss));
}

/* A metric that may be infinite. */
static struct tt_json_value *metric_value(double value)
{
    return isinf(value) ? tt_json_new_string(value > 0 ? "inf" : "-inf") : real(value);
}

static tt_status read_metric(const struct tt_json *json, const struct tt_json_value *object, double *metric)
{
    const char *text = tt_json_text(tt_json_get(object, "metric"));
    bool positive = text != NULL && strcmp(text, "inf") == 0;
    if (!positive && (text == NULL || strcmp(text, "-inf") != 0))
        return tt_json_double(json, object, "metric", metric);
    *metric = positive ? INFINITY : -INFINITY;
    return TT_OK;
}

/* The sums since the last log row, by the names of the objective's metrics. */
static struct tt_json_value *window_object(const struct tt_objective_ops *ops,
                                           const struct tt_counters *counters)
{
    struct tt_json_value *object = tt_json_new_object();
    for (int i = 0; i < ops->metric_count; i++)
        tt_json_set(object, ops->metrics[i].name, real(counters->window[i]));
    if (counters->window_aux_loss > 0) tt_json_set(object, TT_AUX_LOSS, real(counters->window_aux_loss));
    return object;
}

static struct tt_json_value *patience_object(const struct tt_patience *patience)
{
    if (!patience->known) return tt_json_new_null();
    return tt_json_pack("{s:o, s:I}", "metric", metric_value(patience->metric), "waited", patience->waited);
}

static struct tt_json_value *best_object(const struct tt_best *best)
{
    if (!best->known) return tt_json_new_null();
    return tt_json_pack("{s:I, s:o}", "step", (int64_t)best->step, "metric", metric_value(best->metric));
}

/* The parameters that have had a gradient, and their steps without one: one digit each, in order of the model. */
static struct tt_json_value *watch_object(const struct tt_gradient_watch *watch)
{
    char *seen = tt_calloc(watch->count + 1, 2);
    if (seen == NULL) return NULL;
    char *silent = seen + watch->count + 1;
    for (size_t i = 0; i < watch->count; i++) {
        seen[i] = watch->params[i].seen ? '1' : '0';
        silent[i] = (char)('0' + watch->params[i].silent);
    }
    struct tt_json_value *object = tt_json_pack("{s:s, s:s}", "seen", seen, "silent", silent);
    tt_free(seen);
    return object;
}

static tt_status add_config(const struct tt_run *run, struct tt_json_value *root)
{
    struct tt_str yaml = {0};
    if (run->job.settings == NULL) return TT_OK;
    tt_status status = tt_settings_write_yaml(run->job.settings, &yaml);
    if (status == TT_OK) tt_json_set(root, "config", tt_json_new_string(tt_str_text(&yaml)));
    tt_str_deinit(&yaml);
    return status;
}

static tt_status add_position(const struct tt_run *run, int64_t step, struct tt_json_value *root)
{
    const struct tt_task_run_ops *task = tt_task_run_of(&run->data.inputs);
    struct tt_json_value *position = NULL;
    if (task->position != NULL) TT_TRY(task->position(&run->data.train, step, &position));
    if (position != NULL) tt_json_set(root, "data_position", position);
    return TT_OK;
}

tt_status tt_resume_text(const struct tt_run *run, const struct tt_rank *rank, int64_t step,
                         const struct tt_memory *memory, struct tt_str *text)
{
    int world_size = tt_comm_world_size(rank->world);
    char state_dict[TT_JOB_WORD_BYTES];
    const char *named = tt_task_run_of(&run->data.inputs)->weights(&run->data.inputs, run->job.model);
    struct tt_json_value *root = tt_json_pack(
        "{s:s, s:i, s:I, s:I, s:f, s:i, s:s, s:s, s:s, s:o, s:I}", "format", "trimtab-training-state",
        "version", VERSION, "step", (int64_t)step, "total_steps", (int64_t)run->length.total_steps, "epoch",
        (double)step / (double)run->length.steps_per_epoch, "world_size", world_size, "sharding_strategy",
        tt_shard_strategy_name(run->rank_config.strategy), "state_dict_type",
        tt_job_word("state_dict_type", run->job.watch->state_dict_type, state_dict), "weights_dtype",
        tt_dtype_torch_name(tt_run_save_dtype(run->job.watch->save_dtype, rank->model)), "base_model",
        named != NULL ? tt_json_new_string(named) : tt_json_new_null(), "rng_key",
        (int64_t)run->job.run->seed);
    tt_json_set(
        root, "identity",
        tt_resume_identity(&run->job, &run->data.inputs, &run->length, rank->mesh.axes[TT_AXIS_DATA].size));
    tt_json_set(root, "tuning", tt_resume_tuning(&run->job, &run->data.inputs));
    tt_json_set(root, "inputs", tt_fingerprint_json(&run->data.fingerprint));
    tt_json_set(root, "date", tt_json_new_string(run->data.date));
    tt_json_set(root, "counters", counters_object(&memory->counters));
    if (memory->counters.pixels > 0)
        tt_json_set(root, "pixels", tt_json_new_integer(memory->counters.pixels));
    tt_json_set(root, "window", window_object(run->job.objective->ops, &memory->counters));
    tt_json_set(root, "best", best_object(&memory->best));
    tt_json_set(root, "patience", patience_object(&memory->patience));
    if (memory->evaluation_due) tt_json_set(root, "evaluation_due", tt_json_new_bool(true));
    tt_json_set(root, "gradient_watch", watch_object(&memory->watch));
    tt_json_set_copy(root, "results", tt_journal_results(run->rank0.journal));
    tt_status status = add_position(run, step, root);
    if (status == TT_OK) status = add_config(run, root);
    if (status == TT_OK) status = tt_json_write(root, 2, true, text);
    if (status == TT_OK) status = tt_str_append_char(text, '\n');
    tt_json_release(root);
    return status;
}

static tt_status read_counters(const struct tt_json *json, const struct tt_json_value *from,
                               struct tt_counters *counters)
{
    TT_TRY(tt_json_opt_double(json, from, "train_seconds", &counters->train_seconds));
    TT_TRY(tt_json_opt_double(json, from, "loss_sum", &counters->loss_sum));
    TT_TRY(tt_json_opt_double(json, from, "window_tokens", &counters->window_tokens));
    TT_TRY(tt_json_opt_double(json, from, "window_seconds", &counters->window_seconds));
    TT_TRY(tt_json_int(json, from, "window_steps", &counters->window_steps));
    TT_TRY(tt_json_int(json, from, "steps_done", &counters->steps_done));
    TT_TRY(tt_json_int(json, from, "tokens", &counters->tokens));
    TT_TRY(tt_json_int(json, from, "supervised_tokens", &counters->supervised_tokens));
    TT_TRY(tt_json_int(json, from, "samples", &counters->samples));
    return tt_json_opt_double(json, from, "last_eval_loss", &counters->last_eval_loss);
}

/* Older states have three of them, among the counters. */
static tt_status read_window(const struct tt_json *json, const struct tt_json_value *counters,
                             const struct tt_objective_ops *ops, struct tt_counters *into)
{
    double *window = into->window;
    static const struct {
        const char *metric, *key;
    } before[] = {
        {"loss", "window_loss"}, {"entropy", "window_entropy"}, {"mean_token_accuracy", "window_accuracy"}};
    const struct tt_json_value *own = tt_json_get(json->root, "window");
    if (tt_json_is_object(own)) TT_TRY(tt_json_opt_double(json, own, TT_AUX_LOSS, &into->window_aux_loss));
    for (int i = 0; i < ops->metric_count; i++) {
        const char *name = ops->metrics[i].name;
        if (tt_json_is_object(own)) TT_TRY(tt_json_opt_double(json, own, name, &window[i]));
        for (size_t b = 0; b < sizeof before / sizeof *before && !tt_json_is_object(own); b++)
            if (strcmp(before[b].metric, name) == 0)
                TT_TRY(tt_json_opt_double(json, counters, before[b].key, &window[i]));
    }
    return TT_OK;
}

static tt_status read_watch(const struct tt_json *json, const struct tt_json_value *from,
                            struct tt_gradient_watch *watch)
{
    const char *seen, *silent;
    TT_TRY(tt_json_string(json, from, "seen", &seen));
    TT_TRY(tt_json_string(json, from, "silent", &silent));
    if (strlen(seen) != watch->count || strlen(silent) != watch->count)
        return tt_fail(TT_ERR_DATA, "'%s' watches %zu parameters, but the model has %zu", json->origin,
                       strlen(seen), watch->count);
    for (size_t i = 0; i < watch->count; i++) {
        watch->params[i].seen = seen[i] == '1';
        watch->params[i].silent = silent[i] == '1' || silent[i] == '2' ? silent[i] - '0' : 0;
    }
    return TT_OK;
}

/* Older states have none. */
static tt_status read_patience(const struct tt_json *json, struct tt_patience *patience)
{
    const struct tt_json_value *object = tt_json_get(json->root, "patience");
    if (!tt_json_is_object(object)) return TT_OK;
    patience->known = true;
    TT_TRY(tt_json_int(json, object, "waited", &patience->waited));
    return read_metric(json, object, &patience->metric);
}

tt_status tt_resume_best(const struct tt_json *state, struct tt_best *best)
{
    const struct tt_json_value *object = tt_json_get(state->root, "best");
    *best = (struct tt_best){0};
    if (!tt_json_is_object(object)) return TT_OK;
    TT_TRY(tt_json_int(state, object, "step", &best->step));
    TT_TRY(read_metric(state, object, &best->metric));
    best->known = true;
    return TT_OK;
}

tt_status tt_resume_restore(const struct tt_resume *resume, const struct tt_objective *objective,
                            struct tt_memory *memory)
{
    const struct tt_json *json = &resume->state;
    const struct tt_json_value *object;
    if (resume->folder == NULL) return TT_OK;
    TT_TRY(tt_json_object(json, json->root, "counters", &object));
    TT_TRY(read_counters(json, object, &memory->counters));
    TT_TRY(tt_json_opt_int(json, json->root, "pixels", &memory->counters.pixels));
    TT_TRY(read_window(json, object, objective->ops, &memory->counters));
    TT_TRY(tt_json_object(json, json->root, "gradient_watch", &object));
    TT_TRY(read_watch(json, object, &memory->watch));
    TT_TRY(read_patience(json, &memory->patience));
    memory->evaluation_due = false;
    TT_TRY(tt_json_opt_bool(json, json->root, "evaluation_due", &memory->evaluation_due));
    memory->best = resume->best;
    return TT_OK;
}
