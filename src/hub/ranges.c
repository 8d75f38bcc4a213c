/* Files of a repository by ranges, without a download: hf://datasets/OWNER/NAME@COMMIT/PATH, the names of the hub's own
 * file system (huggingface_hub, HfFileSystem), as a store that can only be read (base/store.h). A repository is there
 * after hub_ranges_open has listed it. A commit never changes, so parts of a file belong together. */
#include <errno.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/store.h"
#include "hub/hub_impl.h"
#include "net/url.h"

enum { HANDLES_MAX = 1024 };

struct listed {
    char *root, *name; /* owned: hf://..., the repository */
    struct hub_repository repository;
    struct tt_hub_listing listing;
};

struct open_file {
    const struct listed *listed; /* NULL: free */
    const struct tt_hub_file *file;
};

struct hub_ranges {
    struct tt_hub *hub;
    pthread_mutex_t lock; /* of what follows */
    struct listed **listed;
    size_t count, capacity;
    struct open_file files[HANDLES_MAX];
};

static bool covers(void *context, const char *path)
{
    (void)context;
    return tt_starts_with(path, "hf://");
}

/* ---- Names ---- */

/* The repository of a path, and the rest of the path: "" for its root. NULL: none that is listed. */
static const struct listed *find_listed(struct hub_ranges *ranges, const char *path, const char **rest)
{
    const struct listed *found = NULL;
    pthread_mutex_lock(&ranges->lock);
    for (size_t i = 0; i < ranges->count && found == NULL; i++) {
        size_t bytes = strlen(ranges->listed[i]->root);
        if (strncmp(path, ranges->listed[i]->root, bytes) != 0 || (path[bytes] != '/' && path[bytes] != '\0'))
            continue;
        found = ranges->listed[i];
        *rest = path + bytes + strspn(path + bytes, "/");
    }
    pthread_mutex_unlock(&ranges->lock);
    return found;
}

static const struct tt_hub_file *find_file(const struct listed *listed, const char *name)
{
    for (size_t i = 0; listed != NULL && i < listed->listing.count; i++)
        if (strcmp(listed->listing.files[i].path, name) == 0) return &listed->listing.files[i];
    return NULL;
}

/* The rest of a file's path below a folder; NULL: it is not below it. */
static const char *below(const char *path, const char *folder)
{
    size_t bytes = strlen(folder);
    while (bytes > 0 && folder[bytes - 1] == '/') bytes--;
    if (bytes == 0) return path;
    return strncmp(path, folder, bytes) == 0 && path[bytes] == '/' ? path + bytes + 1 : NULL;
}

static uint64_t kind_of(const struct listed *listed, const char *name)
{
    if (find_file(listed, name) != NULL) return 1;
    for (size_t i = 0; listed != NULL && i < listed->listing.count; i++)
        if (below(listed->listing.files[i].path, name) != NULL) return 2;
    return listed != NULL && *name == '\0' ? 2 : 0;
}

/* Whether the same name came from an earlier file; listings are sorted by path, but not by whom they come from. */
static bool was_named(const struct tt_store_call *call, const char *name, size_t bytes)
{
    const char *at = call->receive, *end = at + call->received;
    for (; at < end; at += strlen(at) + 1)
        if (strlen(at) == bytes && memcmp(at, name, bytes) == 0) return true;
    return false;
}

static tt_status list(const struct listed *listed, const char *name, struct tt_store_call *call)
{
    call->received = 0;
    if (kind_of(listed, name) != 2) return tt_fail_errno(ENOENT, "cannot open folder '%s'", call->path);
    for (size_t i = 0; i < listed->listing.count; i++) {
        const char *rest = below(listed->listing.files[i].path, name);
        size_t bytes = rest != NULL ? strcspn(rest, "/") : 0;
        if (rest == NULL || was_named(call, rest, bytes)) continue;
        if (bytes + 1 > call->receive_room - call->received)
            return tt_fail(TT_ERR_DATA, "'%s' has too many files", call->path);
        char *to = (char *)call->receive + call->received;
        memcpy(to, rest, bytes);
        to[bytes] = '\0';
        call->received += bytes + 1;
    }
    return TT_OK;
}

/* ---- Files ---- */

static tt_status open_read(struct hub_ranges *ranges, const struct listed *listed, const char *name,
                           struct tt_store_call *call)
{
    const struct tt_hub_file *file = find_file(listed, name);
    if (file == NULL)
        return tt_fail_errno(kind_of(listed, name) == 2 ? EISDIR : ENOENT, "cannot open '%s'", call->path);
    pthread_mutex_lock(&ranges->lock);
    int64_t free_one = 0;
    while (free_one < HANDLES_MAX && ranges->files[free_one].listed != NULL) free_one++;
    if (free_one < HANDLES_MAX) ranges->files[free_one] = (struct open_file){listed, file};
    pthread_mutex_unlock(&ranges->lock);
    if (free_one == HANDLES_MAX)
        return tt_fail(TT_ERR_IO, "%d files of the hub are open at once", HANDLES_MAX);
    call->handle = free_one;
    call->value = file->bytes;
    return TT_OK;
}

struct taking {
    struct tt_store_call *call;
    size_t most;
};

static tt_status take(void *context, const void *data, size_t bytes)
{
    const struct taking *taking = context;
    struct tt_store_call *call = taking->call;
    if (bytes > taking->most - call->received)
        return tt_fail(TT_ERR_DATA, "the hub sends more than the range that was asked for");
    memcpy((char *)call->receive + call->received, data, bytes);
    call->received += bytes;
    return TT_OK;
}

static tt_status request_range(struct tt_hub *hub, const struct open_file *file, struct tt_store_call *call,
                               uint64_t count)
{
    const struct hub_repository *repository = &file->listed->repository;
    struct tt_str url = {0}, what = {0};
    struct tt_net_answer answer = {0};
    struct taking taking = {call, (size_t)count};
    const struct tt_net_sink sink = {.write = take, .context = &taking};
    tt_status status = TT_OK;
    TT_GO(hub_append_page(hub, repository->kind, repository->name, &url));
    TT_GO(tt_str_printf(&url, "/resolve/%s/", repository->commit));
    TT_GO(tt_url_append_escaped(&url, file->file->path, true));
    TT_GO(tt_str_printf(&what, "'%s' of '%s'", file->file->path, repository->name));
    struct tt_net_request request = {.url = url.data,
                                     .what = what.data,
                                     .sink = &sink,
                                     .ranged = true,
                                     .first = call->offset,
                                     .count = count};
    TT_GO(hub_call(hub, repository, &request, &answer));
    if (call->received < count)
        TT_GO(tt_fail(TT_ERR_IO, "%s ends after %llu of %llu bytes", what.data,
                      (unsigned long long)(call->offset + call->received),
                      (unsigned long long)file->file->bytes));
out:
    tt_str_deinit(&url);
    tt_str_deinit(&what);
    tt_net_answer_deinit(&answer);
    return status;
}

static tt_status read_range(struct hub_ranges *ranges, struct tt_store_call *call)
{
    struct open_file file = {0};
    pthread_mutex_lock(&ranges->lock);
    if (call->handle >= 0 && call->handle < HANDLES_MAX) file = ranges->files[call->handle];
    pthread_mutex_unlock(&ranges->lock);
    if (file.listed == NULL) return tt_fail(TT_ERR_INTERNAL, "a file that is not open is read");
    call->received = 0;
    if (call->offset >= file.file->bytes) return TT_OK;
    uint64_t left = file.file->bytes - call->offset;
    return request_range(ranges->hub, &file, call, call->value < left ? call->value : left);
}

static void close_file(struct hub_ranges *ranges, int64_t handle)
{
    pthread_mutex_lock(&ranges->lock);
    if (handle >= 0 && handle < HANDLES_MAX) ranges->files[handle] = (struct open_file){0};
    pthread_mutex_unlock(&ranges->lock);
}

static void find_facts(const struct listed *listed, const char *name, struct tt_store_call *call)
{
    const struct tt_hub_file *file = find_file(listed, name);
    call->value = kind_of(listed, name);
    *(struct tt_file_facts *)call->receive = (struct tt_file_facts){
        .is_dir = call->value == 2, .is_regular = call->value == 1, .bytes = file != NULL ? file->bytes : 0};
}

static tt_status run_call(void *context, struct tt_store_call *call)
{
    struct hub_ranges *ranges = context;
    const char *name = "";
    const struct listed *listed = call->path != NULL ? find_listed(ranges, call->path, &name) : NULL;
    switch (call->kind) {
    case TT_STORE_OPEN_READ:
        return open_read(ranges, listed, name, call);
    case TT_STORE_READ:
        return read_range(ranges, call);
    case TT_STORE_CLOSE:
        close_file(ranges, call->handle);
        return TT_OK;
    case TT_STORE_STAT:
        call->value = kind_of(listed, name);
        return TT_OK;
    case TT_STORE_FACTS:
        find_facts(listed, name, call);
        return TT_OK;
    case TT_STORE_LIST:
        return list(listed, name, call);
    default:
        return tt_fail(TT_ERR_UNSUPPORTED, "'%s': files of the hub are only read", call->path);
    }
}

/* ---- Repositories ---- */

static void free_listed(struct listed *listed)
{
    if (listed == NULL) return;
    tt_hub_listing_deinit(&listed->listing);
    tt_free(listed->root);
    tt_free(listed->name);
    tt_free(listed);
}

static tt_status make_ranges(struct tt_hub *hub)
{
    if (hub->ranges != NULL) return TT_OK;
    hub->ranges = tt_calloc(1, sizeof *hub->ranges);
    if (hub->ranges == NULL) return TT_ERR_MEMORY;
    hub->ranges->hub = hub;
    pthread_mutex_init(&hub->ranges->lock, NULL);
    hub->store = (struct tt_store){
        .context = hub->ranges, .kinds = TT_STORE_KINDS, .covers = covers, .call = run_call};
    tt_store_set(TT_STORE_HUB, &hub->store);
    return TT_OK;
}

tt_status hub_ranges_open(struct tt_hub *hub, const struct hub_repository *repository,
                          struct tt_hub_listing *listing, char **folder)
{
    struct tt_str root = {0};
    const char *rest;
    tt_status status = TT_OK;
    struct listed *listed = tt_calloc(1, sizeof *listed);
    if (listed == NULL) return TT_ERR_MEMORY;
    TT_GO(make_ranges(hub));
    TT_GO(tt_str_printf(&root, "hf://%s/%s@%s", repository->kind, repository->name, repository->commit));
    *folder = tt_strdup(root.data);
    if (*folder == NULL) TT_GO(TT_ERR_MEMORY);
    if (find_listed(hub->ranges, root.data, &rest) != NULL) goto out;
    listed->root = tt_strdup(root.data);
    listed->name = tt_strdup(repository->name);
    if (listed->root == NULL || listed->name == NULL) TT_GO(TT_ERR_MEMORY);
    listed->repository = *repository;
    listed->repository.name = listed->name;
    listed->repository.kind = "datasets";
    listed->repository.revision = listed->repository.commit;
    listed->listing = *listing;
    *listing = (struct tt_hub_listing){0};
    pthread_mutex_lock(&hub->ranges->lock);
    status = tt_grow(&hub->ranges->listed, hub->ranges->count, &hub->ranges->capacity);
    if (status == TT_OK) {
        hub->ranges->listed[hub->ranges->count++] = listed;
        listed = NULL;
    }
    pthread_mutex_unlock(&hub->ranges->lock);
out:
    if (status != TT_OK) {
        tt_free(*folder);
        *folder = NULL;
    }
    tt_str_deinit(&root);
    free_listed(listed);
    return status;
}

void hub_ranges_close(struct tt_hub *hub)
{
    struct hub_ranges *ranges = hub->ranges;
    if (ranges == NULL) return;
    tt_store_set(TT_STORE_HUB, NULL);
    for (size_t i = 0; i < ranges->count; i++) free_listed(ranges->listed[i]);
    tt_free(ranges->listed);
    pthread_mutex_destroy(&ranges->lock);
    tt_free(ranges);
    hub->ranges = NULL;
}
