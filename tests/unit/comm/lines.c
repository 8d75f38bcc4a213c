/* Data lines while they are made: whoever else comes to the listening sockets neither gets a line, nor ends
 * the run, nor keeps it waiting. The processes are threads here, which meet at a socket pair in place of a
 * control connection. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>
#include <fcntl.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/thread.h"
#include "comm/lines.h"
#include "comm/local_line.h"
#include "support/port.h"
#include "support/ranks.h"
#include "support/stranger.h"
#include "support/tcp_ranks.h"

enum {
    WORLD_MAX = 6,
    CROWD = TEST_STRANGER_CROWD,
    DIAL_SECONDS = TEST_STRANGER_DIAL_SECONDS,
    SECONDS_MAX = 20
};

/* A process of some ranks. */
struct process {
    struct tt_lines_config config;
    struct tt_wire_listener listener;
    struct tt_wire_address rank0;
    struct tt_proof_key key;
    double delay;
    struct tt_thread *thread;
    int lines[WORLD_MAX * WORLD_MAX];
    atomic_bool enough; /* it is told to end */
    atomic_int checks;  /* calls of look */
};

static tt_status look(void *context)
{
    struct process *process = context;
    atomic_fetch_add(&process->checks, 1);
    if (atomic_load(&process->enough)) return tt_fail(TT_ERR_CANCELLED, "enough");
    return TT_OK;
}

static tt_status connect_process(void *argument)
{
    struct process *process = argument;
    test_sleep(process->delay);
    return tt_lines_connect(&process->config, process->lines);
}

/* `count` processes of `ranks_each`, that reach each other over loopback. */
static void prepare(struct process *processes, int count, int ranks_each, struct tt_wire_rank *ranks)
{
    static const struct tt_wire_address loopback = {.family = 4, .bytes = {127, 0, 0, 1}};
    for (int p = 0; p < count; p++) {
        struct process *process = &processes[p];
        *process = (struct process){.rank0 = loopback, .key = {.is_set = true}};
        memset(process->key.bytes, 7, sizeof process->key.bytes);
        process->config = (struct tt_lines_config){.world_size = count * ranks_each,
                                                   .first_rank = p * ranks_each,
                                                   .local_count = ranks_each,
                                                   .ranks = ranks,
                                                   .rank0 = &process->rank0,
                                                   .key = &process->key,
                                                   .listener = &process->listener,
                                                   .control = -1,
                                                   .check = look,
                                                   .context = process};
        assert_int_equal(tt_wire_reserve(NULL, &loopback, &process->listener, &process->config.port), TT_OK);
        for (int r = 0; r < ranks_each; r++) {
            ranks[p * ranks_each + r].place = loopback;
            /* As rank 0 is reached, or at an address that was named. */
            if (p == 0) ranks[r].place.family = TT_WIRE_SAME;
            ranks[p * ranks_each + r].place.port = process->config.port;
        }
    }
}

static void finish(struct process *processes, int count)
{
    for (int p = 0; p < count; p++) {
        tt_wire_listener_close(&processes[p].listener);
        tt_lines_close(processes[p].lines,
                       (size_t)processes[p].config.local_count * (size_t)processes[p].config.world_size);
    }
}

static void start(struct process *processes, int count)
{
    for (int p = 0; p < count; p++)
        assert_int_equal(tt_thread_start("process", connect_process, &processes[p], &processes[p].thread),
                         TT_OK);
}

static void expect_all(struct process *processes, int count)
{
    for (int p = 0; p < count; p++)
        if (tt_thread_join(processes[p].thread) != TT_OK)
            fail_msg("process %d: %s", p, tt_error_last()->message);
}

static int line_of(struct process *processes, int a, int b)
{
    int each = processes[0].config.local_count;
    return processes[a / each].lines[a % each * processes[0].config.world_size + b];
}

/* Each line leads to the rank that it is said to lead to. */
static void check_lines(struct process *processes, int world_size)
{
    for (int a = 0; a < world_size; a++) {
        for (int b = 0; b < world_size; b++) {
            int sent[2] = {a, b}, got[2] = {-1, -1};
            if (a == b) {
                assert_int_equal(line_of(processes, a, b), -1);
                continue;
            }
            test_stranger_say(line_of(processes, a, b), sent, sizeof sent);
            for (int tries = 0; tries < 1000 && recv(line_of(processes, b, a), got, sizeof got, 0) < 0;
                 tries++)
                test_sleep(0.001);
            assert_memory_equal(got, sent, sizeof sent);
        }
    }
}

static void every_two_ranks(void **state)
{
    (void)state;
    static const int shapes[][2] = {{1, 1}, {2, 1}, {6, 1}, {3, 2}, {2, 3}, {1, 4}};
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        struct process processes[WORLD_MAX];
        struct tt_wire_rank ranks[WORLD_MAX] = {0};
        uint64_t live = tt_alloc_live();
        prepare(processes, shapes[s][0], shapes[s][1], ranks);
        processes[0].delay = 0.2; /* refused before it listens, and tried again */
        start(processes, shapes[s][0]);
        expect_all(processes, shapes[s][0]);
        check_lines(processes, shapes[s][0] * shapes[s][1]);
        for (int p = 0; p < shapes[s][0]; p++) tt_wire_listener_close(&processes[p].listener);
        for (int p = 0; p < shapes[s][0]; p++) assert_int_equal(test_dial(processes[p].config.port, 0), -1);
        finish(processes, shapes[s][0]);
        assert_true(tt_alloc_live() == live);
    }
}

/* Counts the lines between processes that are Unix sockets. */
static int count_local(struct process *processes, int world_size)
{
    int count = 0, each = processes[0].config.local_count;
    for (int a = 0; a < world_size; a++)
        for (int b = 0; b < world_size; b++)
            count += a / each != b / each && tt_local_line_is(line_of(processes, a, b));
    return count;
}

/* Connects four processes; `change` alters them before. Returns the number of Unix sockets at the ends of 6 lines. */
static int connect_four(void (*change)(struct process *processes, struct tt_wire_rank *ranks))
{
    struct process processes[4];
    struct tt_wire_rank ranks[4] = {0};
    prepare(processes, 4, 1, ranks);
    change(processes, ranks);
    start(processes, 4);
    expect_all(processes, 4);
    check_lines(processes, 4);
    int count = count_local(processes, 4);
    finish(processes, 4);
    return count;
}

static void change_nothing(struct process *processes, struct tt_wire_rank *ranks)
{
    (void)processes;
    (void)ranks;
}

static void make_machines(struct process *processes, struct tt_wire_rank *ranks)
{
    (void)processes;
    ranks[2].machine = ranks[3].machine = 1;
}

static void name_addresses(struct process *processes, struct tt_wire_rank *ranks)
{
    (void)ranks;
    for (int p = 0; p < 4; p++) processes[p].config.at_address = true;
}

/* Processes of one machine are connected by Unix sockets, others and those with named addresses by TCP. */
static void one_machine(void **state)
{
    (void)state;
    assert_int_equal(connect_four(change_nothing), 12);
    assert_int_equal(connect_four(make_machines), 4);
    assert_int_equal(connect_four(name_addresses), 0);
}

/* Another process listens at the name of rank 0, and then ends: the lines to rank 0 go over TCP. */
static void name_in_use(void **state)
{
    (void)state;
    struct process processes[3];
    struct tt_wire_rank ranks[3] = {0};
    prepare(processes, 3, 1, ranks);
    int other = tt_local_line_listen(&processes[0].key, &ranks[0]);
    assert_true(other >= 0);
    start(processes, 3);
    test_sleep(0.3);
    close(other);
    expect_all(processes, 3);
    check_lines(processes, 3);
    assert_int_equal(count_local(processes, 3), 2);
    finish(processes, 3);
}

/* ---- Strangers ---- */

/* Three processes, of which the last comes late; a stranger is at the port of rank 0, and at that of rank 1,
 * from the beginning. */
static void outlive(tt_thread_main *stranger_main, int *results)
{
    struct process processes[3];
    struct tt_wire_rank ranks[3] = {0};
    struct test_stranger strangers[2];
    struct tt_thread *threads[2];
    uint64_t live = tt_alloc_live();
    prepare(processes, 3, 1, ranks);
    processes[2].delay = 1.5;
    double begin = tt_clock_seconds();
    for (int i = 0; i < 2; i++) {
        strangers[i] = (struct test_stranger){.port = processes[i].config.port};
        assert_int_equal(tt_thread_start("stranger", stranger_main, &strangers[i], &threads[i]), TT_OK);
    }
    start(processes, 3);
    expect_all(processes, 3);
    double seconds = tt_clock_seconds() - begin;
    for (int i = 0; i < 3; i++) tt_wire_listener_close(&processes[i].listener);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(tt_thread_join(threads[i]), TT_OK);
        results[i] = strangers[i].result;
    }
    check_lines(processes, 3);
    if (seconds > SECONDS_MAX) fail_msg("the ranks waited for %.1f s", seconds);
    finish(processes, 3);
    assert_true(tt_alloc_live() == live);
}

static const struct tt_line_hello wanted_line = {.magic = TT_WIRE_MAGIC, .from = 2, .to = 0};

static tt_status send_nonsense(void *argument)
{
    const struct test_stranger *stranger = argument;
    char noise[512];
    int files[8];
    struct tt_proof proof;
    memset(noise, 0xff, sizeof noise);
    tt_proof_open(&stranger->key, TT_PROOF_DATA, &proof);
    for (int i = 0; i < 8; i++) files[i] = test_dial(stranger->port, DIAL_SECONDS);
    test_stranger_say(files[0], "GET / HTTP/1.1\r\nHost: example\r\n\r\n0123456789 0123456789", 55);
    test_stranger_say(files[1], "tri", 3);
    test_stranger_say(files[2], noise, sizeof noise);
    test_stranger_say(files[3], &proof.opening, sizeof proof.opening - 1);
    for (int i = 4; i < 8; i++) {
        struct tt_proof other = proof;
        other.opening.secured = i != 4;
        if (i == 5) other.opening.role = 99;
        test_stranger_say(files[i], &other.opening, sizeof other.opening);
    }
    test_stranger_say(files[6], noise, sizeof noise);
    test_stranger_say(files[7], &wanted_line, sizeof wanted_line);
    test_sleep(0.3);
    for (int i = 0; i < 8; i++) close(files[i]);
    return TT_OK;
}

static void nonsense(void **state)
{
    (void)state;
    int results[2];
    outlive(send_nonsense, results);
}

/* More connections than there is room for. */
static tt_status be_slow(void *argument)
{
    struct test_stranger *stranger = argument;
    struct tt_proof proof;
    struct tt_proof_key claims = {.is_set = true};
    tt_proof_open(&claims, TT_PROOF_DATA, &proof);
    return test_stranger_crowd(stranger, &proof);
}

static void slow_connections(void **state)
{
    (void)state;
    int results[2];
    outlive(be_slow, results);
    assert_true(results[0] > CROWD / 2 && results[1] > CROWD / 2);
}

static tt_status flood(void *argument)
{
    return test_stranger_flood(argument);
}

static void flooded(void **state)
{
    (void)state;
    int results[2];
    outlive(flood, results);
    assert_true(results[0] > 1 && results[1] > 1);
}

/* Wants the line of rank 2, with another key, until nobody listens. It is closed after its sum, unanswered.
 */
static tt_status claim_line(void *argument)
{
    struct test_stranger *stranger = argument;
    struct tt_proof_key other = {.is_set = true};
    for (int file; (file = test_dial(stranger->port, stranger->result == 0 ? DIAL_SECONDS : 0)) >= 0;) {
        struct tt_proof proof;
        unsigned char sum[TT_PROOF_SUM_BYTES], answer;
        tt_proof_open(&other, TT_PROOF_DATA, &proof);
        test_stranger_say(file, &proof.opening, sizeof proof.opening);
        if (test_stranger_hear(file, &proof.challenge, sizeof proof.challenge)) {
            tt_proof_sum(&other, &proof, TT_PROOF_OPENER, sum);
            test_stranger_say(file, sum, sizeof sum);
            test_stranger_say(file, &wanted_line, sizeof wanted_line);
            TEST_RANK_CHECK(!test_stranger_hear(file, &answer, 1));
            stranger->result++;
        }
        close(file);
        test_sleep(0.02);
    }
    return TT_OK;
}

static void another_key(void **state)
{
    (void)state;
    int results[2];
    outlive(claim_line, results);
    assert_true(results[0] > 0 && results[1] > 0);
}

/* ---- Members that go wrong ---- */

/* Has the key, and names lines that cannot be, or opens a connection for something else. */
static tt_status name_impossible(void *argument)
{
    struct test_stranger *stranger = argument;
    static const struct tt_line_hello lines[] = {{.magic = TT_WIRE_MAGIC, .from = 3, .to = 0},
                                                 {.magic = TT_WIRE_MAGIC, .from = -1, .to = 0},
                                                 {.magic = TT_WIRE_MAGIC, .from = 2, .to = 2},
                                                 {.magic = TT_WIRE_MAGIC, .from = 2, .to = -5},
                                                 {.magic = TT_WIRE_MAGIC, .from = INT32_MAX, .to = INT32_MIN},
                                                 {.magic = 1, .from = 2, .to = 0},
                                                 {.magic = TT_WIRE_MAGIC, .from = 0, .to = 0},
                                                 {.magic = TT_WIRE_MAGIC, .from = 2, .to = 0},
                                                 {.magic = TT_WIRE_MAGIC, .from = 2, .to = 1}};
    stranger->key.is_set = true;
    memset(stranger->key.bytes, 7, sizeof stranger->key.bytes);
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        bool last = i + 2 >= sizeof lines / sizeof *lines;
        int file = test_stranger_enter(stranger, last ? TT_PROOF_CONTROL : TT_PROOF_DATA);
        char byte;
        TEST_RANK_CHECK(file >= 0);
        test_stranger_say(file, &lines[i], sizeof lines[i]);
        TEST_RANK_CHECK(!test_stranger_hear(file, &byte, 1)); /* closed */
        close(file);
    }
    stranger->result = 1;
    return TT_OK;
}

static void lines_that_cannot_be(void **state)
{
    (void)state;
    int results[2];
    outlive(name_impossible, results);
    assert_true(results[0] == 1 && results[1] == 1);
}

/* Somebody else listens where rank 0 is said to be: he gets no more than an opening and a sum of no use
 * elsewhere. */
static tt_status be_rank_0(void *argument)
{
    struct test_stranger *stranger = argument;
    for (int way = 0; way < 3; way++) {
        struct tt_proof proof;
        struct tt_proof_key claims = {.is_set = true};
        char heard[TT_PROOF_SUM_BYTES];
        int file = accept(stranger->result, NULL, NULL);
        TEST_RANK_CHECK(file >= 0 && test_stranger_hear(file, &proof.opening, sizeof proof.opening));
        TEST_RANK_CHECK(tt_proof_answer(&claims, &proof));
        if (way == 0) proof.challenge.secured = 0;
        test_stranger_say(file, &proof.challenge, sizeof proof.challenge);
        if (way > 0) TEST_RANK_CHECK(test_stranger_hear(file, heard, sizeof heard));
        if (way > 1) test_stranger_say(file, heard, sizeof heard); /* reflected */
        if (way != 1) TEST_RANK_CHECK(!test_stranger_hear(file, heard, 1));
        close(file);
    }
    return TT_OK;
}

static void somebody_else_listens(void **state)
{
    (void)state;
    struct process processes[2];
    struct tt_wire_rank ranks[2] = {0};
    struct tt_thread *thread = NULL;
    prepare(processes, 2, 1, ranks);
    struct tt_wire_listener listener = processes[0].listener;
    struct test_stranger stranger = {.result = listener.sockets[0]};
    assert_int_equal(listen(listener.sockets[0], 8), 0);
    /* It is blocking for him. */
    assert_int_equal(fcntl(listener.sockets[0], F_SETFL, 0), 0);
    assert_int_equal(tt_thread_start("rank 0", be_rank_0, &stranger, &thread), TT_OK);
    start(processes + 1, 1);
    assert_int_equal(tt_thread_join(thread), TT_OK);
    atomic_store(&processes[1].enough, true);
    assert_int_equal(tt_thread_join(processes[1].thread), TT_ERR_CANCELLED);
    assert_int_equal(processes[1].lines[0], -1);
    finish(processes, 2);
}

static void without_memory(void **state)
{
    (void)state;
    uint64_t live = tt_alloc_live();
    for (uint64_t nth = 1; nth <= 3; nth++) {
        struct process process;
        struct tt_wire_rank ranks[2] = {0};
        prepare(&process, 1, 2, ranks);
        tt_alloc_fail_at(nth);
        assert_int_equal(tt_lines_connect(&process.config, process.lines), TT_ERR_MEMORY);
        tt_alloc_fail_at(0);
        finish(&process, 1);
        assert_true(tt_alloc_live() == live);
    }
}

/* Rank 0's farewell stays unread on the control connection until the lines are there: the wait for them sleeps. */
static void unread_farewell(void **state)
{
    (void)state;
    struct process processes[2];
    struct tt_wire_rank ranks[2] = {{0}};
    int control[2];
    prepare(processes, 2, 1, ranks);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, control), 0);
    test_stranger_say(control[1], "bye", 3);
    processes[0].config.control = control[0];
    processes[1].delay = 2;
    start(processes, 2);
    expect_all(processes, 2);
    check_lines(processes, 2);
    finish(processes, 2);
    close(control[0]);
    close(control[1]);
    assert_in_range(atomic_load(&processes[0].checks), 4, 20000); /* without sleep some 200000 a second */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_two_ranks),
        cmocka_unit_test(one_machine),
        cmocka_unit_test(name_in_use),
        cmocka_unit_test(nonsense),
        cmocka_unit_test(unread_farewell),
        cmocka_unit_test(slow_connections),
        cmocka_unit_test(flooded),
        cmocka_unit_test(another_key),
        cmocka_unit_test(lines_that_cannot_be),
        cmocka_unit_test(somebody_else_listens),
        cmocka_unit_test(without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
