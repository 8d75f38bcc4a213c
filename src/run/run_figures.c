#include "run/run_figures.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"

enum { METRICS_BYTES_MAX = 1 << 30 };

static const char *const keys[TT_FIGURE_COUNT] = {
    [TT_FIGURE_LOSS] = "loss",
    [TT_FIGURE_EVAL_LOSS] = "eval_loss",
    [TT_FIGURE_LEARNING_RATE] = "learning_rate",
    [TT_FIGURE_GRAD_NORM] = "grad_norm",
    [TT_FIGURE_TOKENS] = "tokens_per_second",
    [TT_FIGURE_TFLOPS] = "model_tflops",
};

const char *tt_figure_title(enum tt_figure figure)
{
    static const char *const titles[TT_FIGURE_COUNT] = {
        "loss", "evaluation loss", "learning rate", "gradient norm", "tokens/s", "TFLOP/s of the model"};
    return titles[figure];
}

const char *tt_share_key(enum tt_share share)
{
    static const char *const names[TT_SHARE_COUNT] = {
        [TT_SHARE_DATA] = "data_seconds",           [TT_SHARE_GATHER] = "gather_seconds",
        [TT_SHARE_FORWARD] = "forward_seconds",     [TT_SHARE_BACKWARD] = "backward_seconds",
        [TT_SHARE_REDUCE] = "reduce_seconds",       [TT_SHARE_QUEUE] = "queue_seconds",
        [TT_SHARE_DEVICE] = "device_wait_seconds",  [TT_SHARE_RANKS] = "rank_wait_seconds",
        [TT_SHARE_OPTIMIZER] = "optimizer_seconds", [TT_SHARE_SAVE_WAIT] = "save_wait_seconds",
        [TT_SHARE_STEP] = "step_seconds",           [TT_SHARE_SAVE_STALL] = "save_stall_seconds",
        [TT_SHARE_EVALUATE] = "evaluate_seconds",   [TT_SHARE_WALL] = "wall_seconds",
    };
    return names[share];
}

/* Ranges of the steps that the log repeats after a resume are drawn once: the later row counts. */
static tt_status add_point(struct tt_series *series, double step, double value)
{
    while (series->count > 0 && series->steps[series->count - 1] >= step) series->count--;
    if (series->count == series->capacity) {
        size_t capacity = series->capacity > 0 ? 2 * series->capacity : 256;
        double *steps = tt_realloc(series->steps, capacity, sizeof *steps);
        if (steps == NULL) return TT_ERR_MEMORY;
        series->steps = steps;
        double *values = tt_realloc(series->values, capacity, sizeof *values);
        if (values == NULL) return TT_ERR_MEMORY;
        series->values = values;
        series->capacity = capacity;
    }
    series->steps[series->count] = step;
    series->values[series->count++] = value;
    return TT_OK;
}

static double figure_of(const struct tt_json_value *row, const char *key)
{
    double value = tt_json_number(tt_json_get(row, key));
    return isfinite(value) ? value : 0.0;
}

static tt_status keep_last(struct tt_run_figures *figures, const struct tt_json_value *row)
{
    tt_json_release(figures->last);
    figures->last = tt_json_new_object();
    if (figures->last == NULL || tt_json_update(figures->last, row) != 0) return TT_ERR_MEMORY;
    return TT_OK;
}

/* Rows after a resume were written again without times, and count once. The times are means of a row's steps. */
static tt_status take_row(void *context, const struct tt_json_value *row)
{
    struct tt_run_figures *figures = context;
    double step = figure_of(row, "step");
    if (tt_json_get(row, "event") != NULL) {
        const char *event = tt_json_text(tt_json_get(row, "event"));
        figures->saves += event != NULL && strcmp(event, "save") == 0;
        return TT_OK;
    }
    figures->ended = tt_json_get(row, "train_runtime") != NULL;
    for (int i = 0; i < TT_FIGURE_COUNT; i++) {
        const struct tt_json_value *value = tt_json_get(row, keys[i]);
        if (tt_json_is_number(value) && isfinite(tt_json_number(value)))
            TT_TRY(add_point(&figures->series[i], step, tt_json_number(value)));
    }
    if (tt_json_get(row, "step_seconds") == NULL) return TT_OK;
    double before = figures->last != NULL ? figure_of(figures->last, "step") : 0.0;
    double steps = step > before ? step - before : 1.0;
    for (int i = 0; i < TT_SHARE_COUNT; i++)
        figures->shares[i] += steps * figure_of(row, tt_share_key((enum tt_share)i));
    figures->steps += steps;
    if (tt_json_get(row, "mfu") != NULL) figures->mfu = figure_of(row, "mfu");
    if (tt_json_get(row, "device_bytes") != NULL) figures->device_bytes = figure_of(row, "device_bytes");
    return keep_last(figures, row);
}

/* Calls `take` for each line of the file that is a row. */
static tt_status read_rows(const char *path, size_t *broken,
                           tt_status (*take)(void *context, const struct tt_json_value *row), void *context)
{
    struct tt_str text = {0};
    tt_status status = tt_file_read(path, METRICS_BYTES_MAX, &text);
    const char *at = tt_str_text(&text), *end = at + text.bytes;
    while (at < end && status == TT_OK) {
        const char *line_end = memchr(at, '\n', (size_t)(end - at));
        size_t bytes = (size_t)((line_end != NULL ? line_end : end) - at);
        struct tt_json json = {0};
        bool whole =
            bytes > 0 && tt_json_parse(at, bytes, path, &json) == TT_OK && tt_json_is_object(json.root);
        if (whole)
            status = take(context, json.root);
        else
            *broken += bytes > 0;
        tt_json_deinit(&json);
        at += bytes + (line_end != NULL);
    }
    tt_str_deinit(&text);
    return status;
}

struct rank_reader {
    struct tt_run_figures *figures;
    const char *folder; /* ranks */
    double before;
};

static tt_status take_rank_row(void *context, const struct tt_json_value *row)
{
    struct rank_reader *reader = context;
    struct tt_rank_figures *rank = &reader->figures->ranks[reader->figures->rank_count - 1];
    double step = figure_of(row, "step"), steps = step > reader->before ? step - reader->before : 1.0;
    reader->before = step;
    rank->rank = (int)figure_of(row, "rank");
    rank->step_seconds += steps * figure_of(row, "step_seconds");
    rank->rank_wait_seconds += steps * figure_of(row, "rank_wait_seconds");
    return TT_OK;
}

static tt_status read_rank(void *context, const char *name)
{
    struct rank_reader *reader = context;
    struct tt_run_figures *figures = reader->figures;
    struct tt_path path;
    if (!tt_starts_with(name, "rank-") || !tt_ends_with(name, ".jsonl")) return TT_OK;
    struct tt_rank_figures *ranks = tt_realloc(figures->ranks, figures->rank_count + 1, sizeof *ranks);
    if (ranks == NULL) return TT_ERR_MEMORY;
    figures->ranks = ranks;
    ranks[figures->rank_count++] = (struct tt_rank_figures){0};
    reader->before = 0.0;
    TT_TRY(tt_path_set(&path, reader->folder, name));
    return read_rows(path.text, &figures->broken, take_rank_row, reader);
}

static int by_rank(const void *a, const void *b)
{
    return ((const struct tt_rank_figures *)a)->rank - ((const struct tt_rank_figures *)b)->rank;
}

/* Rank 0 is in metrics.jsonl. */
static tt_status read_ranks(struct tt_run_figures *figures)
{
    struct tt_path folder;
    TT_TRY(tt_path_set(&folder, figures->folder, "ranks"));
    if (!tt_path_exists(folder.text)) return TT_OK;
    struct rank_reader reader = {figures, folder.text, 0.0};
    TT_TRY(tt_dir_list(folder.text, read_rank, &reader));
    if (figures->rank_count > 1) qsort(figures->ranks, figures->rank_count, sizeof *figures->ranks, by_rank);
    return TT_OK;
}

tt_status tt_run_figures_read(const char *folder, struct tt_run_figures *figures)
{
    tt_status status = TT_OK;
    struct tt_path path;
    *figures = (struct tt_run_figures){.folder = tt_strdup(folder)};
    if (figures->folder == NULL) return TT_ERR_MEMORY;
    TT_GO(tt_path_set(&path, folder, "metrics.jsonl"));
    if (!tt_path_exists(path.text)) {
        status = tt_fail(TT_ERR_IO, "'%s' has no metrics.jsonl", folder);
        tt_hint("give the output_dir of a training");
        goto out;
    }
    TT_GO(read_rows(path.text, &figures->broken, take_row, figures));
    TT_GO(read_ranks(figures));
out:
    if (status != TT_OK) tt_run_figures_deinit(figures);
    return status;
}

void tt_run_figures_deinit(struct tt_run_figures *figures)
{
    for (int i = 0; i < TT_FIGURE_COUNT; i++) {
        tt_free(figures->series[i].steps);
        tt_free(figures->series[i].values);
    }
    tt_json_release(figures->last);
    tt_free(figures->ranks);
    tt_free(figures->folder);
    *figures = (struct tt_run_figures){0};
}
