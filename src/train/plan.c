#include "train/plan.h"

#include <stdio.h>

#include "base/alloc.h"

/* Sequence borders for a batch at its limits: as many full-length sequences as the tokens give. */
static int32_t *make_borders(const struct tt_batch_limits *limits)
{
    int32_t *borders = tt_calloc((size_t)limits->sequences + 1, sizeof *borders);
    if (borders == NULL) return NULL;
    for (int64_t b = 0; b < limits->sequences; b++) {
        int64_t next = borders[b] + limits->length;
        borders[b + 1] = (int32_t)(next < limits->tokens ? next : limits->tokens);
    }
    borders[limits->sequences] = (int32_t)limits->tokens;
    return borders;
}

static tt_status run_pass(struct tt_rank *rank, const struct tt_batch_limits *limits, bool train)
{
    if (limits->tokens == 0) return TT_OK;
    tt_status status = TT_OK;
    struct tt_step step;
    int32_t *borders = make_borders(limits);
    if (borders == NULL) return TT_ERR_MEMORY;
    struct tt_batch batch = {
        .token_count = limits->tokens,
        .sequence_count = limits->sequences,
        .max_length = limits->length,
        .cu_seqlens = borders,
        .row_count = limits->rows,
    };
    TT_GO(tt_rank_upload(rank, &batch, &step));
    step.training = train;
    step.gradient = train;
    TT_GO(tt_executor_forward(rank->executor, &step));
    if (train) TT_GO(tt_executor_backward(rank->executor, &step, true));
out:
    tt_executor_end(rank->executor);
    tt_free(borders);
    return status;
}

tt_status tt_plan_make(const struct tt_rank_config *config, int shard_ranks,
                       const struct tt_batch_limits *train_limits, const struct tt_batch_limits *eval_limits,
                       struct tt_plan *plan)
{
    tt_status status = TT_OK;
    struct tt_rank rank = {0};
    struct tt_rank_config planned = *config;
    struct tt_comm **comms = tt_calloc((size_t)shard_ranks, sizeof(struct tt_comm *));
    if (comms == NULL) return TT_ERR_MEMORY;
    TT_GO(tt_comm_create_threads(shard_ranks, comms));
    planned.device = (struct tt_device_config){.kind = "plan", .threads = 1};
    planned.world = planned.comm = comms[0];
    planned.replicate_comm = config->replicate_comm != NULL ? comms[0] : NULL;
    planned.cancel = NULL;
    plan->block_count = (int)config->model_config->num_hidden_layers + 2;
    enum tt_level level = config->recompute == TT_RECOMPUTE_AUTO ? TT_RECOMPUTE_BLOCK
                          : config->recompute == TT_RECOMPUTE_NO_BLOCK
                              ? TT_KEEP_CHEAP
                              : (enum tt_level)(config->recompute - 1);
    for (int i = 0; i < plan->block_count; i++) plan->levels[i] = level;
    planned.levels = plan->levels;
    planned.limits = tt_batch_limits_join(train_limits, eval_limits);
    TT_GO(tt_rank_init(&planned, &rank));
    if (config->train) TT_GO(run_pass(&rank, train_limits, true));
    TT_GO(run_pass(&rank, eval_limits, false));
    plan->workspace_bytes = tt_workspace_peak(rank.workspace);
    tt_device_memory(rank.device, &plan->memory);
    /* On the plan device the workspace has no end and no bytes: its high-water mark is what it will take. */
    plan->memory.peak[TT_PURPOSE_ACTIVATIONS] = plan->workspace_bytes;
    plan->memory.total_peak = 0;
    for (int p = 0; p < TT_PURPOSE_COUNT; p++) plan->memory.total_peak += plan->memory.peak[p];
out:
    if (status != TT_OK) tt_while("planning the memory of a rank");
    tt_rank_deinit(&rank);
    for (int r = 0; r < shard_ranks; r++) tt_comm_destroy(comms[r]);
    tt_free(comms);
    return status;
}

tt_status tt_plan_check(const struct tt_plan *plan, const struct tt_rank_config *rank, size_t limit)
{
    (void)rank;
    if (limit == 0 || plan->memory.total_peak <= limit) return TT_OK;
    char need[32], have[32], activations[32];
    tt_format_bytes((double)plan->memory.total_peak, need, sizeof need);
    tt_format_bytes((double)limit, have, sizeof have);
    tt_format_bytes((double)plan->workspace_bytes, activations, sizeof activations);
    (void)tt_fail(TT_ERR_MEMORY, "this run needs %s a rank, the limit is %s", need, have);
    size_t activation_bytes = plan->workspace_bytes;
    if (plan->levels[1] < TT_RECOMPUTE_BLOCK && activation_bytes > plan->memory.total_peak / 3)
        tt_hint(
            "activations take %s: --gradient_checkpointing true or a smaller --per_device_train_batch_size",
            activations);
    else if (activation_bytes > plan->memory.total_peak / 3)
        tt_hint("activations take %s: a smaller --per_device_train_batch_size (with more "
                "--gradient_accumulation_steps) or a smaller --max_length",
                activations);
    else
        tt_hint("weights take most of it: more --ranks with --sharding_strategy FULL_SHARD");
    return TT_ERR_MEMORY;
}

const char *tt_plan_recompute_text(const struct tt_plan *plan, char *text, size_t text_bytes)
{
    snprintf(text, text_bytes, "recompute %s", tt_level_name(plan->levels[1]));
    return text;
}

tt_status tt_plan_format(const struct tt_plan *plan, int ranks, struct tt_str *text)
{
    char amount[32];
    TT_TRY(tt_str_printf(text, "memory of a rank (%d in all), planned:", ranks));
    for (int p = 0; p < TT_PURPOSE_COUNT; p++) {
        if (plan->memory.peak[p] == 0) continue;
        TT_TRY(tt_str_printf(text, "\n  %-22s %12s", tt_purpose_name((enum tt_purpose)p),
                             tt_format_bytes((double)plan->memory.peak[p], amount, sizeof amount)));
    }
    return tt_str_printf(text, "\n  %-22s %12s", "in all",
                         tt_format_bytes((double)plan->memory.total_peak, amount, sizeof amount));
}
