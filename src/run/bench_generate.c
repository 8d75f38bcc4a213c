#include <string.h>
#include <sys/resource.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "infer/generation_engine.h"
#include "job/inputs.h"
#include "run/bench.h"

enum { CONFIG_BYTES_MAX = 1 << 20, WARM_TOKENS = 4 };

struct generation_bench {
    const struct tt_bench_spec *spec;
    const struct tt_cancel *cancel;
    struct tt_inputs inputs;
    struct tt_generation_engine *engine;
    int32_t *prompt;
    int64_t batch, rows;
    struct tt_rng rng;
};

/* A model without a folder. */
static tt_status open_inputs(struct generation_bench *bench)
{
    const struct tt_job_spec *job = &bench->spec->job;
    struct tt_inputs *inputs = &bench->inputs;
    struct tt_json json = {0};
    TT_TRY(tt_json_read(bench->spec->config_json, CONFIG_BYTES_MAX, &json));
    tt_status status = tt_model_facts_parse(&json, &inputs->model_facts);
    tt_json_deinit(&json);
    TT_TRY(status);
    inputs->model_options = tt_job_model_options(&job->model, NULL, &job->device, true);
    inputs->source.seed = (uint64_t)job->run.seed;
    return tt_quantization_resolve(&job->quantization, &inputs->model_facts,
                                   inputs->model_options.compute_dtype, &inputs->model_options.quant);
}

static tt_status submit(struct generation_bench *bench, int64_t row, int64_t new_tokens)
{
    int64_t vocab = bench->inputs.model_facts.vocab_size, length = bench->spec->prompt_tokens, id;
    for (int64_t t = 0; t < length; t++)
        bench->prompt[t] = (int32_t)tt_rng_below(bench->rng, (uint64_t)(row * length + t), (uint64_t)vocab);
    const struct tt_generation_request request = {
        .prompt = bench->prompt,
        .prompt_count = (size_t)length,
        .max_new_tokens = new_tokens,
        .sampling = {.sample = bench->spec->temperature > 0, .temperature = bench->spec->temperature},
        .seed = (uint64_t)row,
        .ignore_end = true,
    };
    return tt_generation_submit(bench->engine, &request, &id);
}

/* When the running requests got their first and last tokens, and how many steps were between. */
struct timing {
    double start, first, last, end;
    int64_t steps;
};

/* Runs all requests that were submitted. The first `batch` ids are those that start at once. */
static tt_status run(struct generation_bench *bench, int64_t first_id, int64_t new_tokens,
                     struct timing *timing)
{
    int64_t made = 0;
    *timing = (struct timing){.start = tt_clock_seconds()};
    for (bool busy = true; busy;) {
        if (bench->cancel != NULL && atomic_load(&bench->cancel->requests) > 0)
            return tt_fail(TT_ERR_CANCELLED, "stopped on request");
        TT_TRY(tt_generation_step(bench->engine, &busy));
        double now = tt_clock_seconds();
        if (timing->first > 0 && timing->last == 0) timing->steps++;
        struct tt_generation_progress progress;
        TT_TRY(tt_generation_poll(bench->engine, first_id + bench->batch - 1, &progress));
        if (timing->first == 0 && progress.count > 0) timing->first = now;
        TT_TRY(tt_generation_poll(bench->engine, first_id, &progress));
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
        TT_TRY(tt_generation_poll(bench->engine, first_id + i, &progress));
        for (size_t t = 0; t < progress.count; t++)
            *sum = (*sum + (uint64_t)progress.tokens[t] + 1) * UINT64_C(0x9e3779b97f4a7c15);
        tt_generation_release(bench->engine, first_id + i);
    }
    return TT_OK;
}

/* All rows at once; algorithms are chosen by a short run before it. */
static tt_status measure(struct generation_bench *bench, struct tt_bench_generation *result)
{
    const struct tt_bench_spec *spec = bench->spec;
    struct timing timing;
    int64_t warm = spec->new_tokens < WARM_TOKENS ? spec->new_tokens : WARM_TOKENS;
    for (int64_t i = 0; i < bench->batch; i++) TT_TRY(submit(bench, bench->rows + i, warm));
    TT_TRY(run(bench, 1, warm, &timing));
    TT_TRY(collect(bench, 1, bench->batch, &result->sum));
    struct tt_generation_load before = tt_generation_load_of(bench->engine);
    for (int64_t i = 0; i < bench->rows; i++) TT_TRY(submit(bench, i, spec->new_tokens));
    TT_TRY(run(bench, bench->batch + 1, spec->new_tokens, &timing));
    TT_TRY(collect(bench, bench->batch + 1, bench->rows, &result->sum));
    result->passes = tt_generation_load_of(bench->engine).passes - before.passes;
    result->first_seconds = timing.first - timing.start;
    result->prompt_tokens_per_second = (double)(bench->batch * spec->prompt_tokens) / result->first_seconds;
    result->seconds = timing.end - timing.start;
    result->tokens_per_second = (double)(bench->rows * spec->new_tokens) / result->seconds;
    if (timing.steps == 0) return TT_OK;
    result->decode_step_seconds = (timing.last - timing.first) / (double)timing.steps;
    result->decode_tokens_per_second = (double)bench->batch / result->decode_step_seconds;
    return TT_OK;
}

static void measure_memory(const struct generation_bench *bench, struct tt_bench_generation *result)
{
    struct tt_device *device = tt_generation_device(bench->engine);
    struct tt_memory_use memory;
    struct rusage usage;
    tt_device_memory(device, &memory);
    result->device_peak_bytes = memory.total_peak - memory.peak[TT_PURPOSE_CONTEXT];
    result->device_used_bytes = tt_device_used_bytes(device);
    if (getrusage(RUSAGE_SELF, &usage) == 0) result->peak_bytes = (size_t)usage.ru_maxrss * 1024;
}

/* One rank's speed; ranks share nothing but shards, and those are measured by generate. */
static tt_status check_ranks(const struct tt_launch_spec *launch)
{
    if (launch->ranks <= 1 && launch->num_processes <= 1) return TT_OK;
    tt_fail(TT_ERR_USAGE, "bench generate measures one rank, not %lld",
            (long long)(launch->num_processes > launch->ranks ? launch->num_processes : launch->ranks));
    tt_hint("trimtab generate --stats prints the speed of several ranks over a model folder");
    return TT_ERR_USAGE;
}

tt_status tt_bench_generate(const struct tt_bench_spec *spec, const struct tt_cancel *cancel,
                            struct tt_bench_generation *result)
{
    tt_status status = TT_OK;
    double start = tt_clock_seconds();
    struct generation_bench bench = {
        .spec = spec,
        .cancel = cancel,
        .batch = spec->job.run.per_device_train_batch_size,
        .rng = tt_rng_derive(tt_rng_make((uint64_t)spec->job.run.seed), "prompts"),
    };
    *result = (struct tt_bench_generation){0};
    TT_TRY(check_ranks(&spec->job.launch));
    bench.rows = spec->rows > 0 ? spec->rows : bench.batch;
    if (bench.batch > bench.rows) bench.batch = bench.rows;
    const struct tt_generation_limits limits = {.slots = bench.batch,
                                                .length = spec->prompt_tokens + spec->new_tokens};
    bench.prompt = tt_calloc((size_t)spec->prompt_tokens, sizeof *bench.prompt);
    if (bench.prompt == NULL) return TT_ERR_MEMORY;
    TT_GO(open_inputs(&bench));
    TT_GO(tt_generation_open(&spec->job.device, &bench.inputs, &limits, &bench.engine));
    result->load_seconds = tt_clock_seconds() - start;
    TT_GO(measure(&bench, result));
    measure_memory(&bench, result);
out:
    tt_generation_destroy(bench.engine);
    tt_free(bench.prompt);
    return status;
}
