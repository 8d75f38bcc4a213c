/* Resolving: settings that follow from others, and checks of contradictions (resolve.h). */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/number.h"
#include "comm/launcher.h"
#include "job/accelerate.h"
#include "job/eval_sets.h"
#include "job/resolve.h"
#include "job/task.h"
#include "model/lora_init.h"
#include "optim/groups.h"
#include "optim/optimizer.h"
#include "optim/schedule.h"

enum tt_recompute tt_job_recompute(const struct tt_shard_spec *shard)
{
    if (shard->recompute != TT_RECOMPUTE_AUTO) return shard->recompute;
    if (shard->gradient_checkpointing < 0) return TT_RECOMPUTE_AUTO;
    return shard->gradient_checkpointing ? TT_RECOMPUTE_EVERY_BLOCK : TT_RECOMPUTE_NO_BLOCK;
}

struct tt_model_options tt_job_model_options(const struct tt_model_spec *model,
                                             const struct tt_lora_config *lora,
                                             const struct tt_device_spec *device, bool random_init)
{
    struct tt_model_options options = {
        .compute_dtype = device->bf16 ? TT_BF16 : TT_F32,
        .random_init = random_init,
        .train_base = lora != NULL && !model->use_peft,
    };
    if (lora != NULL && model->use_peft) {
        options.lora = *lora;
        options.lora.enabled = true;
    }
    return options;
}

tt_status tt_job_usage(const char *message, const char *hint)
{
    tt_status status = tt_fail(TT_ERR_USAGE, "%s", message);
    tt_hint("%s", hint);
    return status;
}

static tt_status check_interval(const char *name, enum tt_interval strategy, double steps)
{
    if (strategy != TT_INTERVAL_STEPS) return TT_OK;
    if (!(steps > 0)) {
        tt_status status =
            tt_fail(TT_ERR_USAGE, "%s_steps must be above 0 when %s_strategy is steps", name, name);
        tt_hint("%s_strategy 'no' turns it off", name);
        return status;
    }
    if (steps < 1 || steps == floor(steps)) return TT_OK;
    return tt_fail(TT_ERR_USAGE, "%s_steps is %g: a whole number of steps, or a share below 1", name, steps);
}

/* Losses by set are those of rows that stand alone. */
static tt_status check_eval_sets(const struct tt_job_spec *job)
{
    if (!tt_eval_sets_are_named(&job->data)) return TT_OK;
    if (tt_tasks[job->task]->writes_text && job->objective.ops->rows == NULL) return TT_OK;
    return tt_job_usage(
        "several evaluation sets are of language models whose objective does not compare rows",
        "give one file or folder as eval_dataset");
}

static tt_status settle_metric(const struct tt_job_spec *job, struct tt_watch_spec *watch)
{
    const struct tt_objective *objective = &job->objective;
    char names[256];
    size_t set;
    const char *of_set;
    TT_TRY(tt_eval_sets_find(&job->data, watch->metric_for_best_model, &set, &of_set));
    watch->metric =
        tt_objective_best_metric(objective, of_set != NULL ? of_set : watch->metric_for_best_model);
    if (watch->metric != NULL) return TT_OK;
    tt_status status =
        tt_fail(TT_ERR_USAGE, "metric_for_best_model '%.60s' is not a metric", watch->metric_for_best_model);
    tt_objective_best_names(objective, names, sizeof names);
    tt_hint("evaluations measure %s%s", names,
            tt_eval_sets_are_named(&job->data) ? ", and each set its NAME_loss and NAME_mean_token_accuracy"
                                               : "");
    return status;
}

/* The best checkpoint can only be one that was evaluated (the same rule as in transformers). */
static tt_status check_best(const struct tt_watch_spec *config)
{
    if (config->eval_generate > 0 && config->eval_strategy == TT_INTERVAL_NO)
        return tt_job_usage("eval_generate needs evaluations", "set eval_strategy to steps or epoch");
    if (config->save_strategy == TT_INTERVAL_BEST && config->eval_strategy == TT_INTERVAL_NO)
        return tt_job_usage("save_strategy best needs evaluations", "set eval_strategy to steps or epoch");
    if (config->early_stopping_patience > 0 && config->eval_strategy == TT_INTERVAL_NO)
        return tt_job_usage("early_stopping_patience needs evaluations",
                            "set eval_strategy to steps or epoch");
    if (config->early_stopping_threshold > 0 && config->early_stopping_patience == 0)
        return tt_job_usage("early_stopping_threshold needs early_stopping_patience",
                            "set early_stopping_patience to a number of evaluations");
    if (config->early_stopping_patience > 0 && !config->load_best_model_at_end)
        tt_warn("early_stopping_patience without load_best_model_at_end: the result has the weights of the "
                "last step, "
                "not the best ones");
    if (!config->load_best_model_at_end) return TT_OK;
    if (config->eval_strategy == TT_INTERVAL_NO)
        return tt_job_usage("load_best_model_at_end needs evaluations",
                            "set eval_strategy to the same as save_strategy");
    if (config->save_strategy == TT_INTERVAL_BEST) return TT_OK;
    if (config->save_strategy != config->eval_strategy)
        return tt_job_usage("load_best_model_at_end needs eval_strategy and save_strategy to be the same",
                            "set both to steps, or both to epoch");
    if (config->save_strategy != TT_INTERVAL_STEPS) return TT_OK;
    double times = config->save_steps / config->eval_steps;
    if (fabs(times - round(times)) > 1e-9 * times || times < 0.5) {
        tt_status status = tt_fail(
            TT_ERR_USAGE, "load_best_model_at_end needs save_steps (%g) to be a multiple of eval_steps (%g)",
            config->save_steps, config->eval_steps);
        tt_hint("set save_steps and eval_steps to the same number");
        return status;
    }
    return TT_OK;
}

static tt_status check_watch(const struct tt_watch_spec *config)
{
    if (config->logging_strategy == TT_INTERVAL_BEST || config->eval_strategy == TT_INTERVAL_BEST)
        return tt_job_usage("'best' is a save_strategy only", "use no, steps or epoch");
    if ((config->report_to & TT_REPORT_NONE) != 0 && config->report_to != TT_REPORT_NONE)
        return tt_job_usage("report_to names 'none' and others", "leave 'none' out, or the others");
    TT_TRY(check_interval("logging", config->logging_strategy, config->logging_steps));
    TT_TRY(check_interval("eval", config->eval_strategy, config->eval_steps));
    TT_TRY(check_interval("save", config->save_strategy, config->save_steps));
    return check_best(config);
}

static void warn_of_order(const struct tt_run_spec *run, const struct tt_data_config *data)
{
    if (run->train_sampling_strategy == TT_SAMPLING_BY_LENGTH && data->packing)
        tt_warn("train_sampling_strategy group_by_length has no effect with packing: packs are filled to "
                "max_length");
}

static tt_status check_optimizer(const struct tt_optim_config *optim)
{
    if (!(optim->learning_rate > 0))
        return tt_job_usage("learning_rate must be above 0", "2e-4 is a usual start for LoRA");
    if (optim->warmup_steps >= 1 && optim->warmup_steps != floor(optim->warmup_steps))
        return tt_job_usage("warmup_steps must be a whole number, or a share below 1",
                            "warmup_ratio also sets a share");
    TT_TRY(tt_optimizer_check(optim));
    TT_TRY(tt_param_groups_check(optim));
    return tt_schedule_check(optim);
}

static bool launcher_has_address(void)
{
    for (int i = 0; i < TT_LAUNCHER_KINDS; i++)
        if (tt_launcher_read(tt_launchers[i].host) != NULL) return true;
    return false;
}

static tt_status check_launch(const struct tt_launch_spec *config)
{
    if (config->machine_rank >= config->num_machines) {
        tt_status status = tt_fail(TT_ERR_USAGE, "machine_rank %lld is not below num_machines %lld",
                                   (long long)config->machine_rank, (long long)config->num_machines);
        tt_hint("machines are numbered from 0");
        return status;
    }
    if (config->num_machines > 1 && config->main_process_ip == NULL && !launcher_has_address())
        return tt_job_usage(
            "main_process_ip is missing for a run over several machines",
            "it is the address of machine 0; the environment variable MASTER_ADDR also sets it");
    return TT_OK;
}

static tt_status check_model(const struct tt_settings *settings, const struct tt_job_spec *job)
{
    TT_TRY(tt_quantization_check(&job->quantization, job->device.bf16 ? TT_BF16 : TT_F32));
    bool full = tt_settings_has(settings, "use_peft") && !job->model.use_peft;
    if (full && job->model.adapter_name_or_path != NULL)
        return tt_job_usage("adapter_name_or_path is given, but use_peft is off",
                            "leave use_peft on to continue training the adapter");
    return TT_OK;
}

/* num_processes is the number of ranks of all machines. It is ignored under a launcher that starts one process per
 * rank.
 */
static tt_status settle_ranks(struct tt_settings *settings, const struct tt_job_spec *job)
{
    char ranks[32];
    if (job->launch.num_processes <= 0 || job->launch.num_machines < 1 || tt_launcher_is_per_rank())
        return TT_OK;
    bool divides = job->launch.num_processes % job->launch.num_machines == 0;
    if (job->launch.num_machines > 1 && (!divides || !tt_settings_is_set(settings, "ranks"))) return TT_OK;
    snprintf(ranks, sizeof ranks, "%lld", (long long)(job->launch.num_processes / job->launch.num_machines));
    return tt_settings_imply(settings, "num_processes", "ranks", ranks);
}

static tt_status settle_eval_steps(struct tt_settings *settings, const struct tt_job_spec *job)
{
    char steps[48];
    if (job->watch.eval_strategy != TT_INTERVAL_STEPS || job->watch.eval_steps > 0) return TT_OK;
    tt_format_double(job->watch.logging_steps, steps, sizeof steps);
    return tt_settings_set(settings, "eval_steps", steps, "logging_steps");
}

/* A backward_prefetch other than BACKWARD_PRE saves the second buffer for gathered blocks, so forward must not need it
 * either. */
static tt_status settle_prefetch(struct tt_settings *settings, const struct tt_job_spec *job)
{
    if (job->shard.backward_prefetch == TT_PREFETCH_PRE || !tt_settings_has(settings, "backward_prefetch"))
        return TT_OK;
    return tt_settings_suggest(settings, "forward_prefetch", "false", "backward_prefetch");
}

/* Words for float16, which needs loss scaling, mean half precision: bfloat16, which has float32's range. fp16 decides
 * over bf16: recipes for GPUs without bfloat16 have fp16: true and bf16: false. */
static tt_status settle_float16(struct tt_settings *settings, const struct tt_job_spec *job)
{
    const char *linears = job->quantization.load_in_4bit ? job->quantization.compute_dtype : NULL;
    if (job->device.fp16) {
        tt_info("fp16: the run computes in bfloat16, which needs no loss scaling");
        return tt_settings_set(settings, "bf16", "true", "fp16");
    }
    if (linears != NULL && strcmp(linears, "float16") == 0 && job->device.bf16)
        tt_info("bnb_4bit_compute_dtype float16: the quantized linears compute in bfloat16 like all others");
    return TT_OK;
}

/* torch.optim.Muon's. */
static tt_status settle_muon(struct tt_settings *settings, const struct tt_job_spec *job)
{
    if (!tt_settings_has(settings, "optim") || tt_optimizer_of(&job->optim)->rule->whole == NULL)
        return TT_OK;
    TT_TRY(tt_settings_suggest(settings, "momentum", "0.95", "optim: muon"));
    if (!(job->optim.momentum > 0)) return TT_OK;
    return tt_settings_suggest(settings, "nesterov", "true", "optim: muon");
}

/* A forced way of multiplying that declines the products of every run. */
static tt_status check_kernels(const struct tt_device_spec *device)
{
    if (device->tuning.cpu_gemm != TT_TUNING_GEMM_DOT || device->choice == TT_DEVICE_CUDA) return TT_OK;
    return tt_job_usage(
        "cpu_gemm dot multiplies a few rows at a time, and a run has products of many",
        "leave cpu_gemm out: auto uses it where there are few; dot alone is for benchmarks of products");
}

/* The part of resolving that all kinds of job have in common. */
static tt_status settle(struct tt_settings *settings, struct tt_job_spec *job)
{
    const struct tt_task_ops *task = tt_tasks[job->task];
    if (task->suggest != NULL) TT_TRY(task->suggest(settings, job));
    TT_TRY(tt_objective_suggest(settings, job));
    if (job->shard.fsdp_config != NULL) TT_TRY(tt_fsdp_config_apply(job->shard.fsdp_config, settings));
    TT_TRY(tt_settings_settle(settings));
    TT_TRY(settle_float16(settings, job));
    TT_TRY(settle_muon(settings, job));
    TT_TRY(settle_ranks(settings, job));
    TT_TRY(settle_eval_steps(settings, job));
    TT_TRY(settle_prefetch(settings, job));
    TT_TRY(tt_settings_check(settings));
    if (tt_settings_has(settings, "task")) TT_TRY(task->check(settings, job));
    TT_TRY(tt_objective_settle(settings, job));
    TT_TRY(check_eval_sets(job));
    TT_TRY(settle_metric(job, &job->watch));
    TT_TRY(check_kernels(&job->device));
    return check_model(settings, job);
}

static tt_status check_training(const struct tt_job_spec *job)
{
    if (job->run.max_steps <= 0 && !(job->run.num_train_epochs > 0))
        return tt_job_usage("the run has no steps: max_steps and num_train_epochs are both 0",
                            "set one of them");
    const struct tt_lora_init *init;
    int64_t number;
    if (job->model.use_peft) TT_TRY(tt_lora_init_find(job->lora.init_weights, &init, &number));
    TT_TRY(check_optimizer(&job->optim));
    warn_of_order(&job->run, &job->data);
    return check_watch(&job->watch);
}

/* Names of a profiler of steps in people's scripts; early stopping has settings of its own. */
static const char profiler_callback[] = "LLMStepProfiler";

static tt_status settle_callback(struct tt_settings *settings, const char *name, int bytes)
{
    static const char stopping[] = "EarlyStoppingCallback";
    if (bytes == (int)strlen(profiler_callback) && strncmp(name, profiler_callback, (size_t)bytes) == 0)
        return tt_settings_imply(settings, "callbacks", "profile", "true");
    tt_status status =
        tt_fail(TT_ERR_USAGE, "callbacks: '%.*s' is not supported", bytes < 80 ? bytes : 80, name);
    if (bytes == (int)strlen(stopping) && strncmp(name, stopping, (size_t)bytes) == 0)
        tt_hint("early_stopping_patience and early_stopping_threshold do what it does");
    else
        tt_hint("the only one is LLMStepProfiler, which is profile: true");
    return status;
}

/* A name, or a list of names, with or without quotes. */
static tt_status settle_callbacks(struct tt_settings *settings, const char *callbacks)
{
    static const char between[] = "[]\"', \t\n";
    for (const char *at = callbacks; at != NULL && *at != '\0';) {
        size_t bytes = strcspn(at, between);
        if (bytes > 0) TT_TRY(settle_callback(settings, at, (int)bytes));
        at += bytes > 0 ? bytes : 1;
    }
    return TT_OK;
}

tt_status tt_train_resolve(struct tt_settings *settings, struct tt_job_spec *job)
{
    TT_TRY(settle(settings, job));
    TT_TRY(settle_callbacks(settings, job->monitor.callbacks));
    TT_TRY(tt_tasks[job->task]->check_train(job));
    if (job->data.dataset_name != NULL && job->data.datasets != NULL)
        return tt_job_usage("dataset_name and datasets are both given", "datasets replaces dataset_name");
    TT_TRY(check_training(job));
    return check_launch(&job->launch);
}

/* There is no plan where no model is, and settings of a training need not be whole. A machine that does not come is
 * reported soon: the wait for it is not that for a whole cluster. */
tt_status tt_doctor_resolve(struct tt_settings *settings, struct tt_job_spec *job)
{
    if (!tt_settings_is_set(settings, "rendezvous_timeout"))
        TT_TRY(tt_settings_set(settings, "rendezvous_timeout", "30", "trimtab doctor"));
    if (job->model.model_name_or_path != NULL) {
        TT_TRY(settle(settings, job));
        return check_launch(&job->launch);
    }
    if (job->shard.fsdp_config != NULL) TT_TRY(tt_fsdp_config_apply(job->shard.fsdp_config, settings));
    TT_TRY(tt_settings_settle(settings));
    TT_TRY(settle_float16(settings, job));
    TT_TRY(settle_ranks(settings, job));
    return check_launch(&job->launch);
}

tt_status tt_plan_resolve(struct tt_settings *settings, struct tt_plan_spec *spec)
{
    TT_TRY(settle(settings, &spec->job));
    const struct tt_task_ops *task = tt_tasks[spec->job.task];
    if (task->check_plan != NULL) TT_TRY(task->check_plan(spec));
    spec->chooses_sharding = !tt_settings_is_set(settings, "sharding_strategy");
    return check_training(&spec->job);
}

tt_status tt_bench_resolve(struct tt_settings *settings, struct tt_bench_spec *spec)
{
    TT_TRY(settle(settings, &spec->job));
    if (spec->row_tokens_min > spec->row_tokens_max)
        return tt_fail(TT_ERR_USAGE, "row_tokens_min %lld is more than row_tokens_max %lld",
                       (long long)spec->row_tokens_min, (long long)spec->row_tokens_max);
    spec->chooses_sharding = !tt_settings_is_set(settings, "sharding_strategy");
    TT_TRY(check_optimizer(&spec->job.optim));
    return check_launch(&spec->job.launch);
}

/* Resolves jobs that use a model without training it. */
static tt_status settle_inference(struct tt_settings *settings, struct tt_job_spec *job)
{
    TT_TRY(settle(settings, job));
    if (job->model.init == TT_INIT_RANDOM)
        return tt_job_usage("init is random, but this command needs the weights of a folder",
                            "leave init out");
    return TT_OK;
}

tt_status tt_evaluate_resolve(struct tt_settings *settings, struct tt_job_spec *job)
{
    TT_TRY(settle_inference(settings, job));
    TT_TRY(tt_tasks[job->task]->check_evaluate(job));
    return check_launch(&job->launch);
}

tt_status tt_evaluate_tasks_resolve(struct tt_settings *settings, struct tt_job_spec *job,
                                    bool *chooses_sharding)
{
    TT_TRY(settle_inference(settings, job));
    *chooses_sharding = !tt_settings_is_set(settings, "sharding_strategy");
    return check_launch(&job->launch);
}

static bool wants_sampling(const struct tt_generate_config *config, const struct tt_settings *settings)
{
    if (config->temperature == 0) return false;
    if (config->do_sample >= 0) return config->do_sample == 1;
    return tt_settings_is_set(settings, "temperature") || tt_settings_is_set(settings, "top_k") ||
           tt_settings_is_set(settings, "top_p") || tt_settings_is_set(settings, "min_p");
}

tt_status tt_generate_resolve(struct tt_settings *settings, struct tt_job_spec *job,
                              struct tt_generate_config *generate)
{
    TT_TRY(settle_inference(settings, job));
    generate->do_sample = wants_sampling(generate, settings);
    generate->chooses_batch = !tt_settings_is_set(settings, "per_device_eval_batch_size");
    if (!tt_settings_has(settings, "sharding_strategy")) return TT_OK; /* one rank, of the library */
    generate->chooses_sharding = !tt_settings_is_set(settings, "sharding_strategy");
    return check_launch(&job->launch);
}
