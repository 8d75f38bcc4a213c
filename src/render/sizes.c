/* Memory, storage and times of a run, from its plan. */
#include <math.h>

#include "base/log.h"
#include "render/render.h"

/* Where the plan has no estimate: on processors. */
static const double unknown_step_seconds = 30;
/* A stop waits for the step in progress and writes a checkpoint; twice that, because disks and steps vary. */
static const double margin = 2;
enum { LEAST_GRACE_SECONDS = 60, SERVER_SECONDS = 10 /* that a server takes to end */ };
static const size_t mib = (size_t)1 << 20, gib = (size_t)1 << 30;

static size_t round_up(double bytes, size_t unit)
{
    return (size_t)ceil(bytes / (double)unit) * unit;
}

/* Masters, optimizer state and the model's own file, which is no larger than the masters. */
static size_t checkpoint_bytes(const struct tt_render_run *run)
{
    const struct tt_memory_use *memory = &run->plan->memory;
    double masters = (double)memory->peak[TT_PURPOSE_ADAPTERS],
           state = (double)memory->peak[TT_PURPOSE_OPTIMIZER];
    /* It is in host memory with offload_params, together with the frozen shards. */
    if (state == 0) state = run->moments * masters;
    return (size_t)((2 * masters + state) * run->plan->ranks.count / run->copies);
}

static tt_status check_memory(const struct tt_render_run *run, size_t least, size_t *memory)
{
    char given[32], needed[32];
    if (run->spec->memory == 0) {
        *memory = least;
        return TT_OK;
    }
    *memory = run->spec->memory;
    if (*memory >= least) return TT_OK;
    tt_status status =
        tt_fail(TT_ERR_USAGE, "memory %s (resources.limits.memory) is less than the %s of the plan, with %s",
                tt_format_bytes((double)*memory, given, sizeof given),
                tt_format_bytes((double)least, needed, sizeof needed), "reserve_memory and shm_size");
    tt_hint("leave memory out, or set reserve_memory to what this run needs beyond its buffers");
    return status;
}

static tt_status find_grace(const struct tt_render_run *run, struct tt_render_sizes *sizes)
{
    const struct tt_render_spec *spec = run->spec;
    double stop = 2 * sizes->step_seconds + sizes->save_seconds;
    int64_t least = (int64_t)ceil(margin * stop);
    if (least < LEAST_GRACE_SECONDS) least = LEAST_GRACE_SECONDS;
    sizes->grace = spec->grace_period > 0 ? spec->grace_period : least;
    if ((double)sizes->grace < stop) {
        tt_status status = tt_fail(
            TT_ERR_USAGE,
            "grace_period %lld (terminationGracePeriodSeconds) is less than the %.0f s that a stop takes",
            (long long)sizes->grace, ceil(stop));
        tt_hint("two steps of %.3g s and a save of %.3g s; step_seconds and storage_rate change the estimate",
                sizes->step_seconds, sizes->save_seconds);
        return status;
    }
    if (spec->spot_notice > 0 && (double)spec->spot_notice < stop)
        tt_warn("a stop takes %.0f s, more than the notice of %lld s: the machine ends before the save",
                ceil(stop), (long long)spec->spot_notice);
    return TT_OK;
}

/* Buffers of the ranks of a pod, with all beside them. */
static tt_status size_memory(const struct tt_render_run *run, struct tt_render_sizes *sizes)
{
    const struct tt_plan *plan = run->plan;
    double host = (double)plan->memory.host_total + (plan->is_host ? (double)plan->memory.total_peak : 0);
    sizes->shm = round_up((double)run->spec->shm_size, mib);
    return check_memory(
        run, round_up(host * run->ranks + (double)run->spec->reserve_memory + (double)sizes->shm, mib),
        &sizes->memory);
}

tt_status tt_render_size_server(struct tt_render_run *run)
{
    struct tt_render_sizes *sizes = &run->sizes;
    const struct tt_render_spec *spec = run->spec;
    *sizes = (struct tt_render_sizes){.tmp = spec->tmp_size > 0 ? round_up((double)spec->tmp_size, mib) : gib,
                                      .grace = TT_RENDER_LEAVE_SECONDS + run->drain_seconds + SERVER_SECONDS};
    return size_memory(run, sizes);
}

tt_status tt_render_size(struct tt_render_run *run)
{
    struct tt_render_sizes *sizes = &run->sizes;
    const struct tt_render_spec *spec = run->spec;
    const struct tt_plan *plan = run->plan;
    double claim;
    *sizes = (struct tt_render_sizes){0};
    TT_TRY(size_memory(run, sizes));
    sizes->checkpoint = checkpoint_bytes(run);
    /* records and rows; a save lies there until it is put */
    sizes->tmp = spec->tmp_size > 0
                     ? round_up((double)spec->tmp_size, mib)
                     : gib + (run->stores_output ? round_up((double)sizes->checkpoint, mib) : 0);
    /* one more while it is written, and one for the result */
    claim = (double)sizes->checkpoint * (double)((run->kept > 0 ? run->kept : spec->checkpoints) + 2);
    sizes->claim =
        spec->claim_size > 0 ? round_up((double)spec->claim_size, mib) : round_up(claim, gib) + gib;
    sizes->save_seconds = (double)sizes->checkpoint / (double)spec->storage_rate;
    sizes->step_seconds = spec->step_seconds > 0 ? spec->step_seconds : tt_plan_estimate(plan);
    if (sizes->step_seconds <= 0) sizes->step_seconds = unknown_step_seconds;
    return find_grace(run, sizes);
}
