/* For transports only: what a communicator is made of. A transport fills the table; argument checks, the plan device,
 * agreement and everything else that does not depend on how bytes travel is written once, in comm.c.
 *
 * All pointers that reach a table are host memory, except in the self communicator, which copies in stream order, and
 * in one whose table says `reaches_devices`: there a call with a stream has device memory and only queues work. A
 * transport that fails calls tt_fail itself; when another rank stopped it calls tt_comm_fail_peer.
 */
#ifndef TT_COMM_COMM_IMPL_H
#define TT_COMM_COMM_IMPL_H

#include "comm/comm.h"

struct tt_comm_table {
    const char *kind;
    bool reaches_devices; /* data calls take memory of cuda devices, in stream order */
    /* `stream` is NULL for host memory. Sizes are not 0 and world_size * size does not overflow. */
    tt_status (*all_gather)(struct tt_comm *comm, struct tt_stream *stream, const void *send, void *recv,
                            size_t bytes);
    tt_status (*reduce_scatter)(struct tt_comm *comm, struct tt_stream *stream, const void *send, void *recv,
                                size_t count, tt_dtype dtype);
    tt_status (*all_reduce)(struct tt_comm *comm, struct tt_stream *stream, void *data, size_t count,
                            tt_dtype dtype, enum tt_reduce reduce);
    tt_status (*broadcast)(struct tt_comm *comm, struct tt_stream *stream, void *data, size_t bytes,
                           int root);
    tt_status (*barrier)(struct tt_comm *comm);
    tt_status (*poll)(struct tt_comm *comm);              /* tt_comm_poll */
    void (*note)(struct tt_comm *comm, const char *text); /* tt_comm_note; NULL: nobody listens */
    tt_status (*split)(struct tt_comm *comm, int color, struct tt_comm **out);
    void (*abort)(struct tt_comm *comm);
    void (*destroy)(struct tt_comm *comm);
};

/* The first member of every transport's own struct. */
struct tt_comm {
    const struct tt_comm_table *table;
    int rank;
    int world_size;
    int local_size;
};

/* Makes the record of a rank that must stop because `rank` (of the whole group) did: TT_ERR_PEER with that rank's
 * message, context and hint. `cause` comes from another rank and may hold anything. */
tt_status tt_comm_fail_peer(int rank, const struct tt_error *cause);

/* How many ranks are threads of this process, this one included. Collective. */
TT_MUST_USE tt_status tt_comm_ranks_here(struct tt_comm *comm, const struct tt_device *device, int *count);

/* to[i] = from[0][i] + from[1][i] + ... in this order, for i < count; f32 and bf16 in fp32 (rounded once), f64 in f64,
 * i64 modulo 2^64; MAX and MIN keep a NaN. `offset` elements are skipped in every from[]. `to` may be one of the
 * places that are read (from[k] + offset), not overlap them in another way. */
void tt_reduce_ordered(void *to, const void *const *from, int from_count, size_t offset, size_t count,
                       tt_dtype dtype, enum tt_reduce reduce);

/* tt_comm_create_mpi with messages of at most `count_max` units per MPI call instead of INT_MAX, so that tests reach
 * the code for larger ones. */
TT_MUST_USE tt_status tt_comm_create_mpi_limited(int count_max, struct tt_comm **out);

#endif
