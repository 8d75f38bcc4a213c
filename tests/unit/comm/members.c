/* Processes that belong to the run and go wrong before it begins, or send what is no message after it has
 * begun. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "support/stranger.h"
#include "support/tcp_ranks.h"

/* Takes the place of rank 1 in order, and then sends what is no message. */
static tt_status be_broken(void *argument)
{
    const struct test_stranger *stranger = argument;
    struct tt_wire_accept accept;
    struct tt_wire_hello hello = test_stranger_hello_of(1);
    int control = test_stranger_join_control(stranger, &accept),
        data = test_stranger_enter(stranger, TT_PROOF_DATA);
    char frame[sizeof(struct tt_wire_header) + sizeof accept];
    memcpy(hello.token, accept.token, sizeof hello.token);
    test_stranger_say_hello(data, &hello, "");
    TEST_RANK_CHECK(test_stranger_hear(data, frame, sizeof frame));
    TEST_RANK_CHECK(test_stranger_hear(control, frame, sizeof(struct tt_wire_header))); /* the welcome */
    if (stranger->result == 1) {
        test_stranger_say(data, "what is this? what is this? what is this? what is this? what is this?", 64);
    } else {
        struct tt_wire_header header = {
            .magic = TT_WIRE_MAGIC, .kind = TT_WIRE_CALL, .group = 99, .call = 1234};
        test_stranger_say(data, &header, sizeof header);
    }
    test_sleep(2);
    close(control);
    close(data);
    return TT_OK;
}

static void a_member_that_sends_no_message(void **state)
{
    (void)state;
    for (int way = 0; way < 2; way++) {
        struct test_tcp_process processes[2];
        struct tt_thread *thread = NULL;
        test_tcp_prepare(processes, 2, 1, test_tcp_barrier, NULL);
        struct test_stranger stranger = {.port = processes[0].config.port, .result = way};
        assert_int_equal(tt_thread_start("broken", be_broken, &stranger, &thread), TT_OK);
        test_tcp_run(processes, 1);
        test_tcp_expect(&processes[0], TT_ERR_COMM,
                        way == 1 ? "sent bytes that are no message" : "rank 1 made a call");
        assert_false(processes[0].error.told);
        assert_int_equal(tt_thread_join(thread), TT_OK);
    }
}

static tt_status go_away(void *argument)
{
    struct tt_wire_accept accept;
    int control = test_stranger_join_control(argument, &accept);
    TEST_RANK_CHECK(control >= 0);
    close(control);
    return TT_OK;
}

/* A process that is gone before all have come: the others do not wait for it. */
static void a_member_that_goes_too_soon(void **state)
{
    (void)state;
    struct test_tcp_process processes[2];
    struct tt_thread *thread = NULL;
    test_tcp_prepare(processes, 2, 1, test_tcp_barrier, NULL);
    struct test_stranger stranger = {.port = processes[0].config.port};
    processes[0].config.timeout_seconds = 600; /* longer than a test may take */
    assert_int_equal(tt_thread_start("rank 1", go_away, &stranger, &thread), TT_OK);
    test_tcp_run(processes, 1);
    assert_int_equal(tt_thread_join(thread), TT_OK);
    test_tcp_expect(&processes[0], TT_ERR_PEER, "went before all ranks had come");
}

static tt_status ask_to_stop(void *argument)
{
    struct tt_cancel *cancel = argument;
    test_sleep(5); /* by then rank 1 was accepted */
    atomic_store(&cancel->requests, 1);
    return TT_OK;
}

/* One that is stopped on request while it waits says so, and nobody waits longer. */
static void a_member_that_is_cancelled(void **state)
{
    (void)state;
    struct test_tcp_process processes[3];
    struct tt_cancel cancel = {0};
    struct tt_thread *thread = NULL;
    test_tcp_prepare(processes, 3, 1, test_tcp_barrier, NULL);
    for (int p = 0; p < 3; p++) processes[p].config.timeout_seconds = 600;
    processes[1].config.cancel = &cancel;
    assert_int_equal(tt_thread_start("signal", ask_to_stop, &cancel, &thread), TT_OK);
    test_tcp_run(processes, 2);
    assert_int_equal(tt_thread_join(thread), TT_OK);
    test_tcp_expect(&processes[1], TT_ERR_CANCELLED, "stopped on request");
    test_tcp_expect(&processes[0], TT_ERR_PEER, "rank 1 failed: stopped on request");
}

/* One that comes after the run has failed learns why. */
static tt_status come_too_late(void *argument)
{
    struct test_stranger *stranger = argument;
    struct tt_wire_header header = {0};
    struct tt_error error = {0};
    struct tt_wire_hello hello = tt_wire_hello_make(3, 2, 1, -1, "odd");
    int other = test_stranger_enter(stranger, TT_PROOF_CONTROL),
        late = test_stranger_enter(stranger, TT_PROOF_CONTROL);
    struct tt_wire_hello first = tt_wire_hello_make(3, 1, 1, -1, "odd");
    test_stranger_say_hello(other, &first, "command: train\nlearning_rate: 0.2\nseed: 1\n");
    char text[600];
    test_stranger_hear_refusal(other, text);
    test_stranger_say_hello(late, &hello, test_stranger_settings);
    TEST_RANK_CHECK(test_stranger_hear(late, &header, sizeof header) && header.kind == TT_WIRE_ABORT &&
                    header.parameter == 1 && test_stranger_hear(late, &error, sizeof error));
    TEST_RANK_CHECK(strstr(error.message, "the settings of rank 1 differ") != NULL);
    stranger->result = 1;
    close(other);
    close(late);
    return TT_OK;
}

static void a_member_that_comes_too_late(void **state)
{
    (void)state;
    struct test_tcp_process processes[3];
    struct tt_thread *thread = NULL;
    test_tcp_prepare(processes, 3, 1, test_tcp_barrier, NULL);
    struct test_stranger stranger = {.port = processes[0].config.port};
    assert_int_equal(tt_thread_start("late", come_too_late, &stranger, &thread), TT_OK);
    test_tcp_run(processes, 1);
    assert_int_equal(tt_thread_join(thread), TT_OK);
    assert_int_equal(stranger.result, 1);
    test_tcp_expect(&processes[0], TT_ERR_PEER, "the settings of rank 1 differ");
}

static tt_status fail_allocation(void *argument)
{
    test_sleep(0.15); /* after the threads of the processes were started, before they begin */
    tt_alloc_fail_at(*(const uint64_t *)argument);
    return TT_OK;
}

/* An allocation fails somewhere in one of two processes, which share this program: both end, in order or with
 * an error, and nothing is left. */
static void without_memory(void **state)
{
    (void)state;
    uint64_t live = tt_alloc_live();
    int failed = 0;
    for (uint64_t nth = 1; nth <= 25; nth += 2) {
        struct test_tcp_process processes[2];
        struct tt_thread *thread = NULL;
        test_tcp_prepare(processes, 2, 1, test_tcp_barrier, NULL);
        for (int p = 0; p < 2; p++) {
            processes[p].config.timeout_seconds = 1;
            processes[p].delay = 0.3;
        }
        assert_int_equal(tt_thread_start("faults", fail_allocation, &nth, &thread), TT_OK);
        test_tcp_run(processes, 2);
        tt_alloc_fail_at(0);
        assert_int_equal(tt_thread_join(thread), TT_OK);
        for (int p = 0; p < 2; p++) failed += processes[p].status != TT_OK;
        assert_true(tt_alloc_live() == live);
    }
    assert_true(failed > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_member_that_sends_no_message),
        cmocka_unit_test(a_member_that_goes_too_soon),
        cmocka_unit_test(a_member_that_is_cancelled),
        cmocka_unit_test(a_member_that_comes_too_late),
        cmocka_unit_test(without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
