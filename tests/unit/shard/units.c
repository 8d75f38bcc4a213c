/* Units one call at a time: layout, states and misuse, the pool, failing allocations. Mostly rank 0 of 2 on
 * the plan device, where no call waits for rank 1. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "backend/plan/plan.h"
#include "backend/profile.h"
#include "base/alloc.h"
#include "support/ranks.h"
#include "support/shard_world.h"

enum { UNITS = 4 };

struct desk {
    struct tt_comm *comms[2];
    struct tt_device *device;
    struct tt_stream *compute;
    struct tt_shard_context *context;
    tt_param params[UNITS * 2]; /* of each unit one frozen and one trainable */
    struct tt_unit *units[UNITS];
};

static tt_status open_context(struct desk *desk, enum tt_shard_strategy strategy, tt_dtype dtype)
{
    struct tt_shard_config config = {.strategy = strategy,
                                     .device = desk->device,
                                     .compute = desk->compute,
                                     .shard_comm = desk->comms[0],
                                     .replicate_comm = strategy == TT_HYBRID_SHARD ? desk->comms[0] : NULL,
                                     .compute_dtype = dtype,
                                     .reduce_dtype = dtype,
                                     .train = true};
    return tt_shard_context_create(&config, &desk->context);
}

static tt_status open_units(struct desk *desk, int first_users, bool seal)
{
    static const char *const names[UNITS] = {"embed", "layer 0", "layer 1", "head"};
    for (int u = 0; u < UNITS; u++) {
        tt_param *pair[2] = {&desk->params[u * 2], &desk->params[u * 2 + 1]};
        *pair[0] = (tt_param){.name = "frozen", .stored_dtype = TT_BF16, .rank = 2, .dims = {3, 5}};
        *pair[1] = (tt_param){
            .name = "lora", .stored_dtype = TT_F32, .rank = 2, .dims = {20 + u, 2}, .trainable = true};
        TT_TRY(tt_unit_create(desk->context, names[u], pair, 2, u == 0 ? first_users : 1, &desk->units[u]));
    }
    return seal ? tt_shard_context_seal(desk->context, 2) : TT_OK;
}

static void open_desk(struct desk *desk, const char *kind)
{
    memset(desk, 0, sizeof *desk);
    assert_int_equal(tt_comm_create_threads(2, desk->comms), TT_OK);
    assert_int_equal(tt_device_open(&(struct tt_device_config){.kind = kind, .threads = 1}, &desk->device),
                     TT_OK);
    assert_int_equal(tt_stream_create(desk->device, &desk->compute), TT_OK);
}

static void close_units(struct desk *desk)
{
    for (int u = 0; u < UNITS; u++) tt_unit_destroy(desk->units[u]);
    memset(desk->units, 0, sizeof desk->units);
    tt_shard_context_destroy(desk->context);
    desk->context = NULL;
}

static void close_desk(struct desk *desk)
{
    close_units(desk);
    tt_stream_destroy(desk->compute);
    tt_device_close(desk->device);
    tt_comm_destroy(desk->comms[0]);
    tt_comm_destroy(desk->comms[1]);
}

/* A pass brings what it reads: a parameter of another use has no value, and comes with the next gather. */
static void a_pass_gathers_its_own(void **state)
{
    enum { ALWAYS = 1u << TT_USE_ALWAYS, FORWARD = 1u << TT_USE_FORWARD, BACKWARD = 1u << TT_USE_BACKWARD };
    struct desk desk;
    (void)state;
    open_desk(&desk, "plan");
    assert_int_equal(open_context(&desk, TT_FULL_SHARD, TT_BF16), TT_OK);
    tt_param *params[3];
    for (int i = 0; i < 3; i++) {
        params[i] = &desk.params[i];
        *params[i] = (tt_param){.name = "frozen", .stored_dtype = TT_U8, .rank = 1, .dims = {1000 * (i + 1)}};
        params[i]->use = i == 0 ? TT_USE_BACKWARD : i == 1 ? TT_USE_ALWAYS : TT_USE_FORWARD;
    }
    struct tt_unit *unit = NULL;
    assert_int_equal(tt_unit_create(desk.context, "layer", params, 3, 1, &unit), TT_OK);
    assert_int_equal(tt_shard_context_seal(desk.context, 1), TT_OK);
    assert_int_equal(tt_unit_frozen_bytes(unit), 6000);
    tt_unit_set_uses(unit, ALWAYS | FORWARD);
    assert_int_equal(tt_unit_gather(unit), TT_OK);
    assert_int_equal(tt_unit_wait(unit), TT_OK);
    assert_true(tt_tensor_is_empty(params[0]->value));
    assert_false(tt_tensor_is_empty(params[1]->value) || tt_tensor_is_empty(params[2]->value));
    char *always = params[1]->value.data;
    tt_unit_set_uses(unit, ALWAYS | BACKWARD); /* held: without effect */
    assert_int_equal(tt_unit_release(unit, true), TT_OK);
    assert_true(tt_tensor_is_empty(params[2]->value));
    tt_unit_set_uses(unit, ALWAYS | BACKWARD);
    assert_int_equal(tt_unit_gather(unit), TT_OK);
    assert_int_equal(tt_unit_wait(unit), TT_OK);
    assert_ptr_equal(params[1]->value.data, always);
    assert_true(tt_tensor_is_empty(params[2]->value));
    assert_false(tt_tensor_is_empty(params[0]->value));
    /* Each use is padded to the alignment of all ranks and split by itself: 2048, then 3072 bytes, then 1024. */
    assert_int_equal((char *)params[0]->value.data - always, 2048 + 3072);
    struct tt_piece piece = tt_unit_piece(unit, 2); /* the forward one's half of rank 0 */
    assert_int_equal(piece.count, 3072 / 2);
    assert_int_equal(tt_unit_release(unit, false), TT_OK);
    tt_unit_destroy(unit);
    close_desk(&desk);
}

static void open_all(struct desk *desk, enum tt_shard_strategy strategy, int first_users)
{
    open_desk(desk, "plan");
    assert_int_equal(open_context(desk, strategy, TT_BF16), TT_OK);
    assert_int_equal(open_units(desk, first_users, true), TT_OK);
}

static void is_misuse(tt_status status, const char *text)
{
    assert_int_equal(status, TT_ERR_INTERNAL);
    if (strstr(tt_error_last()->message, text) == NULL)
        fail_msg("'%s' is not in '%s'", text, tt_error_last()->message);
}

static void take(struct tt_unit *unit)
{
    assert_int_equal(tt_unit_gather(unit), TT_OK);
    assert_int_equal(tt_unit_wait(unit), TT_OK);
}

static void calls_out_of_order(void **state)
{
    (void)state;
    static const enum tt_shard_strategy strategies[] = {TT_FULL_SHARD, TT_SHARD_GRAD_OP, TT_NO_SHARD};
    for (size_t s = 0; s < sizeof strategies / sizeof *strategies; s++) {
        struct desk desk;
        open_all(&desk, strategies[s], 1);
        struct tt_unit *unit = desk.units[1];
        is_misuse(tt_unit_wait(unit), "wait of unit 'layer 0', which is not prefetched and has 0 holders");
        is_misuse(tt_unit_release(unit, false), "release of unit 'layer 0'");
        is_misuse(tt_unit_reduce(unit, true), "reduce of unit 'layer 0'");
        assert_int_equal(tt_unit_gather(unit), TT_OK);
        assert_int_equal(tt_unit_gather(unit), TT_OK); /* changes nothing */
        is_misuse(tt_unit_release(unit, false), "'layer 0', which is prefetched");
        is_misuse(tt_unit_reduce(unit, true), "'layer 0'");
        assert_int_equal(tt_unit_masters_changed(unit), TT_OK);
        assert_int_equal(tt_unit_wait(unit), TT_OK);
        assert_int_equal(tt_unit_wait(unit), TT_OK); /* a second user */
        is_misuse(tt_unit_masters_changed(unit), "'layer 0', which is not prefetched and has 2 holders");
        is_misuse(tt_unit_frozen_changed(unit), "'layer 0'");
        assert_int_equal(tt_unit_release(unit, false), TT_OK);
        assert_false(tt_tensor_is_empty(desk.params[2].value));
        assert_int_equal(tt_unit_gather(unit), TT_OK); /* again, before the last lets go */
        assert_int_equal(tt_unit_release(unit, false), TT_OK);
        assert_true(tt_tensor_is_empty(desk.params[2].value) && tt_tensor_is_empty(desk.params[3].grad));
        assert_int_equal(tt_unit_wait(unit), TT_OK);
        assert_int_equal(tt_unit_release(unit, false), TT_OK);
        is_misuse(tt_unit_release(unit, false), "'layer 0', which is not prefetched and has 0 holders");
        is_misuse(tt_shard_context_seal(desk.context, 2), "a second time");
        tt_param *param = &desk.params[0];
        struct tt_unit *late = NULL;
        is_misuse(tt_unit_create(desk.context, "late", &param, 1, 1, &late), "'late'");
        assert_null(late);
        close_desk(&desk);
    }
}

static void before_the_seal(void **state)
{
    (void)state;
    struct desk desk;
    open_desk(&desk, "plan");
    is_misuse(open_context(&desk, TT_FULL_SHARD, TT_F32) == TT_OK ? tt_shard_context_seal(desk.context, 0)
                                                                  : TT_OK,
              "no gather at all");
    assert_int_equal(open_units(&desk, 1, false), TT_OK);
    is_misuse(tt_unit_gather(desk.units[3]), "'head'");
    tt_param *param = &desk.params[0];
    struct tt_unit *unit = NULL;
    is_misuse(tt_unit_create(desk.context, "unused", &param, 1, 0, &unit), "'unused'");
    close_desk(&desk);
}

static void contexts_that_cannot_be(void **state)
{
    (void)state;
    struct desk desk;
    open_desk(&desk, "plan");
    assert_int_equal(open_context(&desk, TT_FULL_SHARD, TT_F16), TT_ERR_UNSUPPORTED);
    struct tt_shard_config config = {.strategy = TT_HYBRID_SHARD,
                                     .device = desk.device,
                                     .compute = desk.compute,
                                     .shard_comm = desk.comms[0],
                                     .compute_dtype = TT_F32,
                                     .reduce_dtype = TT_F32};
    is_misuse(tt_shard_context_create(&config, &desk.context), "HYBRID_SHARD needs");
    config.strategy = TT_FULL_SHARD;
    config.replicate_comm = desk.comms[0];
    is_misuse(tt_shard_context_create(&config, &desk.context),
              "FULL_SHARD does not take a communicator of replicas");
    assert_null(desk.context);
    close_desk(&desk);
}

static void parameters_that_cannot_be(void **state)
{
    (void)state;
    struct desk desk;
    open_desk(&desk, "plan");
    assert_int_equal(open_context(&desk, TT_FULL_SHARD, TT_F32), TT_OK);
    tt_param huge = {.name = "huge", .stored_dtype = TT_F64, .rank = 2, .dims = {INT64_C(1) << 31, 1 << 30}};
    tt_param negative = {.name = "negative", .stored_dtype = TT_F32, .rank = 1, .dims = {-1}};
    tt_param untyped = {.name = "untyped", .rank = 1, .dims = {4}};
    tt_param deep = {.name = "deep", .stored_dtype = TT_F32, .rank = TT_RANK_MAX + 1};
    tt_param *all[] = {&huge, &negative, &untyped, &deep};
    uint64_t live = tt_alloc_live();
    for (int i = 0; i < 4; i++) {
        struct tt_unit *unit = NULL;
        assert_int_equal(tt_unit_create(desk.context, "bad", &all[i], 1, 1, &unit),
                         i < 2 ? TT_ERR_MEMORY : TT_ERR_INTERNAL);
        assert_non_null(strstr(tt_error_last()->message, all[i]->name));
        assert_string_equal(tt_error_last()->context[0], "creating unit 'bad'");
        assert_null(unit);
        huge.trainable = true;
    }
    assert_true(tt_alloc_live() == live);
    close_desk(&desk);
}

/* Two buffers: a third unit finds none, and the error names it and who holds them. */
static void the_pool_ends(void **state)
{
    (void)state;
    struct desk desk;
    open_all(&desk, TT_FULL_SHARD, 2);
    take(desk.units[0]);
    assert_int_equal(tt_unit_gather(desk.units[1]), TT_OK);
    is_misuse(tt_unit_gather(desk.units[2]), "no gather buffer is free for unit 'layer 1'");
    assert_non_null(strstr(tt_error_last()->message, "'embed'"));
    assert_non_null(strstr(tt_error_last()->message, "'layer 0'"));
    is_misuse(tt_unit_wait(desk.units[2]), "'layer 1'");
    assert_int_equal(tt_unit_wait(desk.units[1]), TT_OK);
    assert_int_equal(tt_unit_release(desk.units[0], false), TT_OK);
    assert_int_equal(tt_unit_gather(desk.units[2]), TT_OK);
    assert_int_equal(tt_unit_wait(desk.units[2]), TT_OK); /* as if nothing had been */
    assert_int_equal(tt_unit_reduce(desk.units[2], true), TT_OK);
    assert_int_equal(tt_unit_release(desk.units[2], false), TT_OK);
    assert_int_equal(tt_unit_release(desk.units[1], false), TT_OK);
    close_desk(&desk);
}

/* With one buffer the values of a unit make room for another's, while its gradients are still to be summed.
 */
static void values_make_room(void **state)
{
    (void)state;
    struct desk desk;
    open_desk(&desk, "plan");
    assert_int_equal(open_context(&desk, TT_FULL_SHARD, TT_BF16), TT_OK);
    assert_int_equal(open_units(&desk, 1, false), TT_OK);
    assert_int_equal(tt_shard_context_seal(desk.context, 1), TT_OK);
    is_misuse(tt_unit_release_values(desk.units[1]), "release of the values of unit 'layer 0'");
    take(desk.units[1]);
    is_misuse(tt_unit_gather(desk.units[0]), "no gather buffer is free for unit 'embed'");
    take(desk.units[1]); /* a second holder: the first does not take its values */
    assert_int_equal(tt_unit_release_values(desk.units[1]), TT_OK);
    assert_false(tt_tensor_is_empty(desk.params[2].value));
    assert_int_equal(tt_unit_release(desk.units[1], false), TT_OK);
    assert_int_equal(tt_unit_release_values(desk.units[1]), TT_OK);
    assert_true(tt_tensor_is_empty(desk.params[2].value) && tt_tensor_is_empty(desk.params[3].value));
    assert_false(tt_tensor_is_empty(desk.params[3].grad));
    assert_int_equal(tt_unit_gather(desk.units[0]), TT_OK);
    assert_int_equal(tt_unit_reduce(desk.units[1], true), TT_OK);
    assert_int_equal(tt_unit_gather(desk.units[1]), TT_OK);
    is_misuse(tt_unit_wait(desk.units[1]), "'layer 0', which is prefetched and has 1 holders");
    close_desk(&desk);
}

/* What is gathered into the memory of released values arrives after their last reader: the clocks of a device
 * with streams say so. */
static void room_is_made_by_the_last_reader(void **state)
{
    (void)state;
    struct desk desk = {0};
    assert_int_equal(tt_comm_create_threads(2, desk.comms), TT_OK);
    assert_int_equal(
        tt_device_open(&(struct tt_device_config){.kind = "plan", .stands_for = "h200"}, &desk.device),
        TT_OK);
    assert_int_equal(tt_stream_create(desk.device, &desk.compute), TT_OK);
    assert_int_equal(open_context(&desk, TT_FULL_SHARD, TT_BF16), TT_OK);
    assert_int_equal(open_units(&desk, 1, false), TT_OK);
    assert_int_equal(tt_shard_context_seal(desk.context, 1), TT_OK);
    take(desk.units[1]);
    double begin = tt_plan_seconds(desk.device);
    /* A long reader. */
    assert_int_equal(tt_fill_zero(desk.compute, desk.params[3].grad.data, (size_t)1 << 30), TT_OK);
    double read_end = tt_plan_seconds(desk.device);
    assert_true(read_end > begin);
    assert_int_equal(tt_unit_release_values(desk.units[1]), TT_OK);
    assert_int_equal(tt_unit_gather(desk.units[0]), TT_OK);
    assert_true(tt_plan_seconds(desk.device) > read_end);
    close_desk(&desk);
}

/* Two buffers for full gradients, however many units are gathered. */
static void gradient_buffers_end(void **state)
{
    (void)state;
    struct desk desk;
    open_desk(&desk, "plan");
    assert_int_equal(open_context(&desk, TT_FULL_SHARD, TT_BF16), TT_OK);
    assert_int_equal(open_units(&desk, 1, false), TT_OK);
    assert_int_equal(tt_shard_context_seal(desk.context, 3), TT_OK);
    take(desk.units[0]);
    take(desk.units[1]);
    assert_int_equal(tt_unit_gather(desk.units[2]), TT_OK);
    is_misuse(tt_unit_wait(desk.units[2]), "no gradient buffer is free for unit 'layer 1'");
    assert_int_equal(tt_unit_release(desk.units[0], false), TT_OK);
    assert_int_equal(tt_unit_wait(desk.units[2]), TT_OK);
    assert_int_equal(tt_unit_reduce(desk.units[2], true), TT_OK);
    assert_int_equal(tt_unit_release(desk.units[2], false), TT_OK);
    assert_int_equal(tt_unit_release(desk.units[1], false), TT_OK);
    close_desk(&desk);
}

static void layout(void **state)
{
    (void)state;
    struct desk desk;
    open_all(&desk, TT_FULL_SHARD, 1);
    struct tt_unit *unit = desk.units[0];
    assert_true(tt_unit_frozen_bytes(unit) == 30); /* 3 x 5 of 2 bytes */
    assert_true(tt_unit_trainable_count(unit) == 40);
    struct tt_slices slices = tt_unit_slices(unit);
    assert_true(slices.count == 32); /* 40 padded to 2 x 16 x k elements, split by two */
    struct tt_piece frozen = tt_unit_piece(unit, 0), lora = tt_unit_piece(unit, 1);
    assert_true(frozen.slice_offset == -1 && frozen.count == 15 && frozen.dtype == TT_BF16);
    assert_true(lora.first == 0 && lora.count == 32 && lora.slice_offset == 0 && lora.dtype == TT_F32);
    assert_ptr_equal(lora.data, slices.master);
    assert_true(tt_unit_run_count(unit) == 1 && tt_unit_run(unit, 0).count == 32);
    assert_string_equal(tt_shard_strategy_name(TT_SHARD_GRAD_OP), "SHARD_GRAD_OP");
    assert_string_equal(tt_shard_strategy_name((enum tt_shard_strategy)9), "UNKNOWN");
    struct tt_memory_use use;
    tt_device_memory(desk.device, &use);
    tt_device_freeze(desk.device, true);
    tt_device_profile(desk.device, true);
    for (int u = 0; u < UNITS; u++) {
        take(desk.units[u]);
        assert_int_equal(tt_unit_reduce(desk.units[u], true), TT_OK);
        assert_int_equal(tt_unit_release(desk.units[u], true), TT_OK);
        assert_int_equal(tt_unit_zero_grad(desk.units[u]), TT_OK);
    }
    size_t before = use.total_current;
    tt_device_memory(desk.device, &use);
    assert_true(use.total_current == before && use.total_peak == before && before > 0);
    const struct tt_op_time *spans = tt_device_op_times(desk.device);
    assert_true(spans[TT_SPAN_GATHER].calls > 0 && spans[TT_SPAN_GATHER].seconds > 0);
    assert_true(spans[TT_SPAN_REDUCE].calls > 0 && spans[TT_SPAN_REDUCE].seconds > 0);
    assert_true(spans[TT_SPAN_GATHER_WAIT].calls > 0);
    tt_device_profile(desk.device, true);
    assert_true(tt_device_op_times(desk.device)[TT_SPAN_GATHER].calls == 0);
    close_desk(&desk);
    tt_unit_destroy(NULL);
    tt_shard_context_destroy(NULL);
}

/* Units may go in any order and while they are held; their parameters then lend nothing. */
static void destroyed_while_held(void **state)
{
    (void)state;
    struct desk desk;
    open_all(&desk, TT_FULL_SHARD, 1);
    take(desk.units[2]);
    tt_unit_destroy(desk.units[2]);
    desk.units[2] = NULL;
    assert_true(tt_tensor_is_empty(desk.params[4].value) && tt_tensor_is_empty(desk.params[5].grad));
    take(desk.units[1]);
    assert_int_equal(tt_unit_gather(desk.units[3]), TT_OK);
    close_desk(&desk);
}

static void failing_allocations(void **state)
{
    (void)state;
    static const char *const kinds[] = {"plan", "cpu"};
    for (int k = 0; k < 8; k++) {
        struct desk desk;
        open_desk(&desk, kinds[k / 4]);
        tt_status status = TT_ERR_MEMORY;
        for (uint64_t nth = 1; status != TT_OK; nth++) {
            uint64_t live = tt_alloc_live();
            struct tt_memory_use use;
            tt_alloc_fail_at(nth);
            status = open_context(&desk, (enum tt_shard_strategy)(k % 4), TT_BF16);
            if (status == TT_OK) status = open_units(&desk, 2, true);
            tt_alloc_fail_at(0);
            assert_true(status == TT_OK || status == TT_ERR_MEMORY);
            assert_true(nth < 1000);
            close_units(&desk);
            tt_device_memory(desk.device, &use);
            assert_true(tt_alloc_live() == live && use.total_current == use.current[TT_PURPOSE_SCRATCH]);
        }
        close_desk(&desk);
    }
}

/* How often values are sent is seen by a rank that lies: what it changes without saying so is not sent again.
 */
static tt_status kept_rank(struct tt_comm *comm, void *argument)
{
    struct test_shard_world world;
    enum { COUNT = 64 };
    tt_param param = {.name = "w", .stored_dtype = TT_F32, .rank = 1, .dims = {COUNT}};
    tt_param *params[1] = {&param};
    struct tt_unit *unit = NULL;
    float seen[3];
    struct test_how how = {*(enum tt_shard_strategy *)argument, TT_F32, TT_F32, false, 0};
    TT_TRY(test_shard_world_open(comm, &how, &world));
    TT_TRY(tt_unit_create(world.context, "w", params, 1, 1, &unit));
    TT_TRY(tt_shard_context_seal(world.context, 1));
    struct tt_piece piece = tt_unit_piece(unit, 0);
    for (int pass = 0; pass < 3; pass++) {
        for (int64_t i = 0; i < piece.count; i++) ((float *)piece.data)[i] = (float)(pass + 1);
        if (pass == 2) TT_TRY(tt_unit_frozen_changed(unit));
        TT_TRY(tt_unit_gather(unit));
        TT_TRY(tt_unit_wait(unit));
        seen[pass] = ((float *)param.value.data)[COUNT - 1];
        TT_TRY(tt_unit_release(unit, true));
    }
    tt_unit_destroy(unit);
    test_shard_world_close(&world);
    TEST_RANK_CHECK(seen[0] == 1 && seen[1] == 1 && seen[2] == 3);
    return TT_OK;
}

static void values_are_sent_once(void **state)
{
    (void)state;
    test_ranks(2, kept_rank, &(enum tt_shard_strategy){TT_FULL_SHARD});
    test_ranks(3, kept_rank, &(enum tt_shard_strategy){TT_SHARD_GRAD_OP});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pass_gathers_its_own),    cmocka_unit_test(calls_out_of_order),
        cmocka_unit_test(before_the_seal),           cmocka_unit_test(contexts_that_cannot_be),
        cmocka_unit_test(parameters_that_cannot_be), cmocka_unit_test(the_pool_ends),
        cmocka_unit_test(values_make_room),          cmocka_unit_test(room_is_made_by_the_last_reader),
        cmocka_unit_test(gradient_buffers_end),      cmocka_unit_test(layout),
        cmocka_unit_test(destroyed_while_held),      cmocka_unit_test(failing_allocations),
        cmocka_unit_test(values_are_sent_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
