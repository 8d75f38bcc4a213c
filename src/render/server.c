/* A server: Deployment, Service, the policies of its network and of disruptions.
 *
 * Sources: Kubernetes' API reference: Deployment (apps/v1), PodDisruptionBudget (policy/v1), and SleepAction, which
 * clusters have by default from 1.30 on: the image has no program to sleep with. */
#include "render/render_impl.h"

/* A Deployment that makes no progress for so long has failed: longer than the startup probe waits. */
enum { PROGRESS_SECONDS = 2400, HTTP_PORT = 80 };

static tt_status write_metadata(const struct tt_render_work *work, const char *version, const char *kind,
                                const struct tt_render_sheet *sheet)
{
    return tt_render_write_workload(work, version, kind, false, sheet);
}

static tt_status write_service(const struct tt_render_work *work, const struct tt_render_sheet *sheet)
{
    TT_TRY(write_metadata(work, "v1", "Service", sheet));
    TT_TRY(LINE(sheet, 1, "selector: {trimtab/run: %s}", work->run->name));
    return LINE(sheet, 1, "ports: [{name: http, port: %d, targetPort: http}]", HTTP_PORT);
}

/* Clients are the pods of the namespace, and of one more. Probes come from the node, which no policy keeps out. */
static tt_status write_policy(const struct tt_render_work *work, const struct tt_render_sheet *sheet)
{
    char namespace[TT_RENDER_SCALAR_BYTES];
    const struct tt_render_run *run = work->run;
    TT_TRY(write_metadata(work, "networking.k8s.io/v1", "NetworkPolicy", sheet));
    TT_TRY(LINE(sheet, 1, "podSelector: {matchLabels: {trimtab/run: %s}}", run->name));
    TT_TRY(LINE(sheet, 1, "policyTypes: [Ingress, Egress]"));
    TT_TRY(LINE(sheet, 1, "ingress:"));
    TT_TRY(LINE(sheet, 1, "- from:"));
    TT_TRY(LINE(sheet, 2, "- podSelector: {}"));
    if (run->spec->client_namespace != NULL)
        TT_TRY(LINE(sheet, 2, "- namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: %s}}",
                    tt_render_scalar(run->spec->client_namespace, namespace)));
    TT_TRY(LINE(sheet, 2, "ports: [{protocol: TCP, port: %d}]", run->port));
    TT_TRY(LINE(sheet, 1, "egress:"));
    return tt_render_write_egress(run, sheet->text);
}

/* Drains of nodes take one pod at a time. */
static tt_status write_budget(const struct tt_render_work *work, const struct tt_render_sheet *sheet)
{
    if (work->run->spec->replicas < 2) return TT_OK;
    TT_TRY(write_metadata(work, "policy/v1", "PodDisruptionBudget", sheet));
    TT_TRY(LINE(sheet, 1, "maxUnavailable: 1"));
    return LINE(sheet, 1, "selector: {matchLabels: {trimtab/run: %s}}", work->run->name);
}

/* A new pod comes before an old one goes; with GPUs, which there may be no more of, an old one goes first. */
tt_status tt_render_write_deployment(const struct tt_render_work *work, struct tt_str *text)
{
    const struct tt_render_sheet sheet = {text, 0}, template = {text, 2};
    bool spare = work->run->plan->is_host;
    TT_TRY(write_policy(work, &sheet));
    TT_TRY(write_service(work, &sheet));
    TT_TRY(write_budget(work, &sheet));
    TT_TRY(write_metadata(work, "apps/v1", "Deployment", &sheet));
    TT_TRY(LINE(&sheet, 1, "replicas: %lld", (long long)work->run->spec->replicas));
    TT_TRY(LINE(&sheet, 1, "progressDeadlineSeconds: %d", PROGRESS_SECONDS));
    TT_TRY(LINE(&sheet, 1, "selector: {matchLabels: {trimtab/run: %s}}", work->run->name));
    TT_TRY(LINE(&sheet, 1, "strategy:"));
    TT_TRY(LINE(&sheet, 2, "rollingUpdate: {maxSurge: %d, maxUnavailable: %d}", spare, !spare));
    TT_TRY(LINE(&sheet, 1, "template:"));
    return tt_render_write_server_template(work, &template);
}
