/* A training benchmark: a shape with random weights on random tokens, without files except config.json (`trimtab bench
 * train`). */
#ifndef TT_RUN_BENCH_H
#define TT_RUN_BENCH_H

#include "backend/profile.h"
#include "base/str.h"
#include "base/thread.h"
#include "job/spec.h"

struct tt_bench_result {
    double tokens_per_second; /* all ranks, median step */
    double step_seconds;      /* median */
    double model_tflops;      /* per second, all ranks, recompute not counted */
    /* from the call: to the plan; until all ranks have their weights; to the end of step 1 */
    double plan_seconds, load_seconds, first_step_seconds;
    double loss;       /* of the last step */
    size_t peak_bytes; /* peak resident memory of this process */
    /* Buffers on rank 0's device, without the driver's context: planned; what the device counted. */
    size_t planned_bytes, device_peak_bytes;
    size_t device_used_bytes;    /* by the driver's count; 0 where the device is the host */
    double planned_step_seconds; /* the plan's estimate; 0 on cpus */
    char recompute[96];          /* "recompute none": the plan's choice */
    bool recomputes_blocks;      /* at least one */
    int64_t base_params, trainable_params;
    /* of rank 0, a step: seconds by op and span; the rest is not in any */
    struct tt_op_time op_times[TT_SPAN_COUNT];
    /* of all ranks, in the profiled steps: the seconds that gathers took on their stream */
    int64_t gathers;
    double gather_median_seconds, gather_longest_seconds;
};

/* Runs the benchmark of `spec`. Only rank 0 of the run fills `result`; elsewhere it is zeroed. */
TT_MUST_USE tt_status tt_bench_train(const struct tt_bench_spec *spec, struct tt_cancel *cancel,
                                     struct tt_bench_result *result);

/* A benchmark of generation: a shape with random weights, `rows` prompts of random tokens, of which each rank runs the
 * batch size at a time, and answers of new_tokens each (`trimtab bench generate`). The ranks hold the model as those of
 * `generate` do (run/generate_run.h). */
struct tt_bench_generation {
    int ranks;
    enum tt_shard_strategy strategy; /* NO_SHARD: each rank holds the whole model */
    int64_t rows;
    double load_seconds;             /* from the call until all ranks have their weights */
    double first_seconds;            /* until every one of the first prompts has its first token */
    double prompt_tokens_per_second; /* of these prompts, in that time */
    double seconds;                  /* of all rows */
    double tokens_per_second;        /* new tokens of all rows, in `seconds`; > 0 */
    double decode_tokens_per_second; /* of the tokens after the first, as long as all first prompts run */
    double decode_step_seconds;
    int64_t passes, recorded_passes; /* of a rank; those that were launched as recorded work */
    size_t peak_bytes, planned_bytes, device_peak_bytes, device_used_bytes; /* as in tt_bench_result */
    size_t planned_used_bytes; /* the plan with the driver's context, which device_used_bytes has too */
    uint64_t sum;              /* of all new tokens and their places, to compare runs by */
    /* of rank 0, a pass with a token of every row: seconds by op */
    struct tt_op_time op_times[TT_SPAN_COUNT];
    struct tt_str memory; /* planned and measured, by purpose: lines without an end; owned */
};
/* Only rank 0 of the run fills `result`, which tt_bench_generation_deinit frees; elsewhere it is zeroed. */
TT_MUST_USE tt_status tt_bench_generate(const struct tt_bench_spec *spec, const struct tt_cancel *cancel,
                                        struct tt_bench_generation *result);
void tt_bench_generation_deinit(struct tt_bench_generation *result);

#endif
