/* Communicators: collectives between ranks. Implementations: self (one rank), threads (ranks are threads of this
 * process), tcp (processes that connect by address), mpi; for GPUs peers and nccl, on top of one of the others. Every
 * rank makes the same calls in the same order.
 *
 * Data calls take device memory and a stream. On the cpu they complete before returning; on cuda they are queued. Sums
 * are made in order of rank in fp32, so that a result has the same bits on every run and every rank; over nccl and
 * peers that holds after tt_comm_order_sums.
 *
 * Failure: a rank that fails calls tt_comm_abort; every running and later call of every other rank then returns
 * TT_ERR_PEER at once, with the message of the failed rank. tt_comm_agree is for failures between calls: all ranks call
 * it at the end of each phase. Communicators made by tt_comm_split fail together with their origin.
 *
 * A communicator is used by one thread at a time. threads, tcp and mpi reach only memory of cpu devices; on the plan
 * device data calls check their arguments and move no data, with any communicator.
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
/* Number of ranks on this rank's machine, as far as known; 1 for self. */
int tt_comm_local_size(const struct tt_comm *comm);

/* recv[q * bytes_per_rank ...] = `send` of rank q, for all q. In place if send == recv + rank * bytes_per_rank. */
TT_MUST_USE tt_status tt_comm_all_gather(struct tt_comm *comm, struct tt_stream *stream, const void *send,
                                         void *recv, size_t bytes_per_rank);
/* recv[count] = sum over all ranks of their send[rank * count ...], where `rank` is the caller's. send has world_size *
 * count elements (f32 | bf16, summed in fp32). In place if recv == send + rank * count elements. */
TT_MUST_USE tt_status tt_comm_reduce_scatter(struct tt_comm *comm, struct tt_stream *stream, const void *send,
                                             void *recv, size_t count_per_rank, tt_dtype dtype);
/* data[count], in place: f32, f64, bf16, i64. */
TT_MUST_USE tt_status tt_comm_all_reduce(struct tt_comm *comm, struct tt_stream *stream, void *data,
                                         size_t count, tt_dtype dtype, enum tt_reduce reduce);

/* The bytes that this rank sends to another rank and receives from it. */
struct tt_comm_part {
    const void *send;
    size_t send_bytes;
    void *recv;
    size_t recv_bytes;
};
/* All-to-all with parts of any size, some of them empty: parts[q] travels between this rank and rank q, whose own part
 * has the same sizes the other way round; another size is an error, where the transport sees it. The rank's own part is
 * copied. What is received overlaps nothing that is sent. A rank without any bytes calls it too. */
TT_MUST_USE tt_status tt_comm_exchange(struct tt_comm *comm, struct tt_stream *stream,
                                       const struct tt_comm_part *parts);

/* Gives reduce-scatter and all-reduce on GPUs, which otherwise add in an order of their own, the bits that they have
 * over the other transports. all_reduce then sums F32 and BF16 only. Takes 16 MiB of `device`. All ranks do it, or
 * none. No effect on the sums of host memory, and on a single rank. Of communicators made by tt_comm_split each is
 * ordered by itself. */
TT_MUST_USE tt_status tt_comm_order_sums(struct tt_comm *comm, struct tt_device *device);
/* Returns that memory: for a communicator that is used after its device is closed. tt_comm_destroy does it too. */
void tt_comm_release_sums(struct tt_comm *comm);

/* The same as tt_comm_all_gather, with host memory and over the control connections, for small amounts. */
TT_MUST_USE tt_status tt_comm_host_all_gather(struct tt_comm *comm, const void *send, void *recv,
                                              size_t bytes_per_rank);
/* Replaces *value by the smallest one of all ranks. Takes no memory. */
TT_MUST_USE tt_status tt_comm_host_min(struct tt_comm *comm, int64_t *value);
TT_MUST_USE tt_status tt_comm_barrier(struct tt_comm *comm);
/* Exchanges the status of all ranks. Returns TT_OK if all are TT_OK. Otherwise a failed rank gets its own status and
 * record; the record is marked as reported elsewhere if the lowest failed rank has the same error. All other ranks get
 * TT_ERR_PEER, with the number, message, context and hint of the lowest failed rank; ranks that failed with TT_ERR_PEER
 * are chosen last. No rank is left waiting. */
TT_MUST_USE tt_status tt_comm_agree(struct tt_comm *comm, tt_status status);
/* Sets the current activity of this rank ("step 12"). The others report it if this rank falls silent. Cheap; `text` is
 * copied. */
void tt_comm_set_activity(struct tt_comm *comm, const char *text);
/* Never waits. TT_OK, or the error that collectives return after a peer has failed. */
TT_MUST_USE tt_status tt_comm_poll(struct tt_comm *comm);
/* Ends every wait of all other ranks, which report the record of the calling thread. Takes NULL. May be called from any
 * thread, more than once. After it the communicator can only be destroyed. A process of an MPI job then ends without
 * MPI_Finalize and the launcher ends the other processes, so the failed rank should print its error first. */
void tt_comm_abort(struct tt_comm *comm);

/* One rank. */
TT_MUST_USE tt_status tt_comm_create_self(struct tt_comm **out);
/* Rank 0 of `world_size` ranks that do not exist, `local_size` of them on each machine. For the plan device, where data
 * calls only count their time. No other calls are allowed. */
TT_MUST_USE tt_status tt_comm_create_planned(int world_size, int local_size, struct tt_comm **out);
/* Stores `world_size` communicators of one group in out[world_size]; each is used and destroyed by its own thread. A
 * rank that destroys its communicator while the others still call has failed for them. */
TT_MUST_USE tt_status tt_comm_create_threads(int world_size, struct tt_comm **out);
/* MPI_COMM_WORLD. Initialises MPI (at least MPI_THREAD_SERIALIZED) and finalizes it when the last communicator is
 * destroyed: once per process. TT_ERR_UNSUPPORTED in a build without MPI. */
TT_MUST_USE tt_status tt_comm_create_mpi(struct tt_comm **out);
/* Processes that connect by address, without a launcher's library (comm/tcp.c). */
struct tt_tcp_config {
    const char *host; /* name or address of rank 0's machine */
    int port;
    /* all ranks are on this machine: they connect over its loopback interface, and `host` is ignored */
    bool local;
    /* NULL: rank 0 listens at all addresses (with `local`: at loopback); else at the addresses of this name */
    const char *bind;
    const struct tt_proof_key *key; /* lent: derived from the job secret (comm/proof.h); NULL: no secret */
    int world_size;
    int first_rank, local_count; /* the ranks of this process: first_rank .. first_rank + local_count - 1 */
    const char *machine;         /* processes with the same text share a machine */
    const char *settings;        /* lines that must be equal in all processes, or NULL */
    /* The cluster's name and count of this start of the run, by which processes of an earlier one are refused. NULL
     * and -1: not known. */
    const char *run;
    int64_t attempt;
    double timeout_seconds;         /* until all ranks must have joined; 0: 300 */
    const struct tt_cancel *cancel; /* NULL or lent: ends the wait for the others */
};
/* Stores `local_count` communicators in out[local_count], used as those of tt_comm_create_threads, and in
 * machines[world_size] the machine of every rank, numbered from 0 in order of the ranks. A process that rank 0 refuses
 * retries until its timeout. A process that closes its connection before all have joined, or that is silent for 20 s
 * afterwards, has failed. Every pair of ranks is connected directly (comm/lines.h). Without a key, anyone who reaches
 * the port and knows the settings can take the place of a rank (docs/sharding.md). */
TT_MUST_USE tt_status tt_comm_create_tcp(const struct tt_tcp_config *config, struct tt_comm **out,
                                         int *machines);
/* Makes the communicator of ranks on GPUs. Collective. Host calls go over `control` (borrowed). Data goes over the
 * links between the GPUs if all ranks are threads of one process whose GPUs reach each other (tt_comm_create_peers),
 * otherwise over NCCL (tt_comm_create_nccl). */
TT_MUST_USE tt_status tt_comm_create_gpu(struct tt_comm *control, struct tt_device *device,
                                         struct tt_comm **out);
/* How a rank can read the memory of another rank's device. */
enum tt_reach {
    TT_REACH_NONE,
    TT_REACH_MACHINE, /* another process of the same machine: by a handle, where the driver allows it */
    TT_REACH_PROCESS, /* a thread of the same process, and the devices reach each other: by its address */
};
/* Collective. Stores in reaches[world_size] how this rank reads the others (itself: PROCESS), and in *least the least
 * of all pairs of ranks, the same on all. A rank that is not `willing` neither reads nor is read. */
TT_MUST_USE tt_status tt_comm_reaches(struct tt_comm *comm, struct tt_device *device, bool willing,
                                      enum tt_reach *reaches, enum tt_reach *least);
/* Collective. Sets *shares, equally on all ranks, if all ranks are threads of one process whose devices read each
 * other's memory, and `willing` is true on all of them. */
TT_MUST_USE tt_status tt_comm_shares_memory(struct tt_comm *comm, struct tt_device *device, bool willing,
                                            bool *shares);
/* Copy engines and element-wise kernels (comm/peers.c gives the reason not to use NCCL). Every call also synchronizes
 * the ranks on the host. Sums: the owner of a slice adds the others' values to its own, beginning with the next rank;
 * in bf16 each addition rounds. all_reduce supports only sums of F32 and BF16. Watches `device` as tt_comm_create_nccl
 * does. */
TT_MUST_USE tt_status tt_comm_create_peers(struct tt_comm *control, struct tt_device *device,
                                           struct tt_comm **out);
/* Makes the communicator of ranks on GPUs over NCCL. Collective: host calls, agreement, barrier and abort go over
 * `control` (borrowed), data over NCCL. Watches `device` (borrowed, tt_device_set_watch): after a peer has failed, the
 * host's waits for the device end with TT_ERR_PEER. After a failure of any rank, call tt_comm_abort before any wait for
 * the device: its queue may hold collectives that no other rank joins. */
TT_MUST_USE tt_status tt_comm_create_nccl(struct tt_comm *control, struct tt_device *device,
                                          struct tt_comm **out);
/* Collective: the ranks with the same color (0 or more) form a new communicator, in order of rank. Used for
 * HYBRID_SHARD. */
TT_MUST_USE tt_status tt_comm_split(struct tt_comm *comm, int color, struct tt_comm **out);
void tt_comm_destroy(struct tt_comm *comm); /* takes NULL */

#endif
