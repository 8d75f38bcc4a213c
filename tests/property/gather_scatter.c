/* gather(shard(x)) = x and reduce = the sum over ranks in order, bit for bit: random parameter sets in worlds
 * of 1 to 8 under every strategy, with prefetches and releases as a training step makes them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "base/rng.h"
#include "support/ranks.h"
#include "support/shard_world.h"

enum { UNITS = 4, STEPS = 2, GRADIENTS_MAX = UNITS * TEST_PARAMS_MAX * TEST_ELEMENTS_MAX };

struct scenario {
    struct test_how how;
    uint64_t seed;
    int micro_count;
    int prefetch;     /* 0: none, 1: after the wait for the unit before, 2: before it is let go */
    float *gradients; /* when not NULL: what the slices of all ranks say of the first step */
};

struct rank_state {
    const struct scenario *scenario;
    struct test_shard_world world;
    struct test_unit units[UNITS];
};

static tt_status take(struct rank_state *rank, int at)
{
    TT_TRY(tt_unit_gather(rank->units[at].unit));
    TT_TRY(tt_unit_wait(rank->units[at].unit));
    return test_unit_check_lent(&rank->world, &rank->units[at]);
}

/* The unit that is tied (0) is used first and last, as embeddings are. */
static tt_status visit(struct rank_state *rank, int at, int next, int micro, int user, bool backward)
{
    const struct scenario *scenario = rank->scenario;
    struct test_unit *unit = &rank->units[at];
    TT_TRY(take(rank, at));
    if (scenario->prefetch == 1 && next >= 0) TT_TRY(tt_unit_gather(rank->units[next].unit));
    if (backward) {
        TT_TRY(test_unit_add_gradients(&rank->world, unit, micro, user));
        TT_TRY(tt_unit_reduce(unit->unit, micro + 1 == scenario->micro_count));
    }
    if (scenario->prefetch == 2 && next >= 0) TT_TRY(tt_unit_gather(rank->units[next].unit));
    TT_TRY(tt_unit_release(unit->unit, !backward && at == UNITS - 1));
    for (size_t i = 0; i < unit->param_count; i++)
        TEST_RANK_CHECK(tt_tensor_is_empty(unit->params[i].value) &&
                        tt_tensor_is_empty(unit->params[i].grad));
    return TT_OK;
}

static tt_status micro_batch(struct rank_state *rank, int micro)
{
    for (int i = 0; i <= UNITS; i++) {
        int next = i < UNITS ? (i + 1) % UNITS : -1;
        TT_TRY(visit(rank, i % UNITS, next, micro, 0, false));
    }
    if (rank->scenario->how.no_training) return TT_OK;
    for (int i = UNITS; i >= 0; i--)
        TT_TRY(visit(rank, i % UNITS, i - 1, micro, i == UNITS ? 0 : rank->units[i].user_count - 1, true));
    return TT_OK;
}

/* Every rank writes what its slice says; of replicas, which hold the same, the first. */
static void keep_gradients(struct rank_state *rank)
{
    float *to = rank->scenario->gradients;
    if (to == NULL || rank->world.rank >= rank->world.shard_size) return;
    for (int u = 0; u < UNITS; u++) {
        struct test_unit *unit = &rank->units[u];
        struct tt_slices slices = tt_unit_slices(unit->unit);
        for (size_t i = 0; i < unit->param_count; i++) {
            struct tt_piece piece = tt_unit_piece(unit->unit, i);
            if (piece.slice_offset >= 0 && piece.count > 0)
                memcpy(to + piece.first, slices.grad + piece.slice_offset, (size_t)piece.count * sizeof *to);
            to += tt_param_count(piece.param);
        }
    }
}

static tt_status steps(struct rank_state *rank)
{
    const struct scenario *scenario = rank->scenario;
    for (int u = 0; u < UNITS; u++) {
        test_unit_make_params(&rank->units[u], scenario->seed * UNITS + (uint64_t)u);
        TT_TRY(test_unit_create(&rank->world, u == 0 ? "tied" : "unit", u == 0 ? 2 : 1, &rank->units[u]));
        TT_TRY(test_unit_write(&rank->units[u], 0, true));
    }
    TT_TRY(tt_shard_context_seal(rank->world.context, 2));
    tt_device_freeze(rank->world.device, true);
    for (int step = 0; step < STEPS; step++) {
        for (int micro = 0; micro < scenario->micro_count; micro++) TT_TRY(micro_batch(rank, micro));
        if (scenario->how.no_training) continue;
        TT_TRY(tt_shard_context_join(rank->world.context));
        if (step == 0) keep_gradients(rank);
        for (int u = 0; u < UNITS; u++) {
            TT_TRY(test_unit_check_gradients(&rank->world, &rank->units[u], scenario->micro_count));
            TT_TRY(test_unit_write(&rank->units[u], step + 1, false));
            TT_TRY(tt_unit_zero_grad(rank->units[u].unit));
        }
    }
    return TT_OK;
}

static tt_status scenario_rank(struct tt_comm *comm, void *argument)
{
    struct rank_state *rank = tt_calloc(1, sizeof *rank);
    if (rank == NULL) return TT_ERR_MEMORY;
    rank->scenario = argument;
    tt_status status = test_shard_world_open(comm, &rank->scenario->how, &rank->world);
    if (status == TT_OK) status = steps(rank);
    for (int u = 0; u < UNITS; u++) tt_unit_destroy(rank->units[u].unit);
    test_shard_world_close(&rank->world);
    tt_free(rank);
    return status;
}

static const int worlds[] = {1, 2, 3, 4, 8};
enum { WORLD_COUNT = sizeof worlds / sizeof *worlds };

static void random_units(void **state)
{
    (void)state;
    struct tt_rng rng = tt_rng_make(3);
    uint64_t at = 0, live = tt_alloc_live();
    for (int w = 0; w < WORLD_COUNT; w++) {
        for (int strategy = TT_FULL_SHARD; strategy <= TT_HYBRID_SHARD; strategy++) {
            for (int run = 0; run < 12; run++) {
                struct scenario scenario = {
                    .how = {.strategy = (enum tt_shard_strategy)strategy,
                            .compute_dtype = run & 1 ? TT_BF16 : TT_F32,
                            .reduce_dtype = run & 2 ? TT_BF16 : TT_F32,
                            .no_training = run % 6 == 5,
                            .shard_size = worlds[w] % 2 == 0 && run % 3 > 0 ? worlds[w] / 2 : 1},
                    .seed = tt_rng_u64(rng, at++) >> 8,
                    .micro_count = 1 + run % 3,
                    .prefetch = run / 3 % 3,
                };
                if (run % 4 == 3) scenario.how.shard_size = worlds[w];
                test_ranks(worlds[w], scenario_rank, &scenario);
                assert_true(tt_alloc_live() == live);
            }
        }
    }
}

/* With one micro batch every strategy adds the same numbers in the same order. */
static void strategies_give_the_same_bits(void **state)
{
    (void)state;
    float *wanted = tt_calloc(GRADIENTS_MAX, sizeof *wanted), *got = tt_calloc(GRADIENTS_MAX, sizeof *got);
    for (int w = 1; w < WORLD_COUNT; w++) {
        for (int reduce = 0; reduce < 2; reduce++) {
            struct scenario scenario = {
                .how = {TT_NO_SHARD, TT_BF16, reduce ? TT_BF16 : TT_F32, false, worlds[w]},
                .seed = 77 + (uint64_t)w,
                .micro_count = 1,
                .gradients = wanted,
            };
            memset(wanted, 0, GRADIENTS_MAX * sizeof *wanted);
            test_ranks(worlds[w], scenario_rank, &scenario);
            bool any = false;
            for (size_t i = 0; i < GRADIENTS_MAX; i++) any = any || wanted[i] != 0;
            assert_true(any);
            scenario.gradients = got;
            for (int strategy = TT_FULL_SHARD; strategy <= TT_HYBRID_SHARD; strategy++) {
                scenario.how.strategy = (enum tt_shard_strategy)strategy;
                memset(got, 0, GRADIENTS_MAX * sizeof *got);
                test_ranks(worlds[w], scenario_rank, &scenario);
                assert_memory_equal(got, wanted, GRADIENTS_MAX * sizeof *got);
            }
        }
    }
    tt_free(wanted);
    tt_free(got);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_units),
        cmocka_unit_test(strategies_give_the_same_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
