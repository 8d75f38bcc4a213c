/* Ranks of processes that connect by address, without MPI. Every pair of ranks has its own connection, which carries
 * the data of collectives (tcp_exchange.c), so no rank forwards the data of others. The rank that keeps a sum makes it,
 * in order of rank, with the same bits as the threads transport.
 *
 * Failures are detected over the control connections (link.c): a rank that fails, falls silent or ends unexpectedly
 * ends every wait of every other rank.
 */
#include <stdio.h>

#include "base/alloc.h"
#include "comm/lines.h"
#include "comm/tcp_impl.h"
#include "comm/wire.h"

enum {
    STAGING_BYTES = 4 << 20, /* more only with so many ranks that slots have SLOT_BYTES_MIN */
    SLOT_BYTES_MAX = 256 << 10,
    SLOT_BYTES_MIN = 4 << 10,
};

static struct tcp_comm *tcp_of(struct tt_comm *comm)
{
    return (struct tcp_comm *)comm;
}

/* Starts a call: locks the endpoint and sets the activity that the hub reports if this rank falls silent. */
static void begin(struct tcp_comm *comm, const struct tt_comm_order *order)
{
    char activity[160];
    struct tt_endpoint *endpoint = comm->endpoint;
    pthread_mutex_lock(&endpoint->mutex);
    snprintf(activity, sizeof activity, "rank %d, %s%s%s of %llu (message %llu)", endpoint->rank,
             endpoint->activity, endpoint->activity[0] != '\0' ? ", " : "", tt_comm_call_name(order->call),
             (unsigned long long)order->size, (unsigned long long)++endpoint->calls);
    tt_link_set_activity(endpoint->link, activity);
}

static tt_status tcp_exchange(struct tt_comm *base, const struct tt_comm_exchange *exchange)
{
    struct tcp_comm *comm = tcp_of(base);
    begin(comm, &exchange->order);
    tt_status status = tt_endpoint_exchange(comm, exchange);
    pthread_mutex_unlock(&comm->endpoint->mutex);
    return status;
}

static void tcp_set_activity(struct tt_comm *base, const char *text)
{
    struct tt_endpoint *endpoint = tcp_of(base)->endpoint;
    char activity[120];
    pthread_mutex_lock(&endpoint->mutex);
    snprintf(endpoint->activity, sizeof endpoint->activity, "%s", text);
    snprintf(activity, sizeof activity, "rank %d, %s", endpoint->rank, endpoint->activity);
    pthread_mutex_unlock(&endpoint->mutex);
    tt_link_set_activity(endpoint->link, activity);
}

static tt_status tcp_poll(struct tt_comm *base)
{
    return tt_link_poll(tcp_of(base)->endpoint->link);
}

static void tcp_abort(struct tt_comm *base)
{
    tt_link_abort(tcp_of(base)->endpoint->link, tcp_of(base)->endpoint->rank);
}

/* ---- Beginning and end ---- */

static void endpoint_free(struct tt_endpoint *endpoint)
{
    if (endpoint->lines != NULL) tt_lines_close(endpoint->lines, (size_t)endpoint->world_size);
    pthread_mutex_destroy(&endpoint->mutex);
    tt_link_release(endpoint->link);
    tt_free(endpoint->lines);
    tt_free(endpoint->torn);
    tt_free(endpoint->transfers);
    tt_free(endpoint->files);
    tt_free(endpoint->sources);
    tt_free(endpoint->staging);
    tt_free(endpoint);
}

static void tcp_destroy(struct tt_comm *base)
{
    struct tcp_comm *comm = tcp_of(base), **link;
    struct tt_endpoint *endpoint = comm->endpoint;
    pthread_mutex_lock(&endpoint->mutex);
    tt_endpoint_leave(comm);
    for (link = &endpoint->comms; *link != comm;) link = &(*link)->next;
    *link = comm->next;
    bool last = --endpoint->users == 0;
    pthread_mutex_unlock(&endpoint->mutex);
    if (last) endpoint_free(endpoint);
    tt_comm_deinit_parts(base);
    tt_free(comm->members);
    tt_free(comm);
}

static tt_status tcp_split(struct tt_comm *base, int color, struct tt_comm **out);

static const struct tt_comm_table tcp_table = {
    .kind = "tcp",
    .exchange = tcp_exchange,
    .split = tcp_split,
    .abort = tcp_abort,
    .destroy = tcp_destroy,
    .poll = tcp_poll,
    .set_activity = tcp_set_activity,
};

/* Creates a communicator with rank and sizes of `base`, which becomes a user of the endpoint. */
static tt_status comm_create(struct tt_endpoint *endpoint, uint64_t group, const struct tt_comm *base,
                             struct tcp_comm **out)
{
    struct tcp_comm *comm = tt_calloc(1, sizeof *comm);
    if (comm == NULL) return TT_ERR_MEMORY;
    comm->base = *base;
    comm->base.table = &tcp_table;
    comm->endpoint = endpoint;
    comm->group = group;
    comm->departed = -1;
    comm->members = tt_calloc((size_t)base->world_size, sizeof *comm->members);
    if (comm->members == NULL || tt_comm_init_parts(&comm->base) != TT_OK) {
        tt_free(comm->members);
        tt_free(comm);
        return TT_ERR_MEMORY;
    }
    comm->next = endpoint->comms;
    endpoint->comms = comm;
    endpoint->users++;
    *out = comm;
    return TT_OK;
}

/* Exchanged by the ranks of a split. */
struct split_choice {
    int32_t color;
    uint32_t groups; /* of tt_endpoint: the lowest rank of a color names the new group */
};

static tt_status exchange_choices(struct tcp_comm *comm, const struct split_choice *own,
                                  struct split_choice *all)
{
    struct tt_comm *base = &comm->base;
    for (int q = 0; q < base->world_size; q++)
        base->parts[q] = (struct tt_comm_part){
            .send = own, .send_bytes = sizeof *own, .recv = &all[q], .recv_bytes = sizeof *own};
    all[base->rank] = *own;
    return tcp_exchange(base,
                        &(struct tt_comm_exchange){.order = {.call = TT_CALL_SPLIT}, .parts = base->parts});
}

static tt_status tcp_split(struct tt_comm *base, int color, struct tt_comm **out)
{
    struct tcp_comm *parent = tcp_of(base), *comm = NULL;
    struct tt_endpoint *endpoint = parent->endpoint;
    const int *machines = tt_link_machines(endpoint->link);
    struct tt_comm part = {0};
    int lowest = -1;
    struct split_choice *choices = tt_calloc((size_t)base->world_size, sizeof *choices);
    if (choices == NULL) return TT_ERR_MEMORY;
    tt_status status = exchange_choices(
        parent, &(struct split_choice){.color = color, .groups = ++endpoint->groups}, choices);
    for (int q = 0; q < base->world_size && status == TT_OK; q++) {
        if (choices[q].color != color) continue;
        if (lowest < 0) lowest = q;
        if (q == base->rank) part.rank = part.world_size;
        part.local_size += machines[parent->members[q]] == machines[endpoint->rank];
        part.world_size++;
    }
    if (status == TT_OK) {
        uint64_t group = (uint64_t)(parent->members[lowest] + 1) << 32 | choices[lowest].groups;
        pthread_mutex_lock(&endpoint->mutex);
        status = comm_create(endpoint, group, &part, &comm);
        pthread_mutex_unlock(&endpoint->mutex);
    }
    for (int q = 0, i = 0; q < base->world_size && status == TT_OK; q++)
        if (choices[q].color == color) comm->members[i++] = parent->members[q];
    tt_free(choices);
    if (status == TT_OK) *out = &comm->base;
    return status;
}

static tt_status endpoint_init(struct tt_endpoint *endpoint, const int *lines)
{
    size_t world_size = (size_t)endpoint->world_size;
    size_t slot = STAGING_BYTES / 2 / world_size / SLOT_BYTES_MIN * SLOT_BYTES_MIN;
    if (slot > SLOT_BYTES_MAX) slot = SLOT_BYTES_MAX;
    if (slot < SLOT_BYTES_MIN) slot = SLOT_BYTES_MIN;
    endpoint->slot_bytes = slot;
    endpoint->lines = tt_calloc(world_size, sizeof *endpoint->lines);
    if (endpoint->lines != NULL) memcpy(endpoint->lines, lines, world_size * sizeof *lines);
    endpoint->torn = tt_calloc(world_size, sizeof *endpoint->torn);
    endpoint->transfers = tt_calloc(world_size, sizeof *endpoint->transfers);
    endpoint->files = tt_calloc(1 + world_size, sizeof *endpoint->files);
    endpoint->sources = tt_calloc(world_size, sizeof *endpoint->sources);
    endpoint->staging = tt_alloc_aligned(2 * world_size * slot);
    return endpoint->lines != NULL && endpoint->torn != NULL && endpoint->transfers != NULL &&
                   endpoint->files != NULL && endpoint->sources != NULL && endpoint->staging != NULL
               ? TT_OK
               : TT_ERR_MEMORY;
}

/* Takes ownership of the sockets in `lines` and of one use of the link, also on failure. */
static tt_status create_rank(const struct tt_tcp_config *config, struct tt_link *link, int rank, int *lines,
                             struct tt_comm **out)
{
    struct tt_endpoint *endpoint = tt_calloc(1, sizeof *endpoint);
    struct tcp_comm *comm = NULL;
    const int *machines = tt_link_machines(link);
    if (endpoint == NULL) {
        tt_lines_close(lines, (size_t)config->world_size);
        tt_link_release(link);
        return TT_ERR_MEMORY;
    }
    pthread_mutex_init(&endpoint->mutex, NULL);
    endpoint->link = link;
    endpoint->rank = rank;
    endpoint->world_size = config->world_size;
    struct tt_comm base = {.rank = rank, .world_size = config->world_size};
    for (int q = 0; q < config->world_size; q++) base.local_size += machines[q] == machines[rank];
    tt_status status = endpoint_init(endpoint, lines);
    if (endpoint->lines == NULL) tt_lines_close(lines, (size_t)config->world_size);
    if (status == TT_OK) status = comm_create(endpoint, 0, &base, &comm);
    if (status != TT_OK) {
        endpoint_free(endpoint);
        return status;
    }
    for (int q = 0; q < config->world_size; q++) comm->members[q] = q;
    *out = &comm->base;
    return TT_OK;
}

static tt_status create_ranks(const struct tt_tcp_config *config, struct tt_link *link, int *lines,
                              struct tt_comm **out)
{
    size_t world_size = (size_t)config->world_size;
    tt_status status = TT_OK;
    int made = 0;
    while (made < config->local_count && status == TT_OK) {
        tt_link_retain(link);
        status = create_rank(config, link, config->first_rank + made, lines + (size_t)made * world_size,
                             &out[made]);
        made += status == TT_OK;
    }
    if (status == TT_OK) return TT_OK;
    for (int r = made + 1; r < config->local_count; r++)
        tt_lines_close(lines + (size_t)r * world_size, world_size);
    for (int r = 0; r < made; r++) tt_comm_destroy(out[r]);
    return status;
}

tt_status tt_comm_create_tcp(const struct tt_tcp_config *config, struct tt_comm **out, int *machines)
{
    struct tt_link *link = NULL;
    struct tt_tcp_config full = *config;
    if (full.timeout_seconds <= 0) full.timeout_seconds = 300;
    if (full.local_count < 1 || full.first_rank < 0 || full.world_size < full.first_rank + full.local_count ||
        full.world_size > TT_WIRE_RANKS_MAX)
        return tt_fail(TT_ERR_USAGE, "%d ranks from rank %d on do not fit a world of %d", full.local_count,
                       full.first_rank, full.world_size);
    int *lines = tt_calloc((size_t)full.local_count * (size_t)full.world_size, sizeof *lines);
    if (lines == NULL) return TT_ERR_MEMORY;
    tt_status status = tt_link_create(&full, &link, lines);
    if (status == TT_OK) {
        status = create_ranks(&full, link, lines, out);
        if (status == TT_OK)
            memcpy(machines, tt_link_machines(link), (size_t)full.world_size * sizeof *machines);
        tt_link_release(link);
    }
    if (status != TT_OK) tt_while("joining the other processes of the run");
    tt_free(lines);
    return status;
}
