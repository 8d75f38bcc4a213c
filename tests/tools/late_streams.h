/* Streams of late GPUs (late_gpus.c): threads that work off queues, the memory behind device addresses, and a driver
 * with queues of bounded length and a lock for each GPU. */
#ifndef TT_TESTS_TOOLS_LATE_STREAMS_H
#define TT_TESTS_TOOLS_LATE_STREAMS_H

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "backend/device_impl.h"

enum { REST_MICROSECONDS = 300, CHECK_ROUNDS = 50, PAGE_BYTES = 4096 };
static const size_t memory_bytes = (size_t)16 << 30; /* of all GPUs together, over the life of the process */

struct late_stream;
struct work {
    _Atomic(struct work *) next;
    void (*run)(struct late_stream *stream, void *payload);
    _Alignas(16) char payload[];
};

/* The counts of one event: a wait waits for the newest record at the time when the wait was queued. */
struct late_event {
    _Atomic uint64_t recorded, completed;
};

struct late_device;

struct late_stream {
    struct late_device *owner;
    struct tt_device cpu; /* computes; its scratch is this stream's own */
    struct tt_stream on_cpu;
    struct late_stream *next; /* of the same device */
    struct work *head, *tail; /* the worker's end and the host's */
    uint64_t queued;          /* counted by the host */
    uint64_t open_wait; /* `queued` after the last wait for an event of this GPU that was not there yet */
    _Atomic uint64_t done;
    sem_t work_there;
    pthread_t worker;
    int rest; /* pause after this many pieces of work; 0: never */
    bool ends;
};

struct late_device {
    struct late_stream *streams;
    pthread_mutex_t lock; /* with LATE_QUEUE, of every call */
    atomic_bool full;     /* its holder waits for a place in a queue */
    int64_t calls, fails_at;
    int threads;
};

struct host_block {
    struct host_block *next;
    char *data;
    size_t bytes;
};
static struct host_block *host_blocks;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

/* Device memory of all GPUs: fictitious addresses and the memory behind them. Made once. */
static char *addresses, *memory;
static _Atomic size_t taken_bytes;

static bool is_device(const void *pointer)
{
    return (const char *)pointer >= addresses && (const char *)pointer < addresses + memory_bytes;
}

static void *behind(const void *pointer)
{
    if (!is_device(pointer)) return (void *)(uintptr_t)pointer;
    return memory + ((const char *)pointer - addresses);
}

/* Translates every pointer to device memory in a struct of arguments. The padding between two members may look
 * like the upper half of an address. Since memory_bytes is a multiple of 4 GiB the lower half, which may be a
 * number, does not change. */
static void translate(void *args, size_t bytes)
{
    for (char *at = args; at + sizeof(void *) <= (char *)args + bytes; at += sizeof(void *)) {
        void *word;
        memcpy(&word, at, sizeof word);
        word = behind(word);
        memcpy(at, &word, sizeof word);
    }
}

static void make_memory(void)
{
    char *both = mmap(NULL, 2 * memory_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (both == MAP_FAILED || mprotect(both + memory_bytes, memory_bytes, PROT_READ | PROT_WRITE) != 0)
        abort();
    addresses = both;
    memory = both + memory_bytes;
}

static struct late_stream *late_of(const struct tt_stream *stream)
{
    return stream->impl;
}

static void nap(long microseconds)
{
    nanosleep(&(struct timespec){.tv_nsec = microseconds * 1000}, NULL);
}

/* ---- Workers ---- */

static void *work_off(void *argument)
{
    struct late_stream *stream = argument;
    struct work *last = stream->head; /* the first entry is empty */
    unsigned number = 0;
    for (;;) {
        sem_wait(&stream->work_there);
        struct work *work = atomic_load_explicit(&last->next, memory_order_acquire);
        free(last);
        last = work;
        if (work->run == NULL) break;
        if (stream->rest > 0 && number++ % (unsigned)stream->rest == 0) nap(REST_MICROSECONDS);
        work->run(stream, work->payload);
        atomic_fetch_add_explicit(&stream->done, 1, memory_order_release);
    }
    free(last);
    return NULL;
}

/* With LATE_QUEUE: numbers for the end, and the memory of each GPU. */
static atomic_int full_queues, stalled_copies, held_copies;
enum { BLOCKS_MAX = 1 << 16 };
static struct {
    const char *begin;
    struct late_device *owner;
} blocks[BLOCKS_MAX];
static atomic_int block_count;

static int queue_places(void)
{
    static const char *text;
    if (text == NULL) text = getenv("LATE_QUEUE") != NULL ? getenv("LATE_QUEUE") : "0";
    return atoi(text);
}

/* The GPU whose memory `data` is, or NULL. Blocks are never freed, and a rank reads another one's memory only after it
 * has been told the address. */
static struct late_device *owner_of(const void *data)
{
    int last = -1;
    for (int i = 0; is_device(data) && i < atomic_load(&block_count); i++)
        if (blocks[i].begin <= (const char *)data && (last < 0 || blocks[i].begin > blocks[last].begin))
            last = i;
    return last >= 0 ? blocks[last].owner : NULL;
}

static void lock_gpu(struct late_device *device)
{
    if (queue_places() > 0) pthread_mutex_lock(&device->lock);
}

static void unlock_gpu(struct late_device *device)
{
    if (queue_places() > 0) pthread_mutex_unlock(&device->lock);
}

static void wait_for_place(struct late_stream *stream)
{
    uint64_t places = (uint64_t)queue_places();
    if (places == 0 || stream->queued - atomic_load(&stream->done) < places) return;
    atomic_fetch_add(&full_queues, 1);
    atomic_store(&stream->owner->full, true);
    while (stream->queued - atomic_load(&stream->done) >= places) nap(20);
    atomic_store(&stream->owner->full, false);
}

/* The caller has locked the GPU of the stream. */
static void push_locked(struct late_stream *stream, void (*run)(struct late_stream *, void *),
                        const void *payload, size_t bytes)
{
    wait_for_place(stream);
    struct work *work = malloc(sizeof *work + bytes);
    if (work == NULL) abort();
    atomic_init(&work->next, NULL);
    work->run = run;
    if (bytes > 0) memcpy(work->payload, payload, bytes);
    translate(work->payload, bytes);
    stream->queued++;
    struct work *before = stream->tail;
    stream->tail = work;
    atomic_store_explicit(&before->next, work, memory_order_release);
    sem_post(&stream->work_there);
}

static void push(struct late_stream *stream, void (*run)(struct late_stream *, void *), const void *payload,
                 size_t bytes)
{
    lock_gpu(stream->owner);
    push_locked(stream, run, payload, bytes);
    unlock_gpu(stream->owner);
}

#endif
