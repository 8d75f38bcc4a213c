/* Objects of S3 and of servers that speak as it does: requests, signed and tried again, and their answers. Any thread
 * may call.
 *
 * Source: AWS, Amazon S3 API Reference (GetObject, HeadObject, PutObject, CreateMultipartUpload, UploadPart,
 * CompleteMultipartUpload, AbortMultipartUpload, DeleteObject, ListObjectsV2). */
#ifndef TT_STORE_S3_CLIENT_H
#define TT_STORE_S3_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/str.h"

struct tt_s3; /* opaque */

/* Where an address has the bucket: in its path, or before its host. AUTO: before the host at AWS alone. A bucket with a
 * dot and a host that is an address in numbers have it in the path. */
enum tt_s3_style { TT_S3_AUTO, TT_S3_PATH, TT_S3_VIRTUAL };

struct tt_s3_config {
    const char *endpoint; /* "http://127.0.0.1:9000"; NULL: AWS */
    enum tt_s3_style style;
    const char *region;
    uint64_t part_bytes; /* of an object that is put in parts; 0: 16 MiB, or more where 10,000 are too few */
    int attempts;        /* as in tt_net_config */
    double pause_seconds;
};
/* Reads AWS_ENDPOINT_URL_S3, else AWS_ENDPOINT_URL, else the profile's endpoint_url; AWS_REGION, else
 * AWS_DEFAULT_REGION, else the profile's region, else us-east-1; AWS_S3_ADDRESSING_STYLE, else the profile's
 * s3.addressing_style, else auto. The config lends the texts. */
TT_MUST_USE tt_status tt_s3_config_read(struct tt_s3_config *config, struct tt_str *endpoint,
                                        struct tt_str *region);

TT_MUST_USE tt_status tt_s3_open(const struct tt_s3_config *config, struct tt_s3 **out);
void tt_s3_close(struct tt_s3 *s3); /* takes NULL */
/* The run has failed: 20 s are left for all calls. false: another one begins. */
void tt_s3_hurry(struct tt_s3 *s3, bool hurried);

/* "s3://bucket/key": the key without a slash at its end, perhaps empty. */
struct tt_s3_name {
    char bucket[64];
    const char *key; /* lent by the path */
    size_t key_bytes;
};
/* TT_ERR_USAGE: no such path. A key has no part "", "." or "..", and no control character. */
TT_MUST_USE tt_status tt_s3_name_of(const char *path, struct tt_s3_name *name);

enum { TT_S3_ETAG_BYTES = 136 };
struct tt_s3_object {
    bool exists;
    uint64_t bytes;
    double changed; /* seconds since 1970, by the server's clock */
    double now;     /* the server's clock; 0: unknown */
    char etag[TT_S3_ETAG_BYTES];
};
/* A missing object is no error. */
TT_MUST_USE tt_status tt_s3_head(struct tt_s3 *s3, const char *path, struct tt_s3_object *object);
/* Bytes `offset` to `offset` + bytes, fewer at the end of the object. `etag`: that of the object, or NULL; another
 * object in its place is TT_ERR_DATA. */
TT_MUST_USE tt_status tt_s3_get(struct tt_s3 *s3, const char *path, const char *etag, uint64_t offset,
                                void *data, size_t bytes, size_t *got);
/* The whole object, of at most `max_bytes`, and its facts. */
TT_MUST_USE tt_status tt_s3_get_all(struct tt_s3 *s3, const char *path, size_t max_bytes, struct tt_str *data,
                                    struct tt_s3_object *object);

/* A condition on what is there. */
struct tt_s3_condition {
    bool missing;     /* no object */
    const char *etag; /* this object; NULL: any */
};
/* One request. *kept: the condition did not hold, and nothing was changed; NULL without a condition. `etag` of the new
 * object, of TT_S3_ETAG_BYTES, may be NULL. */
TT_MUST_USE tt_status tt_s3_put(struct tt_s3 *s3, const char *path, const void *data, size_t bytes,
                                const struct tt_s3_condition *condition, bool *kept, char *etag);
/* The first `bytes` of an open file, in parts where it is larger than one, several at a time. The object is there when
 * this returns, whole, or not at all. */
TT_MUST_USE tt_status tt_s3_put_file(struct tt_s3 *s3, const char *path, int descriptor, uint64_t bytes);
/* A missing object is no error. */
TT_MUST_USE tt_status tt_s3_delete(struct tt_s3 *s3, const char *path);

/* The names directly below a folder, "name" of an object and "name/" of what has objects below it, in any order; a name
 * that is no plain one is left out. `most`: 0: all; else it may stop after so many. `visit` may be NULL. */
typedef tt_status tt_s3_visit_name(void *context, const char *name);
TT_MUST_USE tt_status tt_s3_list(struct tt_s3 *s3, const char *path, size_t most, tt_s3_visit_name *visit,
                                 void *context);
/* All keys below a folder, relative to it: "a/b". */
TT_MUST_USE tt_status tt_s3_list_tree(struct tt_s3 *s3, const char *path, tt_s3_visit_name *visit,
                                      void *context);

#endif
