/* An HTTP/1.1 server for strangers: everything that a client can make grow has a bound, and a slow one has a deadline.
 * One thread of the server reads and writes all connections; handlers run on it and must not wait: they answer at once,
 * or keep the exchange and let another thread answer.
 *
 * An exchange is one request and its response. A handler owns a reference, which it, or the thread that it hands the
 * exchange to, releases. The end of the answer leaves with the release: what its owner did before is done before the
 * client can know the end. An exchange that is released without an answer is answered with 500. */
#ifndef TT_HTTP_SERVER_H
#define TT_HTTP_SERVER_H

#include <stdbool.h>

#include "base/crowd.h"
#include "base/error.h"
#include "base/str.h"

struct tt_http_server;
struct tt_http_exchange;
typedef void tt_http_handler(void *context, struct tt_http_exchange *exchange);

struct tt_http_config {
    const char *host;         /* a numeric address: "127.0.0.1", "::1", "0.0.0.0" */
    int port;                 /* 0: a free one */
    const char *port_setting; /* its name, for a hint; NULL: "port" */
    int connections; /* the most; for a further one that of base/crowd.h's choice ends, if it waits for no answer */
    const char *allowed_hosts; /* of http/hosts.h; lent */
    /* Paths that are answered whatever the Host: load balancers ask by names of their own. NULL-terminated, lent. */
    const char *const *probes;
    size_t body_bytes;
    /* A request must be complete, and an answer must be fetched, within this time; a connection may be idle as long. */
    double seconds;
    tt_http_handler *handler;
    void *context;
};

/* TT_ERR_USAGE: a wrong address, TT_ERR_IO: a port in use. */
TT_MUST_USE tt_status tt_http_open(const struct tt_http_config *config, struct tt_http_server **out);
int tt_http_port(const struct tt_http_server *server);
/* Requests that are not answered yet, or whose answer the client has not fetched. Idle connections are none. */
size_t tt_http_busy(struct tt_http_server *server);
/* Ends all connections. Kept exchanges stay valid, and are gone. Takes NULL. */
void tt_http_close(struct tt_http_server *server);

/* The request; lent while a reference is held. Header names do not depend on case; NULL: no such header. Headers only
 * during the call of the handler. */
const char *tt_http_method(const struct tt_http_exchange *exchange);
const char *tt_http_path(const struct tt_http_exchange *exchange);
struct tt_span tt_http_body(const struct tt_http_exchange *exchange);
const char *tt_http_header(const struct tt_http_exchange *exchange, const char *name);

/* Whose request it is (base/crowd.h); during the call of the handler. */
void tt_http_origin(const struct tt_http_exchange *exchange, unsigned char origin[TT_ORIGIN_BYTES]);

/* The response, once for each exchange, from any thread: a whole one, or one that grows by writes until the end, which
 * has the last bytes. A whole one and the end wait for the release.
 * `type` is a constant. Out of memory the client gets an incomplete answer and a closed connection. */
void tt_http_answer(struct tt_http_exchange *exchange, int code, const char *type, const char *body,
                    size_t bytes);
void tt_http_begin(struct tt_http_exchange *exchange, int code, const char *type);
/* The header Content-Security-Policy of the response, before it is given; lent as long as the server is open. */
void tt_http_set_policy(struct tt_http_exchange *exchange, const char *policy);
void tt_http_write(struct tt_http_exchange *exchange, const char *data, size_t bytes);
void tt_http_end(struct tt_http_exchange *exchange, const char *data, size_t bytes);
/* Bytes written that the connection has not taken. A writer that waits for 0 bounds the memory of a slow client. */
size_t tt_http_pending(struct tt_http_exchange *exchange);
/* The client has closed the connection, or the server closes. */
bool tt_http_is_gone(struct tt_http_exchange *exchange);
void tt_http_release(struct tt_http_exchange *exchange);

#endif
