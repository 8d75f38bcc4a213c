/* Data lines that other ranks write to while this rank calls collectives. The input is combined (xor) with the
 * frames of honest ranks, so zeros, and an empty input, are honest: then every call succeeds. No other input may
 * look like success: a call that succeeds has received the frames of honest ranks.
 *
 * The processes do not connect here: this file replaces comm/link.c, which owns the control connection. */
/* links: tt_comm */
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "comm/tcp_impl.h"
#include "comm/wire.h"

enum {
    WORLD_SIZE = 3,
    RANK = 1,
    CALLS = 3,
    POLLS_MAX = 20, /* in one call, whose bytes have all been sent: more polls mean that it waits in vain */
    ELEMENTS_MAX = 3000,
    PAYLOAD_MAX = 8 * ELEMENTS_MAX * WORLD_SIZE,
};

/* ---- Replaces comm/link.c ---- */

struct tt_link {
    int wake; /* always readable */
    int polls;
    int machines[WORLD_SIZE];
    int ends[WORLD_SIZE]; /* of the other ranks */
};

static struct tt_link link_of_run = {.wake = -1};

tt_status tt_link_create(const struct tt_tcp_config *config, struct tt_link **out, int *lines)
{
    (void)config;
    if (link_of_run.wake < 0) link_of_run.wake = eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK);
    for (int q = 0; q < WORLD_SIZE; q++) {
        int pair[2] = {-1, -1};
        if (q != RANK && socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) abort();
        lines[q] = pair[0];
        link_of_run.ends[q] = pair[1];
    }
    *out = &link_of_run;
    return TT_OK;
}

void tt_link_retain(struct tt_link *link)
{
    (void)link;
}

void tt_link_release(struct tt_link *link)
{
    (void)link;
}

int tt_link_wake(const struct tt_link *link)
{
    return link->wake;
}

const int *tt_link_machines(const struct tt_link *link)
{
    return link->machines;
}

tt_status tt_link_poll(struct tt_link *link)
{
    if (link->polls++ < POLLS_MAX) return TT_OK;
    return tt_fail(TT_ERR_PEER, "nothing more comes");
}

tt_status tt_link_await_cause(struct tt_link *link)
{
    (void)link;
    return TT_OK;
}

void tt_link_abort(struct tt_link *link, int rank)
{
    (void)link, (void)rank;
}

void tt_link_set_activity(struct tt_link *link, const char *doing)
{
    (void)link, (void)doing;
}

/* ---- The frames of the other ranks ---- */

enum { LEAVES = 1, CUT = 2, CLOSES = 4 }; /* before its frame; in it; after it */

static struct {
    const uint8_t *data;
    size_t size;
    bool touched; /* some rank is not honest */
} input;

static struct tt_line_frame said[WORLD_SIZE];
static bool closed[WORLD_SIZE];
static bool whole[WORLD_SIZE]; /* said[] and its payload were sent completely, and nothing before them */
static uint8_t payloads[WORLD_SIZE][PAYLOAD_MAX];
static tt_status (*exchange_of_tcp)(struct tt_comm *comm, const struct tt_comm_exchange *exchange);

static uint8_t next_byte(void)
{
    if (input.size == 0) return 0;
    input.size--;
    return *input.data++;
}

static void combine(void *data, size_t bytes)
{
    for (size_t i = 0; i < bytes && input.size > 0; i++) {
        uint8_t change = next_byte();
        ((uint8_t *)data)[i] ^= change;
        input.touched = input.touched || change != 0;
    }
}

/* `limit`: number of bytes before the cut. */
static void put(int end, const void *data, size_t bytes, size_t *limit)
{
    size_t some = bytes < *limit ? bytes : *limit;
    *limit -= some;
    if (some > 0 && send(end, data, some, MSG_NOSIGNAL) != (ssize_t)some) abort();
}

static void say_part(const struct tcp_comm *comm, const struct tt_comm_exchange *exchange, int q)
{
    int end = link_of_run.ends[comm->members[q]];
    size_t bytes = exchange->parts[q].recv_bytes, limit = SIZE_MAX;
    uint8_t flags = next_byte();
    if (bytes > PAYLOAD_MAX) abort();
    whole[q] = (flags & (LEAVES | CUT)) == 0 && !closed[q];
    if (closed[q]) limit = 0;
    input.touched = input.touched || (flags & (LEAVES | CUT | CLOSES)) != 0;
    if ((flags & CUT) != 0 && !closed[q]) limit = next_byte();
    struct tt_line_frame leave = {.magic = TT_WIRE_MAGIC, .kind = TT_LINE_LEAVE, .group = comm->group};
    said[q] = (struct tt_line_frame){.magic = TT_WIRE_MAGIC,
                                     .kind = TT_LINE_CALL,
                                     .group = comm->group,
                                     .sequence = comm->sequence + 1,
                                     .order = exchange->order,
                                     .bytes = bytes};
    if ((flags & LEAVES) != 0) {
        combine(&leave, sizeof leave);
        put(end, &leave, sizeof leave, &limit);
    }
    combine(&said[q], sizeof said[q]);
    if (said[q].bytes <= PAYLOAD_MAX)
        bytes = (size_t)said[q].bytes; /* as many as the frame claims, if possible */
    memset(payloads[q], 0, bytes);
    for (size_t i = 0; i < bytes && input.size > 0; i++) payloads[q][i] = next_byte(); /* arbitrary content */
    put(end, &said[q], sizeof said[q], &limit);
    put(end, payloads[q], bytes, &limit);
    if ((flags & CLOSES) != 0) closed[q] = shutdown(end, SHUT_WR) == 0;
}

static void check_part(const struct tcp_comm *comm, const struct tt_comm_exchange *exchange, int q)
{
    const struct tt_line_frame *frame = &said[q];
    const struct tt_comm_part *part = &exchange->parts[q];
    const struct tt_comm_order *order = &exchange->order;
    if (!whole[q]) return;
    if (frame->magic != TT_WIRE_MAGIC || frame->kind != TT_LINE_CALL || frame->group != comm->group ||
        frame->sequence != comm->sequence || frame->bytes != part->recv_bytes ||
        frame->order.call != order->call || frame->order.parameter != order->parameter ||
        frame->order.reduce != order->reduce || frame->order.size != order->size)
        abort();
    if (exchange->consume == NULL && part->recv_bytes > 0 &&
        memcmp(part->recv, payloads[q], part->recv_bytes) != 0)
        abort();
}

static tt_status exchange_with_others(struct tt_comm *base, const struct tt_comm_exchange *exchange)
{
    const struct tcp_comm *comm = (const struct tcp_comm *)base;
    bool failed = comm->endpoint->failed;
    for (int q = 0; q < base->world_size && !failed; q++)
        if (q != base->rank) say_part(comm, exchange, q);
    link_of_run.polls = 0;
    tt_status status = exchange_of_tcp(base, exchange);
    for (int q = 0; q < base->world_size && status == TT_OK; q++)
        if (q != base->rank) check_part(comm, exchange, q);
    if (status != TT_OK && !input.touched) abort();
    return status;
}

/* Splitting does not use the table. */
static void say_cards(struct tt_comm *base)
{
    struct tt_comm_part parts[WORLD_SIZE] = {0};
    const struct tcp_comm *comm = (const struct tcp_comm *)base;
    for (int q = 0; q < WORLD_SIZE; q++) parts[q].recv_bytes = sizeof(int32_t) + sizeof(uint32_t);
    const struct tt_comm_exchange exchange = {.order = {.call = TT_CALL_SPLIT}, .parts = parts};
    for (int q = 0; q < WORLD_SIZE && !comm->endpoint->failed; q++)
        if (q != RANK) say_part(comm, &exchange, q);
}

/* ---- Calls ---- */

/* A block of exactly `bytes`, all zero, so that a sanitizer sees the first byte too far. */
static void *take_memory(size_t bytes)
{
    void *memory = calloc(1, bytes);
    if (memory == NULL) abort();
    return memory;
}

static tt_status split(struct tt_comm *comm, int color)
{
    struct tt_comm *part = NULL;
    say_cards(comm);
    link_of_run.polls = 0;
    TT_TRY(tt_comm_split(comm, color, &part));
    if (part->world_size < 1 || part->world_size > WORLD_SIZE || part->rank >= part->world_size) abort();
    tt_comm_destroy(part);
    return TT_OK;
}

/* Parts of several sizes, none of them for this rank. */
static tt_status all_to_all(struct tt_comm *comm, const void *data, void *all, size_t bytes, uint8_t how)
{
    struct tt_comm_part parts[WORLD_SIZE] = {0};
    for (int q = 0; q < WORLD_SIZE; q++) {
        size_t some = q == RANK ? 0 : bytes >> (how >> q) % 4;
        parts[q] = (struct tt_comm_part){.send = data,
                                         .send_bytes = some,
                                         .recv = (unsigned char *)all + (size_t)q * bytes,
                                         .recv_bytes = some};
    }
    const struct tt_comm_exchange exchange = {.order = {.call = TT_CALL_EXCHANGE}, .parts = parts};
    return comm->table->exchange(comm, &exchange);
}

static void call(struct tt_comm *comm)
{
    static const size_t counts[] = {1, 5, ELEMENTS_MAX};
    static const tt_dtype dtypes[] = {TT_F32, TT_BF16, TT_F64, TT_I64};
    uint8_t kind = next_byte() % TT_CALL_COUNT, how = next_byte();
    size_t count = counts[how % 3];
    tt_dtype dtype = kind == TT_CALL_REDUCE_SCATTER ? dtypes[how / 3 % 2] : dtypes[how / 3 % 4];
    size_t bytes = count * tt_dtype_bytes(dtype);
    void *data = take_memory(bytes), *all = take_memory(bytes * WORLD_SIZE);
    switch ((enum tt_comm_call)kind) {
    case TT_CALL_ALL_GATHER:
        (void)!tt_exchange_all_gather(comm, data, all, bytes);
        break;
    case TT_CALL_REDUCE_SCATTER:
        (void)!tt_exchange_reduce_scatter(comm, NULL, all, data, count, dtype);
        break;
    case TT_CALL_ALL_REDUCE:
        (void)!tt_exchange_all_reduce(comm, NULL, data, count, dtype, (enum tt_reduce)(how / 12 % 3));
        break;
    case TT_CALL_BROADCAST:
        (void)!tt_exchange_broadcast(comm, data, bytes, how / 12 % WORLD_SIZE);
        break;
    case TT_CALL_BARRIER:
        (void)!tt_exchange_barrier(comm);
        break;
    case TT_CALL_EXCHANGE:
        (void)!all_to_all(comm, data, all, bytes, how / 12);
        break;
    case TT_CALL_SPLIT:
        (void)!split(comm, how % 2);
        break;
    case TT_CALL_COUNT:
        break;
    }
    free(all);
    free(data);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tt_tcp_config config = {.world_size = WORLD_SIZE, .first_rank = RANK, .local_count = 1};
    struct tt_comm *comm = NULL;
    int machines[WORLD_SIZE];
    input.data = data;
    input.size = size;
    input.touched = false;
    memset(closed, 0, sizeof closed);
    if (tt_comm_create_tcp(&config, &comm, machines) != TT_OK) abort();
    struct tt_comm_table table = *comm->table;
    const struct tt_comm_table *table_of_tcp = comm->table;
    exchange_of_tcp = table.exchange;
    table.exchange = exchange_with_others;
    comm->table = &table;
    for (int i = 0; i < CALLS; i++) call(comm);
    comm->table = table_of_tcp;
    tt_comm_destroy(comm);
    for (int q = 0; q < WORLD_SIZE; q++)
        if (q != RANK) close(link_of_run.ends[q]);
    return 0;
}
