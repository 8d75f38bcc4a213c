/* The pod, which is the same in all kinds of workloads but for the names that their controllers require. Every text
 * that is inserted was checked (check.c) or is a number. */
#include <string.h>

#include "render/render_impl.h"

/* The user of mpi-operator's images: sshd runs as this user, with a configuration in its home. */
static const char mpi_home[] = "/home/mpiuser";
enum { USER = 65532, MPI_USER = 1000 };

tt_status tt_render_indent(const struct tt_render_sheet *sheet, int deeper)
{
    return tt_str_append_fill(sheet->text, ' ', (size_t)(2 * (sheet->indent + deeper)));
}

static tt_status write_amounts(const struct tt_render_work *work, const struct tt_render_sheet *sheet,
                               bool limits)
{
    const struct tt_render_run *run = work->run;
    const struct tt_render_spec *spec = run->spec;
    if (!limits || run->plan->is_host)
        TT_TRY(LINE(sheet, 0, "cpu: \"%lld\"", (long long)spec->cpus_per_node));
    TT_TRY(LINE(sheet, 0, "memory: %zuMi", work->run->sizes.memory >> 20));
    if (!run->plan->is_host) TT_TRY(LINE(sheet, 0, "%s: %d", spec->gpu_resource, run->ranks));
    return spec->rdma != NULL ? LINE(sheet, 0, "%s: 1", spec->rdma) : TT_OK;
}

tt_status tt_render_write_resources(const struct tt_render_work *work, const struct tt_render_sheet *sheet)
{
    struct tt_render_sheet amounts = {sheet->text, sheet->indent + 1};
    TT_TRY(LINE(sheet, 0, "requests:"));
    TT_TRY(write_amounts(work, &amounts, false));
    TT_TRY(LINE(sheet, 0, "limits:"));
    return write_amounts(work, &amounts, true);
}

static tt_status write_field(const struct tt_render_sheet *pod, const char *name, const char *field)
{
    return LINE(pod, 1, "- {name: %s, valueFrom: {fieldRef: {fieldPath: %s}}}", name, field);
}

/* The user's come last; none of them is one of these (check.c). */
static tt_status write_secrets(const struct tt_render_work *work, const struct tt_render_sheet *pod)
{
    char name[TT_RENDER_SCALAR_BYTES];
    for (int i = 0; i < work->secrets.count; i++) {
        const char *from = work->secrets.items[i].value, *slash = strchr(from, '/');
        TT_TRY(LINE(pod, 1, "- {name: %s, valueFrom: {secretKeyRef: {name: \"%.*s\", key: \"%s\"}}}",
                    tt_render_scalar(work->secrets.items[i].name, name), (int)(slash - from), from,
                    slash + 1));
    }
    return TT_OK;
}

static tt_status write_user_environment(const struct tt_render_work *work, const struct tt_render_sheet *pod)
{
    char name[TT_RENDER_SCALAR_BYTES];
    for (int i = 0; i < work->env.count; i++)
        TT_TRY(LINE(pod, 1, "- {name: %s, value: \"%s\"}", tt_render_scalar(work->env.items[i].name, name),
                    work->env.items[i].value));
    return write_secrets(work, pod);
}

/* The kind of the run. */
static const struct tt_render_kind_facts *kind_of(const struct tt_render_work *work)
{
    return tt_render_kind_facts(work->run->kind);
}

static tt_status write_attempt(const struct tt_render_work *work, const struct tt_render_sheet *pod)
{
    const struct tt_render_kind_facts *kind = kind_of(work);
    if (kind->uid != NULL && *kind->uid == '\0')
        TT_TRY(LINE(pod, 1, "- {name: RUN_UID, value: \"%s\"}", work->run->spec->name));
    else if (kind->uid != NULL)
        TT_TRY(write_field(pod, "RUN_UID", kind->uid));
    return kind->attempt != NULL ? write_field(pod, "RUN_ATTEMPT", kind->attempt) : TT_OK;
}

/* Names of the attempt, by which an earlier one is refused, and of the node, for messages. */
tt_status tt_render_write_environment(const struct tt_render_work *work, const struct tt_render_sheet *pod)
{
    TT_TRY(LINE(pod, 1, "env:"));
    if (!kind_of(work)->serves)
        TT_TRY(LINE(pod, 1, "- {name: TRIMTAB_JOB_SECRET_FILE, value: /etc/trimtab-secret/secret}"));
    TT_TRY(write_field(pod, "NODE_NAME", "spec.nodeName"));
    TT_TRY(write_attempt(work, pod));
    if (work->run->has_names && !work->has_cache)
        TT_TRY(LINE(pod, 1, "- {name: HF_HOME, value: %s}", tt_render_cache_folder));
    return write_user_environment(work, pod);
}

static tt_status write_security(const struct tt_render_work *work, const struct tt_render_sheet *pod)
{
    const struct tt_render_spec *spec = work->run->spec;
    TT_TRY(LINE(pod, 1, "securityContext:"));
    TT_TRY(LINE(pod, 2, "allowPrivilegeEscalation: false"));
    if (!kind_of(work)->writes_root) TT_TRY(LINE(pod, 2, "readOnlyRootFilesystem: true"));
    return LINE(pod, 2, "capabilities: {drop: [ALL]%s}", spec->rdma != NULL ? ", add: [IPC_LOCK]" : "");
}

static tt_status write_mounts(const struct tt_render_work *work, const struct tt_render_sheet *pod)
{
    TT_TRY(LINE(pod, 1, "volumeMounts:"));
    TT_TRY(LINE(pod, 1, "- {name: shm, mountPath: /dev/shm}"));
    TT_TRY(LINE(pod, 1, "- {name: tmp, mountPath: /tmp}"));
    if (!kind_of(work)->is_shared)
        TT_TRY(LINE(pod, 1, "- {name: config, mountPath: /etc/trimtab, readOnly: true}"));
    if (!kind_of(work)->serves)
        TT_TRY(LINE(pod, 1, "- {name: secret, mountPath: /etc/trimtab-secret, readOnly: true}"));
    if (work->claims) TT_TRY(LINE(pod, 1, "- {name: run, mountPath: %s}", tt_render_run_folder));
    if (work->run->has_names && !work->has_cache)
        TT_TRY(LINE(pod, 1, "- {name: cache, mountPath: %s}", tt_render_cache_folder));
    for (int i = 0; i < work->volume_count; i++)
        TT_TRY(LINE(pod, 1, "- {name: volume-%d, mountPath: \"%s\"%s}", i, work->volumes[i].path,
                    work->volumes[i].read_only ? ", readOnly: true" : ""));
    return TT_OK;
}

static tt_status write_port(const struct tt_render_work *work, const struct tt_render_sheet *pod)
{
    if (kind_of(work)->port == NULL) return TT_OK;
    TT_TRY(LINE(pod, 1, "ports:"));
    TT_TRY(LINE(pod, 1, "- {name: %s, containerPort: %d}", kind_of(work)->port, work->run->port));
    if (work->run->metrics_port == 0) return TT_OK;
    return LINE(pod, 1, "- {name: metrics, containerPort: %d}", work->run->metrics_port);
}

/* A server leaves its Service before it is told to stop: endpoints are removed while the pod sleeps. A device that has
 * failed is answered with 503. */
static tt_status write_server_probes(const struct tt_render_sheet *pod)
{
    TT_TRY(LINE(pod, 1, "startupProbe:"));
    TT_TRY(LINE(pod, 2, "httpGet: {path: /healthz, port: http}"));
    TT_TRY(LINE(pod, 2, "periodSeconds: 5"));
    TT_TRY(LINE(pod, 2, "failureThreshold: 360"));
    TT_TRY(LINE(pod, 1, "readinessProbe:"));
    TT_TRY(LINE(pod, 2, "httpGet: {path: /readyz, port: http}"));
    TT_TRY(LINE(pod, 2, "periodSeconds: 5"));
    TT_TRY(LINE(pod, 1, "livenessProbe:"));
    TT_TRY(LINE(pod, 2, "httpGet: {path: /healthz, port: http}"));
    TT_TRY(LINE(pod, 2, "periodSeconds: 20"));
    TT_TRY(LINE(pod, 2, "timeoutSeconds: 5"));
    return LINE(pod, 1, "lifecycle: {preStop: {sleep: {seconds: %d}}}", TT_RENDER_LEAVE_SECONDS);
}

static tt_status write_container(const struct tt_render_work *work, const char *command,
                                 const struct tt_render_sheet *pod)
{
    const struct tt_render_kind_facts *kind = kind_of(work);
    struct tt_render_sheet resources = {pod->text, pod->indent + 2};
    TT_TRY(LINE(pod, 0, "containers:"));
    TT_TRY(LINE(pod, 0, "- name: %s", kind->container));
    if (!kind->has_runtime) {
        TT_TRY(LINE(pod, 1, "image: \"%s\"", work->run->spec->image));
        TT_TRY(LINE(pod, 1, "%s", command));
    }
    TT_TRY(tt_render_write_environment(work, pod));
    TT_TRY(write_port(work, pod));
    if (!kind->has_runtime) {
        TT_TRY(LINE(pod, 1, "resources:"));
        TT_TRY(tt_render_write_resources(work, &resources));
    }
    TT_TRY(kind->serves ? write_server_probes(pod) : tt_render_write_probes(work, pod));
    TT_TRY(write_security(work, pod));
    return write_mounts(work, pod);
}

static tt_status write_volumes(const struct tt_render_work *work, const struct tt_render_sheet *pod)
{
    char secret[128];
    const char *name = work->run->spec->name;
    TT_TRY(LINE(pod, 0, "volumes:"));
    TT_TRY(LINE(pod, 0, "- {name: shm, emptyDir: {medium: Memory, sizeLimit: %zuMi}}",
                work->run->sizes.shm >> 20));
    TT_TRY(LINE(pod, 0, "- {name: tmp, emptyDir: {sizeLimit: %zuMi}}", work->run->sizes.tmp >> 20));
    if (!kind_of(work)->is_shared)
        TT_TRY(LINE(pod, 0, "- {name: config, configMap: {name: %s-config}}", name));
    if (!kind_of(work)->serves)
        TT_TRY(LINE(pod, 0, "- {name: secret, secret: {secretName: \"%s\", defaultMode: 288}}", /* 0440 */
                    tt_render_secret(work->run->spec, secret)));
    if (work->claims) TT_TRY(LINE(pod, 0, "- {name: run, persistentVolumeClaim: {claimName: %s-run}}", name));
    if (work->run->has_names && !work->has_cache) TT_TRY(LINE(pod, 0, "- {name: cache, emptyDir: {}}"));
    return tt_render_write_volumes(work, pod);
}

static tt_status write_user(const struct tt_render_work *work, const struct tt_render_sheet *pod)
{
    int user = kind_of(work)->writes_root ? MPI_USER : USER;
    TT_TRY(LINE(pod, 0, "securityContext:"));
    TT_TRY(LINE(pod, 1, "runAsNonRoot: true"));
    TT_TRY(LINE(pod, 1, "runAsUser: %d", user));
    TT_TRY(LINE(pod, 1, "runAsGroup: %d", user));
    TT_TRY(LINE(pod, 1, "fsGroup: %d", user));
    TT_TRY(LINE(pod, 1, "fsGroupChangePolicy: OnRootMismatch"));
    return LINE(pod, 1, "seccompProfile: {type: RuntimeDefault}");
}

static tt_status write_tolerations(const struct tt_render_work *work, const struct tt_render_sheet *pod)
{
    if (work->run->plan->is_host) return TT_OK;
    TT_TRY(LINE(pod, 0, "tolerations:"));
    return LINE(pod, 0, "- {key: \"%s\", operator: Exists, effect: NoSchedule}",
                work->run->spec->gpu_resource);
}

/* Requirements of the nodes, and the account that may pull the image. */
static tt_status write_selection(const struct tt_render_work *work, const struct tt_render_sheet *pod)
{
    if (work->run->spec->service_account != NULL)
        TT_TRY(LINE(pod, 0, "serviceAccountName: \"%s\"", work->run->spec->service_account));
    if (work->run->spec->image_pull_secret != NULL)
        TT_TRY(LINE(pod, 0, "imagePullSecrets: [{name: \"%s\"}]", work->run->spec->image_pull_secret));
    if (work->selector.count > 0) TT_TRY(LINE(pod, 0, "nodeSelector:"));
    TT_TRY(tt_render_write_pairs(&work->selector, 1, pod));
    return write_tolerations(work, pod);
}

static tt_status write_placement(const struct tt_render_work *work, const struct tt_render_sheet *pod)
{
    if (kind_of(work)->is_shared) return write_selection(work, pod); /* no label tells its runs apart */
    TT_TRY(LINE(pod, 0, "topologySpreadConstraints:"));
    TT_TRY(LINE(pod, 0, "- maxSkew: 1"));
    TT_TRY(LINE(pod, 1, "topologyKey: kubernetes.io/hostname"));
    TT_TRY(LINE(pod, 1, "whenUnsatisfiable: %s", kind_of(work)->serves ? "ScheduleAnyway" : "DoNotSchedule"));
    TT_TRY(LINE(pod, 1, "labelSelector: {matchLabels: {trimtab/run: %s}}", work->run->name));
    if (work->run->spec->gang && kind_of(work)->groups_pods)
        TT_TRY(LINE(pod, 0, "schedulingGroup: {podGroupName: %s}", work->run->name));
    return write_selection(work, pod);
}

static tt_status write_pod(const struct tt_render_work *work, const char *command,
                           const struct tt_render_sheet *pod)
{
    const struct tt_render_spec *spec = work->run->spec;
    if (kind_of(work)->needs_service) TT_TRY(LINE(pod, 0, "subdomain: %s", work->run->name));
    if (!kind_of(work)->restarts_pods) TT_TRY(LINE(pod, 0, "restartPolicy: Never"));
    TT_TRY(LINE(pod, 0, "enableServiceLinks: false"));
    TT_TRY(LINE(pod, 0, "automountServiceAccountToken: false"));
    TT_TRY(LINE(pod, 0, "terminationGracePeriodSeconds: %lld", (long long)work->run->sizes.grace));
    if (spec->priority_class != NULL) TT_TRY(LINE(pod, 0, "priorityClassName: \"%s\"", spec->priority_class));
    if (spec->host_network) {
        TT_TRY(LINE(pod, 0, "hostNetwork: true"));
        TT_TRY(LINE(pod, 0, "dnsPolicy: ClusterFirstWithHostNet"));
    }
    TT_TRY(write_user(work, pod));
    TT_TRY(write_placement(work, pod));
    TT_TRY(write_container(work, command, pod));
    return write_volumes(work, pod);
}

static tt_status write_template(const struct tt_render_work *work, const char *command,
                                const struct tt_render_sheet *sheet)
{
    struct tt_render_sheet pod = {sheet->text, sheet->indent + 1};
    TT_TRY(tt_render_write_pod_metadata(work, sheet));
    TT_TRY(LINE(sheet, 0, "spec:"));
    return write_pod(work, command, &pod);
}

tt_status tt_render_write_patch(const struct tt_render_work *work, const struct tt_render_sheet *sheet)
{
    struct tt_render_sheet pod = {sheet->text, sheet->indent + 1};
    TT_TRY(tt_render_write_pod_metadata(work, sheet));
    TT_TRY(LINE(sheet, 0, "spec:"));
    TT_TRY(LINE(&pod, 0, "terminationGracePeriodSeconds: %lld", (long long)work->run->sizes.grace));
    TT_TRY(write_user(work, &pod));
    TT_TRY(write_selection(work, &pod));
    TT_TRY(LINE(&pod, 0, "containers:"));
    TT_TRY(LINE(&pod, 0, "- name: %s", kind_of(work)->container));
    TT_TRY(write_security(work, &pod));
    TT_TRY(write_mounts(work, &pod));
    return write_volumes(work, &pod);
}

tt_status tt_render_write_template(const struct tt_render_work *work, const struct tt_render_sheet *sheet)
{
    struct tt_str command = {0};
    tt_status status;
    if (!kind_of(work)->is_shared)
        return write_template(work, "args: [train, --config, /etc/trimtab/config.yaml]", sheet);
    status = tt_str_printf(&command, "args: [train, %s]", work->run->flags);
    if (status == TT_OK) status = write_template(work, tt_str_text(&command), sheet);
    tt_str_deinit(&command);
    return status;
}

/* The program of the image writes to its home and to the volume. */
tt_status tt_render_write_initializer(const struct tt_render_work *work, const char *name, const char *image,
                                      const struct tt_render_sheet *sheet)
{
    const struct tt_render_sheet pod = {sheet->text, sheet->indent + 1};
    TT_TRY(LINE(sheet, 0, "spec:"));
    TT_TRY(LINE(&pod, 0, "automountServiceAccountToken: false"));
    TT_TRY(write_user(work, &pod));
    TT_TRY(LINE(&pod, 0, "containers:"));
    TT_TRY(LINE(&pod, 0, "- name: %s", name));
    TT_TRY(LINE(&pod, 1, "image: \"%s\"", image));
    TT_TRY(LINE(&pod, 1, "env:"));
    TT_TRY(LINE(&pod, 1, "- {name: HOME, value: /tmp}"));
    TT_TRY(write_user_environment(work, &pod));
    TT_TRY(LINE(&pod, 1, "securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}"));
    TT_TRY(LINE(&pod, 1, "volumeMounts:"));
    TT_TRY(LINE(&pod, 1, "- {name: tmp, mountPath: /tmp}"));
    for (int i = 0; i < work->volume_count; i++)
        if (strcmp(work->volumes[i].path, "/workspace") == 0)
            TT_TRY(LINE(&pod, 1, "- {name: volume-%d, mountPath: /workspace}", i));
    TT_TRY(LINE(&pod, 0, "volumes:"));
    TT_TRY(LINE(&pod, 0, "- {name: tmp, emptyDir: {}}"));
    return tt_render_write_volumes(work, &pod);
}

tt_status tt_render_write_server_template(const struct tt_render_work *work,
                                          const struct tt_render_sheet *sheet)
{
    return write_template(work, "args: [serve, --config, /etc/trimtab/config.yaml]", sheet);
}

tt_status tt_render_write_mpi_template(const struct tt_render_work *work, bool launcher,
                                       const struct tt_render_sheet *sheet)
{
    struct tt_str command = {0};
    char name[TT_RENDER_SCALAR_BYTES];
    tt_status status;
    if (launcher)
        status = tt_str_printf(&command, "command: [mpirun, -n, \"%d\", --bind-to, none, ",
                               work->run->plan->ranks.count);
    else
        status = tt_str_printf(&command, "command: [/usr/sbin/sshd, -De, -f, %s/.sshd_config]", mpi_home);
    /* sshd gives its own variables to nobody. */
    for (int i = 0; launcher && status == TT_OK && i < work->env.count; i++)
        status = tt_str_printf(&command, "-x, %s, ", tt_render_scalar(work->env.items[i].name, name));
    for (int i = 0; launcher && status == TT_OK && i < work->secrets.count; i++)
        status = tt_str_printf(&command, "-x, %s, ", tt_render_scalar(work->secrets.items[i].name, name));
    if (status == TT_OK && launcher)
        status = tt_str_append_text(&command, "trimtab, train, --config, /etc/trimtab/config.yaml]");
    if (status == TT_OK) status = write_template(work, tt_str_text(&command), sheet);
    tt_str_deinit(&command);
    return status;
}
