/* The files of a listing that are wanted, several at a time; their links; the ref. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/hub_cache.h"
#include "base/partial_file.h"
#include "hub/hub_impl.h"

enum { THREADS = 8 };

struct fetching {
    struct tt_hub *hub;
    const struct hub_repository *repository;
    const struct tt_hub_file **files; /* the largest first */
    size_t count;
    int large; /* of them, of HUB_LARGE_BYTES or more */
    struct tt_str folder, locks;
    atomic_size_t next;
    pthread_mutex_t mutex; /* for what follows */
    struct tt_hub_progress progress;
    int64_t bytes;
    double told;
    bool failed;
    struct tt_error error; /* the first */
};

static void tell(struct fetching *fetching, bool over)
{
    double now = tt_clock_seconds();
    const struct tt_hub_config *config = &fetching->hub->config;
    if (config->progress == NULL || (!over && now < fetching->told + 0.1)) return;
    fetching->told = now;
    fetching->progress.bytes = fetching->bytes > 0 ? (uint64_t)fetching->bytes : 0;
    fetching->progress.over = over;
    config->progress(config->context, &fetching->progress);
}

static void on_taken(void *context, int64_t bytes)
{
    struct fetching *fetching = context;
    pthread_mutex_lock(&fetching->mutex);
    fetching->bytes += bytes;
    tell(fetching, false);
    pthread_mutex_unlock(&fetching->mutex);
}

/* The first error ends the other threads, whose own are of no interest. */
static void end_all(struct fetching *fetching)
{
    pthread_mutex_lock(&fetching->mutex);
    if (!fetching->failed) tt_error_copy(&fetching->error);
    fetching->failed = true;
    pthread_mutex_unlock(&fetching->mutex);
    atomic_store(&fetching->hub->stop, true);
}

static tt_status fetch_some(void *context)
{
    struct fetching *fetching = context;
    for (size_t i; (i = atomic_fetch_add(&fetching->next, 1)) < fetching->count;) {
        struct hub_blob blob = {.hub = fetching->hub,
                                .repository = fetching->repository,
                                .file = fetching->files[i],
                                .folder = fetching->folder.data,
                                .locks = fetching->locks.data,
                                .aside = fetching->large < tt_cpu_count(),
                                .taken = on_taken,
                                .context = fetching};
        if (hub_blob_fetch(&blob) != TT_OK) {
            end_all(fetching);
            return TT_OK;
        }
        pthread_mutex_lock(&fetching->mutex);
        fetching->progress.files++;
        pthread_mutex_unlock(&fetching->mutex);
    }
    return TT_OK;
}

static int compare_sizes(const void *a, const void *b)
{
    const struct tt_hub_file *left = *(const struct tt_hub_file *const *)a,
                             *right = *(const struct tt_hub_file *const *)b;
    return left->bytes < right->bytes ? 1 : left->bytes > right->bytes ? -1 : 0;
}

/* Files whose blobs are not there; the rest counts as done. */
static tt_status list_missing(struct fetching *fetching, const struct tt_hub_listing *listing,
                              uint64_t *missing)
{
    struct tt_path path, blobs;
    TT_TRY(tt_path_set(&blobs, fetching->folder.data, "blobs"));
    *missing = 0;
    for (size_t i = 0; i < listing->count; i++) {
        const struct tt_hub_file *file = &listing->files[i];
        if (!file->wanted) continue;
        TT_TRY(tt_path_set(&path, blobs.text, file->digest));
        fetching->progress.all += file->bytes;
        fetching->progress.all_files++;
        if (tt_path_exists(path.text)) {
            fetching->bytes += (int64_t)file->bytes;
            fetching->progress.files++;
        } else {
            fetching->files[fetching->count++] = file;
            fetching->large += file->bytes >= HUB_LARGE_BYTES;
            *missing += file->bytes;
        }
    }
    qsort(fetching->files, fetching->count, sizeof *fetching->files, compare_sizes);
    return TT_OK;
}

static tt_status check_room(const struct fetching *fetching, uint64_t missing)
{
    uint64_t unused;
    char need[32], has[32];
    TT_TRY(tt_dir_create(fetching->folder.data));
    TT_TRY(tt_dir_free_bytes(fetching->folder.data, &unused, NULL));
    if (missing <= unused) return TT_OK;
    tt_fail(TT_ERR_IO, "'%s' needs %s in the hub's cache, and the disk of '%s' has %s",
            fetching->repository->name, tt_format_bytes((double)missing, need, sizeof need),
            fetching->folder.data, tt_format_bytes((double)unused, has, sizeof has));
    tt_hint("remove what is not needed, or set HF_HUB_CACHE to a folder of a larger disk");
    return TT_ERR_IO;
}

static tt_status fetch_all(struct fetching *fetching)
{
    int threads = fetching->count < THREADS ? (int)fetching->count : THREADS;
    atomic_store(&fetching->hub->stop, false);
    if (threads == 0) return TT_OK;
    tt_status status = tt_threads_run("hub", threads, fetch_some, fetching);
    pthread_mutex_lock(&fetching->mutex);
    tell(fetching, true);
    pthread_mutex_unlock(&fetching->mutex);
    atomic_store(&fetching->hub->stop, false);
    return fetching->failed ? tt_error_restore(&fetching->error) : status;
}

/* snapshots/COMMIT/a/b -> ../../../blobs/DIGEST */
static tt_status link_files(const struct fetching *fetching, const struct tt_hub_listing *listing,
                            const char *snapshot)
{
    struct tt_str target = {0};
    struct tt_path path;
    tt_status status = TT_OK;
    for (size_t i = 0; i < listing->count; i++) {
        const struct tt_hub_file *file = &listing->files[i];
        if (!file->wanted) continue;
        tt_str_clear(&target);
        for (const char *at = file->path; at != NULL; at = strchr(at + 1, '/'))
            TT_GO(tt_str_append_text(&target, "../"));
        TT_GO(tt_str_printf(&target, "../blobs/%s", file->digest));
        TT_GO(tt_path_set(&path, snapshot, file->path));
        TT_GO(tt_file_link(target.data, path.text));
    }
    (void)fetching;
out:
    tt_str_deinit(&target);
    return status;
}

/* A commit needs no ref: it is its own. */
static tt_status write_ref(const struct fetching *fetching)
{
    const struct hub_repository *repository = fetching->repository;
    struct tt_path refs, path;
    if (strcmp(repository->revision, repository->commit) == 0) return TT_OK;
    TT_TRY(tt_path_set(&refs, fetching->folder.data, "refs"));
    TT_TRY(tt_path_set(&path, refs.text, repository->revision));
    char *slash = strrchr(path.text, '/');
    *slash = '\0';
    TT_TRY(tt_dir_create(path.text));
    *slash = '/';
    return tt_file_write_atomic(path.text, repository->commit, strlen(repository->commit));
}

tt_status hub_fetch_files(struct tt_hub *hub, const struct hub_repository *repository,
                          const struct tt_hub_listing *listing, bool final, char **folder)
{
    tt_status status = TT_OK;
    uint64_t missing;
    struct tt_str snapshot = {0};
    struct fetching *fetching = tt_calloc(1, sizeof *fetching);
    if (fetching == NULL) return TT_ERR_MEMORY;
    pthread_mutex_init(&fetching->mutex, NULL);
    fetching->hub = hub;
    fetching->repository = repository;
    fetching->progress.name = repository->name;
    fetching->files = tt_calloc(listing->count, sizeof *fetching->files);
    if (fetching->files == NULL) TT_GO(TT_ERR_MEMORY);
    TT_GO(tt_hub_append_repository(repository->kind, repository->name, &fetching->folder));
    TT_GO(tt_hub_append_cache(&fetching->locks));
    TT_GO(tt_str_printf(&fetching->locks, "/.locks/%s", tt_path_basename(fetching->folder.data)));
    TT_GO(list_missing(fetching, listing, &missing));
    TT_GO(check_room(fetching, missing));
    TT_GO(fetch_all(fetching));
    TT_GO(tt_str_printf(&snapshot, "%s/snapshots/%s", fetching->folder.data, repository->commit));
    TT_GO(tt_dir_create(snapshot.data));
    TT_GO(link_files(fetching, listing, snapshot.data));
    if (final) TT_GO(write_ref(fetching));
    *folder = snapshot.data;
    snapshot = (struct tt_str){0};
out:
    tt_str_deinit(&snapshot);
    tt_str_deinit(&fetching->folder);
    tt_str_deinit(&fetching->locks);
    tt_free(fetching->files);
    pthread_mutex_destroy(&fetching->mutex);
    tt_free(fetching);
    return status;
}
