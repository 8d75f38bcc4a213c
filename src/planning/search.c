/* Questions beside the plan: the largest run that fits, what bounds its step, the units that are sharded. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "job/task.h"
#include "planning/offline.h"

/* A batch is bounded by what an index of its tokens can count, as tt_micro_batch_check. */
enum { BATCH_MAX = 524287 };

/* NULL: the batch, which all tasks have. */
static const struct tt_task_size *size_of(int what)
{
    return what >= TT_PLAN_MAX_SIZE ? &tt_tasks[what - TT_PLAN_MAX_SIZE]->size : NULL;
}

const char *tt_plan_max_setting(int what)
{
    const struct tt_task_size *size = size_of(what);
    return size != NULL ? size->setting : "per_device_train_batch_size";
}

static void set_value(struct tt_plan_spec *spec, int what, int64_t value)
{
    const struct tt_task_size *size = size_of(what);
    if (size != NULL)
        size->set(spec, value);
    else
        spec->job.run.per_device_train_batch_size = value;
}

static tt_status try_value(const struct tt_plan_spec *spec, int what, int64_t value, struct tt_plan *plan)
{
    struct tt_plan_spec other = *spec;
    set_value(&other, what, value);
    return tt_plan_offline_try(&other, plan);
}

/* The largest value that a run may have with unlimited memory. */
static tt_status find_bound(const struct tt_plan_spec *spec, int what, int64_t *bound)
{
    struct tt_model *model = NULL;
    const struct tt_task_size *size = size_of(what);
    *bound = BATCH_MAX;
    if (size == NULL) return TT_OK;
    TT_TRY(tt_plan_offline_model(spec, &model));
    *bound = size->most(spec, &model->facts);
    tt_model_destroy(model);
    return TT_OK;
}

/* A batch that the data structures cannot hold is too large, as one that memory cannot. */
static tt_status try_fit(const struct tt_plan_spec *spec, int what, int64_t value, struct tt_plan *plan,
                         bool *possible)
{
    *possible = true;
    tt_status status = try_value(spec, what, value, plan);
    if (status == TT_OK) return TT_OK;
    bool too_large = status == TT_ERR_USAGE || status == TT_ERR_MEMORY;
    if (!too_large) return status;
    *possible = plan->fits = false;
    return TT_OK;
}

tt_status tt_plan_offline_largest(struct tt_plan_spec *spec, int what, struct tt_plan *plan,
                                  struct tt_plan_largest *largest)
{
    struct tt_plan other;
    bool possible = true;
    const struct tt_task_size *size = size_of(what);
    /* beyond: does not fit; 0: not known yet */
    int64_t fits = size != NULL ? size->least : 1, bound, beyond = 0;
    *largest = (struct tt_plan_largest){0};
    TT_TRY(find_bound(spec, what, &bound));
    TT_TRY(try_value(spec, what, fits, plan));
    if (plan->limit_bytes == 0) {
        tt_status status =
            tt_fail(TT_ERR_USAGE, "%s has no limit of memory, so every size fits", plan->device);
        tt_hint("give the limit with --device_memory, or a chip with --device");
        return status;
    }
    if (!plan->fits) return tt_plan_check(plan);
    while (fits < bound && (beyond == 0 || fits + 1 < beyond)) {
        int64_t next = beyond == 0 ? (fits * 2 < bound ? fits * 2 : bound) : fits + (beyond - fits) / 2;
        TT_TRY(try_fit(spec, what, next, &other, &possible));
        *(other.fits ? &fits : &beyond) = next;
    }
    TT_TRY(try_value(spec, what, fits, plan));
    if (fits < bound) TT_TRY(try_fit(spec, what, fits + 1, &other, &possible));
    set_value(spec, what, fits);
    largest->value = fits;
    if (size != NULL && size->follows != NULL) {
        largest->follows = size->follows;
        largest->follower = size->follower(spec);
    }
    largest->bounded = fits == bound || !possible;
    if (!largest->bounded) largest->next_bytes = tt_plan_need(&other);
    return TT_OK;
}

/* Bytes of a tensor in the shard of all ranks together: trainable ones are fp32 masters. */
static int64_t stored_bytes(const tt_param *param)
{
    return tt_param_stored_count(param) *
           (int64_t)(param->trainable ? 4 : tt_dtype_bytes(param->stored_dtype));
}

static const char *type_name(const tt_param *param)
{
    if (tt_param_is_quantized(param)) return tt_quant_type_name(param->quant.format.type);
    return tt_dtype_name(param->trainable ? TT_F32 : param->stored_dtype);
}

static bool holds(const struct tt_block *block, const tt_param *param)
{
    for (size_t p = 0; p < block->param_count; p++)
        if (block->params[p] == param) return true;
    return false;
}

/* The tensors of block `b`, without those of an earlier block of the same unit (tied tensors). */
static tt_status format_tensors(const struct tt_model *model, int b, int width, int64_t *bytes,
                                struct tt_str *text)
{
    const struct tt_block *block = &model->blocks[b];
    for (size_t p = 0; p < block->param_count; p++) {
        const tt_param *param = block->params[p];
        char shape[64] = "";
        bool seen = false;
        for (int earlier = 0; earlier < b; earlier++)
            seen |= model->unit_of_block[earlier] == model->unit_of_block[b] &&
                    holds(&model->blocks[earlier], param);
        if (seen) continue;
        for (int d = 0, used = 0; d < param->rank; d++)
            used += snprintf(shape + used, sizeof shape - (size_t)used, "%s%lld", d > 0 ? " x " : "",
                             (long long)param->dims[d]);
        *bytes += stored_bytes(param);
        TT_TRY(tt_str_printf(text, "  %-*s %-5s %-14s %10lld  %s\n", width, param->name, type_name(param),
                             shape, (long long)stored_bytes(param),
                             param->trainable ? "trainable" : "frozen"));
    }
    return TT_OK;
}

static tt_status format_unit(const struct tt_model *model, int unit, int width, int64_t *all,
                             struct tt_str *text)
{
    tt_status status = TT_OK;
    struct tt_str tensors = {0};
    int64_t bytes = 0;
    const char *name = NULL;
    for (int b = 0; b < model->block_count; b++) {
        if (model->unit_of_block[b] != unit) continue;
        if (name == NULL) name = model->blocks[b].name;
        TT_GO(format_tensors(model, b, width, &bytes, &tensors));
    }
    *all += bytes;
    TT_GO(tt_str_printf(text, "unit %d: %s, %lld bytes\n", unit, name != NULL ? name : "", (long long)bytes));
    TT_GO(tt_str_append_text(text, tt_str_text(&tensors)));
out:
    tt_str_deinit(&tensors);
    return status;
}

static int longest_name(const struct tt_model *model)
{
    size_t most = 0;
    for (int b = 0; b < model->block_count; b++)
        for (size_t p = 0; p < model->blocks[b].param_count; p++) {
            size_t bytes = strlen(model->blocks[b].params[p]->name);
            if (bytes > most) most = bytes;
        }
    return (int)most;
}

tt_status tt_plan_offline_units(const struct tt_plan_spec *spec, struct tt_str *text)
{
    tt_status status = TT_OK;
    struct tt_model *model = NULL;
    int64_t bytes = 0;
    char counts[160];
    TT_GO(tt_plan_offline_model(spec, &model));
    for (int u = 0; u < model->unit_count; u++)
        TT_GO(format_unit(model, u, longest_name(model), &bytes, text));
    TT_GO(tt_str_printf(text, "%d units, %lld bytes\n%s\n", model->unit_count, (long long)bytes,
                        tt_model_format_counts(model, counts, sizeof counts)));
out:
    tt_model_destroy(model);
    return status;
}

/* Shorter by more than 2 %: the estimate is not exact enough to prefer less. */
static bool is_faster(double seconds, double than)
{
    return seconds < 0.98 * than;
}

/* The strategy cannot be another where every rank holds the whole network. */
static tt_status has_one_strategy(const struct tt_plan_spec *spec, bool *one)
{
    const struct tt_task_ops *task = tt_tasks[spec->job.task];
    struct tt_arena arena = {0};
    struct tt_model_options options;
    if (task->is_whole == NULL) return TT_OK;
    struct tt_model_facts *facts = tt_calloc(1, sizeof *facts);
    if (facts == NULL) return TT_ERR_MEMORY;
    tt_status status = task->network(spec, &arena, facts, &options);
    if (status == TT_OK) *one = task->is_whole(facts);
    tt_arena_deinit(&arena);
    tt_free(facts);
    return status;
}

/* Tries the other strategies, and proposes the fastest that fits. */
static tt_status find_faster(const struct tt_plan_spec *spec, const struct tt_plan *plan, struct tt_str *text)
{
    /* The strategy with the least memory comes first among equally fast ones. */
    static const enum tt_shard_strategy order[] = {TT_FULL_SHARD, TT_HYBRID_SHARD, TT_SHARD_GRAD_OP,
                                                   TT_NO_SHARD};
    enum tt_shard_strategy found = spec->job.shard.sharding_strategy;
    double seconds = plan->step_seconds;
    char bytes[32] = "";
    bool one_strategy = false;
    TT_TRY(has_one_strategy(spec, &one_strategy));
    if (one_strategy) return TT_OK;
    for (size_t s = 0; s < sizeof order / sizeof *order; s++) {
        struct tt_plan_spec other = *spec;
        struct tt_plan tried;
        other.job.shard.sharding_strategy = order[s];
        bool same = order[s] == spec->job.shard.sharding_strategy;
        if (same || (order[s] == TT_HYBRID_SHARD && plan->ranks.machines == 1)) continue;
        TT_TRY(tt_plan_offline_try(&other, &tried));
        if (!tried.fits || !is_faster(tried.step_seconds, seconds)) continue;
        found = order[s];
        seconds = tried.step_seconds;
        tt_format_bytes((double)tried.memory.total_peak, bytes, sizeof bytes);
    }
    if (found == spec->job.shard.sharding_strategy) return TT_OK;
    return tt_str_printf(text, "  faster: --sharding_strategy %s, %.3g s a step (%s a rank)\n",
                         tt_shard_strategy_name(found), seconds, bytes);
}

tt_status tt_plan_offline_bounds(const struct tt_plan_spec *spec, const struct tt_plan *plan,
                                 struct tt_str *text)
{
    double seconds = tt_plan_estimate(plan);
    if (seconds <= 0.0 || plan->ranks.count == 1) return TT_OK;
    if (plan->ranks.machines > 1) {
        struct tt_plan_spec other = *spec;
        struct tt_plan fast;
        other.network_bandwidth = (size_t)1 << 50;
        TT_TRY(tt_plan_offline_try(&other, &fast));
        if (is_faster(fast.step_seconds, seconds))
            TT_TRY(tt_str_printf(
                text, "  bounded by the network between machines: %.3g s a step, %.3g s if it took no time\n",
                seconds, fast.step_seconds));
    }
    return find_faster(spec, plan, text);
}
