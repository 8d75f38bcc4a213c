#include "planning/offline.h"

#include <string.h>

#include "base/alloc.h"
#include "base/cgroup.h"
#include "base/thread.h"
#include "engine/rank_config.h"
#include "infer/generation_rank.h"
#include "job/inputs.h"
#include "job/shared_prompt.h"
#include "job/task.h"
#include "launch/launch.h"
#include "launch/world.h"

/* `word` is a kind of device, which this machine must have, or the name of a chip. */
static tt_status find_device(const char *word, size_t memory_limit, struct tt_device_config *device,
                             int *count)
{
    const char *kind = NULL;
    *count = 1;
    *device = (struct tt_device_config){.kind = "plan", .stands_for = word, .memory_limit = memory_limit};
    bool automatic = strcmp(word, "auto") == 0;
    if (!automatic && strcmp(word, "cuda") != 0) return TT_OK;
    TT_TRY(tt_world_choose_device(automatic ? TT_DEVICE_AUTO : TT_DEVICE_CUDA, &kind, count));
    if (strcmp(kind, "cpu") == 0) {
        device->stands_for = kind;
        return TT_OK;
    }
    device->kind = kind;
    device->stands_for = NULL;
    return TT_OK;
}

/* Number of ranks and machines by the settings; none of the machines needs to exist. */
static tt_status count_ranks(const struct tt_job_spec *config, int devices, struct tt_plan_ranks *ranks)
{
    int each;
    TT_TRY(tt_launch_count_ranks(&config->launch, &each));
    if (each == 0) each = devices;
    if (config->launch.num_machines > TT_PLAN_RANKS_MAX / each) {
        tt_status status = tt_fail(TT_ERR_USAGE, "%d ranks on each of %lld machines", each,
                                   (long long)config->launch.num_machines);
        tt_hint("a plan is made for at most %d ranks in all", TT_PLAN_RANKS_MAX);
        return status;
    }
    *ranks =
        (struct tt_plan_ranks){each * (int)config->launch.num_machines, (int)config->launch.num_machines};
    return TT_OK;
}

tt_status tt_plan_offline_model(const struct tt_plan_spec *spec, struct tt_model **out)
{
    struct tt_arena arena = {0};
    struct tt_model_facts model;
    struct tt_model_options options;
    tt_status status = tt_tasks[spec->job.task]->network(spec, &arena, &model, &options);
    if (status == TT_OK) status = tt_model_create(&model, &options, out);
    tt_arena_deinit(&arena);
    return status;
}

/* Each machine is taken to be as this one, where nothing else is given. A GPU's plan reads none of it. */
static void set_machine(struct tt_rank_layout *layout)
{
    struct tt_machine_memory *machine = &layout->device.machine;
    int each = tt_cpu_count() / layout->ranks_per_machine;
    machine->ranks = layout->ranks_per_machine;
    machine->bytes = tt_memory_bytes(&machine->grouped);
    if (layout->device.threads == 0) layout->device.threads = each > 0 ? each : 1;
}

/* Where the ranks are; none of the machines needs to exist. */
static tt_status lay_ranks(const struct tt_plan_spec *spec, struct tt_rank_layout *layout)
{
    const struct tt_job_spec *config = &spec->job;
    int devices;
    struct tt_plan_ranks ranks;
    *layout = (struct tt_rank_layout){0};
    TT_TRY(find_device(spec->device, config->device.device_memory, &layout->device, &devices));
    layout->device.network_bytes_per_second = (double)spec->network_bandwidth;
    layout->device.tuning = config->device.tuning;
    TT_TRY(count_ranks(config, devices, &ranks));
    layout->world_size = ranks.count;
    layout->machines = ranks.machines;
    layout->ranks_per_machine = ranks.count / ranks.machines;
    layout->across_processes = ranks.machines > 1;
    layout->device.threads = (int)config->device.threads;
    if (spec->here) set_machine(layout);
    return TT_OK;
}

/* Takes the prompts' copies out of the batch: those of `prompt_length` tokens, which every row of the plan has. */
static void share_prompts(const struct tt_plan_spec *spec, const struct tt_shared_prompt *prompt,
                          struct tt_batch_limits *limits)
{
    int64_t groups = limits->sequences / (int64_t)prompt->answers, each = spec->prompt_length;
    if (each >= limits->length) each = limits->length - 1;
    if (!prompt->shares || each <= 0) return;
    int64_t copies = (limits->sequences - groups) * each;
    limits->copies = (int64_t)prompt->answers;
    limits->keys = limits->tokens;
    limits->all_rows = limits->rows;
    limits->tokens -= copies;
    limits->rows -= copies;
}

/* Batches of a reference before the first step are passes without gradient, as those of evaluations. */
static void add_reference(const struct tt_job_spec *job, const struct tt_batch_limits *train,
                          struct tt_batch_limits *eval)
{
    int64_t batch = job->objectives.precompute_ref_batch_size, own = job->run.per_device_train_batch_size;
    struct tt_batch_limits limits = *train;
    if (!job->objective.precomputed || batch <= own) return;
    int64_t *const counts[] = {&limits.tokens, &limits.sequences, &limits.rows, &limits.keys,
                               &limits.all_rows};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) *counts[i] = *counts[i] * batch / own;
    *eval = tt_batch_limits_join(eval, &limits);
}

static tt_status plan_training(const struct tt_plan_spec *spec, const struct tt_rank_layout *layout,
                               const struct tt_model_facts *model, const struct tt_model_options *options,
                               bool advises, struct tt_plan *plan)
{
    const struct tt_job_spec *config = &spec->job;
    struct tt_batch_limits limits, eval = {0};
    struct tt_rank_config rank;
    struct tt_shared_prompt prompt;
    TT_TRY(tt_tasks[config->task]->limits(spec, model, &limits, &eval));
    TT_TRY(tt_shared_prompt_settle(config, model, options, limits.length, true, &prompt));
    share_prompts(spec, &prompt, &limits);
    add_reference(config, &limits, &eval);
    TT_TRY(tt_rank_config_make(&config->shard, layout, model, options, TT_RANK_TRAINS, NULL, &rank));
    rank.objective = &config->objective;
    rank.continues = config->model.adapter_name_or_path != NULL;
    rank.optimizer = tt_optimizer_of(&config->optim);
    rank.optim = &config->optim;
    rank.saves = true;
    rank.saves_state = !config->watch.save_only_model;
    TT_TRY((advises ? tt_plan_make : tt_plan_try)(
        &rank, tt_rank_layout_ranks(layout), config->run.gradient_accumulation_steps, &limits, &eval, plan));
    tt_shared_prompt_describe(&prompt, limits.keys, limits.tokens, plan->prompts, sizeof plan->prompts);
    return TT_OK;
}

static tt_status plan_generation(const struct tt_plan_spec *spec, const struct tt_rank_layout *layout,
                                 const struct tt_model_facts *model, const struct tt_model_options *options,
                                 struct tt_plan *plan)
{
    const struct tt_job_spec *config = &spec->job;
    struct tt_generation_choice choice = {
        .strategy = spec->chooses_sharding ? TT_NO_SHARD : config->shard.sharding_strategy,
        .open = spec->chooses_sharding,
        .limits = {.slots = config->run.per_device_eval_batch_size, .length = spec->generation_length},
    };
    struct tt_model_options frozen = *options;
    if (spec->generation_length > model->max_position_embeddings)
        return tt_fail(TT_ERR_USAGE, "generation_length %lld is more than the model's %lld positions",
                       (long long)spec->generation_length, (long long)model->max_position_embeddings);
    frozen.train_base = false;
    const struct tt_lora_config reserved = tt_inputs_reserved_lora(config->model.adapter_rank);
    if (config->model.adapter_places > 0) {
        frozen.more_lora = frozen.lora.enabled ? &reserved : NULL;
        frozen.more_lora_count = frozen.lora.enabled;
        if (!frozen.lora.enabled) frozen.lora = reserved;
        frozen.adapter_places = config->model.adapter_places;
    }
    tt_generation_limits_fill(&layout->device, &choice.limits);
    choice.limits.packs = config->device.tuning.cpu_panels == TT_TUNING_PANELS_AUTO;
    do {
        struct tt_rank_config rank;
        TT_TRY(tt_generation_plan_alone(&config->shard, layout, model, &frozen, &choice, &rank, plan));
    } while (!plan->fits && tt_generation_choose_less(layout, &choice));
    return TT_OK;
}

static tt_status plan_offline(const struct tt_plan_spec *spec, bool advises, struct tt_plan *plan)
{
    tt_status status = TT_OK;
    struct tt_rank_layout layout;
    struct tt_arena arena = {0};
    struct tt_model_facts model;
    struct tt_model_options options;
    TT_GO(tt_tasks[spec->job.task]->network(spec, &arena, &model, &options));
    TT_GO(lay_ranks(spec, &layout));
    TT_GO(spec->generation_length > 0 ? plan_generation(spec, &layout, &model, &options, plan)
                                      : plan_training(spec, &layout, &model, &options, advises, plan));
out:
    tt_arena_deinit(&arena);
    return status;
}

struct batch_search {
    struct tt_plan_spec spec; /* with the batch that is tried */
    struct tt_plan *plan;
};

/* A batch that an index of its tokens cannot count is too large, too. */
static tt_status try_batch(void *context, int64_t batch, bool *fits)
{
    struct batch_search *search = context;
    search->spec.job.run.per_device_train_batch_size = batch;
    tt_status status = plan_offline(&search->spec, false, search->plan);
    *fits = status == TT_OK && search->plan->fits;
    if (status == TT_ERR_USAGE && batch > 1) status = TT_OK;
    return status;
}

tt_status tt_plan_offline(const struct tt_plan_spec *spec, struct tt_plan *plan)
{
    struct batch_search search = {*spec, plan};
    int64_t found = 0;
    if (!spec->job.run.auto_find_batch_size || spec->generation_length > 0)
        return plan_offline(spec, true, plan);
    TT_TRY(tt_plan_find_largest(spec->job.run.per_device_train_batch_size, try_batch, &search, &found));
    search.spec.job.run.per_device_train_batch_size = found > 0 ? found : 1;
    TT_TRY(plan_offline(&search.spec, true, plan));
    plan->found_batch = found;
    return TT_OK;
}

tt_status tt_plan_offline_try(const struct tt_plan_spec *spec, struct tt_plan *plan)
{
    return plan_offline(spec, false, plan);
}
