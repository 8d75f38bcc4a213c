/* Ranks of processes that have found each other by address, without MPI. Each two ranks have a connection of
 * their own, over which calls go (tcp_exchange.c); so no rank carries what others say to each other. Sums are
 * made by whoever keeps the result, in order of rank, and are the bits that threads give.
 *
 * Health is kept beside the calls (link.c): a rank that fails, falls silent or is gone ends every wait of
 * every other rank.
 */
#include <stdio.h>

#include "base/alloc.h"
#include "comm/lines.h"
#include "comm/tcp_impl.h"
#include "comm/wire.h"

enum {
    STAGING_BYTES = 4 << 20, /* at most, but for very many ranks */
    SLOT_BYTES_MAX = 256 << 10,
    SLOT_BYTES_MIN = 4 << 10,
};

static struct tcp_comm *tcp_of(struct tt_comm *comm)
{
    return (struct tcp_comm *)comm;
}

/* Before a call; what the rank does is known when it falls silent. */
static void begin(struct tcp_comm *comm, const struct tt_comm_order *order)
{
    char doing[160];
    struct tt_station *station = comm->station;
    pthread_mutex_lock(&station->mutex);
    snprintf(doing, sizeof doing, "rank %d, %s%s%s of %llu (message %llu)", station->rank, station->note,
             station->note[0] != '\0' ? ", " : "", tt_comm_call_name(order->call),
             (unsigned long long)order->size, (unsigned long long)++station->calls);
    tt_link_say(station->link, doing);
}

static tt_status tcp_exchange(struct tt_comm *base, const struct tt_comm_exchange *exchange)
{
    struct tcp_comm *comm = tcp_of(base);
    begin(comm, &exchange->order);
    tt_status status = tt_station_exchange(comm, exchange);
    pthread_mutex_unlock(&comm->station->mutex);
    return status;
}

static void tcp_note(struct tt_comm *base, const char *text)
{
    struct tt_station *station = tcp_of(base)->station;
    char doing[120];
    pthread_mutex_lock(&station->mutex);
    snprintf(station->note, sizeof station->note, "%s", text);
    snprintf(doing, sizeof doing, "rank %d, %s", station->rank, station->note);
    pthread_mutex_unlock(&station->mutex);
    tt_link_say(station->link, doing);
}

static tt_status tcp_poll(struct tt_comm *base)
{
    return tt_link_poll(tcp_of(base)->station->link);
}

static void tcp_abort(struct tt_comm *base)
{
    tt_link_abort(tcp_of(base)->station->link, tcp_of(base)->station->rank);
}

/* ---- Beginning and end ---- */

static void station_free(struct tt_station *station)
{
    if (station->lines != NULL) tt_lines_close(station->lines, (size_t)station->world_size);
    pthread_mutex_destroy(&station->mutex);
    tt_link_release(station->link);
    tt_free(station->lines);
    tt_free(station->torn);
    tt_free(station->ways);
    tt_free(station->files);
    tt_free(station->sources);
    tt_free(station->staging);
    tt_free(station);
}

static void tcp_destroy(struct tt_comm *base)
{
    struct tcp_comm *comm = tcp_of(base), **link;
    struct tt_station *station = comm->station;
    pthread_mutex_lock(&station->mutex);
    tt_station_leave(comm);
    for (link = &station->comms; *link != comm;) link = &(*link)->next;
    *link = comm->next;
    bool last = --station->users == 0;
    pthread_mutex_unlock(&station->mutex);
    if (last) station_free(station);
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
    .note = tcp_note,
};

/* One that nobody uses yet; `base` is that of the communicator to be. Takes one use of the station when it
 * succeeds. */
static tt_status comm_create(struct tt_station *station, uint64_t group, const struct tt_comm *base,
                             struct tcp_comm **out)
{
    struct tcp_comm *comm = tt_calloc(1, sizeof *comm);
    if (comm == NULL) return TT_ERR_MEMORY;
    comm->base = *base;
    comm->base.table = &tcp_table;
    comm->station = station;
    comm->group = group;
    comm->departed = -1;
    comm->members = tt_calloc((size_t)base->world_size, sizeof *comm->members);
    if (comm->members == NULL || tt_comm_init_parts(&comm->base) != TT_OK) {
        tt_free(comm->members);
        tt_free(comm);
        return TT_ERR_MEMORY;
    }
    comm->next = station->comms;
    station->comms = comm;
    station->users++;
    *out = comm;
    return TT_OK;
}

/* What ranks tell each other to split. */
struct split_card {
    int32_t color;
    uint32_t groups; /* tt_station: the lowest rank of a color names the new group */
};

static tt_status exchange_cards(struct tcp_comm *comm, const struct split_card *own, struct split_card *all)
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
    struct tt_station *station = parent->station;
    const int *machines = tt_link_machines(station->link);
    struct tt_comm part = {0};
    int lowest = -1;
    struct split_card *cards = tt_calloc((size_t)base->world_size, sizeof *cards);
    if (cards == NULL) return TT_ERR_MEMORY;
    tt_status status =
        exchange_cards(parent, &(struct split_card){.color = color, .groups = ++station->groups}, cards);
    for (int q = 0; q < base->world_size && status == TT_OK; q++) {
        if (cards[q].color != color) continue;
        if (lowest < 0) lowest = q;
        if (q == base->rank) part.rank = part.world_size;
        part.local_size += machines[parent->members[q]] == machines[station->rank];
        part.world_size++;
    }
    if (status == TT_OK) {
        uint64_t group = (uint64_t)(parent->members[lowest] + 1) << 32 | cards[lowest].groups;
        pthread_mutex_lock(&station->mutex);
        status = comm_create(station, group, &part, &comm);
        pthread_mutex_unlock(&station->mutex);
    }
    for (int q = 0, i = 0; q < base->world_size && status == TT_OK; q++)
        if (cards[q].color == color) comm->members[i++] = parent->members[q];
    tt_free(cards);
    if (status == TT_OK) *out = &comm->base;
    return status;
}

static tt_status station_init(struct tt_station *station, const int *lines)
{
    size_t world_size = (size_t)station->world_size;
    size_t slot = STAGING_BYTES / 2 / world_size / SLOT_BYTES_MIN * SLOT_BYTES_MIN;
    if (slot > SLOT_BYTES_MAX) slot = SLOT_BYTES_MAX;
    if (slot < SLOT_BYTES_MIN) slot = SLOT_BYTES_MIN;
    station->slot_bytes = slot;
    station->lines = tt_calloc(world_size, sizeof *station->lines);
    if (station->lines != NULL) memcpy(station->lines, lines, world_size * sizeof *lines);
    station->torn = tt_calloc(world_size, sizeof *station->torn);
    station->ways = tt_calloc(world_size, sizeof *station->ways);
    station->files = tt_calloc(1 + world_size, sizeof *station->files);
    station->sources = tt_calloc(world_size, sizeof *station->sources);
    station->staging = tt_alloc_aligned(2 * world_size * slot);
    return station->lines != NULL && station->torn != NULL && station->ways != NULL &&
                   station->files != NULL && station->sources != NULL && station->staging != NULL
               ? TT_OK
               : TT_ERR_MEMORY;
}

/* Takes `lines`, and one use of the link, also on failure. */
static tt_status create_rank(const struct tt_tcp_config *config, struct tt_link *link, int rank, int *lines,
                             struct tt_comm **out)
{
    struct tt_station *station = tt_calloc(1, sizeof *station);
    struct tcp_comm *comm = NULL;
    const int *machines = tt_link_machines(link);
    if (station == NULL) {
        tt_lines_close(lines, (size_t)config->world_size);
        tt_link_release(link);
        return TT_ERR_MEMORY;
    }
    pthread_mutex_init(&station->mutex, NULL);
    station->link = link;
    station->rank = rank;
    station->world_size = config->world_size;
    struct tt_comm base = {.rank = rank, .world_size = config->world_size};
    for (int q = 0; q < config->world_size; q++) base.local_size += machines[q] == machines[rank];
    tt_status status = station_init(station, lines);
    if (station->lines == NULL) tt_lines_close(lines, (size_t)config->world_size);
    if (status == TT_OK) status = comm_create(station, 0, &base, &comm);
    if (status != TT_OK) {
        station_free(station);
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
        tt_link_use(link);
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
        return tt_fail(TT_ERR_USAGE, "%d ranks from rank %d in a world of %d cannot be", full.local_count,
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
    if (status != TT_OK) tt_while("meeting the other processes of the run");
    tt_free(lines);
    return status;
}
