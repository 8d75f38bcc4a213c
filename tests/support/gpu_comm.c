#include "support/gpu_comm.h"

#include <string.h>

#include "base/alloc.h"
#include "comm/comm_impl.h"
#include "support/comm_calls.h"
#include "support/ranks.h"

enum { PART_BYTES = 5000, ROUNDS = 12, GUARD = 0xa5, SEED = 11 };

/* Bytes that rank `from` sends to rank `to` in a round: 0, few, or thousands. */
static size_t bytes_between(int from, int to, int round)
{
    static const size_t sizes[] = {0, 1, 3, 64, 1021, PART_BYTES};
    return sizes[(size_t)(from * 5 + to * 3 + round) % (sizeof sizes / sizeof *sizes)];
}

static unsigned char byte_between(int from, int to, int round, size_t i)
{
    return (unsigned char)((size_t)(from * 31 + to * 17 + round * 7) + i * 5 + i / 251);
}

struct room {
    struct tt_buffer *send, *recv;
    unsigned char *host;
    struct tt_comm_part *parts;
};

static tt_status exchange_once(struct tt_comm *comm, struct tt_stream *stream, const struct room *room,
                               int round)
{
    int world = comm->world_size, rank = comm->rank;
    size_t all = (size_t)world * PART_BYTES;
    char *send = tt_buffer_data(room->send), *recv = tt_buffer_data(room->recv);
    for (int q = 0; q < world; q++) {
        unsigned char *host = room->host + (size_t)q * PART_BYTES;
        for (size_t i = 0; i < PART_BYTES; i++) host[i] = byte_between(rank, q, round, i);
        room->parts[q] = (struct tt_comm_part){.send = send + (size_t)q * PART_BYTES,
                                               .send_bytes = bytes_between(rank, q, round),
                                               .recv = recv + (size_t)q * PART_BYTES,
                                               .recv_bytes = bytes_between(q, rank, round)};
    }
    TT_TRY(tt_copy_to_device(stream, send, room->host, all));
    memset(room->host, GUARD, all);
    TT_TRY(tt_copy_to_device(stream, recv, room->host, all));
    TT_TRY(tt_comm_exchange(comm, stream, room->parts));
    TT_TRY(tt_copy_to_host(stream, room->host, recv, all));
    TT_TRY(tt_stream_synchronize(stream));
    for (int q = 0; q < world; q++) {
        const unsigned char *host = room->host + (size_t)q * PART_BYTES;
        size_t bytes = bytes_between(q, rank, round);
        for (size_t i = 0; i < PART_BYTES; i++)
            if (host[i] != (i < bytes ? byte_between(q, rank, round, i) : GUARD))
                return tt_fail(TT_ERR_INTERNAL, "round %d: byte %zu of %zu from rank %d is %d", round, i,
                               bytes, q, host[i]);
    }
    return TT_OK;
}

tt_status test_gpu_comm_exchange(struct tt_comm *comm, struct tt_device *device, struct tt_stream *stream)
{
    tt_status status = TT_OK;
    struct room room = {0};
    size_t ranks = (size_t)comm->world_size;
    room.host = tt_calloc(ranks, PART_BYTES);
    room.parts = tt_calloc(ranks, sizeof *room.parts);
    if (room.host == NULL || room.parts == NULL) TT_GO(TT_ERR_MEMORY);
    TT_GO(tt_buffer_create(device, ranks * PART_BYTES, TT_PURPOSE_COMM, &room.send));
    TT_GO(tt_buffer_create(device, ranks * PART_BYTES, TT_PURPOSE_COMM, &room.recv));
    for (int round = 0; round < ROUNDS; round++) TT_GO(exchange_once(comm, stream, &room, round));
out:
    tt_buffer_destroy(room.send);
    tt_buffer_destroy(room.recv);
    tt_free(room.host);
    tt_free(room.parts);
    return status;
}

/* ---- Sums ---- */

struct sums {
    struct tt_comm *comm;
    struct tt_stream *stream;
    struct tt_buffer *data, *other; /* room for world * count elements, and for count */
    char *sent[TEST_RANKS_MAX];     /* of each rank */
    char *wanted, *got;
};

static tt_status compare(struct sums *sums, const void *from, size_t bytes, const char *call, size_t count,
                         tt_dtype dtype)
{
    TT_TRY(tt_copy_to_host(sums->stream, sums->got, from, bytes));
    TT_TRY(tt_stream_synchronize(sums->stream));
    if (memcmp(sums->got, sums->wanted, bytes) == 0) return TT_OK;
    return tt_fail(TT_ERR_INTERNAL, "%s of %zu %s is not the sum in order of rank", call, count,
                   tt_dtype_name(dtype));
}

static tt_status check_sums(struct sums *sums, size_t count, tt_dtype dtype)
{
    struct tt_comm *comm = sums->comm;
    const void *from[TEST_RANKS_MAX];
    size_t world = (size_t)comm->world_size, bytes = count * tt_dtype_bytes(dtype);
    size_t own = (size_t)comm->rank * bytes;
    char *data = tt_buffer_data(sums->data), *other = tt_buffer_data(sums->other);
    for (size_t q = 0; q < world; q++) {
        test_comm_fill(sums->sent[q], dtype, world * count, SEED + count, (int)q);
        from[q] = sums->sent[q] + own;
    }
    test_reduce_scalar(sums->wanted, from, (int)world, count, dtype, TT_REDUCE_SUM);
    for (int in_place = 0; in_place < 2; in_place++) {
        char *recv = in_place ? data + own : other;
        TT_TRY(tt_copy_to_device(sums->stream, data, sums->sent[comm->rank], world * bytes));
        TT_TRY(tt_comm_reduce_scatter(comm, sums->stream, data, recv, count, dtype));
        TT_TRY(compare(sums, recv, bytes, "reduce-scatter", count, dtype));
    }
    test_reduce_scalar(sums->wanted, (const void *const *)sums->sent, (int)world, count, dtype,
                       TT_REDUCE_SUM);
    TT_TRY(tt_copy_to_device(sums->stream, data, sums->sent[comm->rank], bytes));
    TT_TRY(tt_comm_all_reduce(comm, sums->stream, data, count, dtype, TT_REDUCE_SUM));
    return compare(sums, data, bytes, "all-reduce", count, dtype);
}

static tt_status check_all_sums(struct sums *sums, size_t count)
{
    const size_t counts[] = {1, 63, 1003, count};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        if (counts[i] > count) continue;
        TT_TRY(check_sums(sums, counts[i], TT_F32));
        TT_TRY(check_sums(sums, counts[i], TT_BF16));
    }
    if (sums->comm->world_size > 1)
        TEST_RANK_CHECK(
            test_failed_with(tt_comm_all_reduce(sums->comm, sums->stream, tt_buffer_data(sums->data), 1,
                                                TT_F32, TT_REDUCE_MAX),
                             TT_ERR_UNSUPPORTED, "in order of the ranks"));
    return TT_OK;
}

tt_status test_gpu_comm_ordered(struct tt_comm *comm, struct tt_device *device, struct tt_stream *stream,
                                size_t count, size_t row_bytes)
{
    tt_status status = TT_OK;
    struct sums sums = {.comm = comm, .stream = stream};
    size_t world = (size_t)comm->world_size, bytes = count * sizeof(float);
    bool enough = true;
    for (size_t q = 0; q < world; q++) {
        sums.sent[q] = tt_calloc(world, bytes);
        enough &= sums.sent[q] != NULL;
    }
    sums.wanted = tt_calloc(1, bytes);
    sums.got = tt_calloc(1, bytes);
    if (!enough || sums.wanted == NULL || sums.got == NULL) TT_GO(TT_ERR_MEMORY);
    TT_GO(tt_buffer_create(device, world * bytes, TT_PURPOSE_COMM, &sums.data));
    TT_GO(tt_buffer_create(device, bytes, TT_PURPOSE_COMM, &sums.other));
    TT_GO(tt_comm_order_sums(comm, device));
    size_t room = comm->rows != NULL ? comm->rows->row_bytes : 0;
    if (comm->rows != NULL && row_bytes > 0) comm->rows->row_bytes = row_bytes;
    TT_GO(check_all_sums(&sums, count));
    if (comm->rows != NULL) comm->rows->row_bytes = room;
out:
    tt_buffer_destroy(sums.data);
    tt_buffer_destroy(sums.other);
    for (size_t q = 0; q < world; q++) tt_free(sums.sent[q]);
    tt_free(sums.wanted);
    tt_free(sums.got);
    return status;
}
