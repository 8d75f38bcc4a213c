/* The communicator: what ranks say to each other. Implementations: self (one rank), threads (ranks are
 * threads of this process), tcp (processes that find each other by address), mpi; nccl for GPUs, on top of
 * one of the others. Every rank makes the same calls in the same order.
 *
 * Data calls take device memory and a stream. On the cpu they complete before returning; on cuda they are
 * queued. Sums are made in order of rank in fp32, so a result is the same bits on every run and on every
 * rank; over nccl and peers that holds after tt_comm_order_sums.
 *
 * Failure: a rank that fails calls tt_comm_abort; every call of every other rank, waiting or later, then
 * returns TT_ERR_PEER at once, with the message of the rank that failed. tt_comm_agree is the polite form,
 * called by all after each phase. Communicators made by tt_comm_split fail together with the one they came
 * from.
 *
 * A communicator is used by one thread at a time. threads, tcp and mpi reach only memory of cpu devices; on
 * the plan device data calls check their arguments and do nothing, with any communicator.
 */
#ifndef TT_COMM_COMM_H
#define TT_COMM_COMM_H

#include "backend/device.h"
#include "tensor/dtype.h"

struct tt_cancel;
struct tt_comm;
struct tt_proof_key;

enum tt_reduce { TT_REDUCE_SUM, TT_REDUCE_MAX, TT_REDUCE_MIN };

int tt_comm_rank(const struct tt_comm *comm);
int tt_comm_world_size(const struct tt_comm *comm);
const char *tt_comm_kind(const struct tt_comm *comm); /* "self", "threads", "tcp", "mpi", "peers", "nccl" */
/* Ranks that share this process's memory and machine as far as known; 1 for self. */
int tt_comm_local_size(const struct tt_comm *comm);

/* recv[rank * bytes ...] of every rank = that rank's send. In place when send == recv + rank * bytes. */
TT_MUST_USE tt_status tt_comm_all_gather(struct tt_comm *comm, struct tt_stream *stream, const void *send,
                                         void *recv, size_t bytes_per_rank);
/* recv[count] = sum over ranks of send[rank * count ...]; send has world_size * count elements (f32 | bf16,
 * summed in fp32). In place when recv == send + rank * count elements. */
TT_MUST_USE tt_status tt_comm_reduce_scatter(struct tt_comm *comm, struct tt_stream *stream, const void *send,
                                             void *recv, size_t count_per_rank, tt_dtype dtype);
/* In place; f32, f64, bf16, i64. */
TT_MUST_USE tt_status tt_comm_all_reduce(struct tt_comm *comm, struct tt_stream *stream, void *data,
                                         size_t count, tt_dtype dtype, enum tt_reduce reduce);
TT_MUST_USE tt_status tt_comm_broadcast(struct tt_comm *comm, struct tt_stream *stream, void *data,
                                        size_t bytes, int root);

/* For ranks on GPUs, which otherwise add in an order of their own: from now on the two sums above have the bits that
 * they have over the other transports. all_reduce then sums F32 and BF16 only. Takes 16 MiB of `device`. All ranks do
 * it, or none. No effect on the sums of host memory, and on a single rank. Of communicators made by tt_comm_split each
 * is ordered by itself. */
TT_MUST_USE tt_status tt_comm_order_sums(struct tt_comm *comm, struct tt_device *device);
/* Returns that memory: for a communicator that is used after its device is closed. tt_comm_destroy does it too. */
void tt_comm_release_sums(struct tt_comm *comm);

/* Host memory, small: control, not data. */
TT_MUST_USE tt_status tt_comm_host_all_gather(struct tt_comm *comm, const void *send, void *recv,
                                              size_t bytes_per_rank);
TT_MUST_USE tt_status tt_comm_barrier(struct tt_comm *comm);
/* All ranks hand in their status. When all are TT_OK, so is the result. Otherwise: a rank that failed gets
 * its own status back and its record, which is left to the lowest failed rank to tell when that failed alike;
 * the others get TT_ERR_PEER with a record that names the lowest failed rank (one that failed by itself
 * before one that failed with TT_ERR_PEER) and carries its message, context and hint. No rank is left
 * waiting. */
TT_MUST_USE tt_status tt_comm_agree(struct tt_comm *comm, tt_status status);
/* What this rank is doing from now on ("step 12"): others are told when it falls silent. Cheap; copied. */
void tt_comm_note(struct tt_comm *comm, const char *text);
/* TT_OK, or what the calls would say because a peer has failed; never waits. */
TT_MUST_USE tt_status tt_comm_poll(struct tt_comm *comm);
/* Wakes every rank that waits in a call; takes NULL. May be called from any thread, more than once. The
 * record of the calling thread is what the others report. After it only tt_comm_destroy makes sense; a
 * process of an MPI job then ends without MPI_Finalize and the launcher ends the rest, so the rank that
 * failed should print first. */
void tt_comm_abort(struct tt_comm *comm);

/* One rank. */
TT_MUST_USE tt_status tt_comm_create_self(struct tt_comm **out);
/* Rank 0 of `world_size`, `local_size` of them on each machine, of which no other is there: for the plan device, where
 * data calls take the time that they would take. Nothing else may be asked of it. */
TT_MUST_USE tt_status tt_comm_create_planned(int world_size, int local_size, struct tt_comm **out);
/* `world_size` communicators of one group into out[]; each is then used, and destroyed, by its own thread.
 * For the others, a rank that destroys its communicator while they still call is one that failed. */
TT_MUST_USE tt_status tt_comm_create_threads(int world_size, struct tt_comm **out);
/* MPI_COMM_WORLD; initialises MPI (MPI_THREAD_SERIALIZED at least) and ends it when the last communicator is
 * destroyed: once per process. TT_ERR_UNSUPPORTED in a build without MPI. */
TT_MUST_USE tt_status tt_comm_create_mpi(struct tt_comm **out);
/* Processes that find each other by address, without a launcher's library (comm/tcp.c). */
struct tt_tcp_config {
    const char *host; /* where rank 0 listens; a name or an address */
    int port;
    /* all ranks are on this machine: they meet at its loopback interface, whatever `host` says */
    bool local;
    /* NULL: rank 0 listens at all addresses (or as `local` says); else at those of this name */
    const char *bind;
    const struct tt_proof_key *key; /* lent: made of the job secret (comm/proof.h); NULL: there is none */
    int world_size;
    int first_rank, local_count;    /* the ranks of this process follow each other */
    const char *machine;            /* processes with one text share a machine */
    const char *settings;           /* lines that must be the same in all processes, or NULL */
    double timeout_seconds;         /* how long a rank may take to come */
    const struct tt_cancel *cancel; /* NULL or lent: ends the wait for the others */
};
/* `local_count` communicators into out[], to be used as those of threads are. machines[world_size]: the machine of
 * every rank, numbered from 0 in order of the ranks. A process that is turned away tries again until its time is over.
 * One that is gone before all have come, or is silent for 20 s later, has failed. Each two ranks are connected
 * directly (comm/lines.h). Without a key whoever reaches the
 * port and knows the settings may take the place of a rank (docs/sharding.md). */
TT_MUST_USE tt_status tt_comm_create_tcp(const struct tt_tcp_config *config, struct tt_comm **out,
                                         int *machines);
/* For ranks on GPUs. Collective. What the host says goes over `control` (borrowed); data over the links between the
 * GPUs when all ranks are threads of one process whose GPUs reach each other (tt_comm_create_peers), else over NCCL
 * (tt_comm_create_nccl). */
TT_MUST_USE tt_status tt_comm_create_gpu(struct tt_comm *control, struct tt_device *device,
                                         struct tt_comm **out);
/* Whether all ranks are threads of one process whose devices read each other's memory, and all are `willing`: the same
 * answer on all ranks. Collective. */
TT_MUST_USE tt_status tt_comm_shares_memory(struct tt_comm *comm, struct tt_device *device, bool willing,
                                            bool *shares);
/* Copy engines and element-wise kernels (comm/peers.c says why not NCCL). Every call also meets the others on the
 * host. Sums: the owner of a slice adds the others' to its own, beginning with the next rank; in bf16 each addition
 * rounds. all_reduce sums F32 and BF16 only. Watches `device` as tt_comm_create_nccl does. */
TT_MUST_USE tt_status tt_comm_create_peers(struct tt_comm *control, struct tt_device *device,
                                           struct tt_comm **out);
/* For ranks on GPUs. Collective: host calls, agreement, barrier and abort go over `control` (borrowed), data
 * over NCCL. Watches `device` (borrowed, tt_device_set_watch): the host's waits for it end with TT_ERR_PEER
 * when a peer has failed. When this or a peer's rank has failed, call tt_comm_abort before anything that
 * waits for the device: its queue may hold collectives that nobody else joins. */
TT_MUST_USE tt_status tt_comm_create_nccl(struct tt_comm *control, struct tt_device *device,
                                          struct tt_comm **out);
/* Collective: the ranks with the same color (0 or more) form a new communicator, in order of rank
 * (HYBRID_SHARD). */
TT_MUST_USE tt_status tt_comm_split(struct tt_comm *comm, int color, struct tt_comm **out);
void tt_comm_destroy(struct tt_comm *comm); /* takes NULL */

#endif
