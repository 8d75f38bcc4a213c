/* Checks of the machines of a run before it starts (`trimtab doctor`): every rank of the launch measures its machine,
 * and rank 0 compares. Takes a few seconds; writes one file in the folder of output_dir, and removes it. */
#ifndef TT_DOCTOR_DOCTOR_H
#define TT_DOCTOR_DOCTOR_H

#include "backend/gpu_health.h"
#include "base/error.h"
#include "base/str.h"
#include "job/spec.h"
#include "launch/world.h"

enum tt_doctor_verdict { TT_DOCTOR_OK, TT_DOCTOR_WARNS, TT_DOCTOR_FAILS };

/* The measurements of a rank, in the layout of the exchange between ranks. */
struct tt_doctor_rank {
    char host[80], device[128];
    int32_t machine, local_rank;
    int32_t processors;     /* that this process may use */
    int32_t grouped;        /* memory_bytes is the limit of a control group */
    uint64_t memory_bytes;  /* 0: unknown */
    uint64_t shm_bytes;     /* size of /dev/shm */
    int32_t shm_is_memory;  /* it is a tmpfs */
    int32_t mtu;            /* of `interface`; 0: unknown */
    uint64_t file_limit;    /* open files */
    uint64_t locked_limit;  /* bytes of locked memory, which RDMA registers; UINT64_MAX: no limit */
    uint64_t process_limit; /* of the control group; 0: none */
    char interface[16];     /* by which it reaches rank 0; empty: it needs none */
    /* The machine whose name was looked up here, by its first rank; empty: none. The address found; empty: the name is
     * unknown here. Whether that machine has this address. */
    char peer[80], peer_address[64];
    int32_t peer_rank, peer_is_right;
    char rdma[160]; /* its ports: device, state, rate, link layer */
    int32_t rdma_ports, rdma_active;
    int32_t rdma_devices;    /* that libibverbs opens; -1: there is no libibverbs */
    int32_t rdma_registered; /* of them, with 64 MiB of registered memory */
    char rdma_error[120];    /* of the first that refused */
    int32_t roce_ports;      /* active ports on Ethernet */
    int32_t gid_index;       /* of RoCE v2, the same of all of them; -1: none, or several */
    char gids[200];          /* of each: device, index, address and interface; "none" */
    char gid_set[12];        /* NCCL_IB_GID_INDEX; empty: not set */
    char gid_fault[160];     /* their fault; empty: none */
    int32_t is_gpu;
    int32_t under_load; /* `gpu` was read under load too */
    struct tt_gpu_health gpu;
    double clock_seconds; /* ahead of rank 0 */
    double flops;         /* a bf16 product, all ranks at the same time */
    /* Copies of a GPU, bytes a second; on_device_bytes: read plus written; 0: not measured */
    double to_device_bytes, to_host_bytes, on_device_bytes;
    double expected_flops, expected_host_bytes, expected_memory_bytes; /* of the chip; 0: unknown */
    int32_t other_processes; /* ranks of this machine in other processes, whose GPUs' memory it should read */
    char reading_error[160]; /* of the first that it cannot read; empty: none */
    double link_bytes; /* a second, exchanged with the next rank, no other rank exchanging; 0: not measured */
    /* a second, a synchronized file; the first rank of a machine; 0: not measured */
    double write_bytes, read_bytes;
    int64_t file_bytes;           /* of that file */
    uint64_t free_bytes;          /* of the file system */
    int32_t sees_rank0;           /* the file of rank 0 is visible here */
    int32_t has_model, has_data;  /* -1: not asked for */
    uint64_t model_sum, data_sum; /* of names, sizes and parts of the files; 0: they are not there */
    char storage_error[200];      /* empty: none */
};

/* The needs of the run, from its plan. */
struct tt_doctor_needs {
    bool known;
    char why[200];           /* it is not known */
    size_t rank_bytes;       /* memory of the machine for a rank */
    size_t device_bytes;     /* memory of its GPU; 0: it computes in that of the machine */
    size_t checkpoint_bytes; /* at most, of all ranks together */
    int64_t kept;            /* checkpoints that stay, with the one that is being written */
    int64_t grace_seconds;   /* 0: not known */
};

struct tt_doctor_check {
    const char *name; /* "storage" */
    enum tt_doctor_verdict verdict;
    struct tt_str text; /* owned */
};

enum { TT_DOCTOR_CHECKS_MAX = 20 };

struct tt_doctor_report {
    struct tt_doctor_rank *ranks; /* [rank_count], owned; NULL but on global rank 0 */
    int rank_count;
    double all_reduce_seconds; /* of 1 KiB, the median */
    size_t bus_bytes;          /* of the large sum */
    double all_reduce_bytes;   /* a second: bytes * 2 (n - 1) / n, as nccl-tests counts the bus */
    bool sum_is_right;
    bool quick; /* without the speed of devices and links */
    struct tt_doctor_needs needs;
    const char *transport;
    double seconds; /* of everything after the rendezvous */
    struct tt_doctor_check checks[TT_DOCTOR_CHECKS_MAX];
    int check_count;
};

/* Runs the checks. `job`: a training's settings, of which it needs those of device and launch; output_dir, model and
 * data are checked where they are given. A check that fails is no error of this function. */
TT_MUST_USE tt_status tt_doctor_run(const struct tt_job_spec *job, struct tt_cancel *cancel,
                                    struct tt_doctor_report *report);
/* The checks of a few seconds before a run, over its ranks (setting `preflight`): warnings are logged, and a check that
 * fails is TT_ERR_DEVICE on all ranks. Collective. */
TT_MUST_USE tt_status tt_doctor_preflight(const struct tt_job_spec *job, struct tt_world *world);
/* Compares the measurements of the ranks and fills report->checks. Public for tests. */
TT_MUST_USE tt_status tt_doctor_compare(const struct tt_job_spec *job, struct tt_doctor_report *report);
/* A machine at fault is TT_ERR_DEVICE, whose exit code makes a scheduler try another one; TT_OK: no check failed. */
TT_MUST_USE tt_status tt_doctor_fail(const struct tt_doctor_report *report);
/* The number of checks with this verdict. */
int tt_doctor_count(const struct tt_doctor_report *report, enum tt_doctor_verdict verdict);
void tt_doctor_deinit(struct tt_doctor_report *report);

#endif
