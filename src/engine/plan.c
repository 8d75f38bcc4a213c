#include "engine/plan.h"

#include <stdio.h>
#include <string.h>

#include "backend/chips.h"
#include "backend/plugin.h"
#include "base/alloc.h"
#include "base/cgroup.h"
#include "engine/plan_impl.h"
#include "engine/rank_impl.h"

bool tt_plan_chooses(const struct tt_plan *plan, int index)
{
    unsigned choices = plan->choices[index];
    return (choices & (choices - 1)) != 0;
}

/* Whether memory that the fastest levels take is this run's: on processors without a limit it is shared. */
static bool is_roomy(const struct tt_plan *plan)
{
    return !plan->is_host || (plan->limit_bytes != 0 && plan->machine.bytes == 0);
}

/* The levels from which and to which the setting lets blocks go. */
static void find_range(const struct tt_rank_config *rank, const struct tt_plan *plan,
                       struct tt_plan_path *path)
{
    switch (rank->train ? rank->recompute : TT_RECOMPUTE_NONE) {
    case TT_RECOMPUTE_AUTO: /* on the CPU, offloading frees no memory */
        path->from = TT_KEEP_ALL;
        path->most = plan->is_host ? TT_RECOMPUTE_BLOCK : TT_RECOMPUTE_OFFLOAD;
        return;
    case TT_RECOMPUTE_NO_BLOCK:
        path->from = is_roomy(plan) ? TT_KEEP_ALL : TT_KEEP_CHEAP;
        path->most = TT_KEEP_CHEAP;
        return;
    default:
        path->from = path->most =
            rank->train ? (enum tt_level)(rank->recompute - TT_RECOMPUTE_NONE) : TT_KEEP_ALL;
    }
}

static tt_status run_at(const struct tt_plan_attempt *attempt, const struct tt_plan_path *path, int position,
                        struct tt_plan *plan)
{
    tt_plan_path_go(path, position, plan);
    return tt_plan_run(attempt, plan);
}

/* Copies that compute hides cost no time. So if some inputs have to be offloaded, further ones are too, as long as the
 * estimated step is at most 1/500 longer than without offloading: this leaves device memory to other programs.
 * `position` fits and offloads. */
static tt_status offload_for_free(const struct tt_plan_attempt *attempt, const struct tt_plan_path *path,
                                  int position, struct tt_plan *plan)
{
    TT_TRY(run_at(attempt, path, path->recomputing, plan));
    double seconds_max = plan->step_seconds * (1.0 + 1.0 / 500);
    int beyond = path->count + 1; /* does not fit, takes too long, or does not exist */
    while (position + 1 < beyond) {
        int middle = position + (beyond - position) / 2;
        TT_TRY(run_at(attempt, path, middle, plan));
        *(plan->fits && plan->step_seconds <= seconds_max ? &position : &beyond) = middle;
    }
    return run_at(attempt, path, position, plan);
}

/* Runs the first position that fits; the leanest one when none does. The one before all moves does not. Where there are
 * few inputs, or the first block needs the most, the places of offloaded inputs take more memory than they free: then
 * those that recompute everything are the leanest. */
static tt_status follow(const struct tt_plan_attempt *attempt, const struct tt_plan_path *path,
                        struct tt_plan *plan)
{
    int first = 0, last = path->recomputing;
    TT_TRY(run_at(attempt, path, last, plan));
    if (!plan->fits && path->count > path->recomputing) {
        size_t need = tt_plan_need(plan);
        first = last;
        last = path->count;
        TT_TRY(run_at(attempt, path, last, plan));
        if (!plan->fits && need <= tt_plan_need(plan)) return run_at(attempt, path, first, plan);
    }
    if (!plan->fits) return TT_OK;
    while (first + 1 < last) { /* `first` does not fit, `last` does */
        int middle = first + (last - first) / 2;
        TT_TRY(run_at(attempt, path, middle, plan));
        *(plan->fits ? &last : &first) = middle;
    }
    TT_TRY(run_at(attempt, path, last, plan));
    return last > path->recomputing ? offload_for_free(attempt, path, last, plan) : TT_OK;
}

/* Bytes that the blocks with a choice keep, in a run with all blocks at `level`. */
static tt_status count_kept(const struct tt_plan_attempt *attempt, enum tt_level level, struct tt_plan *plan,
                            struct tt_plan_counts *counts, double *kept)
{
    TT_TRY(tt_plan_count_level(attempt, level, plan, counts));
    *kept = 0;
    for (int i = 0; i < plan->block_count; i++)
        if (tt_plan_chooses(plan, i)) *kept += (double)counts->at[level][i].kept;
    return TT_OK;
}

/* Where other programs share the memory and nothing limits the run, blocks are recomputed if that leaves at most a
 * quarter of what they keep: of layers of a decoder an eighth is left, of the features of a detector more. */
static tt_status choose_shared(const struct tt_plan_attempt *attempt, struct tt_plan *plan,
                               struct tt_plan_counts *counts)
{
    double kept, left;
    TT_TRY(count_kept(attempt, TT_KEEP_CHEAP, plan, counts, &kept));
    TT_TRY(count_kept(attempt, TT_RECOMPUTE_BLOCK, plan, counts, &left));
    if (4 * left <= kept) return TT_OK;
    tt_plan_set_levels(TT_KEEP_CHEAP, plan);
    return tt_plan_run(attempt, plan);
}

/* Runs the fastest levels that fit, or the leanest ones. */
static tt_status choose_levels(const struct tt_plan_attempt *attempt, struct tt_plan *plan)
{
    tt_status status = TT_OK;
    struct tt_plan_counts counts = {.at = {NULL}};
    struct tt_plan_path path = {.moves = NULL};
    if (attempt->rank.train && attempt->rank.recompute == TT_RECOMPUTE_AUTO && !is_roomy(plan)) {
        status = choose_shared(attempt, plan, &counts);
        goto out;
    }
    find_range(&attempt->rank, plan, &path);
    TT_GO(tt_plan_count_level(attempt, path.from, plan, &counts));
    if (plan->fits || path.from == path.most) goto out;
    TT_GO(tt_plan_path_make(attempt, plan, &counts, &path));
    status = follow(attempt, &path, plan);
out:
    tt_plan_path_deinit(&path);
    tt_plan_counts_deinit(&counts);
    return status;
}

/* Keeps as many blocks whole as fit into three quarters of the memory, with the levels of `plan`, which fits. */
static tt_status choose_unsharded(const struct tt_plan_attempt *attempt, struct tt_plan *plan)
{
    const struct tt_rank_config *rank = &attempt->rank;
    size_t room = plan->limit_bytes / 4 * 3;
    bool sharded = rank->strategy == TT_FULL_SHARD || rank->strategy == TT_HYBRID_SHARD;
    if (rank->unsharded_blocks != TT_UNSHARDED_AUTO || !rank->train || !sharded || plan->ranks.count == 1 ||
        plan->is_host || rank->offload_params || plan->memory.total_peak >= room)
        return TT_OK;
    struct tt_plan_attempt kept = *attempt;
    int fitting = 0, beyond = plan->block_count + 1;
    while (fitting + 1 < beyond) {
        kept.rank.unsharded_blocks = fitting + (beyond - fitting) / 2;
        TT_TRY(tt_plan_run(&kept, plan));
        *(plan->memory.total_peak <= room ? &fitting : &beyond) = kept.rank.unsharded_blocks;
    }
    kept.rank.unsharded_blocks = fitting;
    return tt_plan_run(&kept, plan);
}

/* Takes the plan of `attempt` if that fits. */
static tt_status choose_other(const struct tt_plan_attempt *attempt, struct tt_plan *plan)
{
    struct tt_plan *other = tt_calloc(1, sizeof *other);
    if (other == NULL) return TT_ERR_MEMORY;
    *other = *plan;
    tt_status status = choose_levels(attempt, other);
    if (status == TT_OK && other->fits) *plan = *other;
    tt_free(other);
    return status;
}

/* The state is in host memory as it is on processors. */
static bool can_page(const struct tt_rank_config *rank, const struct tt_plan *plan)
{
    bool paged = rank->optimizer != NULL && rank->optimizer->place == TT_MOMENT_PAGED;
    return rank->train && paged && !plan->is_host && !rank->offload_params && !rank->page_moments;
}

static tt_status choose(const struct tt_plan_attempt *attempt, struct tt_plan *plan)
{
    struct tt_plan_attempt other = *attempt;
    TT_TRY(choose_levels(attempt, plan));
    if (!plan->fits && can_page(&attempt->rank, plan)) {
        other.rank.page_moments = true;
        TT_TRY(choose_other(&other, plan));
    }
    if (plan->fits) {
        other.rank.page_moments = plan->page_moments;
        return choose_unsharded(&other, plan);
    }
    if (attempt->rank.split_vocabulary || plan->machine.bytes > 0) return TT_OK;
    other.rank.split_vocabulary = true;
    return choose_other(&other, plan);
}

/* A table beside a matrix that other blocks read is gathered for them too, unless it comes in parts: those move fewer
 * bytes, and both are planned. */
static bool tries_parts(const struct tt_plan_attempt *attempt, const struct tt_plan *plan)
{
    const struct tt_rank_config *rank = &attempt->rank;
    bool gathers = rank->strategy == TT_FULL_SHARD || rank->strategy == TT_HYBRID_SHARD;
    return attempt->table_beside && gathers && rank->train && attempt->ranks.count > 1 && !plan->is_host &&
           !rank->split_vocabulary;
}

tt_status tt_plan_choose(const struct tt_plan_attempt *attempt, struct tt_plan *plan)
{
    if (!tries_parts(attempt, plan)) return choose(attempt, plan);
    struct tt_plan_attempt parted = *attempt;
    struct tt_plan *other = tt_calloc(1, sizeof *other);
    if (other == NULL) return TT_ERR_MEMORY;
    *other = *plan;
    parted.rank.split_vocabulary = true;
    tt_status status = choose(&parted, other);
    if (status == TT_OK) status = choose(attempt, plan);
    bool faster = status == TT_OK && other->fits && other->step_seconds < plan->step_seconds;
    if (faster || (status == TT_OK && !plan->fits)) *plan = *other;
    tt_free(other);
    return status;
}

/* A rank on processors: its share of the machine, and what the program of a run has taken of it. */
static void limit_host(const struct tt_device_config *device, struct tt_plan *plan)
{
    const struct tt_machine_memory *machine = &device->machine;
    bool runs = strcmp(device->kind, "cpu") == 0;
    plan->threads = device->threads > 0 ? device->threads : 1;
    if (machine->bytes == 0 || machine->ranks < 1) return;
    if (runs) plan->program_bytes = (size_t)tt_process_memory_read().own;
    if (plan->limit_bytes != 0) return;
    plan->machine = *machine;
    plan->limit_bytes = (size_t)(machine->bytes / (uint64_t)machine->ranks);
}

/* Finds the chip of the device and its memory. An unknown GPU is planned with cautious rates. */
static tt_status query_device(const struct tt_device_config *device, struct tt_plan *plan,
                              const char **stands_for)
{
    const char *name =
        device->kind != NULL && strcmp(device->kind, "plan") == 0 ? device->stands_for : device->kind;
    size_t memory_bytes = 0;
    if (name != NULL && strcmp(name, "cuda") == 0) {
        char reason[256];
        struct tt_gpu_facts facts;
        const struct tt_plugin *plugin = tt_plugin_load(reason, sizeof reason);
        if (plugin == NULL) return tt_fail(TT_ERR_DEVICE, "no GPU can be planned for: %s", reason);
        TT_TRY(plugin->facts(device->index, &facts));
        const struct tt_chip *chip = tt_chip_of_device_name(facts.name);
        name = chip != NULL ? chip->name : "hopper-or-newer";
        memory_bytes = facts.memory_bytes;
        snprintf(plan->device, sizeof plan->device, "%s", chip != NULL ? chip->name : facts.name);
    }
    const struct tt_chip *chip = tt_chip_find(name != NULL ? name : "cpu");
    if (chip == NULL) {
        tt_status status = tt_fail(TT_ERR_USAGE, "no chip is called '%s'", name);
        tt_hint("auto (the device of this machine), cpu, %s", tt_chip_names());
        return status;
    }
    if (memory_bytes == 0) memory_bytes = chip->memory_bytes;
    if (plan->device[0] == '\0') snprintf(plan->device, sizeof plan->device, "%s", chip->name);
    plan->is_host = strcmp(chip->kind, "cpu") == 0;
    /* 2 % stay free where device_memory is not set: plans are exact to that. */
    plan->limit_bytes = memory_bytes - memory_bytes / 50;
    if (device->memory_limit != 0 && (memory_bytes == 0 || device->memory_limit < memory_bytes))
        plan->limit_bytes = device->memory_limit;
    if (plan->is_host) limit_host(device, plan);
    *stands_for = chip->name;
    return TT_OK;
}

/* The blocks of the model, with the levels at which each can run. */
static tt_status read_choices(struct tt_plan_attempt *attempt, struct tt_plan *plan)
{
    struct tt_model *model = NULL;
    TT_TRY(tt_model_create(attempt->rank.model_facts, &attempt->rank.model_options, &model));
    attempt->table_beside = tt_rank_has_table_beside(model);
    plan->block_count = model->block_count;
    for (int i = 0; i < model->block_count; i++) plan->choices[i] = tt_block_levels(&model->blocks[i]);
    tt_status status = tt_rank_count_experts(model, &attempt->experts);
    tt_model_destroy(model);
    return status;
}

static tt_status make(const struct tt_rank_config *config, struct tt_plan_ranks ranks, int64_t micro_steps,
                      const struct tt_batch_limits *train_limits, const struct tt_batch_limits *eval_limits,
                      bool advises, struct tt_plan *plan)
{
    const char *stands_for = NULL;
    struct tt_plan_attempt attempt = {.rank = *config,
                                      .ranks = ranks,
                                      .micro_steps = micro_steps > 0 ? micro_steps : 1,
                                      .train = *train_limits,
                                      .eval = *eval_limits};
    *plan =
        (struct tt_plan){.ranks = ranks,
                         .unit = config->objective != NULL ? config->objective->ops->unit : TT_COUNT_TOKENS,
                         .may_quantize = config->model_options.lora.enabled &&
                                         config->model_options.quant.type == TT_QUANT_NONE};
    TT_TRY(read_choices(&attempt, plan));
    TT_TRY(query_device(&config->device, plan, &stands_for));
    attempt.rank.device =
        (struct tt_device_config){.kind = "plan",
                                  .threads = 1,
                                  .stands_for = stands_for,
                                  .network_bytes_per_second = config->device.network_bytes_per_second,
                                  .tuning = config->device.tuning};
    attempt.rank.cancel = NULL;
    const struct tt_batch_limits passes = tt_batch_limits_join(train_limits, eval_limits);
    /* ranks that share experts exchange as many places as the largest pass of all has tokens */
    attempt.rank.limits = config->train ? tt_batch_limits_join(&passes, &config->limits) : passes;
    const struct tt_step_facts largest = {.tokens = attempt.train.tokens, .images = attempt.train.images};
    plan->step_count = tt_step_count(&largest, plan->unit) * attempt.micro_steps;
    TT_TRY(tt_plan_check_experts(&attempt));
    TT_TRY(tt_plan_choose_experts(&attempt, plan));
    attempt.rank.expert_parallel = plan->expert_parallel;
    return plan->fits || !advises ? TT_OK : tt_plan_advise(&attempt, plan);
}

tt_status tt_plan_make(const struct tt_rank_config *config, struct tt_plan_ranks ranks, int64_t micro_steps,
                       const struct tt_batch_limits *train_limits, const struct tt_batch_limits *eval_limits,
                       struct tt_plan *plan)
{
    return make(config, ranks, micro_steps, train_limits, eval_limits, true, plan);
}

tt_status tt_plan_try(const struct tt_rank_config *config, struct tt_plan_ranks ranks, int64_t micro_steps,
                      const struct tt_batch_limits *train_limits, const struct tt_batch_limits *eval_limits,
                      struct tt_plan *plan)
{
    return make(config, ranks, micro_steps, train_limits, eval_limits, false, plan);
}

tt_status tt_plan_find_largest(int64_t most, tt_plan_fits *fits, void *context, int64_t *found)
{
    int64_t fit = 0, beyond = most + 1;
    bool fitting;
    for (int64_t next = most; fit + 1 < beyond; next = fit + (beyond - fit) / 2) {
        TT_TRY(fits(context, next, &fitting));
        *(fitting ? &fit : &beyond) = next;
    }
    *found = fit;
    return TT_OK;
}
