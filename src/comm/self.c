/* One rank, whose collectives comm.c completes without a transport; and the one rank of a plan with others that do not
 * exist, where comm.c exchanges nothing, since the data is on a plan device. */
#include "base/alloc.h"
#include "comm/comm_impl.h"

static tt_status self_poll(struct tt_comm *comm)
{
    (void)comm; /* no other rank can fail */
    return TT_OK;
}

static tt_status self_split(struct tt_comm *comm, int color, struct tt_comm **out)
{
    (void)comm;
    (void)color;
    return tt_comm_create_self(out);
}

/* No other rank waits. */
static void self_abort(struct tt_comm *comm)
{
    (void)comm;
}

static void self_destroy(struct tt_comm *comm)
{
    tt_free(comm);
}

static const struct tt_comm_table self_table = {
    .kind = "self",
    .poll = self_poll,
    .split = self_split,
    .abort = self_abort,
    .destroy = self_destroy,
};

tt_status tt_comm_create_planned(int world_size, int local_size, struct tt_comm **out)
{
    struct tt_comm *comm = tt_calloc(1, sizeof *comm);
    if (comm == NULL) return TT_ERR_MEMORY;
    *comm =
        (struct tt_comm){.table = &self_table, .rank = 0, .world_size = world_size, .local_size = local_size};
    *out = comm;
    return TT_OK;
}

tt_status tt_comm_create_self(struct tt_comm **out)
{
    return tt_comm_create_planned(1, 1, out);
}
