/* One request of the client. For this folder alone. */
#ifndef TT_STORE_S3_REQUEST_IMPL_H
#define TT_STORE_S3_REQUEST_IMPL_H

#include <pthread.h>
#include <stdatomic.h>

#include "net/client.h"
#include "store/s3_client.h"
#include "store/s3_keys.h"
#include "store/s3_sign.h"

struct tt_s3 {
    struct tt_net *net;
    struct tt_str endpoint, region; /* endpoint without a slash at its end; empty: AWS */
    enum tt_s3_style style;
    uint64_t part_bytes;   /* 0: by the size */
    pthread_mutex_t mutex; /* of the keys */
    struct tt_s3_keys keys;
    _Atomic double skew;    /* seconds that the server's clock is ahead */
    _Atomic double hurried; /* tt_clock_seconds; 0: not */
};

struct s3_request {
    enum tt_net_method method;
    const char *bucket;
    struct tt_span key;
    const char *query; /* encoded; NULL: none */
    const struct tt_net_header *headers;
    size_t header_count;
    const void *body; /* of PUT and POST */
    size_t body_bytes;
    bool ranged;
    uint64_t first, count;
    const struct tt_net_sink *sink;
    size_t answer_bytes;
    const char *what; /* "'s3://bucket/key'" */
};

/* TT_OK for an answer of any code. A refusal for an old token or a wrong clock is mended once. */
TT_MUST_USE tt_status s3_send(struct tt_s3 *s3, const struct s3_request *request,
                              struct tt_net_answer *answer);
/* The error of an answer: code and message of the server, and what to do. */
tt_status s3_fail(const struct tt_s3 *s3, const struct s3_request *request,
                  const struct tt_net_answer *answer);
/* The text of one element of an answer, "" where it is missing or the answer is no XML. */
void s3_element(const struct tt_net_answer *answer, const char *path, char *text, size_t bytes);

#endif
