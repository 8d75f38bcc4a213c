#include "checkpoint/reader.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/integer.h"

enum { PAGE_BYTES = 4096, CACHE_LINE = 64, SLOT_SHIFT = 128 };

/* The unit of work of a thread: elements of one range. */
struct chunk {
    const struct tt_read_range *range;
    int64_t first, count;
};

/* A page-locked buffer and its chunk. */
struct slot {
    char *memory; /* chunk_bytes + SLOT_SHIFT */
    char *data;   /* start of the chunk in it */
    struct tt_event *uploaded;
    struct chunk chunk;
    struct slot *next; /* in its list or queue */
};

/* A queue of slots, first in, first out. */
struct queue {
    struct slot *head, *tail;
    size_t count;
};

/* A slot is in `idle`, held by a reader, in `filled`, or in `in_flight`. `in_flight` belongs to the driving thread; the
 * mutex protects all else. */
struct reading {
    const struct tt_reader_config *config;
    struct tt_stream *stream;
    size_t chunk_bytes;
    pthread_mutex_t mutex;
    pthread_cond_t may_fill, may_upload;
    const struct tt_read_range *range, *range_end; /* the range of the next chunk, */
    int64_t range_done;                            /* and its elements that were taken */
    int readers;                                   /* still running */
    bool failed;
    struct tt_error error; /* the first one */
    struct queue idle, filled, in_flight;
    struct slot slots[2 * TT_READER_THREADS_MAX];
    struct tt_thread *threads[TT_READER_THREADS_MAX];
    struct tt_buffer *staging;
};

static void push(struct queue *queue, struct slot *slot)
{
    slot->next = NULL;
    if (queue->tail != NULL) queue->tail->next = slot;
    if (queue->head == NULL) queue->head = slot;
    queue->tail = slot;
    queue->count++;
}

static struct slot *pop(struct queue *queue)
{
    struct slot *slot = queue->head;
    if (slot == NULL) return NULL;
    queue->head = slot->next;
    if (queue->head == NULL) queue->tail = NULL;
    queue->count--;
    return slot;
}

/* ---- Destinations ---- */

/* Elements from the destination of element 0 to that of element `index`. */
static int64_t place_of(const struct tt_read_range *range, int64_t index)
{
    if (range->columns == 0) return index;
    return index / range->columns * range->row_stride + index % range->columns;
}

/* Elements of device memory from the first of a chunk to its last. */
static int64_t span_of(const struct chunk *chunk)
{
    const struct tt_read_range *range = chunk->range;
    return place_of(range, chunk->first + chunk->count - 1) - place_of(range, chunk->first) + 1;
}

static size_t bytes_of(const struct chunk *chunk)
{
    return (size_t)span_of(chunk) * tt_dtype_bytes(chunk->range->dtype);
}

static char *target_of(const struct chunk *chunk)
{
    const struct tt_read_range *range = chunk->range;
    int64_t offset = place_of(range, chunk->first) - place_of(range, range->first);
    return (char *)range->to + (size_t)offset * tt_dtype_bytes(range->dtype);
}

/* Elements of the chunk that begins at `first`: neither its source nor its destination exceeds chunk_bytes. */
static int64_t chunk_count(const struct reading *reading, const struct tt_read_range *range, int64_t first)
{
    size_t to_bytes = tt_dtype_bytes(range->dtype);
    size_t from_bytes = range->make != NULL ? to_bytes : tt_dtype_bytes(range->entry->dtype);
    int64_t most = (int64_t)(reading->chunk_bytes / (from_bytes > to_bytes ? from_bytes : to_bytes));
    int64_t left = range->first + range->count - first;
    if (range->columns == 0) return tt_smaller(left, most);
    int64_t in_row = range->columns - first % range->columns, rows = most / range->row_stride;
    if (rows == 0) return tt_smaller(left, tt_smaller(in_row, most));
    return tt_smaller(left, in_row + (rows - 1) * range->columns);
}

/* True if the range goes through a page-locked buffer. */
static bool is_staged(const struct reading *reading, const struct tt_read_range *range)
{
    return !tt_device_is_host(tt_stream_device(reading->stream)) && !range->in_host && range->to != NULL;
}

static int compare_ranges(const void *a, const void *b)
{
    const struct tt_read_range *x = a, *y = b;
    if (x->file == NULL || y->file == NULL) return (x->file != NULL) - (y->file != NULL);
    int order = strcmp(tt_safetensors_path(x->file), tt_safetensors_path(y->file));
    if (order != 0) return order;
    if (x->entry->offset != y->entry->offset) return x->entry->offset < y->entry->offset ? -1 : 1;
    return (x->first > y->first) - (x->first < y->first);
}

/* ---- Reading ---- */

/* The rows of a chunk are packed at the end of its span. Each moves to its place, in order, which never overwrites a
 * row that has not moved yet. */
static void spread_rows(const struct chunk *chunk, char *memory)
{
    const struct tt_read_range *range = chunk->range;
    size_t element = tt_dtype_bytes(range->dtype);
    size_t gap = (size_t)(range->row_stride - range->columns) * element;
    char *from = memory + (size_t)(span_of(chunk) - chunk->count) * element, *to = memory;
    int64_t left = chunk->count, in_row = range->columns - chunk->first % range->columns;
    while (left > 0) {
        int64_t count = tt_smaller(left, in_row);
        memmove(to, from, (size_t)count * element);
        to += (size_t)count * element;
        from += (size_t)count * element;
        left -= count;
        in_row = range->columns;
        if (left == 0) break;
        memset(to, 0, gap);
        to += gap;
    }
}

/* Offset of the read data from the first byte of a chunk's destination: room for the gaps between its rows. */
static size_t gaps_of(const struct chunk *chunk)
{
    return (size_t)(span_of(chunk) - chunk->count) * tt_dtype_bytes(chunk->range->dtype);
}

static tt_status read_chunk(const struct chunk *chunk, char *memory)
{
    const struct tt_read_range *range = chunk->range;
    size_t gaps = gaps_of(chunk);
    tt_status status = range->make != NULL ? range->make(range->context, chunk->first, chunk->count, memory)
                                           : tt_safetensors_read(range->file, range->entry, chunk->first,
                                                                 chunk->count, memory + gaps, range->dtype);
    if (status == TT_OK && gaps > 0) spread_rows(chunk, memory);
    if (status != TT_OK) tt_while("loading '%s'", range->name);
    return status;
}

/* Stores the record of this thread if it is the first error. Under the mutex. */
static void set_failed(struct reading *reading)
{
    if (!reading->failed) tt_error_copy(&reading->error);
    reading->failed = true;
    pthread_cond_broadcast(&reading->may_fill);
    pthread_cond_broadcast(&reading->may_upload);
}

/* Takes the next chunk; false: nothing is left, or the reading has failed. Under the mutex. */
static bool take_chunk(struct reading *reading, struct chunk *chunk)
{
    const struct tt_cancel *cancel = reading->config->cancel;
    if (reading->failed || reading->range == reading->range_end) return false;
    if (cancel != NULL && atomic_load_explicit(&cancel->requests, memory_order_relaxed) > 0) {
        (void)tt_fail(TT_ERR_CANCELLED, "stopped on request");
        set_failed(reading);
        return false;
    }
    const struct tt_read_range *range = reading->range;
    int64_t first = range->first + reading->range_done, count = chunk_count(reading, range, first);
    *chunk = (struct chunk){range, first, count};
    reading->range_done += count;
    if (reading->range_done == range->count) {
        reading->range++;
        reading->range_done = 0;
    }
    return true;
}

/* Reads directly to the destination. Stores an error in `reading`. Under the mutex, which is unlocked meanwhile. */
static void read_in_place(struct reading *reading, const struct chunk *chunk)
{
    pthread_mutex_unlock(&reading->mutex);
    tt_status status = read_chunk(chunk, chunk->range->to != NULL ? target_of(chunk) : NULL);
    pthread_mutex_lock(&reading->mutex);
    if (status != TT_OK) set_failed(reading);
}

/* Start of a chunk in a slot. Copying out of the page cache is three to five times slower when the target is a few
 * bytes further into its page than the source into its own (EPYC, 2026-11-21: 8 bytes 3.2 GB/s, 16 bytes 8.4, 32 bytes
 * and all else 15.6 to 20): the processor assumes that the loads depend on the stores before. */
static char *place_in_slot(const struct slot *slot, const struct chunk *chunk)
{
    const struct tt_safetensors_entry *entry = chunk->range->entry;
    if (chunk->range->make != NULL) return slot->memory;
    uint64_t from = entry->offset + (uint64_t)chunk->first * tt_dtype_bytes(entry->dtype);
    uint64_t further = ((uintptr_t)slot->memory + gaps_of(chunk) - from) % PAGE_BYTES;
    return slot->memory + (further > 0 && further < CACHE_LINE ? SLOT_SHIFT : 0);
}

/* Reads into a buffer that the driving thread uploads; otherwise as read_in_place. */
static void read_into_slot(struct reading *reading, const struct chunk *chunk)
{
    while (reading->idle.count == 0 && !reading->failed)
        pthread_cond_wait(&reading->may_fill, &reading->mutex);
    if (reading->failed) return;
    struct slot *slot = pop(&reading->idle);
    pthread_mutex_unlock(&reading->mutex);
    slot->chunk = *chunk;
    slot->data = place_in_slot(slot, chunk);
    tt_status status = read_chunk(chunk, slot->data);
    pthread_mutex_lock(&reading->mutex);
    if (status != TT_OK) {
        set_failed(reading);
        return;
    }
    push(&reading->filled, slot);
    pthread_cond_signal(&reading->may_upload);
}

/* Reads until nothing is left. Errors are stored in `reading`, not returned by the thread. */
static tt_status read_chunks(void *argument)
{
    struct reading *reading = argument;
    struct chunk chunk;
    pthread_mutex_lock(&reading->mutex);
    while (take_chunk(reading, &chunk)) {
        if (is_staged(reading, chunk.range))
            read_into_slot(reading, &chunk);
        else
            read_in_place(reading, &chunk);
    }
    reading->readers--;
    pthread_cond_signal(&reading->may_upload);
    pthread_mutex_unlock(&reading->mutex);
    return TT_OK;
}

/* ---- Uploading ---- */

/* Waits for work. Returns a filled slot, or NULL: `*ended` is true when all uploads are queued or the reading has
 * failed, false when an upload in flight can be waited for. */
static struct slot *next_filled(struct reading *reading, bool *ended)
{
    pthread_mutex_lock(&reading->mutex);
    while (reading->filled.count == 0 && reading->readers > 0 && !reading->failed &&
           reading->in_flight.count == 0)
        pthread_cond_wait(&reading->may_upload, &reading->mutex);
    struct slot *slot = reading->failed ? NULL : pop(&reading->filled);
    *ended = slot == NULL && (reading->readers == 0 || reading->failed);
    pthread_mutex_unlock(&reading->mutex);
    return slot;
}

/* Half of the slots may be in flight while the readers fill the other half; the oldest is recycled when there are more,
 * or when there is no other work. */
static tt_status upload_slots(struct reading *reading, size_t slot_count)
{
    for (bool ended = false; !ended;) {
        struct slot *slot = next_filled(reading, &ended);
        if (slot != NULL) {
            TT_TRY(tt_copy_to_device(reading->stream, target_of(&slot->chunk), slot->data,
                                     bytes_of(&slot->chunk)));
            TT_TRY(tt_event_record(slot->uploaded, reading->stream));
            push(&reading->in_flight, slot);
        }
        if (ended || (slot != NULL && reading->in_flight.count <= slot_count / 2)) continue;
        struct slot *oldest = pop(&reading->in_flight);
        TT_TRY(tt_event_synchronize(oldest->uploaded));
        pthread_mutex_lock(&reading->mutex);
        push(&reading->idle, oldest);
        pthread_cond_signal(&reading->may_fill);
        pthread_mutex_unlock(&reading->mutex);
    }
    return TT_OK;
}

static tt_status create_slots(struct reading *reading, size_t count)
{
    struct tt_device *device = tt_stream_device(reading->stream);
    size_t slot_bytes = (reading->chunk_bytes + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE + SLOT_SHIFT;
    TT_TRY(tt_host_buffer_create(device, count * slot_bytes, TT_PURPOSE_STAGING, &reading->staging));
    for (size_t i = 0; i < count; i++) {
        TT_TRY(tt_event_create(device, &reading->slots[i].uploaded));
        reading->slots[i].memory = (char *)tt_buffer_data(reading->staging) + i * slot_bytes;
        push(&reading->idle, &reading->slots[i]);
    }
    return TT_OK;
}

/* ---- The whole reading ---- */

/* Starts `count` threads, does the calling thread's part, and joins the others. */
static tt_status run_threads(struct reading *reading, int count, size_t slot_count)
{
    tt_status status = TT_OK;
    int started = 0;
    bool helps = slot_count == 0; /* nothing to upload: the calling thread is one of the readers */
    if (helps) count--;
    reading->readers = count + helps;
    while (started < count && status == TT_OK) {
        status = tt_thread_start("reader", read_chunks, reading, &reading->threads[started]);
        if (status == TT_OK) started++;
    }
    if (status == TT_OK) status = helps ? read_chunks(reading) : upload_slots(reading, slot_count);
    if (status != TT_OK) {
        pthread_mutex_lock(&reading->mutex);
        set_failed(reading);
        pthread_mutex_unlock(&reading->mutex);
    }
    for (int i = 0; i < started; i++) {
        tt_status joined = tt_thread_join(reading->threads[i]);
        if (status == TT_OK) status = joined;
    }
    return reading->failed ? tt_error_restore(&reading->error) : status;
}

/* Chunks of all ranges, and of those that are staged, but no more than `most`. */
static void count_chunks(const struct reading *reading, size_t most, size_t *chunks, size_t *staged)
{
    *chunks = *staged = 0;
    for (const struct tt_read_range *range = reading->range; range < reading->range_end && *staged < most;
         range++) {
        size_t count = 0;
        for (int64_t done = 0; done < range->count && count < most; count++)
            done += chunk_count(reading, range, range->first + done);
        *chunks += count;
        if (is_staged(reading, range)) *staged += count;
    }
    if (*staged > most) *staged = most;
}

static tt_status run(struct reading *reading)
{
    struct tt_device *device = tt_stream_device(reading->stream);
    int processors = tt_device_threads(device) > 0 ? tt_device_threads(device) : tt_cpu_count();
    int threads = reading->config->threads > 0 ? reading->config->threads : processors;
    if (threads > TT_READER_THREADS_MAX) threads = TT_READER_THREADS_MAX;
    size_t chunks, slot_count;
    count_chunks(reading, 2 * (size_t)threads, &chunks, &slot_count);
    if (chunks < (size_t)threads) threads = (int)chunks;
    if (slot_count == 0) return run_threads(reading, threads, 0);

    tt_status status = create_slots(reading, slot_count);
    if (status == TT_OK) status = run_threads(reading, threads, slot_count);
    /* The buffer must not be freed while an upload reads it, even after a failure. */
    struct tt_error error;
    tt_error_copy(&error);
    tt_status synchronized = tt_stream_synchronize(reading->stream);
    if (status != TT_OK) (void)tt_error_restore(&error);
    for (size_t i = 0; i < slot_count; i++) tt_event_destroy(reading->slots[i].uploaded);
    tt_buffer_destroy(reading->staging);
    return status != TT_OK ? status : synchronized;
}

tt_status tt_reader_run(struct tt_stream *stream, struct tt_read_range *ranges, size_t range_count,
                        const struct tt_reader_config *config)
{
    if (range_count == 0) return TT_OK;
    struct reading *reading = tt_calloc(1, sizeof *reading);
    if (reading == NULL) return TT_ERR_MEMORY;
    qsort(ranges, range_count, sizeof *ranges, compare_ranges);
    reading->config = config;
    reading->stream = stream;
    reading->chunk_bytes = config->chunk_bytes > 0 ? config->chunk_bytes : TT_READER_CHUNK_BYTES;
    reading->range = ranges;
    reading->range_end = ranges + range_count;
    pthread_mutex_init(&reading->mutex, NULL);
    pthread_cond_init(&reading->may_fill, NULL);
    pthread_cond_init(&reading->may_upload, NULL);
    tt_status status = run(reading);
    pthread_cond_destroy(&reading->may_upload);
    pthread_cond_destroy(&reading->may_fill);
    pthread_mutex_destroy(&reading->mutex);
    tt_free(reading);
    return status;
}
