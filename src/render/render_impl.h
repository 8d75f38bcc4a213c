/* Private header of src/render: a run with its derived values, and lines of YAML. */
#ifndef TT_RENDER_RENDER_IMPL_H
#define TT_RENDER_RENDER_IMPL_H

#include "render/render.h"

/* Characters of names (check.c): `inside` may stand between those of `ends`. */
extern const char tt_render_lower[], tt_render_any[];
bool tt_render_consists_of(const char *text, size_t bytes, const char *ends, const char *inside);
/* Printable ASCII without quotes and backslashes. */
bool tt_render_is_printable(const char *text);
/* Names the setting, the field of the objects that it becomes, and the rule, as the hint. */
tt_status tt_render_refuse(const char *setting, const char *value, const char *rule);
/* A name has at most 63 lower case letters, digits, '-' and '.'. Takes NULL. */
TT_MUST_USE tt_status tt_render_check_object_name(const char *setting, const char *value);
/* The folder in which the hub's cache of a pod lies. */
extern const char tt_render_cache_folder[];

/* Lines `indent` levels deep: parts of a stream are at another depth in each kind of object. */
struct tt_render_sheet {
    struct tt_str *text;
    int indent;
};

struct tt_render_work {
    const struct tt_render_run *run;
    struct tt_render_volume volumes[TT_RENDER_VOLUMES_MAX];
    int volume_count;
    struct tt_render_pairs env, secrets;        /* variables of the pods */
    struct tt_render_pairs selector;            /* labels that their nodes have */
    struct tt_render_pairs labels, annotations; /* of all objects and pods */
    bool has_cache;                             /* the user's variables say where the hub's cache is */
    bool claims;                                /* output_dir gets a claim of its own */
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

/* A label or annotation that an object has of its own. */
struct tt_render_note {
    const char *name, *value;
};
struct tt_render_object {
    const char *version, *kind;
    const char *ending;                 /* of its name after the run's; NULL: none */
    bool queued;                        /* with the label of Kueue */
    bool of_cluster;                    /* it is in no namespace */
    const struct tt_render_note *label; /* NULL: none; not with `queued` */
};
/* The beginning of an object, up to its `metadata:`. */
TT_MUST_USE tt_status tt_render_write_metadata(const struct tt_render_work *work,
                                               const struct tt_render_object *object,
                                               const struct tt_render_sheet *sheet);
/* The beginning of a workload, up to `spec:`. */
TT_MUST_USE tt_status tt_render_write_workload(const struct tt_render_work *work, const char *version,
                                               const char *kind, bool queued,
                                               const struct tt_render_sheet *sheet);
/* `metadata:` of a pod template. */
TT_MUST_USE tt_status tt_render_write_pod_metadata(const struct tt_render_work *work,
                                                   const struct tt_render_sheet *sheet);
/* Lines NAME: "value". */
TT_MUST_USE tt_status tt_render_write_pairs(const struct tt_render_pairs *pairs, int deeper,
                                            const struct tt_render_sheet *sheet);
/* "2, 3, 4" */
TT_MUST_USE tt_status tt_render_write_codes(struct tt_str *text, const int *codes, int count,
                                            const char *between);
/* The pod template of an initializer of Kubeflow Trainer, which writes into the volume at /workspace. */
TT_MUST_USE tt_status tt_render_write_initializer(const struct tt_render_work *work, const char *name,
                                                  const char *image, const struct tt_render_sheet *sheet);
/* `metadata:` and `spec:` of a pod template. */
TT_MUST_USE tt_status tt_render_write_template(const struct tt_render_work *work,
                                               const struct tt_render_sheet *sheet);
/* The same for a server. */
TT_MUST_USE tt_status tt_render_write_server_template(const struct tt_render_work *work,
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

/* The volumes of the user, in the list `volumes:`. */
TT_MUST_USE tt_status tt_render_write_volumes(const struct tt_render_work *work,
                                              const struct tt_render_sheet *pod);
/* The end of a NetworkPolicy: the name service and the way out of the cluster. */
TT_MUST_USE tt_status tt_render_write_egress(const struct tt_render_run *run, struct tt_str *text);
/* Probes of a container that answers at its port `metrics`. */
TT_MUST_USE tt_status tt_render_write_probes(const struct tt_render_work *work,
                                             const struct tt_render_sheet *pod);
/* PodMonitor and PrometheusRule, where a namespace of Prometheus is given. */
TT_MUST_USE tt_status tt_render_write_monitoring(const struct tt_render_work *work, struct tt_str *text);

/* The script for sbatch. */
TT_MUST_USE tt_status tt_render_write_sbatch(const struct tt_render_run *run, struct tt_str *text);
/* The workload of each kind. */
TT_MUST_USE tt_status tt_render_write_job(const struct tt_render_work *work, struct tt_str *text);
TT_MUST_USE tt_status tt_render_write_jobset(const struct tt_render_work *work, struct tt_str *text);
TT_MUST_USE tt_status tt_render_write_trainjob(const struct tt_render_work *work, struct tt_str *text);
TT_MUST_USE tt_status tt_render_write_runtime(const struct tt_render_work *work, struct tt_str *text);
TT_MUST_USE tt_status tt_render_write_pytorchjob(const struct tt_render_work *work, struct tt_str *text);
TT_MUST_USE tt_status tt_render_write_mpijob(const struct tt_render_work *work, struct tt_str *text);
TT_MUST_USE tt_status tt_render_write_deployment(const struct tt_render_work *work, struct tt_str *text);
TT_MUST_USE tt_status tt_render_write_volcano(const struct tt_render_work *work, struct tt_str *text);

#endif
