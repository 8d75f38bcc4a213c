/* LFS objects of an upload: the batch request says where each goes, as a whole or in parts, several at a time. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/ascii.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "hub/send_impl.h"
#include "net/url.h"

enum { THREADS = 8, OBJECTS_AT_ONCE = 256, HEADERS_MAX = 16, PARTS_MAX = 10000 };

#define LFS_TYPE "application/vnd.git-lfs+json"

struct sending_all {
    struct hub_sending *sending;
    const struct tt_json *json;
    const struct tt_json_value *objects; /* of the answer */
    atomic_size_t next;
    pthread_mutex_t mutex; /* for what follows */
    struct tt_hub_progress progress;
    double told;
    bool failed;
    struct tt_error error; /* the first */
};

/* Bytes `first` to first + bytes of a file. */
struct part {
    const struct hub_sent *file;
    int descriptor;
    uint64_t first;
    struct sending_all *all;
};

static tt_status read_part(void *context, uint64_t offset, void *data, size_t bytes)
{
    const struct part *part = context;
    return tt_file_pread(part->descriptor, part->file->path, data, bytes, part->first + offset);
}

static void tell(struct sending_all *all, uint64_t bytes, int files, bool over)
{
    const struct tt_hub_config *config = &all->sending->hub->config;
    pthread_mutex_lock(&all->mutex);
    double now = tt_clock_seconds();
    all->progress.bytes += bytes;
    all->progress.files += files;
    all->progress.over = over;
    if (config->progress != NULL && (over || now >= all->told + 0.1)) {
        all->told = now;
        config->progress(config->context, &all->progress);
    }
    pthread_mutex_unlock(&all->mutex);
}

static const struct hub_sent *find_file(const struct hub_sending *sending, const char *oid)
{
    for (size_t i = 0; i < sending->count; i++)
        if (sending->files[i].large && strcmp(sending->files[i].digest, oid) == 0) return &sending->files[i];
    return NULL;
}

/* Headers that the hub gives for an address; parts and their size are not among them. */
static tt_status list_headers(const struct tt_json_value *action, struct tt_net_header headers[HEADERS_MAX],
                              size_t *count)
{
    const char *name;
    const struct tt_json_value *value;
    *count = 0;
    for (size_t i = 0; tt_json_next_member(tt_json_get(action, "header"), &i, &name, &value);) {
        if (tt_json_text(value) == NULL || tt_ascii_is_digit(name[0]) || strcmp(name, "chunk_size") == 0)
            continue;
        if (*count == HEADERS_MAX)
            return tt_fail(TT_ERR_DATA, "the hub asks for more than %d headers", HEADERS_MAX);
        headers[(*count)++] = (struct tt_net_header){name, tt_json_text(value), true};
    }
    return TT_OK;
}

/* A request to an address that the hub named, with the headers that it named alone: its store wants no token. */
static tt_status call_store(struct part *part, struct tt_net_request *request, struct tt_net_answer *answer)
{
    request->what = part->file->there;
    TT_TRY(tt_net_call(part->all->sending->hub->net, request, answer));
    if (answer->code >= 200 && answer->code <= 299) return TT_OK;
    tt_status status = tt_net_fail(request, answer);
    if (answer->code == 403)
        tt_hint(
            "the address that the hub gave may have expired: upload again; what is there is not sent twice");
    return status;
}

static tt_status put(struct part *part, const char *url, uint64_t bytes, const struct tt_net_header *headers,
                     size_t header_count, char *etag, size_t etag_bytes)
{
    struct tt_net_answer answer = {0};
    const struct tt_net_source body = {.bytes = bytes, .read = read_part, .context = part};
    struct tt_net_request request = {
        .method = TT_NET_PUT, .url = url, .headers = headers, .header_count = header_count, .body = &body};
    tt_status status = call_store(part, &request, &answer);
    if (status == TT_OK && etag != NULL && !tt_net_header(&answer.headers, "etag", etag, etag_bytes))
        status = tt_fail(TT_ERR_DATA, "'%s': a part has no ETag", part->file->there);
    if (status == TT_OK) tell(part->all, bytes, 0, false);
    tt_net_answer_deinit(&answer);
    return status;
}

/* Parts of `chunk` bytes to the addresses "1", "2", ... of the header; then they are put together. Source:
 * huggingface_hub, lfs.py (_upload_multi_part). */
static tt_status put_parts(struct part *part, const struct tt_json_value *action, const char *href,
                           uint64_t chunk)
{
    tt_status status = TT_OK;
    struct tt_json_value *parts = tt_json_new_list(), *whole = NULL;
    struct tt_str text = {0};
    struct tt_net_answer answer = {0};
    uint64_t count = (part->file->bytes + chunk - 1) / chunk;
    if (count > PARTS_MAX) TT_GO(tt_fail(TT_ERR_DATA, "the hub asks for more than %d parts", PARTS_MAX));
    for (uint64_t i = 0; i < count; i++) {
        char number[24], etag[256];
        snprintf(number, sizeof number, "%llu", (unsigned long long)i + 1);
        const char *url = tt_json_text(tt_json_get(tt_json_get(action, "header"), number));
        if (url == NULL)
            TT_GO(tt_fail(TT_ERR_DATA, "the hub has no address for part %s of '%s'", number,
                          part->file->there));
        part->first = i * chunk;
        uint64_t left = part->file->bytes - part->first;
        TT_GO(put(part, url, left < chunk ? left : chunk, NULL, 0, etag, sizeof etag));
        tt_json_append(parts, tt_json_pack("{s:I,s:s}", "partNumber", (int64_t)i + 1, "etag", etag));
    }
    whole = tt_json_pack("{s:s,s:o}", "oid", part->file->digest, "parts", parts);
    parts = NULL;
    TT_GO(tt_json_write(whole, 0, false, &text));
    const struct tt_net_header headers[] = {{.name = "Content-Type", .value = LFS_TYPE},
                                            {.name = "Accept", .value = LFS_TYPE}};
    const struct tt_net_source body = {.bytes = text.bytes, .read = hub_read_text, .context = text.data};
    struct tt_net_request request = {.method = TT_NET_POST,
                                     .url = href,
                                     .headers = headers,
                                     .header_count = 2,
                                     .body = &body,
                                     .repeatable = true};
    status = call_store(part, &request, &answer);
out:
    tt_json_release(parts);
    tt_json_release(whole);
    tt_str_deinit(&text);
    tt_net_answer_deinit(&answer);
    return status;
}

/* The hub's own address, to which the token belongs. */
static tt_status verify(struct part *part, const struct tt_json_value *action)
{
    struct hub_sending *sending = part->all->sending;
    const char *href = tt_json_text(tt_json_get(action, "href"));
    struct tt_str text = {0};
    struct tt_net_answer answer = {0};
    if (href == NULL) return TT_OK;
    struct tt_json_value *value =
        tt_json_pack("{s:s,s:I}", "oid", part->file->digest, "size", (int64_t)part->file->bytes);
    tt_status status = tt_json_write(value, 0, false, &text);
    tt_json_release(value);
    if (status == TT_OK && !tt_url_same_origin(href, sending->hub->endpoint.data))
        status = tt_fail(TT_ERR_DATA, "the hub wants '%s' verified by another host", part->file->there);
    if (status == TT_OK) status = hub_post(sending, href, LFS_TYPE, &text, true, &answer);
    tt_str_deinit(&text);
    tt_net_answer_deinit(&answer);
    return status;
}

static tt_status send_object(struct sending_all *all, const struct tt_json_value *object)
{
    const char *oid, *href;
    const struct tt_json_value *actions = tt_json_get(object, "actions"),
                               *error = tt_json_get(object, "error");
    const struct tt_json_value *upload = tt_json_get(actions, "upload");
    struct part part = {.all = all, .descriptor = -1};
    struct tt_net_header headers[HEADERS_MAX];
    size_t count;
    uint64_t bytes;
    TT_TRY(tt_json_string(all->json, object, "oid", &oid));
    part.file = find_file(all->sending, oid);
    if (part.file == NULL)
        return tt_fail(TT_ERR_DATA, "the hub asks for an object '%.80s', which nobody offered", oid);
    if (tt_json_is_object(error)) {
        const char *message = tt_json_text(tt_json_get(error, "message"));
        return tt_fail(TT_ERR_DATA, "the hub refuses '%s': %.300s", part.file->there,
                       message != NULL ? message : "it says no reason");
    }
    if (!tt_json_is_object(upload)) { /* it is there */
        tell(all, part.file->bytes, 1, false);
        return TT_OK;
    }
    TT_TRY(tt_json_string(all->json, upload, "href", &href));
    TT_TRY(list_headers(upload, headers, &count));
    const char *chunk = tt_json_text(tt_json_get(tt_json_get(upload, "header"), "chunk_size"));
    TT_TRY(tt_file_open_read(part.file->path, &part.descriptor, &bytes));
    tt_status status;
    if (bytes != part.file->bytes)
        status = tt_fail(TT_ERR_DATA, "'%s' changed while it was uploaded", part.file->path);
    else if (chunk != NULL && strtoull(chunk, NULL, 10) > 0)
        status = put_parts(&part, upload, href, strtoull(chunk, NULL, 10));
    else
        status = put(&part, href, part.file->bytes, headers, count, NULL, 0);
    tt_file_close(part.descriptor);
    if (status == TT_OK) status = verify(&part, tt_json_get(actions, "verify"));
    if (status == TT_OK) tell(all, 0, 1, false);
    return status;
}

static tt_status send_some(void *context)
{
    struct sending_all *all = context;
    for (size_t i; (i = atomic_fetch_add(&all->next, 1)) < tt_json_count(all->objects);) {
        if (send_object(all, tt_json_at(all->objects, i)) == TT_OK) continue;
        pthread_mutex_lock(&all->mutex);
        if (!all->failed) tt_error_copy(&all->error);
        all->failed = true;
        pthread_mutex_unlock(&all->mutex);
        atomic_store(&all->sending->hub->stop, true);
        break;
    }
    return TT_OK;
}

/* One batch: the LFS files from *first on, each content once; *first: where the next begins. */
static tt_status pack_batch(struct hub_sending *sending, size_t *first, struct sending_all *all,
                            struct tt_str *text)
{
    struct tt_json_value *objects = tt_json_new_list();
    size_t count = 0;
    for (; *first < sending->count && count < OBJECTS_AT_ONCE; (*first)++) {
        const struct hub_sent *file = &sending->files[*first];
        if (!file->large || file->ignored || find_file(sending, file->digest) != file) continue;
        tt_json_append(objects, tt_json_pack("{s:s,s:I}", "oid", file->digest, "size", (int64_t)file->bytes));
        all->progress.all += file->bytes;
        count++;
    }
    all->progress.all_files = (int)count;
    struct tt_json_value *transfers = tt_json_new_list();
    tt_json_append(transfers, tt_json_new_string("basic"));
    tt_json_append(transfers, tt_json_new_string("multipart"));
    struct tt_json_value *batch =
        tt_json_pack("{s:s,s:o,s:o,s:s,s:{s:s}}", "operation", "upload", "transfers", transfers, "objects",
                     objects, "hash_algo", "sha256", "ref", "name", sending->repository.revision);
    tt_status status = tt_json_write(batch, 0, false, text);
    tt_json_release(batch);
    return status;
}

static tt_status send_batch(struct hub_sending *sending, size_t *first)
{
    tt_status status = TT_OK;
    struct tt_str text = {0}, url = {0};
    struct tt_net_answer answer = {0};
    struct tt_json json = {0};
    struct sending_all *all = tt_calloc(1, sizeof *all);
    if (all == NULL) return TT_ERR_MEMORY;
    pthread_mutex_init(&all->mutex, NULL);
    all->sending = sending;
    all->json = &json;
    all->progress.name = sending->repository.name;
    TT_GO(pack_batch(sending, first, all, &text));
    if (all->progress.all_files == 0) goto out;
    TT_GO(hub_append_page(sending->hub, sending->repository.kind, sending->repository.name, &url));
    TT_GO(tt_str_append_text(&url, ".git/info/lfs/objects/batch"));
    TT_GO(hub_post(sending, url.data, LFS_TYPE, &text, true, &answer));
    TT_GO(tt_json_parse(tt_str_text(&answer.body), answer.body.bytes, url.data, &json));
    TT_GO(tt_json_array(&json, json.root, "objects", &all->objects));
    size_t count = tt_json_count(all->objects);
    atomic_store(&sending->hub->stop, false);
    status = tt_threads_run("hub", count < THREADS ? (int)(count > 0 ? count : 1) : THREADS, send_some, all);
    tell(all, 0, 0, true);
    atomic_store(&sending->hub->stop, false);
    if (all->failed) status = tt_error_restore(&all->error);
out:
    tt_json_deinit(&json);
    tt_str_deinit(&text);
    tt_str_deinit(&url);
    tt_net_answer_deinit(&answer);
    pthread_mutex_destroy(&all->mutex);
    tt_free(all);
    return status;
}

tt_status hub_send_objects(struct hub_sending *sending)
{
    for (size_t first = 0; first < sending->count;) TT_TRY(send_batch(sending, &first));
    return TT_OK;
}
