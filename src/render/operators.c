/* PyTorchJob, MPIJob and Volcano's Job: workloads whose pods their operators make. */
#include "render/render_impl.h"

static tt_status write_replicas(const char *name, long long replicas, const char *restart,
                                const struct tt_render_sheet *sheet)
{
    TT_TRY(LINE(sheet, 2, "%s:", name));
    TT_TRY(LINE(sheet, 3, "replicas: %lld", replicas));
    TT_TRY(LINE(sheet, 3, "restartPolicy: %s", restart));
    return LINE(sheet, 3, "template:");
}

/* Pods stay after the end, with their logs. */
static tt_status write_run_policy(const struct tt_render_work *work, const char *clean, long long backoff,
                                  const struct tt_render_sheet *sheet)
{
    const struct tt_render_spec *spec = work->run->spec;
    TT_TRY(LINE(sheet, 1, "runPolicy:"));
    TT_TRY(LINE(sheet, 2, "cleanPodPolicy: %s", clean));
    TT_TRY(LINE(sheet, 2, "backoffLimit: %lld", backoff));
    return spec->gang ? LINE(sheet, 2, "schedulingPolicy: {minAvailable: %lld}", (long long)spec->nodes)
                      : TT_OK;
}

/* OnFailure: with ExitCode the operator retries codes from 128 on only. It restarts after every code. */
tt_status tt_render_write_pytorchjob(const struct tt_render_work *work, struct tt_str *text)
{
    const struct tt_render_spec *spec = work->run->spec;
    struct tt_render_sheet sheet = {text, 0}, template = {text, 4};
    TT_TRY(tt_render_write_workload(work, "kubeflow.org/v1", "PyTorchJob", true, &sheet));
    TT_TRY(LINE(&sheet, 1, "nprocPerNode: \"%d\"", work->run->ranks));
    TT_TRY(write_run_policy(work, "None", (long long)(spec->max_restarts * spec->nodes), &sheet));
    TT_TRY(LINE(&sheet, 1, "pytorchReplicaSpecs:"));
    TT_TRY(write_replicas("Master", 1, "OnFailure", &sheet));
    TT_TRY(tt_render_write_template(work, &template));
    if (spec->nodes == 1) return TT_OK;
    TT_TRY(write_replicas("Worker", (long long)spec->nodes - 1, "OnFailure", &sheet));
    return tt_render_write_template(work, &template);
}

/* The launcher trains too, so that no pod waits for the others; a failed launcher is replaced. */
tt_status tt_render_write_mpijob(const struct tt_render_work *work, struct tt_str *text)
{
    const struct tt_render_spec *spec = work->run->spec;
    struct tt_render_sheet sheet = {text, 0}, template = {text, 4};
    TT_TRY(tt_render_write_workload(work, "kubeflow.org/v2beta1", "MPIJob", true, &sheet));
    TT_TRY(LINE(&sheet, 1, "slotsPerWorker: %d", work->run->ranks));
    TT_TRY(LINE(&sheet, 1, "runLauncherAsWorker: true"));
    TT_TRY(LINE(&sheet, 1, "launcherCreationPolicy: WaitForWorkersReady"));
    TT_TRY(LINE(&sheet, 1, "mpiImplementation: OpenMPI"));
    TT_TRY(LINE(&sheet, 1, "sshAuthMountPath: /home/mpiuser/.ssh"));
    TT_TRY(write_run_policy(work, "Running", (long long)spec->max_restarts, &sheet));
    TT_TRY(LINE(&sheet, 1, "mpiReplicaSpecs:"));
    TT_TRY(write_replicas("Launcher", 1, "Never", &sheet));
    TT_TRY(tt_render_write_mpi_template(work, true, &template));
    TT_TRY(write_replicas("Worker", (long long)spec->nodes - 1, "Never", &sheet));
    return tt_render_write_mpi_template(work, false, &template);
}

/* The first policy that matches decides. All pods restart together. */
static tt_status write_policies(const struct tt_render_work *work, const struct tt_render_sheet *sheet)
{
    const struct tt_render_exits *exits = work->run->exits;
    TT_TRY(LINE(sheet, 1, "policies:"));
    for (int i = 0; i < exits->permanent_count; i++)
        TT_TRY(LINE(sheet, 1, "- {exitCode: %d, action: TerminateJob}", exits->permanent[i]));
    TT_TRY(LINE(sheet, 1, "- {event: PodEvicted, action: RestartJob}"));
    return LINE(sheet, 1, "- {event: PodFailed, action: RestartJob}");
}

/* Volcano's plugin pytorch is not used: its RANK and WORLD_SIZE count pods, whatever the number of their GPUs. */
tt_status tt_render_write_volcano(const struct tt_render_work *work, struct tt_str *text)
{
    const struct tt_render_spec *spec = work->run->spec;
    struct tt_render_sheet sheet = {text, 0}, template = {text, 3};
    TT_TRY(tt_render_write_workload(work, "batch.volcano.sh/v1alpha1", "Job", false, &sheet));
    TT_TRY(LINE(&sheet, 1, "schedulerName: volcano"));
    TT_TRY(LINE(&sheet, 1, "minAvailable: %lld", (long long)spec->nodes));
    if (spec->queue != NULL) TT_TRY(LINE(&sheet, 1, "queue: \"%s\"", spec->queue));
    if (spec->priority_class != NULL)
        TT_TRY(LINE(&sheet, 1, "priorityClassName: \"%s\"", spec->priority_class));
    TT_TRY(LINE(&sheet, 1, "maxRetry: %lld", (long long)spec->max_restarts));
    TT_TRY(LINE(&sheet, 1, "plugins:"));
    TT_TRY(LINE(&sheet, 2, "env: []"));
    TT_TRY(LINE(&sheet, 2, "svc: [--publish-not-ready-addresses=true, --disable-network-policy=true]"));
    TT_TRY(write_policies(work, &sheet));
    TT_TRY(LINE(&sheet, 1, "tasks:"));
    TT_TRY(LINE(&sheet, 1, "- name: node"));
    TT_TRY(LINE(&sheet, 2, "replicas: %lld", (long long)spec->nodes));
    TT_TRY(LINE(&sheet, 2, "template:"));
    return tt_render_write_template(work, &template);
}
