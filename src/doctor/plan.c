/* The needs of the run, from its plan: memory, disk, files. */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "doctor/doctor_impl.h"
#include "planning/offline.h"

/* Masters, optimizer state and the model's own file, which is no larger than the masters. */
static size_t checkpoint_bytes(const struct tt_plan *plan, enum tt_shard_strategy strategy)
{
    double masters = (double)plan->memory.peak[TT_PURPOSE_ADAPTERS],
           state = (double)plan->memory.peak[TT_PURPOSE_OPTIMIZER];
    int copies = strategy == TT_NO_SHARD       ? plan->ranks.count
                 : strategy == TT_HYBRID_SHARD ? plan->ranks.machines
                                               : 1;
    if (state == 0) state = 2 * masters;
    return (size_t)((2 * masters + state) * plan->ranks.count / copies);
}

void tt_doctor_plan(const struct tt_job_spec *job, const struct tt_world *world,
                    struct tt_doctor_needs *needs)
{
    struct tt_plan plan;
    bool is_gpu = strcmp(world->ranks[0].device.kind, "cuda") == 0;
    struct tt_plan_spec spec = {.job = *job, .device = is_gpu ? "cuda" : "cpu"};
    const char *model = job->model.model_name_or_path;
    *needs = (struct tt_doctor_needs){
        .kept = job->watch.save_total_limit > 0 ? job->watch.save_total_limit + 1 : 1,
        .grace_seconds = job->watch.grace_seconds};
    if (model == NULL || job->objective.ops == NULL || !tt_path_is_dir(model)) return;
    spec.job.launch.ranks = world->ranks_per_machine > 0 ? world->ranks_per_machine : world->local_count;
    spec.job.launch.num_machines = world->machine_count > 0 ? world->machine_count : 1;
    spec.job.launch.num_processes = 0;
    tt_status status = tt_plan_offline_try(&spec, &plan);
    if (status != TT_OK) {
        snprintf(needs->why, sizeof needs->why, "%.199s", tt_error_last()->message);
        tt_error_clear();
        return;
    }
    needs->known = true;
    needs->rank_bytes = plan.memory.host_total + (is_gpu ? 0 : plan.memory.total_peak);
    needs->device_bytes = is_gpu ? plan.memory.total_peak : 0;
    needs->checkpoint_bytes = checkpoint_bytes(&plan, job->shard.sharding_strategy);
}
