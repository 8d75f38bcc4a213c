/* Job, JobSet and TrainJob: workloads with a Job of Kubernetes inside. */
#include <string.h>

#include "render/render_impl.h"

static tt_status write_rule(const struct tt_render_work *work, const char *action, const int *codes,
                            int count, const struct tt_render_sheet *job)
{
    TT_TRY(LINE(job, 1, "- action: %s", action));
    TT_TRY(tt_render_indent(job, 2));
    TT_TRY(tt_str_printf(job->text, "onExitCodes: {containerName: %s, operator: In, values: [",
                         tt_render_kind_facts(work->run->kind)->container));
    TT_TRY(tt_render_write_codes(job->text, codes, count, ", "));
    return tt_str_append_text(job->text, "]}\n");
}

/* The specification of a Job. A Job replaces pods one by one; in a JobSet every failure that may be cured fails the
 * Job, so that all restart. */
static tt_status write_job(const struct tt_render_work *work, bool alone, const struct tt_render_sheet *job)
{
    const struct tt_render_spec *spec = work->run->spec;
    const struct tt_render_exits *exits = work->run->exits;
    const char *cured = alone ? "Ignore" : "FailJob";
    struct tt_render_sheet template = {job->text, job->indent + 1};
    TT_TRY(LINE(job, 0, "completionMode: Indexed"));
    TT_TRY(LINE(job, 0, "completions: %lld", (long long)spec->nodes));
    TT_TRY(LINE(job, 0, "parallelism: %lld", (long long)spec->nodes));
    /* one incident ends every pod, and each counts */
    TT_TRY(LINE(job, 0, "backoffLimit: %lld", alone ? (long long)(spec->max_restarts * spec->nodes) : 0));
    TT_TRY(LINE(job, 0, "podReplacementPolicy: Failed"));
    TT_TRY(LINE(job, 0, "podFailurePolicy:"));
    TT_TRY(LINE(job, 1, "rules:"));
    TT_TRY(write_rule(work, "FailJob", exits->permanent, exits->permanent_count, job));
    TT_TRY(write_rule(work, cured, exits->resumable, exits->resumable_count, job));
    TT_TRY(LINE(job, 1, "- action: %s", cured));
    TT_TRY(LINE(job, 2, "onPodConditions: [{type: DisruptionTarget, status: \"True\"}]"));
    TT_TRY(LINE(job, 0, "template:"));
    return tt_render_write_template(work, &template);
}

tt_status tt_render_write_job(const struct tt_render_work *work, struct tt_str *text)
{
    struct tt_render_sheet sheet = {text, 0}, job = {text, 1};
    TT_TRY(tt_render_write_workload(work, "batch/v1", "Job", true, &sheet));
    return write_job(work, true, &job);
}

/* Both kinds of end have the reason PodFailurePolicy; the message has the exit code. */
static tt_status write_failure_policy(const struct tt_render_work *work, const struct tt_render_sheet *sheet)
{
    const struct tt_render_exits *exits = work->run->exits;
    TT_TRY(LINE(sheet, 0, "failurePolicy:"));
    TT_TRY(LINE(sheet, 1, "maxRestarts: %lld", (long long)work->run->spec->max_restarts));
    TT_TRY(LINE(sheet, 1, "rules:"));
    TT_TRY(LINE(sheet, 1, "- name: permanent"));
    TT_TRY(LINE(sheet, 2, "action: FailJobSet"));
    TT_TRY(LINE(sheet, 2, "onJobFailureReasons: [PodFailurePolicy]"));
    TT_TRY(tt_render_indent(sheet, 2));
    TT_TRY(tt_str_append_text(sheet->text, "onJobFailureMessagePatterns: [\"exit code ("));
    TT_TRY(tt_render_write_codes(sheet->text, exits->permanent, exits->permanent_count, "|"));
    TT_TRY(tt_str_append_text(sheet->text, ") \"]\n"));
    TT_TRY(LINE(sheet, 1, "- name: stopped"));
    TT_TRY(LINE(sheet, 2, "action: RestartJobSetAndIgnoreMaxRestarts"));
    return LINE(sheet, 2, "onJobFailureReasons: [PodFailurePolicy]");
}

/* The folders into which initializers fetch, of the volume at /workspace (kubeflow/trainer pkg/initializers/utils). */
static const struct {
    const char *name, *folder;
} initializers[] = {{"dataset-initializer", "/workspace/dataset"}, {"model-initializer", "/workspace/model"}};
enum { INITIALIZERS = sizeof initializers / sizeof *initializers };

static bool is_fetched(const struct tt_render_work *work, int index)
{
    for (int i = 0; i < work->run->path_count; i++)
        if (work->run->paths[i].path != NULL &&
            strcmp(work->run->paths[i].path, initializers[index].folder) == 0)
            return true;
    return false;
}

/* Jobs before the training; a TrainJob says what they fetch (spec.initializer). */
static tt_status write_initializers(const struct tt_render_work *work, const struct tt_render_sheet *sheet)
{
    const struct tt_render_spec *spec = work->run->spec;
    const struct tt_render_sheet template = {sheet->text, sheet->indent + 4};
    for (int i = 0; i < INITIALIZERS; i++) {
        if (!is_fetched(work, i)) continue;
        TT_TRY(LINE(sheet, 0, "- name: %s", initializers[i].name));
        TT_TRY(LINE(sheet, 1, "replicas: 1"));
        TT_TRY(LINE(sheet, 1, "template:"));
        TT_TRY(LINE(sheet, 2, "metadata:"));
        TT_TRY(LINE(sheet, 3, "labels:"));
        TT_TRY(LINE(sheet, 4, "trainer.kubeflow.org/trainjob-ancestor-step: %s", initializers[i].name));
        TT_TRY(LINE(sheet, 2, "spec:"));
        TT_TRY(LINE(sheet, 3, "template:"));
        TT_TRY(tt_render_write_initializer(work, initializers[i].name,
                                           i == 0 ? spec->dataset_initializer : spec->model_initializer,
                                           &template));
    }
    return TT_OK;
}

static tt_status write_order(const struct tt_render_work *work, const struct tt_render_sheet *sheet)
{
    bool any = false;
    for (int i = 0; i < INITIALIZERS; i++) any |= is_fetched(work, i);
    if (any) TT_TRY(LINE(sheet, 1, "dependsOn:"));
    for (int i = 0; i < INITIALIZERS; i++)
        if (is_fetched(work, i))
            TT_TRY(LINE(sheet, 1, "- {name: %s, status: Complete}", initializers[i].name));
    return TT_OK;
}

/* The specification of a JobSet. The controller of TrainJob finds its Job by a label, and names network and JobSet. */
static tt_status write_jobset(const struct tt_render_work *work, bool alone,
                              const struct tt_render_sheet *sheet)
{
    struct tt_render_sheet job = {sheet->text, sheet->indent + 3};
    TT_TRY(LINE(sheet, 0, "network:"));
    TT_TRY(LINE(sheet, 1, "enableDNSHostnames: true"));
    if (alone) TT_TRY(LINE(sheet, 1, "subdomain: %s", work->run->name));
    TT_TRY(LINE(sheet, 1, "publishNotReadyAddresses: true"));
    TT_TRY(write_failure_policy(work, sheet));
    TT_TRY(LINE(sheet, 0, "replicatedJobs:"));
    if (tt_render_kind_facts(work->run->kind)->is_shared) TT_TRY(write_initializers(work, sheet));
    TT_TRY(LINE(sheet, 0, "- name: node"));
    TT_TRY(LINE(sheet, 1, "replicas: 1"));
    if (tt_render_kind_facts(work->run->kind)->is_shared) TT_TRY(write_order(work, sheet));
    TT_TRY(LINE(sheet, 1, "template:"));
    TT_TRY(LINE(sheet, 2, "metadata:"));
    TT_TRY(LINE(sheet, 3, "labels:"));
    TT_TRY(LINE(sheet, 4, "trimtab/run: %s", work->run->name));
    if (!alone) TT_TRY(LINE(sheet, 4, "trainer.kubeflow.org/trainjob-ancestor-step: trainer"));
    TT_TRY(LINE(sheet, 2, "spec:"));
    return write_job(work, false, &job);
}

tt_status tt_render_write_jobset(const struct tt_render_work *work, struct tt_str *text)
{
    struct tt_render_sheet sheet = {text, 0}, spec = {text, 1};
    TT_TRY(tt_render_write_workload(work, "jobset.x-k8s.io/v1alpha2", "JobSet", true, &sheet));
    return write_jobset(work, true, &spec);
}

static const char trainer_version[] = "trainer.kubeflow.org/v1alpha1";

/* `trainer:` of a TrainJob. The variables PET_* are Trainer's. */
static tt_status write_trainer(const struct tt_render_work *work, const struct tt_render_sheet *sheet)
{
    const struct tt_render_spec *run = work->run->spec;
    struct tt_render_sheet trainer = {sheet->text, 1}, resources = {sheet->text, 3};
    TT_TRY(LINE(sheet, 1, "trainer:"));
    TT_TRY(LINE(sheet, 2, "numNodes: %lld", (long long)run->nodes));
    TT_TRY(LINE(sheet, 2, "numProcPerNode: %d", work->run->ranks));
    TT_TRY(LINE(sheet, 2, "image: \"%s\"", run->image));
    if (run->runtime != NULL) TT_TRY(LINE(sheet, 2, "command: [trimtab]")); /* the runtime may have another */
    TT_TRY(LINE(sheet, 2, "args: [train, --config, /etc/trimtab/config.yaml]"));
    if (run->runtime != NULL) TT_TRY(tt_render_write_environment(work, &trainer));
    TT_TRY(LINE(sheet, 2, "resourcesPerNode:"));
    return tt_render_write_resources(work, &resources);
}

static tt_status write_runtime_spec(const struct tt_render_work *work, const struct tt_render_sheet *sheet)
{
    const struct tt_render_spec *run = work->run->spec;
    struct tt_render_sheet jobset = {sheet->text, 3};
    TT_TRY(LINE(sheet, 1, "mlPolicy:"));
    TT_TRY(LINE(sheet, 2, "numNodes: %lld", (long long)run->nodes));
    TT_TRY(LINE(sheet, 2, "torch: {}"));
    if (run->gang) TT_TRY(LINE(sheet, 1, "podGroupPolicy: {coscheduling: {scheduleTimeoutSeconds: 600}}"));
    TT_TRY(LINE(sheet, 1, "template:"));
    TT_TRY(LINE(sheet, 2, "spec:"));
    return write_jobset(work, false, &jobset);
}

/* A runtime of its own for each run, in its namespace: the fields of a TrainJob that patch a runtime differ between
 * versions of Trainer, and those of a runtime do not. */
static tt_status write_runtime(const struct tt_render_work *work, const struct tt_render_sheet *sheet)
{
    TT_TRY(tt_render_write_workload(work, trainer_version, "TrainingRuntime", false, sheet));
    return write_runtime_spec(work, sheet);
}

/* The label is by what Kubeflow's SDK lists runtimes; with `torchtune` it would write that program's words. */
tt_status tt_render_write_runtime(const struct tt_render_work *work, struct tt_str *text)
{
    static const struct tt_render_note framework = {"trainer.kubeflow.org/framework", "trimtab"};
    const struct tt_render_object object = {.version = trainer_version,
                                            .kind = "ClusterTrainingRuntime",
                                            .of_cluster = true,
                                            .label = &framework};
    const struct tt_render_sheet sheet = {text, 0};
    TT_TRY(tt_render_write_metadata(work, &object, &sheet));
    TT_TRY(LINE(&sheet, 0, "spec:"));
    return write_runtime_spec(work, &sheet);
}

/* Source: kubeflow/trainer, pkg/apis/trainer/v1alpha1/trainjob_types.go (RuntimePatch). Variables of the container
 * `node` are those of `trainer`. */
static tt_status write_patches(const struct tt_render_work *work, const struct tt_render_sheet *sheet)
{
    struct tt_render_sheet template = {sheet->text, 9};
    TT_TRY(LINE(sheet, 1, "runtimePatches:"));
    TT_TRY(LINE(sheet, 1, "- manager: trimtab/render"));
    TT_TRY(LINE(sheet, 2, "trainingRuntimeSpec:"));
    TT_TRY(LINE(sheet, 3, "template:"));
    TT_TRY(LINE(sheet, 4, "spec:"));
    TT_TRY(LINE(sheet, 5, "replicatedJobs:"));
    TT_TRY(LINE(sheet, 5, "- name: node"));
    TT_TRY(LINE(sheet, 6, "template:"));
    TT_TRY(LINE(sheet, 7, "spec:"));
    TT_TRY(LINE(sheet, 8, "template:"));
    return tt_render_write_patch(work, &template);
}

tt_status tt_render_write_trainjob(const struct tt_render_work *work, struct tt_str *text)
{
    const struct tt_render_spec *run = work->run->spec;
    struct tt_render_sheet sheet = {text, 0};
    const char *kind = run->runtime != NULL ? "ClusterTrainingRuntime" : "TrainingRuntime";
    char runtime[TT_RENDER_SCALAR_BYTES];
    if (run->runtime == NULL) TT_TRY(write_runtime(work, &sheet));
    TT_TRY(tt_render_write_workload(work, trainer_version, "TrainJob", true, &sheet));
    TT_TRY(LINE(&sheet, 1, "runtimeRef: {apiGroup: trainer.kubeflow.org, kind: %s, name: %s}", kind,
                tt_render_scalar(run->runtime != NULL ? run->runtime : run->name, runtime)));
    TT_TRY(write_trainer(work, &sheet));
    return run->runtime != NULL ? write_patches(work, &sheet) : TT_OK;
}
