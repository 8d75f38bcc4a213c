/* Who hangs and who waits: backend/cuda/watch.c beside a CUDA runtime of this file, whose streams get on when
 * the test says so. A stream that has not come to its wait for other ranks hangs by itself; one that stands
 * at it may do so for long; and afterwards it has time anew.
 * sources: watch marks */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

#include "backend/cuda/fault.h"
#include "backend/cuda/marks.h"
#include "backend/cuda/device_parts.h"

enum { LONG_SECONDS = 60 };
static const double hang_seconds = 0.3;

/* A stream of the runtime counts what is queued, and what of it is done. */
struct CUstream_st {
    uint64_t queued;
    _Atomic uint64_t done;
};
struct CUevent_st {
    struct CUstream_st *stream; /* NULL: never recorded */
    uint64_t number;
};

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
    (void)flags;
    *event = calloc(1, sizeof **event);
    return *event != NULL ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    free(event);
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    event->stream = stream;
    event->number = ++stream->queued;
    return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    bool done = event->stream == NULL || atomic_load(&event->stream->done) >= event->number;
    return done ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    return atomic_load(&stream->done) >= stream->queued ? cudaSuccess : cudaErrorNotReady;
}

tt_status tt_cuda_check(cudaError_t error, const struct tt_stream *stream, const char *what)
{
    (void)stream;
    return error == cudaSuccess ? TT_OK : tt_fail(TT_ERR_DEVICE, "%s", what);
}

uint64_t tt_cuda_fault_mark(int device_index)
{
    (void)device_index;
    return 0;
}

void tt_cuda_hang(struct tt_stream *stream)
{
    (void)stream;
}

struct fixture {
    struct tt_cuda_device cuda;
    struct tt_device device;
    struct CUstream_st queues[2];
    struct tt_cuda_stream of[2];
    struct tt_stream compute, copies;
    double later;      /* after so many seconds */
    uint64_t progress; /* the compute stream has done so much */
};

static int set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    strcpy(f->device.name, "cuda:0");
    f->device.impl = &f->cuda;
    for (int i = 0; i < 2; i++) f->of[i].stream = &f->queues[i];
    f->compute = (struct tt_stream){.device = &f->device, .impl = &f->of[0], .kind = TT_STREAM_COMPUTE};
    f->copies = (struct tt_stream){.device = &f->device, .impl = &f->of[1], .kind = TT_STREAM_COPY};
    assert_int_equal(tt_cuda_marks_create(&f->cuda.marks), cudaSuccess);
    assert_int_equal(tt_cuda_watch_create(0, hang_seconds, &f->cuda.watch), TT_OK);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    tt_cuda_watch_destroy(f->cuda.watch);
    tt_cuda_marks_destroy(f->cuda.marks);
    free(f);
    return 0;
}

static void queue_wait(struct tt_stream *stream)
{
    tt_cuda_wait_begins(stream, LONG_SECONDS);
    tt_cuda_wait_queued(stream);
}

static void rest(double seconds)
{
    struct timespec pause = {.tv_sec = (time_t)seconds,
                             .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9)};
    nanosleep(&pause, NULL);
}

static void expect_hang(struct fixture *f, const char *where)
{
    double begin = tt_clock_seconds();
    assert_int_equal(tt_cuda_wait(&f->compute), TT_ERR_DEVICE);
    double seconds = tt_clock_seconds() - begin;
    assert_true(seconds > 0.9 * hang_seconds && seconds < 20 * hang_seconds);
    assert_non_null(strstr(tt_error_last()->message, where));
    assert_true(tt_cuda_is_stuck(&f->device));
    assert_true(tt_cuda_has_hung(&f->device));
}

static void work_that_does_not_end_hangs(void **state)
{
    struct fixture *f = *state;
    tt_cuda_mark(&f->compute, "forward of layer 1"); /* 1 */
    tt_cuda_mark(&f->compute, "forward of layer 2"); /* 2 */
    atomic_store(&f->queues[0].done, 1);
    expect_hang(f, "forward of layer 1");
}

/* Though waits for others are queued behind it, on both streams. */
static void a_wait_that_is_not_reached_is_no_excuse(void **state)
{
    struct fixture *f = *state;
    tt_cuda_mark(&f->compute, "forward of layer 1"); /* 1 */
    queue_wait(&f->compute);                         /* 2, 3 */
    queue_wait(&f->copies);                          /* 1, 2 */
    queue_wait(&f->compute);
    atomic_store(&f->queues[0].done, 1);
    expect_hang(f, "forward of layer 1");
}

static void *go_on(void *argument)
{
    struct fixture *f = argument;
    rest(f->later);
    atomic_store(&f->queues[0].done, f->progress);
    rest(0.6 * hang_seconds); /* the next kernel takes its time, but no more */
    atomic_store(&f->queues[0].done, f->queues[0].queued);
    return NULL;
}

/* Other ranks come late; what follows has its own time again. */
static void one_that_is_reached_may_take_long(void **state)
{
    struct fixture *f = *state;
    pthread_t thread;
    tt_cuda_mark(&f->compute, "forward of layer 1");     /* 1 */
    queue_wait(&f->compute);                             /* 2, 3 */
    tt_cuda_mark(&f->compute, "the optimizer's update"); /* 4 */
    atomic_store(&f->queues[0].done, 2);
    f->later = 4 * hang_seconds;
    f->progress = 3;
    assert_int_equal(pthread_create(&thread, NULL, go_on, f), 0);
    assert_int_equal(tt_cuda_wait(&f->compute), TT_OK);
    pthread_join(thread, NULL);
    assert_false(tt_cuda_is_stuck(&f->device));
}

static void on_a_stream_of_copies_too(void **state)
{
    struct fixture *f = *state;
    pthread_t thread;
    tt_cuda_mark(&f->compute, "forward of layer 1");
    queue_wait(&f->copies);
    atomic_store(&f->queues[1].done, 1); /* it stands at the wait */
    f->later = 4 * hang_seconds;
    f->progress = 1;
    assert_int_equal(pthread_create(&thread, NULL, go_on, f), 0);
    assert_int_equal(tt_cuda_wait(&f->compute), TT_OK);
    pthread_join(thread, NULL);
}

/* More than are remembered: nothing is told too early, and the ring goes on. */
static void many_waits(void **state)
{
    struct fixture *f = *state;
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 1500; i++) queue_wait(&f->compute);
        tt_cuda_mark(&f->compute, "forward of layer 1");
        atomic_store(&f->queues[0].done, f->queues[0].queued);
        assert_int_equal(tt_cuda_wait(&f->compute), TT_OK);
    }
    tt_cuda_mark(&f->compute, "forward of layer 2");
    queue_wait(&f->compute);
    expect_hang(f, "forward of layer 1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(work_that_does_not_end_hangs, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_wait_that_is_not_reached_is_no_excuse, set_up, tear_down),
        cmocka_unit_test_setup_teardown(one_that_is_reached_may_take_long, set_up, tear_down),
        cmocka_unit_test_setup_teardown(on_a_stream_of_copies_too, set_up, tear_down),
        cmocka_unit_test_setup_teardown(many_waits, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
