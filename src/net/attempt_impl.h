/* One attempt of a call: a request to one URL and its answer. For this folder alone. */
#ifndef TT_NET_ATTEMPT_IMPL_H
#define TT_NET_ATTEMPT_IMPL_H

#include <pthread.h>

#include "net/client.h"
#include "net/curl.h"

enum { NET_IDLE_MAX = 32, NET_ETAG_BYTES = 256 };

struct tt_net {
    struct curl curl;
    struct tt_net_config config; /* without zeros */
    char *ca_file, *ca_path;     /* owned; NULL: those of libcurl */
    pthread_mutex_t mutex;
    void *idle[NET_IDLE_MAX]; /* handles with their open connections */
    int idle_count;
};

struct tt_net_headers {
    const struct curl *curl;
    void *list; /* of libcurl; NULL: empty */
    bool has_type, own_host;
};

/* State that lasts from one attempt to the next. */
struct net_call {
    struct tt_net *net;
    const struct tt_net_request *request;
    struct tt_net_answer *answer;
    struct tt_str url;         /* of the next attempt */
    uint64_t done;             /* bytes that the sink has taken */
    bool begun;                /* the sink knows the answer */
    char etag[NET_ETAG_BYTES]; /* of the object that `done` bytes are of; "": the server names none */
};

struct net_attempt {
    struct net_call *call;
    void *easy;
    char error[CURL_ERROR_BYTES];
    uint64_t sent, skip;
    bool opened;      /* the body has begun, and its place in the object is known */
    bool complete;    /* all that was asked for is there; the rest is not read */
    tt_status status; /* of a callback; then the transfer was ended by it */
    int result;       /* curl_code */
};

/* Sends it; attempt->status and attempt->result say how it ended. */
void net_attempt_run(struct net_attempt *attempt);

#endif
