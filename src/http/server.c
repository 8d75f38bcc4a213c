#include "http/server.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/number.h"
#include "base/thread.h"
#include "http/connections.h"
#include "http/exchange.h"
#include "http/hosts.h"
#include "http/response.h"

enum {
    BLOCK_BYTES = 64 << 10,
    EVENTS_MAX = 64,
    ACCEPTS_MAX = 64,      /* between two looks at other connections */
    ROUNDS_MAX = 64,       /* of one connection, likewise */
    OTHER_FILES_MAX = 768, /* descriptors of the program, and of its other sockets */
};
static const double watch_seconds = 0.2, warn_seconds = 60, linger_seconds = 2;
static const char plain_text[] = "text/plain; charset=utf-8";
static const char too_large_text[] = "{\"error\": {\"message\": \"the body is too large\", \"type\": "
                                     "\"invalid_request_error\", \"param\": null, \"code\": null}}\n";
static const char foreign_text[] =
    "this server does not answer to that name: ask for it by localhost or by an address "
    "in numbers, or name the host in its setting allowed_hosts\n";

/* A connection belongs to the server's thread. */
struct connection {
    struct tt_http_line line; /* the first member: a line of the ring is a connection */
    struct tt_http_server *server;
    struct tt_http_request request;
    struct tt_str in, out;
    size_t in_taken, out_taken;
    uint32_t watched; /* EPOLLIN, EPOLLOUT */
    double moved;     /* tt_clock_seconds: when the client last took bytes */
    bool closes;      /* after what is in `out` */
    bool lingers;     /* all is sent: bytes that come are dropped until the client has closed, too */
    bool dead;
    struct connection *next_dead;
};

/* The thread owns everything but the queue, `busy` and `closes`. */
struct tt_http_server {
    struct tt_http_config config;
    struct tt_thread *thread;
    struct tt_http_queue queue;
    int poll, listener, port;
    bool deaf; /* no descriptor was left for a connection: the next look listens again */
    struct tt_http_lines lines;
    struct connection *dead; /* to be freed once no event can name them */
    struct tt_http_hosts hosts;
    double warned; /* tt_clock_seconds; 0: never */
    atomic_size_t busy;
    atomic_bool closes;
    char block[BLOCK_BYTES];
};

static void drop(struct connection *connection)
{
    struct tt_http_server *server = connection->server;
    if (connection->dead) return;
    connection->dead = true;
    if (connection->line.exchange != NULL) {
        tt_http_exchange_leave(connection->line.exchange);
        atomic_fetch_sub(&server->busy, 1);
    }
    tt_http_lines_remove(&connection->line);
    close(connection->line.file);
    connection->next_dead = server->dead;
    server->dead = connection;
}

static void bury(struct tt_http_server *server)
{
    while (server->dead != NULL) {
        struct connection *connection = server->dead;
        server->dead = connection->next_dead;
        tt_http_request_deinit(&connection->request);
        tt_str_deinit(&connection->in);
        tt_str_deinit(&connection->out);
        tt_free(connection);
    }
}

/* Errors and the end of both directions are reported in any case. */
static void watch(struct connection *connection, uint32_t events)
{
    if (connection->watched == events) return;
    struct epoll_event event = {.events = events, .data.ptr = connection};
    if (epoll_ctl(connection->server->poll, EPOLL_CTL_MOD, connection->line.file, &event) != 0)
        drop(connection);
    connection->watched = events;
}

/* ---- Requests ---- */

static void set_stage(struct connection *connection, enum tt_http_stage stage)
{
    connection->line.stage = stage;
    /* a request has one time for its head and its body */
    if (stage != TT_HTTP_SENDS) connection->line.since = tt_clock_seconds();
}

static void end_request(struct connection *connection, bool keeps)
{
    connection->closes = !keeps;
    tt_http_request_reset(&connection->request);
    set_stage(connection, TT_HTTP_IDLE);
}

/* An answer of the server itself. */
static void say(struct connection *connection, int code, const char *type, const char *text)
{
    const struct tt_http_request *request = &connection->request;
    bool whole = request->step == TT_HTTP_WHOLE;
    const struct tt_http_head head = {.code = code,
                                      .type = type,
                                      .sized = true,
                                      .bytes = strlen(text),
                                      .old = request->old,
                                      .keeps = whole && request->keeps};
    tt_status status = tt_http_head_append(&head, &connection->out);
    if (status == TT_OK && strcmp(request->method, "HEAD") != 0)
        status = tt_str_append_text(&connection->out, text);
    end_request(connection, head.keeps);
    if (status == TT_OK) return;
    tt_error_clear();
    drop(connection);
}

/* The server's own reason to refuse this request, once its head is complete. */
static bool refuse(struct connection *connection)
{
    const struct tt_http_request *request = &connection->request;
    const struct tt_http_server *server = connection->server;
    const char *host =
        request->authority != NULL ? request->authority : tt_http_request_field(request, "Host");
    if (!tt_http_path_is_one_of(request->path, server->config.probes) &&
        !tt_http_host_is_allowed(&server->hosts, host))
        say(connection, 403, plain_text, foreign_text);
    else if (request->too_large)
        say(connection, 413, "application/json", too_large_text);
    else
        return false;
    return true;
}

static void handle(struct connection *connection)
{
    struct tt_http_server *server = connection->server;
    struct tt_http_exchange *exchange =
        tt_http_exchange_make(&connection->request, &server->queue, &connection->line);
    if (exchange == NULL) {
        tt_error_clear();
        drop(connection);
        return;
    }
    connection->line.exchange = exchange;
    set_stage(connection, TT_HTTP_ANSWERED);
    connection->moved = connection->line.since;
    atomic_fetch_add(&server->busy, 1);
    atomic_fetch_add(&exchange->references, 1);
    server->config.handler(server->config.context, exchange);
    exchange->request = NULL;
}

/* A client that sends its body already reads no answer before its end; one that waits for leave is answered at once. */
static void answer_expectation(struct connection *connection)
{
    if (refuse(connection) || connection->in_taken < connection->in.bytes) return;
    if (tt_str_append_text(&connection->out, "HTTP/1.1 100 Continue\r\n\r\n") == TT_OK) return;
    tt_error_clear();
    drop(connection);
}

/* Reads what has come. True: there is something to answer. */
static bool read_request(struct connection *connection)
{
    struct tt_http_request *request = &connection->request;
    while (connection->in_taken < connection->in.bytes) {
        bool head = request->step == TT_HTTP_AT_HEAD, fresh = head && request->head.bytes == 0;
        connection->in_taken += tt_http_request_read(request, connection->in.data + connection->in_taken,
                                                     connection->in.bytes - connection->in_taken);
        /* the time of a request begins with its first byte, not with the connection's rest */
        if (fresh && (request->head.bytes > 0 || request->step != TT_HTTP_AT_HEAD))
            connection->line.since = tt_clock_seconds();
        if (request->step == TT_HTTP_AT_HEAD) continue;
        if (head) set_stage(connection, TT_HTTP_SENDS);
        if (request->step == TT_HTTP_REFUSED) {
            say(connection, request->code, plain_text, request->reason);
            return true;
        }
        if (request->step == TT_HTTP_WHOLE) {
            if (!refuse(connection)) handle(connection);
            return true;
        }
        if (head && request->expects) {
            answer_expectation(connection);
            return true;
        }
    }
    tt_str_deinit(&connection->in);
    connection->in_taken = 0;
    return false;
}

/* False: nothing has come. */
static bool receive(struct connection *connection)
{
    struct tt_http_server *server = connection->server;
    ssize_t bytes = recv(connection->line.file, server->block, sizeof server->block, 0);
    if (bytes < 0 && (errno == EAGAIN || errno == EINTR)) {
        watch(connection, EPOLLIN);
        return false;
    }
    if (bytes > 0 && tt_str_append(&connection->in, server->block, (size_t)bytes) == TT_OK) return true;
    tt_error_clear();
    drop(connection);
    return false;
}

/* ---- Answers ---- */

/* Sends. False: the client takes no more now, or never. */
static bool flush(struct connection *connection)
{
    while (connection->out_taken < connection->out.bytes) {
        ssize_t bytes = send(connection->line.file, connection->out.data + connection->out_taken,
                             connection->out.bytes - connection->out_taken, MSG_NOSIGNAL);
        if (bytes >= 0) {
            connection->out_taken += (size_t)bytes;
            connection->moved = tt_clock_seconds();
        } else if (errno == EAGAIN) {
            watch(connection, EPOLLOUT);
            return false;
        } else if (errno != EINTR) {
            drop(connection);
            return false;
        }
    }
    tt_str_clear(&connection->out);
    connection->out_taken = 0;
    return true;
}

/* The client must fetch its answer from its end on. */
static void note_end(struct connection *connection)
{
    if (connection->line.stage == TT_HTTP_ANSWERED && tt_http_exchange_is_ended(connection->line.exchange))
        set_stage(connection, TT_HTTP_FETCHES);
}

/* False: the answer is not there yet. */
static bool answer(struct connection *connection)
{
    struct tt_http_exchange *exchange = connection->line.exchange;
    note_end(connection);
    switch (tt_http_exchange_give(exchange, &connection->out)) {
    case TT_HTTP_GIVES_NOTHING:
        watch(connection, 0);
        return false;
    case TT_HTTP_GIVES_FAILURE:
        drop(connection);
        return false;
    case TT_HTTP_GIVES_END:
        connection->line.exchange = NULL;
        end_request(connection, exchange->keeps);
        tt_http_exchange_leave(exchange);
        atomic_fetch_sub(&connection->server->busy, 1);
        break;
    case TT_HTTP_GIVES_BYTES:
        break;
    }
    return true;
}

/* A connection that is closed while bytes of the client are under way would take the answer from it (RFC 9112, 9.6). */
static void linger(struct connection *connection)
{
    (void)shutdown(connection->line.file, SHUT_WR);
    connection->lingers = true;
    set_stage(connection, TT_HTTP_IDLE);
    watch(connection, EPOLLIN);
}

static void advance(struct connection *connection)
{
    for (int round = 0; !connection->dead && flush(connection); round++) {
        if (round == ROUNDS_MAX) {
            watch(connection, EPOLLOUT); /* comes back at once */
            return;
        }
        if (connection->line.exchange != NULL) {
            if (!answer(connection)) return;
        } else if (connection->closes) {
            linger(connection);
            return;
        } else if (!read_request(connection) && !receive(connection)) {
            return;
        }
    }
}

static void drain(struct connection *connection)
{
    struct tt_http_server *server = connection->server;
    ssize_t bytes = recv(connection->line.file, server->block, sizeof server->block, 0);
    if (bytes == 0 || (bytes < 0 && errno != EAGAIN && errno != EINTR)) drop(connection);
}

/* ---- Connections ---- */

static void make_room(struct tt_http_server *server, struct connection *connection)
{
    double now = connection->line.since;
    struct tt_http_line *victim = tt_http_lines_add(&server->lines, &connection->line);
    if (victim == NULL) return;
    drop((struct connection *)victim);
    if (server->warned > 0 && now - server->warned < warn_seconds) return;
    server->warned = now;
    tt_warn("port %d: more than %zu connections: %s", server->port, server->lines.most,
            victim != &connection->line ? "the oldest idle one is closed for each new one"
                                        : "all wait for their answers, so new ones are closed");
}

static void begin_connection(struct tt_http_server *server, int file, const struct sockaddr *from)
{
    int on = 1;
    struct connection *connection = tt_calloc(1, sizeof *connection);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = connection};
    if (connection == NULL || epoll_ctl(server->poll, EPOLL_CTL_ADD, file, &event) != 0) {
        tt_error_clear();
        tt_free(connection);
        close(file);
        return;
    }
    (void)setsockopt(file, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    connection->server = server;
    connection->watched = EPOLLIN;
    connection->request.body_most = server->config.body_bytes;
    connection->line = (struct tt_http_line){
        .file = file, .local = tt_address_is_loopback(from), .since = tt_clock_seconds()};
    tt_origin_of(from, connection->line.origin);
    make_room(server, connection);
}

static void listen_again(struct tt_http_server *server, bool hears)
{
    struct epoll_event event = {.events = hears ? EPOLLIN : 0, .data.ptr = &server->listener};
    if (epoll_ctl(server->poll, EPOLL_CTL_MOD, server->listener, &event) == 0) server->deaf = !hears;
}

static void accept_all(struct tt_http_server *server)
{
    for (int i = 0; i < ACCEPTS_MAX; i++) {
        struct sockaddr_storage from = {0};
        socklen_t bytes = sizeof from;
        int file = accept4(server->listener, (struct sockaddr *)&from, &bytes, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (file >= 0) {
            begin_connection(server, file, (struct sockaddr *)&from);
            continue;
        }
        if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
            listen_again(server, false);
        return;
    }
}

/* Deadlines, and clients that have gone while their answers are made. */
static void check(struct connection *connection, double now)
{
    char byte;
    const struct tt_http_line *line = &connection->line;
    double seconds = connection->server->config.seconds;
    if (connection->lingers && seconds > linger_seconds) seconds = linger_seconds;
    if (line->stage != TT_HTTP_ANSWERED) {
        if (now > line->since + seconds) drop(connection);
        return;
    }
    ssize_t bytes = recv(line->file, &byte, 1, MSG_PEEK);
    if (bytes == 0 || (bytes < 0 && errno != EAGAIN && errno != EINTR))
        drop(connection);
    else if (connection->out_taken < connection->out.bytes && now > connection->moved + seconds)
        drop(connection);
}

static void check_all(struct tt_http_server *server, double now)
{
    struct tt_http_line *next;
    for (struct tt_http_line *line = server->lines.ring.next; line != &server->lines.ring; line = next) {
        next = line->next;
        check((struct connection *)line, now);
    }
    if (server->deaf) listen_again(server, true);
}

static void answer_queue(struct tt_http_server *server)
{
    struct tt_http_exchange *exchange = tt_http_queue_take(&server->queue), *next;
    for (; exchange != NULL; exchange = next) {
        next = tt_http_queue_next(exchange);
        struct connection *connection = (struct connection *)exchange->line;
        if (connection != NULL) {
            note_end(connection);
            advance(connection);
        }
        tt_http_exchange_release(exchange);
    }
}

static void on_event(struct tt_http_server *server, const struct epoll_event *event)
{
    if (event->data.ptr == &server->queue) return; /* looked at after all events */
    if (event->data.ptr == &server->listener) {
        accept_all(server);
        return;
    }
    struct connection *connection = event->data.ptr;
    if (connection->dead) return;
    if ((event->events & (EPOLLERR | EPOLLHUP)) != 0)
        drop(connection);
    else if (connection->lingers)
        drain(connection);
    else
        advance(connection);
}

static tt_status serve(void *argument)
{
    struct tt_http_server *server = argument;
    struct epoll_event events[EVENTS_MAX];
    double checked = tt_clock_seconds();
    while (!atomic_load(&server->closes)) {
        bool empty = server->lines.ring.next == &server->lines.ring && !server->deaf;
        int count = epoll_wait(server->poll, events, EVENTS_MAX, empty ? -1 : (int)(watch_seconds * 1e3));
        for (int i = 0; i < count; i++) on_event(server, &events[i]);
        answer_queue(server);
        double now = tt_clock_seconds();
        if (now >= checked + watch_seconds) {
            check_all(server, now);
            checked = now;
        }
        bury(server);
    }
    return TT_OK;
}

/* ---- The server ---- */

static tt_status listen_at(struct tt_http_server *server, const struct addrinfo *address)
{
    int on = 1;
    struct sockaddr_storage bound = {0};
    socklen_t bytes = sizeof bound;
    int file = socket(address->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    server->listener = file;
    bool listens = file >= 0 && setsockopt(file, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
                   (address->ai_family != AF_INET6 ||
                    setsockopt(file, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on) == 0) &&
                   bind(file, address->ai_addr, address->ai_addrlen) == 0 && listen(file, SOMAXCONN) == 0 &&
                   getsockname(file, (struct sockaddr *)&bound, &bytes) == 0;
    if (!listens) {
        const struct tt_http_config *config = &server->config;
        tt_fail(TT_ERR_IO, "cannot listen at %s port %d: %s", config->host, config->port,
                tt_errno_text(errno));
        tt_hint("--%s N chooses another port; 0 takes a free one",
                config->port_setting != NULL ? config->port_setting : "port");
        return TT_ERR_IO;
    }
    server->port = ntohs(bound.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&bound)->sin6_port
                                                     : ((struct sockaddr_in *)&bound)->sin_port);
    return TT_OK;
}

static tt_status start_listening(struct tt_http_server *server)
{
    struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE,
                             .ai_socktype = SOCK_STREAM};
    struct addrinfo *address = NULL;
    char port[16];
    snprintf(port, sizeof port, "%d", server->config.port);
    if (getaddrinfo(server->config.host, port, &hints, &address) != 0) {
        tt_fail(TT_ERR_USAGE, "'%.100s' is no address to listen at", server->config.host);
        tt_hint("127.0.0.1: this machine only; 0.0.0.0: all its networks");
        return TT_ERR_USAGE;
    }
    tt_status status = listen_at(server, address);
    freeaddrinfo(address);
    return status;
}

static tt_status start_polling(struct tt_http_server *server)
{
    struct epoll_event listening = {.events = EPOLLIN, .data.ptr = &server->listener};
    struct epoll_event woken = {.events = EPOLLIN, .data.ptr = &server->queue};
    server->poll = epoll_create1(EPOLL_CLOEXEC);
    server->queue.file = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (server->poll < 0 || server->queue.file < 0 ||
        epoll_ctl(server->poll, EPOLL_CTL_ADD, server->listener, &listening) != 0 ||
        epoll_ctl(server->poll, EPOLL_CTL_ADD, server->queue.file, &woken) != 0)
        return tt_fail_errno(errno, "cannot wait for connections");
    return TT_OK;
}

tt_status tt_http_open(const struct tt_http_config *config, struct tt_http_server **out)
{
    tt_status status = TT_OK;
    TT_TRY(tt_http_hosts_check(config->allowed_hosts, "allowed_hosts"));
    struct tt_http_server *server = tt_calloc(1, sizeof *server);
    if (server == NULL) return TT_ERR_MEMORY;
    server->config = *config;
    server->hosts = (struct tt_http_hosts){config->allowed_hosts, !tt_host_is_loopback(config->host)};
    server->poll = server->listener = server->queue.file = -1;
    pthread_mutex_init(&server->queue.lock, NULL);
    TT_GO(
        tt_http_lines_init(tt_crowd_capacity((size_t)config->connections, OTHER_FILES_MAX), &server->lines));
    TT_GO(start_listening(server));
    TT_GO(start_polling(server));
    TT_GO(tt_thread_start("http", serve, server, &server->thread));
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
    return atomic_load(&server->busy);
}

static void close_file(int file)
{
    if (file >= 0) close(file);
}

void tt_http_close(struct tt_http_server *server)
{
    const uint64_t one = 1;
    if (server == NULL) return;
    atomic_store(&server->closes, true);
    (void)!write(server->queue.file, &one, sizeof one);
    if (server->thread != NULL && tt_thread_join(server->thread) != TT_OK) tt_error_clear();
    while (server->lines.crowd != NULL && server->lines.ring.next != &server->lines.ring)
        drop((struct connection *)server->lines.ring.next);
    struct tt_http_exchange *exchange = server->queue.file >= 0 ? tt_http_queue_take(&server->queue) : NULL;
    for (struct tt_http_exchange *next; exchange != NULL; exchange = next) {
        next = tt_http_queue_next(exchange);
        tt_http_exchange_release(exchange);
    }
    bury(server);
    close_file(server->listener);
    close_file(server->poll);
    close_file(server->queue.file);
    pthread_mutex_destroy(&server->queue.lock);
    tt_http_lines_deinit(&server->lines);
    tt_free(server);
}
