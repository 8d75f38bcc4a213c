/* Private header of src/render: a run with its derived values, and lines of YAML. */
#ifndef TT_RENDER_RENDER_IMPL_H
#define TT_RENDER_RENDER_IMPL_H

#include "render/render.h"

/* Lines `indent` levels deep: parts of a stream are at another depth in each kind of object. */
struct tt_render_sheet {
    struct tt_str *text;
    int indent;
};

struct tt_render_work {
    const struct tt_render_run *run;
    struct tt_render_volume volumes[TT_RENDER_VOLUMES_MAX];
    int volume_count;
    struct tt_render_pairs env, secrets, labels; /* variables of the pods; labels that their nodes have */
    bool claims;                                 /* output_dir gets a claim of its own */
};

/* A text of printable ASCII without quotes as a key or value of YAML: quoted where YAML 1.1 or 1.2 would read something
 * else (no, 010, 0x10, 2026-01-01). Returns `scalar`. */
const char *tt_render_scalar(const char *text, char scalar[TT_RENDER_SCALAR_BYTES]);
/* Appends the spaces of a line `deeper` levels below the sheet's. */
TT_MUST_USE tt_status tt_render_indent(const struct tt_render_sheet *sheet, int deeper);
/* One line; only memory can fail. */
#define LINE(sheet, deeper, ...)                                                                             \
    (tt_render_indent(sheet, deeper) != TT_OK || tt_str_printf((sheet)->text, __VA_ARGS__) != TT_OK          \
         ? TT_ERR_MEMORY                                                                                     \
         : tt_str_append_char((sheet)->text, '\n'))

/* The beginning of a workload, up to `spec:`; `queue`: with the label of Kueue. */
TT_MUST_USE tt_status tt_render_write_metadata(const struct tt_render_work *work, const char *version,
                                               const char *kind, bool queue,
                                               const struct tt_render_sheet *sheet);
/* "2, 3, 4" */
TT_MUST_USE tt_status tt_render_write_codes(struct tt_str *text, const int *codes, int count,
                                            const char *between);
/* `metadata:` and `spec:` of a pod template. */
TT_MUST_USE tt_status tt_render_write_template(const struct tt_render_work *work,
                                               const struct tt_render_sheet *sheet);
/* The same for the process of MPIJob with this role: "launcher" or "worker". */
TT_MUST_USE tt_status tt_render_write_mpi_template(const struct tt_render_work *work, bool launcher,
                                                   const struct tt_render_sheet *sheet);
/* `metadata:` and `spec:` of a pod template with what a TrainJob may change of a runtime's pods. */
TT_MUST_USE tt_status tt_render_write_patch(const struct tt_render_work *work,
                                            const struct tt_render_sheet *sheet);
/* `env:` of a container, one level below the sheet's. */
TT_MUST_USE tt_status tt_render_write_environment(const struct tt_render_work *work,
                                                  const struct tt_render_sheet *pod);
/* `resources:` of a container. */
TT_MUST_USE tt_status tt_render_write_resources(const struct tt_render_work *work,
                                                const struct tt_render_sheet *sheet);

/* Probes of a container that answers at its port `metrics`. */
TT_MUST_USE tt_status tt_render_write_probes(const struct tt_render_work *work,
                                             const struct tt_render_sheet *pod);
/* PodMonitor and PrometheusRule, where a namespace of Prometheus is given. */
TT_MUST_USE tt_status tt_render_write_monitoring(const struct tt_render_run *run, struct tt_str *text);

/* The script for sbatch. */
TT_MUST_USE tt_status tt_render_write_sbatch(const struct tt_render_run *run, struct tt_str *text);
/* The workload of each kind. */
TT_MUST_USE tt_status tt_render_write_job(const struct tt_render_work *work, struct tt_str *text);
TT_MUST_USE tt_status tt_render_write_jobset(const struct tt_render_work *work, struct tt_str *text);
TT_MUST_USE tt_status tt_render_write_trainjob(const struct tt_render_work *work, struct tt_str *text);
TT_MUST_USE tt_status tt_render_write_pytorchjob(const struct tt_render_work *work, struct tt_str *text);
TT_MUST_USE tt_status tt_render_write_mpijob(const struct tt_render_work *work, struct tt_str *text);
TT_MUST_USE tt_status tt_render_write_volcano(const struct tt_render_work *work, struct tt_str *text);

#endif
