#include "run/generate_run.h"

#include "comm/host_values.h"
#include "engine/rank_config.h"
#include "infer/adapter_set.h"
#include "infer/generation_rank.h"
#include "launch/fingerprint.h"
#include "run/hub_names.h"
#include "run/open_world.h"

struct generate_run {
    const struct tt_generate_call *call;
    const struct tt_job_spec *job; /* of the call */
    const struct tt_cancel *cancel;
    const struct tt_generate_hooks *hooks;
    int first_rank; /* of this process */
    struct tt_inputs inputs;
    struct tt_fingerprint fingerprint;  /* empty with one process */
    struct tt_generation_choice choice; /* of rank 0's process */
    struct tt_rank_config rank_config;
    struct tt_plan plan;
};

static tt_status open_inputs(struct generate_run *run, const struct tt_world *world)
{
    const struct tt_job_spec *job = run->job;
    struct tt_inputs_config inputs = tt_inputs_config_of(job, TT_INPUTS_GENERATE);
    inputs.share = tt_world_share(world);
    TT_TRY(run->hooks->open != NULL ? run->hooks->open(run->hooks->context, &run->inputs)
                                    : tt_inputs_open(&inputs, &run->inputs));
    if (run->inputs.model_options.adapter_places > 0 && job->shard.offload_params) {
        tt_fail(TT_ERR_UNSUPPORTED, "several adapters at a time are not supported with offload_params");
        tt_hint("name one adapter, or turn offload_params off");
        return TT_ERR_UNSUPPORTED;
    }
    if (world->local_count == world->world_size) return TT_OK; /* no other process to compare with */
    return tt_fingerprint_compute(job->launch.verify_inputs, tt_str_text(&world->settings), &run->inputs,
                                  NULL, run->cancel, &run->fingerprint);
}

static tt_status make_plan(struct generate_run *run, const struct tt_world *world)
{
    const struct tt_rank_layout layout = tt_rank_layout_of(world);
    TT_TRY(tt_generation_plan_alone(&run->job->shard, &layout, &run->inputs.model_facts,
                                    &run->inputs.model_options, &run->choice, &run->rank_config, &run->plan));
    run->rank_config.cancel = run->cancel;
    return TT_OK;
}

/* The most that is wanted: the strategy of the job, or the whole model on each rank; all slots. */
static tt_status init_choice(struct generate_run *run, const struct tt_world *world,
                             const struct tt_rank_layout *layout)
{
    struct tt_generation_choice *choice = &run->choice;
    choice->open = run->call->chooses_sharding;
    choice->strategy = choice->open ? TT_NO_SHARD : run->job->shard.sharding_strategy;
    TT_TRY(run->hooks->prepare(run->hooks->context, &run->inputs, world->world_size, &choice->limits));
    if (choice->limits.slots_least > 0)
        tt_generation_limits_open(&layout->device, choice->limits.slots, choice->limits.slots_least,
                                  &choice->limits);
    tt_generation_limits_fill(&layout->device, &choice->limits);
    choice->slots = choice->limits.slots;
    choice->limits.packs = layout->device.tuning.cpu_panels == TT_TUNING_PANELS_AUTO;
    return TT_OK;
}

/* The first choice whose plan fits, or the least one: then `check` reports what does not fit. */
static tt_status choose(struct generate_run *run, const struct tt_world *world)
{
    const struct tt_rank_layout layout = tt_rank_layout_of(world);
    const uint64_t unused = tt_run_unused_memory(world);
    bool fits;
    TT_TRY(init_choice(run, world, &layout));
    do {
        TT_TRY(make_plan(run, world));
        fits = !tt_generation_limits_are_tight(&run->choice.limits, &run->plan, unused) &&
               tt_plan_check_here(&run->plan, tt_world_ranks_here(world)) == TT_OK;
        tt_error_clear(); /* that a plan does not fit is no error yet */
    } while (!fits && tt_generation_choose_less(&layout, &run->choice));
    return TT_OK;
}

/* The choice is made in rank 0's process. In each other one its first rank stores it for all of them. */
static tt_status share_choice(void *context, const struct tt_world_rank *rank)
{
    struct generate_run *run = context;
    struct tt_generation_choice choice = run->choice;
    TT_TRY(tt_comm_host_share(rank->comm, &choice, sizeof choice));
    if (tt_comm_rank(rank->comm) == run->first_rank) run->choice = choice;
    return TT_OK;
}

/* Checks before anything is loaded: names and shapes of the tensors, and the plan. */
static tt_status check(struct generate_run *run, const struct tt_world *world)
{
    struct tt_model *model = NULL;
    if (world->first_rank > 0) TT_TRY(make_plan(run, world));
    TT_TRY(tt_model_create(&run->inputs.model_facts, &run->inputs.model_options, &model));
    tt_status status = tt_load_check(model, &run->inputs.source);
    if (status == TT_OK && run->inputs.model_options.adapter_places > 0)
        status = tt_adapter_set_check(&run->inputs, model);
    if (status == TT_OK) status = tt_quantization_report(model);
    tt_model_destroy(model);
    if (status == TT_OK) status = tt_plan_check_here(&run->plan, tt_world_ranks_here(world));
    if (status != TT_OK || world->first_rank > 0 || run->hooks->planned == NULL) return status;
    return run->hooks->planned(run->hooks->context, &run->plan, run->choice.strategy);
}

static tt_status lead(void *context, struct tt_generation_team *team)
{
    struct generate_run *run = context;
    return run->hooks->lead(run->hooks->context, &run->inputs, team);
}

static tt_status rank_main(void *context, const struct tt_world_rank *place)
{
    struct generate_run *run = context;
    struct tt_rank rank = {0};
    struct tt_generation_team *team = NULL;
    tt_status status = TT_OK;
    TT_GO(tt_run_open_rank(&run->rank_config, &run->plan, run->inputs.source, run->cancel, place, &rank));
    status = tt_generation_team_attach(&rank, &run->inputs, &run->choice.limits, &team);
    TT_GO(tt_comm_agree(place->comm, status));
    tt_comm_set_activity(place->comm, "generating");
    TT_GO(tt_generation_team_run(team, lead, run));
out:
    tt_world_rank_failed(rank.world != NULL ? rank.world : place->comm, status);
    tt_generation_team_destroy(team);
    tt_rank_deinit(&rank);
    return status;
}

tt_status tt_generate_run_call(const struct tt_generate_call *call, const struct tt_cancel *cancel,
                               const struct tt_generate_hooks *hooks)
{
    tt_status status = TT_OK;
    struct tt_world world = {0};
    struct generate_run run = {.call = call, .job = call->spec, .cancel = cancel, .hooks = hooks};
    TT_GO(tt_run_open_world(call->kind, call->spec, cancel, &world));
    run.first_rank = world.first_rank;
    TT_GO(tt_run_fetch_names(run.job, &world));
    TT_GO(tt_world_agree(&world, open_inputs(&run, &world)));
    TT_GO(tt_fingerprint_compare(&run.fingerprint, &world));
    TT_GO(tt_world_settle_inputs(&world, &run.inputs));
    TT_GO(tt_world_agree(&world, world.first_rank == 0 ? choose(&run, &world) : TT_OK));
    if (world.world_size > world.local_count) TT_GO(tt_world_run(&world, share_choice, &run));
    TT_GO(tt_world_agree(&world, check(&run, &world)));
    TT_GO(tt_world_run(&world, rank_main, &run));
out:
    tt_inputs_close(&run.inputs);
    tt_fingerprint_deinit(&run.fingerprint);
    tt_world_close(&world);
    return status;
}

tt_status tt_generate_run(const struct tt_generate_spec *spec, const struct tt_cancel *cancel,
                          const struct tt_generate_hooks *hooks)
{
    const struct tt_generate_call call = {TT_JOB_GENERATE, spec, spec->generate.chooses_sharding};
    return tt_generate_run_call(&call, cancel, hooks);
}
