#include "run/open_world.h"

#include <string.h>

#include "backend/gpu_health.h"
#include "engine/rank_config.h"
#include "job/compared.h"

tt_status tt_run_open_world(enum tt_job_kind kind, const void *spec, const struct tt_cancel *cancel,
                            struct tt_world *world)
{
    static const char *const commands[TT_JOB_KINDS] = {[TT_JOB_TRAIN] = "train",
                                                       [TT_JOB_EVALUATE] = "eval",
                                                       [TT_JOB_BENCH] = "bench",
                                                       [TT_JOB_GENERATE] = "generate"};
    const struct tt_job_spec *job = spec; /* every kind begins with one */
    struct tt_str settings = {0};
    tt_status status = TT_OK;
    TT_GO(tt_job_compared(kind, spec, 0, &settings));
    struct tt_world_config config = {
        .launch = &job->launch,
        .device = &job->device,
        .command = commands[kind],
        .settings = tt_str_text(&settings),
        .cancel = cancel,
    };
    status = tt_world_open(&config, world);
out:
    tt_str_deinit(&settings);
    return status;
}

tt_status tt_run_open_rank(const struct tt_rank_config *shared, const struct tt_plan *plan,
                           struct tt_load_source source, const struct tt_cancel *cancel,
                           const struct tt_world_rank *place, struct tt_rank *rank)
{
    const struct tt_rank_config config = tt_rank_config_of(shared, place, plan);
    tt_comm_set_activity(place->comm, "loading the model");
    TT_TRY(tt_comm_agree(place->comm, tt_rank_init(&config, rank)));
    source.cancel = cancel;
    return tt_rank_load(rank, &source);
}

uint64_t tt_run_unused_memory(const struct tt_world *world)
{
    uint64_t least = UINT64_MAX;
    for (int i = 0; i < world->local_count; i++) {
        const struct tt_device_config *device = &world->ranks[i].device;
        struct tt_gpu_health gpu;
        if (strcmp(device->kind, "cuda") != 0 || !tt_gpu_health_read(device->index, &gpu)) continue;
        if (gpu.used_bytes < 0 || gpu.total_bytes < gpu.used_bytes) continue;
        uint64_t unused = (uint64_t)(gpu.total_bytes - gpu.used_bytes);
        if (unused < least) least = unused;
    }
    return least;
}
