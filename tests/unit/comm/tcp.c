/* Ranks over TCP. The processes are threads here: nothing in comm/tcp.c is shared between two that were
 * created apart. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/thread.h"
#include "comm/comm_impl.h"
#include "comm/wire.h"
#include "support/comm_calls.h"
#include "support/ranks.h"

enum { HANG_SECONDS = 120 };

/* A port that nobody listens at. */
static int free_port(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t bytes = sizeof address;
    int file = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(file, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(getsockname(file, (struct sockaddr *)&address, &bytes), 0);
    close(file);
    return ntohs(address.sin_port);
}

struct process {
    struct tt_tcp_config config;
    test_rank_main *main;
    void *argument;
    double delay;
    struct tt_thread *thread;
    tt_status status;
    struct tt_error error;
    int machines[TEST_RANKS_MAX];
};

struct rank {
    struct tt_comm *comm;
    struct process *process;
    struct tt_thread *thread;
};

static void sleep_seconds(double seconds)
{
    nanosleep(
        &(struct timespec){.tv_sec = (time_t)seconds, .tv_nsec = (long)((seconds - (time_t)seconds) * 1e9)},
        NULL);
}

static tt_status run_rank(void *argument)
{
    struct rank *rank = argument;
    tt_status status = rank->process->main(rank->comm, rank->process->argument);
    if (status != TT_OK) tt_comm_abort(rank->comm);
    tt_comm_destroy(rank->comm);
    return status;
}

static tt_status run_process(void *argument)
{
    struct process *process = argument;
    struct tt_comm *comms[TEST_RANKS_MAX];
    struct rank ranks[TEST_RANKS_MAX];
    tt_status worst = TT_OK;
    struct tt_error error = {0};
    sleep_seconds(process->delay);
    TT_TRY(tt_comm_create_tcp(&process->config, comms, process->machines));
    for (int r = 0; r < process->config.local_count; r++) {
        ranks[r] = (struct rank){comms[r], process, NULL};
        TT_TRY(tt_thread_start("rank", run_rank, &ranks[r], &ranks[r].thread));
    }
    for (int r = 0; r < process->config.local_count; r++) {
        tt_status status = tt_thread_join(ranks[r].thread);
        if (status == TT_OK || (worst != TT_OK && status == TT_ERR_PEER)) continue;
        worst = status;
        tt_error_copy(&error);
    }
    return worst == TT_OK ? TT_OK : tt_error_restore(&error);
}

static void prepare(struct process *processes, int count, int ranks_each, test_rank_main *main,
                    void *argument)
{
    int port = free_port();
    for (int p = 0; p < count; p++) {
        processes[p] = (struct process){
            .config = {.host = "127.0.0.1",
                       .port = port,
                       .world_size = count * ranks_each,
                       .first_rank = p * ranks_each,
                       .local_count = ranks_each,
                       .machine = p % 2 == 0 ? "even" : "odd",
                       .settings = "command: train\nlearning_rate: 0.1\nseed: 1\n",
                       .timeout_seconds = 20},
            .main = main,
            .argument = argument,
        };
    }
}

static void run(struct process *processes, int count)
{
    alarm(HANG_SECONDS);
    for (int p = 0; p < count; p++)
        assert_int_equal(tt_thread_start("process", run_process, &processes[p], &processes[p].thread), TT_OK);
    for (int p = 0; p < count; p++) {
        processes[p].status = tt_thread_join(processes[p].thread);
        tt_error_copy(&processes[p].error);
    }
    alarm(0);
}

static void expect_ok(const struct process *processes, int count)
{
    for (int p = 0; p < count; p++)
        if (processes[p].status != TT_OK) fail_msg("process %d: %s", p, processes[p].error.message);
}

static void expect(const struct process *process, tt_status status, const char *text)
{
    if (process->status != status || strstr(process->error.message, text) == NULL)
        fail_msg("status %d: '%s' without '%s'", (int)process->status, process->error.message, text);
}

struct digests {
    uint64_t calls[TEST_RANKS_MAX], parts[TEST_RANKS_MAX];
};

static tt_status calls_rank(struct tt_comm *comm, void *argument)
{
    struct digests *digests = argument;
    int rank = tt_comm_rank(comm);
    TT_TRY(test_comm_calls(comm, 1, &digests->calls[rank]));
    if (tt_comm_world_size(comm) <= 4) TT_TRY(test_comm_agreement(comm));
    TT_TRY(tt_comm_poll(comm));
    return test_comm_splits(comm, &digests->parts[rank]);
}

static void check_world(int count, int ranks_each)
{
    struct process processes[TEST_RANKS_MAX];
    struct digests got = {0}, wanted = {0};
    uint64_t live = tt_alloc_live();
    prepare(processes, count, ranks_each, calls_rank, &got);
    run(processes, count);
    expect_ok(processes, count);
    test_ranks(count * ranks_each, calls_rank, &wanted);
    assert_memory_equal(&got, &wanted, sizeof got);
    for (int q = 0; q < count * ranks_each; q++)
        assert_int_equal(processes[0].machines[q], q / ranks_each % 2);
    assert_true(tt_alloc_live() == live);
}

static void the_same_bits_as_threads(void **state)
{
    (void)state;
    check_world(2, 1);
    check_world(3, 1);
    check_world(2, 2);
    check_world(5, 1);
}

/* More than one message of the largest kind. */
static tt_status large_rank(struct tt_comm *comm, void *argument)
{
    (void)argument;
    enum { COUNT = 2500001 };
    tt_status status = TT_OK;
    struct tt_device *device = NULL;
    struct tt_stream *stream = NULL;
    int rank = tt_comm_rank(comm);
    float *data = tt_calloc(2 * COUNT, sizeof *data);
    if (data == NULL) return TT_ERR_MEMORY;
    TT_GO(tt_device_open(&(struct tt_device_config){.kind = "cpu", .threads = 1}, &device));
    TT_GO(tt_stream_create(device, &stream));
    for (int i = 0; i < COUNT; i++) data[rank * COUNT + i] = (float)(i % 1000 + rank);
    TT_GO(tt_comm_all_gather(comm, stream, data + rank * COUNT, data, COUNT * sizeof *data));
    for (int i = 0; i < 2 * COUNT && status == TT_OK; i++)
        if (data[i] != (float)(i % COUNT % 1000 + i / COUNT))
            status = tt_fail(TT_ERR_INTERNAL, "gathered %d", i);
    if (status == TT_OK)
        status = tt_comm_reduce_scatter(comm, stream, data, data + rank * COUNT, COUNT, TT_F32);
    for (int i = 0; i < COUNT && status == TT_OK; i++)
        if (data[rank * COUNT + i] != 2.0f * (float)(i % 1000 + rank))
            status = tt_fail(TT_ERR_INTERNAL, "scattered %d", i);
    if (status == TT_OK) status = tt_comm_broadcast(comm, stream, data, COUNT * sizeof *data, 1);
out:
    if (stream != NULL) tt_stream_destroy(stream);
    tt_device_close(device);
    tt_free(data);
    return status;
}

static void large_calls(void **state)
{
    (void)state;
    struct process processes[2];
    prepare(processes, 2, 1, large_rank, NULL);
    run(processes, 2);
    expect_ok(processes, 2);
}

static tt_status barrier_rank(struct tt_comm *comm, void *argument)
{
    (void)argument;
    return tt_comm_barrier(comm);
}

static void ranks_that_come_late(void **state)
{
    (void)state;
    struct process processes[3];
    prepare(processes, 3, 1, barrier_rank, NULL);
    processes[0].delay = 0.8;
    processes[2].delay = 0.4;
    run(processes, 3);
    expect_ok(processes, 3);
}

static void a_rank_that_never_comes(void **state)
{
    (void)state;
    struct process processes[3];
    prepare(processes, 3, 1, barrier_rank, NULL);
    processes[0].config.timeout_seconds = processes[1].config.timeout_seconds = 1;
    run(processes, 2);
    expect(&processes[0], TT_ERR_COMM, "rank 2 of 3 did not come");
    expect(&processes[1], TT_ERR_PEER, "rank 0 failed: rank 2 of 3 did not come");
    assert_true(processes[1].error.told);
    prepare(processes, 2, 1, barrier_rank, NULL);
    processes[1].config.timeout_seconds = 1;
    run(processes + 1, 1);
    expect(&processes[1], TT_ERR_COMM, "rank 0 cannot be reached");
}

static void a_wait_that_is_cancelled(void **state)
{
    (void)state;
    struct process processes[2];
    struct tt_cancel cancel = {1};
    prepare(processes, 2, 1, barrier_rank, NULL);
    processes[0].config.cancel = processes[1].config.cancel = &cancel;
    run(processes, 1);
    expect(&processes[0], TT_ERR_CANCELLED, "stopped on request");
    run(processes + 1, 1);
    expect(&processes[1], TT_ERR_CANCELLED, "stopped on request");
}

static void settings_that_differ(void **state)
{
    (void)state;
    for (int late = 0; late < 2; late++) {
        struct process processes[3];
        prepare(processes, 3, 1, barrier_rank, NULL);
        processes[1].config.settings = "command: train\nlearning_rate: 0.2\nseed: 1\n";
        /* Rank 2 has come before rank 1 ends everything: one that comes later finds nobody. */
        processes[0].delay = late ? 0 : 0.3;
        processes[1].delay = late ? 0.5 : 1.5;
        run(processes, 3);
        expect(&processes[1], TT_ERR_USAGE,
               "the settings of rank 1 differ: 'learning_rate: 0.2', where rank 0 has 'learning_rate: 0.1'");
        expect(&processes[0], TT_ERR_PEER, "rank 1 failed: the settings of rank 1 differ");
        expect(&processes[2], TT_ERR_PEER, "rank 1 failed: the settings of rank 1 differ");
        assert_true(processes[0].error.told && !processes[1].error.told);
    }
}

static void worlds_that_differ(void **state)
{
    (void)state;
    struct process processes[2];
    prepare(processes, 2, 1, barrier_rank, NULL);
    processes[0].config.timeout_seconds = 2;
    processes[1].config.world_size = 4;
    run(processes, 2);
    expect(&processes[1], TT_ERR_USAGE, "rank 0 was started for 2 ranks, this process for 4");
    expect(&processes[0], TT_ERR_COMM, "rank 1 of 2 did not come");
}

static void two_that_claim_one_rank(void **state)
{
    (void)state;
    struct process processes[3];
    prepare(processes, 3, 1, barrier_rank, NULL);
    processes[2].config.first_rank = 1;
    processes[2].delay = 0.5;
    processes[0].config.timeout_seconds = 2;
    run(processes, 3);
    expect(&processes[2], TT_ERR_USAGE, "rank 1 is process");
    expect(&processes[0], TT_ERR_COMM, "rank 2 of 3 did not come");
}

static int dial(int port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int file = socket(AF_INET, SOCK_STREAM, 0);
    for (int tries = 0; tries < 200; tries++) {
        if (connect(file, (struct sockaddr *)&address, sizeof address) == 0) return file;
        sleep_seconds(0.02);
    }
    close(file);
    return -1;
}

struct stranger {
    int port;
    struct tt_wire_hello hello;
    bool refused;
};

static void send_frame(int file, uint32_t magic, uint32_t kind, uint64_t says, const void *payload,
                       size_t bytes)
{
    struct tt_wire_header header = {.magic = magic, .kind = kind, .bytes = says};
    (void)!send(file, &header, sizeof header, MSG_NOSIGNAL);
    if (bytes > 0) (void)!send(file, payload, bytes, MSG_NOSIGNAL);
}

/* Whatever is sent here may cost the run nothing. */
static tt_status be_strange(void *argument)
{
    struct stranger *stranger = argument;
    static const char request[] =
        "GET / HTTP/1.1\r\nHost: example\r\nUser-Agent: somebody, 0123456789 0123456789\r\n\r\n";
    struct tt_wire_hello hello = tt_wire_hello_make(2, 0, 1, -1, "here");
    int files[8];
    for (int i = 0; i < 8; i++) files[i] = dial(stranger->port);
    (void)!send(files[0], request, sizeof request, MSG_NOSIGNAL);
    (void)!send(files[1], "tri", 3, MSG_NOSIGNAL);
    send_frame(files[2], TT_WIRE_MAGIC, TT_WIRE_HELLO, UINT64_MAX, &hello, sizeof hello);
    send_frame(files[3], TT_WIRE_MAGIC, TT_WIRE_CALL, 4, "call", 4);
    send_frame(files[4], TT_WIRE_MAGIC, TT_WIRE_HELLO, 3, "abc", 3);
    send_frame(files[5], TT_WIRE_MAGIC, 77, 0, NULL, 0);
    memset(&hello, 0xff, sizeof hello);
    send_frame(files[6], TT_WIRE_MAGIC, TT_WIRE_HELLO, sizeof hello, &hello, sizeof hello);
    hello = tt_wire_hello_make(2, 0, 1, -1, "here");
    strcpy(hello.version, "0.0.1");
    hello.first_rank = 1;
    send_frame(files[7], TT_WIRE_MAGIC, TT_WIRE_HELLO, sizeof hello, &hello, sizeof hello);
    char answer[400] = "";
    ssize_t got = recv(files[7], answer, sizeof answer - 1, MSG_WAITALL);
    if (got > (ssize_t)sizeof(struct tt_wire_header))
        stranger->refused = strstr(answer + sizeof(struct tt_wire_header), "this process 0.0.1") != NULL;
    sleep_seconds(0.3);
    for (int i = 0; i < 8; i++) close(files[i]);
    return TT_OK;
}

static void bytes_from_strangers(void **state)
{
    (void)state;
    struct process processes[2];
    struct tt_thread *thread = NULL;
    prepare(processes, 2, 1, barrier_rank, NULL);
    struct stranger stranger = {.port = processes[0].config.port};
    processes[1].delay = 1.0;
    assert_int_equal(tt_thread_start("stranger", be_strange, &stranger, &thread), TT_OK);
    run(processes, 2);
    assert_int_equal(tt_thread_join(thread), TT_OK);
    expect_ok(processes, 2);
}

/* Says hello as rank 1 should, and then sends what is no message. */
static tt_status be_broken(void *argument)
{
    const struct stranger *stranger = argument;
    struct tt_wire_hello hello = stranger->hello;
    static const char settings[] = "command: train\nlearning_rate: 0.1\nseed: 1\n";
    char first[sizeof hello + sizeof settings];
    memcpy(first, &hello, sizeof hello);
    memcpy(first + sizeof hello, settings, sizeof settings - 1);
    int control = dial(stranger->port), data = dial(stranger->port);
    send_frame(control, TT_WIRE_MAGIC, TT_WIRE_HELLO, sizeof first - 1, first, sizeof first - 1);
    hello.rank = 1;
    send_frame(data, TT_WIRE_MAGIC, TT_WIRE_HELLO, sizeof hello, &hello, sizeof hello);
    char welcome[sizeof(struct tt_wire_header) + 8];
    (void)!recv(control, welcome, sizeof welcome, MSG_WAITALL);
    if (stranger->refused) {
        (void)!send(data, "what is this? what is this? what is this? what is this? what is this?", 64,
                    MSG_NOSIGNAL);
    } else {
        struct tt_wire_header header = {
            .magic = TT_WIRE_MAGIC, .kind = TT_WIRE_CALL, .group = 99, .call = 1234};
        (void)!send(data, &header, sizeof header, MSG_NOSIGNAL);
    }
    sleep_seconds(2);
    close(control);
    close(data);
    return TT_OK;
}

static void a_member_that_sends_no_message(void **state)
{
    (void)state;
    for (int way = 0; way < 2; way++) {
        struct process processes[2];
        struct tt_thread *thread = NULL;
        prepare(processes, 2, 1, barrier_rank, NULL);
        struct stranger stranger = {.port = processes[0].config.port,
                                    .hello = tt_wire_hello_make(2, 1, 1, -1, "odd"),
                                    .refused = way == 1};
        assert_int_equal(tt_thread_start("broken", be_broken, &stranger, &thread), TT_OK);
        run(processes, 1);
        expect(&processes[0], TT_ERR_COMM,
               way == 1 ? "sent bytes that are no message" : "rank 1 made a call");
        assert_false(processes[0].error.told);
        assert_int_equal(tt_thread_join(thread), TT_OK);
    }
}

static tt_status failing_rank(struct tt_comm *comm, void *argument)
{
    (void)argument;
    if (tt_comm_rank(comm) == 1) {
        sleep_seconds(0.2);
        tt_fail(TT_ERR_DATA, "a bad row");
        tt_while("reading rows");
        tt_hint("mend it");
        return TT_ERR_DATA;
    }
    for (;;) TT_TRY(tt_comm_poll(comm)); /* no call: the word comes all the same */
}

static void a_rank_that_fails(void **state)
{
    (void)state;
    struct process processes[4];
    prepare(processes, 4, 1, failing_rank, NULL);
    run(processes, 4);
    expect(&processes[1], TT_ERR_DATA, "a bad row");
    for (int p = 0; p < 4; p += p == 0 ? 2 : 1) {
        expect(&processes[p], TT_ERR_PEER, "rank 1 failed: a bad row");
        assert_string_equal(processes[p].error.context[0], "reading rows");
        assert_string_equal(processes[p].error.hint, "mend it");
        assert_true(processes[p].error.told && processes[p].error.cause == TT_ERR_DATA);
    }
}

static tt_status leaving_rank(struct tt_comm *comm, void *argument)
{
    int leaver = *(const int *)argument;
    if (tt_comm_rank(comm) == leaver) return TT_OK;
    TEST_RANK_CHECK(tt_comm_barrier(comm) == TT_ERR_PEER);
    char wanted[40];
    snprintf(wanted, sizeof wanted, "rank %d", leaver);
    TEST_RANK_CHECK(strstr(tt_error_last()->message, wanted) != NULL);
    return TT_OK;
}

static void a_rank_that_leaves_has_failed(void **state)
{
    (void)state;
    for (int leaver = 0; leaver < 3; leaver++) {
        struct process processes[3];
        prepare(processes, 3, 1, leaving_rank, &leaver);
        run(processes, 3);
        expect_ok(processes, 3);
    }
}

static tt_status differing_rank(struct tt_comm *comm, void *argument)
{
    (void)argument;
    int rank = tt_comm_rank(comm);
    int64_t mine = rank, all[3] = {0};
    tt_status status = rank == 2 ? tt_comm_barrier(comm) : tt_comm_host_all_gather(comm, &mine, all, 8);
    TEST_RANK_CHECK(
        test_failed_with(status, TT_ERR_INTERNAL, "rank 0 calls all-gather of 8 while rank 2 calls barrier"));
    status = tt_comm_host_all_gather(comm, &mine, all, rank == 1 ? 4 : 8);
    TEST_RANK_CHECK(test_failed_with(status, TT_ERR_INTERNAL, "all-gather of 8 while rank 1"));
    TT_TRY(tt_comm_host_all_gather(comm, &mine, all, 8)); /* nothing is broken by it */
    TEST_RANK_CHECK(all[0] == 0 && all[1] == 1 && all[2] == 2);
    return TT_OK;
}

static void ranks_that_call_different_things(void **state)
{
    (void)state;
    struct process processes[3];
    prepare(processes, 3, 1, differing_rank, NULL);
    run(processes, 3);
    expect_ok(processes, 3);
}

static void without_memory(void **state)
{
    (void)state;
    struct process process;
    uint64_t live = tt_alloc_live();
    for (uint64_t nth = 1; nth < 12; nth++) {
        prepare(&process, 1, 1, barrier_rank, NULL);
        process.config.timeout_seconds = 2;
        struct tt_comm *comm = NULL;
        tt_alloc_fail_at(nth);
        tt_status status = tt_comm_create_tcp(&process.config, &comm, process.machines);
        tt_alloc_fail_at(0);
        assert_true((status == TT_OK) == (comm != NULL));
        tt_comm_destroy(comm);
        assert_true(tt_alloc_live() == live);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_bits_as_threads),
        cmocka_unit_test(large_calls),
        cmocka_unit_test(ranks_that_come_late),
        cmocka_unit_test(a_rank_that_never_comes),
        cmocka_unit_test(a_wait_that_is_cancelled),
        cmocka_unit_test(settings_that_differ),
        cmocka_unit_test(worlds_that_differ),
        cmocka_unit_test(two_that_claim_one_rank),
        cmocka_unit_test(bytes_from_strangers),
        cmocka_unit_test(a_member_that_sends_no_message),
        cmocka_unit_test(a_rank_that_fails),
        cmocka_unit_test(a_rank_that_leaves_has_failed),
        cmocka_unit_test(ranks_that_call_different_things),
        cmocka_unit_test(without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
