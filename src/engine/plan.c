#include "engine/plan.h"

#include <stdio.h>
#include <string.h>

#include "backend/chips.h"
#include "backend/plan/plan.h"
#include "backend/plugin.h"
#include "base/alloc.h"
#include "engine/rank_pass.h"

/* A rank to run on the plan device. */
struct attempt {
    struct tt_rank_config rank;
    struct tt_plan_ranks ranks;
    int64_t micro_steps;
    struct tt_batch_limits train, eval;
};

static tt_status upload_images(struct tt_rank *rank, const struct tt_batch_limits *limits,
                               struct tt_pass *pass)
{
    const struct tt_detect_batch batch = {.image_count = limits->images,
                                          .height = limits->height,
                                          .width = limits->width,
                                          .pixel_dtype = rank->model->options.compute_dtype,
                                          .box_count = limits->boxes};
    return tt_rank_upload_images(rank, &batch, 1.0, pass);
}

/* Sequence borders of the largest batch: as many sequences of full length as its tokens make. */
static int32_t *make_borders(const struct tt_batch_limits *limits)
{
    int32_t *borders = tt_calloc((size_t)limits->sequences + 1, sizeof *borders);
    if (borders == NULL) return NULL;
    for (int64_t b = 0; b < limits->sequences; b++) {
        int64_t next = borders[b] + limits->length;
        borders[b + 1] = (int32_t)(next < limits->tokens ? next : limits->tokens);
    }
    borders[limits->sequences] = (int32_t)limits->tokens;
    return borders;
}

static tt_status run_pass(struct tt_rank *rank, const struct tt_batch_limits *limits, bool train,
                          size_t *kept_bytes)
{
    if (limits->tokens == 0 && limits->images == 0) return TT_OK;
    tt_status status = TT_OK;
    struct tt_pass pass;
    int32_t *borders = make_borders(limits);
    if (borders == NULL) return TT_ERR_MEMORY;
    struct tt_batch batch = {
        .token_count = limits->tokens,
        .sequence_count = limits->sequences,
        .max_length = limits->length,
        .cu_seqlens = borders,
        .row_count = limits->rows,
    };
    TT_GO(limits->images > 0 ? upload_images(rank, limits, &pass) : tt_rank_upload(rank, &batch, &pass));
    TT_GO(tt_rank_reference(rank, &pass));
    pass.in.training = train;
    pass.in.gradient = train;
    pass.in.want_logits = !train && limits->images > 0;
    TT_GO(tt_executor_forward(rank->executor, &pass));
    if (train) *kept_bytes = tt_workspace_mark(rank->workspace);
    if (train) TT_GO(tt_executor_backward(rank->executor, &pass, true));
out:
    tt_executor_end(rank->executor);
    tt_free(borders);
    return status;
}

/* The rest of a step: gradients are zeroed, summed and applied. */
static tt_status run_update(struct tt_rank *rank)
{
    const struct tt_optim_config optim = {.adam_beta1 = 0.9, .adam_beta2 = 0.999, .adam_epsilon = 1e-8};
    TT_TRY(tt_shard_context_join(rank->shard));
    for (int u = 0; u < rank->model->unit_count; u++) {
        struct tt_slices slices = tt_unit_slices(rank->units[u]);
        if (slices.count == 0) continue;
        TT_TRY(tt_unit_zero_grad(rank->units[u]));
        struct tt_optimizer_update update = {
            .moments = &rank->moments[u],
            .master = slices.master,
            .grad = slices.grad,
            .run = {.count = slices.count},
            .grad_scale = 1.0f,
            .step = 1,
        };
        TT_TRY(rank->optimizer->update(rank->stream, &optim, &update));
        TT_TRY(tt_unit_masters_changed(rank->units[u]));
    }
    return TT_OK;
}

/* Runs one micro step and multiplies its time; the optimizer runs once. State in host memory crosses the link both
 * ways. */
static tt_status run_step(const struct attempt *attempt, struct tt_rank *rank, struct tt_plan *plan)
{
    double start = tt_plan_seconds(rank->device);
    TT_TRY(run_pass(rank, &attempt->train, true, &plan->kept_bytes));
    TT_TRY(tt_stream_synchronize(rank->stream));
    double passed = tt_plan_seconds(rank->device);
    TT_TRY(run_update(rank));
    double updated = tt_plan_seconds(rank->device);
    plan->step_seconds = (passed - start) * (double)attempt->micro_steps + (updated - passed);
    const struct tt_chip *chip = tt_device_chip(rank->device);
    if (attempt->rank.offload_params && !tt_device_is_host(rank->device))
        for (int u = 0; u < rank->model->unit_count; u++)
            plan->step_seconds += 8.0 * rank->optimizer->moment_count * (double)rank->moments[u].count /
                                  chip->host_bytes_per_second;
    return TT_OK;
}

static tt_status run_rank(const struct attempt *attempt, struct tt_comm *comm, struct tt_comm *replicas,
                          struct tt_plan *plan)
{
    tt_status status = TT_OK;
    struct tt_rank rank = {0};
    struct tt_rank_config config = attempt->rank;
    config.world = config.shard_comm = comm;
    config.replicate_comm = replicas;
    config.levels = plan->levels;
    plan->kept_bytes = 0;
    plan->step_seconds = 0.0;
    TT_GO(tt_rank_init(&config, &rank));
    plan->trainable_count = rank.model->trainable_param_count;
    plan->param_count = rank.model->base_param_count + rank.model->adapter_param_count;
    if (config.train) TT_GO(run_step(attempt, &rank, plan));
    TT_GO(run_pass(&rank, &attempt->eval, false, NULL));
    plan->workspace_bytes = tt_workspace_peak(rank.workspace);
    plan->attention_bytes = tt_workspace_largest(rank.workspace, "attention scratch");
    plan->logits_bytes = tt_workspace_largest(rank.workspace, "chunk of logits");
    tt_device_memory(rank.device, &plan->memory);
    /* On the plan device the workspace is unlimited and empty: its high-water mark is the planned size. */
    plan->memory.peak[TT_PURPOSE_ACTIVATIONS] = plan->workspace_bytes + config.reserved_bytes;
    if (!plan->is_host && config.across_processes)
        plan->memory.peak[TT_PURPOSE_COMM] += tt_device_chip(rank.device)->collectives_bytes;
    plan->memory.total_peak = 0;
    for (int p = 0; p < TT_PURPOSE_COUNT; p++) plan->memory.total_peak += plan->memory.peak[p];
out:
    tt_rank_deinit(&rank);
    return status;
}

/* Fills the members of `plan` that follow from its levels. */
static tt_status run_attempt(const struct attempt *attempt, struct tt_plan *plan)
{
    tt_status status = TT_OK;
    bool hybrid = attempt->rank.strategy == TT_HYBRID_SHARD;
    int machines = attempt->ranks.machines, count = attempt->ranks.count,
        local = (count + machines - 1) / machines;
    struct tt_comm *comm = NULL, *replicas = NULL;
    plan->split_vocabulary = attempt->rank.split_vocabulary;
    TT_GO(tt_comm_create_planned(hybrid ? local : count, local, &comm));
    if (hybrid) TT_GO(tt_comm_create_planned(machines, 1, &replicas));
    status = run_rank(attempt, comm, replicas, plan);
out:
    if (status != TT_OK) tt_while("planning the memory of a rank");
    if (status == TT_ERR_MEMORY) tt_hint("make the batch smaller, or its rows shorter");
    tt_comm_destroy(replicas);
    tt_comm_destroy(comm);
    plan->fits = plan->limit_bytes == 0 || plan->memory.total_peak <= plan->limit_bytes;
    return status;
}

/* Runs the candidate at `position` (plan.h): its first `raised` layers are one level above the others. */
static tt_status run_at(const struct attempt *attempt, int position, struct tt_plan *plan)
{
    int layers = plan->block_count - 2, stage = layers > 0 ? position / layers : 0,
        raised = position - stage * layers;
    for (int i = 0; i < plan->block_count; i++)
        plan->levels[i] = (enum tt_level)(stage + (i >= 1 && i <= raised ? 1 : 0));
    return run_attempt(attempt, plan);
}

/* The range of positions that the setting allows. */
static void find_range(const struct tt_rank_config *rank, const struct tt_plan *plan, int *first, int *last)
{
    int layers = plan->block_count - 2;
    bool roomy = !plan->is_host || plan->limit_bytes != 0;
    switch (rank->recompute) {
    case TT_RECOMPUTE_AUTO: /* on the CPU, offloading frees no memory */
        *first = roomy ? 0 : TT_RECOMPUTE_BLOCK * layers;
        *last = (plan->is_host ? TT_RECOMPUTE_BLOCK : TT_RECOMPUTE_OFFLOAD) * layers;
        return;
    case TT_RECOMPUTE_NO_BLOCK:
        *first = roomy ? 0 : TT_KEEP_CHEAP * layers;
        *last = TT_KEEP_CHEAP * layers;
        return;
    default:
        *first = *last = (int)(rank->recompute - TT_RECOMPUTE_NONE) * layers;
    }
}

/* Copies that compute hides cost no time. So if some inputs have to be offloaded, further ones are too, as long as the
 * estimated step is at most 1/500 longer than without offloading: this leaves device memory to other programs.
 * `position` fits and offloads; `last` is the last position. */
static tt_status offload_for_free(const struct attempt *attempt, int position, int last, struct tt_plan *plan)
{
    TT_TRY(run_at(attempt, TT_RECOMPUTE_BLOCK * (plan->block_count - 2), plan));
    double seconds_max = plan->step_seconds * (1.0 + 1.0 / 500);
    int beyond = last + 1; /* does not fit, takes too long, or does not exist */
    while (position + 1 < beyond) {
        int middle = position + (beyond - position) / 2;
        TT_TRY(run_at(attempt, middle, plan));
        *(plan->fits && plan->step_seconds <= seconds_max ? &position : &beyond) = middle;
    }
    return run_at(attempt, position, plan);
}

/* Runs the first position that fits; the last one when none does. */
static tt_status choose_levels(const struct attempt *attempt, struct tt_plan *plan)
{
    int first, last;
    find_range(&attempt->rank, plan, &first, &last);
    if (!attempt->rank.train) first = last = 0;
    TT_TRY(run_at(attempt, first, plan));
    if (plan->fits || first == last) return TT_OK;
    TT_TRY(run_at(attempt, last, plan));
    if (!plan->fits) return TT_OK;
    int end = last;
    while (first + 1 < last) { /* `first` does not fit, `last` does */
        int middle = first + (last - first) / 2;
        TT_TRY(run_at(attempt, middle, plan));
        *(plan->fits ? &last : &first) = middle;
    }
    TT_TRY(run_at(attempt, last, plan));
    bool offloads = last > TT_RECOMPUTE_BLOCK * (plan->block_count - 2);
    return offloads ? offload_for_free(attempt, last, end, plan) : TT_OK;
}

/* Splits the vocabulary only where nothing else fits, and only if it fits then. */
static tt_status choose(const struct attempt *attempt, struct tt_plan *plan)
{
    TT_TRY(choose_levels(attempt, plan));
    if (plan->fits || attempt->rank.split_vocabulary) return TT_OK;
    struct attempt split = *attempt;
    struct tt_plan *other = tt_calloc(1, sizeof *other);
    if (other == NULL) return TT_ERR_MEMORY;
    *other = *plan;
    split.rank.split_vocabulary = true;
    tt_status status = choose_levels(&split, other);
    if (status == TT_OK && other->fits) *plan = *other;
    tt_free(other);
    return status;
}

/* *found: the attempt fits. Then `what` and its memory are added to `advice`. */
static tt_status try_advice(const struct attempt *attempt, const char *what, const struct tt_plan *like,
                            char *advice, bool *found)
{
    char need[32];
    struct tt_plan *plan = tt_calloc(1, sizeof *plan);
    if (plan == NULL) return TT_ERR_MEMORY;
    plan->block_count = like->block_count;
    plan->limit_bytes = like->limit_bytes;
    plan->is_host = like->is_host;
    tt_status status = choose(attempt, plan);
    *found = status == TT_OK && plan->fits;
    if (*found) {
        size_t used = strlen(advice);
        snprintf(advice + used, TT_PLAN_ADVICE_BYTES - used, "%s%s (%s)", used > 0 ? "; or " : "", what,
                 tt_format_bytes((double)plan->memory.total_peak, need, sizeof need));
    }
    tt_free(plan);
    return status;
}

static struct tt_batch_limits part_of(const struct tt_batch_limits *limits, int64_t parts)
{
    struct tt_batch_limits part = *limits;
    part.tokens = (limits->tokens + parts - 1) / parts;
    part.rows = (limits->rows + parts - 1) / parts;
    part.sequences = (limits->sequences + parts - 1) / parts;
    part.images = (limits->images + parts - 1) / parts;
    part.boxes = (limits->boxes + parts - 1) / parts;
    return part;
}

static bool has_parts(const struct tt_batch_limits *limits, int parts)
{
    return limits->images > 0 ? limits->images >= parts : limits->tokens >= limits->length * parts;
}

/* Tries smaller batches. `with`: text about the other settings that `tight` changes. */
static tt_status advise_batch(const struct attempt *tight, const char *with, const struct tt_plan *plan,
                              char *advice, bool *found)
{
    static const char *const names[] = {"half", "a quarter", "an eighth"};
    bool trains = tight->train.tokens > 0 || tight->train.images > 0;
    const struct tt_batch_limits *limits = trains ? &tight->train : &tight->eval;
    *found = false;
    for (int i = 0; i < 3 && !*found && has_parts(limits, 2 << i); i++) {
        char what[160];
        struct attempt smaller = *tight;
        smaller.train = part_of(&tight->train, 2 << i);
        smaller.eval = part_of(&tight->eval, 2 << i);
        smaller.rank.limits = tt_batch_limits_join(&smaller.train, &smaller.eval);
        snprintf(what, sizeof what, "%s of the --per_device_%s_batch_size%s", names[i],
                 trains ? "train" : "eval", with);
        TT_TRY(try_advice(&smaller, what, plan, advice, found));
    }
    return TT_OK;
}

/* Returns the flag that lets backward keep less memory, with its value in *leaner; NULL when nothing keeps less.
 * On the CPU, offloaded inputs take the same memory. */
static const char *find_leaner_flag(const struct tt_rank_config *rank, bool is_host,
                                    enum tt_recompute *leaner)
{
    *leaner = TT_RECOMPUTE_AUTO;
    switch (rank->train ? rank->recompute : TT_RECOMPUTE_AUTO) {
    case TT_RECOMPUTE_NONE:
    case TT_RECOMPUTE_CHEAP:
        return "--recompute auto";
    case TT_RECOMPUTE_NO_BLOCK: /* auto would follow gradient_checkpointing */
        return "--gradient_checkpointing null";
    case TT_RECOMPUTE_EVERY_BLOCK:
        if (is_host) break;
        *leaner = TT_RECOMPUTE_EVERY_OFFLOAD;
        return "--recompute offload";
    default:
        break;
    }
    *leaner = rank->recompute;
    return NULL;
}

/* Tries more ranks, then a smaller batch, each together with the changes that were not enough alone. */
static tt_status advise_together(const struct attempt *tight, struct tt_plan *plan)
{
    char what[160], *advice = plan->advice;
    struct attempt attempt = *tight;
    const struct tt_rank_config *rank = &tight->rank;
    const char *flag = find_leaner_flag(rank, plan->is_host, &attempt.rank.recompute);
    bool found = false, offload = !plan->is_host && !rank->offload_params;
    attempt.rank.strategy = TT_FULL_SHARD;
    int machines = tight->ranks.machines, most = tight->ranks.count < 8 ? 64 : 8 * tight->ranks.count;
    if (most > TT_PLAN_RANKS_MAX) most = TT_PLAN_RANKS_MAX;
    bool other = rank->strategy != TT_FULL_SHARD && tight->ranks.count > 1;
    for (attempt.ranks.count = (other ? 1 : 2) * tight->ranks.count; attempt.ranks.count <= most && !found;
         attempt.ranks.count *= 2) {
        snprintf(what, sizeof what, "%d --ranks%s with --sharding_strategy FULL_SHARD%s%s",
                 attempt.ranks.count / machines, machines > 1 ? " on each machine" : "",
                 flag != NULL ? " and " : "", flag != NULL ? flag : "");
        TT_TRY(try_advice(&attempt, what, plan, advice, &found));
    }
    if (found || (flag == NULL && !offload)) return TT_OK;
    attempt.ranks = tight->ranks;
    attempt.rank.strategy = rank->strategy;
    attempt.rank.offload_params |= offload;
    snprintf(what, sizeof what, " with %s%s%s", offload ? "--offload_params true" : "",
             offload && flag != NULL ? " and " : "", flag != NULL ? flag : "");
    return advise_batch(&attempt, what, plan, advice, &found);
}

/* Whether training holds each weight in FP8 twice. */
static bool has_two_copies(const struct tt_rank_config *rank)
{
    const struct tt_base_quant *quant = &rank->model_options.quant;
    return quant->type == TT_QUANT_FP8 && quant->products == TT_FP8_ALL && quant->trains && !quant->blocks;
}

/* Whether training over FP8 keeps gate and up as they are. */
static bool may_code_gate_up(const struct tt_rank_config *rank)
{
    const struct tt_base_quant *quant = &rank->model_options.quant;
    return quant->type == TT_QUANT_FP8 && quant->gate_up == TT_GATE_UP_COMPUTE && quant->trains;
}

/* Tries changes that could make the run fit: each alone, then several together. Adds those that do to the advice. */
static tt_status advise(const struct attempt *tight, struct tt_plan *plan)
{
    bool found = false;
    struct attempt attempt = *tight;
    const char *flag = find_leaner_flag(&tight->rank, plan->is_host, &attempt.rank.recompute);
    if (flag != NULL) TT_TRY(try_advice(&attempt, flag, plan, plan->advice, &found));
    attempt = *tight;
    attempt.rank.model_options.quant.products = TT_FP8_SINGLE;
    if (has_two_copies(&tight->rank))
        TT_TRY(try_advice(&attempt, "--fp8_products single", plan, plan->advice, &found));
    attempt = *tight;
    attempt.rank.model_options.quant.gate_up = TT_GATE_UP_E4M3;
    if (may_code_gate_up(&tight->rank))
        TT_TRY(try_advice(&attempt, "--fp8_gate_up e4m3", plan, plan->advice, &found));
    attempt = *tight;
    attempt.rank.offload_params = true;
    if (!plan->is_host && !tight->rank.offload_params)
        TT_TRY(try_advice(&attempt, "--offload_params true", plan, plan->advice, &found));
    TT_TRY(advise_batch(tight, "", plan, plan->advice, &found));
    return plan->advice[0] != '\0' ? TT_OK : advise_together(tight, plan);
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
    /* Without device_memory 2 % stay free: plans are exact to that. */
    plan->limit_bytes = memory_bytes - memory_bytes / 50;
    if (device->memory_limit != 0 && (memory_bytes == 0 || device->memory_limit < memory_bytes))
        plan->limit_bytes = device->memory_limit;
    *stands_for = chip->name;
    return TT_OK;
}

static tt_status make(const struct tt_rank_config *config, struct tt_plan_ranks ranks, int64_t micro_steps,
                      const struct tt_batch_limits *train_limits, const struct tt_batch_limits *eval_limits,
                      bool advises, struct tt_plan *plan)
{
    const char *stands_for = NULL;
    struct attempt attempt = {.rank = *config,
                              .ranks = ranks,
                              .micro_steps = micro_steps > 0 ? micro_steps : 1,
                              .train = *train_limits,
                              .eval = *eval_limits};
    *plan = (struct tt_plan){.ranks = ranks,
                             .block_count = (int)config->model_facts->num_hidden_layers + 2,
                             .counts_images = config->model_facts->reads_images,
                             .may_quantize = config->model_options.lora.enabled &&
                                             config->model_options.quant.type == TT_QUANT_NONE};
    TT_TRY(query_device(&config->device, plan, &stands_for));
    attempt.rank.device =
        (struct tt_device_config){.kind = "plan",
                                  .threads = 1,
                                  .stands_for = stands_for,
                                  .network_bytes_per_second = config->device.network_bytes_per_second,
                                  .tuning = config->device.tuning};
    attempt.rank.cancel = NULL;
    attempt.rank.limits = tt_batch_limits_join(train_limits, eval_limits);
    plan->step_tokens = (attempt.train.tokens + attempt.train.images) * attempt.micro_steps;
    /* The blocks of a detector keep all or nothing. */
    if (config->model_facts->reads_images && attempt.rank.recompute == TT_RECOMPUTE_AUTO &&
        plan->limit_bytes == 0)
        attempt.rank.recompute = TT_RECOMPUTE_CHEAP;
    TT_TRY(choose(&attempt, plan));
    return plan->fits || !advises ? TT_OK : advise(&attempt, plan);
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
