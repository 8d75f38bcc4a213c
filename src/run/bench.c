#include "run/bench.h"

#include <string.h>
#include <sys/resource.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/median.h"
#include "checkpoint/load.h"
#include "engine/feed_rows.h"
#include "engine/rank_config.h"
#include "engine/step.h"
#include "run/open_world.h"

enum { CONFIG_BYTES_MAX = 1 << 20 };

/* The state that the ranks of a benchmark share. */
struct bench {
    const struct tt_bench_spec *spec;
    const struct tt_job_spec *config; /* of spec */
    struct tt_cancel *cancel;
    struct tt_model_facts model_facts;
    struct tt_dataset *dataset;
    struct tt_sampler *sampler;
    struct tt_rank_config rank_config;
    struct tt_plan plan;
    double start_seconds;
    struct tt_bench_result *result; /* written by global rank 0 */
};

/* The gathers of a rank's profiled steps. */
struct gathers {
    double *seconds;
    size_t count, capacity;
};

static void note_gather(void *context, enum tt_op span, int lane, double start, double seconds)
{
    struct gathers *gathers = context;
    (void)lane, (void)start;
    if (span != TT_SPAN_GATHER || tt_grow(&gathers->seconds, gathers->count, &gathers->capacity) != TT_OK)
        return;
    gathers->seconds[gathers->count++] = seconds;
}

/* Collective. The median is that of the rank with the highest. */
static tt_status sum_up_gathers(const struct bench *bench, struct tt_rank *rank, struct gathers *gathers)
{
    struct tt_bench_result *result = bench->result;
    enum { COUNT, MEDIAN, LONGEST, NUMBERS };
    int world_size = tt_comm_world_size(rank->world);
    double own[NUMBERS] = {[COUNT] = (double)gathers->count};
    double *all = tt_calloc((size_t)world_size, sizeof own);
    if (all == NULL) return TT_ERR_MEMORY;
    own[MEDIAN] = tt_median(gathers->seconds, gathers->count); /* sorts them */
    if (gathers->count > 0) own[LONGEST] = gathers->seconds[gathers->count - 1];
    tt_status status = tt_comm_host_all_gather(rank->world, own, all, sizeof own);
    for (int r = 0; r < world_size && status == TT_OK && tt_comm_rank(rank->world) == 0; r++) {
        const double *numbers = all + r * NUMBERS;
        result->gathers += (int64_t)numbers[COUNT];
        if (numbers[MEDIAN] > result->gather_median_seconds) result->gather_median_seconds = numbers[MEDIAN];
        if (numbers[LONGEST] > result->gather_longest_seconds)
            result->gather_longest_seconds = numbers[LONGEST];
    }
    tt_free(all);
    return status;
}

static size_t peak_resident_bytes(void)
{
    struct rusage usage;
    return getrusage(RUSAGE_SELF, &usage) == 0 ? (size_t)usage.ru_maxrss * 1024 : 0;
}

static void fill_result(const struct bench *bench, const struct tt_rank *rank, double *seconds,
                        const struct tt_train_step_result *last)
{
    struct tt_bench_result *result = bench->result;
    struct tt_memory_use memory;
    tt_device_memory(rank->device, &memory);
    result->step_seconds = tt_median(seconds, (size_t)bench->spec->steps);
    result->tokens_per_second = (double)last->facts.tokens / result->step_seconds;
    bool full = rank->model->options.train_base;
    double flops = tt_model_flops_per_token(rank->model, (double)bench->spec->sequence_length, full) *
                       (double)last->facts.tokens +
                   tt_model_flops_per_label(rank->model, full) * (double)last->facts.supervised;
    result->model_tflops = flops / result->step_seconds / 1e12;
    memcpy(result->op_times, tt_device_op_times(rank->device), sizeof result->op_times);
    for (int i = 0; i < TT_SPAN_COUNT; i++) result->op_times[i].seconds /= (double)bench->spec->profile_steps;
    result->loss = last->loss;
    result->peak_bytes = peak_resident_bytes();
    result->planned_bytes = bench->plan.memory.total_peak - bench->plan.memory.peak[TT_PURPOSE_CONTEXT];
    result->device_used_bytes = tt_device_used_bytes(rank->device);
    result->planned_step_seconds = tt_plan_estimate(&bench->plan);
    tt_plan_recompute_text(&bench->plan, result->recompute, sizeof result->recompute);
    /* blocks are chosen from the first on */
    for (int i = 0; i < bench->plan.block_count; i++)
        result->recomputes_blocks |= bench->plan.levels[i] >= TT_RECOMPUTE_BLOCK;
    result->device_peak_bytes = memory.total_peak - memory.peak[TT_PURPOSE_CONTEXT];
    result->base_params = rank->model->base_param_count;
    result->trainable_params = rank->model->trainable_param_count;
}

static tt_status run_steps(struct bench *bench, struct tt_rank *rank)
{
    tt_status status = TT_OK;
    struct tt_feed feed = {0};
    struct tt_gradient_watch watch = {0};
    struct tt_train_step_result last = {0};
    struct gathers gathers = {0};
    int64_t warmup = bench->spec->warmup, total = warmup + bench->spec->steps,
            end_step = total + bench->spec->profile_steps;
    double *seconds = tt_calloc((size_t)bench->spec->steps, sizeof *seconds);
    struct tt_train_step_config config = {
        .optim = &bench->config->optim,
        .feed = &feed,
        .cancel = bench->cancel,
        .seed = (uint64_t)bench->config->run.seed,
        .embedding_noise = bench->config->run.neftune_noise_alpha,
        .length = {end_step, end_step},
    };
    if (seconds == NULL) TT_GO(TT_ERR_MEMORY);
    TT_GO(tt_feed_of_rows(bench->sampler, rank->mesh.axes[TT_AXIS_DATA].rank, &feed));
    TT_GO(tt_gradient_watch_init(rank->model, &watch));
    for (int64_t step = 0; step < end_step; step++) {
        /* Further steps, not timed: profiling costs time. */
        if (step == total) {
            tt_device_profile(rank->device, true);
            tt_device_trace(rank->device, note_gather, &gathers);
        }
        double start = tt_clock_seconds();
        TT_GO(tt_train_step(rank, &config, step, &watch, &last));
        double end = tt_clock_seconds();
        if (step == 0 && tt_comm_rank(rank->world) == 0)
            bench->result->first_step_seconds = end - bench->start_seconds;
        if (step >= warmup && step < total) seconds[step - warmup] = end - start;
        if (last.stop_requested) TT_GO(tt_fail(TT_ERR_CANCELLED, "stopped on request"));
    }
    if (tt_comm_rank(rank->world) == 0) fill_result(bench, rank, seconds, &last);
    (void)tt_device_op_times(rank->device); /* reads the spans */
    TT_GO(sum_up_gathers(bench, rank, &gathers));
out:
    tt_device_trace(rank->device, NULL, NULL);
    tt_free(gathers.seconds);
    tt_gradient_watch_deinit(&watch);
    tt_feed_deinit(&feed);
    tt_free(seconds);
    return status;
}

static tt_status rank_main(void *context, const struct tt_world_rank *place)
{
    struct bench *bench = context;
    struct tt_rank rank = {0};
    const struct tt_load_source source = {.seed = (uint64_t)bench->config->run.seed};
    tt_status status =
        tt_run_open_rank(&bench->rank_config, &bench->plan, source, bench->cancel, place, &rank);
    if (tt_comm_rank(place->comm) == 0)
        bench->result->load_seconds = tt_clock_seconds() - bench->start_seconds;
    if (status == TT_OK) status = run_steps(bench, &rank);
    tt_world_rank_failed(rank.world != NULL ? rank.world : place->comm, status);
    tt_rank_deinit(&rank);
    return status;
}

/* Creates `samples` rows of full length, or shorter rows that fill somewhat more than `samples` packs. */
static tt_status create_data(struct bench *bench, int64_t samples)
{
    const struct tt_bench_spec *spec = bench->spec;
    int64_t length = spec->sequence_length, shortest = length, longest = length;
    if (spec->row_tokens_max > 0) {
        longest = spec->row_tokens_max < length ? spec->row_tokens_max : length;
        shortest = spec->row_tokens_min < 1 ? 1 : spec->row_tokens_min;
        if (shortest > longest) shortest = longest;
        samples *= 2 * length / (shortest + longest) + 1;
    }
    return tt_dataset_create_random((size_t)samples, (int32_t)shortest, (int32_t)longest,
                                    bench->model_facts.vocab_size, (uint64_t)bench->config->run.seed,
                                    &bench->dataset);
}

static tt_status prepare(struct bench *bench, const struct tt_world *world)
{
    const struct tt_job_spec *config = bench->config;
    struct tt_json json = {0};
    struct tt_batch_limits none = {0};
    int64_t micro = config->run.per_device_train_batch_size,
            accumulation = config->run.gradient_accumulation_steps;
    TT_TRY(tt_json_read(bench->spec->config_json, CONFIG_BYTES_MAX, &json));
    tt_status status = tt_model_facts_parse(&json, &bench->model_facts);
    tt_json_deinit(&json);
    TT_TRY(status);
    TT_TRY(create_data(bench, micro * accumulation * tt_world_data_size(world)));
    bool packs = bench->spec->row_tokens_max > 0;
    struct tt_sampler_config sampler = {
        .micro_batch_size = micro,
        .world_size = tt_world_data_size(world),
        .accumulation = accumulation,
        .packing = packs,
        .packing_strategy = TT_PACKING_BFD,
        .drop_last = packs,
        .max_length = bench->spec->sequence_length,
    };
    TT_TRY(tt_sampler_create(bench->dataset, &sampler, &bench->sampler));
    struct tt_model_options options =
        tt_job_model_options(&config->model, &config->lora, &config->device, true);
    TT_TRY(tt_quantization_resolve(&config->quantization, &bench->model_facts, options.compute_dtype,
                                   &options.quant));
    const struct tt_rank_layout layout = tt_rank_layout_of(world);
    TT_TRY(tt_rank_config_make(&config->shard, &layout, &bench->model_facts, &options, TT_RANK_TRAINS,
                               bench->cancel, &bench->rank_config));
    bench->rank_config.objective = &config->objective;
    bench->rank_config.optimizer = tt_optimizer_of(&config->optim);
    bench->rank_config.optim = &config->optim;
    tt_sampler_limits(bench->sampler, 0, 1, &bench->rank_config.limits);
    TT_TRY(tt_plan_make(&bench->rank_config, tt_rank_layout_ranks(&layout), accumulation,
                        &bench->rank_config.limits, &none, &bench->plan));
    bench->result->plan_seconds = tt_clock_seconds() - bench->start_seconds;
    return tt_plan_check_here(&bench->plan, tt_world_ranks_here(world));
}

tt_status tt_bench_train(const struct tt_bench_spec *spec, struct tt_cancel *cancel,
                         struct tt_bench_result *result)
{
    tt_status status = TT_OK;
    struct tt_world world = {0};
    struct bench bench = {
        .spec = spec,
        .config = &spec->job,
        .cancel = cancel,
        .start_seconds = tt_clock_seconds(),
        .result = result,
    };
    *result = (struct tt_bench_result){0};
    TT_GO(tt_run_open_world(TT_JOB_BENCH, spec, cancel, &world));
    TT_GO(tt_world_agree(&world, prepare(&bench, &world)));
    TT_GO(tt_world_run(&world, rank_main, &bench));
out:
    tt_sampler_destroy(bench.sampler);
    tt_dataset_destroy(bench.dataset);
    tt_world_close(&world);
    return status;
}
