#include "base/store.h"

#include <pthread.h>
#include <stdatomic.h>

#include "base/alloc.h"

static const struct tt_store *_Atomic stores[TT_STORE_PLACES];

static struct {
    pthread_mutex_t mutex;
    bool is_set;
    struct tt_error error;
} kept = {.mutex = PTHREAD_MUTEX_INITIALIZER};

void tt_store_set(enum tt_store_place place, const struct tt_store *store)
{
    atomic_store(&stores[place], store);
}

/* NULL is a path of the disk, whose calls refuse it. */
static int place_of(const char *path)
{
    for (int place = 0; path != NULL && place < TT_STORE_PLACES; place++) {
        const struct tt_store *store = atomic_load(&stores[place]);
        if (store != NULL && store->covers(store->context, path)) return place;
    }
    return -1;
}

const struct tt_store *tt_store_of(const char *path)
{
    int place = place_of(path);
    return place < 0 ? NULL : atomic_load(&stores[place]);
}

bool tt_store_covers(const char *path)
{
    return place_of(path) >= 0;
}

bool tt_store_takes(const char *path, enum tt_store_kind kind)
{
    const struct tt_store *store = tt_store_of(path);
    return store != NULL && kind < store->kinds;
}

bool tt_store_can(const char *path, enum tt_store_can can)
{
    const struct tt_store *store = tt_store_of(path);
    return store == NULL || (store->can & can) != 0;
}

void tt_store_hurry(void)
{
    for (int place = 0; place < TT_STORE_PLACES; place++) {
        const struct tt_store *store = atomic_load(&stores[place]);
        if (store != NULL) store->hurry(store->context);
    }
}

/* Descriptors of place p: (p + 1) * TT_STORE_HANDLES + handle. */
bool tt_store_owns(int descriptor)
{
    return descriptor >= TT_STORE_HANDLES;
}

static int64_t handle_of(int descriptor)
{
    return descriptor % TT_STORE_HANDLES;
}

static tt_status call_at(int place, struct tt_store_call *call)
{
    const struct tt_store *store = place >= 0 ? atomic_load(&stores[place]) : NULL;
    if (store == NULL) return tt_fail(TT_ERR_COMM, "rank 0's files cannot be reached any more");
    return store->call(store->context, call);
}

static tt_status call_with(int descriptor, struct tt_store_call *call)
{
    return call_at(descriptor / TT_STORE_HANDLES - 1, call);
}

tt_status tt_store_do(struct tt_store_call *call)
{
    return call_at(place_of(call->path), call);
}

tt_status tt_store_open(struct tt_store_call *call, int *descriptor)
{
    int place = place_of(call->path);
    TT_TRY(call_at(place, call));
    *descriptor = call->on_disk ? (int)call->handle : (place + 1) * TT_STORE_HANDLES + (int)call->handle;
    return TT_OK;
}

tt_status tt_store_read(int descriptor, const char *path, void *data, size_t bytes, uint64_t offset,
                        size_t *got)
{
    const struct tt_store *store = atomic_load(&stores[descriptor / TT_STORE_HANDLES - 1]);
    size_t most = store != NULL && store->read_bytes > 0 ? store->read_bytes : TT_STORE_BYTES_MAX;
    *got = 0;
    while (*got < bytes) {
        size_t left = bytes - *got, now = left < most ? left : most;
        struct tt_store_call call = {.kind = TT_STORE_READ,
                                     .path = path,
                                     .handle = handle_of(descriptor),
                                     .offset = offset + *got,
                                     .value = now,
                                     .receive = (char *)data + *got,
                                     .receive_room = now};
        TT_TRY(call_with(descriptor, &call));
        *got += call.received;
        if (call.received < now) break;
    }
    return TT_OK;
}

tt_status tt_store_write(int descriptor, const char *path, const void *data, size_t bytes, uint64_t offset)
{
    for (size_t done = 0; done < bytes;) {
        size_t left = bytes - done, now = left < TT_STORE_BYTES_MAX ? left : TT_STORE_BYTES_MAX;
        struct tt_store_call call = {.kind = TT_STORE_WRITE,
                                     .path = path,
                                     .handle = handle_of(descriptor),
                                     .offset = offset + done,
                                     .send = (const char *)data + done,
                                     .send_bytes = now};
        TT_TRY(call_with(descriptor, &call));
        done += now;
    }
    return TT_OK;
}

tt_status tt_store_sync_close(int descriptor, const char *path)
{
    struct tt_store_call call = {.kind = TT_STORE_SYNC_CLOSE, .path = path, .handle = handle_of(descriptor)};
    return call_with(descriptor, &call);
}

tt_status tt_store_flush(int descriptor, const char *path)
{
    struct tt_store_call call = {.kind = TT_STORE_FLUSH, .path = path, .handle = handle_of(descriptor)};
    return call_with(descriptor, &call);
}

void tt_store_close(int descriptor)
{
    struct tt_error error;
    struct tt_store_call call = {.kind = TT_STORE_CLOSE, .handle = handle_of(descriptor)};
    tt_error_copy(&error);
    (void)!call_with(descriptor, &call);
    (void)tt_error_restore(&error);
}

uint64_t tt_store_stat(const char *path)
{
    struct tt_error error;
    struct tt_store_call call = {.kind = TT_STORE_STAT, .path = path};
    tt_error_copy(&error);
    bool known = tt_store_do(&call) == TT_OK;
    if (!known) tt_store_keep_error();
    (void)tt_error_restore(&error);
    return known ? call.value : 0;
}

void tt_store_keep_error(void)
{
    pthread_mutex_lock(&kept.mutex);
    if (!kept.is_set) tt_error_copy(&kept.error);
    kept.is_set = true;
    pthread_mutex_unlock(&kept.mutex);
}

tt_status tt_store_failure(void)
{
    pthread_mutex_lock(&kept.mutex);
    tt_status status = kept.is_set ? tt_error_restore(&kept.error) : TT_OK;
    kept.is_set = false;
    pthread_mutex_unlock(&kept.mutex);
    return status;
}

tt_status tt_store_list(const char *path, struct tt_str *names)
{
    char *room = tt_alloc_aligned(TT_STORE_BYTES_MAX);
    if (room == NULL) return TT_ERR_MEMORY;
    struct tt_store_call call = {
        .kind = TT_STORE_LIST, .path = path, .receive = room, .receive_room = TT_STORE_BYTES_MAX};
    tt_status status = tt_store_do(&call);
    if (status == TT_OK) status = tt_str_append(names, room, call.received);
    tt_free(room);
    return status;
}
