/* `trimtab bench generate`: the speed and the memory of generation. */
#include <string.h>
#include <sys/resource.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "infer/generator.h"
#include "run/bench.h"
#include "run/generate_run.h"

enum { CONFIG_BYTES_MAX = 1 << 20, WARM_TOKENS = 4 };

struct generation_bench {
    const struct tt_bench_spec *spec;
    const struct tt_cancel *cancel;
    double start;
    struct tt_plan plan;
    struct tt_generation_team *team; /* during `lead` */
    int32_t *prompt;
    int64_t vocab, wave, rows; /* wave: rows that run at a time, on all ranks */
    struct tt_rng rng;
    struct tt_bench_generation *result; /* of rank 0 */
};

/* A model without a folder. */
static tt_status open_inputs(void *context, struct tt_inputs *inputs)
{
    const struct generation_bench *bench = context;
    const struct tt_job_spec *job = &bench->spec->job;
    struct tt_json json = {0};
    TT_TRY(tt_json_read(bench->spec->config_json, CONFIG_BYTES_MAX, &json));
    tt_status status = tt_model_facts_parse(&json, &inputs->model_facts);
    tt_json_deinit(&json);
    TT_TRY(status);
    inputs->model_options = tt_job_model_options(&job->model, NULL, &job->device, true);
    if (bench->spec->adapters > 0) {
        inputs->model_options.lora = tt_inputs_reserved_lora(bench->spec->adapter_rank);
        inputs->model_options.adapter_places = bench->spec->adapters;
    }
    inputs->source.seed = (uint64_t)job->run.seed;
    return tt_quantization_resolve(&job->quantization, &inputs->model_facts,
                                   inputs->model_options.compute_dtype, &inputs->model_options.quant);
}

static tt_status prepare(void *context, const struct tt_inputs *inputs, int ranks,
                         struct tt_generation_limits *limits)
{
    struct generation_bench *bench = context;
    const struct tt_bench_spec *spec = bench->spec;
    const struct tt_generate_options options = {.max_new_tokens = spec->new_tokens};
    int64_t batch = spec->job.run.per_device_train_batch_size;
    bench->rows = spec->rows > 0 ? spec->rows : batch * ranks;
    int64_t share = (bench->rows + ranks - 1) / ranks;
    if (batch > share) batch = share;
    bench->wave = batch * ranks < bench->rows ? batch * ranks : bench->rows;
    bench->vocab = inputs->model_facts.vocab_size;
    bench->result->ranks = ranks;
    bench->result->rows = bench->rows;
    return tt_generator_limits(inputs, batch, spec->prompt_tokens, &options, limits);
}

static tt_status planned(void *context, const struct tt_plan *plan, enum tt_shard_strategy strategy)
{
    struct generation_bench *bench = context;
    bench->plan = *plan;
    bench->result->strategy = strategy;
    return TT_OK;
}

static tt_status submit(struct generation_bench *bench, int64_t row, int64_t new_tokens)
{
    int64_t length = bench->spec->prompt_tokens, id;
    for (int64_t t = 0; t < length; t++)
        bench->prompt[t] =
            (int32_t)tt_rng_below(bench->rng, (uint64_t)(row * length + t), (uint64_t)bench->vocab);
    const struct tt_generation_request request = {
        .prompt = bench->prompt,
        .prompt_count = (size_t)length,
        .max_new_tokens = new_tokens,
        .sampling = {.sample = bench->spec->temperature > 0, .temperature = bench->spec->temperature},
        .seed = (uint64_t)row,
        .ignore_end = true,
        .adapter = bench->spec->adapters > 0 ? (int)(row % bench->spec->adapters) : 0,
    };
    return tt_generation_team_submit(bench->team, &request, &id);
}

/* When the running requests got their first and last tokens, and how many steps were between. */
struct timing {
    double start, first, last, end;
    int64_t steps;
};

/* Runs all requests that were submitted. The ids from first_id on, `wave` of them, start at once. */
static tt_status run(struct generation_bench *bench, int64_t first_id, int64_t new_tokens,
                     struct timing *timing)
{
    int64_t made = 0;
    *timing = (struct timing){.start = tt_clock_seconds()};
    for (bool busy = true; busy;) {
        if (bench->cancel != NULL && atomic_load(&bench->cancel->requests) > 0)
            return tt_fail(TT_ERR_CANCELLED, "stopped on request");
        TT_TRY(tt_generation_team_step(bench->team, &busy));
        double now = tt_clock_seconds();
        if (timing->first > 0 && timing->last == 0) timing->steps++;
        struct tt_generation_progress progress;
        TT_TRY(tt_generation_team_poll(bench->team, first_id + bench->wave - 1, &progress));
        if (timing->first == 0 && progress.count > 0) timing->first = now;
        TT_TRY(tt_generation_team_poll(bench->team, first_id, &progress));
        made = (int64_t)progress.count;
        if (timing->last == 0 && made == new_tokens) timing->last = now;
    }
    timing->end = tt_clock_seconds();
    return TT_OK;
}

static tt_status collect(struct generation_bench *bench, int64_t first_id, int64_t count, uint64_t *sum)
{
    *sum = 0;
    for (int64_t i = 0; i < count; i++) {
        struct tt_generation_progress progress;
        TT_TRY(tt_generation_team_poll(bench->team, first_id + i, &progress));
        for (size_t t = 0; t < progress.count; t++)
            *sum = (*sum + (uint64_t)progress.tokens[t] + 1) * UINT64_C(0x9e3779b97f4a7c15);
        tt_generation_team_release(bench->team, first_id + i);
    }
    return TT_OK;
}

/* All rows at once; algorithms are chosen by a short run before it. */
static tt_status measure(struct generation_bench *bench)
{
    const struct tt_bench_spec *spec = bench->spec;
    struct tt_bench_generation *result = bench->result;
    const struct tt_generation_engine *engine = tt_generation_team_engine(bench->team);
    struct timing timing;
    int64_t warm = spec->new_tokens < WARM_TOKENS ? spec->new_tokens : WARM_TOKENS;
    for (int64_t i = 0; i < bench->wave; i++) TT_TRY(submit(bench, bench->rows + i, warm));
    TT_TRY(run(bench, 1, warm, &timing));
    TT_TRY(collect(bench, 1, bench->wave, &result->sum));
    struct tt_generation_load before = tt_generation_load_of(engine);
    for (int64_t i = 0; i < bench->rows; i++) TT_TRY(submit(bench, i, spec->new_tokens));
    TT_TRY(run(bench, bench->wave + 1, spec->new_tokens, &timing));
    TT_TRY(collect(bench, bench->wave + 1, bench->rows, &result->sum));
    struct tt_generation_load after = tt_generation_load_of(engine);
    result->passes = after.passes - before.passes;
    result->recorded_passes = after.recorded - before.recorded;
    result->first_seconds = timing.first - timing.start;
    result->prompt_tokens_per_second = (double)(bench->wave * spec->prompt_tokens) / result->first_seconds;
    result->seconds = timing.end - timing.start;
    result->tokens_per_second = (double)(bench->rows * spec->new_tokens) / result->seconds;
    if (timing.steps == 0) return TT_OK;
    result->decode_step_seconds = (timing.last - timing.first) / (double)timing.steps;
    result->decode_tokens_per_second = (double)bench->wave / result->decode_step_seconds;
    return TT_OK;
}

/* Seconds by op of passes with a token of every row, launched op by op; not of the timed ones. */
static tt_status profile(struct generation_bench *bench)
{
    const struct tt_bench_spec *spec = bench->spec;
    struct tt_bench_generation *result = bench->result;
    struct tt_device *device = tt_generation_device(tt_generation_team_engine(bench->team));
    int64_t first_id = bench->wave + bench->rows + 1, passes = spec->profile_steps;
    struct tt_generation_progress progress;
    uint64_t sum;
    bool busy = true;
    if (passes > spec->new_tokens - 2) passes = spec->new_tokens - 2;
    if (passes < 1) return TT_OK;
    for (int64_t i = 0; i < bench->wave; i++)
        TT_TRY(submit(bench, bench->rows + bench->wave + i, passes + 2));
    do {
        TT_TRY(tt_generation_team_step(bench->team, &busy));
        TT_TRY(tt_generation_team_poll(bench->team, first_id + bench->wave - 1, &progress));
    } while (progress.count == 0);
    tt_device_profile(device, true);
    for (int64_t i = 0; i < passes; i++) TT_TRY(tt_generation_team_step(bench->team, &busy));
    tt_device_profile(device, false);
    memcpy(result->op_times, tt_device_op_times(device), sizeof result->op_times);
    for (int i = 0; i < TT_SPAN_COUNT; i++) result->op_times[i].seconds /= (double)passes;
    while (busy) TT_TRY(tt_generation_team_step(bench->team, &busy));
    return collect(bench, first_id, bench->wave, &sum);
}

static tt_status measure_memory(const struct generation_bench *bench)
{
    struct tt_bench_generation *result = bench->result;
    struct tt_device *device = tt_generation_device(tt_generation_team_engine(bench->team));
    struct tt_memory_use memory;
    struct rusage usage;
    tt_device_memory(device, &memory);
    result->device_peak_bytes = memory.total_peak - memory.peak[TT_PURPOSE_CONTEXT];
    result->device_used_bytes = tt_device_used_bytes(device);
    result->planned_used_bytes = bench->plan.memory.total_peak;
    result->planned_bytes = result->planned_used_bytes - bench->plan.memory.peak[TT_PURPOSE_CONTEXT];
    if (getrusage(RUSAGE_SELF, &usage) == 0) result->peak_bytes = (size_t)usage.ru_maxrss * 1024;
    return tt_plan_compare(&bench->plan, device, &result->memory);
}

static tt_status lead(void *context, const struct tt_inputs *inputs, struct tt_generation_team *team)
{
    struct generation_bench *bench = context;
    (void)inputs;
    bench->team = team;
    bench->result->load_seconds = tt_clock_seconds() - bench->start;
    TT_TRY(measure(bench));
    TT_TRY(measure_memory(bench));
    return profile(bench);
}

tt_status tt_bench_generate(const struct tt_bench_spec *spec, const struct tt_cancel *cancel,
                            struct tt_bench_generation *result)
{
    struct generation_bench bench = {
        .spec = spec,
        .cancel = cancel,
        .start = tt_clock_seconds(),
        .prompt = tt_calloc((size_t)spec->prompt_tokens, sizeof *bench.prompt),
        .rng = tt_rng_derive(tt_rng_make((uint64_t)spec->job.run.seed), "prompts"),
        .result = result,
    };
    const struct tt_generate_hooks hooks = {open_inputs, prepare, planned, lead, &bench};
    const struct tt_generate_call call = {TT_JOB_BENCH, spec, spec->chooses_sharding};
    *result = (struct tt_bench_generation){0};
    if (bench.prompt == NULL) return TT_ERR_MEMORY;
    tt_status status = tt_generate_run_call(&call, cancel, &hooks);
    if (status != TT_OK) tt_bench_generation_deinit(result);
    tt_free(bench.prompt);
    return status;
}

void tt_bench_generation_deinit(struct tt_bench_generation *result)
{
    tt_str_deinit(&result->memory);
    *result = (struct tt_bench_generation){0};
}
