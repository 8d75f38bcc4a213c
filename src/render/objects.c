/* The objects, in the order in which they are created: configuration, network, volume, then the workload. Flow mappings
 * only where a line stays short. Every text that is inserted was checked (check.c) or is a number. */
#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "render/render.h"

/* A ConfigMap has at most 1 MiB, with its names. */
enum { CONFIG_BYTES_MAX = 1000000 };

/* A pod's part of the stream stands at another depth in each kind of object. */
struct sheet {
    struct tt_str *text;
    int indent;
};

static tt_status indent(const struct sheet *sheet, int deeper)
{
    return tt_str_append_fill(sheet->text, ' ', (size_t)(2 * (sheet->indent + deeper)));
}

/* One line, `deeper` levels below the sheet's; only memory can fail. */
#define LINE(sheet, deeper, ...)                                                                             \
    (indent(sheet, deeper) != TT_OK || tt_str_printf((sheet)->text, __VA_ARGS__) != TT_OK                    \
         ? TT_ERR_MEMORY                                                                                     \
         : tt_str_append_char((sheet)->text, '\n'))

static const char *secret_name(const struct tt_render_spec *spec, char name[128])
{
    snprintf(name, 128, "%.63s%s", spec->secret != NULL ? spec->secret : spec->name,
             spec->secret != NULL ? "" : "-secret");
    return name;
}

static tt_status write_codes(struct tt_str *text, const int *codes, int count, const char *between)
{
    for (int i = 0; i < count; i++) TT_TRY(tt_str_printf(text, "%s%d", i > 0 ? between : "", codes[i]));
    return TT_OK;
}

static tt_status write_head(const struct tt_render_run *run, const struct tt_render_sizes *sizes,
                            struct tt_str *text)
{
    char secret[128], memory[32], checkpoint[32];
    const struct tt_render_spec *spec = run->spec;
    secret_name(spec, secret);
    TT_TRY(tt_str_printf(text, "# %s: %d rank%s on %lld node%s, planned for %s, rendered by trimtab\n",
                         spec->name, run->plan->ranks.count, run->plan->ranks.count == 1 ? "" : "s",
                         (long long)spec->nodes, spec->nodes == 1 ? "" : "s", run->plan->device));
    TT_TRY(tt_str_printf(text, "# memory of a pod %s; a checkpoint at most %s; a stop takes %.3g s\n",
                         tt_format_bytes((double)sizes->memory, memory, sizeof memory),
                         tt_format_bytes((double)sizes->checkpoint, checkpoint, sizeof checkpoint),
                         2 * sizes->step_seconds + sizes->save_seconds));
    TT_TRY(tt_str_printf(text, "# Pod Security level of the namespace: %s\n",
                         spec->rdma != NULL || spec->host_network ? "privileged" : "restricted"));
    TT_TRY(tt_str_append_text(
        text, "# Before it, once, the job secret that the pods of this run know each other by:\n"));
    return tt_str_printf(
        text, "#   openssl rand -hex 32 | kubectl create secret generic %s --from-file=secret=/dev/stdin\n",
        secret);
}

static tt_status write_config(const struct tt_render_run *run, struct tt_str *text)
{
    const char *rest = run->config;
    if (strlen(rest) > CONFIG_BYTES_MAX)
        return tt_fail(TT_ERR_USAGE, "the configuration has %zu bytes, more than a ConfigMap holds",
                       strlen(rest));
    TT_TRY(tt_str_printf(text,
                         "---\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: %s-config\n  labels:\n    "
                         "trimtab/run: %s\ndata:\n  config.yaml: |\n",
                         run->spec->name, run->spec->name));
    while (*rest != '\0') {
        size_t bytes = strcspn(rest, "\n");
        if (bytes > 0) TT_TRY(tt_str_append_text(text, "    "));
        TT_TRY(tt_str_append(text, rest, bytes));
        TT_TRY(tt_str_append_char(text, '\n'));
        rest += bytes + (rest[bytes] == '\n');
    }
    return TT_OK;
}

/* Of a plain Job; a JobSet makes its own. */
static tt_status write_service(const struct tt_render_run *run, struct tt_str *text)
{
    const char *name = run->spec->name;
    return tt_str_printf(
        text,
        "---\napiVersion: v1\nkind: Service\nmetadata:\n  name: %s\n  labels:\n    trimtab/run: %s\n"
        "spec:\n  clusterIP: None\n  publishNotReadyAddresses: true\n  selector:\n    trimtab/run: %s\n"
        "  ports:\n  - {name: rendezvous, port: %d}\n",
        name, name, name, run->port);
}

/* Pods of a run reach each other and the name service, and nothing else. */
static tt_status write_policy(const struct tt_render_run *run, struct tt_str *text)
{
    const char *name = run->spec->name;
    return tt_str_printf(
        text,
        "---\napiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata:\n  name: %s\n  labels:\n"
        "    trimtab/run: %s\nspec:\n  podSelector:\n    matchLabels:\n      trimtab/run: %s\n"
        "  policyTypes: [Ingress, Egress]\n  ingress:\n  - from:\n    - podSelector:\n"
        "        matchLabels:\n          trimtab/run: %s\n  egress:\n  - to:\n    - podSelector:\n"
        "        matchLabels:\n          trimtab/run: %s\n  - to:\n    - namespaceSelector: {}\n"
        "      podSelector:\n        matchLabels:\n          k8s-app: kube-dns\n    ports:\n"
        "    - {protocol: UDP, port: 53}\n    - {protocol: TCP, port: 53}\n",
        name, name, name, name, name);
}

static tt_status write_claim(const struct tt_render_run *run, size_t bytes, struct tt_str *text)
{
    const struct tt_render_spec *spec = run->spec;
    TT_TRY(tt_str_printf(
        text,
        "---\napiVersion: v1\nkind: PersistentVolumeClaim\nmetadata:\n  name: %s-run\n  labels:\n"
        "    trimtab/run: %s\nspec:\n  accessModes: [%s]\n",
        spec->name, spec->name, spec->nodes > 1 ? "ReadWriteMany" : "ReadWriteOnce"));
    if (spec->storage_class != NULL)
        TT_TRY(tt_str_printf(text, "  storageClassName: \"%s\"\n", spec->storage_class));
    return tt_str_printf(text, "  resources:\n    requests:\n      storage: %zuMi\n", bytes >> 20);
}

static tt_status write_resources(const struct tt_render_run *run, const struct sheet *pod, size_t memory)
{
    const struct tt_render_spec *spec = run->spec;
    size_t mib = memory >> 20;
    TT_TRY(LINE(pod, 1, "resources:"));
    TT_TRY(LINE(pod, 2, "requests:"));
    TT_TRY(LINE(pod, 3, "cpu: \"%lld\"", (long long)spec->cpus_per_node));
    TT_TRY(LINE(pod, 3, "memory: %zuMi", mib));
    if (!run->plan->is_host) TT_TRY(LINE(pod, 3, "%s: %d", spec->gpu_resource, run->ranks));
    if (spec->rdma != NULL) TT_TRY(LINE(pod, 3, "%s: 1", spec->rdma));
    TT_TRY(LINE(pod, 2, "limits:"));
    if (run->plan->is_host) TT_TRY(LINE(pod, 3, "cpu: \"%lld\"", (long long)spec->cpus_per_node));
    TT_TRY(LINE(pod, 3, "memory: %zuMi", mib));
    if (!run->plan->is_host) TT_TRY(LINE(pod, 3, "%s: %d", spec->gpu_resource, run->ranks));
    return spec->rdma != NULL ? LINE(pod, 3, "%s: 1", spec->rdma) : TT_OK;
}

static tt_status write_container(const struct tt_render_run *run, const struct tt_render_sizes *sizes,
                                 const struct tt_render_volume *volumes, int count, bool claims,
                                 const struct sheet *pod)
{
    const struct tt_render_spec *spec = run->spec;
    TT_TRY(LINE(pod, 0, "containers:"));
    TT_TRY(LINE(pod, 0, "- name: trimtab"));
    TT_TRY(LINE(pod, 1, "image: \"%s\"", spec->image));
    TT_TRY(LINE(pod, 1, "args: [train, --config, /etc/trimtab/config.yaml]"));
    TT_TRY(LINE(pod, 1, "env:"));
    TT_TRY(LINE(pod, 1, "- {name: TRIMTAB_JOB_SECRET_FILE, value: /etc/trimtab-secret/secret}"));
    TT_TRY(LINE(pod, 1, "ports:"));
    TT_TRY(LINE(pod, 1, "- {name: rendezvous, containerPort: %d}", run->port));
    TT_TRY(write_resources(run, pod, sizes->memory));
    TT_TRY(LINE(pod, 1, "securityContext:"));
    TT_TRY(LINE(pod, 2, "allowPrivilegeEscalation: false"));
    TT_TRY(LINE(pod, 2, "readOnlyRootFilesystem: true"));
    TT_TRY(LINE(pod, 2, "capabilities: {drop: [ALL]%s}", spec->rdma != NULL ? ", add: [IPC_LOCK]" : ""));
    TT_TRY(LINE(pod, 1, "volumeMounts:"));
    TT_TRY(LINE(pod, 1, "- {name: shm, mountPath: /dev/shm}"));
    TT_TRY(LINE(pod, 1, "- {name: tmp, mountPath: /tmp}"));
    TT_TRY(LINE(pod, 1, "- {name: config, mountPath: /etc/trimtab, readOnly: true}"));
    TT_TRY(LINE(pod, 1, "- {name: secret, mountPath: /etc/trimtab-secret, readOnly: true}"));
    if (claims) TT_TRY(LINE(pod, 1, "- {name: run, mountPath: %s}", tt_render_run_folder));
    for (int i = 0; i < count; i++)
        TT_TRY(LINE(pod, 1, "- {name: volume-%d, mountPath: \"%s\"%s}", i, volumes[i].path,
                    volumes[i].read_only ? ", readOnly: true" : ""));
    return TT_OK;
}

static tt_status write_volumes(const struct tt_render_run *run, const struct tt_render_sizes *sizes,
                               const struct tt_render_volume *volumes, int count, bool claims,
                               const struct sheet *pod)
{
    char secret[128];
    TT_TRY(LINE(pod, 0, "volumes:"));
    TT_TRY(LINE(pod, 0, "- {name: shm, emptyDir: {medium: Memory, sizeLimit: %zuMi}}", sizes->shm >> 20));
    TT_TRY(LINE(pod, 0, "- {name: tmp, emptyDir: {sizeLimit: 1Gi}}"));
    TT_TRY(LINE(pod, 0, "- {name: config, configMap: {name: %s-config}}", run->spec->name));
    TT_TRY(LINE(pod, 0, "- {name: secret, secret: {secretName: \"%s\", defaultMode: 288}}", /* 0440 */
                secret_name(run->spec, secret)));
    if (claims)
        TT_TRY(LINE(pod, 0, "- {name: run, persistentVolumeClaim: {claimName: %s-run}}", run->spec->name));
    for (int i = 0; i < count; i++)
        TT_TRY(LINE(pod, 0, "- {name: volume-%d, persistentVolumeClaim: {claimName: \"%s\"%s}}", i,
                    volumes[i].claim, volumes[i].read_only ? ", readOnly: true" : ""));
    return TT_OK;
}

/* The fields of a pod's specification that Jobs and JobSets share. */
static tt_status write_pod(const struct tt_render_run *run, const struct tt_render_sizes *sizes,
                           const struct sheet *pod)
{
    struct tt_render_volume volumes[TT_RENDER_VOLUMES_MAX];
    const struct tt_render_spec *spec = run->spec;
    int count;
    bool claims;
    TT_TRY(tt_render_volumes(spec->volumes, volumes, &count));
    TT_TRY(tt_render_check_paths(run, &claims));
    if (run->kind == TT_RENDER_JOB) TT_TRY(LINE(pod, 0, "subdomain: %s", spec->name));
    TT_TRY(LINE(pod, 0, "restartPolicy: Never"));
    TT_TRY(LINE(pod, 0, "enableServiceLinks: false"));
    TT_TRY(LINE(pod, 0, "automountServiceAccountToken: false"));
    TT_TRY(LINE(pod, 0, "terminationGracePeriodSeconds: %lld", (long long)sizes->grace));
    if (spec->priority_class != NULL) TT_TRY(LINE(pod, 0, "priorityClassName: \"%s\"", spec->priority_class));
    if (spec->host_network) {
        TT_TRY(LINE(pod, 0, "hostNetwork: true"));
        TT_TRY(LINE(pod, 0, "dnsPolicy: ClusterFirstWithHostNet"));
    }
    TT_TRY(LINE(pod, 0, "securityContext:"));
    TT_TRY(LINE(pod, 1, "runAsNonRoot: true"));
    TT_TRY(LINE(pod, 1, "runAsUser: 65532"));
    TT_TRY(LINE(pod, 1, "runAsGroup: 65532"));
    TT_TRY(LINE(pod, 1, "fsGroup: 65532"));
    TT_TRY(LINE(pod, 1, "fsGroupChangePolicy: OnRootMismatch"));
    TT_TRY(LINE(pod, 1, "seccompProfile: {type: RuntimeDefault}"));
    TT_TRY(LINE(pod, 0, "topologySpreadConstraints:"));
    TT_TRY(LINE(pod, 0, "- maxSkew: 1"));
    TT_TRY(LINE(pod, 1, "topologyKey: kubernetes.io/hostname"));
    TT_TRY(LINE(pod, 1, "whenUnsatisfiable: DoNotSchedule"));
    TT_TRY(LINE(pod, 1, "labelSelector: {matchLabels: {trimtab/run: %s}}", spec->name));
    if (!run->plan->is_host) {
        TT_TRY(LINE(pod, 0, "tolerations:"));
        TT_TRY(LINE(pod, 0, "- {key: \"%s\", operator: Exists, effect: NoSchedule}", spec->gpu_resource));
    }
    TT_TRY(write_container(run, sizes, volumes, count, claims, pod));
    return write_volumes(run, sizes, volumes, count, claims, pod);
}

static tt_status write_rule(const struct sheet *job, const char *action, const int *codes, int count)
{
    TT_TRY(LINE(job, 1, "- action: %s", action));
    TT_TRY(indent(job, 2));
    TT_TRY(tt_str_append_text(job->text, "onExitCodes: {containerName: trimtab, operator: In, values: ["));
    TT_TRY(write_codes(job->text, codes, count, ", "));
    return tt_str_append_text(job->text, "]}\n");
}

/* A Job replaces pods one by one; in a JobSet every failure that may be cured fails the Job, so that all restart. */
static tt_status write_job(const struct tt_render_run *run, const struct tt_render_sizes *sizes,
                           const struct sheet *job)
{
    const struct tt_render_spec *spec = run->spec;
    const struct tt_render_exits *exits = run->exits;
    bool alone = run->kind == TT_RENDER_JOB;
    const char *cured = alone ? "Ignore" : "FailJob";
    struct sheet pod = {job->text, job->indent + 2};
    TT_TRY(LINE(job, 0, "completionMode: Indexed"));
    TT_TRY(LINE(job, 0, "completions: %lld", (long long)spec->nodes));
    TT_TRY(LINE(job, 0, "parallelism: %lld", (long long)spec->nodes));
    /* one incident ends every pod, and each counts */
    TT_TRY(LINE(job, 0, "backoffLimit: %lld", alone ? (long long)(spec->max_restarts * spec->nodes) : 0));
    TT_TRY(LINE(job, 0, "podReplacementPolicy: Failed"));
    TT_TRY(LINE(job, 0, "podFailurePolicy:"));
    TT_TRY(LINE(job, 1, "rules:"));
    TT_TRY(write_rule(job, "FailJob", exits->permanent, exits->permanent_count));
    TT_TRY(write_rule(job, cured, exits->resumable, exits->resumable_count));
    TT_TRY(LINE(job, 1, "- action: %s", cured));
    TT_TRY(LINE(job, 2, "onPodConditions: [{type: DisruptionTarget, status: \"True\"}]"));
    TT_TRY(LINE(job, 0, "template:"));
    TT_TRY(LINE(job, 1, "metadata:"));
    TT_TRY(LINE(job, 2, "labels:"));
    TT_TRY(LINE(job, 3, "trimtab/run: %s", spec->name));
    if (spec->networks != NULL) {
        TT_TRY(LINE(job, 2, "annotations:"));
        TT_TRY(LINE(job, 3, "k8s.v1.cni.cncf.io/networks: \"%s\"", spec->networks));
    }
    TT_TRY(LINE(job, 1, "spec:"));
    return write_pod(run, sizes, &pod);
}

static tt_status write_metadata(const struct tt_render_run *run, const char *version, const char *kind,
                                const struct sheet *sheet)
{
    TT_TRY(LINE(sheet, 0, "---"));
    TT_TRY(LINE(sheet, 0, "apiVersion: %s", version));
    TT_TRY(LINE(sheet, 0, "kind: %s", kind));
    TT_TRY(LINE(sheet, 0, "metadata:"));
    TT_TRY(LINE(sheet, 1, "name: %s", run->spec->name));
    TT_TRY(LINE(sheet, 1, "labels:"));
    TT_TRY(LINE(sheet, 2, "trimtab/run: %s", run->spec->name));
    if (run->spec->queue != NULL)
        TT_TRY(LINE(sheet, 2, "kueue.x-k8s.io/queue-name: \"%s\"", run->spec->queue));
    return LINE(sheet, 0, "spec:");
}

/* Both kinds of end have the reason PodFailurePolicy; the message has the exit code. */
static tt_status write_jobset(const struct tt_render_run *run, const struct tt_render_sizes *sizes,
                              const struct sheet *sheet)
{
    const struct tt_render_exits *exits = run->exits;
    struct sheet job = {sheet->text, 4};
    TT_TRY(write_metadata(run, "jobset.x-k8s.io/v1alpha2", "JobSet", sheet));
    TT_TRY(LINE(sheet, 1, "network:"));
    TT_TRY(LINE(sheet, 2, "enableDNSHostnames: true"));
    TT_TRY(LINE(sheet, 2, "subdomain: %s", run->spec->name));
    TT_TRY(LINE(sheet, 2, "publishNotReadyAddresses: true"));
    TT_TRY(LINE(sheet, 1, "failurePolicy:"));
    TT_TRY(LINE(sheet, 2, "maxRestarts: %lld", (long long)run->spec->max_restarts));
    TT_TRY(LINE(sheet, 2, "rules:"));
    TT_TRY(LINE(sheet, 2, "- name: permanent"));
    TT_TRY(LINE(sheet, 3, "action: FailJobSet"));
    TT_TRY(LINE(sheet, 3, "onJobFailureReasons: [PodFailurePolicy]"));
    TT_TRY(tt_str_append_text(sheet->text, "      onJobFailureMessagePatterns: [\"exit code ("));
    TT_TRY(write_codes(sheet->text, exits->permanent, exits->permanent_count, "|"));
    TT_TRY(tt_str_append_text(sheet->text, ") \"]\n"));
    TT_TRY(LINE(sheet, 2, "- name: stopped"));
    TT_TRY(LINE(sheet, 3, "action: RestartJobSetAndIgnoreMaxRestarts"));
    TT_TRY(LINE(sheet, 3, "onJobFailureReasons: [PodFailurePolicy]"));
    TT_TRY(LINE(sheet, 1, "replicatedJobs:"));
    TT_TRY(LINE(sheet, 1, "- name: node"));
    TT_TRY(LINE(sheet, 2, "replicas: 1"));
    TT_TRY(LINE(sheet, 2, "template:"));
    TT_TRY(LINE(sheet, 3, "metadata:"));
    TT_TRY(LINE(sheet, 4, "labels:"));
    TT_TRY(LINE(sheet, 5, "trimtab/run: %s", run->spec->name));
    TT_TRY(LINE(sheet, 3, "spec:"));
    return write_job(run, sizes, &job);
}

void tt_render_host(enum tt_render_kind kind, const char *name, char host[TT_RENDER_HOST_BYTES])
{
    snprintf(host, TT_RENDER_HOST_BYTES,
             kind == TT_RENDER_JOBSET ? "%.100s-node-0-0.%.100s" : "%.100s-0.%.100s", name, name);
}

tt_status tt_render_write(const struct tt_render_run *run, struct tt_str *text)
{
    struct tt_render_sizes sizes;
    struct sheet sheet = {text, 0}, job = {text, 1};
    bool claims;
    TT_TRY(tt_render_check_paths(run, &claims));
    TT_TRY(tt_render_size(run, &sizes));
    TT_TRY(write_head(run, &sizes, text));
    TT_TRY(write_config(run, text));
    if (!run->spec->host_network) TT_TRY(write_policy(run, text));
    if (claims) TT_TRY(write_claim(run, sizes.claim, text));
    if (run->kind == TT_RENDER_JOBSET) return write_jobset(run, &sizes, &sheet);
    TT_TRY(write_service(run, text));
    TT_TRY(write_metadata(run, "batch/v1", "Job", &sheet));
    return write_job(run, &sizes, &job);
}
