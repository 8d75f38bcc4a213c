/* Questions beside the plan: the largest run that fits, what bounds its step, the units that are sharded. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "job/detect_inputs.h"
#include "model/retinanet.h"
#include "planning/offline.h"

/* A batch is bounded by what an index of its tokens can count, as tt_micro_batch_check; sizes of images as their
 * settings are. */
enum { BATCH_MAX = 524287, IMAGE_MIN = 32, IMAGE_MAX = 8192, LONGER_MAX = 16384 };

const char *tt_plan_max_setting(enum tt_plan_max what)
{
    static const char *const names[] = {[TT_PLAN_MAX_NONE] = "",
                                        [TT_PLAN_MAX_BATCH] = "per_device_train_batch_size",
                                        [TT_PLAN_MAX_LENGTH] = "sequence_length",
                                        [TT_PLAN_MAX_IMAGE_SIZE] = "image_size"};
    return names[what];
}

static void set_value(struct tt_plan_spec *spec, enum tt_plan_max what, int64_t value)
{
    struct tt_detect_spec *detect = &spec->job.detect;
    if (what == TT_PLAN_MAX_BATCH) spec->job.run.per_device_train_batch_size = value;
    if (what == TT_PLAN_MAX_LENGTH) spec->sequence_length = value;
    if (what != TT_PLAN_MAX_IMAGE_SIZE) return;
    detect->max_image_size =
        (2 * value * detect->max_image_size + detect->image_size) / (2 * detect->image_size);
    detect->image_size = value;
}

static tt_status try_value(const struct tt_plan_spec *spec, enum tt_plan_max what, int64_t value,
                           struct tt_plan *plan)
{
    struct tt_plan_spec other = *spec;
    set_value(&other, what, value);
    return tt_plan_offline_try(&other, plan);
}

/* The largest value that a run may have with unlimited memory. */
static tt_status find_bound(const struct tt_plan_spec *spec, enum tt_plan_max what, int64_t *bound)
{
    struct tt_model *model = NULL;
    const struct tt_detect_spec *detect = &spec->job.detect;
    *bound = what == TT_PLAN_MAX_BATCH ? BATCH_MAX : IMAGE_MAX;
    if (what == TT_PLAN_MAX_IMAGE_SIZE &&
        detect->max_image_size > LONGER_MAX / IMAGE_MAX * detect->image_size)
        *bound = LONGER_MAX * detect->image_size / detect->max_image_size;
    if (what != TT_PLAN_MAX_LENGTH) return TT_OK;
    TT_TRY(tt_plan_offline_model(spec, &model));
    *bound = model->facts.max_position_embeddings;
    tt_model_destroy(model);
    return TT_OK;
}

/* A batch that the data structures cannot hold is too large, as one that memory cannot. */
static tt_status try_fit(const struct tt_plan_spec *spec, enum tt_plan_max what, int64_t value,
                         struct tt_plan *plan, bool *possible)
{
    *possible = true;
    tt_status status = try_value(spec, what, value, plan);
    if (status == TT_OK) return TT_OK;
    bool too_large = status == TT_ERR_USAGE || status == TT_ERR_MEMORY;
    if (!too_large) return status;
    *possible = plan->fits = false;
    return TT_OK;
}

tt_status tt_plan_offline_largest(struct tt_plan_spec *spec, enum tt_plan_max what, struct tt_plan *plan,
                                  struct tt_plan_largest *largest)
{
    struct tt_plan other;
    bool possible = true;
    /* beyond: does not fit; 0: not known yet */
    int64_t fits = what == TT_PLAN_MAX_IMAGE_SIZE ? IMAGE_MIN : 1, bound, beyond = 0;
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
    if (what == TT_PLAN_MAX_IMAGE_SIZE) largest->max_image_size = spec->job.detect.max_image_size;
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

static tt_status has_batch_norm(const struct tt_plan_spec *spec, bool *found)
{
    if (spec->job.task != TT_TASK_DETECTION) return TT_OK;
    struct tt_model_facts *facts = tt_calloc(1, sizeof *facts);
    if (facts == NULL) return TT_ERR_MEMORY;
    tt_status status = tt_detect_network(&spec->job.detect, spec->num_classes, facts);
    if (status == TT_OK) *found = ((const struct tt_retinanet_config *)(const void *)facts->own)->batch_norm;
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
    TT_TRY(has_batch_norm(spec, &one_strategy));
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
