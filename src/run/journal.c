#include "run/journal.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "run/record_file.h"
#include "run/tensorboard.h"

enum { TT_JOURNAL_TIMES_MAX = 192 };

struct tt_journal {
    const char *output_dir;
    const struct tt_watch_spec *watch;
    const struct tt_train_observer *observer;
    struct tt_journal_facts facts;
    struct tt_json_value *history, *all_results;
    struct tt_tensorboard *board;
    struct tt_record_file *metrics;
    struct tt_log_field times[TT_JOURNAL_TIMES_MAX]; /* of the next row */
    int time_count;
    bool warned; /* a lost record or an unwritten file of results was reported */
    int64_t step, tokens_seen, best_step, waited; /* waited: evaluations without an improvement */
    double epoch, flops, best_metric;
    char *best_checkpoint;
};

static tt_status no_memory(const char *what)
{
    return tt_fail(TT_ERR_MEMORY, "out of memory for %s", what);
}

/* output_dir/runs/Nov21_14-03-59_host, as transformers names it. */
static tt_status open_board(struct tt_journal *journal, const struct tt_watch_spec *watch)
{
    static const char months[12][4] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                       "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
    if ((watch->report_to & (TT_REPORT_TENSORBOARD | TT_REPORT_ALL)) == 0) return TT_OK;
    if (watch->logging_dir != NULL) return tt_tensorboard_open(watch->logging_dir, &journal->board);
    char stamp[64], host[64] = "host", folder[160];
    time_t now = (time_t)tt_clock_unix_seconds();
    struct tm local;
    localtime_r(&now, &local);
    snprintf(stamp, sizeof stamp, "%s%02d_%02d-%02d-%02d", months[local.tm_mon], local.tm_mday, local.tm_hour,
             local.tm_min, local.tm_sec);
    (void)gethostname(host, sizeof host - 1);
    snprintf(folder, sizeof folder, "runs/%s_%s", stamp, host);
    struct tt_path path;
    TT_TRY(tt_path_set(&path, journal->output_dir, folder));
    return tt_tensorboard_open(path.text, &journal->board);
}

tt_status tt_journal_open(const char *output_dir, const struct tt_watch_spec *watch,
                          const struct tt_journal_facts *facts, const struct tt_train_observer *observer,
                          struct tt_journal **out)
{
    tt_status status = TT_OK;
    struct tt_journal *journal = tt_calloc(1, sizeof *journal);
    if (journal == NULL) return TT_ERR_MEMORY;
    *journal =
        (struct tt_journal){.output_dir = output_dir, .watch = watch, .observer = observer, .facts = *facts};
    journal->best_metric = NAN;
    journal->history = tt_json_new_list();
    journal->all_results = tt_json_new_object();
    struct tt_path path;
    TT_GO(tt_path_set(&path, output_dir, "metrics.jsonl"));
    if (journal->history == NULL || journal->all_results == NULL) TT_GO(no_memory("the log"));
    TT_GO(tt_dir_create(output_dir));
    TT_GO(tt_record_file_create(path.text, &journal->metrics));
    TT_GO(open_board(journal, watch));
    *out = journal;
out:
    if (status != TT_OK) tt_journal_close(journal);
    return status;
}

tt_status tt_journal_mirror(struct tt_journal *journal, const char *folder)
{
    struct tt_path path;
    TT_TRY(tt_path_set(&path, folder, "metrics.jsonl"));
    return tt_record_file_mirror(journal->metrics, path.text);
}

void tt_journal_close(struct tt_journal *journal)
{
    if (journal == NULL) return;
    tt_tensorboard_close(journal->board);
    tt_record_file_close(journal->metrics);
    tt_json_release(journal->history);
    tt_json_release(journal->all_results);
    tt_free(journal->best_checkpoint);
    tt_free(journal);
}

/* JSON has no NaN: such a value becomes null. Counts become integers. */
static struct tt_json_value *number(const char *name, double value)
{
    if (!isfinite(value)) return tt_json_new_null();
    static const char *const counts[] = {"step", "num_tokens", "train_samples", "eval_samples", "bytes"};
    bool whole =
        (tt_starts_with(name, "eval_") && tt_ends_with(name, "_tokens")) || tt_ends_with(name, "_bytes");
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) whole |= strcmp(name, counts[i]) == 0;
    return whole ? tt_json_new_integer((int64_t)value) : tt_json_new_real(value);
}

static struct tt_json_value *row_object(const struct tt_log_row *row)
{
    struct tt_json_value *object = tt_json_new_object();
    tt_json_set(object, "epoch", tt_json_new_real(row->epoch));
    for (int i = 0; i < row->field_count; i++)
        tt_json_set(object, row->fields[i].name, number(row->fields[i].name, row->fields[i].value));
    return object;
}

/* A lost record does not end a run: a warning reports the first one. */
static void warn_if_lost(struct tt_journal *journal, tt_status status, const char *what)
{
    if (status != TT_OK && !journal->warned)
        tt_warn("%s; training continues without %s", tt_error_last()->message, what);
    journal->warned |= status != TT_OK;
}

static tt_status write_line(struct tt_journal *journal, const struct tt_json_value *object)
{
    struct tt_str line = {0};
    tt_status status = tt_json_write(object, 0, true, &line);
    if (status == TT_OK) status = tt_str_append_char(&line, '\n');
    if (status == TT_OK) tt_record_file_append(journal->metrics, line.data, line.bytes);
    tt_str_deinit(&line);
    return status;
}

/* transformers' rewrite_logs: eval_loss -> eval/loss, everything else -> train/... */
static tt_status write_board(struct tt_journal *journal, const struct tt_log_row *row)
{
    for (int i = 0; i < row->field_count && journal->board != NULL; i++) {
        char tag[512];
        const char *name = row->fields[i].name;
        if (strncmp(name, "eval_", 5) == 0)
            snprintf(tag, sizeof tag, "eval/%s", name + 5);
        else
            snprintf(tag, sizeof tag, "train/%s", name);
        TT_TRY(tt_tensorboard_scalar(journal->board, tag, row->step, row->fields[i].value));
    }
    return TT_OK;
}

void tt_journal_times(struct tt_journal *journal, const struct tt_log_field *fields, int count)
{
    journal->time_count = count < TT_JOURNAL_TIMES_MAX ? count : TT_JOURNAL_TIMES_MAX;
    for (int i = 0; i < journal->time_count; i++) journal->times[i] = fields[i];
}

void tt_journal_row(struct tt_journal *journal, const struct tt_log_row *row)
{
    struct tt_json_value *object = row_object(row);
    tt_json_set(object, "step", tt_json_new_integer(row->step));
    bool kept = tt_json_append(journal->history, tt_json_finish(tt_json_copy(object))) == 0;
    tt_json_forgive(journal->history);
    for (int i = 0; i < journal->time_count; i++)
        tt_json_set(object, journal->times[i].name, number(journal->times[i].name, journal->times[i].value));
    journal->time_count = 0;
    tt_status status = kept ? write_line(journal, object) : no_memory("a log row");
    tt_json_release(object);
    if (status == TT_OK) status = write_board(journal, row);
    warn_if_lost(journal, status, "a row of the log");
    if (journal->observer != NULL && journal->observer->on_log != NULL)
        journal->observer->on_log(journal->observer->context, row);
}

void tt_journal_event(struct tt_journal *journal, const char *event, int64_t step, const char *folder,
                      const struct tt_log_field *fields, int count)
{
    struct tt_json_value *object =
        tt_json_pack("{s:s, s:I, s:s}", "event", event, "step", (int64_t)step, "folder", folder);
    for (int i = 0; i < count; i++)
        tt_json_set(object, fields[i].name, number(fields[i].name, fields[i].value));
    tt_status status = write_line(journal, object);
    tt_json_release(object);
    warn_if_lost(journal, status, "a record of a save");
}

void tt_journal_text(struct tt_journal *journal, const char *tag, int64_t step, const struct tt_str *text)
{
    tt_status status = TT_OK;
    if (journal->board != NULL) status = tt_tensorboard_text(journal->board, tag, step, text);
    warn_if_lost(journal, status, "a text of TensorBoard");
}

void tt_journal_hparams(struct tt_journal *journal, const struct tt_json_value *settings)
{
    tt_status status = TT_OK;
    if (journal->board != NULL && settings != NULL) status = tt_tensorboard_hparams(journal->board, settings);
    warn_if_lost(journal, status, "the settings of TensorBoard");
}

void tt_journal_picture(struct tt_journal *journal, const char *tag, int64_t step, int32_t height,
                        int32_t width, const struct tt_str *png)
{
    tt_status status = TT_OK;
    if (journal->board != NULL) status = tt_tensorboard_image(journal->board, tag, step, height, width, png);
    warn_if_lost(journal, status, "a picture of TensorBoard");
}

bool tt_journal_takes_pictures(const struct tt_journal *journal)
{
    return journal->board != NULL;
}

void tt_journal_progress(struct tt_journal *journal, int64_t step, double epoch, int64_t tokens_seen,
                         double flops)
{
    journal->step = step;
    journal->epoch = epoch;
    journal->tokens_seen = tokens_seen;
    journal->flops = flops;
}

tt_status tt_journal_best(struct tt_journal *journal, int64_t step, double metric, const char *checkpoint)
{
    char *copy = checkpoint != NULL ? tt_strdup(checkpoint) : NULL;
    if (checkpoint != NULL && copy == NULL) return TT_ERR_MEMORY;
    tt_free(journal->best_checkpoint);
    journal->best_checkpoint = copy;
    journal->best_step = step;
    journal->best_metric = metric;
    return TT_OK;
}

void tt_journal_patience(struct tt_journal *journal, int64_t waited)
{
    journal->waited = waited;
}

/* The states of transformers' TrainerControl and EarlyStoppingCallback at the end of a step. */
static struct tt_json_value *callback_states(const struct tt_journal *journal)
{
    const struct tt_watch_spec *watch = journal->watch;
    int64_t patience = watch->early_stopping_patience;
    bool stops = journal->step >= journal->facts.max_steps || (patience > 0 && journal->waited >= patience);
    struct tt_json_value *states =
        tt_json_pack("{s:{s:{s:b, s:b, s:b, s:b, s:b}, s:{}}}", "TrainerControl", "args", "should_epoch_stop",
                     0, "should_evaluate", 0, "should_log", 0, "should_save", 1, "should_training_stop",
                     (int)stops, "attributes");
    if (states == NULL || patience == 0) return states;
    struct tt_json_value *callback = tt_json_pack(
        "{s:{s:I, s:f}, s:{s:I}}", "args", "early_stopping_patience", patience, "early_stopping_threshold",
        watch->early_stopping_threshold, "attributes", "early_stopping_patience_counter", journal->waited);
    tt_json_set(states, "EarlyStoppingCallback", callback);
    return states;
}

static struct tt_json_value *state_object(const struct tt_journal *journal)
{
    const struct tt_journal_facts *facts = &journal->facts;
    struct tt_json_value *state = tt_json_pack(
        "{s:f, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:b, s:b, s:b, s:n, s:n}", "epoch",
        journal->epoch, "global_step", (int64_t)journal->step, "max_steps", (int64_t)facts->max_steps,
        "logging_steps", (int64_t)facts->logging_steps, "eval_steps", (int64_t)facts->eval_steps,
        "save_steps", (int64_t)facts->save_steps, "train_batch_size", (int64_t)facts->train_batch_size,
        "num_train_epochs", (int64_t)ceil(facts->num_train_epochs), "num_input_tokens_seen",
        (int64_t)journal->tokens_seen, "total_flos", journal->flops, "is_local_process_zero", 1,
        "is_world_process_zero", 1, "is_hyper_param_search", 0, "trial_name", "trial_params");
    bool best = isfinite(journal->best_metric);
    const char *checkpoint = journal->best_checkpoint;
    tt_json_set(state, "best_metric", best ? tt_json_new_real(journal->best_metric) : tt_json_new_null());
    tt_json_set(state, "best_global_step",
                best ? tt_json_new_integer(journal->best_step) : tt_json_new_null());
    tt_json_set(state, "best_model_checkpoint",
                checkpoint != NULL ? tt_json_new_string(checkpoint) : tt_json_new_null());
    tt_json_set(state, "stateful_callbacks", callback_states(journal));
    tt_json_set_copy(state, "log_history", journal->history);
    return state;
}

tt_status tt_journal_state_text(const struct tt_journal *journal, struct tt_str *text)
{
    struct tt_json_value *state = tt_json_finish(state_object(journal));
    if (state == NULL) return no_memory("trainer_state.json");
    tt_status status = tt_json_write(state, 2, true, text);
    if (status == TT_OK) status = tt_str_append_char(text, '\n');
    tt_json_release(state);
    return status;
}

struct tt_json_value *tt_journal_results(const struct tt_journal *journal)
{
    return journal->all_results;
}

tt_status tt_journal_restore(struct tt_journal *journal, const struct tt_json_value *history,
                             const struct tt_json_value *results)
{
    size_t index;
    const struct tt_json_value *row;
    for (index = 0; (row = tt_json_at(history, index)) != NULL; index++) {
        if (tt_json_append_copy(journal->history, row) != 0) return no_memory("the log so far");
        TT_TRY(write_line(journal, row));
    }
    if (tt_json_is_object(results) && tt_json_update(journal->all_results, results) != 0)
        return no_memory("the results so far");
    return TT_OK;
}

void tt_journal_write_results(struct tt_journal *journal, const char *split, const struct tt_log_row *row,
                              const struct tt_log_field *samples)
{
    char name[64];
    snprintf(name, sizeof name, "%s_results.json", split);
    struct tt_json_value *object = row_object(row);
    tt_json_set(object, samples->name, number(samples->name, samples->value));
    bool kept = tt_json_update(journal->all_results, object) == 0;
    tt_json_forgive(journal->all_results);
    tt_status status =
        kept ? tt_json_write_file(object, 4, true, journal->output_dir, name) : no_memory(name);
    if (status == TT_OK)
        status = tt_json_write_file(journal->all_results, 4, true, journal->output_dir, "all_results.json");
    tt_json_release(object);
    warn_if_lost(journal, status, name);
}
