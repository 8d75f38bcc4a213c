/* A server beside many idle connections that are renewed: whoever asks is answered at once, requests in work are not
 * cut off; and the names by which it answers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <sys/socket.h>
#include <cmocka.h>

#include "base/clock.h"
#include "http/server.h"
#include "support/port.h"

enum { MOST = 16, IDLE = 150, ASKED = 10 };
static const double soon = 2.0; /* a connection that is kept out waits for the server's limit of 60 s */

struct fixture {
    struct tt_http_server *server;
    struct tt_http_exchange *kept; /* of /wait */
};

static void handle(void *context, struct tt_http_exchange *exchange)
{
    struct fixture *fixture = context;
    if (strcmp(tt_http_path(exchange), "/wait") == 0) {
        fixture->kept = exchange;
        return;
    }
    tt_http_answer(exchange, 200, "text/plain", "here\n", 5);
    tt_http_release(exchange);
}

static void open_server(struct fixture *fixture, const char *host, const char *allowed)
{
    static const char *const probes[] = {"/healthz", NULL};
    const struct tt_http_config config = {.host = host,
                                          .connections = MOST,
                                          .body_bytes = 1024,
                                          .seconds = 60,
                                          .allowed_hosts = allowed,
                                          .probes = probes,
                                          .handler = handle,
                                          .context = fixture};
    tt_status status = tt_http_open(&config, &fixture->server);
    assert_int_equal(status, TT_OK);
}

static int dial(const struct fixture *fixture)
{
    int file = test_dial(tt_http_port(fixture->server), 5);
    struct timeval limit = {.tv_sec = 5};
    assert_true(file >= 0);
    assert_int_equal(setsockopt(file, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit), 0);
    return file;
}

static void say(int file, const char *path, const char *host)
{
    char request[200];
    int bytes = snprintf(request, sizeof request, "GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n",
                         path, host);
    (void)!send(file, request, (size_t)bytes, MSG_NOSIGNAL);
}

/* The status of the answer; 0: none. */
static int hear(int file)
{
    char text[4096];
    size_t have = 0;
    ssize_t got;
    int status = 0;
    while (have < sizeof text - 1 && (got = recv(file, text + have, sizeof text - 1 - have, 0)) > 0)
        have += (size_t)got;
    text[have] = '\0';
    (void)sscanf(text, "HTTP/1.1 %d", &status);
    close(file);
    return status;
}

static int ask(const struct fixture *fixture, const char *path, const char *host)
{
    int file = dial(fixture);
    say(file, path, host);
    return hear(file);
}

static void crowd(void **state)
{
    struct fixture fixture = {0};
    int idle[IDLE], busy;
    char byte;
    (void)state;
    open_server(&fixture, "127.0.0.1", NULL);
    busy = dial(&fixture);
    say(busy, "/wait", "localhost");
    for (int i = 0; i < 100 && fixture.kept == NULL; i++) usleep(20000);
    assert_non_null(fixture.kept);
    for (int i = 0; i < IDLE; i++) idle[i] = dial(&fixture);
    for (int round = 0; round < ASKED; round++) {
        double begin = tt_clock_seconds();
        assert_int_equal(ask(&fixture, "/", "localhost"), 200);
        assert_true(tt_clock_seconds() - begin < soon);
        for (int i = 0; i < IDLE; i++) {
            if (recv(idle[i], &byte, 1, MSG_DONTWAIT) != 0) continue;
            close(idle[i]);
            idle[i] = dial(&fixture);
            (void)!send(idle[i], "GET /h", 6, MSG_NOSIGNAL);
        }
    }
    tt_http_answer(fixture.kept, 200, "text/plain", "at last\n", 8);
    tt_http_release(fixture.kept);
    assert_int_equal(hear(busy), 200);
    for (int i = 0; i < IDLE; i++) close(idle[i]);
    tt_http_close(fixture.server);
}

static void foreign_names(void **state)
{
    struct fixture fixture = {0};
    (void)state;
    open_server(&fixture, "127.0.0.1", NULL);
    assert_int_equal(ask(&fixture, "/", "127.0.0.1:80"), 200);
    assert_int_equal(ask(&fixture, "/", "evil.example"), 403);
    assert_int_equal(ask(&fixture, "/wait", "evil.example"), 403);
    assert_int_equal(ask(&fixture, "/healthz", "evil.example"), 200);
    assert_null(fixture.kept);
    tt_http_close(fixture.server);
    open_server(&fixture, "127.0.0.1", "a.example");
    assert_int_equal(ask(&fixture, "/", "a.example"), 200);
    assert_int_equal(ask(&fixture, "/", "evil.example"), 403);
    tt_http_close(fixture.server);
    open_server(&fixture, "0.0.0.0", NULL);
    assert_int_equal(ask(&fixture, "/", "a.example"), 200);
    tt_http_close(fixture.server);
    open_server(&fixture, "0.0.0.0", "a.example");
    assert_int_equal(ask(&fixture, "/", "b.example"), 403);
    tt_http_close(fixture.server);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(crowd),
        cmocka_unit_test(foreign_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
