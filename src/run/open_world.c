#include "run/open_world.h"

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
    TT_GO(tt_job_compared(kind, spec, &settings));
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
