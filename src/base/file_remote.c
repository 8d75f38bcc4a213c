#include "base/file_remote.h"

#include <stdatomic.h>

#include "base/alloc.h"

enum { FIRST_DESCRIPTOR = 1 << 28 };

static const struct tt_remote *_Atomic the_remote;

void tt_remote_set(const struct tt_remote *remote)
{
    atomic_store(&the_remote, remote);
}

bool tt_remote_covers(const char *path)
{
    const struct tt_remote *remote = atomic_load(&the_remote);
    return remote != NULL && remote->covers(remote->context, path);
}

void tt_remote_hurry(void)
{
    const struct tt_remote *remote = atomic_load(&the_remote);
    if (remote != NULL) remote->hurry(remote->context);
}

bool tt_remote_owns(int descriptor)
{
    return descriptor >= FIRST_DESCRIPTOR;
}

tt_status tt_remote_do(struct tt_remote_call *call)
{
    const struct tt_remote *remote = atomic_load(&the_remote);
    if (remote == NULL) return tt_fail(TT_ERR_COMM, "rank 0's files cannot be reached any more");
    return remote->call(remote->context, call);
}

tt_status tt_remote_open(struct tt_remote_call *call, int *descriptor)
{
    TT_TRY(tt_remote_do(call));
    *descriptor = FIRST_DESCRIPTOR + (int)call->handle;
    return TT_OK;
}

static int64_t handle_of(int descriptor)
{
    return descriptor - FIRST_DESCRIPTOR;
}

tt_status tt_remote_read(int descriptor, const char *path, void *data, size_t bytes, uint64_t offset,
                         size_t *got)
{
    *got = 0;
    while (*got < bytes) {
        size_t left = bytes - *got, now = left < TT_REMOTE_BYTES_MAX ? left : TT_REMOTE_BYTES_MAX;
        struct tt_remote_call call = {.kind = TT_REMOTE_READ,
                                      .path = path,
                                      .handle = handle_of(descriptor),
                                      .offset = offset + *got,
                                      .value = now,
                                      .receive = (char *)data + *got,
                                      .receive_room = now};
        TT_TRY(tt_remote_do(&call));
        *got += call.received;
        if (call.received < now) break;
    }
    return TT_OK;
}

tt_status tt_remote_write(int descriptor, const char *path, const void *data, size_t bytes, uint64_t offset)
{
    for (size_t done = 0; done < bytes;) {
        size_t left = bytes - done, now = left < TT_REMOTE_BYTES_MAX ? left : TT_REMOTE_BYTES_MAX;
        struct tt_remote_call call = {.kind = TT_REMOTE_WRITE,
                                      .path = path,
                                      .handle = handle_of(descriptor),
                                      .offset = offset + done,
                                      .send = (const char *)data + done,
                                      .send_bytes = now};
        TT_TRY(tt_remote_do(&call));
        done += now;
    }
    return TT_OK;
}

tt_status tt_remote_sync_close(int descriptor, const char *path)
{
    struct tt_remote_call call = {
        .kind = TT_REMOTE_SYNC_CLOSE, .path = path, .handle = handle_of(descriptor)};
    return tt_remote_do(&call);
}

void tt_remote_close(int descriptor)
{
    struct tt_error error;
    struct tt_remote_call call = {.kind = TT_REMOTE_CLOSE, .handle = handle_of(descriptor)};
    tt_error_copy(&error);
    (void)!tt_remote_do(&call);
    (void)tt_error_restore(&error);
}

uint64_t tt_remote_stat(const char *path)
{
    struct tt_error error;
    struct tt_remote_call call = {.kind = TT_REMOTE_STAT, .path = path};
    tt_error_copy(&error);
    bool known = tt_remote_do(&call) == TT_OK;
    (void)tt_error_restore(&error);
    return known ? call.value : 0;
}

tt_status tt_remote_list(const char *path, struct tt_str *names)
{
    char *room = tt_alloc_aligned(TT_REMOTE_BYTES_MAX);
    if (room == NULL) return TT_ERR_MEMORY;
    struct tt_remote_call call = {
        .kind = TT_REMOTE_LIST, .path = path, .receive = room, .receive_room = TT_REMOTE_BYTES_MAX};
    tt_status status = tt_remote_do(&call);
    if (status == TT_OK) status = tt_str_append(names, room, call.received);
    tt_free(room);
    return status;
}
