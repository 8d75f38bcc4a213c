/* What the HTTP server promises: requests in a row, answers that grow, bounds, deadlines, clients that go. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <cmocka.h>

#include "base/clock.h"
#include "base/thread.h"
#include "http/server.h"
#include "support/port.h"

enum { BODY_BYTES = 1000, LARGE_BYTES = 32 << 20 };
static const double deadline = 0.6, late = 60;

#define HOST "Host: localhost\r\n"

struct fixture {
    struct tt_http_server *server;
    struct tt_http_exchange *kept; /* of /keep */
};

/* Answers with the method, the path and the body; /keep and /large are answered by the test. */
static void handle(void *context, struct tt_http_exchange *exchange)
{
    struct fixture *fixture = context;
    char text[BODY_BYTES + 300];
    struct tt_span body = tt_http_body(exchange);
    const char *header = tt_http_header(exchange, "x-test");
    if (strcmp(tt_http_path(exchange), "/keep") == 0) {
        __atomic_store_n(&fixture->kept, exchange, __ATOMIC_SEQ_CST);
        return;
    }
    if (strcmp(tt_http_path(exchange), "/large") == 0) {
        char *large = calloc(1, LARGE_BYTES);
        assert_non_null(large);
        tt_http_answer(exchange, 200, "text/plain", large, LARGE_BYTES);
        free(large);
    } else if (strcmp(tt_http_path(exchange), "/lost") != 0) {
        int bytes =
            snprintf(text, sizeof text, "%s %s %s [%.*s]\n", tt_http_method(exchange), tt_http_path(exchange),
                     header != NULL ? header : "-", (int)body.bytes, body.data);
        tt_http_answer(exchange, 200, "text/plain", text, (size_t)bytes);
    }
    tt_http_release(exchange);
}

static tt_status try_open(struct fixture *fixture, const char *host, int port, double seconds)
{
    const struct tt_http_config config = {.host = host,
                                          .port = port,
                                          .connections = 16,
                                          .body_bytes = BODY_BYTES,
                                          .seconds = seconds,
                                          .handler = handle,
                                          .context = fixture};
    return tt_http_open(&config, &fixture->server);
}

static void open_server(struct fixture *fixture, double seconds)
{
    *fixture = (struct fixture){0};
    assert_int_equal(try_open(fixture, "127.0.0.1", 0, seconds), TT_OK);
}

static int dial(const struct fixture *fixture)
{
    int file = test_dial(tt_http_port(fixture->server), 60);
    struct timeval limit = {.tv_sec = 60};
    assert_true(file >= 0);
    assert_int_equal(setsockopt(file, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit), 0);
    return file;
}

static void say(int file, const char *text)
{
    (void)!send(file, text, strlen(text), MSG_NOSIGNAL);
}

/* All that comes until the server closes, or until `end` has come; the text lies in `text`. */
static void hear(int file, const char *end, char *text, size_t most)
{
    size_t have = 0;
    ssize_t got = 1;
    while (have < most - 1 && got > 0 && (end == NULL || strstr(text, end) == NULL)) {
        got = recv(file, text + have, most - 1 - have, 0);
        if (got > 0) have += (size_t)got;
        text[have] = '\0';
    }
}

/* Sends a request whose answer ends the connection, and returns the answer. */
static const char *ask(const struct fixture *fixture, const char *request, char *text, size_t most)
{
    int file = dial(fixture);
    text[0] = '\0';
    say(file, request);
    hear(file, NULL, text, most);
    close(file);
    return text;
}

static size_t count(const char *text, const char *part)
{
    size_t found = 0;
    for (; (text = strstr(text, part)) != NULL; text++) found++;
    return found;
}

static struct tt_http_exchange *wait_kept(struct fixture *fixture)
{
    for (int i = 0; i < 500; i++) {
        struct tt_http_exchange *kept = __atomic_exchange_n(&fixture->kept, NULL, __ATOMIC_SEQ_CST);
        if (kept != NULL) return kept;
        usleep(10000);
    }
    fail_msg("no request came");
    return NULL;
}

static void wait_gone(struct tt_http_exchange *exchange)
{
    double begin = tt_clock_seconds();
    while (!tt_http_is_gone(exchange)) {
        assert_true(tt_clock_seconds() - begin < late);
        usleep(5000);
    }
}

static void in_a_row(void **state)
{
    struct fixture fixture;
    char text[4000] = "";
    (void)state;
    open_server(&fixture, 60);
    int file = dial(&fixture);
    say(file, "GET /a HTTP/1.1\r\n" HOST "X-Test: one\r\n\r\nHEAD /b HTTP/1.1\r\n" HOST "\r\n"
              "POST /c HTTP/1.1\r\n" HOST "Content-Length: 5\r\n\r\nhel");
    hear(file, "/b", text, 20); /* the last one is not complete */
    usleep(50000);
    say(file, "lo\r\nGET /d HTTP/1.1\r\n" HOST "Connection: close\r\n\r\n");
    size_t have = strlen(text);
    hear(file, NULL, text + have, sizeof text - have);
    close(file);
    assert_int_equal(count(text, "HTTP/1.1 200 OK\r\n"), 4);
    assert_int_equal(count(text, "GET /a one []\n"), 1);
    assert_int_equal(count(text, "HEAD /b"), 0);
    assert_int_equal(count(text, "Content-Length: 13\r\n"), 1); /* of HEAD: the length that GET would have */
    assert_int_equal(count(text, "POST /c - [hello]\n"), 1);
    assert_int_equal(count(text, "GET /d - []\n"), 1);
    assert_int_equal(count(text, "Connection: close\r\n"), 1);
    assert_int_equal(count(text, "\r\nDate: "), 4);
    tt_http_close(fixture.server);
}

static void old_clients(void **state)
{
    struct fixture fixture;
    char text[2000] = "";
    (void)state;
    open_server(&fixture, 60);
    assert_non_null(strstr(ask(&fixture, "GET /a HTTP/1.0\r\n\r\n", text, sizeof text), "GET /a - []\n"));
    int file = dial(&fixture);
    text[0] = '\0';
    say(file, "GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    hear(file, "[]\n", text, sizeof text);
    assert_non_null(strstr(text, "Connection: keep-alive\r\n"));
    say(file, "GET /keep HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    struct tt_http_exchange *kept = wait_kept(&fixture);
    tt_http_begin(kept, 200, "text/plain");
    tt_http_write(kept, "grown", 5);
    tt_http_end(kept, NULL, 0);
    tt_http_release(kept);
    text[0] = '\0';
    hear(file, NULL, text, sizeof text);
    assert_null(strstr(text, "chunked"));
    assert_non_null(strstr(text, "\r\n\r\ngrown"));
    close(file);
    tt_http_close(fixture.server);
}

static void bodies(void **state)
{
    struct fixture fixture;
    char text[4000], body[BODY_BYTES + 2];
    (void)state;
    open_server(&fixture, 60);
    int file = dial(&fixture);
    text[0] = '\0';
    say(file, "POST /c HTTP/1.1\r\n" HOST "Expect: 100-continue\r\nContent-Length: 5\r\n\r\n");
    hear(file, "\r\n\r\n", text, sizeof text);
    assert_string_equal(text, "HTTP/1.1 100 Continue\r\n\r\n");
    say(file, "hello");
    text[0] = '\0';
    hear(file, "[hello]\n", text, sizeof text);
    /* Too large, and under way: it is read, and the connection serves the next request. */
    memset(body, 'x', sizeof body - 1);
    body[sizeof body - 1] = '\0';
    say(file, "POST /c HTTP/1.1\r\n" HOST "Content-Length: 1001\r\n\r\n");
    say(file, body);
    text[0] = '\0';
    hear(file, "}}\n", text, sizeof text);
    assert_non_null(strstr(text, "HTTP/1.1 413"));
    assert_non_null(strstr(text, "the body is too large"));
    say(file, "POST /c HTTP/1.1\r\n" HOST "Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n3e8\r\n");
    body[BODY_BYTES] = '\0';
    say(file, body);
    say(file, "\r\n0\r\n\r\n");
    text[0] = '\0';
    hear(file, NULL, text, sizeof text);
    assert_non_null(strstr(text, "HTTP/1.1 200"));
    assert_int_equal(count(text, "x"), BODY_BYTES + 1); /* and that of text/plain */
    close(file);
    /* A client that waits for leave is told before it sends. */
    assert_non_null(strstr(
        ask(&fixture, "POST /c HTTP/1.1\r\n" HOST "Expect: 100-continue\r\nContent-Length: 1001\r\n\r\n",
            text, sizeof text),
        "HTTP/1.1 413"));
    tt_http_close(fixture.server);
}

static void refusals(void **state)
{
    struct fixture fixture;
    char text[2000];
    (void)state;
    open_server(&fixture, 60);
    assert_int_equal(strncmp(ask(&fixture, "GET / HTTP/1.1\r\n\r\n", text, sizeof text), "HTTP/1.1 400 ", 13),
                     0);
    assert_non_null(strstr(text, "Connection: close\r\n"));
    assert_non_null(strstr(text, "a request has one header Host\n"));
    assert_int_equal(
        strncmp(ask(&fixture, "POST / HTTP/1.1\r\n" HOST "Content-Length: 1\r\nContent-Length: 2\r\n\r\nab",
                    text, sizeof text),
                "HTTP/1.1 400 ", 13),
        0);
    assert_non_null(
        strstr(ask(&fixture, "GET /lost HTTP/1.1\r\n" HOST "Connection: close\r\n\r\n", text, sizeof text),
               "HTTP/1.1 500 Internal Server Error\r\n"));
    tt_http_close(fixture.server);
}

static tt_status grow(void *context)
{
    struct tt_http_exchange *exchange = context;
    char line[20];
    for (int i = 0; i < 200; i++) {
        int bytes = snprintf(line, sizeof line, "<%d>", i);
        tt_http_write(exchange, line, (size_t)bytes);
        if (i % 50 == 0) usleep(10000);
    }
    tt_http_end(exchange, NULL, 0);
    tt_http_release(exchange);
    return TT_OK;
}

static void growing(void **state)
{
    struct fixture fixture;
    static char text[20000];
    struct tt_thread *thread = NULL;
    (void)state;
    open_server(&fixture, 60);
    int file = dial(&fixture);
    text[0] = '\0';
    say(file, "GET /keep HTTP/1.1\r\n" HOST "\r\n");
    struct tt_http_exchange *kept = wait_kept(&fixture);
    assert_int_equal(tt_http_busy(fixture.server), 1);
    tt_http_begin(kept, 200, "text/event-stream");
    hear(file, "\r\n\r\n", text, sizeof text); /* the head comes before the first write */
    assert_non_null(strstr(text, "Transfer-Encoding: chunked\r\n"));
    assert_int_equal(tt_thread_start("grow", grow, kept, &thread), TT_OK);
    hear(file, "\r\n0\r\n\r\n", text + strlen(text), sizeof text - strlen(text));
    assert_int_equal(tt_thread_join(thread), TT_OK);
    const char *at = text;
    for (int i = 0; i < 200; i++) {
        char line[20];
        snprintf(line, sizeof line, "<%d>", i);
        at = strstr(at, line);
        assert_non_null(at);
    }
    say(file, "GET /next HTTP/1.1\r\n" HOST "\r\n");
    text[0] = '\0';
    hear(file, "GET /next", text, sizeof text);
    for (int i = 0; i < 200 && tt_http_busy(fixture.server) > 0; i++) usleep(5000);
    assert_int_equal(tt_http_busy(fixture.server), 0);
    close(file);
    tt_http_close(fixture.server);
}

static void gone(void **state)
{
    struct fixture fixture;
    struct linger reset = {.l_onoff = 1};
    (void)state;
    open_server(&fixture, 60);
    for (int how = 0; how < 3; how++) {
        int file = dial(&fixture);
        say(file, "GET /keep HTTP/1.1\r\n" HOST "\r\n");
        struct tt_http_exchange *kept = wait_kept(&fixture);
        assert_false(tt_http_is_gone(kept));
        if (how == 1) {
            tt_http_begin(kept, 200, "text/plain");
            tt_http_write(kept, "a", 1);
        }
        if (how == 2) assert_int_equal(setsockopt(file, SOL_SOCKET, SO_LINGER, &reset, sizeof reset), 0);
        close(file);
        wait_gone(kept);
        tt_http_write(kept, "b", 1);
        tt_http_end(kept, NULL, 0);
        tt_http_release(kept);
    }
    assert_int_equal(tt_http_busy(fixture.server), 0);
    tt_http_close(fixture.server);
}

/* Bytes that keep coming do not move the end of a request's time. */
static void slow_requests(void **state)
{
    static const char *const begins[] = {
        "GET / HTTP/1.1\r\n" HOST "X: ", "POST / HTTP/1.1\r\n" HOST "Content-Length: 900\r\n\r\n",
        "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n384\r\n", ""};
    struct fixture fixture;
    char byte;
    (void)state;
    open_server(&fixture, deadline);
    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++) {
        int file = dial(&fixture);
        double begin = tt_clock_seconds();
        say(file, begins[i]);
        while (recv(file, &byte, 1, MSG_DONTWAIT) != 0) {
            if (begins[i][0] != '\0' && send(file, "a", 1, MSG_NOSIGNAL) < 0) break;
            assert_true(tt_clock_seconds() - begin < late);
            usleep(20000);
        }
        assert_true(tt_clock_seconds() - begin >= deadline);
        close(file);
    }
    tt_http_close(fixture.server);
}

/* An answer that is not fetched, at all or byte by byte, ends; and one that grows and is not read. */
static void slow_fetches(void **state)
{
    struct fixture fixture;
    static char block[1 << 20];
    (void)state;
    open_server(&fixture, deadline);
    for (int drips = 0; drips < 2; drips++) {
        int file = dial(&fixture);
        say(file, "GET /large HTTP/1.1\r\n" HOST "\r\n");
        for (int i = 0; i < 200 && tt_http_busy(fixture.server) == 0; i++) usleep(5000);
        double begin = tt_clock_seconds();
        while (tt_http_busy(fixture.server) > 0) {
            if (drips) (void)!recv(file, block, 1000, MSG_DONTWAIT);
            assert_true(tt_clock_seconds() - begin < late);
            usleep(20000);
        }
        close(file);
    }
    int file = dial(&fixture);
    say(file, "GET /keep HTTP/1.1\r\n" HOST "\r\n");
    struct tt_http_exchange *kept = wait_kept(&fixture);
    tt_http_begin(kept, 200, "text/plain");
    for (int i = 0; i < LARGE_BYTES >> 20; i++) tt_http_write(kept, block, sizeof block);
    assert_true(tt_http_pending(kept) > 0);
    wait_gone(kept);
    tt_http_release(kept);
    /* One that grows slowly and is read is not ended. */
    int patient = dial(&fixture);
    say(patient, "GET /keep HTTP/1.1\r\n" HOST "\r\n");
    kept = wait_kept(&fixture);
    tt_http_begin(kept, 200, "text/plain");
    for (double begin = tt_clock_seconds(); tt_clock_seconds() - begin < 2 * deadline; usleep(50000))
        tt_http_write(kept, "a", 1);
    assert_false(tt_http_is_gone(kept));
    tt_http_end(kept, NULL, 0);
    tt_http_release(kept);
    char text[4000] = "";
    hear(patient, "\r\n0\r\n\r\n", text, sizeof text);
    assert_non_null(strstr(text, "\r\n0\r\n\r\n"));
    close(patient);
    close(file);
    tt_http_close(fixture.server);
}

static void large_answer(void **state)
{
    struct fixture fixture;
    static char block[1 << 20];
    size_t have = 0;
    ssize_t got;
    (void)state;
    open_server(&fixture, 60);
    int file = dial(&fixture);
    say(file, "GET /large HTTP/1.1\r\n" HOST "Connection: close\r\n\r\n");
    while ((got = recv(file, block, sizeof block, 0)) > 0) have += (size_t)got;
    assert_int_equal(got, 0);
    assert_true(have > LARGE_BYTES && have < LARGE_BYTES + 1000);
    close(file);
    tt_http_close(fixture.server);
}

static void addresses(void **state)
{
    struct fixture fixture = {0}, other = {0};
    (void)state;
    open_server(&fixture, 60);
    assert_int_equal(try_open(&other, "127.0.0.1", tt_http_port(fixture.server), 60), TT_ERR_IO);
    assert_non_null(strstr(tt_error_last()->message, "in use"));
    assert_int_equal(try_open(&other, "localhost", 0, 60), TT_ERR_USAGE);
    tt_http_close(fixture.server);
    tt_error_clear();
    if (try_open(&other, "::1", 0, 60) != TT_OK) return; /* no IPv6 here */
    struct sockaddr_in6 six = {.sin6_family = AF_INET6,
                               .sin6_port = htons((uint16_t)tt_http_port(other.server)),
                               .sin6_addr = in6addr_loopback};
    int file = socket(AF_INET6, SOCK_STREAM, 0);
    char text[1000] = "";
    assert_int_equal(connect(file, (struct sockaddr *)&six, sizeof six), 0);
    say(file, "GET /six HTTP/1.1\r\nHost: [::1]\r\nConnection: close\r\n\r\n");
    hear(file, NULL, text, sizeof text);
    assert_non_null(strstr(text, "GET /six"));
    close(file);
    tt_http_close(other.server);
}

static void closing(void **state)
{
    struct fixture fixture;
    (void)state;
    open_server(&fixture, 60);
    int file = dial(&fixture);
    say(file, "GET /keep HTTP/1.1\r\n" HOST "\r\n");
    struct tt_http_exchange *kept = wait_kept(&fixture);
    tt_http_begin(kept, 200, "text/plain");
    tt_http_close(fixture.server);
    assert_true(tt_http_is_gone(kept));
    assert_string_equal(tt_http_path(kept), "/keep");
    tt_http_write(kept, "a", 1);
    tt_http_end(kept, NULL, 0);
    tt_http_release(kept);
    close(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(in_a_row),      cmocka_unit_test(old_clients),  cmocka_unit_test(bodies),
        cmocka_unit_test(refusals),      cmocka_unit_test(growing),      cmocka_unit_test(gone),
        cmocka_unit_test(slow_requests), cmocka_unit_test(slow_fetches), cmocka_unit_test(large_answer),
        cmocka_unit_test(addresses),     cmocka_unit_test(closing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
