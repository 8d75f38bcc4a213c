/* An HTTP client over libcurl, which is opened at run time: a training of local files needs neither it nor the
 * libraries below it. Certificates are always verified. The variables of libcurl's users hold: CURL_CA_BUNDLE and
 * SSL_CERT_FILE (a file of authorities), SSL_CERT_DIR, HTTPS_PROXY, http_proxy, ALL_PROXY and NO_PROXY.
 *
 * A call sends one request and returns its answer; several transfers in parallel are several threads that call. What a
 * retry may cure is tried again: connections that break, 408, 429, 500, 502, 503 and 504, after a pause that doubles or
 * that the server names (Retry-After, or t of RateLimit). A body that breaks off goes on where it broke off, if the
 * server still has the same object.
 *
 * Servers are strangers: an answer in memory has a limit, a secret header goes to no other host in a redirect, and
 * https:// never leads to http://. Messages name a URL without its query, which may have a signature.
 *
 * Sources: RFC 9110 (HTTP Semantics), RFC 3986 (URI), https://curl.se/libcurl/c/. */
#ifndef TT_NET_CLIENT_H
#define TT_NET_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/str.h"

enum { TT_NET_ANSWER_BYTES = 64 << 20 }; /* the most of an answer in memory */

struct tt_net; /* opaque: connections that stay open between calls; any thread may call */

struct tt_net_config {
    int attempts;          /* in a row that bring no byte; 0: 6 */
    double pause_seconds;  /* after the first failure; it doubles from one to the next; 0: 1 */
    double wait_seconds;   /* the longest pause that a server may ask for; 0: 300 */
    double silent_seconds; /* a transfer without a byte for so long has failed; 0: 60 */
    double whole_seconds;  /* the longest that one attempt may take, with its connection; 0: any time */
    /* Asked at least once a second; true ends a call with TT_ERR_CANCELLED. NULL: never. */
    bool (*cancelled)(void *context);
    void *context;
};

/* TT_ERR_UNSUPPORTED: there is no libcurl; `what` names what needs it ("the hub"), lent for the life of the client. */
TT_MUST_USE tt_status tt_net_open(const struct tt_net_config *config, const char *what, struct tt_net **out);
/* Takes NULL. No call may be in progress. */
void tt_net_close(struct tt_net *net);

enum tt_net_method { TT_NET_GET, TT_NET_HEAD, TT_NET_PUT, TT_NET_POST, TT_NET_DELETE };

struct tt_net_header {
    const char *name, *value; /* printable; a line break is TT_ERR_USAGE */
    bool secret;              /* stays with the host of the request's URL */
};

/* Headers of one attempt, which `sign` adds to. Names and values are copied. */
struct tt_net_headers;
TT_MUST_USE tt_status tt_net_add_header(struct tt_net_headers *headers, const char *name, const char *value,
                                        bool secret);

enum tt_net_redirects {
    TT_NET_FOLLOW,    /* at most 8; 301, 302 and 303 only of GET and HEAD */
    TT_NET_SAME_HOST, /* the answer that leads to another host is the call's */
    TT_NET_STAY,      /* the redirect itself is the answer */
};

/* A body to send: `read` stores exactly `bytes` bytes from `offset` on, and may be asked for the same again. */
struct tt_net_source {
    uint64_t bytes;
    tt_status (*read)(void *context, uint64_t offset, void *data, size_t bytes);
    void *context;
};

struct tt_net_answer;
/* Takes the body of an answer of 200 to 299 in order, each byte once, whatever breaks off in between. Called in the
 * thread of the call. An error ends the call with it. */
struct tt_net_sink {
    /* Called before the first byte; may be NULL. */
    tt_status (*begin)(void *context, const struct tt_net_answer *answer);
    tt_status (*write)(void *context, const void *data, size_t bytes);
    void *context;
};

/* All pointers are lent for the call. */
struct tt_net_request {
    enum tt_net_method method;
    const char *url;  /* http:// or https:// */
    const char *what; /* the thing asked for, in messages: "file 'config.json'"; may be NULL */
    const struct tt_net_header *headers;
    size_t header_count;
    /* Called before each attempt at the request's own host: a signature that has a time is made anew. May be NULL. */
    tt_status (*sign)(void *context, struct tt_net_headers *headers);
    void *sign_context;
    enum tt_net_redirects redirects;
    const struct tt_net_source *body; /* PUT and POST; NULL: empty */
    bool ranged;                      /* GET: `count` bytes from `first` on; count 0: up to the end */
    uint64_t first, count;
    const struct tt_net_sink *sink; /* NULL: the body is stored in the answer */
    size_t answer_bytes; /* the most of a body in the answer, more is TT_ERR_DATA; 0: TT_NET_ANSWER_BYTES */
    bool repeatable;     /* a POST that may be sent twice; all other methods may, and any after 429 */
};

/* A zeroed struct is empty. */
struct tt_net_answer {
    int code;              /* 200 */
    struct tt_str body;    /* without a sink; of an answer beyond 299 at most its first 64 KiB */
    struct tt_str headers; /* of the last answer, as "name: value" lines */
    struct tt_str url;     /* of the last answer, after redirects */
    struct tt_str first;   /* headers of the first redirect that was followed; empty: none was */
    uint64_t bytes;        /* of the body that the sink took */
};
void tt_net_answer_deinit(struct tt_net_answer *answer);
/* The value of a header, whose name is compared without case, into `value`; false: there is none, or it does not fit.
 * `lines`: `headers` or `first` of an answer. */
bool tt_net_header(const struct tt_str *lines, const char *name, char *value, size_t value_bytes);

/* Sends the request, and returns TT_OK for an answer of any code: after the last attempt that is the one that a retry
 * could have cured. TT_ERR_IO: the server cannot be reached or the connection broke, TT_ERR_DATA: its certificate is
 * refused, the answer breaks a limit, or the object changed between two parts. `answer` is released before it is
 * filled, and keeps what came before an error. */
TT_MUST_USE tt_status tt_net_call(struct tt_net *net, const struct tt_net_request *request,
                                  struct tt_net_answer *answer);
/* Fails for an answer that the caller cannot use: what was asked, of which host, its code, and the beginning of its
 * text, with a hint for 429 and 5xx; those of 401, 403 and 404 are the caller's. TT_ERR_IO where a retry may succeed
 * (408, 429, 5xx), else TT_ERR_DATA. */
tt_status tt_net_fail(const struct tt_net_request *request, const struct tt_net_answer *answer);

#endif
