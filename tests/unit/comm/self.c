/* The communicator of one rank, and what all kinds check before they move a byte. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "comm/comm_impl.h"
#include "support/comm_calls.h"
#include "support/ranks.h"

static struct tt_comm *create(void)
{
    struct tt_comm *comm = NULL;
    assert_int_equal(tt_comm_create_self(&comm), TT_OK);
    return comm;
}

static void every_call_gives_back_its_own(void **state)
{
    (void)state;
    uint64_t digest;
    struct tt_comm *comm = create(), *part = NULL;
    assert_string_equal(tt_comm_kind(comm), "self");
    assert_int_equal(tt_comm_rank(comm), 0);
    assert_int_equal(tt_comm_world_size(comm), 1);
    assert_int_equal(tt_comm_local_size(comm), 1);
    if (test_comm_calls(comm, 1, &digest) != TT_OK) fail_msg("%s", tt_error_last()->message);
    assert_int_equal(tt_comm_split(comm, 7, &part), TT_OK);
    tt_comm_destroy(comm);
    if (test_comm_calls(part, 2, &digest) != TT_OK) fail_msg("%s", tt_error_last()->message);
    tt_comm_destroy(part);
    tt_comm_destroy(NULL);
    tt_comm_abort(NULL);
}

static void agreeing_with_itself(void **state)
{
    (void)state;
    struct tt_comm *comm = create();
    tt_error_clear();
    assert_int_equal(tt_comm_agree(comm, TT_OK), TT_OK);
    tt_fail(TT_ERR_IO, "the disk is gone");
    tt_while("saving");
    tt_hint("buy one");
    assert_int_equal(tt_comm_agree(comm, TT_ERR_IO), TT_ERR_IO);
    assert_string_equal(tt_error_last()->message, "the disk is gone");
    assert_string_equal(tt_error_last()->context[0], "saving");
    assert_string_equal(tt_error_last()->hint, "buy one");
    tt_comm_abort(comm);
    tt_comm_destroy(comm);
}

static void bad_arguments(void **state)
{
    (void)state;
    struct tt_comm *comm = create();
    struct tt_device *device = NULL;
    struct tt_stream *stream = NULL;
    float x[4] = {0};
    assert_int_equal(tt_device_open(&(struct tt_device_config){.kind = "plan"}, &device), TT_OK);
    assert_int_equal(tt_stream_create(device, &stream), TT_OK);
    assert_int_equal(tt_comm_all_gather(comm, stream, x, x, SIZE_MAX), TT_ERR_INTERNAL);
    assert_int_equal(tt_comm_host_all_gather(comm, x, x, SIZE_MAX), TT_ERR_INTERNAL);
    assert_int_equal(tt_comm_reduce_scatter(comm, stream, x, x, SIZE_MAX / 2, TT_F32), TT_ERR_INTERNAL);
    assert_int_equal(tt_comm_reduce_scatter(comm, stream, x, x, 4, TT_F64), TT_ERR_INTERNAL);
    assert_int_equal(tt_comm_reduce_scatter(comm, stream, x, x, 4, TT_DTYPE_NONE), TT_ERR_INTERNAL);
    assert_int_equal(tt_comm_all_reduce(comm, stream, x, 4, TT_F16, TT_REDUCE_SUM), TT_ERR_INTERNAL);
    assert_int_equal(tt_comm_all_reduce(comm, stream, x, SIZE_MAX / 4, TT_I64, TT_REDUCE_SUM),
                     TT_ERR_INTERNAL);
    assert_int_equal(tt_comm_host_broadcast(comm, x, 4, 1), TT_ERR_INTERNAL);
    assert_int_equal(tt_comm_host_broadcast(comm, x, 4, -1), TT_ERR_INTERNAL);
    assert_int_equal(tt_comm_split(comm, -1, &(struct tt_comm *){NULL}), TT_ERR_INTERNAL);
    assert_int_equal(tt_comm_all_gather(comm, stream, NULL, NULL, 0), TT_OK);
    assert_int_equal(tt_comm_host_broadcast(comm, NULL, 0, 0), TT_OK);
    assert_int_equal(tt_comm_all_reduce(comm, stream, NULL, 0, TT_F32, TT_REDUCE_MAX), TT_OK);
    tt_stream_destroy(stream);
    tt_device_close(device);
    tt_comm_destroy(comm);
}

static void no_memory(void **state)
{
    (void)state;
    struct tt_comm *comm = NULL;
    uint64_t live = tt_alloc_live();
    tt_alloc_fail_at(1);
    assert_int_equal(tt_comm_create_self(&comm), TT_ERR_MEMORY);
    tt_alloc_fail_at(0);
    assert_null(comm);
    assert_true(tt_alloc_live() == live);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_call_gives_back_its_own),
        cmocka_unit_test(agreeing_with_itself),
        cmocka_unit_test(bad_arguments),
        cmocka_unit_test(no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
