/* The connections of a server, and which of them ends when there are too many: base/crowd.h chooses among those that
 * wait for no answer of ours. So idle connections, however many, keep nobody out for longer than it takes to close one.
 * Internal to http/. The owner's lock guards everything. */
#ifndef TT_HTTP_CONNECTIONS_H
#define TT_HTTP_CONNECTIONS_H

#include "base/crowd.h"
#include "base/error.h"

enum { TT_HTTP_KEPT_FOR_LOOPBACK = 2 }; /* connections that other machines cannot take */

/* How far a connection has come. */
enum tt_http_stage {
    TT_HTTP_IDLE,     /* no request, or no whole head of one */
    TT_HTTP_SENDS,    /* its head is complete, its body is not */
    TT_HTTP_FETCHES,  /* its answer is complete, and not yet fetched */
    TT_HTTP_ANSWERED, /* waits for its answer: never closed for others */
};

struct tt_http_exchange;
struct tt_http_line {
    struct tt_http_line *previous, *next;
    int file;
    unsigned char origin[TT_ORIGIN_BYTES];
    bool local; /* from this machine */
    bool ends;  /* shut down; about to be removed */
    enum tt_http_stage stage;
    double since;                      /* tt_clock_seconds: the begin of the stage */
    struct tt_http_exchange *exchange; /* NULL: no complete request */
};

struct tt_http_lines {
    struct tt_http_line ring; /* the anchor */
    size_t most;
    struct tt_stranger *crowd; /* owned, [most] */
};

TT_MUST_USE tt_status tt_http_lines_init(size_t most, struct tt_http_lines *lines);
void tt_http_lines_deinit(struct tt_http_lines *lines); /* takes a zeroed struct */
/* Adds a line whose origin is set. Returns the line that must end for it, which is then marked: another one, or itself
 * where all others wait for their answers; NULL: there is room. */
struct tt_http_line *tt_http_lines_add(struct tt_http_lines *lines, struct tt_http_line *line);
void tt_http_lines_remove(struct tt_http_line *line);

#endif
