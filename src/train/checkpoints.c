#include "train/checkpoints.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "checkpoint/save.h"

enum { PATH_BYTES = 4096 };

static tt_status checkpoint_path(const struct tt_run *run, int64_t step, char path[PATH_BYTES])
{
    int length = snprintf(path, PATH_BYTES, "%s/checkpoint-%lld", run->config->output_dir, (long long)step);
    if (length >= PATH_BYTES) return tt_fail(TT_ERR_USAGE, "output_dir is too long a path");
    return TT_OK;
}

static bool metric_is_accuracy(const struct tt_train_config *config)
{
    const char *metric = config->metric_for_best_model;
    return metric != NULL && strstr(metric, "accuracy") != NULL;
}

void tt_checkpoints_note_metric(struct tt_checkpoints *checkpoints, const struct tt_train_config *config,
                                const struct tt_evaluation *evaluation, int64_t step, bool saved)
{
    bool by_best = config->save_strategy == TT_INTERVAL_BEST;
    if (step == 0 || !(config->load_best_model_at_end || config->metric_for_best_model != NULL || by_best))
        return;
    if (config->load_best_model_at_end && !saved && !by_best) return;
    double metric = metric_is_accuracy(config) ? evaluation->token_accuracy : evaluation->loss;
    bool greater = config->greater_is_better >= 0 ? config->greater_is_better : metric_is_accuracy(config);
    if (isnan(metric)) return;
    bool better = greater ? metric > checkpoints->best_metric : metric < checkpoints->best_metric;
    if (checkpoints->has_best && !better) return;
    checkpoints->has_best = true;
    checkpoints->best_metric = metric;
    checkpoints->best_step = step;
}

tt_dtype tt_checkpoints_dtype(const struct tt_train_config *config, const struct tt_model *model)
{
    tt_dtype asked =
        config->save_dtype != NULL ? tt_dtype_from_torch_name(config->save_dtype) : TT_DTYPE_NONE;
    if (asked != TT_DTYPE_NONE) return asked;
    if (model->adapter_param_count > 0) return TT_F32;
    return tt_dtype_is_float(model->config.dtype) ? model->config.dtype : TT_F32;
}

static tt_status write_extras(void *context, const char *folder)
{
    const struct tt_run *run = context;
    TT_TRY(tt_journal_write_state(run->journal, folder));
    if (run->settings == NULL) return TT_OK;
    tt_status status = TT_OK;
    struct tt_str text = {0};
    char *path = tt_path_join(folder, "trimtab_config.yaml");
    if (path == NULL) TT_GO(TT_ERR_MEMORY);
    TT_GO(tt_settings_write_yaml(run->settings, &text));
    TT_GO(tt_file_write_atomic(path, tt_str_text(&text), text.bytes));
out:
    tt_free(path);
    tt_str_deinit(&text);
    return status;
}

static tt_status save(struct tt_run *run, struct tt_rank *rank, const char *folder, bool merge)
{
    double start = tt_clock_seconds();
    bool first = tt_comm_rank(rank->world) == 0;
    /* Replicas hold the same slices: the first of each writes them. */
    const struct tt_comm *replicas = rank->comms.replicate;
    bool writes = rank->sharded ? replicas == NULL || tt_comm_rank(replicas) == 0 : first;
    struct tt_save_request request = {
        .model = rank->model,
        .units = rank->units,
        .stream = rank->stream,
        .comm = rank->world,
        .writes = writes,
        .dtype = tt_checkpoints_dtype(run->config, rank->model),
        .base_folder = run->config->model_name_or_path,
        .folder = folder,
        .merge = merge,
        .extras = write_extras,
        .extras_context = run,
    };
    TT_TRY(tt_checkpoint_save(&request));
    if (first && run->observer != NULL && run->observer->on_save != NULL)
        run->observer->on_save(run->observer->context, folder, tt_clock_seconds() - start);
    return TT_OK;
}

struct found_checkpoints {
    int64_t *steps; /* owned */
    size_t count, capacity;
};

static tt_status note_checkpoint(void *context, const char *name)
{
    struct found_checkpoints *found = context;
    char *end;
    if (strncmp(name, "checkpoint-", 11) != 0) return TT_OK;
    long long step = strtoll(name + 11, &end, 10);
    if (end == name + 11 || *end != '\0') return TT_OK;
    if (tt_grow((void **)&found->steps, found->count, &found->capacity, sizeof *found->steps) != 0)
        return TT_ERR_MEMORY;
    found->steps[found->count++] = step;
    return TT_OK;
}

static int compare_steps(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

/* A kill in the middle must not leave a part under the name of a whole: the folder first takes the name of an
 * unfinished save, which the next run clears away. */
static tt_status remove_checkpoint(const char *path)
{
    char aside[PATH_BYTES + 8];
    snprintf(aside, sizeof aside, "%s.saving", path);
    TT_TRY(tt_dir_remove(aside));
    if (rename(path, aside) != 0) return tt_fail_errno(errno, "cannot move '%s' aside to remove it", path);
    return tt_dir_remove(aside);
}

/* Until the limit holds: first those of later steps than the newest, which an earlier run left, then the
 * oldest; the best and the newest stay. */
static tt_status remove_old(const struct tt_checkpoints *checkpoints, const struct tt_run *run,
                            int64_t newest)
{
    int64_t limit = run->config->save_total_limit;
    if (limit <= 0) return TT_OK;
    tt_status status = TT_OK;
    struct found_checkpoints found = {0};
    TT_GO(tt_dir_list(run->config->output_dir, note_checkpoint, &found));
    if (found.count > 1) qsort(found.steps, found.count, sizeof *found.steps, compare_steps);
    int64_t excess = (int64_t)found.count - limit;
    for (size_t i = 0; i < 2 * found.count && excess > 0; i++) {
        char path[PATH_BYTES];
        int64_t step = found.steps[i % found.count];
        bool left_over = step > newest, is_best = checkpoints->has_best && step == checkpoints->best_step;
        if (left_over != (i < found.count) || step == newest || is_best) continue;
        TT_GO(checkpoint_path(run, step, path));
        TT_GO(remove_checkpoint(path));
        excess--;
    }
out:
    tt_free(found.steps);
    return status;
}

/* What trainer_state.json says of the best; `saved`: the step whose checkpoint is about to be written, or -1.
 */
static tt_status tell_best(const struct tt_checkpoints *checkpoints, struct tt_run *run, int64_t saved)
{
    char best[PATH_BYTES];
    if (!checkpoints->has_best) return TT_OK;
    TT_TRY(checkpoint_path(run, checkpoints->best_step, best));
    bool exists = checkpoints->best_step == saved || tt_path_exists(best);
    return tt_journal_best(run->journal, checkpoints->best_step, checkpoints->best_metric,
                           exists ? best : NULL);
}

tt_status tt_checkpoints_save(struct tt_checkpoints *checkpoints, struct tt_run *run, struct tt_rank *rank,
                              int64_t step)
{
    char path[PATH_BYTES];
    bool first = tt_comm_rank(rank->world) == 0;
    TT_TRY(checkpoint_path(run, step, path));
    TT_TRY(tt_comm_agree(rank->world, first ? tell_best(checkpoints, run, step) : TT_OK));
    TT_TRY(save(run, rank, path, false));
    return tt_comm_agree(rank->world, first ? remove_old(checkpoints, run, step) : TT_OK);
}

static tt_status load_best(const struct tt_checkpoints *checkpoints, struct tt_run *run, struct tt_rank *rank)
{
    char path[PATH_BYTES];
    tt_status status = TT_OK;
    struct tt_load_source source = run->inputs.source;
    struct tt_safetensors *adapter = NULL;
    struct tt_model_folder *folder = NULL;
    char *weights = NULL;
    TT_GO(checkpoint_path(run, checkpoints->best_step, path));
    if (rank->model->adapter_param_count > 0) {
        weights = tt_path_join(path, "adapter_model.safetensors");
        if (weights == NULL) TT_GO(TT_ERR_MEMORY);
        TT_GO(tt_safetensors_open(weights, &adapter));
        source.adapter = adapter;
    } else {
        TT_GO(tt_model_folder_open(path, true, &folder));
        source.folder = folder;
    }
    TT_GO(tt_load_units(rank->model, rank->units, rank->stream, &source));
out:
    if (status != TT_OK) tt_while("reading the best checkpoint back");
    tt_safetensors_close(adapter);
    tt_model_folder_close(folder);
    tt_free(weights);
    return status;
}

tt_status tt_checkpoints_finish(struct tt_checkpoints *checkpoints, struct tt_run *run, struct tt_rank *rank)
{
    if (run->config->load_best_model_at_end && checkpoints->has_best)
        TT_TRY(tt_comm_agree(rank->world, load_best(checkpoints, run, rank)));
    bool first = tt_comm_rank(rank->world) == 0;
    TT_TRY(tt_comm_agree(rank->world, first ? tell_best(checkpoints, run, -1) : TT_OK));
    return save(run, rank, run->config->output_dir, true);
}
