/* The objects, in the order in which they are created: configuration, network, volume, then the workload. Flow mappings
 * only where a line stays short. Every text that is inserted was checked (check.c) or is a number. */
#include <stdio.h>
#include <string.h>

#include "config/value.h"
#include "render/render_impl.h"

/* A ConfigMap has at most 1 MiB, with its names. */
enum { CONFIG_BYTES_MAX = 1000000 };

static const struct tt_render_kind_facts facts[] = {
#define KIND(name, ...) [TT_RENDER_##name] = {__VA_ARGS__},
#include "render/kinds.def"
#undef KIND
};

const struct tt_render_kind_facts *tt_render_kind_facts(enum tt_render_kind kind)
{
    return &facts[kind];
}

const char *tt_render_secret(const struct tt_render_spec *spec, char name[TT_RENDER_SECRET_BYTES])
{
    snprintf(name, TT_RENDER_SECRET_BYTES, "%.63s%s", spec->secret != NULL ? spec->secret : spec->name,
             spec->secret != NULL ? "" : "-secret");
    return name;
}

tt_status tt_render_write_codes(struct tt_str *text, const int *codes, int count, const char *between)
{
    for (int i = 0; i < count; i++) TT_TRY(tt_str_printf(text, "%s%d", i > 0 ? between : "", codes[i]));
    return TT_OK;
}

static const char *security_level(const struct tt_render_run *run)
{
    if (run->spec->rdma != NULL || run->spec->host_network) return "privileged";
    return facts[run->kind].injects_container && run->spec->nodes > 1 ? "baseline" : "restricted";
}

static tt_status write_server_head(const struct tt_render_work *work, struct tt_str *text)
{
    char memory[32];
    const struct tt_render_run *run = work->run;
    TT_TRY(tt_str_printf(text, "# %s: %lld pod%s of %d rank%s, planned for %s, rendered by trimtab\n",
                         run->spec->name, (long long)run->spec->replicas, run->spec->replicas == 1 ? "" : "s",
                         run->ranks, run->ranks == 1 ? "" : "s", run->plan->device));
    return tt_str_printf(text,
                         "# memory of a pod %s; a pod ends at most %lld s after it is told to\n"
                         "# Pod Security level of the namespace: %s\n",
                         tt_format_bytes((double)run->sizes.memory, memory, sizeof memory),
                         (long long)run->sizes.grace, security_level(run));
}

static tt_status write_head(const struct tt_render_work *work, struct tt_str *text)
{
    char secret[TT_RENDER_SECRET_BYTES], memory[32], checkpoint[32];
    const struct tt_render_run *run = work->run;
    const struct tt_render_spec *spec = run->spec;
    const struct tt_render_sizes *sizes = &run->sizes;
    TT_TRY(tt_str_printf(text, "# %s: %d rank%s on %lld node%s, planned for %s, rendered by trimtab\n",
                         spec->name, run->plan->ranks.count, run->plan->ranks.count == 1 ? "" : "s",
                         (long long)spec->nodes, spec->nodes == 1 ? "" : "s", run->plan->device));
    TT_TRY(tt_str_printf(text, "# memory of a pod %s; a checkpoint at most %s; a stop takes %.3g s\n",
                         tt_format_bytes((double)sizes->memory, memory, sizeof memory),
                         tt_format_bytes((double)sizes->checkpoint, checkpoint, sizeof checkpoint),
                         2 * sizes->step_seconds + sizes->save_seconds));
    TT_TRY(tt_str_printf(text, "# Pod Security level of the namespace: %s\n", security_level(run)));
    TT_TRY(tt_str_append_text(
        text, "# Before it, once, the job secret that the pods of this run know each other by:\n"));
    TT_TRY(tt_str_append_text(text, "#   openssl rand -hex 32 | kubectl "));
    if (spec->namespace != NULL) TT_TRY(tt_str_printf(text, "-n %s ", spec->namespace));
    return tt_str_printf(text, "create secret generic %s --from-file=secret=/dev/stdin\n",
                         tt_render_secret(spec, secret));
}

/* `labels:` and `annotations:` with those of the user. */
static tt_status write_notes(const struct tt_render_work *work, const struct tt_render_note *own_label,
                             const struct tt_render_note *own_annotation, const struct tt_render_sheet *sheet)
{
    TT_TRY(LINE(sheet, 1, "labels:"));
    TT_TRY(LINE(sheet, 2, "trimtab/run: %s", work->run->name));
    if (own_label != NULL) TT_TRY(LINE(sheet, 2, "%s: \"%s\"", own_label->name, own_label->value));
    TT_TRY(tt_render_write_pairs(&work->labels, 2, sheet));
    if (own_annotation == NULL && work->annotations.count == 0) return TT_OK;
    TT_TRY(LINE(sheet, 1, "annotations:"));
    if (own_annotation != NULL)
        TT_TRY(LINE(sheet, 2, "%s: \"%s\"", own_annotation->name, own_annotation->value));
    return tt_render_write_pairs(&work->annotations, 2, sheet);
}

tt_status tt_render_write_pairs(const struct tt_render_pairs *pairs, int deeper,
                                const struct tt_render_sheet *sheet)
{
    char name[TT_RENDER_SCALAR_BYTES];
    for (int i = 0; i < pairs->count; i++)
        TT_TRY(LINE(sheet, deeper, "%s: \"%s\"", tt_render_scalar(pairs->items[i].name, name),
                    pairs->items[i].value));
    return TT_OK;
}

tt_status tt_render_write_metadata(const struct tt_render_work *work, const struct tt_render_object *object,
                                   const struct tt_render_sheet *sheet)
{
    char namespace[TT_RENDER_SCALAR_BYTES];
    const struct tt_render_spec *spec = work->run->spec;
    const struct tt_render_note queue = {"kueue.x-k8s.io/queue-name", spec->queue};
    TT_TRY(LINE(sheet, 0, "---"));
    TT_TRY(LINE(sheet, 0, "apiVersion: %s", object->version));
    TT_TRY(LINE(sheet, 0, "kind: %s", object->kind));
    TT_TRY(LINE(sheet, 0, "metadata:"));
    if (object->ending != NULL && *object->ending != '\0')
        TT_TRY(LINE(sheet, 1, "name: %s%s", spec->name, object->ending));
    else
        TT_TRY(LINE(sheet, 1, "name: %s", work->run->name));
    if (spec->namespace != NULL && !object->of_cluster)
        TT_TRY(LINE(sheet, 1, "namespace: %s", tt_render_scalar(spec->namespace, namespace)));
    return write_notes(work, object->queued && spec->queue != NULL ? &queue : object->label, NULL, sheet);
}

tt_status tt_render_write_workload(const struct tt_render_work *work, const char *version, const char *kind,
                                   bool queued, const struct tt_render_sheet *sheet)
{
    const struct tt_render_object object = {.version = version, .kind = kind, .queued = queued};
    TT_TRY(tt_render_write_metadata(work, &object, sheet));
    return LINE(sheet, 0, "spec:");
}

tt_status tt_render_write_pod_metadata(const struct tt_render_work *work, const struct tt_render_sheet *sheet)
{
    const struct tt_render_note networks = {"k8s.v1.cni.cncf.io/networks", work->run->spec->networks};
    TT_TRY(LINE(sheet, 0, "metadata:"));
    return write_notes(work, NULL, networks.value != NULL ? &networks : NULL, sheet);
}

static tt_status write_plain_metadata(const struct tt_render_work *work, const char *version,
                                      const char *kind, const char *ending, struct tt_str *text)
{
    const struct tt_render_object object = {.version = version, .kind = kind, .ending = ending};
    const struct tt_render_sheet sheet = {text, 0};
    return tt_render_write_metadata(work, &object, &sheet);
}

static tt_status write_config(const struct tt_render_work *work, struct tt_str *text)
{
    const char *rest = work->run->config;
    if (strlen(rest) > CONFIG_BYTES_MAX)
        return tt_fail(TT_ERR_USAGE, "the configuration has %zu bytes, more than a ConfigMap holds",
                       strlen(rest));
    TT_TRY(write_plain_metadata(work, "v1", "ConfigMap", "-config", text));
    TT_TRY(tt_str_append_text(text, "data:\n  config.yaml: |\n"));
    while (*rest != '\0') {
        size_t bytes = strcspn(rest, "\n");
        if (bytes > 0) TT_TRY(tt_str_append_text(text, "    "));
        TT_TRY(tt_str_append(text, rest, bytes));
        TT_TRY(tt_str_append_char(text, '\n'));
        rest += bytes + (rest[bytes] == '\n');
    }
    return TT_OK;
}

/* The service of a plain Job; the controllers of the others make their own. */
static tt_status write_service(const struct tt_render_work *work, struct tt_str *text)
{
    TT_TRY(write_plain_metadata(work, "v1", "Service", "", text));
    return tt_str_printf(text,
                         "spec:\n  clusterIP: None\n  publishNotReadyAddresses: true\n  selector:\n"
                         "    trimtab/run: %s\n  ports:\n  - {name: rendezvous, port: %d}\n",
                         work->run->name, work->run->port);
}

/* Prometheus reads the pods' metrics. Probes come from the node, which no policy keeps out. */
static tt_status write_ingress(const struct tt_render_run *run, struct tt_str *text)
{
    char namespace[TT_RENDER_SCALAR_BYTES];
    if (run->spec->monitoring_namespace == NULL) return TT_OK;
    return tt_str_printf(text,
                         "  - from:\n    - namespaceSelector:\n        matchLabels:\n"
                         "          kubernetes.io/metadata.name: %s\n    ports:\n"
                         "    - {protocol: TCP, port: %d}\n",
                         tt_render_scalar(run->spec->monitoring_namespace, namespace), run->metrics_port);
}

/* A policy knows no host names: the ports of stores, of the hub and of trackers are open to any address. */
static tt_status write_way_out(const struct tt_render_run *run, struct tt_str *text)
{
    int ports[TT_RENDER_PORTS_MAX], count;
    TT_TRY(tt_render_ports(run->spec->pod_env, ports, &count));
    if (!run->leaves_cluster && (!run->has_server || count == 0)) return TT_OK;
    TT_TRY(tt_str_append_text(text, "  - ports:\n"));
    if (run->leaves_cluster) TT_TRY(tt_str_append_text(text, "    - {protocol: TCP, port: 443}\n"));
    for (int i = 0; i < count; i++)
        if (!run->leaves_cluster || ports[i] != 443)
            TT_TRY(tt_str_printf(text, "    - {protocol: TCP, port: %d}\n", ports[i]));
    if (run->spec->service_account == NULL || !run->leaves_cluster) return TT_OK;
    /* EKS' agent on the node, which gives pods of the account the keys of its role. */
    return tt_str_append_text(text, "  - to:\n    - ipBlock: {cidr: 169.254.170.23/32}\n"
                                    "    - ipBlock: {cidr: \"fd00:ec2::23/128\"}\n    ports:\n"
                                    "    - {protocol: TCP, port: 80}\n");
}

tt_status tt_render_write_egress(const struct tt_render_run *run, struct tt_str *text)
{
    TT_TRY(tt_str_append_text(
        text, "  - to:\n    - namespaceSelector: {}\n      podSelector:\n        matchLabels:\n"
              "          k8s-app: kube-dns\n    ports:\n"
              "    - {protocol: UDP, port: 53}\n    - {protocol: TCP, port: 53}\n"));
    return write_way_out(run, text);
}

/* Pods of a run reach each other and the name service, and nothing else but the stores that paths name. */
static tt_status write_policy(const struct tt_render_work *work, struct tt_str *text)
{
    const struct tt_render_run *run = work->run;
    const char *name = run->name;
    TT_TRY(write_plain_metadata(work, "networking.k8s.io/v1", "NetworkPolicy", "", text));
    TT_TRY(tt_str_printf(text,
                         "spec:\n  podSelector:\n    matchLabels:\n      trimtab/run: %s\n"
                         "  policyTypes: [Ingress, Egress]\n  ingress:\n  - from:\n    - podSelector:\n"
                         "        matchLabels:\n          trimtab/run: %s\n",
                         name, name));
    TT_TRY(write_ingress(run, text));
    TT_TRY(tt_str_printf(
        text, "  egress:\n  - to:\n    - podSelector:\n        matchLabels:\n          trimtab/run: %s\n",
        name));
    return tt_render_write_egress(run, text);
}

static tt_status write_claim(const struct tt_render_work *work, size_t bytes, struct tt_str *text)
{
    const struct tt_render_spec *spec = work->run->spec;
    TT_TRY(write_plain_metadata(work, "v1", "PersistentVolumeClaim", "-run", text));
    TT_TRY(tt_str_printf(text, "spec:\n  accessModes: [%s]\n",
                         spec->nodes > 1 ? "ReadWriteMany" : "ReadWriteOnce"));
    if (spec->storage_class != NULL)
        TT_TRY(tt_str_printf(text, "  storageClassName: \"%s\"\n", spec->storage_class));
    return tt_str_printf(text, "  resources:\n    requests:\n      storage: %zuMi\n", bytes >> 20);
}

/* Pods of a group are scheduled all or none. */
static tt_status write_group(const struct tt_render_work *work, struct tt_str *text)
{
    TT_TRY(write_plain_metadata(work, "scheduling.k8s.io/v1beta1", "PodGroup", "", text));
    return tt_str_printf(text, "spec:\n  schedulingPolicy:\n    gang: {minCount: %lld}\n",
                         (long long)work->run->spec->nodes);
}

void tt_render_host(enum tt_render_kind kind, const char *name, char host[TT_RENDER_HOST_BYTES])
{
    snprintf(host, TT_RENDER_HOST_BYTES, "%.100s%s%s%.100s", name, facts[kind].first,
             facts[kind].has_domain ? "." : "", facts[kind].has_domain ? name : "");
}

const char *tt_render_scalar(const char *text, char scalar[TT_RENDER_SCALAR_BYTES])
{
    const char *quote = tt_value_is_plain(text) ? "" : "\"";
    snprintf(scalar, TT_RENDER_SCALAR_BYTES, "%s%.200s%s", quote, text, quote);
    return scalar;
}

/* A runtime, which needs in each namespace that uses it the Secret and the claims that it names. */
static tt_status write_shared(const struct tt_render_work *work, struct tt_str *text)
{
    if (!work->claims) return tt_render_kind_facts(work->run->kind)->write(work, text);
    tt_status status =
        tt_fail(TT_ERR_USAGE, "a path of the run lies in %s, whose claim no ClusterTrainingRuntime has",
                tt_render_run_folder);
    tt_hint("use a folder of a volume, as in --volumes NAME:/workspace --output_dir /workspace/output");
    return status;
}

tt_status tt_render_write(const struct tt_render_run *given, struct tt_str *text)
{
    struct tt_render_run named = *given, *run = &named;
    struct tt_render_work work = {.run = run};
    (void)tt_render_scalar(run->spec->name, named.name);
    const struct tt_render_kind_facts *kind = tt_render_kind_facts(run->kind);
    if (kind->is_script) return tt_render_write_sbatch(given, text);
    TT_TRY(tt_render_volumes(run->spec, work.volumes, &work.volume_count));
    TT_TRY(tt_render_read_pairs("pod_env", run->spec->pod_env, &work.env));
    TT_TRY(tt_render_read_secrets(run->spec->pod_secrets, &work.secrets));
    TT_TRY(tt_render_read_pairs("node_selector", run->spec->node_selector, &work.selector));
    TT_TRY(tt_render_read_pairs("object_labels", run->spec->object_labels, &work.labels));
    TT_TRY(tt_render_read_pairs("object_annotations", run->spec->object_annotations, &work.annotations));
    TT_TRY(tt_render_check_paths(run, &work.claims));
    for (int i = 0; i < work.env.count; i++)
        work.has_cache |= strcmp(work.env.items[i].name, "HF_HOME") == 0 ||
                          strcmp(work.env.items[i].name, "HF_HUB_CACHE") == 0;
    TT_TRY(kind->serves ? write_server_head(&work, text) : write_head(&work, text));
    if (kind->is_shared) return write_shared(&work, text);
    TT_TRY(write_config(&work, text));
    if (!run->spec->host_network && !kind->serves) TT_TRY(write_policy(&work, text));
    if (work.claims) TT_TRY(write_claim(&work, run->sizes.claim, text));
    if (run->spec->gang && kind->groups_pods) TT_TRY(write_group(&work, text));
    if (kind->needs_service) TT_TRY(write_service(&work, text));
    TT_TRY(tt_render_write_monitoring(&work, text));
    return kind->write(&work, text);
}
