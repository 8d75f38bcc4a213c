#include "store/s3.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/store.h"
#include "base/temporary.h"
#include "store/s3_client.h"
#include "store/s3_folder_impl.h"
#include "store/s3_lock.h"
#include "store/s3_stage.h"

enum { HANDLES_MAX = 1024, AHEAD_BYTES = 1 << 20, READ_BYTES_MAX = 32 << 20 };

/* An open object: one that is read, or a file that will be put. */
struct handle {
    char *path; /* NULL: free */
    bool writes;
    int spool; /* of one that is written */
    uint64_t bytes;
    char etag[TT_S3_ETAG_BYTES];
    pthread_mutex_t mutex; /* of what follows */
    char *ahead;           /* AHEAD_BYTES from `ahead_at` on, of which `ahead_bytes` are read; NULL: none */
    uint64_t ahead_at;
    size_t ahead_bytes;
};

static struct store {
    pthread_mutex_t mutex;
    struct tt_s3 *s3; /* opened by the first call */
    struct handle *handles[HANDLES_MAX];
    struct s3_names made; /* folders without objects */
} the_store = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static bool covers(void *context, const char *path)
{
    (void)context;
    return tt_starts_with(path, "s3://");
}

static tt_status open_client(struct tt_s3 **out)
{
    struct tt_s3_config config = {0};
    struct tt_str endpoint = {0}, region = {0};
    tt_status status = TT_OK;
    pthread_mutex_lock(&the_store.mutex);
    if (the_store.s3 == NULL) {
        status = tt_s3_config_read(&config, &endpoint, &region);
        if (status == TT_OK) status = tt_s3_open(&config, &the_store.s3);
    }
    *out = the_store.s3;
    pthread_mutex_unlock(&the_store.mutex);
    tt_str_deinit(&endpoint);
    tt_str_deinit(&region);
    return status;
}

/* ---- Names ---- */

static bool is_made(const char *path)
{
    pthread_mutex_lock(&the_store.mutex);
    bool made = s3_has_name(&the_store.made, path);
    pthread_mutex_unlock(&the_store.mutex);
    return made;
}

static tt_status make(const char *path)
{
    struct tt_s3_name name;
    TT_TRY(tt_s3_name_of(path, &name));
    pthread_mutex_lock(&the_store.mutex);
    tt_status status = s3_has_name(&the_store.made, path) ? TT_OK : s3_add_name(&the_store.made, path);
    pthread_mutex_unlock(&the_store.mutex);
    return status;
}

static void unmake(const char *path)
{
    pthread_mutex_lock(&the_store.mutex);
    for (size_t i = 0; i < the_store.made.count; i++) {
        if (strcmp(the_store.made.names[i], path) != 0) continue;
        tt_free(the_store.made.names[i]);
        the_store.made.names[i] = the_store.made.names[--the_store.made.count];
        break;
    }
    pthread_mutex_unlock(&the_store.mutex);
}

/* ---- Open objects ---- */

static void free_handle(struct handle *handle)
{
    if (handle == NULL) return;
    tt_file_close(handle->spool);
    pthread_mutex_destroy(&handle->mutex);
    tt_free(handle->ahead);
    tt_free(handle->path);
    tt_free(handle);
}

static tt_status add_handle(const char *path, bool writes, int spool, const struct tt_s3_object *object,
                            int64_t *number)
{
    tt_status status = TT_OK;
    struct handle *handle = tt_calloc(1, sizeof *handle);
    if (handle == NULL) {
        tt_file_close(spool);
        return TT_ERR_MEMORY;
    }
    pthread_mutex_init(&handle->mutex, NULL);
    handle->writes = writes;
    handle->spool = spool;
    handle->path = tt_strdup(path);
    if (handle->path == NULL) TT_GO(TT_ERR_MEMORY);
    if (object != NULL) {
        handle->bytes = object->bytes;
        memcpy(handle->etag, object->etag, sizeof handle->etag);
    }
    pthread_mutex_lock(&the_store.mutex);
    int64_t free_one = 0;
    while (free_one < HANDLES_MAX && the_store.handles[free_one] != NULL) free_one++;
    if (free_one < HANDLES_MAX) the_store.handles[free_one] = handle;
    pthread_mutex_unlock(&the_store.mutex);
    if (free_one == HANDLES_MAX) TT_GO(tt_fail(TT_ERR_IO, "%d objects are open at once", HANDLES_MAX));
    *number = free_one;
    return TT_OK;
out:
    free_handle(handle);
    return status;
}

static struct handle *find_handle(int64_t number, bool take)
{
    struct handle *handle = NULL;
    pthread_mutex_lock(&the_store.mutex);
    if (number >= 0 && number < HANDLES_MAX) handle = the_store.handles[number];
    if (handle != NULL && take) the_store.handles[number] = NULL;
    pthread_mutex_unlock(&the_store.mutex);
    return handle;
}

static tt_status note_any(void *context, const char *name)
{
    (void)name;
    *(bool *)context = true;
    return TT_OK;
}

static tt_status open_read(struct tt_s3 *s3, struct tt_store_call *call, const char *path, uint64_t most)
{
    struct tt_s3_object object;
    TT_TRY(tt_s3_head(s3, path, &object));
    if (!object.exists) {
        bool any = false;
        TT_TRY(tt_s3_list(s3, path, 1, note_any, &any)); /* fails by the name of a missing bucket */
        return tt_fail_errno(any ? EISDIR : ENOENT, "cannot open '%s'", path);
    }
    if (object.bytes > most)
        return tt_fail(TT_ERR_DATA, "'%s' is larger than the expected %llu bytes", path,
                       (unsigned long long)most);
    call->value = object.bytes;
    return add_handle(path, false, -1, &object, &call->handle);
}

static tt_status open_write(struct tt_store_call *call)
{
    int spool = -1;
    struct tt_s3_name name;
    TT_TRY(tt_s3_name_of(call->path, &name));
    if (name.key_bytes == 0) return tt_fail(TT_ERR_USAGE, "'%s' is a bucket, not a file", call->path);
    TT_TRY(tt_file_open_temporary(&spool));
    if (call->value > 0) tt_file_truncate(spool, call->value);
    return add_handle(call->path, true, spool, NULL, &call->handle);
}

/* Small reads one behind the other become one request. */
static tt_status read_ahead(struct tt_s3 *s3, struct handle *handle, struct tt_store_call *call)
{
    bool inside = call->offset >= handle->ahead_at &&
                  call->offset + call->value <= handle->ahead_at + handle->ahead_bytes;
    bool at_end = call->offset >= handle->ahead_at &&
                  handle->ahead_at + handle->ahead_bytes == handle->bytes && handle->ahead_bytes > 0;
    if (handle->ahead == NULL) handle->ahead = tt_alloc_aligned(AHEAD_BYTES);
    if (handle->ahead == NULL) return TT_ERR_MEMORY;
    if (!inside && !at_end) {
        handle->ahead_bytes = 0;
        TT_TRY(tt_s3_get(s3, handle->path, handle->etag, call->offset, handle->ahead, AHEAD_BYTES,
                         &handle->ahead_bytes));
        handle->ahead_at = call->offset;
    }
    uint64_t end = handle->ahead_at + handle->ahead_bytes;
    uint64_t there = call->offset < end ? end - call->offset : 0;
    call->received = (size_t)(there < call->value ? there : call->value);
    if (call->received > 0)
        memcpy(call->receive, handle->ahead + (call->offset - handle->ahead_at), call->received);
    return TT_OK;
}

static tt_status read_object(struct tt_s3 *s3, struct tt_store_call *call)
{
    struct handle *handle = find_handle(call->handle, false);
    if (handle == NULL) return tt_fail(TT_ERR_INTERNAL, "an object that is not open is read");
    if (handle->writes)
        return tt_file_read_some(handle->spool, handle->path, call->receive, (size_t)call->value,
                                 call->offset, &call->received);
    call->received = 0;
    if (call->offset >= handle->bytes) return TT_OK;
    if (call->value >= AHEAD_BYTES / 2)
        return tt_s3_get(s3, handle->path, handle->etag, call->offset, call->receive, (size_t)call->value,
                         &call->received);
    pthread_mutex_lock(&handle->mutex);
    tt_status status = read_ahead(s3, handle, call);
    pthread_mutex_unlock(&handle->mutex);
    return status;
}

static tt_status write_object(struct tt_store_call *call)
{
    struct handle *handle = find_handle(call->handle, false);
    if (handle == NULL || !handle->writes)
        return tt_fail(TT_ERR_INTERNAL, "an object that is not open is written");
    return tt_file_pwrite(handle->spool, handle->path, call->send, call->send_bytes, call->offset);
}

static tt_status put_spool(struct tt_s3 *s3, const struct handle *handle)
{
    uint64_t bytes = 0;
    TT_TRY(tt_file_bytes(handle->spool, handle->path, &bytes));
    return tt_s3_put_file(s3, handle->path, handle->spool, bytes);
}

static tt_status end_object(struct tt_s3 *s3, struct tt_store_call *call)
{
    struct handle *handle = find_handle(call->handle, call->kind != TT_STORE_FLUSH);
    tt_status status = TT_OK;
    if (handle == NULL) return tt_fail(TT_ERR_INTERNAL, "an object that is not open is closed");
    if (handle->writes && call->kind != TT_STORE_CLOSE) status = put_spool(s3, handle);
    if (call->kind != TT_STORE_FLUSH) free_handle(handle);
    return status;
}

/* ---- Paths ---- */

static tt_status find_kind(struct tt_s3 *s3, const char *path, uint64_t *kind, struct tt_s3_object *object)
{
    struct tt_s3_name name;
    bool any = false;
    *object = (struct tt_s3_object){0};
    TT_TRY(tt_s3_name_of(path, &name));
    *kind = name.key_bytes == 0 || is_made(path) ? 2 : 0;
    if (*kind == 2) return TT_OK;
    TT_TRY(tt_s3_head(s3, path, object));
    *kind = object->exists;
    if (*kind == 1) return TT_OK;
    TT_TRY(tt_s3_list(s3, path, 1, note_any, &any));
    *kind = any ? 2 : 0;
    return TT_OK;
}

static tt_status find_facts(struct tt_s3 *s3, struct tt_store_call *call)
{
    uint64_t kind;
    struct tt_s3_object object;
    struct tt_file_facts *facts = call->receive;
    TT_TRY(find_kind(s3, call->path, &kind, &object));
    call->value = kind;
    *facts = (struct tt_file_facts){.is_dir = kind == 2,
                                    .is_regular = kind == 1,
                                    .bytes = object.bytes,
                                    .changed = (int64_t)object.changed * 1000000000,
                                    .touched = (int64_t)object.changed * 1000000000};
    return TT_OK;
}

/* Each name once, without the slash of a folder. */
static tt_status answer_names(struct s3_names *names, struct tt_store_call *call)
{
    char *room = call->receive;
    call->received = 0;
    for (size_t i = 0; i < names->count; i++) {
        size_t bytes = strlen(names->names[i]);
        if (bytes > 0 && names->names[i][bytes - 1] == '/') names->names[i][bytes - 1] = '\0';
    }
    if (names->count > 1) qsort(names->names, names->count, sizeof *names->names, tt_compare_texts);
    for (size_t i = 0; i < names->count; i++) {
        size_t bytes = strlen(names->names[i]) + 1;
        if (i > 0 && strcmp(names->names[i], names->names[i - 1]) == 0) continue;
        if (bytes > call->receive_room - call->received)
            return tt_fail(TT_ERR_DATA, "'%s' has too many files", call->path);
        memcpy(room + call->received, names->names[i], bytes);
        call->received += bytes;
    }
    return TT_OK;
}

static tt_status list_names(struct tt_s3 *s3, struct tt_store_call *call)
{
    tt_status status = TT_OK;
    struct s3_names names = {0};
    struct tt_path stage;
    TT_GO(tt_s3_list(s3, call->path, 0, s3_add_name, &names));
    TT_GO(tt_s3_stage_of(call->path, &stage));
    if (tt_path_is_dir(stage.text)) TT_GO(tt_dir_list(stage.text, s3_add_name, &names));
    if (names.count == 0 && !is_made(call->path)) {
        struct tt_s3_name name;
        TT_GO(tt_s3_name_of(call->path, &name));
        if (name.key_bytes > 0) TT_GO(tt_fail_errno(ENOENT, "cannot open folder '%s'", call->path));
    }
    status = answer_names(&names, call);
out:
    s3_names_deinit(&names);
    return status;
}

static tt_status list_stage(const char *local, struct tt_store_call *call)
{
    struct s3_names names = {0};
    tt_status status = tt_dir_list(local, s3_add_name, &names);
    if (status == TT_OK) status = answer_names(&names, call);
    s3_names_deinit(&names);
    return status;
}

static tt_status remove_path(struct tt_s3 *s3, const char *path)
{
    struct tt_s3_name name;
    TT_TRY(tt_s3_name_of(path, &name));
    if (name.key_bytes == 0) return tt_fail(TT_ERR_USAGE, "'%s' is a bucket: trimtab removes none", path);
    unmake(path);
    TT_TRY(s3_remove_tree(s3, path, NULL));
    return tt_s3_delete(s3, path);
}

static tt_status rename_path(struct tt_s3 *s3, const char *path, const char *to)
{
    struct tt_path from, staged;
    if (!tt_s3_stage_covers(path)) {
        tt_status status = tt_fail(TT_ERR_UNSUPPORTED, "'%s' cannot be renamed: objects have one name", path);
        tt_hint("choose a folder of a disk for it");
        return status;
    }
    TT_TRY(tt_s3_stage_path(path, false, &from));
    if (!covers(NULL, to)) return tt_file_rename(from.text, to);
    if (tt_s3_stage_covers(to)) {
        TT_TRY(tt_s3_stage_path(to, true, &staged));
        return tt_file_rename(from.text, staged.text);
    }
    TT_TRY(s3_put_local(s3, from.text, to));
    (void)tt_file_remove(from.text);
    return TT_OK;
}

/* ---- Calls ---- */

/* A call for a path of a folder that is not published: the disk's. */
static tt_status call_stage(struct tt_store_call *call, struct tt_s3 *s3)
{
    int descriptor = -1;
    struct tt_path local, second;
    bool makes = call->kind == TT_STORE_MAKE_DIR || call->kind == TT_STORE_CREATE;
    tt_status status = TT_OK;
    TT_TRY(tt_s3_stage_path(call->path, makes, &local));
    switch (call->kind) {
    case TT_STORE_OPEN_READ:
        status = tt_file_open_read(local.text, &descriptor, &call->value);
        break;
    case TT_STORE_OPEN_INSIDE:
        status = tt_file_open_inside(local.text, call->second, call->value, &descriptor, &call->value);
        break;
    case TT_STORE_CREATE:
        status = tt_file_create(local.text, call->value, &descriptor);
        break;
    case TT_STORE_OPEN_SHARED:
        status = tt_file_open_shared(local.text, call->value, &descriptor);
        break;
    case TT_STORE_STAT:
        call->value = tt_path_is_dir(local.text) ? 2 : tt_path_exists(local.text);
        break;
    case TT_STORE_FACTS: {
        struct tt_file_facts *facts = call->receive;
        call->value = tt_file_facts(local.text, facts) != 0 ? 0 : facts->is_dir ? 2 : 1;
        break;
    }
    case TT_STORE_LIST:
        status = list_stage(local.text, call);
        break;
    case TT_STORE_MAKE_DIR:
        status = tt_dir_create(local.text);
        break;
    case TT_STORE_REMOVE:
        status = tt_dir_remove(local.text);
        break;
    case TT_STORE_RENAME:
        status = rename_path(s3, call->path, call->second);
        break;
    case TT_STORE_COMMIT:
        if (!tt_s3_stage_covers(call->second)) {
            status = s3_commit(s3, local.text, call->second);
        } else {
            TT_TRY(tt_s3_stage_path(call->second, true, &second));
            status = tt_dir_commit(local.text, second.text);
        }
        break;
    default:
        status = tt_fail(TT_ERR_INTERNAL, "'%s' is not published", call->path);
    }
    if (descriptor < 0) return status;
    call->handle = descriptor;
    call->on_disk = true;
    return status;
}

static tt_status call_object(struct tt_store_call *call, struct tt_s3 *s3)
{
    struct tt_path whole;
    struct tt_s3_object object;
    switch (call->kind) {
    case TT_STORE_OPEN_READ:
        return open_read(s3, call, call->path, UINT64_MAX);
    case TT_STORE_OPEN_INSIDE:
        TT_TRY(tt_path_set(&whole, call->path, call->second));
        return open_read(s3, call, whole.text, call->value);
    case TT_STORE_CREATE:
        return open_write(call);
    case TT_STORE_READ:
        return read_object(s3, call);
    case TT_STORE_WRITE:
        return write_object(call);
    case TT_STORE_FLUSH:
    case TT_STORE_SYNC_CLOSE:
    case TT_STORE_CLOSE:
        return end_object(s3, call);
    case TT_STORE_RENAME:
        return rename_path(s3, call->path, call->second);
    case TT_STORE_STAT:
        return find_kind(s3, call->path, &call->value, &object);
    case TT_STORE_FACTS:
        return find_facts(s3, call);
    case TT_STORE_LIST:
        return list_names(s3, call);
    case TT_STORE_MAKE_DIR:
        return make(call->path);
    case TT_STORE_REMOVE:
        return remove_path(s3, call->path);
    default:
        return tt_fail(TT_ERR_UNSUPPORTED, "'%s': objects cannot be written in place", call->path);
    }
}

static tt_status run_call(void *context, struct tt_store_call *call)
{
    (void)context;
    struct tt_s3 *s3;
    struct tt_s3_name name;
    bool has_handle = call->kind == TT_STORE_READ || call->kind == TT_STORE_WRITE ||
                      call->kind == TT_STORE_SYNC_CLOSE || call->kind == TT_STORE_CLOSE ||
                      call->kind == TT_STORE_FLUSH;
    TT_TRY(open_client(&s3));
    if (has_handle) return call_object(call, s3);
    TT_TRY(tt_s3_name_of(call->path, &name));
    return tt_s3_stage_covers(call->path) ? call_stage(call, s3) : call_object(call, s3);
}

static void hurry(void *context)
{
    (void)context;
    pthread_mutex_lock(&the_store.mutex);
    if (the_store.s3 != NULL) tt_s3_hurry(the_store.s3, true);
    pthread_mutex_unlock(&the_store.mutex);
}

/* ---- Locks ---- */

static tt_status take_lock(void *context, const char *path, const char *what, bool unlocked, void **lock)
{
    (void)context;
    struct tt_s3 *s3;
    struct tt_s3_lock *taken;
    TT_TRY(open_client(&s3));
    TT_TRY(tt_s3_lock_take(s3, path, what, unlocked, &taken));
    *lock = taken;
    return TT_OK;
}

static bool lock_is_held(void *lock)
{
    return tt_s3_lock_is_held(lock);
}

static void release_lock(void *lock)
{
    tt_s3_lock_release(lock);
}

void tt_s3_store_register(void)
{
    static const struct tt_store store = {.can = TT_STORE_CAN_LOCK,
                                          .kinds = TT_STORE_KINDS,
                                          .read_bytes = READ_BYTES_MAX,
                                          .covers = covers,
                                          .call = run_call,
                                          .hurry = hurry,
                                          .lock = take_lock,
                                          .lock_is_held = lock_is_held,
                                          .lock_release = release_lock};
    tt_store_set(TT_STORE_S3, &store);
}
