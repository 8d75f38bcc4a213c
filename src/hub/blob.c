/* One file of a repository into the cache: under its lock, from where an earlier process stopped, verified. */
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "base/partial_file.h"
#include "hub/blob_sum.h"
#include "hub/hub_impl.h"
#include "net/url.h"

struct taking {
    const struct hub_blob *blob;
    struct tt_partial_file partial;
    struct hub_sum sum;
};

static tt_status take(void *context, const void *data, size_t bytes)
{
    struct taking *taking = context;
    const struct hub_blob *blob = taking->blob;
    if (bytes > blob->file->bytes - taking->partial.bytes)
        return tt_fail(TT_ERR_DATA, "'%s' is longer than the listing says", blob->file->path);
    TT_TRY(tt_partial_file_append(&taking->partial, data, bytes));
    hub_sum_add(&taking->sum, data, bytes);
    blob->taken(blob->context, (int64_t)bytes);
    return TT_OK;
}

static bool is_stopped(void *context)
{
    return hub_is_stopped(context);
}

static tt_status request_rest(struct taking *taking)
{
    const struct hub_blob *blob = taking->blob;
    struct tt_str url = {0}, what = {0};
    struct tt_net_answer answer = {0};
    tt_status status = TT_OK;
    TT_GO(hub_append_page(blob->hub, blob->repository->kind, blob->repository->name, &url));
    TT_GO(tt_str_printf(&url, "/resolve/%s/", blob->repository->commit));
    TT_GO(tt_url_append_escaped(&url, blob->file->path, true));
    TT_GO(tt_str_printf(&what, "'%s' of '%s'", blob->file->path, blob->repository->name));
    const struct tt_net_sink sink = {.write = take, .context = taking};
    struct tt_net_request request = {.url = url.data,
                                     .what = what.data,
                                     .sink = &sink,
                                     .ranged = taking->partial.bytes > 0,
                                     .first = taking->partial.bytes};
    status = hub_call(blob->hub, blob->repository, &request, &answer);
out:
    tt_str_deinit(&url);
    tt_str_deinit(&what);
    tt_net_answer_deinit(&answer);
    return status;
}

static tt_status start_anew(struct taking *taking)
{
    taking->blob->taken(taking->blob->context, -(int64_t)taking->partial.bytes);
    return tt_partial_file_empty(&taking->partial);
}

static tt_status fetch_rest(struct taking *taking)
{
    const struct tt_hub_file *file = taking->blob->file;
    TT_TRY(hub_sum_begin_of_file(&taking->sum, is_stopped, taking->blob->hub));
    if (taking->partial.bytes < file->bytes || file->bytes == 0) TT_TRY(request_rest(taking));
    if (taking->partial.bytes == file->bytes) return TT_OK;
    return tt_fail(TT_ERR_IO, "'%s' ends after %llu of %llu bytes", file->path,
                   (unsigned long long)taking->partial.bytes, (unsigned long long)file->bytes);
}

/* Fetches what is missing and compares the sum; *same false: what an earlier process left does not belong to it. */
static tt_status complete(struct taking *taking, bool *same)
{
    const struct tt_hub_file *file = taking->blob->file;
    struct tt_error error;
    char digits[TT_HUB_DIGEST_BYTES];
    uint64_t left_behind = taking->partial.bytes;
    *same = true;
    hub_sum_begin(&taking->sum, file, &taking->partial,
                  taking->blob->aside && file->bytes >= HUB_LARGE_BYTES);
    tt_status status = fetch_rest(taking);
    tt_error_copy(&error);
    tt_status summed = hub_sum_end(&taking->sum, status == TT_OK ? digits : NULL);
    if (status != TT_OK) return tt_error_restore(&error);
    TT_TRY(summed);
    *same = strcmp(digits, file->digest) == 0;
    if (*same) return TT_OK;
    TT_TRY(start_anew(taking));
    if (left_behind > 0) return TT_OK;
    tt_fail(TT_ERR_DATA, "'%s' has the sum %s, and the hub says %s", file->path, digits, file->digest);
    tt_hint("what came was not what the hub stores, and is removed: try again, without a proxy that changes "
            "files");
    return TT_ERR_DATA;
}

static tt_status fetch_locked(const struct hub_blob *blob, const char *path)
{
    struct taking taking = {.blob = blob, .partial = {.descriptor = -1}};
    struct tt_str incomplete = {0};
    tt_status status = TT_OK;
    if (tt_path_exists(path)) { /* another process has fetched it meanwhile */
        blob->taken(blob->context, (int64_t)blob->file->bytes);
        return TT_OK;
    }
    TT_GO(tt_str_printf(&incomplete, "%s.incomplete", path));
    TT_GO(tt_partial_file_open(incomplete.data, &taking.partial));
    blob->taken(blob->context, (int64_t)taking.partial.bytes);
    if (taking.partial.bytes > blob->file->bytes) TT_GO(start_anew(&taking));
    bool same = false;
    TT_GO(complete(&taking, &same));
    if (!same) TT_GO(complete(&taking, &same));
    TT_GO(tt_partial_file_finish(&taking.partial, path));
out:
    tt_partial_file_close(&taking.partial);
    tt_str_deinit(&incomplete);
    return status;
}

struct waiting {
    struct tt_hub *hub;
    const char *path;
};

static bool ends_waiting(void *context)
{
    const struct waiting *waiting = context;
    return hub_is_stopped(waiting->hub);
}

static void tell(void *context)
{
    const struct waiting *waiting = context;
    tt_notice("another process fetches '%s': waiting for it", waiting->path);
}

tt_status hub_blob_fetch(const struct hub_blob *blob)
{
    struct tt_str path = {0}, lock = {0};
    int descriptor = -1;
    tt_status status = TT_OK;
    struct waiting waiting = {blob->hub, blob->file->path};
    TT_GO(tt_str_printf(&path, "%s/blobs/%s", blob->folder, blob->file->digest));
    TT_GO(tt_str_printf(&lock, "%s/%s.lock", blob->locks, blob->file->digest));
    TT_GO(tt_flock_take(lock.data, ends_waiting, tell, &waiting, &descriptor));
    status = fetch_locked(blob, path.data);
    tt_file_close(descriptor);
out:
    tt_str_deinit(&path);
    tt_str_deinit(&lock);
    return status;
}
