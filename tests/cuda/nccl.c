/* The end of communicators: backend/cuda/nccl.c beside an NCCL of this file, whose abort waits for the GPU as
 * the real one does. Where that hangs the process must end all the same. And exchanges: one group of calls, which is
 * ended even when one of them fails, since the next collective would else belong to it.
 * sources: nccl */
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wstrict-prototypes"
#include <nccl.h>
#pragma GCC diagnostic pop

#include "backend/cuda/device_parts.h"
#include "base/clock.h"

static const double soon_seconds = 1.0, patience_seconds = 10.0;
static sem_t gpu; /* as often as an abort may return */
static bool hung;
static atomic_int aborts, aborts_done, collectives;

/* ---- NCCL ---- */

#define FAKE(name, parameters) static ncclResult_t fake_##name parameters

FAKE(ncclGetVersion, (int *version))
{
    *version = 22800;
    return ncclSuccess;
}

FAKE(ncclCommInitRankConfig, (ncclComm_t * comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t *config))
{
    (void)ranks, (void)id, (void)rank, (void)config;
    *comm = (ncclComm_t)&gpu;
    return ncclSuccess;
}

FAKE(ncclCommGetAsyncError, (ncclComm_t comm, ncclResult_t *state))
{
    (void)comm;
    *state = ncclSuccess;
    return ncclSuccess;
}

FAKE(ncclCommAbort, (ncclComm_t comm))
{
    (void)comm;
    atomic_fetch_add(&aborts, 1);
    sem_wait(&gpu);
    atomic_fetch_add(&aborts_done, 1);
    return ncclSuccess;
}

FAKE(ncclAllReduce, (const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op,
                     ncclComm_t comm, cudaStream_t stream))
{
    (void)send, (void)recv, (void)count, (void)type, (void)op, (void)comm, (void)stream;
    atomic_fetch_add(&collectives, 1);
    return ncclSuccess;
}

/* What the group that ended last had in it: a line for each call. */
static struct {
    int depth, groups, fails_at, calls;
    char text[400];
} group;

FAKE(ncclGroupStart, (void))
{
    group.depth++;
    group.calls = 0;
    group.text[0] = '\0';
    return ncclSuccess;
}

FAKE(ncclGroupEnd, (void))
{
    group.depth--;
    group.groups++;
    return ncclSuccess;
}

static ncclResult_t put_into_group(const char *what, const void *data, size_t bytes, ncclDataType_t type,
                                   int peer)
{
    size_t used = strlen(group.text);
    if (group.depth != 1 || type != ncclUint8) abort();
    snprintf(group.text + used, sizeof group.text - used, "%s %d %s %zu;", what, peer, (const char *)data,
             bytes);
    return ++group.calls == group.fails_at ? ncclInvalidArgument : ncclSuccess;
}

FAKE(ncclSend,
     (const void *data, size_t bytes, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream))
{
    (void)comm, (void)stream;
    return put_into_group("to", data, bytes, type, peer);
}

FAKE(ncclRecv,
     (void *data, size_t bytes, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream))
{
    (void)comm, (void)stream;
    return put_into_group("from", data, bytes, type, peer);
}

static const char *fake_ncclGetLastError(ncclComm_t comm)
{
    (void)comm;
    return "";
}

static const char *fake_ncclGetErrorString(ncclResult_t result)
{
    return result == ncclInvalidArgument ? "invalid argument" : "another error";
}

static ncclResult_t not_called(void)
{
    abort();
}

void *dlopen(const char *name, int mode)
{
    (void)mode;
    return name != NULL && strcmp(name, "libnccl.so.2") == 0 ? &gpu : NULL;
}

void *dlsym(void *library, const char *name)
{
    static const struct {
        const char *name;
        void (*function)(void);
    } known[] = {
#define KNOWN(name) {#name, (void (*)(void))fake_##name}
        KNOWN(ncclGetVersion),
        KNOWN(ncclCommInitRankConfig),
        KNOWN(ncclCommGetAsyncError),
        KNOWN(ncclCommAbort),
        KNOWN(ncclAllReduce),
        KNOWN(ncclGroupStart),
        KNOWN(ncclGroupEnd),
        KNOWN(ncclSend),
        KNOWN(ncclRecv),
        KNOWN(ncclGetLastError),
        KNOWN(ncclGetErrorString),
    };
    void (*function)(void) = (void (*)(void))not_called;
    void *symbol;
    if (library != &gpu) return NULL;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(known[i].name, name) == 0) function = known[i].function;
    memcpy(&symbol, &function, sizeof symbol);
    return symbol;
}

/* ---- What nccl.c has of its neighbours ---- */

cudaError_t cudaSetDevice(int index)
{
    (void)index;
    return cudaSuccess;
}

tt_status tt_cuda_check(cudaError_t error, const struct tt_stream *stream, const char *what)
{
    (void)stream;
    return error == cudaSuccess ? TT_OK : tt_fail(TT_ERR_DEVICE, "%s", what);
}

void tt_cuda_wait_begins(struct tt_stream *stream, int seconds_max)
{
    (void)stream, (void)seconds_max;
}

void tt_cuda_wait_queued(struct tt_stream *stream)
{
    (void)stream;
}

bool tt_cuda_has_hung(const struct tt_device *device)
{
    (void)device;
    return hung;
}

/* ---- Tests ---- */

struct fixture {
    struct tt_cuda_device cuda;
    struct tt_device device;
    struct tt_cuda_stream own;
    struct tt_stream stream;
    void *handle;
};

static int set_up(void **state)
{
    static const unsigned char id[TT_COLLECTIVE_ID_BYTES];
    struct fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    f->device.impl = &f->cuda;
    f->stream = (struct tt_stream){.device = &f->device, .impl = &f->own};
    hung = false;
    aborts = aborts_done = collectives = 0;
    sem_init(&gpu, 0, 0);
    assert_int_equal(tt_cuda_collectives.create(&f->device, id, 0, 2, &f->handle), TT_OK);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    free(*state);
    return 0;
}

static tt_status add_up(struct fixture *f)
{
    static float value;
    return tt_cuda_collectives.all_reduce(f->handle, &f->stream, &value, 1, TT_F32, 0);
}

/* Seconds of the abort. After it no call reaches NCCL, and the end waits for nothing. */
static double abort_and_end(struct fixture *f)
{
    double begin = tt_clock_seconds();
    assert_int_equal(add_up(f), TT_OK);
    tt_cuda_collectives.abort(f->handle);
    double seconds = tt_clock_seconds() - begin;
    assert_int_equal(add_up(f), TT_ERR_COMM);
    assert_int_equal(tt_cuda_collectives.check(f->handle), TT_ERR_COMM);
    assert_int_equal(collectives, 1);
    begin = tt_clock_seconds();
    tt_cuda_collectives.abort(f->handle);
    tt_cuda_collectives.destroy(f->handle);
    assert_true(tt_clock_seconds() - begin < soon_seconds);
    return seconds;
}

static void an_abort_is_waited_for(void **state)
{
    sem_post(&gpu);
    assert_true(abort_and_end(*state) < soon_seconds);
    assert_int_equal(aborts_done, 1);
}

static void not_on_a_gpu_that_hangs(void **state)
{
    hung = true;
    assert_true(abort_and_end(*state) < soon_seconds);
    assert_int_equal(aborts, 0);
}

/* Nobody knows yet that it does. */
static void one_that_does_not_return_is_left_alone(void **state)
{
    assert_true(abort_and_end(*state) < patience_seconds);
    assert_int_equal(aborts, 1);
    assert_int_equal(aborts_done, 0);
    sem_post(&gpu); /* the thread is let go */
    while (aborts_done == 0) sched_yield();
}

/* Rank 1 of 3 sends "b" to rank 0 and receives from both. What stands at its own place is not looked at. */
static void an_exchange_is_one_group(void **state)
{
    static const unsigned char id[TT_COLLECTIVE_ID_BYTES];
    struct fixture *f = *state;
    char from0[] = "x", from2[] = "y", own[] = "own";
    const struct tt_collective_part parts[3] = {
        {.send = "b", .send_bytes = 5, .recv = from0, .recv_bytes = 3},
        {.send = own, .send_bytes = 7, .recv = own, .recv_bytes = 7},
        {.recv = from2, .recv_bytes = 9},
    };
    void *handle = NULL;
    memset(&group, 0, sizeof group);
    sem_post(&gpu);
    sem_post(&gpu);
    assert_int_equal(tt_cuda_collectives.create(&f->device, id, 1, 3, &handle), TT_OK);
    assert_int_equal(tt_cuda_collectives.exchange(handle, &f->stream, parts), TT_OK);
    assert_string_equal(group.text, "from 0 x 3;to 0 b 5;from 2 y 9;");
    assert_int_equal(group.depth, 0);
    for (group.fails_at = 1; group.fails_at <= 3; group.fails_at++) {
        assert_int_equal(tt_cuda_collectives.exchange(handle, &f->stream, parts), TT_ERR_COMM);
        assert_non_null(strstr(tt_error_last()->message, "invalid argument"));
        assert_int_equal(group.calls, group.fails_at); /* no call comes after the one that failed */
        assert_int_equal(group.depth, 0);
    }
    assert_int_equal(group.groups, 4);
    tt_cuda_collectives.abort(handle);
    tt_cuda_collectives.destroy(handle);
    assert_int_equal(tt_cuda_collectives.exchange(f->handle, &f->stream, parts), TT_OK); /* rank 0 of 2 */
    assert_string_equal(group.text, "to 1 own 7;from 1 own 7;");
    tt_cuda_collectives.abort(f->handle);
    tt_cuda_collectives.destroy(f->handle);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(an_exchange_is_one_group, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_abort_is_waited_for, set_up, tear_down),
        cmocka_unit_test_setup_teardown(not_on_a_gpu_that_hangs, set_up, tear_down),
        cmocka_unit_test_setup_teardown(one_that_does_not_return_is_left_alone, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
