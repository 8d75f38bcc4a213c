/* Objects for Prometheus: the targets of its scrapes, and alerts. */
#include "render/render_impl.h"

/* A run whose saves are further apart than these is not late yet. */
enum { SAVE_INTERVALS = 3, LEAST_AGE_SECONDS = 3600 };

tt_status tt_render_write_probes(const struct tt_render_work *work, const struct tt_render_sheet *pod)
{
    if (work->run->metrics_port == 0) return TT_OK;
    TT_TRY(LINE(pod, 1, "startupProbe:"));
    TT_TRY(LINE(pod, 2, "httpGet: {path: /healthz, port: metrics}"));
    TT_TRY(LINE(pod, 2, "periodSeconds: 5"));
    TT_TRY(LINE(pod, 2, "failureThreshold: 360"));
    if (tt_render_kind_facts(work->run->kind)->is_ready_at_once) return TT_OK;
    TT_TRY(LINE(pod, 1, "readinessProbe:"));
    TT_TRY(LINE(pod, 2, "httpGet: {path: /readyz, port: metrics}"));
    return LINE(pod, 2, "periodSeconds: 10");
}

static tt_status write_metadata(const struct tt_render_work *work, const char *kind, struct tt_str *text)
{
    const struct tt_render_object object = {.version = "monitoring.coreos.com/v1", .kind = kind};
    const struct tt_render_sheet sheet = {text, 0};
    return tt_render_write_metadata(work, &object, &sheet);
}

static tt_status write_monitor(const struct tt_render_work *work, struct tt_str *text)
{
    TT_TRY(write_metadata(work, "PodMonitor", text));
    return tt_str_printf(text,
                         "spec:\n  selector:\n    matchLabels:\n      trimtab/run: %s\n"
                         "  podTargetLabels: [trimtab/run]\n  podMetricsEndpoints:\n"
                         "  - {port: metrics, path: /metrics, interval: 15s}\n",
                         work->run->name);
}

static tt_status write_alert(const struct tt_render_sheet *rules, const char *name, const char *minutes,
                             const char *summary)
{
    TT_TRY(LINE(rules, 1, "for: %s", minutes));
    TT_TRY(LINE(rules, 1, "labels: {severity: warning}"));
    return LINE(rules, 1, "annotations: {summary: \"%s: %s\"}", name, summary);
}

/* Label of the samples of this run's pods (podTargetLabels). */
#define OF_RUN "{trimtab_run=\"%s\"}"

static tt_status write_late_checkpoint(const struct tt_render_run *run, const struct tt_render_sheet *rules)
{
    const struct tt_render_sizes *sizes = &run->sizes;
    const char *name = run->spec->name;
    double age = SAVE_INTERVALS * ((double)run->save_steps * sizes->step_seconds + sizes->save_seconds);
    if (run->save_steps == 0) return TT_OK; /* saves at the end of epochs, or none */
    if (age < LEAST_AGE_SECONDS) age = LEAST_AGE_SECONDS;
    TT_TRY(LINE(rules, 0, "- alert: TrimtabCheckpointLate"));
    TT_TRY(LINE(rules, 1,
                "expr: time() - max by (namespace) (trimtab_checkpoint_last_timestamp_seconds" OF_RUN
                " > 0 or trimtab_start_timestamp_seconds" OF_RUN ") > %.0f",
                name, name, age));
    return write_alert(rules, name, "5m", "no complete checkpoint for three times the time between two");
}

static tt_status write_rules(const struct tt_render_work *work, struct tt_str *text)
{
    const struct tt_render_run *run = work->run;
    const char *name = run->spec->name;
    struct tt_render_sheet rules = {text, 2};
    TT_TRY(write_metadata(work, "PrometheusRule", text));
    TT_TRY(tt_str_printf(text, "spec:\n  groups:\n  - name: trimtab-%s\n    rules:\n", name));
    TT_TRY(LINE(&rules, 0, "- alert: TrimtabNoStep"));
    TT_TRY(LINE(
        &rules, 1,
        "expr: time() - max by (namespace) (trimtab_last_step_timestamp_seconds" OF_RUN
        ") > 5 * histogram_quantile(0.99, sum by (namespace, le) (rate(trimtab_step_seconds_bucket" OF_RUN
        "[1h])))",
        name, name));
    TT_TRY(write_alert(&rules, name, "1m", "no step for five times the time of the slowest steps"));
    TT_TRY(LINE(&rules, 0, "- alert: TrimtabLossNotFinite"));
    TT_TRY(LINE(&rules, 1,
                "expr: (trimtab_loss" OF_RUN " != trimtab_loss" OF_RUN ") or (abs(trimtab_loss" OF_RUN
                ") == Inf)",
                name, name, name));
    TT_TRY(write_alert(&rules, name, "0m", "the loss is not a finite number"));
    TT_TRY(LINE(&rules, 0, "- alert: TrimtabSlowRank"));
    TT_TRY(LINE(&rules, 1,
                "expr: max by (namespace) (rate(trimtab_rank_wait_seconds_total" OF_RUN "[10m])) > 0.2",
                name));
    TT_TRY(write_alert(&rules, name, "10m",
                       "ranks wait for the slowest one for more than a fifth of the time; it waits least"));
    return write_late_checkpoint(run, &rules);
}

tt_status tt_render_write_monitoring(const struct tt_render_work *work, struct tt_str *text)
{
    if (work->run->spec->monitoring_namespace == NULL) return TT_OK;
    TT_TRY(write_monitor(work, text));
    return write_rules(work, text);
}
