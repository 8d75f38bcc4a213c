/* An object that is put in parts, several at a time. */
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/number.h"
#include "base/thread.h"
#include "net/url.h"
#include "store/s3_request_impl.h"

enum { PARTS_MAX = 10000, THREADS = 4, WHAT_BYTES = 1200 };
#define PART_BYTES ((uint64_t)16 << 20)
#define MEBIBYTE ((uint64_t)1 << 20)

struct putting {
    struct tt_s3 *s3;
    struct tt_s3_name name;
    const char *path;
    char what[WHAT_BYTES];
    int descriptor;
    uint64_t bytes, part_bytes;
    char upload[1200];             /* the encoded id of the upload */
    char before[TT_S3_ETAG_BYTES]; /* of the object that is replaced; "": there is none */
    char (*etags)[TT_S3_ETAG_BYTES];
    atomic_int next;
    int count;
    atomic_bool failed;
};

static struct s3_request request_of(const struct putting *putting, enum tt_net_method method,
                                    const char *query)
{
    return (struct s3_request){.method = method,
                               .bucket = putting->name.bucket,
                               .key = {putting->name.key, putting->name.key_bytes},
                               .query = query,
                               .what = putting->what};
}

static tt_status start(struct putting *putting)
{
    char id[400];
    struct tt_str escaped = {0};
    struct tt_net_answer answer = {0};
    tt_status status = TT_OK;
    struct tt_s3_object there;
    struct s3_request request = request_of(putting, TT_NET_POST, "uploads=");
    request.body = "";
    TT_GO(tt_s3_head(putting->s3, putting->path, &there));
    memcpy(putting->before, there.etag, sizeof there.etag);
    TT_GO(s3_send(putting->s3, &request, &answer));
    if (answer.code != 200) TT_GO(s3_fail(putting->s3, &request, &answer));
    s3_element(&answer, "InitiateMultipartUploadResult/UploadId", id, sizeof id);
    TT_GO(tt_url_append_escaped(&escaped, id, false));
    if (id[0] == '\0' || escaped.bytes >= sizeof putting->upload) {
        status = tt_fail(TT_ERR_DATA, "the server gave no id to put %s in parts", putting->what);
        goto out;
    }
    memcpy(putting->upload, escaped.data, escaped.bytes + 1);
out:
    tt_str_deinit(&escaped);
    tt_net_answer_deinit(&answer);
    return status;
}

static tt_status put_part(struct putting *putting, int index, char *data)
{
    char query[1300];
    struct tt_net_answer answer = {0};
    uint64_t first = (uint64_t)index * putting->part_bytes, left = putting->bytes - first;
    size_t bytes = (size_t)(left < putting->part_bytes ? left : putting->part_bytes);
    tt_status status = TT_OK;
    struct s3_request request = request_of(putting, TT_NET_PUT, query);
    TT_GO(tt_file_pread(putting->descriptor, putting->path, data, bytes, first));
    (void)tt_snprintf(query, sizeof query, "partNumber=%d&uploadId=%s", index + 1, putting->upload);
    request.body = data;
    request.body_bytes = bytes;
    TT_GO(s3_send(putting->s3, &request, &answer));
    if (answer.code != 200) TT_GO(s3_fail(putting->s3, &request, &answer));
    if (!tt_net_header(&answer.headers, "etag", putting->etags[index], TT_S3_ETAG_BYTES))
        status = tt_fail(TT_ERR_DATA, "the server gave no ETag for part %d of %s", index + 1, putting->what);
out:
    tt_net_answer_deinit(&answer);
    return status;
}

static tt_status put_parts(void *argument)
{
    struct putting *putting = argument;
    tt_status status = TT_OK;
    char *data = tt_alloc_aligned((size_t)putting->part_bytes);
    if (data == NULL) TT_GO(TT_ERR_MEMORY);
    for (int index;
         !atomic_load(&putting->failed) && (index = atomic_fetch_add(&putting->next, 1)) < putting->count;)
        TT_GO(put_part(putting, index, data));
out:
    if (status != TT_OK) atomic_store(&putting->failed, true);
    tt_free(data);
    return status;
}

/* The text of an ETag has quotes, and could have more. */
static tt_status append_escaped(struct tt_str *text, const char *value)
{
    for (; *value != '\0'; value++) {
        if (*value == '&')
            TT_TRY(tt_str_append_text(text, "&amp;"));
        else if (*value == '<')
            TT_TRY(tt_str_append_text(text, "&lt;"));
        else
            TT_TRY(tt_str_append_char(text, *value));
    }
    return TT_OK;
}

/* The upload is gone: its completion may have been done, and only the answer lost. */
static tt_status is_complete(const struct putting *putting, bool *complete)
{
    struct tt_s3_object there;
    TT_TRY(tt_s3_head(putting->s3, putting->path, &there));
    *complete = there.exists && there.bytes == putting->bytes && strcmp(there.etag, putting->before) != 0;
    return TT_OK;
}

/* An answer of 200 may still have an error in its text. */
static tt_status complete(struct putting *putting)
{
    char query[1300], etag[TT_S3_ETAG_BYTES];
    struct tt_str text = {0};
    struct tt_net_answer answer = {0};
    tt_status status = TT_OK;
    struct s3_request request = request_of(putting, TT_NET_POST, query);
    TT_GO(tt_str_append_text(&text, "<CompleteMultipartUpload>"));
    for (int i = 0; i < putting->count; i++) {
        TT_GO(tt_str_printf(&text, "<Part><PartNumber>%d</PartNumber><ETag>", i + 1));
        TT_GO(append_escaped(&text, putting->etags[i]));
        TT_GO(tt_str_append_text(&text, "</ETag></Part>"));
    }
    TT_GO(tt_str_append_text(&text, "</CompleteMultipartUpload>"));
    (void)tt_snprintf(query, sizeof query, "uploadId=%s", putting->upload);
    request.body = text.data;
    request.body_bytes = text.bytes;
    TT_GO(s3_send(putting->s3, &request, &answer));
    s3_element(&answer, "CompleteMultipartUploadResult/ETag", etag, sizeof etag);
    bool done = answer.code == 200 && etag[0] != '\0';
    if (answer.code == 404) TT_GO(is_complete(putting, &done));
    if (!done) status = s3_fail(putting->s3, &request, &answer);
out:
    tt_str_deinit(&text);
    tt_net_answer_deinit(&answer);
    return status;
}

/* Parts of an upload that is not completed cost their room until someone removes them. */
static void give_up(struct putting *putting)
{
    char query[1300];
    struct tt_error error;
    struct tt_net_answer answer = {0};
    const struct s3_request request = request_of(putting, TT_NET_DELETE, query);
    tt_error_copy(&error);
    (void)tt_snprintf(query, sizeof query, "uploadId=%s", putting->upload);
    (void)!s3_send(putting->s3, &request, &answer);
    tt_net_answer_deinit(&answer);
    (void)tt_error_restore(&error);
}

static tt_status put_whole(struct tt_s3 *s3, const char *path, int descriptor, uint64_t bytes)
{
    char *data = tt_alloc_aligned((size_t)bytes + 1);
    if (data == NULL) return TT_ERR_MEMORY;
    tt_status status = tt_file_pread(descriptor, path, data, (size_t)bytes, 0);
    if (status == TT_OK) status = tt_s3_put(s3, path, data, (size_t)bytes, NULL, NULL, NULL);
    tt_free(data);
    return status;
}

tt_status tt_s3_put_file(struct tt_s3 *s3, const char *path, int descriptor, uint64_t bytes)
{
    tt_status status = TT_OK;
    struct putting putting = {.s3 = s3, .path = path, .descriptor = descriptor, .bytes = bytes};
    putting.part_bytes = s3->part_bytes > 0 ? s3->part_bytes : PART_BYTES;
    if (bytes <= putting.part_bytes) return put_whole(s3, path, descriptor, bytes);
    uint64_t least = (bytes + PARTS_MAX - 1) / PARTS_MAX;
    if (putting.part_bytes < least) putting.part_bytes = (least + MEBIBYTE - 1) / MEBIBYTE * MEBIBYTE;
    putting.count = (int)((bytes + putting.part_bytes - 1) / putting.part_bytes);
    TT_TRY(tt_s3_name_of(path, &putting.name));
    (void)tt_snprintf(putting.what, sizeof putting.what, "'%.1100s'", path);
    putting.etags = tt_calloc((size_t)putting.count, sizeof *putting.etags);
    if (putting.etags == NULL) return TT_ERR_MEMORY;
    TT_GO(start(&putting));
    status = tt_threads_run("put", putting.count < THREADS ? putting.count : THREADS, put_parts, &putting);
    if (status == TT_OK) status = complete(&putting);
    if (status != TT_OK) give_up(&putting);
out:
    tt_free(putting.etags);
    return status;
}
