/* A plugin that claims eight GPUs whose streams are threads. A call puts its work into a queue and returns; a worker
 * does it later, in the order of its stream. Two streams are ordered only by the events that the program records and
 * waits for, on GPUs of other ranks too. The ops of the CPU do the work. So a missing event gives wrong numbers, or,
 * when program and plugin are built for it, a data race that ThreadSanitizer reports regardless of the timing: a worker
 * synchronizes with the host only where the host waits.
 *
 * All GPUs access each other's memory; there are no collectives (NCCL).
 * LATE_SLOW=compute|copy|even|odd: streams of that kind, or of GPUs with such a number, pause before each piece of
 * work. LATE_FAIL=G:N: the Nth piece of work of GPU G fails when it is queued. LATE_QUEUE=N: a stream's queue has N
 * places, every call takes the lock of its GPU, a copy from another GPU also that GPU's, and a call that finds its
 * queue full waits with its lock held, as the driver seems to do. LATE_COUNT=1: prints at the end the numbers of queued
 * waits, of calls that found a full queue, of copies that had to wait for such a call, and of copies between GPUs that
 * were queued behind a wait for an event of their own GPU that was still to come. */
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "backend/chips.h"
#include "backend/plugin.h"
#include "base/alloc.h"
#include "base/clock.h"

#define PRETEND_GPUS 8
#include "late_streams.h"
#include "pretend_gpus.h"

static tt_status count_call(const struct tt_stream *stream)
{
    struct late_device *device = stream->device->impl;
    if (++device->calls != device->fails_at) return TT_OK;
    return tt_fail(TT_ERR_DEVICE, "the fake GPU %d stops working", stream->device->index);
}

static tt_status look(struct tt_device *device, int round)
{
    if (round % CHECK_ROUNDS != 0 || device->check == NULL) return TT_OK;
    return device->check(device->check_context);
}

static tt_status synchronize(struct tt_stream *stream)
{
    struct late_stream *late = late_of(stream);
    for (int round = 1; atomic_load_explicit(&late->done, memory_order_acquire) < late->queued; round++) {
        TT_TRY(look(stream->device, round));
        nap(20);
    }
    return TT_OK;
}

static void drain(const struct tt_device *device)
{
    const struct late_device *late = device->impl;
    for (struct late_stream *stream = late->streams; stream != NULL; stream = stream->next)
        while (atomic_load_explicit(&stream->done, memory_order_acquire) < stream->queued) nap(20);
}

/* ---- Devices and streams ---- */

static bool is_slow(const struct tt_device *device, enum tt_stream_kind kind)
{
    const char *slow = getenv("LATE_SLOW");
    if (slow == NULL) return false;
    if (strcmp(slow, "compute") == 0) return kind == TT_STREAM_COMPUTE;
    if (strcmp(slow, "copy") == 0) return kind == TT_STREAM_COPY;
    return device->index % 2 == (strcmp(slow, "odd") == 0);
}

static tt_status stream_create(struct tt_device *device, enum tt_stream_kind kind, void **impl)
{
    struct late_device *late = device->impl;
    struct tt_device_config config = {.kind = "cpu", .index = device->index, .threads = late->threads};
    struct late_stream *stream = calloc(1, sizeof *stream);
    if (stream == NULL) return TT_ERR_MEMORY;
    stream->owner = late;
    stream->cpu.table = &tt_cpu_device_table;
    tt_status status = tt_cpu_device_table.open(&stream->cpu, &config);
    if (status != TT_OK) {
        free(stream);
        return status;
    }
    stream->on_cpu = (struct tt_stream){.device = &stream->cpu, .kind = kind};
    stream->head = stream->tail = calloc(1, sizeof *stream->tail);
    if (stream->tail == NULL) abort();
    stream->rest = is_slow(device, kind) ? 1 : 7;
    sem_init(&stream->work_there, 0, 0);
    stream->next = late->streams;
    late->streams = stream;
    if (pthread_create(&stream->worker, NULL, work_off, stream) != 0) abort();
    *impl = stream;
    return TT_OK;
}

static void stream_destroy(struct tt_device *device, void *impl)
{
    struct late_device *late = device->impl;
    struct late_stream *stream = impl, **link = &late->streams;
    push(stream, NULL, NULL, 0);
    pthread_join(stream->worker, NULL);
    while (*link != stream) link = &(*link)->next;
    *link = stream->next;
    tt_cpu_device_table.close(&stream->cpu);
    sem_destroy(&stream->work_there);
    free(stream);
}

static tt_status open_device(struct tt_device *device, const struct tt_device_config *config)
{
    struct late_device *late = calloc(1, sizeof *late);
    const char *fails = getenv("LATE_FAIL");
    if (late == NULL) return TT_ERR_MEMORY;
    if (fails != NULL && atoi(fails) == config->index && strchr(fails, ':') != NULL)
        late->fails_at = atoll(strchr(fails, ':') + 1);
    late->threads = 1;
    pthread_mutex_init(&late->lock, NULL);
    device->impl = late;
    device->is_host = false;
    device->chip = tt_chip_find("h200");
    device->memory.current[TT_PURPOSE_CONTEXT] = 0;
    snprintf(device->name, sizeof device->name, "cuda:%d (late)", config->index);
    return TT_OK;
}

static void close_device(struct tt_device *device)
{
    free(device->impl);
}

static void note_block(const char *begin, struct late_device *owner)
{
    pthread_mutex_lock(&mutex);
    int at = atomic_load(&block_count);
    if (at == BLOCKS_MAX) abort();
    blocks[at].begin = begin;
    blocks[at].owner = owner;
    atomic_store(&block_count, at + 1);
    pthread_mutex_unlock(&mutex);
}

/* Addresses are never reused: a read after free gives garbage. */
static tt_status allocate(struct tt_device *device, size_t bytes, void **data)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_memory);
    size_t rounded = (bytes / PAGE_BYTES + 1) * PAGE_BYTES, at = atomic_fetch_add(&taken_bytes, rounded);
    if (at + rounded > memory_bytes) return tt_fail(TT_ERR_MEMORY, "the late GPUs have no memory left");
    *data = addresses + at;
    if (queue_places() > 0) note_block(*data, device->impl);
    return TT_OK;
}

/* Like cudaFree, which waits for its own GPU and not for others that read the memory. */
static void release(struct tt_device *device, void *data, size_t bytes)
{
    drain(device);
    memset(behind(data), 0xcd, bytes);
}

static tt_status allocate_host(struct tt_device *device, size_t bytes, void **data)
{
    struct host_block *block = malloc(sizeof *block);
    if (block == NULL) return TT_ERR_MEMORY;
    tt_status status = tt_cpu_device_table.allocate(device, bytes, data);
    if (status != TT_OK) {
        free(block);
        return status;
    }
    *block = (struct host_block){.data = *data, .bytes = bytes};
    pthread_mutex_lock(&mutex);
    block->next = host_blocks;
    host_blocks = block;
    pthread_mutex_unlock(&mutex);
    return TT_OK;
}

static void release_host(struct tt_device *device, void *data, size_t bytes)
{
    drain(device);
    pthread_mutex_lock(&mutex);
    struct host_block **link = &host_blocks, *block;
    while ((*link)->data != data) link = &(*link)->next;
    block = *link;
    *link = block->next;
    pthread_mutex_unlock(&mutex);
    free(block);
    memset(data, 0xcd, bytes);
    tt_cpu_device_table.release(device, data, bytes);
}

static bool is_page_locked(const void *data)
{
    pthread_mutex_lock(&mutex);
    const struct host_block *block = host_blocks;
    while (block != NULL &&
           ((const char *)data < block->data || (const char *)data >= block->data + block->bytes))
        block = block->next;
    pthread_mutex_unlock(&mutex);
    return block != NULL;
}

/* ---- Events ---- */

struct event_work {
    struct late_event *event;
    uint64_t number;
};

/* Events are never freed: a queue may still use one, as in CUDA. */
static tt_status event_create(struct tt_device *device, void **impl)
{
    (void)device;
    *impl = calloc(1, sizeof(struct late_event));
    return *impl != NULL ? TT_OK : TT_ERR_MEMORY;
}

static void event_destroy(struct tt_device *device, void *impl)
{
    (void)device, (void)impl;
}

static void run_record(struct late_stream *stream, void *payload)
{
    struct event_work *work = payload;
    (void)stream;
    if (atomic_load_explicit(&work->event->completed, memory_order_relaxed) < work->number)
        atomic_store_explicit(&work->event->completed, work->number, memory_order_release);
}

static void run_wait(struct late_stream *stream, void *payload)
{
    struct event_work *work = payload;
    (void)stream;
    while (atomic_load_explicit(&work->event->completed, memory_order_acquire) < work->number) nap(20);
}

static tt_status event_record(struct tt_event *event, struct tt_stream *stream)
{
    struct late_event *late = event->impl;
    if (event->device != stream->device)
        return tt_fail(TT_ERR_DEVICE, "an event is recorded on a stream of another GPU");
    struct event_work work = {late, atomic_fetch_add_explicit(&late->recorded, 1, memory_order_relaxed) + 1};
    push(late_of(stream), run_record, &work, sizeof work);
    return TT_OK;
}

static atomic_int waits;

__attribute__((destructor)) static void say_waits(void)
{
    if (getenv("LATE_COUNT") == NULL) return;
    fprintf(stderr, "late GPUs: %d waits, %d full queues, %d stalled copies, %d held copies\n",
            atomic_load(&waits), atomic_load(&full_queues), atomic_load(&stalled_copies),
            atomic_load(&held_copies));
}

static tt_status stream_wait(struct tt_stream *stream, struct tt_event *event)
{
    atomic_fetch_add(&waits, 1);
    struct late_event *late = event->impl;
    struct event_work work = {late, atomic_load_explicit(&late->recorded, memory_order_relaxed)};
    if (work.number > 0) push(late_of(stream), run_wait, &work, sizeof work);
    bool there = atomic_load_explicit(&late->completed, memory_order_relaxed) >= work.number;
    if (!there && event->device == stream->device) late_of(stream)->open_wait = late_of(stream)->queued;
    return TT_OK;
}

static tt_status event_synchronize(struct tt_event *event)
{
    struct late_event *late = event->impl;
    uint64_t number = atomic_load_explicit(&late->recorded, memory_order_relaxed);
    for (int round = 1; atomic_load_explicit(&late->completed, memory_order_acquire) < number; round++) {
        TT_TRY(look(event->device, round));
        nap(20);
    }
    return TT_OK;
}

static tt_status event_query(struct tt_event *event, bool *done)
{
    struct late_event *late = event->impl;
    uint64_t number = atomic_load_explicit(&late->recorded, memory_order_relaxed);
    *done = atomic_load_explicit(&late->completed, memory_order_acquire) >= number;
    return TT_OK;
}

/* ---- Copies ---- */

struct copy_work {
    char *to;
    const char *from;
    size_t bytes;
    void *owned; /* the memory of `from`, to be freed; or NULL */
};

static void run_copy(struct late_stream *stream, void *payload)
{
    struct copy_work *work = payload;
    (void)stream;
    memcpy(work->to, work->from, work->bytes);
    free(work->owned);
}

static void run_zero(struct late_stream *stream, void *payload)
{
    struct copy_work *work = payload;
    (void)stream;
    memset(work->to, 0, work->bytes);
}

/* A copy from another GPU takes both locks, always in the same order. */
static void push_copy(struct late_stream *stream, const void *from, const struct copy_work *work)
{
    struct late_device *own = stream->owner, *other = queue_places() > 0 ? owner_of(from) : NULL;
    if (other == own) other = NULL;
    bool first = other != NULL && other < own;
    if (other != NULL && atomic_load(&other->full)) atomic_fetch_add(&stalled_copies, 1);
    if (other != NULL && atomic_load(&stream->done) < stream->open_wait) atomic_fetch_add(&held_copies, 1);
    if (first) lock_gpu(other);
    lock_gpu(own);
    if (other != NULL && !first) lock_gpu(other);
    push_locked(stream, run_copy, work, sizeof *work);
    if (other != NULL) unlock_gpu(other);
    unlock_gpu(own);
}

static tt_status copy(struct tt_stream *stream, void *to, const void *from, size_t bytes, int direction)
{
    struct copy_work work = {to, from, bytes, NULL};
    TT_TRY(count_call(stream));
    if (direction == TT_COPY_TO_DEVICE && !is_page_locked(from)) {
        work.owned = malloc(bytes);
        if (work.owned == NULL) return TT_ERR_MEMORY;
        memcpy(work.owned, from, bytes);
        work.from = work.owned;
    }
    push_copy(late_of(stream), from, &work);
    return direction == TT_COPY_TO_HOST && !is_page_locked(to) ? synchronize(stream) : TT_OK;
}

static tt_status fill_zero(struct tt_stream *stream, void *data, size_t bytes)
{
    struct copy_work work = {data, NULL, bytes, NULL};
    TT_TRY(count_call(stream));
    push(late_of(stream), run_zero, &work, sizeof work);
    return TT_OK;
}

/* ---- Ops ---- */

#define OP(name)                                                                                             \
    static void run_##name(struct late_stream *stream, void *payload)                                        \
    {                                                                                                        \
        if (tt_cpu_device_table.ops->name(&stream->on_cpu, payload) != TT_OK) abort();                       \
    }                                                                                                        \
    static tt_status late_##name(struct tt_stream *stream, const struct tt_##name##_args *args)              \
    {                                                                                                        \
        TT_TRY(count_call(stream));                                                                          \
        push(late_of(stream), run_##name, args, sizeof *args);                                               \
        return TT_OK;                                                                                        \
    }
#include "backend/ops.def"
#undef OP

/* Host memory passed to an op is valid only during the call, so it is copied: one owned block for both. */
static void keep_borders(struct tt_attention_forward_args *args)
{
    size_t bytes = (size_t)(args->sequence_count + 1) * sizeof(int32_t);
    int32_t *both = malloc(2 * bytes);
    if (both == NULL) abort();
    memcpy(both, args->cu_q, bytes);
    memcpy(both + args->sequence_count + 1, args->cu_k, bytes);
    args->cu_q = both;
    args->cu_k = both + args->sequence_count + 1;
}

static void run_attention_forward_kept(struct late_stream *stream, void *payload)
{
    struct tt_attention_forward_args *args = payload;
    run_attention_forward(stream, args);
    free((void *)(uintptr_t)args->cu_q);
}

static void run_attention_backward_kept(struct late_stream *stream, void *payload)
{
    struct tt_attention_backward_args *args = payload;
    run_attention_backward(stream, args);
    free((void *)(uintptr_t)args->forward.cu_q);
}

static tt_status attention_forward_kept(struct tt_stream *stream,
                                        const struct tt_attention_forward_args *args)
{
    struct tt_attention_forward_args kept = *args;
    TT_TRY(count_call(stream));
    keep_borders(&kept);
    push(late_of(stream), run_attention_forward_kept, &kept, sizeof kept);
    return TT_OK;
}

static tt_status attention_backward_kept(struct tt_stream *stream,
                                         const struct tt_attention_backward_args *args)
{
    struct tt_attention_backward_args kept = *args;
    TT_TRY(count_call(stream));
    keep_borders(&kept.forward);
    push(late_of(stream), run_attention_backward_kept, &kept, sizeof kept);
    return TT_OK;
}

/* ---- The plugin ---- */

static bool enable_peer(int from, int to)
{
    (void)from, (void)to;
    return true;
}

TT_PUBLIC tt_plugin_entry tt_cuda_plugin;

const struct tt_plugin *tt_cuda_plugin(const struct tt_host *host)
{
    static struct tt_op_table ops = {
#define OP(name) .name = late_##name,
#include "backend/ops.def"
#undef OP
    };
    static const struct tt_device_table device = {
        .kind = "cuda",
        .open = open_device,
        .close = close_device,
        .allocate = allocate,
        .release = release,
        .allocate_host = allocate_host,
        .release_host = release_host,
        .stream_create = stream_create,
        .stream_destroy = stream_destroy,
        .stream_synchronize = synchronize,
        .event_create = event_create,
        .event_destroy = event_destroy,
        .event_record = event_record,
        .stream_wait = stream_wait,
        .event_synchronize = event_synchronize,
        .event_query = event_query,
        .copy = copy,
        .fill_zero = fill_zero,
        .ops = &ops,
    };
    static struct tt_plugin plugin = {
        .device = &device,
        .enable_peer = enable_peer,
    };
    ops.attention_forward = attention_forward_kept;
    ops.attention_backward = attention_backward_kept;
    return pretend_plugin(host, &plugin);
}
