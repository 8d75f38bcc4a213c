#include "http/server.h"

#ifdef TT_HAVE_MICROHTTPD

#include <arpa/inet.h>
#include <errno.h>
#include <microhttpd.h>
#include <netdb.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/number.h"
#include "base/thread.h"
#include "http/connections.h"
#include "http/hosts.h"

enum {
    HEADER_BYTES_MAX = 32 << 10,
    STREAM_BLOCK = 4096,
    PATH_BYTES = 256,
    ENDING_MAX = 64,       /* connections that are shut down, and not closed yet */
    OTHER_FILES_MAX = 768, /* descriptors of the program, and of its other sockets */
};
static const double watch_seconds = 0.2, warn_seconds = 60;
static const char too_large_text[] = "{\"error\": {\"message\": \"the body is too large\", \"type\": "
                                     "\"invalid_request_error\", \"param\": null, \"code\": null}}\n";
static const char foreign_text[] =
    "this server does not answer to that name: ask for it by localhost or by an address "
    "in numbers, or name the host in its setting allowed_hosts\n";

struct tt_http_server {
    struct tt_http_config config;
    struct MHD_Daemon *daemon;
    struct tt_thread *watch;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct tt_http_lines lines;
    struct tt_http_hosts hosts;
    double warned; /* tt_clock_seconds; 0: never */
    atomic_bool closes;
    int port;
};

/* `lock` guards everything from `connection` on. The order of locks: the server's, then the exchange's. */
struct tt_http_exchange {
    struct tt_http_server *server;
    struct tt_http_line *line; /* of the server's thread */
    atomic_int references;
    char method[16], path[PATH_BYTES];
    struct tt_str body;
    bool handled, too_large, foreign; /* of the server's thread */
    pthread_mutex_t lock;
    struct MHD_Connection *connection; /* NULL: gone */
    bool suspended, begun, streams, ended, broken, gone;
    int code;
    const char *type, *policy; /* policy: NULL: none */
    struct tt_str out;
    size_t taken; /* of `out` */
};

static void set_stage(struct tt_http_server *server, struct tt_http_line *line, enum tt_http_stage stage,
                      struct tt_http_exchange *exchange)
{
    pthread_mutex_lock(&server->lock);
    line->stage = stage;
    line->exchange = exchange;
    /* a request has one time for its head and its body */
    if (stage != TT_HTTP_SENDS) line->since = tt_clock_seconds();
    pthread_mutex_unlock(&server->lock);
}

void tt_http_release(struct tt_http_exchange *exchange)
{
    static const char text[] = "no answer\n";
    if (exchange == NULL) return;
    pthread_mutex_lock(&exchange->lock);
    bool lost = exchange->connection != NULL && exchange->handled && !exchange->begun;
    pthread_mutex_unlock(&exchange->lock);
    if (lost) tt_http_answer(exchange, 500, "text/plain", text, sizeof text - 1);
    if (atomic_fetch_sub(&exchange->references, 1) > 1) return;
    tt_str_deinit(&exchange->body);
    tt_str_deinit(&exchange->out);
    pthread_mutex_destroy(&exchange->lock);
    tt_free(exchange);
}

/* The caller holds the lock of the exchange. */
static void wake(struct tt_http_exchange *exchange)
{
    if (!exchange->suspended) return;
    exchange->suspended = false;
    MHD_resume_connection(exchange->connection);
}

/* The caller holds the lock of the exchange: the connection waits for wake. False where it must not wait any more. */
static bool suspend(struct tt_http_exchange *exchange)
{
    if (exchange->gone || exchange->broken || atomic_load(&exchange->server->closes)) return false;
    exchange->suspended = true;
    MHD_suspend_connection(exchange->connection);
    return true;
}

void tt_http_origin(const struct tt_http_exchange *exchange, unsigned char origin[TT_ORIGIN_BYTES])
{
    if (exchange->line != NULL)
        memcpy(origin, exchange->line->origin, TT_ORIGIN_BYTES);
    else
        memset(origin, 0, TT_ORIGIN_BYTES);
}

static ssize_t read_stream(void *context, uint64_t position, char *block, size_t most)
{
    struct tt_http_exchange *exchange = context;
    ssize_t bytes = 0;
    (void)position;
    pthread_mutex_lock(&exchange->lock);
    size_t left = exchange->out.bytes - exchange->taken;
    if (left > 0) {
        bytes = (ssize_t)(left < most ? left : most);
        memcpy(block, exchange->out.data + exchange->taken, (size_t)bytes);
        exchange->taken += (size_t)bytes;
        if (exchange->taken == exchange->out.bytes) {
            tt_str_clear(&exchange->out);
            exchange->taken = 0;
        }
    } else if (exchange->ended && !exchange->broken) {
        bytes = MHD_CONTENT_READER_END_OF_STREAM;
    } else if (!suspend(exchange)) {
        bytes = MHD_CONTENT_READER_END_WITH_ERROR;
    }
    pthread_mutex_unlock(&exchange->lock);
    return bytes;
}

static enum MHD_Result queue(struct MHD_Connection *connection, int code, const char *type,
                             const char *policy, struct MHD_Response *response)
{
    if (response == NULL) return MHD_NO;
    if (policy != NULL) (void)MHD_add_response_header(response, "Content-Security-Policy", policy);
    (void)MHD_add_response_header(response, "Content-Type", type);
    (void)MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
    (void)MHD_add_response_header(response, "Cache-Control", "no-store");
    enum MHD_Result result = MHD_queue_response(connection, (unsigned)code, response);
    MHD_destroy_response(response);
    return result;
}

static enum MHD_Result queue_text(struct MHD_Connection *connection, int code, const char *type,
                                  const char *text)
{
    return queue(connection, code, type, NULL,
                 MHD_create_response_from_buffer(strlen(text), (void *)text, MHD_RESPMEM_MUST_COPY));
}

/* Queues the answer, or lets the connection wait for it. */
static enum MHD_Result respond(struct tt_http_exchange *exchange)
{
    enum MHD_Result result = MHD_NO;
    pthread_mutex_lock(&exchange->lock);
    struct MHD_Connection *connection = exchange->connection;
    if (exchange->broken || exchange->gone) {
        result = MHD_NO;
    } else if (!exchange->begun) {
        result = suspend(exchange) ? MHD_YES : MHD_NO;
    } else if (exchange->streams) {
        result = queue(
            connection, exchange->code, exchange->type, exchange->policy,
            MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, STREAM_BLOCK, read_stream, exchange, NULL));
    } else {
        result = queue(connection, exchange->code, exchange->type, exchange->policy,
                       MHD_create_response_from_buffer(
                           exchange->out.bytes, (void *)tt_str_text(&exchange->out), MHD_RESPMEM_MUST_COPY));
        tt_str_clear(&exchange->out);
    }
    pthread_mutex_unlock(&exchange->lock);
    return result;
}

static struct tt_http_exchange *make_exchange(struct tt_http_server *server,
                                              struct MHD_Connection *connection, const char *url,
                                              const char *method)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    struct tt_http_exchange *exchange = tt_calloc(1, sizeof *exchange);
    if (exchange == NULL || info == NULL || info->socket_context == NULL) {
        tt_free(exchange);
        return NULL;
    }
    exchange->server = server;
    exchange->connection = connection;
    exchange->line = info->socket_context;
    pthread_mutex_init(&exchange->lock, NULL);
    atomic_store(&exchange->references, 1);
    snprintf(exchange->method, sizeof exchange->method, "%s", method);
    snprintf(exchange->path, sizeof exchange->path, "%s", url);
    return exchange;
}

/* A new request, whose headers are complete. */
static enum MHD_Result begin_request(struct tt_http_server *server, struct MHD_Connection *connection,
                                     const char *url, const char *method, void **state)
{
    const char *length = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Content-Length");
    struct tt_http_exchange *exchange = make_exchange(server, connection, url, method);
    if (exchange == NULL) return MHD_NO;
    *state = exchange;
    if (strlen(url) >= PATH_BYTES) return queue_text(connection, 414, "text/plain", "the path is too long\n");
    exchange->too_large = length != NULL && strtoull(length, NULL, 10) > server->config.body_bytes;
    exchange->foreign = !tt_http_path_is_one_of(url, server->config.probes) &&
                        !tt_http_host_is_allowed(
                            &server->hosts, MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Host"));
    set_stage(server, exchange->line, TT_HTTP_SENDS, NULL);
    /* A client that is sending its body already reads no answer before the end: the bytes are dropped. */
    bool asks = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Expect") != NULL;
    return exchange->too_large && asks ? queue_text(connection, 413, "application/json", too_large_text)
                                       : MHD_YES;
}

static enum MHD_Result on_request(void *context, struct MHD_Connection *connection, const char *url,
                                  const char *method, const char *version, const char *data, size_t *bytes,
                                  void **state)
{
    struct tt_http_server *server = context;
    struct tt_http_exchange *exchange = *state;
    (void)version;
    if (exchange == NULL) return begin_request(server, connection, url, method, state);
    if (*bytes > 0) {
        exchange->too_large |= *bytes > server->config.body_bytes - exchange->body.bytes;
        if (!exchange->too_large && tt_str_append(&exchange->body, data, *bytes) != TT_OK) return MHD_NO;
        *bytes = 0;
        return MHD_YES;
    }
    if (exchange->foreign) return queue_text(connection, 403, "text/plain; charset=utf-8", foreign_text);
    if (exchange->too_large) return queue_text(connection, 413, "application/json", too_large_text);
    if (!exchange->handled) {
        exchange->handled = true;
        set_stage(server, exchange->line, TT_HTTP_ANSWERED, exchange);
        atomic_fetch_add(&exchange->references, 1);
        server->config.handler(server->config.context, exchange);
    }
    return respond(exchange);
}

static void on_completed(void *context, struct MHD_Connection *connection, void **state,
                         enum MHD_RequestTerminationCode why)
{
    struct tt_http_server *server = context;
    struct tt_http_exchange *exchange = *state;
    (void)connection, (void)why;
    if (exchange == NULL) return;
    *state = NULL;
    set_stage(server, exchange->line, TT_HTTP_IDLE, NULL);
    pthread_mutex_lock(&exchange->lock);
    exchange->connection = NULL;
    exchange->gone = true;
    exchange->suspended = false;
    pthread_mutex_unlock(&exchange->lock);
    tt_http_release(exchange);
}

/* The caller holds the server's lock. */
static void make_room(struct tt_http_server *server, struct tt_http_line *line, double now)
{
    struct tt_http_line *victim = tt_http_lines_add(&server->lines, line);
    if (victim == NULL) return;
    (void)shutdown(victim->file, SHUT_RDWR);
    if (server->warned > 0 && now - server->warned < warn_seconds) return;
    server->warned = now;
    tt_warn("port %d: more than %zu connections: %s", server->port, server->lines.most,
            victim != line ? "the oldest idle one is closed for each new one"
                           : "all wait for their answers, so new ones are closed");
}

static void begin_line(struct tt_http_server *server, struct MHD_Connection *connection,
                       struct tt_http_line *line)
{
    const union MHD_ConnectionInfo *file =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    const union MHD_ConnectionInfo *from =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    if (file == NULL || from == NULL) return;
    *line = (struct tt_http_line){.file = file->connect_fd,
                                  .local = tt_address_is_loopback(from->client_addr),
                                  .since = tt_clock_seconds()};
    tt_origin_of(from->client_addr, line->origin);
    pthread_mutex_lock(&server->lock);
    make_room(server, line, line->since);
    pthread_mutex_unlock(&server->lock);
}

static void on_connection(void *context, struct MHD_Connection *connection, void **state,
                          enum MHD_ConnectionNotificationCode code)
{
    struct tt_http_server *server = context;
    struct tt_http_line *line = *state;
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        *state = line = tt_calloc(1, sizeof *line);
        if (line != NULL) begin_line(server, connection, line);
        return;
    }
    *state = NULL;
    if (line == NULL) return;
    pthread_mutex_lock(&server->lock);
    tt_http_lines_remove(line);
    pthread_mutex_unlock(&server->lock);
    tt_free(line);
}

static void leave(struct tt_http_exchange *exchange)
{
    pthread_mutex_lock(&exchange->lock);
    exchange->gone = true;
    if (exchange->connection != NULL) wake(exchange);
    pthread_mutex_unlock(&exchange->lock);
}

/* libmicrohttpd does not look at a connection that waits for its answer; nor does it limit the time of a request. */
static void check_line(struct tt_http_line *line, double now, double seconds)
{
    char byte;
    if (line->stage != TT_HTTP_ANSWERED) {
        if (now > line->since + seconds) (void)shutdown(line->file, SHUT_RDWR);
        return;
    }
    ssize_t bytes = recv(line->file, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    if (bytes > 0 || (bytes < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))) return;
    if (line->exchange != NULL) leave(line->exchange);
}

static tt_status watch(void *argument)
{
    struct tt_http_server *server = argument;
    pthread_mutex_lock(&server->lock);
    while (!atomic_load(&server->closes)) {
        double now = tt_clock_seconds();
        for (struct tt_http_line *line = server->lines.ring.next; line != &server->lines.ring;
             line = line->next)
            check_line(line, now, server->config.seconds);
        (void)tt_cond_wait_until(&server->changed, &server->lock, now + watch_seconds);
    }
    pthread_mutex_unlock(&server->lock);
    return TT_OK;
}

static void on_log(void *context, const char *format, va_list arguments)
{
    char text[400];
    (void)context;
    (void)tt_vsnprintf(text, sizeof text, format, arguments);
    text[strcspn(text, "\n")] = 0;
    tt_debug("http: %s", text);
}

static tt_status start_daemon(struct tt_http_server *server)
{
    const struct tt_http_config *config = &server->config;
    struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_PASSIVE, .ai_socktype = SOCK_STREAM};
    struct addrinfo *address = NULL;
    char port[16];
    snprintf(port, sizeof port, "%d", config->port);
    if (getaddrinfo(config->host, port, &hints, &address) != 0) {
        tt_fail(TT_ERR_USAGE, "'%.100s' is no address to listen at", config->host);
        tt_hint("127.0.0.1: this machine only; 0.0.0.0: all its networks");
        return TT_ERR_USAGE;
    }
    unsigned flags = MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG;
    if (address->ai_family == AF_INET6) flags |= MHD_USE_IPv6;
    errno = 0;
    server->daemon = MHD_start_daemon(
        flags, (uint16_t)config->port, NULL, NULL, on_request, server, MHD_OPTION_EXTERNAL_LOGGER, on_log,
        NULL, MHD_OPTION_SOCK_ADDR, address->ai_addr, MHD_OPTION_CONNECTION_LIMIT,
        (unsigned)server->lines.most + ENDING_MAX, MHD_OPTION_CONNECTION_TIMEOUT,
        (unsigned)(config->seconds + 1.0), MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)HEADER_BYTES_MAX,
        MHD_OPTION_NOTIFY_COMPLETED, on_completed, server, MHD_OPTION_NOTIFY_CONNECTION, on_connection,
        server, MHD_OPTION_END);
    int reason = errno;
    freeaddrinfo(address);
    if (server->daemon != NULL) return TT_OK;
    tt_fail(TT_ERR_IO, "cannot listen at %s port %d: %s", config->host, config->port, tt_errno_text(reason));
    tt_hint("--%s N chooses another port; 0 takes a free one",
            config->port_setting != NULL ? config->port_setting : "port");
    return TT_ERR_IO;
}

tt_status tt_http_open(const struct tt_http_config *config, struct tt_http_server **out)
{
    tt_status status = TT_OK;
    TT_TRY(tt_http_hosts_check(config->allowed_hosts, "allowed_hosts"));
    struct tt_http_server *server = tt_calloc(1, sizeof *server);
    if (server == NULL) return TT_ERR_MEMORY;
    server->config = *config;
    server->hosts = (struct tt_http_hosts){config->allowed_hosts, !tt_host_is_loopback(config->host)};
    pthread_mutex_init(&server->lock, NULL);
    pthread_cond_init(&server->changed, NULL);
    TT_GO(
        tt_http_lines_init(tt_crowd_capacity((size_t)config->connections, OTHER_FILES_MAX), &server->lines));
    TT_GO(start_daemon(server));
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(server->daemon, MHD_DAEMON_INFO_BIND_PORT);
    pthread_mutex_lock(&server->lock);
    server->port = info != NULL ? info->port : config->port;
    pthread_mutex_unlock(&server->lock);
    TT_GO(tt_thread_start("http watch", watch, server, &server->watch));
    *out = server;
    server = NULL;
out:
    tt_http_close(server);
    return status;
}

int tt_http_port(const struct tt_http_server *server)
{
    return server->port;
}

size_t tt_http_busy(struct tt_http_server *server)
{
    size_t count = 0;
    pthread_mutex_lock(&server->lock);
    for (struct tt_http_line *line = server->lines.ring.next; line != &server->lines.ring; line = line->next)
        count += line->exchange != NULL;
    pthread_mutex_unlock(&server->lock);
    return count;
}

void tt_http_close(struct tt_http_server *server)
{
    if (server == NULL) return;
    atomic_store(&server->closes, true);
    pthread_mutex_lock(&server->lock);
    pthread_cond_broadcast(&server->changed);
    for (struct tt_http_line *line = server->lines.ring.next; line != &server->lines.ring; line = line->next)
        if (line->exchange != NULL) leave(line->exchange);
    pthread_mutex_unlock(&server->lock);
    if (server->watch != NULL && tt_thread_join(server->watch) != TT_OK) tt_error_clear();
    if (server->daemon != NULL) MHD_stop_daemon(server->daemon);
    pthread_mutex_destroy(&server->lock);
    pthread_cond_destroy(&server->changed);
    tt_http_lines_deinit(&server->lines);
    tt_free(server);
}

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
    return MHD_lookup_connection_value(exchange->connection, MHD_HEADER_KIND, name);
}

/* Adds to the answer and lets the connection go on. */
static void put(struct tt_http_exchange *exchange, const char *data, size_t bytes)
{
    if (exchange->gone || bytes == 0) return;
    if (tt_str_append(&exchange->out, data, bytes) == TT_OK) return;
    tt_error_clear();
    exchange->broken = true;
}

/* The client must fetch its answer from now on. */
static void end_answer(struct tt_http_exchange *exchange)
{
    struct tt_http_server *server = exchange->server;
    bool gone = tt_http_is_gone(exchange);
    if (gone) return;
    pthread_mutex_lock(&server->lock);
    for (struct tt_http_line *line = server->lines.ring.next; line != &server->lines.ring;
         line = line->next) {
        if (line->exchange != exchange) continue;
        line->stage = TT_HTTP_FETCHES;
        line->since = tt_clock_seconds();
    }
    pthread_mutex_unlock(&server->lock);
}

void tt_http_answer(struct tt_http_exchange *exchange, int code, const char *type, const char *body,
                    size_t bytes)
{
    end_answer(exchange);
    pthread_mutex_lock(&exchange->lock);
    exchange->code = code;
    exchange->type = type;
    put(exchange, body, bytes);
    exchange->begun = exchange->ended = true;
    wake(exchange);
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

void tt_http_end(struct tt_http_exchange *exchange)
{
    end_answer(exchange);
    pthread_mutex_lock(&exchange->lock);
    exchange->ended = true;
    wake(exchange);
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

#endif
