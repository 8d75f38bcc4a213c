#include "run/monitoring.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "launch/launch.h"
#include "run/row_times.h"

static tt_status open_endpoints(struct tt_monitoring *monitoring, int local_rank)
{
    int64_t port = monitoring->spec->metrics_port;
    if (port > 0) port += local_rank;
    if (port > 65535)
        return tt_fail(TT_ERR_USAGE, "metrics_port %lld: the process with local rank %d has no port",
                       (long long)monitoring->spec->metrics_port, local_rank);
    return tt_endpoints_open(monitoring->spec->metrics_host, (int)port, monitoring->spec->allowed_hosts,
                             monitoring->live, &monitoring->endpoints);
}

tt_status tt_monitoring_open(const struct tt_job_spec *job, struct tt_monitoring *monitoring)
{
    tt_status status = TT_OK;
    struct tt_launch launch;
    struct tt_live_config config = {
        .frozen_seconds = tt_pulse_limit_seconds(job->device.tuning.hang_seconds),
        .purpose_count = TT_PURPOSE_COUNT,
    };
    *monitoring = (struct tt_monitoring){.spec = &job->monitor};
    if (job->monitor.metrics_port < 0) return TT_OK;
    for (int p = 0; p < TT_PURPOSE_COUNT; p++) config.purposes[p] = tt_row_times_purpose((enum tt_purpose)p);
    TT_GO(tt_launch_detect(&job->launch, &launch));
    TT_GO(tt_live_create(&config, &monitoring->live));
    bool alone = launch.kind == TT_LAUNCH_ALONE || launch.kind == TT_LAUNCH_MACHINES;
    if (alone || launch.local_rank >= 0) TT_GO(open_endpoints(monitoring, alone ? 0 : launch.local_rank));
out:
    if (status != TT_OK) tt_monitoring_close(monitoring);
    return status;
}

static double last_beat(void *context)
{
    const struct tt_world *world = context;
    return tt_pulse_last(world->pulses, world->local_count);
}

static void report_address(const struct tt_run_job *job, const char *what, const char *host, int port,
                           const char *path, int rank)
{
    char line[300];
    bool v6 = strchr(host, ':') != NULL;
    snprintf(line, sizeof line, "%s at http://%s%.100s%s:%d/%s", what, v6 ? "[" : "", host, v6 ? "]" : "",
             port, path);
    if (rank == 0)
        tt_run_report_line(job, line);
    else
        tt_info("rank %d: %s", rank, line);
}

static tt_status open_dashboard(struct tt_monitoring *monitoring, const struct tt_run_job *job)
{
    const struct tt_monitor_spec *spec = monitoring->spec;
    const struct tt_dashboard_config config = {
        .host = spec->dashboard_host,
        .port = (int)spec->dashboard_port,
        .port_setting = "dashboard_port",
        .allowed_hosts = spec->allowed_hosts,
        .folders = &job->run->output_dir,
        .count = 1,
        .live = true,
    };
    TT_TRY(tt_dashboard_open(&config, &monitoring->dashboard));
    report_address(job, "dashboard", spec->dashboard_host, tt_dashboard_port(monitoring->dashboard), "", 0);
    return TT_OK;
}

tt_status tt_monitoring_attach(struct tt_monitoring *monitoring, const struct tt_run_job *job,
                               const struct tt_world *world)
{
    if (monitoring->spec->dashboard && world->first_rank == 0) TT_TRY(open_dashboard(monitoring, job));
    if (monitoring->live == NULL) return TT_OK;
    if (monitoring->endpoints == NULL) TT_TRY(open_endpoints(monitoring, world->ranks[0].local_rank));
    const struct tt_live_place place = {world->first_rank, world->local_count, world->world_size, last_beat,
                                        (void *)world};
    TT_TRY(tt_live_attach(monitoring->live, &place));
    report_address(job, "metrics", monitoring->spec->metrics_host, tt_endpoints_port(monitoring->endpoints),
                   "metrics", world->first_rank);
    return TT_OK;
}

void tt_monitoring_close(struct tt_monitoring *monitoring)
{
    tt_live_detach(monitoring->live);
    tt_endpoints_close(monitoring->endpoints);
    tt_dashboard_close(monitoring->dashboard);
    tt_live_destroy(monitoring->live);
    *monitoring = (struct tt_monitoring){0};
}

void tt_monitoring_start(const struct tt_run *run, int64_t tokens)
{
    tt_live_start(run->live, &(struct tt_live_start){.step = run->length.first_step,
                                                     .total_steps = run->length.total_steps,
                                                     .tokens = (double)tokens,
                                                     .planned_bytes = (double)run->plan.memory.total_peak,
                                                     .restarts = (double)run->rank0.restarts,
                                                     .unit = tt_objective_unit(run->job.objective)});
}

void tt_monitoring_rank_step(struct tt_live *live, const struct tt_rank *rank, const struct tt_phases *phases)
{
    struct tt_live_rank_step step = {.rank_wait = phases->seconds[TT_PHASE_RANKS]};
    struct tt_memory_use memory;
    if (live == NULL) return;
    const double *seconds = phases->seconds;
    step.phases[TT_LIVE_DATA] = seconds[TT_PHASE_DATA];
    step.phases[TT_LIVE_SAVE] = seconds[TT_PHASE_SAVE];
    step.phases[TT_LIVE_COMPUTE] =
        seconds[TT_PHASE_FORWARD] + seconds[TT_PHASE_BACKWARD] + seconds[TT_PHASE_DEVICE];
    bool queues = !tt_device_is_host(rank->device);
    step.phases[queues ? TT_LIVE_COMPUTE : TT_LIVE_GATHER] += seconds[TT_PHASE_GATHER];
    step.phases[queues ? TT_LIVE_COMPUTE : TT_LIVE_REDUCE] += seconds[TT_PHASE_REDUCE];
    step.phases[queues ? TT_LIVE_COMPUTE : TT_LIVE_OPTIMIZER] += seconds[TT_PHASE_OPTIMIZER];
    tt_device_memory(rank->device, &memory);
    for (int p = 0; p < TT_PURPOSE_COUNT; p++) step.bytes[p] = (double)memory.peak[p];
    step.peak_bytes = (double)memory.total_peak;
    tt_live_rank_step(live, tt_comm_rank(rank->world), &step);
}
