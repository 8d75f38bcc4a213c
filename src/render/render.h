/* Objects of Kubernetes or a batch script of Slurm that run a training on a cluster: rendered from the settings that
 * train and from the plan of the run, so that memory, claims, grace period and failure policy follow from the same
 * numbers. The text is the same for the same input, byte for byte. It holds no secret: pods mount the job secret from
 * one that the user creates, and the script makes one.
 *
 * Sources: the CRDs of jobset 0.12.0, trainer 2.3.0, trainer 1.9.4 (PyTorchJob), mpi-operator 0.8.2 and volcano 1.15.1;
 * Kubernetes 1.37's Job, NetworkPolicy, Service, ConfigMap and PodGroup. */
#ifndef TT_RENDER_RENDER_H
#define TT_RENDER_RENDER_H

#include "base/str.h"
#include "config/settings.h"
#include "engine/plan.h"

enum { TT_RENDER_SCALAR_BYTES = 256 }; /* of a text as a scalar of YAML */

enum tt_render_kind {
#define KIND(name, ...) TT_RENDER_##name,
#include "render/kinds.def"
#undef KIND
    TT_RENDER_KINDS
};

struct tt_render_work;
#define TT_RENDER_UID_NAME "" /* enough to know a run that is complete */

struct tt_render_kind_facts {
    const char *word;      /* of the command line */
    const char *container; /* of the pods */
    const char *first;     /* after the run's name, the host name of the first pod */
    bool has_domain;       /* the run's name follows as a domain */
    const char *last;      /* the part of the last pod's name before its number */
    const char *counted;   /* what the cluster adds to it before it compares with the limit, or empty */
    bool first_alone;      /* a run of one node has that pod alone, without a number */
    const char *uid;       /* a pod's field that is the run's, or TT_RENDER_UID_NAME; NULL: none */
    const char *attempt;   /* a pod's field that counts starts; NULL: none */
    const char *port;      /* name of the rendezvous port of a container; NULL: it has none */
    bool is_script;        /* a batch script: no pods, no image, no objects */
    bool has_launcher;     /* it starts a process a rank, and says how many there are and where rank 0 is */
    bool has_runtime;      /* image, arguments and resources are of the workload, the rest of its runtime */
    bool restarts_pods;    /* its controller sets restartPolicy */
    bool groups_pods;      /* a gang is a PodGroup beside it */
    bool needs_service;    /* that gives its pods host names */
    bool is_ready_at_once; /* without a probe of its readiness */
    bool writes_root;      /* the root of its containers is writable, and their user is that of their image */
    bool is_shared;        /* of the cluster: no objects beside it, and flags in place of a configuration */
    bool serves;           /* pods that answer clients, each alone, until they are stopped */
    /* A container that the level "restricted" refuses, with several nodes. */
    bool injects_container;
    const char *needs_workers; /* the refusal of one node; NULL: one is enough */
    tt_status (*write)(const struct tt_render_work *work, struct tt_str *text); /* NULL: a script */
};
/* The kinds of render/kinds.def. */
const struct tt_render_kind_facts *tt_render_kind_facts(enum tt_render_kind kind);

/* A rendering as people say it; rows in render/settings.c. Strings are owned by the settings store. */
struct tt_render_spec {
    const char *name, *image, *chip, *config_json, *weights_file, *volumes, *storage_class, *queue,
        *priority_class, *rdma, *networks, *gpu_resource, *secret, *monitoring_namespace, *runtime,
        *image_pull_secret, *pod_env, *pod_secrets, *service_account, *node_selector, *namespace,
        *object_labels, *object_annotations, *csi_volumes, *client_namespace, *model_initializer,
        *dataset_initializer;
    int64_t nodes, replicas, gpus_per_node, cpus_per_node, max_restarts, grace_period, spot_notice,
        checkpoints;
    size_t reserve_memory, tmp_size, shm_size, memory, claim_size, storage_rate;
    double step_seconds;
    bool host_network, gang;
};
/* Rows over struct tt_render_spec, all transient. Those of pods are of both commands. */
extern const struct tt_setting tt_render_pod_settings[], tt_render_settings[], tt_render_server_settings[];

/* The exit codes of the program, by what a scheduler shall do: never retry; restart without counting. */
struct tt_render_exits {
    int permanent[8], resumable[4];
    int permanent_count, resumable_count;
};

/* A setting that names a file or folder of the run. */
struct tt_render_path {
    const char *setting, *path; /* path NULL: not given */
    bool written;
};

/* A setting that is an object of texts. */
struct tt_render_pair {
    char name[128], value[256];
};
enum { TT_RENDER_PAIRS_MAX = 32 };
struct tt_render_pairs {
    struct tt_render_pair items[TT_RENDER_PAIRS_MAX];
    int count;
};
/* Reads {"NAME": "value"} in its order; NULL: none. TT_ERR_USAGE for texts that cannot stand between quotes. */
TT_MUST_USE tt_status tt_render_read_pairs(const char *setting, const char *text,
                                           struct tt_render_pairs *pairs);

/* Reads "NAME=SECRET/KEY NAME=SECRET/KEY", also with commas: the value is "SECRET/KEY". */
TT_MUST_USE tt_status tt_render_read_secrets(const char *text, struct tt_render_pairs *secrets);
/* The ports of the addresses in pod_env, each once. */
enum { TT_RENDER_PORTS_MAX = 8 };
TT_MUST_USE tt_status tt_render_ports(const char *pod_env, int ports[TT_RENDER_PORTS_MAX], int *count);

/* Values that follow from the plan. */
struct tt_render_sizes {
    size_t memory;     /* of a pod, with `shm` */
    size_t shm;        /* of /dev/shm */
    size_t tmp;        /* of /tmp */
    size_t checkpoint; /* bytes of one, at most */
    size_t claim;      /* bytes of the volume for output_dir */
    double save_seconds, step_seconds;
    int64_t grace; /* seconds between SIGTERM and SIGKILL */
};

struct tt_render_run {
    enum tt_render_kind kind;
    const struct tt_render_spec *spec;
    const struct tt_render_exits *exits;
    const struct tt_plan *plan;
    const struct tt_render_path *paths;
    int path_count;
    int ranks;                         /* of a node */
    char name[TT_RENDER_SCALAR_BYTES]; /* the run's, as YAML has it; set by tt_render_write */
    int moments;                       /* values of the optimizer for each master */
    int copies;                   /* replicas of the trainable parameters: ranks that hold the same slices */
    int64_t kept;                 /* checkpoints that stay; 0: all */
    int64_t save_steps;           /* between saves; 0: they follow no steps */
    int port;                     /* of the rendezvous, or of a server */
    int64_t drain_seconds;        /* that a server's requests may take after SIGTERM */
    int metrics_port;             /* 0: pods answer no probes */
    struct tt_render_sizes sizes; /* by tt_render_size */
    bool leaves_cluster;          /* a store, the hub or a tracker at port 443: pods may reach it */
    bool has_server;              /* a server whose address is in pod_env: pods may reach its port */
    bool has_names;               /* a path is a name of the hub, for whose cache pods have room */
    bool stores_output;           /* output_dir is in a store */
    const char *config;           /* the YAML that trains */
    const char *flags;            /* the same as flags, a list of YAML; of kinds that are shared */
};

enum { TT_RENDER_VOLUMES_MAX = 16, TT_RENDER_HOST_BYTES = 256, TT_RENDER_SECRET_BYTES = 128 };
enum tt_render_volume_kind { TT_RENDER_CLAIM, TT_RENDER_SECRET_FILES, TT_RENDER_CSI };
/* "models:/models:ro", "secret/keys:/keys", a member of csi_volumes. */
struct tt_render_volume {
    enum tt_render_volume_kind kind;
    char name[64], path[256]; /* of the claim or Secret; where pods mount it */
    bool read_only;
};

/* Folder at which a rendered claim is mounted; an output_dir elsewhere lies in a volume that the user names. */
extern const char tt_render_run_folder[];

/* The address of rank 0: the host name that the kind of object gives to its first pod. */
void tt_render_host(enum tt_render_kind kind, const char *name, char host[TT_RENDER_HOST_BYTES]);
/* The name of the Secret with the job secret. */
const char *tt_render_secret(const struct tt_render_spec *spec, char name[TT_RENDER_SECRET_BYTES]);
/* Checks names and sizes of `spec` that need no plan; TT_ERR_USAGE names the setting and the rule. */
TT_MUST_USE tt_status tt_render_check(enum tt_render_kind kind, const struct tt_render_spec *spec);
/* Those of `volumes`, then those of `csi_volumes`. */
TT_MUST_USE tt_status tt_render_volumes(const struct tt_render_spec *spec,
                                        struct tt_render_volume volumes[TT_RENDER_VOLUMES_MAX], int *count);
/* Whether output_dir lies in tt_render_run_folder; TT_ERR_USAGE where a path of the run lies in no volume. */
TT_MUST_USE tt_status tt_render_check_paths(const struct tt_render_run *run, bool *claims);
/* Fills run->sizes of a server. Errors as below. */
TT_MUST_USE tt_status tt_render_size_server(struct tt_render_run *run);
/* Seconds between the removal of a server's pod from its Service and SIGTERM. */
enum { TT_RENDER_LEAVE_SECONDS = 5 };
/* Fills run->sizes. TT_ERR_USAGE where a given size is less than the run needs. */
TT_MUST_USE tt_status tt_render_size(struct tt_render_run *run);
/* Appends all objects as one YAML stream, or the script for sbatch. The specification is checked. */
TT_MUST_USE tt_status tt_render_write(const struct tt_render_run *given, struct tt_str *text);

#endif
