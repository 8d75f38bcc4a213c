#include "run/run_plan.h"

#include "base/number.h"
#include "engine/rank_config.h"
#include "infer/generation_rank.h"

tt_status tt_run_plan_open(struct tt_run *run, const struct tt_shard_spec *shard,
                           const struct tt_world *world)
{
    struct tt_rank_layout layout = tt_rank_layout_of(world);
    TT_TRY(tt_rank_config_make(shard, &layout, &run->data.inputs.model_facts, &run->data.inputs.model_options,
                               TT_RANK_TRAINS, run->job.cancel, &run->rank_config));
    run->rank_config.objective = run->job.objective;
    run->rank_config.continues = run->data.inputs.source.adapter != NULL;
    run->rank_config.optimizer = tt_optimizer_of(run->job.optim);
    run->rank_config.optim = run->job.optim;
    run->rank_config.saves = true;
    run->rank_config.saves_state = !run->job.watch->save_only_model;
    return tt_shown_rows_init(&run->data.inputs, run->job.watch, &layout.device, world->world_size,
                              &run->shown);
}

/* Passes of evaluations, and of a reference before the first step. */
static struct tt_batch_limits without_gradient(const struct tt_run_data *data)
{
    return tt_batch_limits_join(&data->eval_limits, &data->reference.limits);
}

tt_status tt_run_plan_make(struct tt_run *run, const struct tt_world *world, bool advises)
{
    const struct tt_generation_limits *shown = &run->shown.limits;
    const struct tt_rank_layout layout = tt_rank_layout_of(world);
    struct tt_plan_ranks ranks = tt_rank_layout_ranks(&layout);
    bool shows = run->shown.prompts.count > 0;
    const struct tt_batch_limits eval = without_gradient(&run->data);
    run->rank_config.limits = tt_batch_limits_join(&run->data.train_limits, &eval);
    if (shows) {
        const struct tt_batch_limits limits = tt_generation_batch_limits(shown);
        run->rank_config.limits = tt_batch_limits_join(&run->rank_config.limits, &limits);
        TT_TRY(tt_generation_cache_bytes(&run->rank_config, ranks.count, shown,
                                         &run->rank_config.reserved_bytes));
    }
    TT_TRY((advises ? tt_plan_make : tt_plan_try)(&run->rank_config, ranks,
                                                  run->job.run->gradient_accumulation_steps,
                                                  &run->data.train_limits, &eval, &run->plan));
    tt_run_data_describe_prompts(&run->data, run->plan.prompts, sizeof run->plan.prompts);
    return shows ? tt_generation_plan(&run->rank_config, shown, &run->plan) : TT_OK;
}

/* ---- auto_find_batch_size ---- */

struct search {
    struct tt_run *run;
    const struct tt_world *world;
};

/* A batch that an index of its tokens cannot count is too large, as one that memory cannot hold. */
static tt_status try_batch(void *context, int64_t batch, bool *fits)
{
    const struct search *search = context;
    struct tt_run *run = search->run;
    *fits = false;
    run->found.per_device_train_batch_size = batch;
    tt_run_data_unorder(&run->data);
    tt_status status =
        tt_run_data_order(&run->job, tt_world_data_size(search->world), &run->data, &run->length);
    if (status == TT_OK) status = tt_run_plan_make(run, search->world, false);
    if (status == TT_OK) status = tt_plan_check_here(&run->plan, tt_world_ranks_here(search->world));
    bool too_large = status == TT_ERR_MEMORY || (status == TT_ERR_USAGE && batch > 1);
    if (status != TT_OK && !too_large) return status;
    *fits = status == TT_OK;
    tt_error_clear();
    return TT_OK;
}

static tt_status take_least(void *context, const struct tt_world_rank *rank)
{
    const struct search *search = context;
    int64_t least = search->run->found.per_device_train_batch_size;
    TT_TRY(tt_comm_host_min(rank->comm, &least));
    if (rank == search->world->ranks) search->run->found_batch = least;
    return TT_OK;
}

bool tt_run_plan_batch_of(struct tt_run_job *job, struct tt_run_spec *found,
                          const struct tt_json_value *identity, int data_size)
{
    int64_t samples = tt_json_integer(tt_json_get(identity, TT_RESUME_SAMPLES));
    int64_t others = data_size * job->run->gradient_accumulation_steps;
    if (!job->run->auto_find_batch_size || samples < others || samples % others != 0) return false;
    if (job->run != found) *found = *job->run;
    job->run = found;
    found->per_device_train_batch_size = samples / others;
    return true;
}

static void report_batch(const struct tt_run_job *job, int64_t batch, int64_t asked, bool resumed)
{
    char line[200];
    long long found = (long long)batch;
    if (resumed)
        tt_snprintf(line, sizeof line, "auto_find_batch_size: per_device_train_batch_size %lld, as before",
                    found);
    else if (batch == asked)
        tt_snprintf(line, sizeof line, "auto_find_batch_size: per_device_train_batch_size %lld fits", found);
    else
        tt_snprintf(line, sizeof line,
                    "auto_find_batch_size: per_device_train_batch_size %lld instead of %lld is the largest "
                    "that fits, "
                    "by the memory plan",
                    found, (long long)asked);
    tt_run_report_line(job, line);
}

tt_status tt_run_plan_find_batch(struct tt_run *run, struct tt_world *world)
{
    struct search search = {run, world};
    int64_t asked = run->job.run->per_device_train_batch_size, found = 0;
    if (!run->job.run->auto_find_batch_size) return TT_OK;
    run->found = *run->job.run;
    run->job.run = &run->found;
    bool resumed =
        run->resume.folder != NULL &&
        tt_run_plan_batch_of(&run->job, &run->found, tt_json_get(run->resume.state.root, "identity"),
                             tt_world_data_size(world));
    tt_status status = TT_OK;
    if (!resumed) {
        status = tt_plan_find_largest(asked, try_batch, &search, &found);
        run->found.per_device_train_batch_size = found;
        tt_run_data_unorder(&run->data);
    }
    TT_TRY(tt_world_agree(world, status));
    TT_TRY(tt_world_run(world, take_least, &search));
    run->found.per_device_train_batch_size = run->found_batch > 0 ? run->found_batch : 1;
    if (run->found_batch > 0) report_batch(&run->job, run->found_batch, asked, resumed);
    return TT_OK;
}
