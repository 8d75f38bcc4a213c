/* One request of HTTP/1.1 from a stranger (RFC 9112), read in pieces of any size. Lengths and line ends that two
 * readers could take for different requests are refused. Internal to http/. */
#ifndef TT_HTTP_REQUEST_H
#define TT_HTTP_REQUEST_H

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"

enum {
    TT_HTTP_METHOD_BYTES = 16,
    TT_HTTP_PATH_BYTES = 256,
    TT_HTTP_HEAD_BYTES_MAX = 32 << 10,
    TT_HTTP_FIELDS_MAX = 100,
    TT_HTTP_LINE_BYTES = 128, /* of a size of a chunk with its extensions */
    TT_HTTP_TRAILER_BYTES_MAX = 8 << 10,
};

enum tt_http_step {
    TT_HTTP_AT_HEAD,
    TT_HTTP_AT_BODY, /* the head is complete */
    TT_HTTP_AT_SIZE, /* the line before a chunk */
    TT_HTTP_AT_CHUNK,
    TT_HTTP_AT_CHUNK_END,
    TT_HTTP_AT_TRAILER,
    TT_HTTP_WHOLE,
    TT_HTTP_REFUSED, /* `code` and `reason` say why; what comes after it has no meaning */
};

struct tt_http_field {
    const char *name, *value; /* of `head` */
};

struct tt_http_request {
    enum tt_http_step step;
    size_t body_most; /* of the owner; bytes of a longer body are dropped */
    struct tt_str head, body;
    size_t line_bytes; /* of the line that is read */
    char method[TT_HTTP_METHOD_BYTES], path[TT_HTTP_PATH_BYTES];
    struct tt_http_field fields[TT_HTTP_FIELDS_MAX];
    size_t fields_count;
    const char *authority; /* of a target that names one; NULL: none */
    bool old;              /* HTTP/1.0 */
    bool keeps;            /* the client wants to ask again */
    bool expects;          /* it waits for "100 Continue" before it sends the body */
    bool too_large;
    uint64_t left; /* bytes of the body, or of the chunk, that have not come */
    char line[TT_HTTP_LINE_BYTES];
    size_t trailer_bytes;
    int code;
    const char *reason;
};

/* Begins anew. */
void tt_http_request_reset(struct tt_http_request *request);
void tt_http_request_deinit(struct tt_http_request *request);
/* Takes the first of these bytes and returns how many: all, or those to the end of the head or of the request. */
size_t tt_http_request_read(struct tt_http_request *request, const char *data, size_t bytes);
/* The first field of this name, in any case; NULL: none. */
const char *tt_http_request_field(const struct tt_http_request *request, const char *name);

#endif
