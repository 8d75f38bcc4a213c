/* An exchange between the thread of the server, which owns its connection, and the threads that answer it. These only
 * write into the exchange and put it into the queue of the server's thread. Internal to http/. */
#ifndef TT_HTTP_EXCHANGE_H
#define TT_HTTP_EXCHANGE_H

#include <pthread.h>
#include <stdatomic.h>

#include "http/request.h"
#include "http/server.h"

/* Exchanges with something new for their connections. */
struct tt_http_queue {
    pthread_mutex_t lock;
    struct tt_http_exchange *first;
    int file; /* an eventfd, readable while there are any */
};

struct tt_http_line;
/* `lock` guards what stands below it. The order of locks: the exchange's, then the queue's. */
struct tt_http_exchange {
    atomic_int references;
    struct tt_http_line *line;             /* of the server's thread; NULL: the connection has left it */
    const struct tt_http_request *request; /* of the server's thread; NULL: the handler has returned */
    bool head_sent, end_sent;              /* of the server's thread */
    char method[TT_HTTP_METHOD_BYTES], path[TT_HTTP_PATH_BYTES];
    struct tt_str body;
    bool old, keeps; /* as in http/request.h */
    pthread_mutex_t lock;
    struct tt_http_queue *queue;   /* valid until `gone` */
    struct tt_http_exchange *next; /* in the queue */
    bool queued, begun, streams, ended, released, broken, gone;
    int code;
    const char *type, *policy; /* policy: NULL: none */
    struct tt_str out;
    size_t taken; /* of `out` */
    size_t last;  /* bytes at the end of `out` that wait for the release */
};

/* Takes the body of the request over. The caller owns a reference; NULL: no memory. */
struct tt_http_exchange *tt_http_exchange_make(struct tt_http_request *request, struct tt_http_queue *queue,
                                               struct tt_http_line *line);
/* The connection ends, or the answer is fetched: releases the reference of the server's thread. */
void tt_http_exchange_leave(struct tt_http_exchange *exchange);
bool tt_http_exchange_is_ended(struct tt_http_exchange *exchange);

enum tt_http_given {
    TT_HTTP_GIVES_NOTHING, /* yet */
    TT_HTTP_GIVES_BYTES,
    TT_HTTP_GIVES_END,    /* all has been given */
    TT_HTTP_GIVES_FAILURE /* the answer stays incomplete */
};
/* Appends the next bytes of the response to `wire`. */
enum tt_http_given tt_http_exchange_give(struct tt_http_exchange *exchange, struct tt_str *wire);

/* Removes all from the queue and returns the first of them, each with a reference; NULL: there are none. */
struct tt_http_exchange *tt_http_queue_take(struct tt_http_queue *queue);
/* The one behind it. From now on `exchange` may be put into the queue again. */
struct tt_http_exchange *tt_http_queue_next(struct tt_http_exchange *exchange);
/* Releases a reference that is not the handler's. */
void tt_http_exchange_release(struct tt_http_exchange *exchange);

#endif
