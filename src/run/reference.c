#include "run/reference.h"

#include <stdatomic.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/crc64.h"
#include "base/json.h"
#include "base/log.h"
#include "base/number.h"
#include "base/thread.h"
#include "comm/host_values.h"
#include "data/row_kind.h"
#include "engine/rank_pass.h"
#include "model/lora_init.h"
#include "objective/reference.h"
#include "run/reference_file.h"
#include "run/task.h"

/* ---- Order ---- */

/* Answers of other rows are those of a step, whatever micro batches it has. */
static tt_status split_step(const struct tt_reference_order *order, int64_t step,
                            struct tt_sampler_config *sampler)
{
    if (!sampler->mismatched) return TT_OK;
    if (step % sampler->micro_batch_size != 0) {
        tt_status status = tt_fail(
            TT_ERR_USAGE, "precompute_ref_batch_size %lld does not divide the %lld rows of a rank's step",
            (long long)order->batch_size, (long long)step);
        tt_hint("the reference of answers to other prompts is that of whole steps");
        return status;
    }
    sampler->accumulation = step / sampler->micro_batch_size;
    return TT_OK;
}

static size_t count_given(const struct tt_dataset *dataset)
{
    size_t given = 0;
    for (size_t i = 0; i < tt_dataset_count(dataset); i++) given += tt_dataset_sample(dataset, i).value != 0;
    return given;
}

/* Whether the rows bring the reference: all of them, or none. */
static tt_status look_at_rows(const struct tt_objective *objective, struct tt_reference_set *set)
{
    if (objective->ops->referenced == NULL) return TT_OK;
    size_t given = count_given(set->dataset), count = tt_dataset_count(set->dataset);
    size_t each = objective->ops->referenced->samples_each;
    set->given = given == count;
    if (given > 0 && given < count) {
        tt_status status = tt_fail(TT_ERR_DATA, "%zu of the %zu %s rows bring log p of a reference",
                                   given / each, count / each, set->what);
        tt_hint("give ref_chosen_logps and ref_rejected_logps with every row, or with none");
        return status;
    }
    if (!set->given || objective->ops->weighs_reference == NULL ||
        !objective->ops->weighs_reference(objective))
        return TT_OK;
    tt_status status =
        tt_fail(TT_ERR_USAGE, "the rows bring log p of whole answers, and ld_alpha weighs tokens");
    tt_hint("leave these columns out of the rows: they are computed");
    return status;
}

static tt_status order_set(const struct tt_reference_order *order, struct tt_dataset *dataset,
                           const char *what, int64_t batch, int64_t accumulation,
                           struct tt_run_reference *reference)
{
    struct tt_reference_set *set = &reference->sets[reference->count];
    struct tt_sampler_config config = {
        .micro_batch_size = order->batch_size > 0 ? order->batch_size : batch,
        .world_size = order->data_size,
        .accumulation = 1,
        .max_length = order->max_length,
        .mismatched = tt_objective_mismatches(order->objective),
        .value = order->rows->rows_kind->value,
        .shares = order->shares,
    };
    struct tt_batch_limits limits;
    if (dataset == NULL) return TT_OK;
    TT_TRY(split_step(order, batch * accumulation, &config));
    TT_TRY(tt_sampler_create(dataset, &config, &set->sampler));
    set->dataset = dataset;
    set->what = what;
    set->samples = batch * accumulation * order->data_size;
    set->most = order->max_length;
    reference->count++;
    TT_TRY(look_at_rows(order->objective, set));
    tt_sampler_limits(set->sampler, 0, tt_sampler_steps_per_epoch(set->sampler), &limits);
    reference->limits = tt_batch_limits_join(&reference->limits, &limits);
    return TT_OK;
}

tt_status tt_run_reference_order(const struct tt_reference_order *order, const struct tt_inputs *inputs,
                                 struct tt_run_reference *reference)
{
    if (!order->objective->precomputed) return TT_OK;
    TT_TRY(order_set(order, inputs->train, "training", order->train_batch, order->accumulation, reference));
    return order_set(order, inputs->eval, "evaluation", order->eval_batch, 1, reference);
}

void tt_run_reference_deinit(struct tt_run_reference *reference)
{
    for (int i = 0; i < reference->count; i++) {
        tt_sampler_destroy(reference->sets[i].sampler);
        tt_str_deinit(&reference->sets[i].path);
    }
    *reference = (struct tt_run_reference){0};
}

/* ---- The key ---- */

/* The settings of a new adapter whose first values are part of the model that training begins with. */
static tt_status describe_adapter(const struct tt_reference_config *config, struct tt_str *key)
{
    const struct tt_lora_config *lora = &config->inputs->model_options.lora;
    const char *const texts[] = {lora->init_weights,        lora->target_modules, lora->exclude_modules,
                                 lora->layers_to_transform, lora->layers_pattern, lora->rank_pattern,
                                 lora->alpha_pattern};
    if (!tt_lora_changes_base(lora)) return TT_OK;
    TT_TRY(tt_str_printf(key, "adapter: seed %lld, r %lld, alpha %.17g, rslora %d\n",
                         (long long)config->job->run->seed, (long long)lora->r, lora->alpha,
                         (int)lora->use_rslora));
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        TT_TRY(tt_str_printf(key, "%s\n", texts[i] != NULL ? texts[i] : "-"));
    return TT_OK;
}

/* The key has, beside the rows, the model and the adapter to start from, how weights are stored and computed, and the
 * steps and the length, where answers of other rows are part of it. */
static tt_status describe(const struct tt_reference_config *config, const struct tt_reference_set *set,
                          struct tt_str *key)
{
    const struct tt_model_options *options = &config->inputs->model_options;
    for (size_t i = 0; i < config->fingerprint->count; i++) {
        const struct tt_fingerprint_part *part = &config->fingerprint->parts[i];
        if (part->role == TT_FINGERPRINT_MODEL || part->role == TT_FINGERPRINT_ADAPTER)
            TT_TRY(tt_str_printf(key, "%s: %016llx\n", part->name, (unsigned long long)part->quick));
    }
    if (config->inputs->source.folder == NULL)
        TT_TRY(tt_str_printf(key, "random: %lld\n", (long long)config->job->run->seed));
    TT_TRY(tt_str_printf(key, "%s, %s\n", config->device, tt_dtype_torch_name(options->compute_dtype)));
    if (tt_objective_mismatches(config->job->objective))
        TT_TRY(tt_str_printf(key, "steps of %lld, cut at %lld\n", (long long)set->samples,
                             (long long)set->most));
    TT_TRY(describe_adapter(config, key));
    struct tt_json_value *words = tt_json_new_object();
    tt_task_run_of(config->inputs)->identify(config->inputs, config->job->data, words);
    words = tt_json_finish(words);
    tt_status status = words != NULL ? tt_json_write(words, 0, true, key) : TT_ERR_MEMORY;
    tt_json_release(words);
    return status;
}

static tt_status name_file(const struct tt_reference_config *config, struct tt_reference_set *set)
{
    struct tt_str key = {0};
    const char *prepared = config->job->data->prepared_path;
    tt_status status = describe(config, set, &key);
    const uint64_t sum = tt_dataset_sum(set->dataset);
    set->key = tt_crc64(tt_crc64(0, key.data, key.bytes), &sum, sizeof sum);
    tt_str_deinit(&key);
    TT_TRY(status);
    return tt_str_printf(&set->path, "%s/reference-%016llx.logps",
                         prepared != NULL ? prepared : config->job->run->output_dir,
                         (unsigned long long)set->key);
}

/* ---- Opening ---- */

static tt_status open_set(const struct tt_reference_config *config, struct tt_reference_set *set)
{
    if (set->given) return TT_OK;
    TT_TRY(name_file(config, set));
    TT_TRY(tt_dataset_derive_column(set->dataset, TT_REFERENCE_ROWS, TT_PER_ROW, &set->logps));
    if (tt_objective_mismatches(config->job->objective))
        TT_TRY(tt_dataset_derive_column(set->dataset, TT_REFERENCE_MISMATCHED, TT_PER_SEQUENCE,
                                        &set->mismatched));
    const struct tt_reference_file file = {tt_str_text(&set->path), set->key, set->dataset, set->logps,
                                           set->mismatched};
    return config->reads ? tt_reference_file_read(&file, &set->found) : TT_OK;
}

static void report_origin(const struct tt_run_job *job, const struct tt_reference_set *set)
{
    char line[600];
    if (!set->given && !set->found) return;
    if (set->given)
        tt_snprintf(line, sizeof line, "reference of the %s rows: they bring its log p", set->what);
    else
        tt_snprintf(line, sizeof line, "reference of the %s rows: log p from '%.400s'", set->what,
                    tt_str_text(&set->path));
    tt_run_report_line(job, line);
}

tt_status tt_run_reference_open(const struct tt_reference_config *config, struct tt_run_reference *reference)
{
    for (int i = 0; i < reference->count; i++) {
        struct tt_reference_set *set = &reference->sets[i];
        TT_TRY(open_set(config, set));
        report_origin(config->job, set);
    }
    return TT_OK;
}

/* ---- Sharing what a file had ---- */

enum { SHARED_VALUES = 1 << 16 };

static tt_status share_values(struct tt_comm *comm, float *values, size_t count, bool leads)
{
    float *part = tt_calloc(SHARED_VALUES, sizeof *part);
    tt_status status = tt_comm_agree(comm, part != NULL ? TT_OK : TT_ERR_MEMORY);
    for (size_t at = 0; at < count && status == TT_OK; at += SHARED_VALUES) {
        size_t some = count - at < SHARED_VALUES ? count - at : SHARED_VALUES;
        bool first = tt_comm_rank(comm) == 0;
        if (first) memcpy(part, values + at, some * sizeof *part);
        status = tt_comm_host_share(comm, part, some * sizeof *part);
        if (status == TT_OK && leads && !first) memcpy(values + at, part, some * sizeof *part);
    }
    tt_free(part);
    return status;
}

static size_t token_count(const struct tt_dataset *dataset)
{
    size_t last = tt_dataset_count(dataset) - 1;
    return tt_dataset_first_token(dataset, last) + (size_t)tt_dataset_sample(dataset, last).count;
}

tt_status tt_run_reference_share(struct tt_run_reference *reference, struct tt_comm *comm, bool leads,
                                 bool *missing)
{
    *missing = false;
    for (int i = 0; i < reference->count; i++) {
        struct tt_reference_set *set = &reference->sets[i];
        bool found = set->found;
        TT_TRY(tt_comm_host_share(comm, &found, sizeof found));
        *missing = *missing || (!found && !set->given);
        if (!found) continue;
        TT_TRY(share_values(comm, set->logps, token_count(set->dataset), leads));
        if (set->mismatched != NULL)
            TT_TRY(share_values(comm, set->mismatched, tt_dataset_count(set->dataset), leads));
    }
    return TT_OK;
}

/* ---- Computing ---- */

/* A value and its place in a column. */
struct entry {
    uint64_t place;
    double value;
};

struct computing {
    struct tt_reference_set *set;
    struct tt_rank *rank;
    bool leads;
    struct entry *entries;
    size_t capacity;
    struct tt_batch_storage storage;
};

static uint64_t sample_of(const struct tt_batch *batch, int64_t token)
{
    return (uint64_t)batch->row_keys[token] >> 24;
}

/* Each row predicts the token after it. */
static size_t list_rows(const struct computing *work, const struct tt_batch *batch, const float *logp_N)
{
    for (int64_t n = 0; n < batch->row_count; n++) {
        int32_t token = batch->rows[n];
        uint64_t position = (uint64_t)batch->row_keys[token] & 0xFFFFFF;
        uint64_t first = tt_dataset_first_token(work->set->dataset, sample_of(batch, token));
        work->entries[n] = (struct entry){first + position + 1, (double)logp_N[n]};
    }
    return (size_t)batch->row_count;
}

static size_t list_sequences(const struct computing *work, const struct tt_batch *batch, const float *logp_N)
{
    int64_t first = 0;
    for (int64_t s = 0; s < batch->sequence_count; s++) {
        int64_t end = tt_objective_rows_end(batch, s, first);
        double sum = 0;
        for (int64_t n = first; n < end; n++) sum += (double)logp_N[n];
        work->entries[s] = (struct entry){sample_of(batch, batch->cu_seqlens[s]), sum};
        first = end;
    }
    return (size_t)batch->sequence_count;
}

/* The entries of all ranks, into the column of each process. */
static tt_status gather(struct computing *work, size_t count, float *column)
{
    struct tt_comm *comm = work->rank->mesh.axes[TT_AXIS_DATA].comm;
    int64_t longest = -(int64_t)count;
    TT_TRY(tt_comm_host_min(comm, &longest));
    longest = -longest;
    size_t world = (size_t)tt_comm_world_size(comm), each = (size_t)longest + 1;
    struct entry *all = tt_calloc((world + 1) * each, sizeof *all), *own = all + world * each;
    tt_status status = tt_comm_agree(comm, all != NULL ? TT_OK : TT_ERR_MEMORY);
    if (status == TT_OK) {
        own[0].place = count;
        if (count > 0) memcpy(own + 1, work->entries, count * sizeof *own);
        status = tt_comm_host_all_gather(comm, own, all, each * sizeof *all);
    }
    for (size_t r = 0; r < world && status == TT_OK && work->leads; r++)
        for (size_t i = 1; i <= all[r * each].place; i++)
            column[all[r * each + i].place] = (float)all[r * each + i].value;
    tt_free(all);
    return status;
}

static tt_status run_micro(struct computing *work, int64_t step, int64_t micro, bool mismatched)
{
    struct tt_batch batch;
    const float *logp_N;
    const struct tt_sampler *sampler = work->set->sampler;
    int own = work->rank->mesh.axes[TT_AXIS_DATA].rank;
    TT_TRY((mismatched ? tt_sampler_shared : tt_sampler_batch)(sampler, step, micro, own, &work->storage,
                                                               &batch));
    TT_TRY(tt_rank_compute_reference(work->rank, &batch, &logp_N));
    size_t most = (size_t)(batch.row_count > batch.sequence_count ? batch.row_count : batch.sequence_count);
    if (most > work->capacity) TT_TRY(tt_reserve(&work->entries, most, &work->capacity));
    size_t count = (mismatched ? list_sequences : list_rows)(work, &batch, logp_N);
    return gather(work, count, mismatched ? work->set->mismatched : work->set->logps);
}

static tt_status check_cancel(struct tt_rank *rank, const struct tt_cancel *cancel, int64_t done, int64_t all)
{
    if (cancel == NULL || atomic_load_explicit(&cancel->requests, memory_order_relaxed) == 0) return TT_OK;
    tt_rank_abandon(rank);
    return tt_fail(TT_ERR_CANCELLED, "stopped on request after %lld of %lld batches of the reference",
                   (long long)done, (long long)all);
}

/* The file costs no run: without it a later one computes the reference again. */
static void keep(const struct tt_reference_set *set, const struct tt_run_job *job, double seconds)
{
    char line[600];
    const char *path = tt_str_text(&set->path);
    const struct tt_reference_file file = {path, set->key, set->dataset, set->logps, set->mismatched};
    bool kept = tt_reference_file_write(&file) == TT_OK;
    if (!kept) {
        tt_warn("%s; training continues, and a later run computes the reference again",
                tt_error_last()->message);
        tt_error_clear();
    }
    tt_snprintf(line, sizeof line, "reference of the %s rows: log p computed in %.1f s%s%.400s", set->what,
                seconds, kept ? ", in " : "", kept ? path : "");
    tt_run_report_line(job, line);
}

static tt_status compute_set(struct computing *work, const struct tt_run_job *job)
{
    struct tt_reference_set *set = work->set;
    int64_t steps = tt_sampler_steps_per_epoch(set->sampler);
    double start = tt_clock_seconds();
    for (int64_t step = 0; step < steps; step++) {
        struct tt_step_facts facts;
        tt_sampler_step(set->sampler, step, &facts);
        TT_TRY(check_cancel(work->rank, job->cancel, step, steps));
        for (int64_t micro = 0; micro < facts.micro_count; micro++) {
            TT_TRY(run_micro(work, step, micro, false));
            if (set->mismatched != NULL) TT_TRY(run_micro(work, step, micro, true));
        }
    }
    if (tt_comm_rank(work->rank->world) == 0) keep(set, job, tt_clock_seconds() - start);
    return TT_OK;
}

tt_status tt_run_reference_compute(struct tt_run_reference *reference, const struct tt_run_job *job,
                                   struct tt_rank *rank, bool leads)
{
    tt_status status = TT_OK;
    for (int i = 0; i < reference->count && status == TT_OK; i++) {
        struct computing work = {.set = &reference->sets[i], .rank = rank, .leads = leads};
        bool found = work.set->found;
        status = tt_comm_host_share(rank->world, &found, sizeof found);
        if (status == TT_OK && !found && !work.set->given) status = compute_set(&work, job);
        tt_free(work.entries);
        tt_batch_storage_deinit(&work.storage);
    }
    if (status == TT_ERR_CANCELLED) return status;
    status = tt_comm_agree(rank->world, status);
    if (status != TT_OK) tt_while("computing the reference before the first step");
    return status;
}
