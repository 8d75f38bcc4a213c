#include "monitor/run_figures.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"

enum { RUN_BYTES_MAX = 16 << 20, EVENTS_MAX = 1000, GENERATIONS_MAX = 200, PICTURES_MAX = 64 };

static const struct {
    const char *key, *title;
} known[TT_FIGURE_COUNT] = {
#define FIGURE(name, key, title) {key, title},
#include "monitor/figures.def"
};

const char *tt_figure_title(enum tt_figure figure)
{
    return known[figure].title;
}

const char *tt_figure_key(enum tt_figure figure)
{
    return known[figure].key;
}

void tt_series_extremes(const struct tt_series *series, size_t first, size_t end, size_t indices[2])
{
    size_t low = first, high = first;
    for (size_t i = first; i < end; i++) {
        if (series->values[i] < series->values[low]) low = i;
        if (series->values[i] > series->values[high]) high = i;
    }
    indices[0] = low < high ? low : high;
    indices[1] = low < high ? high : low;
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

static tt_status keep(struct tt_json_value **kept, const struct tt_json_value *row)
{
    tt_json_release(*kept);
    *kept = tt_json_new_object();
    return *kept != NULL && tt_json_update(*kept, row) == 0 ? TT_OK : TT_ERR_MEMORY;
}

/* The last `most` rows. */
static tt_status keep_in_list(struct tt_json_value **list, const struct tt_json_value *row, size_t most)
{
    if (*list == NULL) *list = tt_json_new_list();
    int failed = tt_json_append_copy(*list, row);
    tt_json_forgive(*list); /* the rows so far are shown */
    if (failed != 0) return TT_ERR_MEMORY;
    if (tt_json_count(*list) < 2 * most) return TT_OK;
    struct tt_json_value *newest = tt_json_new_list();
    for (size_t i = most; i < 2 * most; i++) tt_json_append_copy(newest, tt_json_at(*list, i));
    tt_json_release(*list);
    *list = tt_json_finish(newest);
    return *list != NULL ? TT_OK : TT_ERR_MEMORY;
}

static tt_status take_event(struct tt_run_figures *figures, const struct tt_json_value *row)
{
    const char *event = tt_json_text(tt_json_get(row, "event"));
    figures->saves += event != NULL && strcmp(event, "save") == 0;
    return keep_in_list(&figures->events, row, EVENTS_MAX);
}

/* Members "op_NAME_seconds". */
static tt_status take_ops(struct tt_run_figures *figures, const struct tt_json_value *row, double steps)
{
    static const char start[] = "op_", ending[] = "_seconds";
    const char *key;
    const struct tt_json_value *value;
    bool any = false;
    for (size_t at = 0; tt_json_next_member(row, &at, &key, &value);) {
        size_t bytes = strlen(key), i = 0;
        if (!tt_starts_with(key, start) || !tt_ends_with(key, ending) ||
            bytes >= sizeof figures->ops->name + strlen(start))
            continue;
        any = true;
        if (figures->ops == NULL) figures->ops = tt_calloc(TT_OP_FIGURES_MAX, sizeof *figures->ops);
        if (figures->ops == NULL) return TT_ERR_MEMORY;
        const char *name = key + strlen(start);
        int name_bytes = (int)(bytes - strlen(start) - strlen(ending));
        while (i < figures->op_count && (strncmp(figures->ops[i].name, name, (size_t)name_bytes) != 0 ||
                                         figures->ops[i].name[name_bytes] != '\0'))
            i++;
        if (name_bytes <= 0 || i == TT_OP_FIGURES_MAX) continue;
        if (i == figures->op_count)
            snprintf(figures->ops[figures->op_count++].name, sizeof figures->ops->name, "%.*s", name_bytes,
                     name);
        figures->ops[i].seconds += steps * figure_of(row, key);
    }
    if (any) figures->op_steps += steps;
    return TT_OK;
}

/* Rows after a resume were written again without times, and count once. The times are means of a row's steps. */
static tt_status take_row(void *context, const struct tt_json_value *row)
{
    struct tt_run_figures *figures = context;
    double step = figure_of(row, "step");
    figures->version++;
    if (tt_json_get(row, "event") != NULL) return take_event(figures, row);
    if (tt_json_get(row, "eval_loss") != NULL) TT_TRY(keep(&figures->last_eval, row));
    figures->ended = tt_json_get(row, "train_runtime") != NULL;
    for (int i = 0; i < TT_FIGURE_COUNT; i++) {
        const struct tt_json_value *value = tt_json_get(row, known[i].key);
        if (tt_json_is_number(value) && isfinite(tt_json_number(value)))
            TT_TRY(add_point(&figures->series[i], step, tt_json_number(value)));
    }
    if (tt_json_get(row, "step_seconds") == NULL) return TT_OK;
    double before = figures->last != NULL ? figure_of(figures->last, "step") : 0.0;
    double steps = step > before ? step - before : 1.0;
    for (int i = 0; i < TT_SHARE_COUNT; i++) {
        double seconds = figure_of(row, tt_share_key((enum tt_share)i));
        figures->shares[i] += steps * seconds;
        TT_TRY(add_point(&figures->share_series[i], step, seconds));
    }
    figures->steps += steps;
    TT_TRY(take_ops(figures, row, steps));
    if (tt_json_get(row, "mfu") != NULL) figures->mfu = figure_of(row, "mfu");
    if (tt_json_get(row, "device_bytes") != NULL) figures->device_bytes = figure_of(row, "device_bytes");
    return keep(&figures->last, row);
}

static tt_status take_rank_row(void *context, const struct tt_json_value *row)
{
    struct tt_rank_figures *rank = context;
    double step = figure_of(row, "step"), steps = step > rank->step ? step - rank->step : 1.0;
    rank->step = step;
    rank->steps += steps;
    rank->rank = (int)figure_of(row, "rank");
    rank->step_seconds += steps * figure_of(row, "step_seconds");
    rank->rank_wait_seconds += steps * figure_of(row, "rank_wait_seconds");
    rank->device_bytes = figure_of(row, "device_bytes");
    return TT_OK;
}

static tt_status find_rank(void *context, const char *name)
{
    struct tt_run_figures *figures = context;
    if (!tt_starts_with(name, "rank-") || !tt_ends_with(name, ".jsonl")) return TT_OK;
    for (size_t i = 0; i < figures->rank_count; i++)
        if (strcmp(figures->ranks[i].name, name) == 0) return TT_OK;
    struct tt_rank_figures *ranks = tt_realloc(figures->ranks, figures->rank_count + 1, sizeof *ranks);
    if (ranks == NULL) return TT_ERR_MEMORY;
    figures->ranks = ranks;
    ranks[figures->rank_count] = (struct tt_rank_figures){.name = tt_strdup(name)};
    if (ranks[figures->rank_count].name == NULL) return TT_ERR_MEMORY;
    figures->rank_count++;
    return TT_OK;
}

static int by_rank(const void *a, const void *b)
{
    return ((const struct tt_rank_figures *)a)->rank - ((const struct tt_rank_figures *)b)->rank;
}

/* Rank 0 is in metrics.jsonl. */
static tt_status read_ranks(struct tt_run_figures *figures, bool last)
{
    struct tt_path folder, path;
    TT_TRY(tt_path_set(&folder, figures->folder, "ranks"));
    if (!tt_path_is_dir(folder.text)) return TT_OK;
    TT_TRY(tt_dir_list(folder.text, find_rank, figures));
    for (size_t i = 0; i < figures->rank_count; i++) {
        struct tt_rank_figures *rank = &figures->ranks[i];
        size_t broken = rank->rows.broken;
        bool anew;
        TT_TRY(tt_path_set(&path, folder.text, rank->name));
        TT_TRY(tt_rows_read(&rank->rows, path.text, last, take_rank_row, rank, &anew));
        figures->broken += rank->rows.broken - (anew ? rank->rows.broken : broken);
        if (anew) *rank = (struct tt_rank_figures){.name = rank->name, .rank = rank->rank};
    }
    if (figures->rank_count > 1) qsort(figures->ranks, figures->rank_count, sizeof *figures->ranks, by_rank);
    return TT_OK;
}

static tt_status take_generation(void *context, const struct tt_json_value *row)
{
    struct tt_run_figures *figures = context;
    figures->version++;
    return keep_in_list(&figures->generations, row, GENERATIONS_MAX);
}

static tt_status take_picture(void *context, const struct tt_json_value *row)
{
    struct tt_run_figures *figures = context;
    figures->version++;
    return keep_in_list(&figures->pictures, row, PICTURES_MAX);
}

/* A file of rows beside metrics.jsonl, of which the last are kept in *list. */
static tt_status read_beside(struct tt_run_figures *figures, const char *name, bool last, tt_rows_take *take,
                             struct tt_rows *rows, struct tt_json_value **list)
{
    struct tt_path path;
    bool anew;
    TT_TRY(tt_path_set(&path, figures->folder, name));
    TT_TRY(tt_rows_read(rows, path.text, last, take, figures, &anew));
    if (!anew) return TT_OK;
    tt_json_release(*list);
    *list = NULL;
    return TT_OK;
}

/* run.json changes when a run begins and ends. One that is no JSON is as none. */
static tt_status read_run(struct tt_run_figures *figures)
{
    struct tt_path path;
    struct tt_file_facts facts;
    TT_TRY(tt_path_set(&path, figures->folder, "run.json"));
    if (tt_file_facts(path.text, &facts) != 0) return TT_OK;
    uint64_t changed = (uint64_t)facts.changed;
    if (changed == figures->run_changed) return TT_OK;
    figures->run_changed = changed;
    figures->version++;
    tt_json_deinit(&figures->run);
    tt_status status = tt_json_read(path.text, RUN_BYTES_MAX, &figures->run);
    if (status == TT_ERR_MEMORY) return status;
    if (status != TT_OK || !tt_json_is_object(figures->run.root)) tt_json_deinit(&figures->run);
    return TT_OK;
}

static tt_status read_all(struct tt_run_figures *figures, bool last)
{
    struct tt_path path;
    struct tt_file_facts facts;
    bool anew;
    size_t before = figures->rows.broken;
    TT_TRY(tt_path_set(&path, figures->folder, "metrics.jsonl"));
    TT_TRY(tt_rows_read(&figures->rows, path.text, last, take_row, figures, &anew));
    if (anew) { /* a resumed run writes it again */
        char *folder = figures->folder;
        uint64_t version = figures->version;
        figures->folder = NULL;
        tt_run_figures_deinit(figures);
        *figures = (struct tt_run_figures){.folder = folder, .version = version + 1};
        before = 0;
        TT_TRY(tt_rows_read(&figures->rows, path.text, last, take_row, figures, &anew));
    }
    figures->broken += figures->rows.broken - before;
    if (tt_file_facts(path.text, &facts) == 0)
        figures->changed = (double)(facts.changed / 1000000000) + (double)(facts.changed % 1000000000) * 1e-9;
    TT_TRY(read_ranks(figures, last));
    TT_TRY(read_beside(figures, "generations.jsonl", last, take_generation, &figures->generation_rows,
                       &figures->generations));
    TT_TRY(read_beside(figures, "pictures.jsonl", last, take_picture, &figures->picture_rows,
                       &figures->pictures));
    return read_run(figures);
}

tt_status tt_run_figures_update(struct tt_run_figures *figures)
{
    return read_all(figures, false);
}

tt_status tt_run_figures_open(const char *folder, struct tt_run_figures *figures)
{
    *figures = (struct tt_run_figures){.folder = tt_strdup(folder)};
    if (figures->folder == NULL) return TT_ERR_MEMORY;
    tt_status status = read_all(figures, false);
    if (status != TT_OK) tt_run_figures_deinit(figures);
    return status;
}

tt_status tt_run_figures_read(const char *folder, struct tt_run_figures *figures)
{
    tt_status status = TT_OK;
    struct tt_path path;
    *figures = (struct tt_run_figures){.folder = tt_strdup(folder)};
    if (figures->folder == NULL) return TT_ERR_MEMORY;
    TT_GO(tt_path_set(&path, folder, "metrics.jsonl"));
    if (!tt_path_exists(path.text)) {
        status = tt_fail(TT_ERR_DATA, "'%s' has no metrics.jsonl", folder);
        tt_hint("give the output_dir of a training");
        goto out;
    }
    TT_GO(read_all(figures, true));
out:
    if (status != TT_OK) tt_run_figures_deinit(figures);
    return status;
}

static void free_series(struct tt_series *series, int count)
{
    for (int i = 0; i < count; i++) {
        tt_free(series[i].steps);
        tt_free(series[i].values);
    }
}

void tt_run_figures_deinit(struct tt_run_figures *figures)
{
    free_series(figures->series, TT_FIGURE_COUNT);
    free_series(figures->share_series, TT_SHARE_COUNT);
    for (size_t i = 0; i < figures->rank_count; i++) tt_free(figures->ranks[i].name);
    tt_json_release(figures->last);
    tt_json_release(figures->last_eval);
    tt_json_release(figures->events);
    tt_json_release(figures->generations);
    tt_json_release(figures->pictures);
    tt_json_deinit(&figures->run);
    tt_free(figures->ops);
    tt_free(figures->ranks);
    tt_free(figures->folder);
    *figures = (struct tt_run_figures){0};
}
