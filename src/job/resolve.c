/* From settings as given to settings in force: what follows from what, and what does not go together. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/ascii.h"
#include "base/number.h"
#include "config/value.h"
#include "job/accelerate.h"
#include "job/settings.h"
#include "optim/schedule.h"

static tt_status set_derived(struct tt_settings *settings, const char *name, const char *value,
                             const char *from)
{
    char origin[200];
    if (tt_settings_is_set(settings, name)) return TT_OK;
    const char *source = tt_settings_origin(settings, from);
    if (source != NULL)
        snprintf(origin, sizeof origin, "%s (%s)", from, source);
    else
        snprintf(origin, sizeof origin, "%s", from);
    return tt_settings_set(settings, name, value, origin);
}

/* transformers' `fsdp`: words such as "full_shard auto_wrap offload". */
static tt_status resolve_fsdp_word(struct tt_settings *settings, const char *word)
{
    static const struct {
        const char *word, *strategy;
    } known[] = {
        {"full_shard", "FULL_SHARD"},
        {"shard_grad_op", "SHARD_GRAD_OP"},
        {"no_shard", "NO_SHARD"},
        {"hybrid_shard", "HYBRID_SHARD"},
        {"true", "FULL_SHARD"},
        {"hybrid_shard_zero2", "HYBRID_SHARD"},
        {"false", NULL},
        {"auto_wrap", NULL},
    };
    if (tt_ascii_same(word, "offload")) return set_derived(settings, "offload_params", "true", "fsdp");
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (!tt_ascii_same(word, known[i].word)) continue;
        return known[i].strategy != NULL
                   ? set_derived(settings, "sharding_strategy", known[i].strategy, "fsdp")
                   : TT_OK;
    }
    tt_status status = tt_fail(TT_ERR_USAGE, "%s: 'fsdp' has an unknown word '%.60s'",
                               tt_settings_origin(settings, "fsdp"), word);
    tt_hint("it takes one of full_shard, shard_grad_op, no_shard, hybrid_shard, and auto_wrap, offload");
    return status;
}

static tt_status resolve_fsdp(struct tt_settings *settings, const char *fsdp)
{
    char word[64];
    for (const char *at = fsdp; at != NULL && *at != 0;) {
        size_t bytes = strcspn(at, " ,");
        snprintf(word, sizeof word, "%.*s", (int)(bytes < sizeof word ? bytes : sizeof word - 1), at);
        if (bytes > 0) TT_TRY(resolve_fsdp_word(settings, word));
        at += bytes;
        at += strspn(at, " ,");
    }
    return TT_OK;
}

/* accelerate's flags that say in their own words what other settings do. */
static tt_status resolve_launcher_words(struct tt_settings *settings, const struct tt_train_config *config)
{
    const char *reshard = config->fsdp_reshard_after_forward;
    bool on;
    if (reshard != NULL && tt_value_parse_bool(reshard, &on) && strcmp(reshard, "1") != 0)
        reshard = on ? "FULL_SHARD" : "SHARD_GRAD_OP";
    if (reshard != NULL)
        TT_TRY(set_derived(settings, "sharding_strategy", reshard, "fsdp_reshard_after_forward"));
    if (config->fsdp_activation_checkpointing)
        TT_TRY(set_derived(settings, "gradient_checkpointing", "true", "fsdp_activation_checkpointing"));
    if (config->param_dtype == NULL) return TT_OK;
    return set_derived(settings, "bf16", strcmp(config->param_dtype, "bfloat16") == 0 ? "true" : "false",
                       "param_dtype");
}

/* mpirun, srun and torchrun start one process per rank: then num_processes is theirs, not ours to start. */
static bool is_launched_per_rank(void)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK",
                                        "LOCAL_RANK",           "RANK",     "SLURM_STEP_ID"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (getenv(names[i]) != NULL) return true;
    return false;
}

static tt_status resolve_ranks(struct tt_settings *settings, const struct tt_train_config *config)
{
    char ranks[32];
    if (config->num_processes <= 0 || config->num_machines > 1 || is_launched_per_rank()) return TT_OK;
    snprintf(ranks, sizeof ranks, "%lld", (long long)config->num_processes);
    return set_derived(settings, "ranks", ranks, "num_processes");
}

/* Who asks for less memory in backward gets it: forward then needs no second buffer either. */
static tt_status resolve_prefetch(struct tt_settings *settings, const struct tt_train_config *config)
{
    if (config->backward_prefetch == TT_PREFETCH_PRE) return TT_OK;
    return set_derived(settings, "forward_prefetch", "false", "backward_prefetch");
}

static tt_status resolve_eval_steps(struct tt_settings *settings, const struct tt_train_config *config)
{
    char steps[48];
    if (config->eval_strategy != TT_INTERVAL_STEPS || config->eval_steps > 0) return TT_OK;
    tt_format_double(config->logging_steps, steps, sizeof steps);
    return tt_settings_set(settings, "eval_steps", steps, "logging_steps");
}

tt_status tt_train_settings_resolve(struct tt_settings *settings, struct tt_train_config *config)
{
    TT_TRY(resolve_fsdp(settings, config->fsdp));
    TT_TRY(resolve_launcher_words(settings, config));
    if (config->fsdp_config != NULL) TT_TRY(tt_fsdp_config_apply(config->fsdp_config, settings));
    TT_TRY(resolve_ranks(settings, config));
    TT_TRY(resolve_eval_steps(settings, config));
    TT_TRY(resolve_prefetch(settings, config));
    config->lora.enabled = config->use_peft;
    TT_TRY(tt_settings_check(settings));
    if (config->data.dataset_name == NULL) {
        tt_status status = tt_fail(TT_ERR_USAGE, "setting 'dataset_name' is missing");
        tt_hint(
            "give --dataset_name train.jsonl, or a line 'dataset_name: train.jsonl' in the file of --config");
        return status;
    }
    return tt_train_config_check(config);
}

enum tt_recompute tt_train_config_recompute(const struct tt_train_config *config)
{
    if (config->recompute != TT_RECOMPUTE_AUTO) return config->recompute;
    if (config->activation_offloading) return TT_RECOMPUTE_EVERY_OFFLOAD;
    if (config->gradient_checkpointing < 0) return TT_RECOMPUTE_AUTO;
    return config->gradient_checkpointing ? TT_RECOMPUTE_EVERY_BLOCK : TT_RECOMPUTE_NO_BLOCK;
}

const char *tt_train_config_device(const struct tt_train_config *config)
{
    return config->use_cpu ? "cpu" : config->device;
}

static tt_status usage(const char *message, const char *hint)
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
        tt_hint("to turn it off set %s_strategy to 'no'", name);
        return status;
    }
    if (steps < 1 || steps == floor(steps)) return TT_OK;
    return tt_fail(TT_ERR_USAGE, "%s_steps is %g: a whole number of steps, or a share below 1", name, steps);
}

static tt_status check_metric(const char *metric)
{
    static const char *const known[] = {"loss", "eval_loss", "mean_token_accuracy",
                                        "eval_mean_token_accuracy"};
    if (metric == NULL) return TT_OK;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(metric, known[i]) == 0) return TT_OK;
    tt_status status = tt_fail(TT_ERR_USAGE, "metric_for_best_model '%.60s' is not measured", metric);
    tt_hint("evaluations measure loss and mean_token_accuracy");
    return status;
}

/* The best checkpoint can only be picked among those that were evaluated (transformers has the same rule). */
static tt_status check_best(const struct tt_train_config *config)
{
    TT_TRY(check_metric(config->metric_for_best_model));
    if (config->save_strategy == TT_INTERVAL_BEST && config->eval_strategy == TT_INTERVAL_NO)
        return usage("save_strategy best needs evaluations", "set eval_strategy to steps or epoch");
    if (!config->load_best_model_at_end) return TT_OK;
    if (config->eval_strategy == TT_INTERVAL_NO)
        return usage("load_best_model_at_end needs evaluations",
                     "set eval_strategy to the same as save_strategy");
    if (config->save_strategy == TT_INTERVAL_BEST) return TT_OK;
    if (config->save_strategy != config->eval_strategy)
        return usage("load_best_model_at_end needs eval_strategy and save_strategy to be the same",
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

static tt_status check_watch(const struct tt_train_config *config)
{
    if (config->logging_strategy == TT_INTERVAL_BEST || config->eval_strategy == TT_INTERVAL_BEST)
        return usage("'best' is a save_strategy only", "use no, steps or epoch");
    TT_TRY(check_interval("logging", config->logging_strategy, config->logging_steps));
    TT_TRY(check_interval("eval", config->eval_strategy, config->eval_steps));
    TT_TRY(check_interval("save", config->save_strategy, config->save_steps));
    return check_best(config);
}

static tt_status check_optimizer(const struct tt_optim_config *optim)
{
    if (!(optim->learning_rate > 0))
        return usage("learning_rate must be above 0", "2e-4 is a usual start for LoRA");
    if (optim->warmup_steps >= 1 && optim->warmup_steps != floor(optim->warmup_steps))
        return usage("warmup_steps must be a whole number, or a share below 1",
                     "warmup_ratio takes a share too");
    return tt_schedule_check(optim);
}

static tt_status check_launch(const struct tt_train_config *config)
{
    if (config->machine_rank >= config->num_machines) {
        tt_status status = tt_fail(TT_ERR_USAGE, "machine_rank %lld is not below num_machines %lld",
                                   (long long)config->machine_rank, (long long)config->num_machines);
        tt_hint("machines are numbered from 0");
        return status;
    }
    if (config->num_machines > 1 && config->main_process_ip == NULL && getenv("MASTER_ADDR") == NULL)
        return usage("main_process_ip is missing for a run over several machines",
                     "it is the address of machine 0; MASTER_ADDR in the environment says it too");
    return TT_OK;
}

tt_status tt_train_config_check(const struct tt_train_config *config)
{
    if (config->bf16 && config->fp16) return usage("bf16 and fp16 are both on", "set one of them");
    if (config->use_cpu && config->device != NULL && strcmp(config->device, "cuda") == 0)
        return usage("use_cpu is on, and device is cuda", "set one of them");
    if (config->max_steps <= 0 && !(config->num_train_epochs > 0))
        return usage("there is nothing to train: max_steps and num_train_epochs are both 0",
                     "set one of them");
    TT_TRY(tt_quantization_check(&config->quantization, config->bf16 ? TT_BF16 : TT_F32));
    if (!config->use_peft && config->adapter_name_or_path != NULL)
        return usage("adapter_name_or_path is given, but use_peft is off",
                     "leave use_peft on to train the adapter on");
    TT_TRY(check_optimizer(&config->optim));
    TT_TRY(check_watch(config));
    return check_launch(config);
}
