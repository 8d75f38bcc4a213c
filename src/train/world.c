#include "train/world.h"

#include <stdio.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/thread.h"

tt_status tt_world_open(const struct tt_train_config *config, struct tt_world *world)
{
    tt_status status = TT_OK;
    *world = (struct tt_world){0};
    bool mpi = tt_comm_mpi_is_launched();
    int ranks = mpi ? 1 : config->ranks > 0 ? (int)config->ranks : 1;
    if (mpi && config->ranks > 1)
        return tt_fail(TT_ERR_USAGE, "--ranks %lld under mpirun: there each process is one rank",
                       (long long)config->ranks);
    world->comms = tt_calloc((size_t)ranks, sizeof(struct tt_comm *));
    if (world->comms == NULL) return TT_ERR_MEMORY;
    world->local_count = ranks;
    if (mpi)
        TT_GO(tt_comm_create_mpi(&world->comms[0]));
    else if (ranks > 1)
        TT_GO(tt_comm_create_threads(ranks, world->comms));
    else
        TT_GO(tt_comm_create_self(&world->comms[0]));
    world->world_size = tt_comm_world_size(world->comms[0]);
    world->first_rank = tt_comm_rank(world->comms[0]);
    int sharing = mpi ? tt_comm_local_size(world->comms[0]) : ranks;
    int threads = tt_cpu_count() / (sharing > 0 ? sharing : 1);
    world->threads_per_rank = config->threads > 0 ? (int)config->threads : threads > 0 ? threads : 1;
out:
    if (status != TT_OK) tt_world_close(world);
    return status;
}

void tt_world_close(struct tt_world *world)
{
    for (int r = 0; r < world->local_count && world->comms != NULL; r++) tt_comm_destroy(world->comms[r]);
    tt_free(world->comms);
    *world = (struct tt_world){0};
}

struct local_rank {
    tt_rank_main *main;
    void *context;
    struct tt_comm *comm;
    int world_size;
    struct tt_thread *thread;
};

static tt_status run_rank(void *argument)
{
    struct local_rank *rank = argument;
    tt_status status = rank->main(rank->context, rank->comm);
    if (status != TT_OK && status != TT_ERR_CANCELLED) {
        if (rank->world_size > 1 && status != TT_ERR_PEER)
            tt_while("on rank %d of %d", tt_comm_rank(rank->comm), rank->world_size);
        tt_comm_abort(rank->comm);
    }
    return status;
}

/* How much a status explains: the cause before its consequences. */
static int weight(tt_status status)
{
    if (status == TT_OK) return 0;
    if (status == TT_ERR_PEER) return 1;
    if (status == TT_ERR_COMM) return 2;
    return 3;
}

tt_status tt_world_run(struct tt_world *world, tt_rank_main *main, void *context)
{
    struct local_rank *ranks = tt_calloc((size_t)world->local_count, sizeof *ranks);
    if (ranks == NULL) return TT_ERR_MEMORY;
    tt_status worst = TT_OK;
    struct tt_error error = {0};
    int started = 0;
    for (; started < world->local_count; started++) {
        char name[16];
        ranks[started] = (struct local_rank){main, context, world->comms[started], world->world_size, NULL};
        snprintf(name, sizeof name, "rank %d", world->first_rank + started);
        worst = tt_thread_start(name, run_rank, &ranks[started], &ranks[started].thread);
        if (worst != TT_OK) {
            tt_error_copy(&error);
            tt_comm_abort(world->comms[0]);
            break;
        }
    }
    for (int r = 0; r < started; r++) {
        tt_status status = tt_thread_join(ranks[r].thread);
        if (weight(status) <= weight(worst)) continue;
        worst = status;
        tt_error_copy(&error);
    }
    tt_free(ranks);
    return worst == TT_OK ? TT_OK : tt_error_restore(&error);
}
