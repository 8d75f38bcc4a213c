/* The parts of a communicator, for transports only. A transport fills the table: it moves bytes between ranks and
 * notifies them when one has failed. collectives.c builds the collectives on that, once for all transports; comm.c has
 * the argument checks, the plan device and agreement. A transport with a better implementation of a collective puts it
 * into the table.
 *
 * All pointers passed to a table are host memory, unless the table sets `reaches_devices`: its collectives get device
 * memory and a stream and only queue work, and its host calls go over `control`. A transport that fails calls tt_fail;
 * after the failure of another rank it calls tt_comm_fail_peer. */
#ifndef TT_COMM_COMM_IMPL_H
#define TT_COMM_COMM_IMPL_H

#include "comm/comm.h"

enum tt_comm_call {
    TT_CALL_ALL_GATHER,
    TT_CALL_REDUCE_SCATTER,
    TT_CALL_ALL_REDUCE,
    TT_CALL_BROADCAST,
    TT_CALL_BARRIER,
    TT_CALL_SPLIT,
    TT_CALL_EXCHANGE,
    TT_CALL_COUNT
};
const char *tt_comm_call_name(uint32_t call);

/* The arguments of a collective that must be equal on all ranks of a communicator. */
struct tt_comm_order {
    uint32_t call;     /* enum tt_comm_call */
    int32_t parameter; /* type, or root */
    int32_t reduce;    /* enum tt_reduce */
    uint64_t size;
};
/* TT_ERR_INTERNAL if `other`, the order of rank `q`, differs from `first`, that of rank 0. All ranks compare all
 * orders, so all get the same result, and the communicator stays usable. */
TT_MUST_USE tt_status tt_comm_check_order(const struct tt_comm_order *first,
                                          const struct tt_comm_order *other, int q);

/* TT_ERR_INTERNAL if `part`, that of `rank`, expects another number of bytes than rank `q` sends, whose part is
 * `theirs`. */
TT_MUST_USE tt_status tt_comm_check_sizes(int rank, const struct tt_comm_part *part,
                                          const struct tt_comm_part *theirs, int q);

/* Each rank sends to every other rank and receives from every other rank. The sent memory must not change until the
 * call returns, and must not overlap the received memory. With device memory all of this is in order of `stream`, and
 * both sides of a part know its size. */
struct tt_comm_exchange {
    struct tt_comm_order order;
    struct tt_stream *stream;         /* NULL: host memory */
    const struct tt_comm_part *parts; /* [world_size]; a rank sends nothing to itself */
    /* NULL: received bytes are stored at `recv`. Otherwise all parts have the same recv_bytes and no `recv`, the rank's
     * own part has as many send_bytes, and `consume` is called with one piece after the other: from[q] are the bytes
     * from `offset` on that rank q sent; for the rank itself, those at its own `send`. Pieces begin and end at
     * multiples of 64 bytes, except the end of the last one. Host memory only. */
    void (*consume)(void *context, const void *const *from, size_t offset, size_t bytes);
    void *context;
};

struct tt_comm_table {
    const char *kind;
    bool reaches_devices; /* data calls take memory of cuda devices and run in stream order */
    tt_status (*exchange)(struct tt_comm *comm, const struct tt_comm_exchange *exchange);
    tt_status (*split)(struct tt_comm *comm, int color, struct tt_comm **out);
    void (*abort)(struct tt_comm *comm);
    void (*destroy)(struct tt_comm *comm);
    /* NULL: those of `control`. */
    tt_status (*poll)(struct tt_comm *comm); /* tt_comm_poll */
    /* tt_comm_set_activity; NULL: ignored, or that of `control`. */
    void (*set_activity)(struct tt_comm *comm, const char *text);
    /* NULL: built on `exchange`, as sums are after tt_comm_order_sums. `stream` is NULL for host memory. Sizes are not
     * 0, world_size is more than 1, and their product does not overflow. */
    tt_status (*all_gather)(struct tt_comm *comm, struct tt_stream *stream, const void *send, void *recv,
                            size_t bytes);
    tt_status (*reduce_scatter)(struct tt_comm *comm, struct tt_stream *stream, const void *send, void *recv,
                                size_t count, tt_dtype dtype);
    tt_status (*all_reduce)(struct tt_comm *comm, struct tt_stream *stream, void *data, size_t count,
                            tt_dtype dtype, enum tt_reduce reduce);
    tt_status (*broadcast)(struct tt_comm *comm, void *data, size_t bytes, int root); /* host memory */
    tt_status (*barrier)(struct tt_comm *comm);
};

/* State of sums of device memory in order of rank (tt_comm_order_sums). */
struct tt_comm_rows {
    struct tt_buffer *memory; /* a row of each rank */
    size_t row_bytes;
    struct tt_event *added;      /* after the last sum of rows */
    struct tt_comm_part *parts;  /* [world_size]: of the whole sum */
    struct tt_comm_part *pieces; /* [world_size]: that travel at a time */
};

/* The first member of every transport's own struct. */
struct tt_comm {
    const struct tt_comm_table *table;
    int rank;
    int world_size;
    int local_size;
    struct tt_comm *control; /* with reaches_devices: lent, carries the host calls; otherwise NULL */
    /* [world_size]: of the running collective; NULL if the table has all collectives */
    struct tt_comm_part *parts;
    struct tt_comm_rows *rows; /* NULL: the table's sums */
};

/* Allocates and frees `parts`, for collectives that are built on `exchange`. */
TT_MUST_USE tt_status tt_comm_init_parts(struct tt_comm *comm);
void tt_comm_deinit_parts(struct tt_comm *comm);

/* Collectives on `exchange`, for tables without their own. Host memory, or with a stream device memory of a
 * communicator with `rows`; the caller has checked the arguments. */
TT_MUST_USE tt_status tt_exchange_all_gather(struct tt_comm *comm, const void *send, void *recv,
                                             size_t bytes);
TT_MUST_USE tt_status tt_exchange_reduce_scatter(struct tt_comm *comm, struct tt_stream *stream,
                                                 const void *send, void *recv, size_t count, tt_dtype dtype);
TT_MUST_USE tt_status tt_exchange_all_reduce(struct tt_comm *comm, struct tt_stream *stream, void *data,
                                             size_t count, tt_dtype dtype, enum tt_reduce reduce);
TT_MUST_USE tt_status tt_exchange_broadcast(struct tt_comm *comm, void *data, size_t bytes, int root);
TT_MUST_USE tt_status tt_exchange_barrier(struct tt_comm *comm);

void tt_comm_rows_destroy(struct tt_comm_rows *rows); /* takes NULL */

/* data[bytes] of every rank = that of rank `root`: host memory, over the control connections. For small amounts. */
TT_MUST_USE tt_status tt_comm_host_broadcast(struct tt_comm *comm, void *data, size_t bytes, int root);

/* Sets the record of a rank that must stop because `rank` (of the whole group) failed: TT_ERR_PEER with that rank's
 * message, context and hint. `cause` comes from another rank and may hold any bytes. */
tt_status tt_comm_fail_peer(int rank, const struct tt_error *cause);

/* Collective. Stores in *count the number of ranks that are threads of this process, this one included. */
TT_MUST_USE tt_status tt_comm_count_local_ranks(struct tt_comm *comm, const struct tt_device *device,
                                                int *count);

/* to[i] = from[0][i] + from[1][i] + ... in this order, for i < count: f32 and bf16 in fp32 (rounded once), f64 in f64,
 * i64 modulo 2^64. MAX and MIN keep a NaN. `offset` elements are skipped in every from[]. `to` may equal one of the
 * sources (from[k] + offset); any other overlap is not allowed. */
void tt_reduce_ordered(void *to, const void *const *from, int from_count, size_t offset, size_t count,
                       tt_dtype dtype, enum tt_reduce reduce);

/* tt_comm_create_mpi with messages of at most `count_max` units per MPI call instead of INT_MAX, so that tests reach
 * the code for larger messages. */
TT_MUST_USE tt_status tt_comm_create_mpi_limited(int count_max, struct tt_comm **out);

#endif
