/* Ranks are threads of one process. In a collective each rank publishes the address of its data, waits until all have
 * done so (enter), copies its part directly between the ranks' memories, and waits until all have finished (leave).
 *
 * No rank hangs and none reads freed memory, whenever a rank fails: a wait in `enter` ends with an error as soon as a
 * rank aborts or destroys its communicator, and the decision is made under one mutex, so either all ranks pass or none
 * does. Between enter and leave a rank only computes, so a wait in `leave` always ends. No rank returns to its caller,
 * which may free the data, before that.
 */
#include <pthread.h>

#include "base/alloc.h"
#include "comm/comm_impl.h"

/* The current call of a rank. */
struct order {
    struct tt_comm_order same;
    const struct tt_comm_exchange *exchange; /* NULL: a split, with the next members */
    int color, first_rank;
};

/* All groups that were split from one: they fail together. */
struct domain {
    pthread_mutex_t mutex; /* guards everything below and all groups' counters */
    struct group *groups;
    bool aborted;
    int aborting_rank; /* in the first group */
    struct tt_error cause;
};

struct group {
    struct domain *domain;
    struct group *next;
    pthread_cond_t changed;
    int world_size;
    int members;  /* communicators not yet destroyed */
    int departed; /* rank that left, or -1 */
    int entered, left;
    uint64_t entries, leaves;   /* number of times that all ranks entered, and left */
    struct order *orders;       /* [world_size] */
    struct threads_comm **made; /* [world_size]: the new communicator of each rank after a split */
};

struct threads_comm {
    struct tt_comm base;
    struct group *group;
    int first_rank; /* in the first group, for messages */
    const void **sources;
};

static void wake_all(struct domain *domain)
{
    for (struct group *group = domain->groups; group != NULL; group = group->next)
        pthread_cond_broadcast(&group->changed);
}

/* Waits until all ranks have entered; returns whether they did. */
static bool enter_locked(struct group *group)
{
    const struct domain *domain = group->domain;
    if (domain->aborted || group->departed >= 0) return false;
    uint64_t before = group->entries;
    if (++group->entered == group->world_size) {
        group->entered = 0;
        group->entries++;
        pthread_cond_broadcast(&group->changed);
        return true;
    }
    while (group->entries == before && !domain->aborted && group->departed < 0)
        pthread_cond_wait(&group->changed, &group->domain->mutex);
    return group->entries != before;
}

static void leave(struct threads_comm *comm)
{
    struct group *group = comm->group;
    pthread_mutex_lock(&group->domain->mutex);
    uint64_t before = group->leaves;
    if (++group->left == group->world_size) {
        group->left = 0;
        group->leaves++;
        pthread_cond_broadcast(&group->changed);
    } else {
        while (group->leaves == before) pthread_cond_wait(&group->changed, &group->domain->mutex);
    }
    pthread_mutex_unlock(&group->domain->mutex);
}

static tt_status check_orders(const struct threads_comm *comm)
{
    const struct order *orders = comm->group->orders;
    for (int q = 1; q < comm->base.world_size; q++)
        TT_TRY(tt_comm_check_order(&orders[0].same, &orders[q].same, q));
    return TT_OK;
}

/* Every rank has published an equal order on TT_OK, and `leave` must follow; otherwise it must not. */
static tt_status enter(struct threads_comm *comm, const struct order *order)
{
    struct group *group = comm->group;
    struct domain *domain = group->domain;
    struct tt_error cause = {0};
    int stopped = 0;
    pthread_mutex_lock(&domain->mutex);
    group->orders[comm->base.rank] = *order;
    bool together = enter_locked(group);
    if (!together) {
        cause = domain->cause;
        stopped = domain->aborted ? domain->aborting_rank : group->departed;
    }
    pthread_mutex_unlock(&domain->mutex);
    if (!together) return tt_comm_fail_peer(stopped, &cause);
    tt_status status = check_orders(comm);
    if (status != TT_OK) leave(comm);
    return status;
}

static struct threads_comm *threads_of(struct tt_comm *comm)
{
    return (struct threads_comm *)comm;
}

/* Begins with the rank itself, so that ranks do not all read the same memory at the same time. */
static tt_status copy_parts(struct threads_comm *comm, const struct tt_comm_exchange *exchange)
{
    int world_size = comm->base.world_size, rank = comm->base.rank;
    for (int step = 1; step < world_size; step++) {
        int q = (rank + step) % world_size;
        const struct tt_comm_part *theirs = &comm->group->orders[q].exchange->parts[rank];
        TT_TRY(tt_comm_check_sizes(rank, &exchange->parts[q], theirs, q));
        if (theirs->send_bytes > 0) memcpy(exchange->parts[q].recv, theirs->send, theirs->send_bytes);
    }
    return TT_OK;
}

static tt_status threads_exchange(struct tt_comm *base, const struct tt_comm_exchange *exchange)
{
    struct threads_comm *comm = threads_of(base);
    TT_TRY(enter(comm, &(struct order){.same = exchange->order, .exchange = exchange}));
    tt_status status = TT_OK;
    if (exchange->consume == NULL) {
        status = copy_parts(comm, exchange);
    } else if (exchange->parts[base->rank].recv_bytes > 0) {
        for (int q = 0; q < base->world_size; q++)
            comm->sources[q] = comm->group->orders[q].exchange->parts[base->rank].send;
        exchange->consume(exchange->context, comm->sources, 0, exchange->parts[base->rank].recv_bytes);
    }
    leave(comm);
    return status;
}

static tt_status threads_poll(struct tt_comm *base)
{
    struct domain *domain = threads_of(base)->group->domain;
    struct tt_error cause = {0};
    int stopped = 0;
    pthread_mutex_lock(&domain->mutex);
    bool aborted = domain->aborted;
    if (aborted) {
        cause = domain->cause;
        stopped = domain->aborting_rank;
    }
    pthread_mutex_unlock(&domain->mutex);
    return aborted ? tt_comm_fail_peer(stopped, &cause) : TT_OK;
}

static void threads_abort(struct tt_comm *base)
{
    struct threads_comm *comm = threads_of(base);
    struct domain *domain = comm->group->domain;
    pthread_mutex_lock(&domain->mutex);
    if (!domain->aborted) {
        domain->aborted = true;
        domain->aborting_rank = comm->first_rank;
        tt_error_copy(&domain->cause);
        wake_all(domain);
    }
    pthread_mutex_unlock(&domain->mutex);
}

static void comm_free(struct threads_comm *comm)
{
    tt_comm_deinit_parts(&comm->base);
    tt_free(comm->sources);
    tt_free(comm);
}

static void group_free(struct group *group)
{
    if (group == NULL) return;
    pthread_cond_destroy(&group->changed);
    tt_free(group->orders);
    tt_free(group->made);
    tt_free(group);
}

static void domain_free(struct domain *domain)
{
    pthread_mutex_destroy(&domain->mutex);
    tt_free(domain);
}

static void threads_destroy(struct tt_comm *base)
{
    struct threads_comm *comm = threads_of(base);
    struct group *group = comm->group;
    struct domain *domain = group->domain;
    pthread_mutex_lock(&domain->mutex);
    bool group_empty = --group->members == 0;
    if (group->departed < 0) group->departed = comm->first_rank;
    pthread_cond_broadcast(&group->changed);
    if (group_empty) {
        struct group **link = &domain->groups;
        while (*link != group) link = &(*link)->next;
        *link = group->next;
    }
    bool domain_empty = domain->groups == NULL;
    pthread_mutex_unlock(&domain->mutex);
    if (group_empty) group_free(group);
    if (domain_empty) domain_free(domain);
    comm_free(comm);
}

static tt_status threads_split(struct tt_comm *base, int color, struct tt_comm **out);

static const struct tt_comm_table threads_table = {
    .kind = "threads",
    .exchange = threads_exchange,
    .poll = threads_poll,
    .split = threads_split,
    .abort = threads_abort,
    .destroy = threads_destroy,
};

static struct threads_comm *comm_create(struct group *group, int rank, int first_rank)
{
    struct threads_comm *comm = tt_calloc(1, sizeof *comm);
    if (comm == NULL) return NULL;
    comm->base = (struct tt_comm){.table = &threads_table,
                                  .rank = rank,
                                  .world_size = group->world_size,
                                  .local_size = group->world_size};
    comm->group = group;
    comm->first_rank = first_rank;
    comm->sources = tt_calloc((size_t)group->world_size, sizeof *comm->sources);
    if (comm->sources != NULL && tt_comm_init_parts(&comm->base) == TT_OK) return comm;
    comm_free(comm);
    return NULL;
}

/* Creates a group of `world_size` with its communicators in comms[], not yet in the domain's list. Rank r is
 * first_ranks[r] of the first group; r if that is NULL. */
static tt_status group_create(struct domain *domain, int world_size, const int *first_ranks,
                              struct threads_comm **comms, struct group **out)
{
    struct group *group = tt_calloc(1, sizeof *group);
    if (group == NULL) return TT_ERR_MEMORY;
    pthread_cond_init(&group->changed, NULL);
    group->domain = domain;
    group->world_size = group->members = world_size;
    group->departed = -1;
    group->orders = tt_calloc((size_t)world_size, sizeof *group->orders);
    group->made = tt_calloc((size_t)world_size, sizeof *group->made);
    bool complete = group->orders != NULL && group->made != NULL;
    int count = 0;
    for (; complete && count < world_size; count++) {
        comms[count] = comm_create(group, count, first_ranks != NULL ? first_ranks[count] : count);
        if (comms[count] == NULL) break;
    }
    if (complete && count == world_size) {
        *out = group;
        return TT_OK;
    }
    while (count-- > 0) {
        comm_free(comms[count]);
        comms[count] = NULL;
    }
    group_free(group);
    return TT_ERR_MEMORY;
}

/* The lowest rank of a color builds the group for all of that color. */
static tt_status split_build(struct threads_comm *comm, int color)
{
    struct group *parent = comm->group;
    struct threads_comm **comms = tt_calloc((size_t)parent->world_size, sizeof *comms);
    int *members = tt_calloc((size_t)parent->world_size * 2, sizeof *members);
    int *first_ranks = members != NULL ? members + parent->world_size : NULL;
    struct group *group = NULL;
    int count = 0;
    tt_status status = comms != NULL && members != NULL ? TT_OK : TT_ERR_MEMORY;
    for (int q = 0; status == TT_OK && q < parent->world_size; q++) {
        if (parent->orders[q].color != color) continue;
        members[count] = q;
        first_ranks[count++] = parent->orders[q].first_rank;
    }
    if (status == TT_OK) status = group_create(parent->domain, count, first_ranks, comms, &group);
    if (status == TT_OK) {
        for (int i = 0; i < count; i++) parent->made[members[i]] = comms[i];
        pthread_mutex_lock(&parent->domain->mutex);
        group->next = parent->domain->groups;
        parent->domain->groups = group;
        pthread_mutex_unlock(&parent->domain->mutex);
    }
    tt_free(comms);
    tt_free(members);
    return status;
}

static tt_status threads_split(struct tt_comm *base, int color, struct tt_comm **out)
{
    struct threads_comm *comm = threads_of(base);
    struct group *group = comm->group;
    tt_status status = TT_OK;
    TT_TRY(enter(comm, &(struct order){
                           .same = {.call = TT_CALL_SPLIT}, .color = color, .first_rank = comm->first_rank}));
    int lowest = 0;
    while (group->orders[lowest].color != color) lowest++;
    if (lowest == base->rank) status = split_build(comm, color);
    leave(comm);
    if (status != TT_OK) return status;
    struct threads_comm *made = group->made[base->rank];
    group->made[base->rank] = NULL;
    if (made == NULL)
        return tt_fail(TT_ERR_MEMORY, "rank %d ran out of memory while splitting the communicator", lowest);
    *out = &made->base;
    return TT_OK;
}

tt_status tt_comm_create_threads(int world_size, struct tt_comm **out)
{
    if (world_size < 1) return tt_fail(TT_ERR_USAGE, "cannot create a group of %d ranks", world_size);
    struct threads_comm **comms = tt_calloc((size_t)world_size, sizeof *comms);
    struct domain *domain = tt_calloc(1, sizeof *domain);
    tt_status status = comms != NULL && domain != NULL ? TT_OK : TT_ERR_MEMORY;
    if (domain != NULL) pthread_mutex_init(&domain->mutex, NULL);
    if (status == TT_OK) status = group_create(domain, world_size, NULL, comms, &domain->groups);
    if (status == TT_OK) {
        for (int rank = 0; rank < world_size; rank++) out[rank] = &comms[rank]->base;
    } else if (domain != NULL) {
        domain_free(domain);
    }
    tt_free(comms);
    return status;
}
