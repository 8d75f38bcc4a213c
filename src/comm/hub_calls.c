/* Collectives in the hub. Each rank of a group sends its piece; when all are there they are compared, the
 * result is computed in order of rank, as comm/threads.c does, and sent back. Large calls come in pieces one
 * after the other. */
#include "base/alloc.h"
#include "comm/comm_impl.h"
#include "comm/hub_impl.h"

struct pending {
    bool there;
    struct tt_wire_header header;
    char *payload;
};

struct hub_group {
    struct hub_group *next;
    uint32_t id;
    int count;
    int32_t *ranks; /* [count]: of the world */
    struct pending *pending;
    int waiting;
    int departed; /* rank of the world that left, or -1 */
    int leavers;
    bool *has_left;
};

static void group_free(struct hub_group *group)
{
    if (group == NULL) return;
    for (int i = 0; i < group->count && group->pending != NULL; i++) tt_free(group->pending[i].payload);
    tt_free(group->ranks);
    tt_free(group->pending);
    tt_free(group->has_left);
    tt_free(group);
}

/* Room for `count` ranks, in the hub's list. */
static tt_status group_create(struct tt_hub *hub, int count, struct hub_group **out)
{
    struct hub_group *group = tt_calloc(1, sizeof *group);
    if (group == NULL) return TT_ERR_MEMORY;
    group->count = count;
    group->departed = -1;
    group->ranks = tt_calloc((size_t)count, sizeof *group->ranks);
    group->pending = tt_calloc((size_t)count, sizeof *group->pending);
    group->has_left = tt_calloc((size_t)count, sizeof *group->has_left);
    if (group->ranks == NULL || group->pending == NULL || group->has_left == NULL) {
        group_free(group);
        return TT_ERR_MEMORY;
    }
    group->id = hub->group_ids++;
    group->next = hub->groups;
    hub->groups = group;
    *out = group;
    return TT_OK;
}

tt_status tt_hub_groups_init(struct tt_hub *hub)
{
    struct hub_group *group = NULL;
    TT_TRY(group_create(hub, hub->config.world_size, &group));
    for (int q = 0; q < group->count; q++) group->ranks[q] = q;
    return TT_OK;
}

void tt_hub_groups_deinit(struct tt_hub *hub)
{
    while (hub->groups != NULL) {
        struct hub_group *group = hub->groups;
        hub->groups = group->next;
        group_free(group);
    }
}

static struct hub_group *find_group(struct tt_hub *hub, uint32_t id)
{
    for (struct hub_group *group = hub->groups; group != NULL; group = group->next)
        if (group->id == id) return group;
    return NULL;
}

static int member_of(const struct hub_group *group, int rank)
{
    for (int i = 0; i < group->count; i++)
        if (group->ranks[i] == rank) return i;
    return -1;
}

static void clear_pending(struct hub_group *group, int i)
{
    tt_free(group->pending[i].payload);
    group->waiting -= group->pending[i].there;
    group->pending[i] = (struct pending){0};
}

static void answer(struct tt_hub *hub, const struct hub_group *group, int i, enum tt_wire_kind kind,
                   int parameter, const void *payload, size_t bytes)
{
    struct peer *peer = tt_hub_peer_of_rank(hub, group->ranks[i]);
    struct tt_wire_header header = {
        .kind = kind,
        .group = group->id,
        .call = group->pending[i].header.call,
        .sequence = group->pending[i].header.sequence,
        .parameter = parameter,
        .bytes = bytes,
    };
    if (peer != NULL) tt_hub_send(hub, peer, header, payload);
}

/* The record of this thread goes to all that wait. */
static void answer_error(struct tt_hub *hub, struct hub_group *group)
{
    struct tt_error error;
    tt_error_copy(&error);
    for (int i = 0; i < group->count; i++) {
        if (!group->pending[i].there) continue;
        answer(hub, group, i, TT_WIRE_ERROR, 0, &error, sizeof error);
        clear_pending(group, i);
    }
}

/* A rank has left. Where another rank's failure was the reason, that failure is on its way over the control
 * connections already, or was before: so this frame names no other. */
static void answer_departed(struct tt_hub *hub, struct hub_group *group)
{
    struct tt_error none = {0};
    const struct tt_error *error = hub->aborted ? &hub->abort_error : &none;
    int rank = hub->aborted ? hub->abort_header.parameter : group->departed;
    for (int i = 0; i < group->count; i++) {
        if (!group->pending[i].there) continue;
        answer(hub, group, i, hub->aborted ? TT_WIRE_ABORT : TT_WIRE_ERROR, rank, error, sizeof *error);
        clear_pending(group, i);
    }
}

/* All members do the same, and what they sent has the size that it says. */
static tt_status check_orders(const struct hub_group *group)
{
    const struct tt_wire_header *first = &group->pending[0].header;
    for (int i = 1; i < group->count; i++) {
        const struct tt_wire_header *other = &group->pending[i].header;
        bool root = first->call == TT_WIRE_BROADCAST; /* only one has something to send */
        bool color = first->call == TT_WIRE_SPLIT;    /* own to each rank */
        if (other->call == first->call && other->size == first->size && other->offset == first->offset &&
            (color || other->parameter == first->parameter) && other->reduce == first->reduce &&
            (root || other->bytes == first->bytes))
            continue;
        return tt_fail(TT_ERR_INTERNAL, "rank 0 calls %s of %llu while rank %d calls %s of %llu",
                       tt_wire_call_name(first->call), (unsigned long long)first->size, i,
                       tt_wire_call_name(other->call), (unsigned long long)other->size);
    }
    return TT_OK;
}

static bool is_summed(int dtype)
{
    return dtype == TT_F32 || dtype == TT_BF16 || dtype == TT_F64 || dtype == TT_I64;
}

static tt_status reject(const struct tt_wire_header *header)
{
    return tt_fail(TT_ERR_INTERNAL, "%s of %llu with %llu bytes cannot be", tt_wire_call_name(header->call),
                   (unsigned long long)header->size, (unsigned long long)header->bytes);
}

static tt_status run_all_gather(struct tt_hub *hub, struct hub_group *group)
{
    const struct tt_wire_header *header = &group->pending[0].header;
    size_t bytes = (size_t)header->bytes, count = (size_t)group->count;
    if (bytes > TT_WIRE_FRAME_BYTES_MAX / count) return reject(header);
    char *all = tt_alloc_aligned(count * bytes + 1);
    if (all == NULL) return TT_ERR_MEMORY;
    for (size_t i = 0; i < count && bytes > 0; i++) memcpy(all + i * bytes, group->pending[i].payload, bytes);
    for (int i = 0; i < group->count; i++) answer(hub, group, i, TT_WIRE_RESULT, 0, all, count * bytes);
    tt_free(all);
    return TT_OK;
}

/* `parts`: how many equal parts the payloads have; part i of the sum goes to rank i, or all of it to all when
 * it is 1. */
static tt_status run_sum(struct tt_hub *hub, struct hub_group *group, int parts)
{
    const struct tt_wire_header *header = &group->pending[0].header;
    size_t bytes = (size_t)header->bytes;
    if (!is_summed(header->parameter) || header->reduce < TT_REDUCE_SUM || header->reduce > TT_REDUCE_MIN)
        return reject(header);
    tt_dtype dtype = (tt_dtype)header->parameter;
    size_t unit = tt_dtype_bytes(dtype) * (size_t)parts;
    if (bytes == 0 || bytes % unit != 0) return reject(header);
    const void **sources = tt_calloc((size_t)group->count, sizeof *sources);
    char *sum = tt_alloc_aligned(bytes);
    tt_status status = sources != NULL && sum != NULL ? TT_OK : TT_ERR_MEMORY;
    if (status == TT_OK) {
        for (int i = 0; i < group->count; i++) sources[i] = group->pending[i].payload;
        tt_reduce_ordered(sum, sources, group->count, 0, bytes / tt_dtype_bytes(dtype), dtype,
                          (enum tt_reduce)header->reduce);
        for (int i = 0; i < group->count; i++)
            answer(hub, group, i, TT_WIRE_RESULT, 0,
                   parts == 1 ? sum : sum + (size_t)i * (bytes / (size_t)parts), bytes / (size_t)parts);
    }
    tt_free(sources);
    tt_free(sum);
    return status;
}

static tt_status run_broadcast(struct tt_hub *hub, struct hub_group *group)
{
    int root = group->pending[0].header.parameter;
    if (root < 0 || root >= group->count) return reject(&group->pending[0].header);
    const struct pending *source = &group->pending[root];
    for (int i = 0; i < group->count; i++)
        answer(hub, group, i, TT_WIRE_RESULT, 0, source->payload,
               i == root ? 0 : (size_t)source->header.bytes);
    return TT_OK;
}

/* The ranks with the color of member `i` become a group; its ranks of the world are the answer to each of
 * them. */
static tt_status run_split_of(struct tt_hub *hub, struct hub_group *group, int i)
{
    int color = group->pending[i].header.parameter, count = 0;
    struct hub_group *part = NULL;
    for (int j = 0; j < group->count; j++) count += group->pending[j].header.parameter == color;
    TT_TRY(group_create(hub, count, &part));
    count = 0;
    for (int j = i; j < group->count; j++)
        if (group->pending[j].header.parameter == color) part->ranks[count++] = group->ranks[j];
    for (int j = i; j < group->count; j++)
        if (group->pending[j].header.parameter == color)
            answer(hub, group, j, TT_WIRE_RESULT, (int)part->id, part->ranks,
                   (size_t)part->count * sizeof *part->ranks);
    return TT_OK;
}

static tt_status run_split(struct tt_hub *hub, struct hub_group *group)
{
    for (int i = 0; i < group->count; i++) {
        int lowest = 0;
        while (group->pending[lowest].header.parameter != group->pending[i].header.parameter) lowest++;
        if (lowest == i) TT_TRY(run_split_of(hub, group, i));
    }
    return TT_OK;
}

static tt_status run_call(struct tt_hub *hub, struct hub_group *group)
{
    TT_TRY(check_orders(group));
    switch ((enum tt_wire_call)group->pending[0].header.call) {
    case TT_WIRE_ALL_GATHER:
        return run_all_gather(hub, group);
    case TT_WIRE_REDUCE_SCATTER:
        return run_sum(hub, group, group->count);
    case TT_WIRE_ALL_REDUCE:
        return run_sum(hub, group, 1);
    case TT_WIRE_BROADCAST:
        return run_broadcast(hub, group);
    case TT_WIRE_SPLIT:
        return run_split(hub, group);
    case TT_WIRE_BARRIER:
    case TT_WIRE_CALL_COUNT:
        break;
    }
    for (int i = 0; i < group->count; i++) answer(hub, group, i, TT_WIRE_RESULT, 0, NULL, 0);
    return TT_OK;
}

void tt_hub_call(struct tt_hub *hub, struct peer *peer)
{
    const struct tt_wire_header *header = &peer->header;
    struct hub_group *group = find_group(hub, header->group);
    int i = group != NULL ? member_of(group, peer->hello.rank) : -1;
    if (i < 0 || group->pending[i].there || group->has_left[i] || header->call >= TT_WIRE_CALL_COUNT) {
        tt_fail(TT_ERR_COMM, "rank %d made a call that no rank makes", peer->hello.rank);
        tt_hub_fail(hub, peer->hello.rank);
        return;
    }
    group->pending[i] = (struct pending){.there = true, .header = *header, .payload = peer->payload};
    peer->payload = NULL;
    group->waiting++;
    if (group->departed >= 0)
        answer_departed(hub, group);
    else if (group->waiting == group->count) {
        tt_status status = run_call(hub, group);
        if (status == TT_ERR_MEMORY) tt_hub_fail(hub, 0); /* some may have their answers already */
        if (status != TT_OK) answer_error(hub, group);
        for (int j = 0; j < group->count; j++) clear_pending(group, j);
    }
}

static void leave_group(struct tt_hub *hub, struct hub_group *group, int i)
{
    if (i < 0 || group->has_left[i]) return;
    group->has_left[i] = true;
    group->leavers++;
    if (group->departed < 0) group->departed = group->ranks[i];
    answer_departed(hub, group);
}

void tt_hub_leave(struct tt_hub *hub, const struct peer *peer, uint32_t id)
{
    struct hub_group **link = &hub->groups;
    while (*link != NULL) {
        struct hub_group *group = *link;
        if (id == UINT32_MAX || group->id == id) leave_group(hub, group, member_of(group, peer->hello.rank));
        if (group->leavers == group->count) {
            *link = group->next;
            group_free(group);
        } else {
            link = &group->next;
        }
    }
}
