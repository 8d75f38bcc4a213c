#include "run/best.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/log.h"
#include "checkpoint/consolidate.h"
#include "comm/host_values.h"
#include "engine/rank.h"
#include "io/halves.h"
#include "io/output_folder.h"
#include "job/eval_sets.h"
#include "launch/world.h"
#include "model/adapter_config.h"
#include "model/lora_init.h"
#include "run/resume.h"
#include "run/run_job.h"

enum { STATE_BYTES_MAX = 256 << 20 };

/* ---- At the resume ---- */

/* A checkpoint that may be the best. */
struct candidate {
    char *path; /* owned */
    int64_t step;
    double metric;
    bool tried;
};

/* The search for it, of a run that resumes. */
struct search {
    const struct tt_run_job *job;
    struct tt_resume *resume;
    int first_rank; /* of this process */
};

struct candidates {
    struct candidate *items; /* owned */
    size_t count, capacity;
};

static void drop_candidates(struct candidates *all)
{
    for (size_t i = 0; i < all->count; i++) tt_free(all->items[i].path);
    tt_free(all->items);
}

/* Takes `path`, which is NULL without memory. */
static tt_status add(struct candidates *all, char *path, int64_t step, double metric)
{
    if (path == NULL) return TT_ERR_MEMORY;
    if (tt_grow(&all->items, all->count, &all->capacity) != TT_OK) {
        tt_free(path);
        return TT_ERR_MEMORY;
    }
    all->items[all->count++] = (struct candidate){.path = path, .step = step, .metric = metric};
    return TT_OK;
}

const char *tt_best_metric_name(const struct tt_run_job *job, char *name, size_t bytes)
{
    const char *given = job->watch->metric_for_best_model, *of_set = NULL;
    size_t set;
    bool found = tt_eval_sets_find(job->data, given, &set, &of_set) == TT_OK && of_set != NULL;
    snprintf(name, bytes, "%s%.90s", found && strncmp(given, "eval_", 5) == 0 ? "" : "eval_",
             found ? given : job->watch->metric->name);
    return name;
}

/* The watched metric of the evaluation after `step`, in a trainer_state.json. NaN: it has none. */
static double metric_at(const struct search *search, const struct tt_json *trainer, int64_t step)
{
    const struct tt_json_value *history = tt_json_get(trainer->root, "log_history"), *row;
    char name[100];
    (void)tt_best_metric_name(search->job, name, sizeof name);
    for (size_t i = 0; (row = tt_json_at(history, i)) != NULL; i++) {
        const struct tt_json_value *value = tt_json_get(row, name);
        if (tt_json_is_number(value) && tt_json_integer(tt_json_get(row, "step")) == step)
            return tt_json_number(value);
    }
    return NAN;
}

/* The checkpoints of `folder` that have an evaluation, up to the one to resume from. */
static tt_status add_folder(const struct search *search, const char *folder, struct candidates *all)
{
    int64_t *steps = NULL;
    size_t count = 0;
    tt_status status = tt_checkpoint_list(folder, &steps, &count);
    for (size_t i = 0; i < count && status == TT_OK; i++) {
        double metric = steps[i] == search->resume->best.step
                            ? search->resume->best.metric
                            : metric_at(search, &search->resume->trainer, steps[i]);
        if (steps[i] <= search->resume->step && !isnan(metric))
            status = add(all, tt_checkpoint_path(folder, steps[i]), steps[i], metric);
    }
    tt_free(steps);
    return status;
}

static tt_status parent_of(const char *path, char parent[TT_BEST_PATH_BYTES])
{
    size_t bytes = strlen(path);
    while (bytes > 1 && path[bytes - 1] == '/') bytes--;
    while (bytes > 0 && path[bytes - 1] != '/') bytes--;
    while (bytes > 1 && path[bytes - 1] == '/') bytes--;
    if (bytes >= TT_BEST_PATH_BYTES)
        return tt_fail(TT_ERR_USAGE, "resume_from_checkpoint is too long a path");
    snprintf(parent, TT_BEST_PATH_BYTES, "%.*s", bytes > 0 ? (int)bytes : 1, bytes > 0 ? path : ".");
    return TT_OK;
}

static tt_status list_candidates(const struct search *search, struct candidates *all)
{
    const struct tt_resume *resume = search->resume;
    const char *recorded = tt_json_text(tt_json_get(resume->trainer.root, "best_model_checkpoint"));
    char parent[TT_BEST_PATH_BYTES];
    TT_TRY(parent_of(resume->folder, parent));
    TT_TRY(add_folder(search, parent, all));
    if (recorded != NULL && tt_path_is_dir(recorded))
        TT_TRY(add(all, tt_strdup(recorded), resume->best.step, resume->best.metric));
    return tt_output_folder_is(parent, search->job->run->output_dir)
               ? TT_OK
               : add_folder(search, search->job->run->output_dir, all);
}

/* The recorded step comes first, then the better metric, then the earlier step, then the order of the folders. */
static bool comes_before(const struct search *search, const struct candidate *a, const struct candidate *b)
{
    int64_t recorded = search->resume->best.step;
    if ((a->step == recorded) != (b->step == recorded)) return a->step == recorded;
    if (a->metric < b->metric || a->metric > b->metric)
        return tt_best_is_greater(search->job->watch) ? a->metric > b->metric : a->metric < b->metric;
    return a->step < b->step;
}

static struct candidate *take_next(const struct search *search, struct candidates *all)
{
    struct candidate *next = NULL;
    for (size_t i = 0; i < all->count; i++) {
        struct candidate *item = &all->items[i];
        if (!item->tried && (next == NULL || comes_before(search, item, next))) next = item;
    }
    if (next != NULL) next->tried = true;
    return next;
}

/* A checkpoint of another run with the same step has another metric. */
static tt_status check_metric(const struct search *search, const struct candidate *candidate)
{
    struct tt_json trainer = {0};
    struct tt_path path;
    TT_TRY(tt_path_set(&path, candidate->path, "trainer_state.json"));
    tt_status status = tt_json_read(path.text, STATE_BYTES_MAX, &trainer);
    double metric = status == TT_OK ? metric_at(search, &trainer, candidate->step) : NAN;
    if (status == TT_OK && isfinite(candidate->metric) && !(metric == candidate->metric))
        status = tt_fail(TT_ERR_DATA, "'%s' is of another run: its evaluation differs", candidate->path);
    tt_json_deinit(&trainer);
    return status;
}

static tt_status check_candidate(const struct search *search, const struct candidate *candidate)
{
    if (tt_output_folder_is(candidate->path, search->resume->folder)) return TT_OK; /* it was verified */
    TT_TRY(tt_checkpoint_verify_weights(candidate->path, search->job->cancel));
    return check_metric(search, candidate);
}

/* Takes the first candidate that is whole; without load_best_model_at_end the recorded one unread. `reason`: why the
 * recorded one is not taken. */
static tt_status choose(const struct search *search, struct candidates *all, const struct candidate **chosen,
                        char *reason, size_t reason_bytes)
{
    struct candidate *next;
    *chosen = NULL;
    snprintf(reason, reason_bytes, "'checkpoint-%lld' is gone", (long long)search->resume->best.step);
    while (*chosen == NULL && (next = take_next(search, all)) != NULL) {
        if (!search->job->watch->load_best_model_at_end) {
            if (next->step == search->resume->best.step) *chosen = next;
            return TT_OK;
        }
        tt_status status = check_candidate(search, next);
        if (status == TT_OK) *chosen = next;
        if (status == TT_OK) break;
        if (status != TT_ERR_DATA && status != TT_ERR_IO) return status;
        if (next->step == search->resume->best.step)
            snprintf(reason, reason_bytes, "%s", tt_error_last()->message);
        tt_error_clear();
    }
    return TT_OK;
}

static void warn_replaced(const struct search *search, const struct candidate *chosen, const char *reason)
{
    const struct tt_best *best = &search->resume->best;
    char name[100];
    (void)tt_best_metric_name(search->job, name, sizeof name);
    if (chosen != NULL)
        tt_warn("the best checkpoint, of step %lld (%s %.6g), cannot be loaded at the end: %s; the best of "
                "those that are whole takes its place: '%s' (%s %.6g)",
                (long long)best->step, name, best->metric, reason, chosen->path, name, chosen->metric);
    else
        tt_warn("the best checkpoint, of step %lld (%s %.6g), cannot be loaded at the end: %s; no other "
                "checkpoint with an evaluation is whole, so the best of the evaluations from now on is taken",
                (long long)best->step, name, best->metric, reason);
}

/* Runs in the process of rank 0. */
static tt_status find(const struct search *search)
{
    struct tt_resume *resume = search->resume;
    struct candidates all = {0};
    const struct candidate *chosen = NULL;
    char reason[sizeof tt_error_last()->message];
    tt_status status = list_candidates(search, &all);
    if (status == TT_OK) status = choose(search, &all, &chosen, reason, sizeof reason);
    bool replaced = chosen == NULL || chosen->step != resume->best.step;
    if (status == TT_OK && replaced && search->job->watch->load_best_model_at_end) {
        warn_replaced(search, chosen, reason);
        resume->best = (struct tt_best){.known = chosen != NULL,
                                        .metric = chosen != NULL ? chosen->metric : 0,
                                        .step = chosen != NULL ? chosen->step : 0};
    }
    if (status == TT_OK && chosen != NULL) {
        resume->best_folder = tt_strdup(chosen->path);
        if (resume->best_folder == NULL) status = TT_ERR_MEMORY;
    }
    drop_candidates(&all);
    return status;
}

/* The findings of rank 0. */
struct found {
    double metric;
    int64_t step;
    bool known;
    char folder[TT_BEST_PATH_BYTES];
};

static tt_status share(void *context, const struct tt_world_rank *rank)
{
    const struct search *search = context;
    struct tt_resume *resume = search->resume;
    struct found found = {resume->best.metric, resume->best.step, resume->best.known, ""};
    tt_status status = TT_OK;
    if (resume->best_folder != NULL) snprintf(found.folder, sizeof found.folder, "%s", resume->best_folder);
    TT_TRY(tt_comm_host_share(rank->comm, &found, sizeof found));
    if (tt_comm_rank(rank->comm) == search->first_rank && search->first_rank > 0) {
        resume->best = (struct tt_best){.known = found.known, .metric = found.metric, .step = found.step};
        resume->best_folder = found.folder[0] != '\0' ? tt_strdup(found.folder) : NULL;
        if (found.folder[0] != '\0' && resume->best_folder == NULL) status = TT_ERR_MEMORY;
    }
    return tt_comm_agree(rank->comm, status);
}

tt_status tt_best_find(const struct tt_run_job *job, struct tt_resume *resume, struct tt_world *world)
{
    struct search search = {job, resume, world->first_rank};
    if (resume->folder == NULL || !resume->best.known) return TT_OK;
    TT_TRY(tt_world_agree(world, world->first_rank == 0 ? find(&search) : TT_OK));
    if (world->local_count < world->world_size) TT_TRY(tt_world_run(world, share, &search));
    resume->best.folder = resume->best_folder;
    return TT_OK;
}

/* ---- At the end ---- */

bool tt_best_is_greater(const struct tt_watch_spec *watch)
{
    return watch->greater_is_better >= 0 ? watch->greater_is_better
                                         : watch->metric->better == TT_BETTER_GREATER;
}

tt_status tt_best_path(const char *output_dir, const struct tt_best *best, char path[TT_BEST_PATH_BYTES])
{
    int length = best->folder != NULL ? snprintf(path, TT_BEST_PATH_BYTES, "%s", best->folder)
                                      : snprintf(path, TT_BEST_PATH_BYTES, "%s/checkpoint-%lld", output_dir,
                                                 (long long)best->step);
    if (length >= TT_BEST_PATH_BYTES) return tt_fail(TT_ERR_USAGE, "output_dir is too long a path");
    return TT_OK;
}

struct weights {
    struct tt_safetensors *adapter;
    struct tt_model_folder *folder;
    struct tt_load_source source;
};

static void close_weights(struct weights *weights)
{
    tt_safetensors_close(weights->adapter);
    tt_model_folder_close(weights->folder);
    *weights = (struct weights){0};
}

static tt_status open_weights(const struct tt_load_source *source, const struct tt_rank *rank,
                              const char *path, struct weights *weights)
{
    struct tt_path name;
    *weights = (struct weights){.source = *source};
    if (rank->model->adapter_param_count > 0) {
        TT_TRY(tt_path_set(&name, path, "adapter_model.safetensors"));
        TT_TRY(tt_safetensors_open(name.text, &weights->adapter));
        if (tt_lora_changes_base(&rank->model->options.lora))
            TT_TRY(tt_halves_show(TT_HALF_TRAINED, &weights->adapter));
        TT_TRY(tt_adapter_join(&rank->model->facts, &rank->model->options.lora, &weights->adapter));
        weights->source.adapter = weights->adapter;
        weights->source.adapter_only = true; /* the base is as it was, whatever became of its folder */
    } else {
        TT_TRY(tt_model_folder_open(path, true, &weights->folder));
        TT_TRY(tt_model_folder_join(weights->folder, &rank->model->facts.sources));
        weights->source.folder = weights->folder;
    }
    return tt_load_check(rank->model, &weights->source);
}

/* Whether, on rank 0, the weights are there and as saved; otherwise a warning says why not. */
static tt_status find_usable(const struct tt_load_source *source, const struct tt_rank *rank,
                             const char *path, bool *usable)
{
    struct weights weights = {0};
    tt_status status = tt_checkpoint_verify_weights(path, NULL);
    if (status == TT_OK) status = open_weights(source, rank, path, &weights);
    close_weights(&weights);
    *usable = status == TT_OK;
    if (status == TT_OK || status == TT_ERR_MEMORY) return status;
    tt_warn("the best checkpoint cannot be loaded: %s; the result has the weights of the last step",
            tt_error_last()->message);
    tt_error_clear();
    return TT_OK;
}

tt_status tt_best_restore(const struct tt_run_job *job, const struct tt_load_source *source,
                          struct tt_rank *rank, const struct tt_best *best)
{
    char path[TT_BEST_PATH_BYTES];
    struct weights weights = {0};
    bool usable = false;
    if (!job->watch->load_best_model_at_end || !best->known) return TT_OK;
    TT_TRY(tt_best_path(job->run->output_dir, best, path));
    tt_status status = tt_comm_rank(rank->world) == 0 ? find_usable(source, rank, path, &usable) : TT_OK;
    TT_TRY(tt_comm_agree(rank->world, status));
    TT_TRY(tt_comm_host_share(rank->world, &usable, sizeof usable));
    if (!usable) return TT_OK;
    status = tt_comm_agree(rank->world, open_weights(source, rank, path, &weights));
    if (status == TT_OK)
        status = tt_comm_agree(rank->world,
                               tt_load_units(rank->model, rank->units, rank->stream, &weights.source));
    if (status != TT_OK) tt_while("loading the best checkpoint");
    close_weights(&weights);
    return status;
}
