/* NCCL behind struct tt_collectives_table. libnccl.so.2 is opened when the first communicator is made: a run on
 * one GPU does not need it.
 *
 * Communicators are nonblocking (ncclConfig_t.blocking = 0): no call blocks the host while peers are slow or
 * gone. A call may therefore return before its work is queued on the stream. So each call polls NCCL and the
 * device's check until the work is queued.
 *
 * ncclCommAbort frees the communicator and may be called by another thread: a mutex separates it from the calls,
 * and after an abort the calls fail without using the communicator. ncclCommAbort waits for the GPU, so on a GPU
 * that hangs it would never return. It runs on a thread of its own, and the caller waits for that thread for a
 * few seconds only. */
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wstrict-prototypes"
#include <nccl.h>
#pragma GCC diagnostic pop

#include "backend/cuda/device_parts.h"
#include "base/alloc.h"
#include "base/clock.h"

enum {
    CTAS_MAX = 8,
    VERSION_MIN = 21800, /* 2.18: the first version with this use of a nonblocking communicator's config */
    YIELDS = 2000,       /* of the processor, before a wait begins to sleep */
    YIELDS_PER_CHECK = 64,
    FINALIZE_SECONDS_MAX = 5, /* then the communicator is aborted */
    ABORT_SECONDS_MAX = 3     /* then the abort is left to its thread */
};

#define NCCL_CALLS(CALL)                                                                                     \
    CALL(ncclGetVersion)                                                                                     \
    CALL(ncclGetUniqueId)                                                                                    \
    CALL(ncclCommInitRankConfig)                                                                             \
    CALL(ncclCommGetAsyncError)                                                                              \
    CALL(ncclCommFinalize)                                                                                   \
    CALL(ncclCommDestroy)                                                                                    \
    CALL(ncclCommAbort)                                                                                      \
    CALL(ncclGetErrorString)                                                                                 \
    CALL(ncclGetLastError)                                                                                   \
    CALL(ncclAllGather)                                                                                      \
    CALL(ncclReduceScatter)                                                                                  \
    CALL(ncclAllReduce)                                                                                      \
    CALL(ncclGroupStart)                                                                                     \
    CALL(ncclGroupEnd)                                                                                       \
    CALL(ncclSend)                                                                                           \
    CALL(ncclRecv)

/* Written once, under pthread_once. */
static struct {
#define FIELD(name) __typeof__(&name) name;
    NCCL_CALLS(FIELD)
#undef FIELD
    bool loaded;
    char why_not[400];
} nccl;
static pthread_once_t once = PTHREAD_ONCE_INIT;

struct handle {
    pthread_mutex_t mutex; /* guards the two members below, and every call with `comm` */
    ncclComm_t comm;
    bool aborted; /* `comm` is no longer valid */
    struct tt_device *device;
    int rank, world_size;
};

static bool find_symbol(void *library, const char *name, void *to)
{
    void *symbol = dlsym(library, name);
    if (symbol == NULL) {
        snprintf(nccl.why_not, sizeof nccl.why_not, "libnccl.so.2 has no %s", name);
        return false;
    }
    memcpy(to, &symbol, sizeof symbol); /* ISO C cannot cast a data pointer to a function pointer */
    return true;
}

static void load(void)
{
    /* Multicast over NVLink (NVLS) is off: shared machines forbid it, and gathers do not need it. A variable
     * that is already set has priority. */
    setenv("NCCL_NVLS_ENABLE", "0", 0);
    void *library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        snprintf(nccl.why_not, sizeof nccl.why_not, "%s", dlerror());
        return;
    }
#define FIND(name)                                                                                           \
    if (!find_symbol(library, #name, &nccl.name)) return;
    NCCL_CALLS(FIND)
#undef FIND
    int version = 0;
    if (nccl.ncclGetVersion(&version) != ncclSuccess || version < VERSION_MIN) {
        snprintf(nccl.why_not, sizeof nccl.why_not, "libnccl.so.2 is version %d, and %d is the oldest served",
                 version, (int)VERSION_MIN);
        return;
    }
    nccl.loaded = true;
}

static tt_status need_library(void)
{
    pthread_once(&once, load);
    if (nccl.loaded) return TT_OK;
    tt_fail(TT_ERR_UNSUPPORTED, "several GPUs need NCCL: %s", nccl.why_not);
    tt_hint("install NCCL, or name its folder in LD_LIBRARY_PATH; one GPU (--ranks 1) does not need it");
    return TT_ERR_UNSUPPORTED;
}

/* `comm` may be NULL: NCCL then reports the last error of any communicator. */
static tt_status fail_nccl(ncclResult_t result, ncclComm_t comm, const char *call)
{
    const char *last = nccl.ncclGetLastError(comm);
    const char *more = last != NULL && last[0] != '\0' ? last : "no more is known";
    tt_fail(TT_ERR_COMM, "%s: %s (%s)", call, nccl.ncclGetErrorString(result), more);
    tt_hint("NCCL_DEBUG=WARN makes NCCL log more");
    return TT_ERR_COMM;
}

static tt_status fail_aborted(const char *call)
{
    return tt_fail(TT_ERR_COMM, "%s: the communicator was aborted", call);
}

static void pause_waiting(unsigned waits)
{
    if (waits < YIELDS)
        sched_yield();
    else
        nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
}

/* Ends a call that returned `result`; the mutex is held. Waits until the work is queued on the stream, and
 * unlocks the mutex. */
static tt_status settle(struct handle *handle, ncclResult_t result, const char *call)
{
    struct tt_device *device = handle->device;
    for (unsigned waits = 1; result == ncclInProgress; waits++) {
        ncclResult_t asked = nccl.ncclCommGetAsyncError(handle->comm, &result);
        if (asked != ncclSuccess) result = asked;
        if (result != ncclInProgress) break;
        pthread_mutex_unlock(&handle->mutex);
        pause_waiting(waits);
        if (waits % YIELDS_PER_CHECK == 0 && device->check != NULL)
            TT_TRY(device->check(device->check_context));
        pthread_mutex_lock(&handle->mutex);
        if (handle->aborted) {
            pthread_mutex_unlock(&handle->mutex);
            return fail_aborted(call);
        }
    }
    tt_status status = result == ncclSuccess ? TT_OK : fail_nccl(result, handle->comm, call);
    pthread_mutex_unlock(&handle->mutex);
    return status;
}

/* The end of a collective. */
static tt_status settle_on(struct handle *handle, struct tt_stream *stream, ncclResult_t result,
                           const char *call)
{
    TT_TRY(settle(handle, result, call));
    tt_cuda_wait_queued(stream);
    return TT_OK;
}

/* Holds the mutex when it returns TT_OK. */
static tt_status begin(struct handle *handle, const char *call)
{
    pthread_mutex_lock(&handle->mutex);
    if (!handle->aborted) return TT_OK;
    pthread_mutex_unlock(&handle->mutex);
    return fail_aborted(call);
}

static tt_status begin_on(struct handle *handle, struct tt_stream *stream, const char *call)
{
    TT_TRY(begin(handle, call));
    tt_cuda_wait_begins(stream, TT_CUDA_PROCESSES_SECONDS);
    return TT_OK;
}

static tt_status make_id(unsigned char id[TT_COLLECTIVE_ID_BYTES])
{
    ncclUniqueId unique;
    _Static_assert(sizeof unique.internal == TT_COLLECTIVE_ID_BYTES, "NCCL's id has another size");
    TT_TRY(need_library());
    ncclResult_t result = nccl.ncclGetUniqueId(&unique);
    if (result != ncclSuccess) return fail_nccl(result, NULL, "ncclGetUniqueId");
    memcpy(id, unique.internal, sizeof unique.internal);
    return TT_OK;
}

struct aborting {
    ncclComm_t comm;
    atomic_bool done;
};

static void *abort_main(void *argument)
{
    struct aborting *aborting = argument;
    (void)nccl.ncclCommAbort(aborting->comm);
    atomic_store(&aborting->done, true);
    return NULL;
}

/* Aborts the communicator. When that takes too long its memory is leaked: the process ends soon. */
static void abort_comm(const struct handle *handle)
{
    pthread_t thread;
    if (handle->comm == NULL || tt_cuda_has_hung(handle->device)) return;
    struct aborting *aborting = tt_calloc(1, sizeof *aborting);
    if (aborting != NULL) aborting->comm = handle->comm;
    if (aborting == NULL || pthread_create(&thread, NULL, abort_main, aborting) != 0) {
        tt_free(aborting);
        /* blocking is better than no abort: other ranks wait for this rank */
        (void)nccl.ncclCommAbort(handle->comm);
        return;
    }
    (void)pthread_detach(thread);
    double start = tt_clock_seconds();
    while (!atomic_load(&aborting->done)) {
        if (tt_clock_seconds() - start > ABORT_SECONDS_MAX) return; /* the thread still uses `aborting` */
        nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
    }
    tt_free(aborting);
}

static void abort_handle(void *context)
{
    struct handle *handle = context;
    pthread_mutex_lock(&handle->mutex);
    if (!handle->aborted) abort_comm(handle);
    handle->aborted = true;
    pthread_mutex_unlock(&handle->mutex);
}

static void free_handle(struct handle *handle)
{
    pthread_mutex_destroy(&handle->mutex);
    tt_free(handle);
}

static tt_status create(struct tt_device *device, const unsigned char id[TT_COLLECTIVE_ID_BYTES], int rank,
                        int world_size, void **out)
{
    const struct tt_cuda_device *cuda = device->impl;
    ncclUniqueId unique;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    /* Fewer processors and buffers than NCCL's default. Frozen weights are gathered by copy engines inside a
     * machine. The remaining traffic is small or, in full fine-tuning, runs beside GEMMs that it must not slow
     * down (two H200s: 24 channels slow a GEMM beside them by 16 to 20 %, 8 channels by 6 %; the time per layer
     * is the same). */
    config.maxCTAs = CTAS_MAX;
    TT_TRY(need_library());
    TT_TRY(tt_cuda_check(cudaSetDevice(cuda->index), NULL, "cudaSetDevice"));
    struct handle *handle = tt_calloc(1, sizeof *handle);
    if (handle == NULL) return TT_ERR_MEMORY;
    pthread_mutex_init(&handle->mutex, NULL);
    handle->device = device;
    handle->rank = rank;
    handle->world_size = world_size;
    memcpy(unique.internal, id, sizeof unique.internal);
    pthread_mutex_lock(&handle->mutex);
    ncclResult_t result = nccl.ncclCommInitRankConfig(&handle->comm, world_size, unique, rank, &config);
    tt_status status;
    if (handle->comm != NULL) {
        status = settle(handle, result, "ncclCommInitRankConfig");
    } else {
        pthread_mutex_unlock(&handle->mutex);
        status = fail_nccl(result, NULL, "ncclCommInitRankConfig");
    }
    if (status != TT_OK) {
        abort_handle(handle);
        free_handle(handle);
        return status;
    }
    *out = handle;
    return TT_OK;
}

/* Waits until all queued work is done on all ranks; false when it failed or took too long. */
static bool finalize(struct handle *handle)
{
    const struct tt_device *device = handle->device;
    double start = tt_clock_seconds();
    ncclResult_t result = nccl.ncclCommFinalize(handle->comm);
    for (unsigned waits = 1; result == ncclInProgress; waits++) {
        if (nccl.ncclCommGetAsyncError(handle->comm, &result) != ncclSuccess) return false;
        if (result != ncclInProgress) break;
        if (tt_clock_seconds() - start > FINALIZE_SECONDS_MAX) return false;
        if (waits % YIELDS_PER_CHECK == 0 && device->check != NULL &&
            device->check(device->check_context) != TT_OK)
            return false;
        pause_waiting(waits);
    }
    return result == ncclSuccess;
}

static void destroy(void *context)
{
    struct handle *handle = context;
    if (handle == NULL) return;
    if (!handle->aborted) {
        struct tt_error record; /* a failing end is no news */
        tt_error_copy(&record);
        if (finalize(handle))
            (void)nccl.ncclCommDestroy(handle->comm);
        else
            abort_comm(handle);
        (void)tt_error_restore(&record);
    }
    free_handle(handle);
}

static tt_status check(void *context)
{
    struct handle *handle = context;
    ncclResult_t state = ncclSuccess;
    tt_status status = TT_OK;
    TT_TRY(begin(handle, "NCCL"));
    ncclResult_t result = nccl.ncclCommGetAsyncError(handle->comm, &state);
    if (result == ncclSuccess) result = state;
    if (result != ncclSuccess && result != ncclInProgress) status = fail_nccl(result, handle->comm, "NCCL");
    pthread_mutex_unlock(&handle->mutex);
    return status;
}

static tt_status type_of(tt_dtype dtype, ncclDataType_t *type)
{
    if (dtype == TT_F32)
        *type = ncclFloat32;
    else if (dtype == TT_BF16)
        *type = ncclBfloat16;
    else if (dtype == TT_F64)
        *type = ncclFloat64;
    else if (dtype == TT_I64)
        *type = ncclInt64;
    else
        return tt_fail(TT_ERR_UNSUPPORTED, "sums of %s over GPUs", tt_dtype_name(dtype));
    return TT_OK;
}

static tt_status all_gather(void *context, struct tt_stream *stream, const void *send, void *recv,
                            size_t bytes_per_rank)
{
    struct handle *handle = context;
    TT_TRY(begin_on(handle, stream, "ncclAllGather"));
    ncclResult_t result =
        nccl.ncclAllGather(send, recv, bytes_per_rank, ncclUint8, handle->comm, tt_cuda_handle(stream));
    return settle_on(handle, stream, result, "ncclAllGather");
}

static tt_status reduce_scatter(void *context, struct tt_stream *stream, const void *send, void *recv,
                                size_t count_per_rank, tt_dtype dtype)
{
    struct handle *handle = context;
    ncclDataType_t type;
    TT_TRY(type_of(dtype, &type));
    TT_TRY(begin_on(handle, stream, "ncclReduceScatter"));
    ncclResult_t result = nccl.ncclReduceScatter(send, recv, count_per_rank, type, ncclSum, handle->comm,
                                                 tt_cuda_handle(stream));
    return settle_on(handle, stream, result, "ncclReduceScatter");
}

static tt_status all_reduce(void *context, struct tt_stream *stream, void *data, size_t count, tt_dtype dtype,
                            int reduce)
{
    static const ncclRedOp_t operations[] = {ncclSum, ncclMax, ncclMin};
    struct handle *handle = context;
    ncclDataType_t type;
    TT_TRY(type_of(dtype, &type));
    TT_TRY(begin_on(handle, stream, "ncclAllReduce"));
    ncclResult_t result =
        nccl.ncclAllReduce(data, data, count, type, operations[reduce], handle->comm, tt_cuda_handle(stream));
    return settle_on(handle, stream, result, "ncclAllReduce");
}

/* ncclInProgress: the call has its place in the group; what becomes of it shows after the group's end. */
static bool is_in_group(ncclResult_t result)
{
    return result == ncclSuccess || result == ncclInProgress;
}

/* The group of calls that an exchange is, the mutex held. It is ended after a failure too. */
static ncclResult_t queue_parts(const struct handle *handle, cudaStream_t stream,
                                const struct tt_collective_part *parts)
{
    ncclResult_t result = nccl.ncclGroupStart();
    if (result != ncclSuccess) return result;
    for (int i = 1; i < handle->world_size && is_in_group(result); i++) {
        int to = (handle->rank + i) % handle->world_size,
            from = (handle->rank - i + handle->world_size) % handle->world_size;
        if (parts[to].send_bytes > 0)
            result = nccl.ncclSend(parts[to].send, parts[to].send_bytes, ncclUint8, to, handle->comm, stream);
        if (parts[from].recv_bytes > 0 && is_in_group(result))
            result = nccl.ncclRecv(parts[from].recv, parts[from].recv_bytes, ncclUint8, from, handle->comm,
                                   stream);
    }
    ncclResult_t ended = nccl.ncclGroupEnd();
    return is_in_group(result) ? ended : result;
}

static tt_status exchange(void *context, struct tt_stream *stream, const struct tt_collective_part *parts)
{
    struct handle *handle = context;
    TT_TRY(begin_on(handle, stream, "exchange by ncclSend and ncclRecv"));
    ncclResult_t result = queue_parts(handle, tt_cuda_handle(stream), parts);
    return settle_on(handle, stream, result, "exchange by ncclSend and ncclRecv");
}

const struct tt_collectives_table tt_cuda_collectives = {
    .make_id = make_id,
    .create = create,
    .destroy = destroy,
    .abort = abort_handle,
    .check = check,
    .all_gather = all_gather,
    .reduce_scatter = reduce_scatter,
    .all_reduce = all_reduce,
    .exchange = exchange,
};
