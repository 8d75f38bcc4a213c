/* Processes that belong to the run and go wrong before it begins, or send what is no message after it has
 * begun. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>
#include <linux/filter.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "comm/tcp_impl.h"
#include "support/stranger.h"
#include "support/tcp_ranks.h"

/* Takes the place of rank 1 in order, and then sends what is no message, or no call that rank 0 makes. */
static tt_status be_broken(void *argument)
{
    const struct test_stranger *stranger = argument;
    struct test_stranger_rank rank = test_stranger_join(stranger);
    struct tt_line_frame frame = {.magic = TT_WIRE_MAGIC,
                                  .kind = TT_LINE_CALL,
                                  .sequence = 1,
                                  .order = {.call = TT_CALL_BARRIER},
                                  .bytes = 0};
    TEST_RANK_CHECK(rank.control >= 0 && rank.line >= 0);
    if (stranger->result == 0) frame.magic = 1;
    if (stranger->result == 1) frame.kind = 77;
    if (stranger->result == 2) frame.order.call = 1234;
    if (stranger->result == 3) frame.bytes = UINT64_MAX;
    if (stranger->result == 4) frame.group = 99;
    if (stranger->result == 5) frame.sequence = 2;
    if (stranger->result == 6) frame.kind = TT_LINE_LEAVE, frame.bytes = 5;
    test_stranger_say(rank.line, &frame, sizeof frame);
    test_sleep(1);
    close(rank.control);
    close(rank.line);
    return TT_OK;
}

/* Rank 0 of two, of which rank 1 is somebody else: a thread that runs `other`. */
struct pair {
    struct test_stranger stranger;
    struct tt_thread *thread;
};

static void start_pair(struct pair *pair, struct test_tcp_process *rank0, test_rank_main *main,
                       tt_thread_main *other, int way)
{
    struct test_tcp_process both[2];
    test_tcp_prepare(both, 2, 1, main, NULL);
    *rank0 = both[0];
    *pair = (struct pair){.stranger = {.port = both[0].config.port, .result = way}};
    assert_int_equal(tt_thread_start("rank 1", other, &pair->stranger, &pair->thread), TT_OK);
}

/* Seven runs at the same time. */
static void a_member_that_sends_no_message(void **state)
{
    (void)state;
    enum { WAYS = 7 };
    struct test_tcp_process ranks0[WAYS];
    struct pair pairs[WAYS];
    for (int way = 0; way < WAYS; way++)
        start_pair(&pairs[way], &ranks0[way], test_tcp_barrier, be_broken, way);
    test_tcp_run(ranks0, WAYS);
    for (int way = 0; way < WAYS; way++) {
        test_tcp_expect(&ranks0[way], TT_ERR_COMM,
                        way == 4 || way == 5 ? "rank 1 calls barrier in another group"
                                             : "rank 1 sent bytes that are not a message");
        assert_false(ranks0[way].error.reported_elsewhere);
        assert_int_equal(tt_thread_join(pairs[way].thread), TT_OK);
    }
}

/* A packet filter that lets nothing in. */
static void cut_off(int file)
{
    struct sock_filter nothing = {.code = BPF_RET | BPF_K, .k = 0};
    struct sock_fprog program = {.len = 1, .filter = &nothing};
    (void)setsockopt(file, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program);
}

/* Its machine is cut off from that of rank 0 for data, though the control connection lives. */
static tt_status be_cut_off(void *argument)
{
    struct test_stranger *stranger = argument;
    struct test_stranger_rank rank = test_stranger_join(stranger);
    TEST_RANK_CHECK(rank.control >= 0 && rank.line >= 0);
    if (stranger->result == 0) { /* nothing is unanswered there: only silence shows it */
        struct tt_line_frame frame;
        TEST_RANK_CHECK(test_stranger_hear(rank.line, &frame, sizeof frame));
    }
    cut_off(rank.line);
    char byte;
    double end = tt_clock_seconds() + 60;
    for (ssize_t got = 1; got != 0 && tt_clock_seconds() < end; test_sleep(1)) {
        test_stranger_say_frame(rank.control, TT_WIRE_BEAT, 0, NULL, 0);
        while ((got = recv(rank.control, &byte, 1, MSG_DONTWAIT)) > 0) continue;
    }
    close(rank.control);
    close(rank.line);
    return TT_OK;
}

static tt_status gather_much(struct tt_comm *comm, void *argument)
{
    (void)argument;
    enum { BYTES = 1 << 20 };
    char *all = tt_calloc(2, BYTES);
    if (all == NULL) return TT_ERR_MEMORY;
    test_sleep(0.5); /* it has been cut off by then */
    tt_status status = tt_comm_host_all_gather(comm, all, all, BYTES);
    tt_free(all);
    return status;
}

/* Two runs, which wait at the same time. */
static void a_line_that_is_cut(void **state)
{
    (void)state;
    struct test_tcp_process ranks0[2];
    struct pair pairs[2];
    for (int way = 0; way < 2; way++)
        start_pair(&pairs[way], &ranks0[way], way == 0 ? test_tcp_barrier : gather_much, be_cut_off, way);
    double begin = tt_clock_seconds();
    test_tcp_run(ranks0, 2);
    double seconds = tt_clock_seconds() - begin;
    for (int way = 0; way < 2; way++) {
        assert_int_equal(tt_thread_join(pairs[way].thread), TT_OK);
        test_tcp_expect(&ranks0[way], TT_ERR_COMM, "the connection between rank 0 and rank 1 is lost");
    }
    if (seconds > 35) fail_msg("noticed after %.1f s", seconds); /* with what follows it */
}

static tt_status go_away(void *argument)
{
    int control = test_stranger_join_control(argument);
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
    test_tcp_expect(&processes[0], TT_ERR_PEER, "closed its connection before all ranks had joined");
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
    struct tt_tcp_config own = {.world_size = 3, .first_rank = 2, .local_count = 1, .machine = "odd"};
    struct tt_wire_hello hello = tt_wire_hello_make(&own);
    int other = test_stranger_enter(stranger, TT_PROOF_CONTROL),
        late = test_stranger_enter(stranger, TT_PROOF_CONTROL);
    own.first_rank = 1;
    struct tt_wire_hello first = tt_wire_hello_make(&own);
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
    assert_int_equal(tt_proof_key_make("the secret of this run", 22, &stranger.key), TT_OK);
    processes[0].config.key = &stranger.key;
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

/* The line that is cut costs half a minute of silence, which passes in a child beside the other tests. */
int main(void)
{
    const struct CMUnitTest slow[] = {cmocka_unit_test(a_line_that_is_cut)};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_member_that_sends_no_message),
        cmocka_unit_test(a_member_that_goes_too_soon),
        cmocka_unit_test(a_member_that_is_cancelled),
        cmocka_unit_test(a_member_that_comes_too_late),
        cmocka_unit_test(without_memory),
    };
    int how = 0;
    pid_t child = fork();
    if (child < 0) return 1;
    if (child == 0) return cmocka_run_group_tests(slow, NULL, NULL);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    if (waitpid(child, &how, 0) != child || !WIFEXITED(how) || WEXITSTATUS(how) != 0) failed++;
    return failed;
}
