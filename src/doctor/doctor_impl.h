/* Private header of this folder: the state of an examination, and the functions of each file. */
#ifndef TT_DOCTOR_DOCTOR_IMPL_H
#define TT_DOCTOR_DOCTOR_IMPL_H

#include "backend/device.h"
#include "comm/comm.h"
#include "doctor/doctor.h"

/* The examination of a process, which may have several ranks. */
struct tt_doctor {
    const struct tt_job_spec *job;
    struct tt_doctor_report *report;
    const char *host; /* of rank 0; empty: processes do not meet by address */
    int ranks_here;   /* of a machine, at most */
    char nonce[32];   /* in the names of its files; rank 0's counts */
};

/* The examination of one rank. */
struct tt_examination {
    struct tt_doctor *doctor;
    const struct tt_world_rank *place;
    struct tt_device *device; /* NULL in a quick check */
    struct tt_stream *stream;
    struct tt_comm *comm; /* of the data: place->comm, or over the GPUs */
    struct tt_buffer *send, *recv;
    struct tt_doctor_rank found;
};

/* ---- device.c ---- */

/* Reads the facts of the device's driver, before anything runs on the device. */
void tt_doctor_examine_device(struct tt_examination *exam);
/* The speed of products and of copies, with the health of the device under that load. Collective. */
TT_MUST_USE tt_status tt_doctor_time_device(struct tt_examination *exam);

/* ---- links.c. Collective. ---- */

/* Bytes of exam->send for the largest sum, and of exam->recv for the exchange over a link. */
size_t tt_doctor_sum_bytes(const struct tt_examination *exam);
size_t tt_doctor_link_room(const struct tt_examination *exam);
/* All-reduces, each link, into the report of rank 0 and into exam->found. */
TT_MUST_USE tt_status tt_doctor_time_sums(struct tt_examination *exam);
TT_MUST_USE tt_status tt_doctor_time_links(struct tt_examination *exam);
/* The memory of GPUs in other processes of the machine, read as a training reads shards. A failure is a finding. */
TT_MUST_USE tt_status tt_doctor_try_reading(struct tt_examination *exam);
/* Exchange that needs no device: known bytes of every rank, over the connections of the ranks' hosts. */
TT_MUST_USE tt_status tt_doctor_check_exchange(struct tt_examination *exam);

/* ---- storage.c ---- */

/* Writes and reads a file in the folder of output_dir. A failure is a finding, not an error. Collective. */
TT_MUST_USE tt_status tt_doctor_examine_storage(struct tt_examination *exam);

/* ---- machine.c, rdma.c, gids.c ---- */

/* doctor/names.c: the first rank of each machine looks up the name of the next machine. Collective. */
TT_MUST_USE tt_status tt_doctor_resolve_names(struct tt_examination *exam);
/* Fills host, limits, the interface towards `host` (of rank 0; empty: none), and RDMA devices. */
void tt_doctor_examine_machine(const char *host, struct tt_doctor_rank *found);
enum { TT_DOCTOR_NAMES_MAX = 512 };
struct tt_doctor_names {
    char names[TT_DOCTOR_NAMES_MAX][80];
    size_t count;
};
/* Entries in order of their names; none of a folder that cannot be read. Owned; NULL without memory. */
struct tt_doctor_names *tt_doctor_list(const char *folder);
/* The RDMA ports below `devices`, as in /sys/class/infiniband. `gid_index`: NCCL_IB_GID_INDEX; NULL: not set. */
void tt_doctor_find_rdma(const char *devices, const char *gid_index, struct tt_doctor_rank *found);
/* The first line of a file of /sys, cut to 63 bytes; false: there is none, or an empty one. */
bool tt_doctor_fact(const char *folder, const char *name, char text[64]);
/* Registers 64 MiB with each RDMA device, by libibverbs where it is installed. */
void tt_doctor_register_memory(struct tt_doctor_rank *found);
/* gids.c: adds the GID of RoCE v2 of an active port on Ethernet. `name`: as NCCL_IB_HCA has it, `port`: its
 * folder, `set`: the variable or "". */
void tt_doctor_find_gid(const char *name, const char *port, const char *set, struct tt_doctor_rank *found);
/* A sum of names, sizes, first and last bytes of the file or the files of the folder `path`; 0: it is not there. */
uint64_t tt_doctor_sum(const char *path);

/* ---- plan.c ---- */

/* Figures of the run's plan, where model_name_or_path is a folder here. */
void tt_doctor_plan(const struct tt_job_spec *job, const struct tt_world *world,
                    struct tt_doctor_needs *needs);

/* ---- compare.c, compare_gpu.c ---- */

TT_MUST_USE tt_status tt_doctor_begin_check(struct tt_doctor_report *report, const char *name,
                                            struct tt_doctor_check **out);
void tt_doctor_worsen(struct tt_doctor_check *check, enum tt_doctor_verdict verdict);
/* The median of the values above 0, one of each rank; 0: there are none. */
typedef double tt_doctor_value(const struct tt_doctor_rank *rank);
TT_MUST_USE tt_status tt_doctor_median(const struct tt_doctor_report *report, tt_doctor_value *value,
                                       double *median);
/* gids.c: adds to the check of RDMA which GIDs are those of RoCE v2. */
TT_MUST_USE tt_status tt_doctor_check_gids(const struct tt_doctor_report *report,
                                           struct tt_doctor_check *check);
/* GPUs: their health, and copies. */
TT_MUST_USE tt_status tt_doctor_check_gpus(struct tt_doctor_report *report);
TT_MUST_USE tt_status tt_doctor_check_copies(struct tt_doctor_report *report);
TT_MUST_USE tt_status tt_doctor_check_reading(struct tt_doctor_report *report);

#endif
