#include "http/exchange.h"

#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/integer.h"
#include "http/connections.h"
#include "http/response.h"

enum { PIECE_BYTES = 64 << 10 };

struct tt_http_exchange *tt_http_exchange_make(struct tt_http_request *request, struct tt_http_queue *queue,
                                               struct tt_http_line *line)
{
    struct tt_http_exchange *exchange = tt_calloc(1, sizeof *exchange);
    if (exchange == NULL) return NULL;
    atomic_store(&exchange->references, 1);
    pthread_mutex_init(&exchange->lock, NULL);
    exchange->queue = queue;
    exchange->line = line;
    exchange->request = request;
    exchange->old = request->old;
    exchange->keeps = request->keeps;
    memcpy(exchange->method, request->method, sizeof exchange->method);
    memcpy(exchange->path, request->path, sizeof exchange->path);
    exchange->body = request->body;
    request->body = (struct tt_str){0};
    return exchange;
}

void tt_http_exchange_release(struct tt_http_exchange *exchange)
{
    if (atomic_fetch_sub(&exchange->references, 1) > 1) return;
    tt_str_deinit(&exchange->body);
    tt_str_deinit(&exchange->out);
    pthread_mutex_destroy(&exchange->lock);
    tt_free(exchange);
}

/* The caller holds the lock of the exchange: the thread of the server shall look at it. */
static void wake(struct tt_http_exchange *exchange)
{
    const uint64_t one = 1;
    struct tt_http_queue *queue = exchange->queue;
    if (exchange->gone || exchange->queued) return;
    exchange->queued = true;
    atomic_fetch_add(&exchange->references, 1);
    pthread_mutex_lock(&queue->lock);
    bool first = queue->first == NULL;
    exchange->next = queue->first;
    queue->first = exchange;
    pthread_mutex_unlock(&queue->lock);
    if (first) (void)!write(queue->file, &one, sizeof one);
}

void tt_http_release(struct tt_http_exchange *exchange)
{
    static const char text[] = "no answer\n";
    if (exchange == NULL) return;
    pthread_mutex_lock(&exchange->lock);
    bool lost = !exchange->gone && !exchange->begun;
    pthread_mutex_unlock(&exchange->lock);
    if (lost) tt_http_answer(exchange, 500, "text/plain", text, sizeof text - 1);
    pthread_mutex_lock(&exchange->lock);
    exchange->last = 0;
    exchange->released = true;
    wake(exchange);
    pthread_mutex_unlock(&exchange->lock);
    tt_http_exchange_release(exchange);
}

void tt_http_exchange_leave(struct tt_http_exchange *exchange)
{
    pthread_mutex_lock(&exchange->lock);
    exchange->gone = true;
    exchange->queue = NULL;
    pthread_mutex_unlock(&exchange->lock);
    exchange->line = NULL;
    tt_http_exchange_release(exchange);
}

bool tt_http_exchange_is_ended(struct tt_http_exchange *exchange)
{
    pthread_mutex_lock(&exchange->lock);
    bool ended = exchange->ended && exchange->released;
    pthread_mutex_unlock(&exchange->lock);
    return ended;
}

struct tt_http_exchange *tt_http_queue_take(struct tt_http_queue *queue)
{
    uint64_t count;
    (void)!read(queue->file, &count, sizeof count);
    pthread_mutex_lock(&queue->lock);
    struct tt_http_exchange *list = queue->first;
    queue->first = NULL;
    pthread_mutex_unlock(&queue->lock);
    return list;
}

struct tt_http_exchange *tt_http_queue_next(struct tt_http_exchange *exchange)
{
    pthread_mutex_lock(&exchange->lock);
    struct tt_http_exchange *next = exchange->next;
    exchange->queued = false;
    pthread_mutex_unlock(&exchange->lock);
    return next;
}

/* ---- The response on its way to the connection ---- */

/* Chunks carry an answer whose length is not known at its begin; an old client knows its end by the connection's. */
static bool is_chunked(const struct tt_http_exchange *exchange)
{
    return exchange->streams && !exchange->old;
}

static tt_status give_head(struct tt_http_exchange *exchange, struct tt_str *wire)
{
    const struct tt_http_head head = {.code = exchange->code,
                                      .type = exchange->type,
                                      .policy = exchange->policy,
                                      .sized = !exchange->streams,
                                      .bytes = exchange->out.bytes,
                                      .old = exchange->old,
                                      .keeps = exchange->keeps};
    exchange->head_sent = true;
    exchange->keeps = exchange->keeps && (!exchange->streams || !exchange->old);
    return tt_http_head_append(&head, wire);
}

static tt_status give_piece(struct tt_http_exchange *exchange, struct tt_str *wire)
{
    size_t bytes = tt_smaller_size(exchange->out.bytes - exchange->taken - exchange->last, PIECE_BYTES);
    const char *data = exchange->out.data + exchange->taken;
    exchange->taken += bytes;
    if (strcmp(exchange->method, "HEAD") != 0 && exchange->code != 204) {
        if (is_chunked(exchange)) TT_TRY(tt_str_printf(wire, "%zx\r\n", bytes));
        TT_TRY(tt_str_append(wire, data, bytes));
        if (is_chunked(exchange)) TT_TRY(tt_str_append_text(wire, "\r\n"));
    }
    if (exchange->taken < exchange->out.bytes) return TT_OK;
    tt_str_clear(&exchange->out);
    exchange->taken = 0;
    return TT_OK;
}

static tt_status give_end(struct tt_http_exchange *exchange, struct tt_str *wire)
{
    exchange->end_sent = true;
    bool chunked = is_chunked(exchange) && strcmp(exchange->method, "HEAD") != 0;
    return chunked ? tt_str_append_text(wire, "0\r\n\r\n") : TT_OK;
}

enum tt_http_given tt_http_exchange_give(struct tt_http_exchange *exchange, struct tt_str *wire)
{
    enum tt_http_given given = TT_HTTP_GIVES_BYTES;
    tt_status status = TT_OK;
    pthread_mutex_lock(&exchange->lock);
    if (exchange->broken)
        given = TT_HTTP_GIVES_FAILURE;
    else if (!exchange->begun || !(exchange->streams || exchange->released))
        given = TT_HTTP_GIVES_NOTHING;
    else if (!exchange->head_sent)
        status = give_head(exchange, wire);
    else if (exchange->taken < exchange->out.bytes - exchange->last)
        status = give_piece(exchange, wire);
    else if (!exchange->ended || !exchange->released)
        given = TT_HTTP_GIVES_NOTHING;
    else if (!exchange->end_sent)
        status = give_end(exchange, wire);
    else
        given = TT_HTTP_GIVES_END;
    pthread_mutex_unlock(&exchange->lock);
    if (status == TT_OK) return given;
    tt_error_clear();
    return TT_HTTP_GIVES_FAILURE;
}

/* ---- The request ---- */

const char *tt_http_method(const struct tt_http_exchange *exchange)
{
    return exchange->method;
}

const char *tt_http_path(const struct tt_http_exchange *exchange)
{
    return exchange->path;
}

struct tt_span tt_http_body(const struct tt_http_exchange *exchange)
{
    return (struct tt_span){tt_str_text(&exchange->body), exchange->body.bytes};
}

const char *tt_http_header(const struct tt_http_exchange *exchange, const char *name)
{
    return exchange->request != NULL ? tt_http_request_field(exchange->request, name) : NULL;
}

void tt_http_origin(const struct tt_http_exchange *exchange, unsigned char origin[TT_ORIGIN_BYTES])
{
    if (exchange->line != NULL)
        memcpy(origin, exchange->line->origin, TT_ORIGIN_BYTES);
    else
        memset(origin, 0, TT_ORIGIN_BYTES);
}

/* ---- The response, from any thread ---- */

/* The caller holds the lock. */
static void put(struct tt_http_exchange *exchange, const char *data, size_t bytes)
{
    if (exchange->gone || bytes == 0) return;
    if (tt_str_append(&exchange->out, data, bytes) == TT_OK) return;
    tt_error_clear();
    exchange->broken = true;
}

void tt_http_answer(struct tt_http_exchange *exchange, int code, const char *type, const char *body,
                    size_t bytes)
{
    pthread_mutex_lock(&exchange->lock);
    exchange->code = code;
    exchange->type = type;
    put(exchange, body, bytes);
    exchange->begun = exchange->ended = true;
    pthread_mutex_unlock(&exchange->lock);
}

void tt_http_begin(struct tt_http_exchange *exchange, int code, const char *type)
{
    pthread_mutex_lock(&exchange->lock);
    exchange->code = code;
    exchange->type = type;
    exchange->begun = exchange->streams = true;
    wake(exchange);
    pthread_mutex_unlock(&exchange->lock);
}

void tt_http_set_policy(struct tt_http_exchange *exchange, const char *policy)
{
    pthread_mutex_lock(&exchange->lock);
    exchange->policy = policy;
    pthread_mutex_unlock(&exchange->lock);
}

void tt_http_write(struct tt_http_exchange *exchange, const char *data, size_t bytes)
{
    pthread_mutex_lock(&exchange->lock);
    put(exchange, data, bytes);
    wake(exchange);
    pthread_mutex_unlock(&exchange->lock);
}

void tt_http_end(struct tt_http_exchange *exchange, const char *data, size_t bytes)
{
    pthread_mutex_lock(&exchange->lock);
    size_t before = exchange->out.bytes;
    put(exchange, data, bytes);
    exchange->last += exchange->out.bytes - before;
    exchange->ended = true;
    pthread_mutex_unlock(&exchange->lock);
}

size_t tt_http_pending(struct tt_http_exchange *exchange)
{
    pthread_mutex_lock(&exchange->lock);
    size_t pending = exchange->out.bytes - exchange->taken;
    pthread_mutex_unlock(&exchange->lock);
    return pending;
}

bool tt_http_is_gone(struct tt_http_exchange *exchange)
{
    pthread_mutex_lock(&exchange->lock);
    bool gone = exchange->gone;
    pthread_mutex_unlock(&exchange->lock);
    return gone;
}
