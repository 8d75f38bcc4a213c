/* A plugin that claims four GPUs and computes on the CPU, so that the program's handling of GPUs (choice of devices,
 * NCCL's communicators, pulling shards, failures) is tested on machines without any. Collectives exchange data in the
 * memory of the process. They wait like the real ones, poll the device's check, and end when they are aborted.
 *
 * FAKE_PEER: GPUs access each other's memory. FAKE_DISORDER: NCCL's sums begin with the last rank. FAKE_FAIL=R: rank
 * R's communicator cannot be created. FAKE_HANG=N: after N calls rank 1 does not come to its collectives until they
 * are aborted. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "backend/chips.h"
#include "backend/plugin.h"
#include "base/alloc.h"
#include "comm/comm_impl.h"

#define PRETEND_GPUS 4
#include "pretend_gpus.h"

enum { RANKS_MAX = 16 };

/* All ranks with one id. */
struct meeting {
    struct meeting *next;
    unsigned char id[TT_COLLECTIVE_ID_BYTES];
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    int world_size;
    int arrived;
    uint64_t rounds;
    const void *data[RANKS_MAX]; /* of an exchange: the parts of each rank */
};

struct handle {
    struct meeting *meeting;
    struct tt_device *device;
    int rank;
    int calls;
    bool aborted;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct meeting *meetings;
static uint64_t ids;

static int number_from(const char *name, int otherwise)
{
    const char *text = getenv(name);
    return text != NULL ? atoi(text) : otherwise;
}

static tt_status look(const struct handle *handle)
{
    if (handle->aborted) return tt_fail(TT_ERR_COMM, "the fake communicator was aborted");
    const struct tt_device *device = handle->device;
    return device->check != NULL ? device->check(device->check_context) : TT_OK;
}

static void nap(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
}

/* Waits until all ranks are here. */
static tt_status meet(struct handle *handle)
{
    struct meeting *meeting = handle->meeting;
    pthread_mutex_lock(&meeting->mutex);
    uint64_t round = meeting->rounds;
    if (++meeting->arrived == meeting->world_size) {
        meeting->arrived = 0;
        meeting->rounds++;
    }
    while (meeting->rounds == round) {
        pthread_mutex_unlock(&meeting->mutex);
        TT_TRY(look(handle));
        nap();
        pthread_mutex_lock(&meeting->mutex);
    }
    pthread_mutex_unlock(&meeting->mutex);
    return TT_OK;
}

static tt_status enter(struct handle *handle, const void *data)
{
    handle->calls++;
    while (handle->rank == 1 && handle->calls > number_from("FAKE_HANG", 1 << 30)) {
        TT_TRY(look(handle));
        nap();
    }
    handle->meeting->data[handle->rank] = data;
    return meet(handle);
}

static tt_status make_id(unsigned char id[TT_COLLECTIVE_ID_BYTES])
{
    pthread_mutex_lock(&mutex);
    ids++;
    memset(id, 0, TT_COLLECTIVE_ID_BYTES);
    memcpy(id, &ids, sizeof ids);
    pthread_mutex_unlock(&mutex);
    return TT_OK;
}

static struct meeting *find_meeting(const unsigned char *id, int world_size)
{
    pthread_mutex_lock(&mutex);
    struct meeting *meeting = meetings;
    while (meeting != NULL && memcmp(meeting->id, id, sizeof meeting->id) != 0) meeting = meeting->next;
    if (meeting == NULL) {
        meeting = calloc(1, sizeof *meeting); /* lives as long as the process */
        if (meeting == NULL) abort();
        memcpy(meeting->id, id, sizeof meeting->id);
        meeting->world_size = world_size;
        pthread_mutex_init(&meeting->mutex, NULL);
        meeting->next = meetings;
        meetings = meeting;
    }
    pthread_mutex_unlock(&mutex);
    return meeting;
}

static tt_status create(struct tt_device *device, const unsigned char id[TT_COLLECTIVE_ID_BYTES], int rank,
                        int world_size, void **out)
{
    if (number_from("FAKE_FAIL", -1) == rank)
        return tt_fail(TT_ERR_COMM, "the fake communicator cannot be made");
    struct handle *handle = tt_calloc(1, sizeof *handle);
    if (handle == NULL) return TT_ERR_MEMORY;
    *handle = (struct handle){.meeting = find_meeting(id, world_size), .device = device, .rank = rank};
    tt_status status = meet(handle);
    if (status != TT_OK) {
        tt_free(handle);
        return status;
    }
    *out = handle;
    return TT_OK;
}

static void destroy(void *context)
{
    tt_free(context);
}

static void abort_handle(void *context)
{
    ((struct handle *)context)->aborted = true;
}

static tt_status check(void *context)
{
    const struct handle *handle = context;
    return handle->aborted ? tt_fail(TT_ERR_COMM, "the fake communicator was aborted") : TT_OK;
}

static tt_status all_gather(void *context, struct tt_stream *stream, const void *send, void *recv,
                            size_t bytes)
{
    struct handle *handle = context;
    (void)stream;
    TT_TRY(enter(handle, send));
    for (int q = 0; q < handle->meeting->world_size; q++) {
        char *to = (char *)recv + (size_t)q * bytes;
        if (to != handle->meeting->data[q]) memcpy(to, handle->meeting->data[q], bytes);
    }
    return meet(handle);
}

/* Stores the sum of `count` elements from `offset` of all ranks' data in `to`, after all have read. */
static tt_status sum(struct handle *handle, const void *data, void *to, size_t offset, size_t count,
                     tt_dtype dtype, int reduce)
{
    size_t bytes = count * tt_dtype_bytes(dtype);
    char *own = tt_alloc_aligned(bytes);
    if (own == NULL) return TT_ERR_MEMORY;
    tt_status status = enter(handle, data);
    if (status == TT_OK) {
        int world_size = handle->meeting->world_size;
        const void *from[RANKS_MAX];
        for (int q = 0; q < world_size; q++)
            from[q] = handle->meeting->data[getenv("FAKE_DISORDER") != NULL ? world_size - 1 - q : q];
        tt_reduce_ordered(own, from, world_size, offset, count, dtype, (enum tt_reduce)reduce);
        status = meet(handle);
    }
    if (status == TT_OK) memcpy(to, own, bytes);
    tt_free(own);
    return status;
}

static tt_status reduce_scatter(void *context, struct tt_stream *stream, const void *send, void *recv,
                                size_t count, tt_dtype dtype)
{
    struct handle *handle = context;
    (void)stream;
    return sum(handle, send, recv, (size_t)handle->rank * count, count, dtype, TT_REDUCE_SUM);
}

static tt_status all_reduce(void *context, struct tt_stream *stream, void *data, size_t count, tt_dtype dtype,
                            int reduce)
{
    (void)stream;
    return sum(context, data, data, 0, count, dtype, reduce);
}

static tt_status exchange(void *context, struct tt_stream *stream, const struct tt_collective_part *parts)
{
    struct handle *handle = context;
    (void)stream;
    TT_TRY(enter(handle, parts));
    for (int q = 0; q < handle->meeting->world_size; q++) {
        const struct tt_collective_part *theirs = handle->meeting->data[q];
        if (q != handle->rank && parts[q].recv_bytes > 0)
            memcpy(parts[q].recv, theirs[handle->rank].send, parts[q].recv_bytes);
    }
    return meet(handle);
}

static const struct tt_collectives_table collectives = {
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

static bool enable_peer(int from, int to)
{
    return from == to || getenv("FAKE_PEER") != NULL;
}

static tt_status open_device(struct tt_device *device, const struct tt_device_config *config)
{
    TT_TRY(tt_cpu_device_table.open(device, config));
    device->is_host = false;
    device->chip = tt_chip_find("h200");
    return TT_OK;
}

static tt_status synchronize_event(struct tt_event *event)
{
    (void)event;
    return TT_OK;
}

static tt_status query_event(struct tt_event *event, bool *done)
{
    (void)event;
    *done = true;
    return TT_OK;
}

TT_PUBLIC tt_plugin_entry tt_cuda_plugin;

const struct tt_plugin *tt_cuda_plugin(const struct tt_host *host)
{
    static struct tt_device_table device;
    static struct tt_plugin plugin;
    device = tt_cpu_device_table;
    device.kind = "cuda";
    device.open = open_device;
    device.event_synchronize = synchronize_event;
    device.event_query = query_event;
    plugin = (struct tt_plugin){
        .device = &device,
        .collectives = &collectives,
        .enable_peer = enable_peer,
    };
    return pretend_plugin(host, &plugin);
}
