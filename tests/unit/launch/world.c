/* The ranks of a process: of several errors the cause is reported before its consequences, whichever rank
 * ended first; ranks that have not started when a stop is requested do not start. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "launch/world.h"

enum { RANKS = 4 };

static void open_world(struct tt_world *world, const struct tt_cancel *cancel)
{
    struct tt_comm *comms[RANKS];
    assert_int_equal(tt_comm_create_threads(RANKS, comms), TT_OK);
    *world =
        (struct tt_world){.local_count = RANKS, .world_size = RANKS, .machine_count = 1, .cancel = cancel};
    world->ranks = tt_calloc(RANKS, sizeof *world->ranks);
    world->pulses = tt_calloc(RANKS, sizeof *world->pulses);
    assert_true(world->ranks != NULL && world->pulses != NULL);
    for (int r = 0; r < RANKS; r++)
        world->ranks[r] =
            (struct tt_world_rank){.comm = comms[r], .device = {.kind = "cpu"}, .pulse = &world->pulses[r]};
}

/* What each rank fails with, and when: rank 0 at once. */
struct outcomes {
    tt_status of[RANKS];
};

static tt_status fail_in_turn(void *context, const struct tt_world_rank *place)
{
    const struct outcomes *outcomes = context;
    int rank = tt_comm_rank(place->comm);
    nanosleep(&(struct timespec){.tv_nsec = 1000000L * 20 * rank}, NULL);
    tt_status status = outcomes->of[rank];
    return status == TT_OK ? TT_OK : tt_fail(status, "rank %d has %s", rank, tt_status_name(status));
}

static void expect(struct outcomes outcomes, tt_status status, const char *message)
{
    struct tt_world world;
    open_world(&world, NULL);
    tt_status got = tt_world_run(&world, fail_in_turn, &outcomes);
    if (got != status || (got != TT_OK && strcmp(tt_error_last()->message, message) != 0))
        fail_msg("%s '%s', not %s '%s'", tt_status_name(got), tt_error_last()->message,
                 tt_status_name(status), message);
    tt_world_close(&world);
}

static void the_cause_is_reported(void **state)
{
    (void)state;
    expect((struct outcomes){{TT_OK, TT_OK, TT_OK, TT_OK}}, TT_OK, "");
    expect((struct outcomes){{TT_ERR_PEER, TT_ERR_PEER, TT_ERR_DATA, TT_ERR_PEER}}, TT_ERR_DATA,
           "rank 2 has DATA");
    expect((struct outcomes){{TT_ERR_DATA, TT_ERR_PEER, TT_ERR_PEER, TT_ERR_COMM}}, TT_ERR_DATA,
           "rank 0 has DATA");
    expect((struct outcomes){{TT_ERR_PEER, TT_ERR_COMM, TT_ERR_PEER, TT_ERR_PEER}}, TT_ERR_COMM,
           "rank 1 has COMM");
    expect((struct outcomes){{TT_ERR_COMM, TT_ERR_PEER, TT_ERR_PEER, TT_ERR_MEMORY}}, TT_ERR_MEMORY,
           "rank 3 has MEMORY");
    expect((struct outcomes){{TT_OK, TT_ERR_PEER, TT_OK, TT_ERR_PEER}}, TT_ERR_PEER, "rank 1 has PEER");
    expect((struct outcomes){{TT_OK, TT_ERR_IO, TT_ERR_DATA, TT_OK}}, TT_ERR_IO, "rank 1 has IO");
}

/* Rank 0 asks for the stop and waits for ranks that then never come. */
static tt_status ask_to_stop(void *context, const struct tt_world_rank *place)
{
    struct tt_cancel *cancel = context;
    atomic_store(&cancel->requests, 1);
    return tt_comm_barrier(place->comm);
}

static void no_more_ranks_start(void **state)
{
    (void)state;
    struct tt_world world;
    struct tt_cancel cancel = {.requests = 1};
    open_world(&world, &cancel);
    assert_int_equal(tt_world_run(&world, ask_to_stop, &cancel), TT_ERR_CANCELLED);
    assert_string_equal(tt_error_last()->message, "stopped on request while rank 1 of 4 started");
    tt_world_close(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_cause_is_reported),
        cmocka_unit_test(no_more_ranks_start),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
