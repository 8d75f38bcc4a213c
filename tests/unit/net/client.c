/* The client against a server of this process that plays a script: one answer for each connection. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/thread.h"
#include "net/client.h"
#include "support/must.h"

enum { STEPS_MAX = 12, REQUEST_BYTES = 1 << 16 };

struct server {
    int listener, port;
    const char *answers[STEPS_MAX + 1]; /* NULL: the end; "": the connection is closed without an answer */
    char requests[STEPS_MAX][REQUEST_BYTES];
    struct tt_thread *thread;
};

static void hear(int line, char *text)
{
    size_t used = 0, whole = REQUEST_BYTES - 1;
    while (used < whole) {
        ssize_t got = recv(line, text + used, whole - used, 0);
        if (got <= 0) break;
        used += (size_t)got;
        text[used] = '\0';
        const char *end = strstr(text, "\r\n\r\n"), *length = strstr(text, "Content-Length: ");
        if (end == NULL) continue;
        size_t body = length != NULL && length < end ? strtoul(length + 16, NULL, 10) : 0;
        if (strstr(text, "Expect: 100-continue") == NULL || used > (size_t)(end + 4 - text))
            whole = (size_t)(end + 4 - text) + body;
        if (used >= whole) break;
    }
}

static tt_status play(void *context)
{
    struct server *server = context;
    for (int i = 0; server->answers[i] != NULL; i++) {
        int line = accept(server->listener, NULL, NULL);
        if (line < 0) return TT_OK;
        hear(line, server->requests[i]);
        send(line, server->answers[i], strlen(server->answers[i]), MSG_NOSIGNAL);
        close(line); /* all of the request has been read: nothing is reset */
    }
    return TT_OK;
}

static struct server *start(const char *const *answers)
{
    static struct server server;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof address;
    memset(&server, 0, sizeof server);
    for (int i = 0; answers[i] != NULL; i++) server.answers[i] = answers[i];
    server.listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(server.listener, (struct sockaddr *)&address, bytes), 0);
    assert_int_equal(listen(server.listener, STEPS_MAX), 0);
    assert_int_equal(getsockname(server.listener, (struct sockaddr *)&address, &bytes), 0);
    server.port = ntohs(address.sin_port);
    test_must(tt_thread_start("server", play, &server, &server.thread));
    return &server;
}

/* All answers of the script must have been fetched. */
static void stop(struct server *server)
{
    test_must(tt_thread_join(server->thread));
    close(server->listener);
}

static struct tt_net *net;

static int open_net(void **state)
{
    static const char *const variables[] = {"http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY",
                                            "all_proxy"};
    (void)state;
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) unsetenv(variables[i]);
    test_must(tt_net_open(&(struct tt_net_config){.attempts = 4, .pause_seconds = 0.01, .wait_seconds = 2},
                          "a test", &net));
    return 0;
}

static int close_net(void **state)
{
    (void)state;
    tt_net_close(net);
    return 0;
}

static const char *url_of(const struct server *server, const char *path)
{
    static char url[200];
    snprintf(url, sizeof url, "http://127.0.0.1:%d%s", server->port, path);
    return url;
}

static tt_status keep(void *context, const void *data, size_t bytes)
{
    return tt_str_append(context, data, bytes);
}

static void reads_an_answer(void **state)
{
    struct server *server = start((const char *const[]){
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-Thing:  two words \r\n\r\nhello", NULL});
    struct tt_net_answer answer = {0};
    char value[40];
    (void)state;
    struct tt_net_header header = {.name = "Authorization", .value = "Bearer abc", .secret = true};
    struct tt_net_request request = {.url = url_of(server, "/a?b=c"), .headers = &header, .header_count = 1};
    test_must(tt_net_call(net, &request, &answer));
    stop(server);
    assert_int_equal(answer.code, 200);
    assert_string_equal(answer.body.data, "hello");
    assert_true(tt_net_header(&answer.headers, "x-thing", value, sizeof value));
    assert_string_equal(value, "two words");
    assert_false(tt_net_header(&answer.headers, "x-thin", value, sizeof value));
    assert_false(tt_net_header(&answer.headers, "x-thing", value, 9));
    assert_non_null(strstr(server->requests[0], "GET /a?b=c HTTP/1.1"));
    assert_non_null(strstr(server->requests[0], "Authorization: Bearer abc\r\n"));
    tt_net_answer_deinit(&answer);
}

static void goes_on_where_it_broke(void **state)
{
    struct server *server = start((const char *const[]){
        "HTTP/1.1 200 OK\r\nContent-Length: 10\r\nETag: \"x\"\r\n\r\n0123", "",
        "HTTP/1.1 503 Busy\r\nContent-Length: 2\r\n\r\nno",
        "HTTP/1.1 206 Partial\r\nContent-Length: 6\r\nContent-Range: bytes 4-9/10\r\nETag: \"x\"\r\n\r\n45",
        /* A server that has forgotten ranges sends all of it again. */
        "HTTP/1.1 200 OK\r\nContent-Length: 10\r\nETag: \"x\"\r\n\r\n0123456789", NULL});
    struct tt_net_answer answer = {0};
    struct tt_str body = {0};
    (void)state;
    struct tt_net_sink sink = {.write = keep, .context = &body};
    test_must(
        tt_net_call(net, &(struct tt_net_request){.url = url_of(server, "/f"), .sink = &sink}, &answer));
    stop(server);
    assert_string_equal(body.data, "0123456789");
    assert_int_equal(answer.bytes, 10);
    assert_null(strstr(server->requests[0], "Range:"));
    assert_non_null(strstr(server->requests[2], "Range: bytes=4-\r\n"));
    assert_non_null(strstr(server->requests[4], "Range: bytes=6-\r\n"));
    tt_str_deinit(&body);
    tt_net_answer_deinit(&answer);
}

static void refuses_a_changed_object(void **state)
{
    struct server *server =
        start((const char *const[]){"HTTP/1.1 200 OK\r\nContent-Length: 10\r\nETag: \"x\"\r\n\r\n0123",
                                    "HTTP/1.1 206 Partial\r\nContent-Length: 6\r\nContent-Range: bytes "
                                    "4-9/10\r\nETag: \"y\"\r\n\r\n456789",
                                    NULL});
    struct tt_net_answer answer = {0};
    struct tt_str body = {0};
    (void)state;
    struct tt_net_sink sink = {.write = keep, .context = &body};
    struct tt_net_request request = {.url = url_of(server, "/f"), .what = "file 'f'", .sink = &sink};
    assert_int_equal(tt_net_call(net, &request, &answer), TT_ERR_DATA);
    assert_string_equal(tt_error_last()->message, "file 'f' changed on the server while it was read");
    stop(server);
    assert_string_equal(body.data, "0123");
    tt_str_deinit(&body);
    tt_net_answer_deinit(&answer);
}

static void reads_a_range(void **state)
{
    struct server *server = start((const char *const[]){
        "HTTP/1.1 206 Partial\r\nContent-Length: 3\r\nContent-Range: bytes 2-4/10\r\n\r\n234",
        "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n0123456789",
        "HTTP/1.1 206 Partial\r\nContent-Length: 3\r\nContent-Range: bytes 3-5/10\r\n\r\n345", NULL});
    struct tt_net_answer answer = {0};
    struct tt_str body = {0};
    (void)state;
    struct tt_net_sink sink = {.write = keep, .context = &body};
    struct tt_net_request request = {
        .url = url_of(server, "/f"), .sink = &sink, .ranged = true, .first = 2, .count = 3};
    for (int i = 0; i < 2; i++) test_must(tt_net_call(net, &request, &answer));
    assert_string_equal(body.data, "234234");
    assert_int_equal(tt_net_call(net, &request, &answer), TT_ERR_DATA);
    assert_non_null(strstr(tt_error_last()->message, "where bytes from 2 on were asked for"));
    stop(server);
    assert_non_null(strstr(server->requests[0], "Range: bytes=2-4\r\n"));
    tt_str_deinit(&body);
    tt_net_answer_deinit(&answer);
}

static tt_status give(void *context, uint64_t offset, void *data, size_t bytes)
{
    memcpy(data, (const char *)context + offset, bytes);
    return TT_OK;
}

static tt_status sign_anew(void *context, struct tt_net_headers *headers)
{
    char value[20];
    snprintf(value, sizeof value, "%d", ++*(int *)context);
    return tt_net_add_header(headers, "X-Signed", value, true);
}

static void sends_a_body_again(void **state)
{
    struct server *server = start((const char *const[]){
        "", "HTTP/1.1 429 Slow\r\nRetry-After: 0\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 201 Made\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 500 No\r\nContent-Length: 4\r\n\r\noops",
        "HTTP/1.1 204 Gone\r\n\r\n", NULL});
    struct tt_net_answer answer = {0};
    int signs = 0;
    (void)state;
    struct tt_net_source body = {.bytes = 6, .read = give, .context = "abcdef"};
    struct tt_net_request request = {.method = TT_NET_PUT,
                                     .url = url_of(server, "/f"),
                                     .body = &body,
                                     .sign = sign_anew,
                                     .sign_context = &signs};
    test_must(tt_net_call(net, &request, &answer));
    assert_int_equal(answer.code, 201);
    for (int i = 0; i < 3; i++) {
        char signature[40];
        snprintf(signature, sizeof signature, "X-Signed: %d\r\n", i + 1);
        assert_non_null(strstr(server->requests[i], "PUT /f HTTP/1.1\r\n"));
        assert_non_null(strstr(server->requests[i], signature));
        assert_non_null(strstr(server->requests[i], "\r\n\r\nabcdef"));
    }
    request.method = TT_NET_POST; /* not twice: it may have had its effect */
    test_must(tt_net_call(net, &request, &answer));
    assert_int_equal(answer.code, 500);
    assert_int_equal(tt_net_fail(&request, &answer), TT_ERR_IO);
    assert_non_null(strstr(tt_error_last()->message, "the server answered 500 (oops)"));
    request = (struct tt_net_request){.method = TT_NET_DELETE, .url = request.url};
    test_must(tt_net_call(net, &request, &answer));
    assert_int_equal(answer.code, 204);
    assert_non_null(strstr(server->requests[4], "DELETE /f HTTP/1.1\r\n"));
    stop(server);
    tt_net_answer_deinit(&answer);
}

static void gives_up(void **state)
{
    static const char slow[] = "HTTP/1.1 429 Slow\r\nRetry-After: 3600\r\nContent-Length: 0\r\n\r\n";
    static const char busy[] = "HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n";
    struct server *server = start((const char *const[]){slow, busy, busy, busy, busy, "", "", "", "", NULL});
    struct tt_net_answer answer = {0};
    (void)state;
    struct tt_net_request request = {.url = url_of(server, "/f?secret=1"), .what = "file 'f'"};
    test_must(tt_net_call(net, &request, &answer)); /* longer than wait_seconds */
    assert_int_equal(answer.code, 429);
    assert_int_equal(tt_net_fail(&request, &answer), TT_ERR_IO);
    assert_string_equal(tt_error_last()->hint,
                        "the server limits how often it is asked: try again after 3600 s");
    assert_null(strstr(tt_error_last()->message, "secret"));
    test_must(tt_net_call(net, &request, &answer));
    assert_int_equal(answer.code, 503);
    assert_int_equal(tt_net_call(net, &request, &answer), TT_ERR_IO);
    assert_null(strstr(tt_error_last()->message, "secret"));
    stop(server);
    assert_int_equal(tt_net_call(net, &request, &answer), TT_ERR_IO); /* nobody listens */
    assert_non_null(strstr(tt_error_last()->hint, "HTTPS_PROXY"));
    tt_net_answer_deinit(&answer);
}

/* The same address by another name is another host. */
static void keeps_secrets_at_home(void **state)
{
    static char far[200];
    static const char near[] =
        "HTTP/1.1 302 Found\r\nX-First: yes\r\nLocation: /near\r\nContent-Length: 0\r\n\r\n";
    struct server *server = start(
        (const char *const[]){near, far, near, near, far, "HTTP/1.1 403 Expired\r\nContent-Length: 0\r\n\r\n",
                              far, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", NULL});
    struct tt_net_answer answer = {0};
    char value[100];
    (void)state;
    snprintf(far, sizeof far,
             "HTTP/1.1 307 Moved\r\nLocation: http://localhost:%d/far?x=1\r\nContent-Length: 0\r\n\r\n",
             server->port);
    struct tt_net_header headers[] = {{.name = "Authorization", .value = "Bearer abc", .secret = true},
                                      {.name = "X-Open", .value = "1"}};
    struct tt_net_request request = {
        .url = url_of(server, "/f"), .headers = headers, .header_count = 2, .redirects = TT_NET_SAME_HOST};
    test_must(tt_net_call(net, &request, &answer)); /* near, far */
    assert_int_equal(answer.code, 307);
    assert_true(tt_net_header(&answer.first, "x-first", value, sizeof value));
    request.redirects = TT_NET_STAY;
    test_must(tt_net_call(net, &request, &answer)); /* near */
    assert_int_equal(answer.code, 302);
    assert_int_equal(answer.first.bytes, 0);
    request.redirects = TT_NET_FOLLOW;
    test_must(tt_net_call(net, &request, &answer)); /* near, far, and anew where the far one has expired */
    assert_int_equal(answer.code, 200);
    stop(server);
    static const char *const asked[] = {"/f ",    "/near ",    "/f ", "/f ",
                                        "/near ", "/far?x=1 ", "/f ", "/far?x=1 "};
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++) {
        assert_int_equal(strncmp(server->requests[i] + 4, asked[i], strlen(asked[i])), 0);
        assert_non_null(strstr(server->requests[i], "X-Open: 1"));
        assert_int_equal(strstr(server->requests[i], "Bearer abc") != NULL, asked[i][2] != 'a');
    }
    tt_net_answer_deinit(&answer);
}

static void refuses_wrong_requests(void **state)
{
    struct tt_net_answer answer = {0};
    (void)state;
    static const char *const wrong[] = {"file:///etc/passwd", "ftp://host/x", "http://", "http://user@host/",
                                        "x"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(tt_net_call(net, &(struct tt_net_request){.url = wrong[i]}, &answer), TT_ERR_USAGE);
    struct tt_net_header header = {.name = "X-A", .value = "a\r\nX-B: c"};
    struct tt_net_request request = {.url = "http://127.0.0.1:1/", .headers = &header, .header_count = 1};
    assert_int_equal(tt_net_call(net, &request, &answer), TT_ERR_USAGE);
    tt_net_answer_deinit(&answer);
}

static void limits_answers(void **state)
{
    struct server *server =
        start((const char *const[]){"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
                                    "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", NULL});
    struct tt_net_answer answer = {0};
    (void)state;
    struct tt_net_request request = {.url = url_of(server, "/f"), .answer_bytes = 5};
    test_must(tt_net_call(net, &request, &answer));
    request.answer_bytes = 4;
    assert_int_equal(tt_net_call(net, &request, &answer), TT_ERR_DATA);
    assert_string_equal(tt_error_last()->message, "the answer has more than 4 B");
    stop(server);
    tt_net_answer_deinit(&answer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_an_answer),          cmocka_unit_test(goes_on_where_it_broke),
        cmocka_unit_test(refuses_a_changed_object), cmocka_unit_test(reads_a_range),
        cmocka_unit_test(sends_a_body_again),       cmocka_unit_test(gives_up),
        cmocka_unit_test(keeps_secrets_at_home),    cmocka_unit_test(refuses_wrong_requests),
        cmocka_unit_test(limits_answers),
    };
    struct tt_net *probe;
    if (tt_net_open(&(struct tt_net_config){0}, "a test", &probe) != TT_OK) {
        printf("skipped: %s\n", tt_error_last()->message);
        return 77;
    }
    tt_net_close(probe);
    return cmocka_run_group_tests(tests, open_net, close_net);
}
