/* `trimtab eval`, from its inputs to its metrics. */
#include <math.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "comm/host_values.h"
#include "engine/rank_config.h"
#include "infer/generation_rank.h"
#include "launch/fingerprint.h"
#include "job/eval_sets.h"
#include "job/shared_prompt.h"
#include "run/exact_match.h"
#include "run/hub_names.h"
#include "run/open_world.h"
#include "run/task.h"
#include "run/trainer.h"

/* The state that the ranks of an evaluation share. */
struct evaluation_run {
    const struct tt_eval_spec *spec;
    const struct tt_job_spec *config; /* of spec */
    struct tt_cancel *cancel;         /* NULL or lent */
    struct tt_inputs inputs;
    struct tt_fingerprint fingerprint; /* empty with one process */
    struct tt_task_data data;
    struct tt_exact_match exact_match; /* empty: not asked for */
    int first_rank;                    /* of this process */
    struct tt_batch_limits limits;     /* of the rows */
    struct tt_objective objective;     /* the reference runs with each batch */
    struct tt_rank_config rank_config;
    struct tt_plan plan;
    struct tt_eval_result *result;   /* written by global rank 0 */
    struct tt_eval_metrics *metrics; /* the same; NULL or lent */
};

static void keep_metrics(const struct tt_objective_ops *ops, const struct tt_evaluation *evaluation,
                         struct tt_eval_metrics *metrics)
{
    if (metrics == NULL) return;
    metrics->count = ops->metric_count;
    for (int i = 0; i < ops->metric_count; i++)
        metrics->items[i] = (struct tt_log_field){ops->metrics[i].name, evaluation->metrics[i]};
}

void tt_eval_metrics_deinit(struct tt_eval_metrics *metrics)
{
    for (size_t i = 0; i < metrics->source_count; i++) tt_free(metrics->sources[i].name);
    tt_free(metrics->sources);
    *metrics = (struct tt_eval_metrics){0};
}

static tt_status keep_sources(const struct tt_sources *sources, const struct tt_by_source *by_source,
                              struct tt_eval_metrics *metrics)
{
    if (metrics == NULL || by_source->count == 0) return TT_OK;
    metrics->sources = tt_calloc(by_source->count, sizeof *metrics->sources);
    if (metrics->sources == NULL) return TT_ERR_MEMORY;
    for (size_t i = 0; i < by_source->count; i++) {
        struct tt_str name = {0};
        if (by_source->list[i].tokens == 0) continue; /* none of its rows is evaluated */
        tt_status status = tt_sources_label(sources, i, &name);
        if (status != TT_OK) tt_str_deinit(&name);
        TT_TRY(status);
        metrics->sources[metrics->source_count++] = (struct tt_eval_source){name.data, by_source->list[i]};
    }
    return TT_OK;
}

static tt_status measure(const struct evaluation_run *run, struct tt_rank *rank,
                         struct tt_by_source *by_source, struct tt_evaluation *evaluation)
{
    const struct tt_task_evaluation how = {
        .inputs = &run->inputs, .data = &run->data, .cancel = run->cancel, .by_source = by_source};
    if (run->inputs.eval != NULL)
        TT_TRY(tt_by_source_init(by_source, run->inputs.eval, &rank->objective,
                                 tt_eval_sets_are_named(&run->config->data)));
    return tt_task_run_of(&run->inputs)->evaluate(&how, rank, evaluation);
}

static tt_status rank_main(void *context, const struct tt_world_rank *place)
{
    struct evaluation_run *run = context;
    struct tt_rank rank = {0};
    struct tt_evaluation evaluation;
    struct tt_by_source by_source = {0};
    tt_status status = TT_OK;
    TT_GO(tt_run_open_rank(&run->rank_config, &run->plan, run->inputs.source, run->cancel, place, &rank));
    TT_GO(measure(run, &rank, &by_source, &evaluation));
    int64_t matches = -1, rows = 0;
    double start = tt_clock_seconds();
    if (run->spec->exact_match)
        TT_GO(tt_exact_match_run(&run->exact_match, &rank, run->cancel, &matches, &rows));
    if (tt_comm_rank(place->comm) == 0) {
        run->result->exact_matches = matches;
        run->result->exact_rows = rows;
        run->result->loss = evaluation.loss;
        /* of a loss that is the mean of -log p */
        run->result->perplexity = rank.objective.ops->rows == NULL ? exp(evaluation.loss) : NAN;
        const struct tt_metric *accuracy = tt_objective_best_metric(&rank.objective, "mean_token_accuracy");
        run->result->token_accuracy =
            accuracy != NULL ? evaluation.metrics[accuracy - rank.objective.ops->metrics] : NAN;
        run->result->samples = evaluation.samples;
        run->result->tokens = tt_task_run_of(&run->inputs)->labels(&evaluation);
        run->result->loss_seconds = evaluation.seconds;
        run->result->seconds = evaluation.seconds + (run->spec->exact_match ? tt_clock_seconds() - start : 0);
        keep_metrics(rank.objective.ops, &evaluation, run->metrics);
        status = keep_sources(tt_inputs_eval_files(&run->inputs), &by_source, run->metrics);
    }
out:
    tt_world_rank_failed(rank.world != NULL ? rank.world : place->comm, status);
    tt_by_source_deinit(&by_source);
    tt_rank_deinit(&rank);
    return status;
}

static tt_status open_inputs(struct evaluation_run *run, const struct tt_world *world)
{
    struct tt_inputs_config inputs = tt_inputs_config_of(run->config, TT_INPUTS_EVALUATE);
    inputs.share = tt_world_share(world);
    TT_TRY(tt_inputs_open(&inputs, &run->inputs));
    if (world->local_count == world->world_size) return TT_OK; /* no other process to compare with */
    return tt_fingerprint_compute(run->config->launch.verify_inputs, tt_str_text(&world->settings),
                                  &run->inputs, NULL, run->cancel, &run->fingerprint);
}

static tt_status order_data(struct evaluation_run *run, int data_size, struct tt_batch_limits *limits)
{
    const struct tt_run_spec *spec = &run->config->run;
    struct tt_shared_prompt prompt;
    TT_TRY(tt_shared_prompt_settle(run->config, &run->inputs.model_facts, &run->inputs.model_options,
                                   run->inputs.max_length, false, &prompt));
    const struct tt_task_order how = {.data_size = data_size,
                                      .batch_size = spec->per_device_eval_batch_size,
                                      .accumulation = 1,
                                      .seed = (uint64_t)spec->seed,
                                      .run = spec,
                                      .rows = &run->config->data,
                                      .needs = run->config->objective.ops->needs,
                                      .shares = prompt.shares};
    const struct tt_task_run_ops *task = tt_task_run_of(&run->inputs);
    TT_TRY(task->order(&run->inputs, &how, &run->data));
    *limits = task->limits(&run->inputs, &run->data, 0);
    return TT_OK;
}

/* The plan of the rows' batches and of what completes prompts. */
static tt_status make_plan(struct evaluation_run *run, const struct tt_world *world)
{
    const struct tt_rank_layout layout = tt_rank_layout_of(world);
    const struct tt_batch_limits none = {0},
                                 generation = tt_generation_batch_limits(&run->exact_match.limits);
    run->rank_config.limits = run->limits;
    if (run->spec->exact_match) run->rank_config.limits = tt_batch_limits_join(&run->limits, &generation);
    TT_TRY(
        tt_plan_make(&run->rank_config, tt_rank_layout_ranks(&layout), 1, &none, &run->limits, &run->plan));
    return run->spec->exact_match
               ? tt_generation_plan(&run->rank_config, &run->exact_match.limits, &run->plan)
               : TT_OK;
}

static tt_status prepare(struct evaluation_run *run, const struct tt_world *world)
{
    const struct tt_job_spec *config = run->config;
    TT_TRY(order_data(run, tt_world_data_size(world), &run->limits));
    const struct tt_rank_layout layout = tt_rank_layout_of(world);
    TT_TRY(tt_rank_config_make(&config->shard, &layout, &run->inputs.model_facts, &run->inputs.model_options,
                               TT_RANK_EVALUATES, run->cancel, &run->rank_config));
    run->objective = config->objective;
    run->objective.precomputed = false;
    run->rank_config.objective = &run->objective;
    if (run->spec->exact_match)
        TT_TRY(tt_exact_match_init(&run->inputs, run->spec->max_new_tokens, &layout.device, world->world_size,
                                   &run->exact_match));
    struct tt_model *model = NULL;
    TT_TRY(tt_model_create(&run->inputs.model_facts, &run->inputs.model_options, &model));
    tt_status status = tt_inputs_check_model(&run->inputs, model);
    if (status == TT_OK) status = tt_quantization_report(model);
    tt_model_destroy(model);
    if (status == TT_OK) status = make_plan(run, world);
    if (status != TT_OK || world->first_rank > 0 || !run->spec->exact_match) return status;
    struct tt_generation_limits *generation = &run->exact_match.limits;
    const uint64_t unused = tt_run_unused_memory(world);
    while ((tt_generation_limits_are_tight(generation, &run->plan, unused) ||
            tt_plan_check_here(&run->plan, tt_world_ranks_here(world)) != TT_OK) &&
           tt_generation_limits_less(&layout.device, generation))
        TT_TRY(make_plan(run, world));
    tt_error_clear(); /* check reports it */
    return TT_OK;
}

/* Prompts at a time by the memory of rank 0's process. */
static tt_status share_limits(void *context, const struct tt_world_rank *rank)
{
    struct evaluation_run *run = context;
    struct tt_generation_limits limits = run->exact_match.limits;
    TT_TRY(tt_comm_host_share(rank->comm, &limits, sizeof limits));
    if (tt_comm_rank(rank->comm) == run->first_rank) run->exact_match.limits = limits;
    return TT_OK;
}

static tt_status check(struct evaluation_run *run, const struct tt_world *world)
{
    if (world->first_rank > 0) TT_TRY(make_plan(run, world));
    return tt_plan_check_here(&run->plan, tt_world_ranks_here(world));
}

tt_status tt_evaluate_run(const struct tt_eval_spec *spec, const struct tt_train_observer *observer,
                          struct tt_cancel *cancel, struct tt_eval_result *result,
                          struct tt_eval_metrics *metrics)
{
    tt_status status = TT_OK;
    struct tt_world world = {0};
    struct evaluation_run run = {
        .spec = spec, .config = &spec->job, .cancel = cancel, .result = result, .metrics = metrics};
    *result = (struct tt_eval_result){.loss = NAN, .exact_matches = -1};
    TT_GO(tt_run_open_world(TT_JOB_EVALUATE, spec, cancel, &world));
    TT_GO(tt_run_fetch_names(&spec->job, &world));
    TT_GO(tt_world_agree(&world, open_inputs(&run, &world)));
    TT_GO(tt_fingerprint_compare(&run.fingerprint, &world));
    TT_GO(tt_world_settle_inputs(&world, &run.inputs));
    run.first_rank = world.first_rank;
    TT_GO(tt_world_agree(&world, prepare(&run, &world)));
    if (spec->exact_match && world.world_size > world.local_count)
        TT_GO(tt_world_run(&world, share_limits, &run));
    TT_GO(tt_world_agree(&world, check(&run, &world)));
    if (observer != NULL && observer->on_message != NULL && world.first_rank == 0) {
        struct tt_str text = {0};
        status = tt_task_run_of(&run.inputs)->describe(&run.inputs, false, &text);
        if (status == TT_OK) observer->on_message(observer->context, tt_str_text(&text));
        tt_str_deinit(&text);
        if (status != TT_OK) goto out;
    }
    TT_GO(tt_world_run(&world, rank_main, &run));
out:
    tt_task_data_deinit(&run.data);
    tt_exact_match_deinit(&run.exact_match);
    tt_inputs_close(&run.inputs);
    tt_fingerprint_deinit(&run.fingerprint);
    tt_world_close(&world);
    return status;
}
