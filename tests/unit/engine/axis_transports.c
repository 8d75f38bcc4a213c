/* What blocks ask along the axes of a run, over every transport of processors (fault/comm_mpi.sh: over MPI), with
 * several axes at once; the plan device counts it; and a process that is killed ends all others with an error that
 * names the axis. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "backend/plan/plan.h"
#include "support/axis_calls.h"
#include "support/must.h"
#include "support/tcp_ranks.h"

enum { WORLD = 4, KILLED = 1, KILLED_IN = 20, TEXT_BYTES = 2048 };

static tt_status calls(struct tt_comm *comm, void *argument)
{
    (void)argument;
    return test_axis_calls(comm);
}

static void over_one_rank_and_threads(void **state)
{
    static const int worlds[] = {1, 2, 3, 4, 6, 8};
    struct tt_comm *self = NULL;
    (void)state;
    test_must(tt_comm_create_self(&self));
    test_must(test_axis_calls(self));
    tt_comm_destroy(self);
    for (int i = 0; i < 6; i++) test_ranks(worlds[i], calls, NULL);
}

static void over_tcp(void **state)
{
    static const int shapes[][2] = {{2, 1}, {4, 1}, {2, 2}, {2, 4}};
    struct test_tcp_process processes[4];
    (void)state;
    for (int i = 0; i < 4; i++) {
        test_tcp_prepare(processes, shapes[i][0], shapes[i][1], calls, NULL);
        test_tcp_run(processes, shapes[i][0]);
        test_tcp_expect_ok(processes, shapes[i][0]);
    }
}

/* Seconds of each call along an axis whose group has `size` of four ranks. */
static void count_calls(int size, double seconds[3])
{
    const struct tt_axis_spec spec = {TT_AXIS_EXPERT, size, false};
    int64_t rows[WORLD] = {0};
    struct tt_device *device = NULL;
    struct tt_stream *stream = NULL;
    struct tt_comm *world = NULL;
    struct tt_mesh mesh = {0};
    struct tt_axis_exchange exchange = {0};
    test_must(tt_device_open(&(struct tt_device_config){.kind = "plan", .stands_for = "h200", .threads = 1},
                             &device));
    test_must(tt_stream_create(device, &stream));
    test_must(tt_comm_create_planned(WORLD, WORLD, &world));
    const struct tt_mesh_config config = {
        .world = world, .shard_comm = world, .axes = {&spec, 1}, .strategy = TT_FULL_SHARD};
    test_must(tt_mesh_init(&config, device, &mesh));
    test_must(tt_axis_exchange_init(&mesh, &exchange));
    const int64_t each = 1 << 16;
    struct tt_buffer *memory = NULL;
    test_must(tt_buffer_create(device, (size_t)each * 64 * WORLD * sizeof(float), TT_PURPOSE_BATCH, &memory));
    float *data = tt_buffer_data(memory);
    for (int q = 0; q < size; q++) rows[q] = each;
    tt_tensor part = tt_tensor_2d(data, TT_F32, each, 16), all = tt_tensor_2d(data, TT_F32, each * size, 16);
    const struct tt_all_to_all travel = {all, tt_tensor_2d(data + each * 32 * WORLD, TT_F32, each * size, 16),
                                         rows, rows};
    double before = tt_plan_seconds(device);
    for (int i = 0; i < 3; i++) {
        if (i == 0) test_must(tt_axis_sum(&exchange, stream, TT_AXIS_EXPERT, part));
        if (i == 1) test_must(tt_axis_gather(&exchange, stream, TT_AXIS_EXPERT, part, all));
        if (i == 2) test_must(tt_axis_all_to_all(&exchange, stream, TT_AXIS_EXPERT, &travel));
        test_must(tt_stream_synchronize(stream));
        seconds[i] = tt_plan_seconds(device) - before;
        before += seconds[i];
    }
    tt_buffer_destroy(memory);
    tt_axis_exchange_deinit(&exchange);
    tt_mesh_deinit(&mesh);
    tt_comm_destroy(world);
    tt_stream_destroy(stream);
    tt_device_close(device);
}

/* A larger group sends more. */
static void over_the_plan_device(void **state)
{
    double two[3], four[3];
    (void)state;
    count_calls(2, two);
    count_calls(4, four);
    for (int i = 0; i < 3; i++) assert_true(two[i] > 0 && four[i] > two[i]);
}

/* ---- A process that is killed ---- */

static tt_status exchange_until_the_end(const struct test_axis_desk *desk, int rank)
{
    float send[2] = {1, 2}, recv[2];
    const int64_t one[] = {1, 1};
    const struct tt_all_to_all rows = {tt_tensor_2d(send, TT_F32, 2, 1), tt_tensor_2d(recv, TT_F32, 2, 1),
                                       one, one};
    for (int round = 0;; round++) {
        if (rank == KILLED && round == KILLED_IN) kill(getpid(), SIGKILL);
        TT_TRY(tt_axis_all_to_all(&desk->exchange, desk->stream, TT_AXIS_EXPERT, &rows));
    }
}

static tt_status run_process(const struct tt_tcp_config *config)
{
    struct tt_comm *comm = NULL;
    struct test_axis_desk desk;
    int machines[WORLD];
    TT_TRY(tt_comm_create_tcp(config, &comm, machines));
    TT_TRY(test_axis_open(comm, &desk));
    return exchange_until_the_end(&desk, tt_comm_rank(comm));
}

/* The child writes its error, and ends as a program that failed. */
static pid_t start_process(const struct tt_tcp_config *config, int *from)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child > 0) {
        close(ends[1]);
        *from = ends[0];
        return child;
    }
    char text[TEXT_BYTES];
    (void)alarm(100);
    (void)run_process(config);
    (void)tt_error_format(tt_error_last(), text, sizeof text);
    (void)!write(ends[1], text, strlen(text));
    _exit(1);
}

/* A survivor may name another survivor that ended before it; the first to end names the killed rank. */
static void a_process_that_is_killed(void **state)
{
    struct test_tcp_process processes[WORLD];
    pid_t children[WORLD];
    int from[WORLD];
    (void)state;
    test_tcp_prepare(processes, WORLD, 1, calls, NULL);
    for (int p = 0; p < WORLD; p++) children[p] = start_process(&processes[p].config, &from[p]);
    bool named = false;
    for (int p = 0; p < WORLD; p++) {
        char text[TEXT_BYTES] = {0};
        size_t bytes = 0;
        for (ssize_t got = 1; got > 0 && bytes < sizeof text - 1; bytes += (size_t)got)
            if ((got = read(from[p], text + bytes, sizeof text - 1 - bytes)) < 0) got = 0;
        int status = 0;
        close(from[p]);
        assert_int_equal(waitpid(children[p], &status, 0), children[p]);
        if (p == KILLED) {
            assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
            continue;
        }
        if (strstr(text, "rank ") == NULL || strstr(text, "exchanging rows along the axis 'expert'") == NULL)
            fail_msg("rank %d ends with: %s", p, text);
        named = named || strstr(text, "rank 1 ") != NULL;
    }
    assert_true(named);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_process_that_is_killed), /* first: a process forks before it has threads */
        cmocka_unit_test(over_one_rank_and_threads),
        cmocka_unit_test(over_tcp),
        cmocka_unit_test(over_the_plan_device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
