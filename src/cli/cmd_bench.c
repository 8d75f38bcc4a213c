#include <stddef.h>
#include <string.h>

#include "cli/job_call.h"
#include "run/bench.h"

struct bench_command {
    struct tt_bench_spec spec; /* must be first: the offsets of its settings apply here */
    struct tt_job_call call;
};

static size_t list_sections(struct tt_setting_section *sections)
{
    return tt_job_call_sections(TT_JOB_BENCH, NULL, offsetof(struct bench_command, call), sections);
}

/* {"gemm": 5.1, ...}: seconds of each op that was called, by step or pass. */
static struct tt_json_value *profile_object(const struct tt_op_time *op_times)
{
    struct tt_json_value *object = tt_json_new_object();
    for (int op = 0; op < TT_SPAN_COUNT; op++)
        if (op_times[op].calls > 0)
            tt_json_set(object, tt_op_name((enum tt_op)op), tt_json_new_real(op_times[op].seconds));
    return object;
}

static tt_status print_result(struct tt_cli *cli, const struct bench_command *command,
                              const struct tt_bench_result *result)
{
    const struct tt_job_spec *config = &command->spec.job;
    struct tt_json_value *object = tt_json_pack(
        "{s:s,s:I,s:I,s:f,s:f,s:f,s:f,s:I,s:I,s:I,s:I,s:I,s:s,s:b,s:f,s:s,s:f,s:I}", "config",
        command->spec.config_json, "batch", (int64_t)config->run.per_device_train_batch_size,
        "sequence_length", (int64_t)command->spec.sequence_length, "tokens_per_second",
        result->tokens_per_second, "step_seconds", result->step_seconds, "model_tflops", result->model_tflops,
        "first_step_seconds", result->first_step_seconds, "peak_bytes", (int64_t)result->peak_bytes,
        "device_peak_bytes", (int64_t)result->device_peak_bytes, "planned_bytes",
        (int64_t)result->planned_bytes, "base_params", (int64_t)result->base_params, "trainable_params",
        (int64_t)result->trainable_params, "dtype", config->device.bf16 ? "bfloat16" : "float32",
        "gradient_checkpointing", (int)result->recomputes_blocks, "loss", result->loss, "recompute",
        result->recompute + strlen("recompute "), "planned_step_seconds", result->planned_step_seconds,
        "device_used_bytes", (int64_t)result->device_used_bytes);
    struct tt_json_value *gathers =
        tt_json_pack("{s:I,s:f,s:f}", "count", result->gathers, "median_seconds",
                     result->gather_median_seconds, "longest_seconds", result->gather_longest_seconds);
    tt_json_set(object, "plan_seconds", tt_json_new_real(result->plan_seconds));
    tt_json_set(object, "load_seconds", tt_json_new_real(result->load_seconds));
    tt_json_set(object, "gathers", gathers);
    tt_json_set(object, "seconds_by_op", profile_object(result->op_times));
    return tt_report_print_json(cli->report, object, 0);
}

static struct tt_json_value *generation_object(const struct tt_bench_spec *spec,
                                               const struct tt_bench_generation *result)
{
    struct tt_json_value *object = tt_json_pack(
        "{s:s,s:I,s:s,s:I,s:I,s:I,s:I,s:s,s:f,s:f,s:f,s:f,s:f,s:f,s:f,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I}",
        "config", spec->config_json, "ranks", (int64_t)result->ranks, "sharding_strategy",
        tt_shard_strategy_name(result->strategy), "batch", (int64_t)spec->job.run.per_device_train_batch_size,
        "rows", result->rows, "prompt_tokens", spec->prompt_tokens, "new_tokens", spec->new_tokens, "dtype",
        spec->job.device.bf16 ? "bfloat16" : "float32", "tokens_per_second", result->tokens_per_second,
        "decode_tokens_per_second", result->decode_tokens_per_second, "decode_step_seconds",
        result->decode_step_seconds, "prompt_tokens_per_second", result->prompt_tokens_per_second,
        "first_seconds", result->first_seconds, "seconds", result->seconds, "load_seconds",
        result->load_seconds, "passes", result->passes, "recorded_passes", result->recorded_passes,
        "peak_bytes", (int64_t)result->peak_bytes, "planned_bytes", (int64_t)result->planned_bytes,
        "device_peak_bytes", (int64_t)result->device_peak_bytes, "planned_used_bytes",
        (int64_t)result->planned_used_bytes, "device_used_bytes", (int64_t)result->device_used_bytes, "sum",
        (int64_t)(result->sum >> 1));
    tt_json_set(object, "seconds_by_op", profile_object(result->op_times));
    return object;
}

static tt_status print_generation(struct tt_cli *cli, const struct tt_bench_spec *spec,
                                  const struct tt_bench_generation *result)
{
    tt_report_line(cli->report, tt_str_text(&result->memory));
    return tt_report_print_json(cli->report, generation_object(spec, result), 0);
}

static tt_status run_generation(struct tt_cli *cli, const struct tt_bench_spec *spec)
{
    struct tt_bench_generation result;
    TT_TRY(tt_bench_generate(spec, cli->cancel, &result));
    bool here = result.tokens_per_second > 0; /* only rank 0 has it */
    tt_status status = here ? print_generation(cli, spec, &result) : TT_OK;
    tt_bench_generation_deinit(&result);
    return status;
}

static bool is_generation(const char *word)
{
    return strcmp(word, "generate") == 0;
}

static tt_status parse_words(int argc, char *const *argv, int *count)
{
    *count = 1;
    if (argc >= 1 && (strcmp(argv[0], "train") == 0 || is_generation(argv[0]))) return TT_OK;
    tt_status status = argc == 0 ? tt_fail(TT_ERR_USAGE, "bench needs the name of a benchmark")
                                 : tt_fail(TT_ERR_USAGE, "there is no benchmark '%s'", argv[0]);
    tt_hint("trimtab bench train --config_json bench/shapes/q05b.json");
    return status;
}

static tt_status resolve(void *target, struct tt_settings *settings)
{
    struct bench_command *command = target;
    TT_TRY(tt_job_call_read(&command->call, settings));
    return tt_bench_resolve(settings, &command->spec);
}

static tt_status run(struct tt_cli *cli, const struct tt_command_call *call)
{
    const struct bench_command *command = call->target;
    struct tt_bench_result result;
    if (command->call.print_config) return tt_job_call_print(cli, call->settings);
    if (is_generation(call->argv[0])) return run_generation(cli, &command->spec);
    TT_TRY(tt_bench_train(&command->spec, cli->cancel, &result));
    /* only rank 0 has it */
    return result.tokens_per_second > 0 ? print_result(cli, command, &result) : TT_OK;
}

const struct tt_command_ops tt_cmd_bench = {
    .usage = " train|generate --config_json FILE [--per_device_train_batch_size N] [--sequence_length N]",
    .sections = list_sections,
    .target_bytes = sizeof(struct bench_command),
    .parse_words = parse_words,
    .resolve = resolve,
    .run = run,
};
