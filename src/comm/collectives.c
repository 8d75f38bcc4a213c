/* Collectives on a transport's `exchange`. The rank that keeps a sum makes it, in order of rank, so it has the same
 * bits over every transport. Sums of host memory are added piece by piece while they are received; sums of device
 * memory are received into rows, some MiB at a time, and an op adds the rows. */
#include <string.h>

#include "backend/ops/elementwise.h"
#include "base/alloc.h"
#include "base/integer.h"
#include "comm/comm_impl.h"

enum {
    /* An all-reduce is done in one step (every rank sends all to every other) up to ONE_STEP_BYTES of each rank and
     * ONE_STEP_ALL_BYTES of all ranks together, and always up to ONE_STEP_SURE_BYTES. */
    ONE_STEP_BYTES = 8 << 10,
    ONE_STEP_ALL_BYTES = 64 << 10,
    ONE_STEP_SURE_BYTES = 512,
    LINE_ELEMENTS = 64, /* slices begin at multiples of this: whole cache lines in any type */
    ROWS_BYTES = 16 << 20,
    ROW_ALIGNMENT = 256,
};

const char *tt_comm_call_name(uint32_t call)
{
    static const char *const names[] = {"all-gather", "reduce-scatter", "all-reduce", "broadcast",
                                        "barrier",    "split",          "exchange"};
    return call < sizeof names / sizeof *names ? names[call] : "unknown call";
}

tt_status tt_comm_check_order(const struct tt_comm_order *first, const struct tt_comm_order *other, int q)
{
    if (other->call == first->call && other->size == first->size && other->parameter == first->parameter &&
        other->reduce == first->reduce)
        return TT_OK;
    return tt_fail(TT_ERR_INTERNAL, "rank 0 calls %s of %llu while rank %d calls %s of %llu",
                   tt_comm_call_name(first->call), (unsigned long long)first->size, q,
                   tt_comm_call_name(other->call), (unsigned long long)other->size);
}

tt_status tt_comm_check_sizes(int rank, const struct tt_comm_part *part, const struct tt_comm_part *theirs,
                              int q)
{
    if (part->recv_bytes == theirs->send_bytes) return TT_OK;
    return tt_fail(TT_ERR_INTERNAL, "rank %d sends %zu bytes to rank %d, which expects %zu", q,
                   theirs->send_bytes, rank, part->recv_bytes);
}

tt_status tt_comm_init_parts(struct tt_comm *comm)
{
    comm->parts = tt_calloc((size_t)comm->world_size, sizeof *comm->parts);
    return comm->parts != NULL ? TT_OK : TT_ERR_MEMORY;
}

void tt_comm_deinit_parts(struct tt_comm *comm)
{
    tt_free(comm->parts);
    comm->parts = NULL;
}

/* Context of `consume`. */
struct sum {
    char *to;
    int world_size;
    tt_dtype dtype;
    enum tt_reduce reduce;
};

static void add(void *context, const void *const *from, size_t offset, size_t bytes)
{
    const struct sum *sum = context;
    tt_reduce_ordered(sum->to + offset, from, sum->world_size, 0, bytes / tt_dtype_bytes(sum->dtype),
                      sum->dtype, sum->reduce);
}

/* ---- Sums of device memory ---- */

static tt_status make_rows(struct tt_comm_rows *rows, int world_size, struct tt_device *device)
{
    size_t ranks = (size_t)world_size;
    rows->row_bytes = ROWS_BYTES / ranks / ROW_ALIGNMENT * ROW_ALIGNMENT;
    if (rows->row_bytes == 0) rows->row_bytes = ROW_ALIGNMENT;
    rows->parts = tt_calloc(ranks, sizeof *rows->parts);
    rows->pieces = tt_calloc(ranks, sizeof *rows->pieces);
    if (rows->parts == NULL || rows->pieces == NULL) return TT_ERR_MEMORY;
    TT_TRY(tt_event_create(device, &rows->added));
    return tt_buffer_create(device, ranks * rows->row_bytes, TT_PURPOSE_GRADIENTS, &rows->memory);
}

void tt_comm_rows_destroy(struct tt_comm_rows *rows)
{
    if (rows == NULL) return;
    tt_buffer_destroy(rows->memory);
    if (rows->added != NULL) tt_event_destroy(rows->added);
    tt_free(rows->parts);
    tt_free(rows->pieces);
    tt_free(rows);
}

tt_status tt_comm_order_sums(struct tt_comm *comm, struct tt_device *device)
{
    bool is_needed = comm->table->reaches_devices || tt_device_is_plan(device);
    if (comm->world_size == 1 || comm->rows != NULL || !is_needed) return TT_OK;
    struct tt_comm_rows *rows = tt_calloc(1, sizeof *rows);
    if (rows == NULL) return TT_ERR_MEMORY;
    tt_status status = make_rows(rows, comm->world_size, device);
    if (status == TT_OK)
        comm->rows = rows;
    else
        tt_comm_rows_destroy(rows);
    return status;
}

void tt_comm_release_sums(struct tt_comm *comm)
{
    tt_comm_rows_destroy(comm->rows);
    comm->rows = NULL;
}

/* How much of `bytes` is in a piece of `piece` bytes from `offset`. */
static size_t length_of_piece(size_t bytes, size_t offset, size_t piece)
{
    return bytes > offset ? tt_smaller_size(bytes - offset, piece) : 0;
}

/* A piece of every part, which all ranks have from `offset` on: this rank's share of it is added into sum->to. */
static tt_status add_piece(struct tt_comm *comm, const struct tt_comm_exchange *exchange, size_t offset)
{
    const struct tt_comm_rows *rows = comm->rows;
    const struct sum *sum = exchange->context;
    struct tt_stream *stream = exchange->stream;
    char *memory = tt_buffer_data(rows->memory);
    const struct tt_comm_part *own = &exchange->parts[comm->rank];
    size_t bytes = length_of_piece(own->recv_bytes, offset, rows->row_bytes),
           element = tt_dtype_bytes(sum->dtype);
    for (int q = 0; q < comm->world_size; q++) {
        const struct tt_comm_part *part = &exchange->parts[q];
        rows->pieces[q] =
            (struct tt_comm_part){.send = (const char *)part->send + offset,
                                  .send_bytes = length_of_piece(part->send_bytes, offset, rows->row_bytes),
                                  .recv = memory + (size_t)q * rows->row_bytes,
                                  .recv_bytes = bytes};
    }
    TT_TRY(comm->table->exchange(
        comm, &(struct tt_comm_exchange){.order = exchange->order, .stream = stream, .parts = rows->pieces}));
    if (bytes == 0) return TT_OK;
    TT_TRY(tt_copy_on_device(stream, memory + (size_t)comm->rank * rows->row_bytes,
                             (const char *)own->send + offset, bytes));
    struct tt_sum_rows_args args = {
        .x_RD = tt_tensor_2d(memory, sum->dtype, comm->world_size, (int64_t)(bytes / element)),
        .y_D = tt_tensor_1d(sum->to + offset, sum->dtype, (int64_t)(bytes / element))};
    args.x_RD.strides[0] = (int64_t)(rows->row_bytes / element);
    return tt_sum_rows(stream, &args);
}

/* `most`: bytes of the largest part of any rank. Sums of one communicator may be on several streams. */
static tt_status add_rows(struct tt_comm *comm, const struct tt_comm_exchange *exchange, size_t most)
{
    const struct tt_comm_rows *rows = comm->rows;
    TT_TRY(tt_stream_wait(exchange->stream, rows->added));
    for (size_t offset = 0; offset < most; offset += rows->row_bytes)
        TT_TRY(add_piece(comm, exchange, offset));
    return tt_event_record(rows->added, exchange->stream);
}

/* ---- Collectives ---- */

static tt_status exchange_sums(struct tt_comm *comm, const struct tt_comm_exchange *exchange, size_t most)
{
    if (exchange->stream != NULL) return add_rows(comm, exchange, most);
    return comm->table->exchange(comm, exchange);
}

static struct tt_comm_part *parts_of(const struct tt_comm *comm, const struct tt_stream *stream)
{
    return stream != NULL ? comm->rows->parts : comm->parts;
}

tt_status tt_exchange_all_gather(struct tt_comm *comm, const void *send, void *recv, size_t bytes)
{
    struct tt_comm_exchange exchange = {.order = {.call = TT_CALL_ALL_GATHER, .size = bytes},
                                        .parts = comm->parts};
    char *own = (char *)recv + (size_t)comm->rank * bytes;
    for (int q = 0; q < comm->world_size; q++)
        comm->parts[q] = (struct tt_comm_part){
            .send = send, .send_bytes = bytes, .recv = (char *)recv + (size_t)q * bytes, .recv_bytes = bytes};
    TT_TRY(comm->table->exchange(comm, &exchange));
    if (own != send) memcpy(own, send, bytes);
    return TT_OK;
}

tt_status tt_exchange_reduce_scatter(struct tt_comm *comm, struct tt_stream *stream, const void *send,
                                     void *recv, size_t count, tt_dtype dtype)
{
    size_t bytes = count * tt_dtype_bytes(dtype);
    struct sum sum = {.to = recv, .world_size = comm->world_size, .dtype = dtype, .reduce = TT_REDUCE_SUM};
    struct tt_comm_exchange exchange = {
        .order = {.call = TT_CALL_REDUCE_SCATTER, .size = count, .parameter = (int32_t)dtype},
        .stream = stream,
        .parts = parts_of(comm, stream),
        .consume = add,
        .context = &sum};
    struct tt_comm_part *parts = parts_of(comm, stream);
    for (int q = 0; q < comm->world_size; q++)
        parts[q] = (struct tt_comm_part){
            .send = (const char *)send + (size_t)q * bytes, .send_bytes = bytes, .recv_bytes = bytes};
    return exchange_sums(comm, &exchange, bytes);
}

/* Every rank receives all data and adds it. */
static tt_status all_reduce_in_one_step(struct tt_comm *comm, struct tt_comm_exchange *exchange, void *data,
                                        size_t bytes)
{
    _Alignas(64) char own[ONE_STEP_BYTES]; /* others read it while `data` becomes the sum */
    memcpy(own, data, bytes);
    for (int q = 0; q < comm->world_size; q++)
        comm->parts[q] = (struct tt_comm_part){.send = own, .send_bytes = bytes, .recv_bytes = bytes};
    return comm->table->exchange(comm, exchange);
}

/* Each rank sums one slice in place and sends it to all. */
static tt_status all_reduce_by_slices(struct tt_comm *comm, struct tt_comm_exchange *exchange, char *data,
                                      size_t count, size_t element)
{
    struct sum *sum = exchange->context;
    size_t world_size = (size_t)comm->world_size, lines = (count + LINE_ELEMENTS - 1) / LINE_ELEMENTS;
    size_t slice = (lines + world_size - 1) / world_size * LINE_ELEMENTS;
    size_t first = tt_smaller_size((size_t)comm->rank * slice, count),
           end = tt_smaller_size(first + slice, count);
    size_t own_bytes = (end - first) * element;
    struct tt_comm_part *parts = parts_of(comm, exchange->stream);
    for (size_t q = 0; q < world_size; q++) {
        size_t begins = tt_smaller_size(q * slice, count), ends = tt_smaller_size(begins + slice, count);
        parts[q] = (struct tt_comm_part){.send = data + begins * element,
                                         .send_bytes = (ends - begins) * element,
                                         .recv_bytes = own_bytes};
    }
    sum->to = data + first * element;
    TT_TRY(exchange_sums(comm, exchange, tt_smaller_size(slice, count) * element));
    exchange->consume = NULL;
    for (size_t q = 0; q < world_size; q++) {
        struct tt_comm_part *part = &parts[q];
        *part = (struct tt_comm_part){.send = data + first * element,
                                      .send_bytes = own_bytes,
                                      .recv = data + tt_smaller_size(q * slice, count) * element,
                                      .recv_bytes = part->send_bytes};
    }
    return comm->table->exchange(comm, exchange);
}

tt_status tt_exchange_all_reduce(struct tt_comm *comm, struct tt_stream *stream, void *data, size_t count,
                                 tt_dtype dtype, enum tt_reduce reduce)
{
    size_t element = tt_dtype_bytes(dtype), bytes = count * element;
    struct sum sum = {.to = data, .world_size = comm->world_size, .dtype = dtype, .reduce = reduce};
    struct tt_comm_exchange exchange = {.order = {.call = TT_CALL_ALL_REDUCE,
                                                  .size = count,
                                                  .parameter = (int32_t)dtype,
                                                  .reduce = (int32_t)reduce},
                                        .stream = stream,
                                        .parts = parts_of(comm, stream),
                                        .consume = add,
                                        .context = &sum};
    if (stream != NULL) {
        if (reduce != TT_REDUCE_SUM || (dtype != TT_F32 && dtype != TT_BF16))
            return tt_fail(TT_ERR_UNSUPPORTED, "GPUs sum F32 and BF16 in order of the ranks, not %s",
                           tt_dtype_name(dtype));
        return all_reduce_by_slices(comm, &exchange, data, count, element);
    }
    if (bytes <= ONE_STEP_SURE_BYTES ||
        (bytes <= ONE_STEP_BYTES && bytes <= ONE_STEP_ALL_BYTES / (size_t)comm->world_size))
        return all_reduce_in_one_step(comm, &exchange, data, bytes);
    return all_reduce_by_slices(comm, &exchange, data, count, element);
}

tt_status tt_exchange_broadcast(struct tt_comm *comm, void *data, size_t bytes, int root)
{
    struct tt_comm_exchange exchange = {
        .order = {.call = TT_CALL_BROADCAST, .size = bytes, .parameter = root}, .parts = comm->parts};
    for (int q = 0; q < comm->world_size; q++) {
        comm->parts[q] = (struct tt_comm_part){0};
        if (comm->rank == root) {
            comm->parts[q].send = data;
            comm->parts[q].send_bytes = bytes;
        } else if (q == root) {
            comm->parts[q].recv = data;
            comm->parts[q].recv_bytes = bytes;
        }
    }
    return comm->table->exchange(comm, &exchange);
}

tt_status tt_exchange_barrier(struct tt_comm *comm)
{
    memset(comm->parts, 0, (size_t)comm->world_size * sizeof *comm->parts);
    return comm->table->exchange(
        comm, &(struct tt_comm_exchange){.order = {.call = TT_CALL_BARRIER}, .parts = comm->parts});
}
