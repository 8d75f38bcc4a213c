/* Requests of strangers: what is read from them, in one piece and byte by byte, and which code refuses them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "http/request.h"

enum { BODY_MOST = 20 };

#define HOST "Host: localhost\r\n"

static const struct {
    const char *text;
    int code; /* 0: it is read; -1: it is not complete */
    const char *method, *path, *body;
    bool keeps, expects, too_large;
    size_t rest; /* bytes that belong to the next request */
} rows[] = {
    {"GET / HTTP/1.1\r\n" HOST "\r\n", 0, "GET", "/", "", .keeps = true},
    {"GET / HTTP/1.1\n" HOST "\n", 0, "GET", "/", "", .keeps = true},
    {"\r\n\r\nGET /a HTTP/1.1\r\n" HOST "\r\n\r\n", 0, "GET", "/a", "", .keeps = true, .rest = 2},
    {"GET /a%20b/%2fc?x=%zz HTTP/1.1\r\n" HOST "\r\n", 0, "GET", "/a b//c", "", .keeps = true},
    {"GET http://localhost/a HTTP/1.1\r\n" HOST "\r\n", 0, "GET", "/a", "", .keeps = true},
    {"GET http://localhost?a HTTP/1.1\r\n" HOST "\r\n", 0, "GET", "/", "", .keeps = true},
    {"OPTIONS * HTTP/1.1\r\n" HOST "\r\n", 0, "OPTIONS", "*", "", .keeps = true},
    {"GET / HTTP/1.1\r\n" HOST "Connection: x, Close\r\n\r\n", 0, "GET", "/", "", .keeps = false},
    {"GET / HTTP/1.0\r\n\r\n", 0, "GET", "/", "", .keeps = false},
    {"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", 0, "GET", "/", "", .keeps = true},
    {"POST /p HTTP/1.1\r\n" HOST "Content-Length:  5 \r\n\r\nhelloGET", 0, "POST", "/p", "hello",
     .keeps = true, .rest = 3},
    {"POST /p HTTP/1.1\r\n" HOST "Content-Length: 0\r\n\r\n", 0, "POST", "/p", "", .keeps = true},
    {"POST /p HTTP/1.1\r\n" HOST "Content-Length: 21\r\n\r\n123456789012345678901", 0, "POST", "/p", "",
     .keeps = true, .too_large = true},
    {"POST /p HTTP/1.1\r\n" HOST "Content-Length: 5\r\n\r\nhell", .code = -1},
    {"POST /p HTTP/1.1\r\n" HOST "Expect: 100-Continue\r\nContent-Length: 2\r\n\r\nhi", 0, "POST", "/p", "hi",
     .keeps = true, .expects = true},
    {"POST /p HTTP/1.1\r\n" HOST
     "Transfer-Encoding: chunked\r\n\r\n5;a=b\r\nhello\r\nA\r\n0123456789\r\n0\r\n\r\nX",
     0, "POST", "/p", "hello0123456789", .keeps = true, .rest = 1},
    {"POST /p HTTP/1.1\r\n" HOST "Transfer-Encoding: Chunked\r\n\r\n0\r\nTrailer: x\r\n\r\n", 0, "POST", "/p",
     "", .keeps = true},
    {"POST /p HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n15\r\n123456789012345678901\r\n0\r\n\r\n",
     0, "POST", "/p", "", .keeps = true, .too_large = true},
    {"POST /p HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n", .code = -1},
    /* what two readers could understand differently */
    {"POST / HTTP/1.1\r\n" HOST "Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello", .code = 400},
    {"POST / HTTP/1.1\r\n" HOST "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
     .code = 400},
    {"POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
     .code = 400},
    {"POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: gzip, chunked\r\n\r\n", .code = 501},
    {"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", .code = 400},
    {"POST / HTTP/1.1\r\n" HOST "Content-Length: +5\r\n\r\nhello", .code = 400},
    {"POST / HTTP/1.1\r\n" HOST "Content-Length: 5, 5\r\n\r\nhello", .code = 400},
    {"POST / HTTP/1.1\r\n" HOST "Content-Length: 9999999999999999999\r\n\r\n", .code = 400},
    {"POST / HTTP/1.1\r\n" HOST "Content-Length:\r\n\r\n", .code = 400},
    {"POST / HTTP/1.1\r\n" HOST "Content-Length : 5\r\n\r\nhello", .code = 400},
    {"POST / HTTP/1.1\r\n" HOST " Content-Length: 5\r\n\r\nhello", .code = 400},
    {"POST / HTTP/1.1\r\n" HOST "X: a\rContent-Length: 5\r\n\r\nhello", .code = 400},
    {"POST / HTTP/1.1\r\n" HOST "X\r\n\r\n", .code = 400},
    {"POST / HTTP/1.1\r\n" HOST ": x\r\n\r\n", .code = 400},
    {"POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n5\nhello\r\n0\r\n\r\n", .code = 400},
    {"POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n5\r\nhello!\r\n0\r\n\r\n", .code = 400},
    {"POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n-5\r\nhello\r\n0\r\n\r\n", .code = 400},
    {"POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n0x5\r\nhello\r\n0\r\n\r\n", .code = 400},
    {"POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n\r\nhello\r\n0\r\n\r\n", .code = 400},
    {"POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n1000000000000000\r\n", .code = 400},
    {"POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n0\r\nTrailer: x\n", .code = 400},
    {"GET / HTTP/1.1\r\n\r\n", .code = 400},
    {"GET / HTTP/1.1\r\n" HOST HOST "\r\n", .code = 400},
    {"GET http://other/ HTTP/1.1\r\n" HOST "\r\n", .code = 400},
    {"GET a HTTP/1.1\r\n" HOST "\r\n", .code = 400},
    {"GET  / HTTP/1.1\r\n" HOST "\r\n", .code = 400},
    {"GET /a b HTTP/1.1\r\n" HOST "\r\n", .code = 400},
    {"GET /%00 HTTP/1.1\r\n" HOST "\r\n", .code = 400},
    {"GET /%0a HTTP/1.1\r\n" HOST "\r\n", .code = 400},
    {"GET /%4 HTTP/1.1\r\n" HOST "\r\n", .code = 400},
    {"GET /\r\n\r\n", .code = 400},
    {"G@T / HTTP/1.1\r\n" HOST "\r\n", .code = 400},
    {"GET / HTTP/1.10\r\n" HOST "\r\n", .code = 400},
    {"GET / http/1.1\r\n" HOST "\r\n", .code = 400},
    {"GET / HTTP/2.0\r\n" HOST "\r\n", .code = 505},
    {"ABCDEFGHIJKLMNOP / HTTP/1.1\r\n" HOST "\r\n", .code = 501},
    {"GET / HTTP/1.1\r\n" HOST "Expect: wonders\r\n\r\n", .code = 417},
    {"\x16\x03\x01\x02\n\n", .code = 400},
};

/* Reads `text` in pieces of `piece` bytes and compares; returns the bytes that were taken. */
static void read_row(size_t row, size_t piece)
{
    struct tt_http_request request = {.body_most = BODY_MOST};
    const char *text = rows[row].text;
    size_t bytes = strlen(text), taken = 0;
    while (taken < bytes && request.step < TT_HTTP_WHOLE) {
        size_t now = bytes - taken < piece ? bytes - taken : piece;
        taken += tt_http_request_read(&request, text + taken, now);
    }
    if (rows[row].code == -1) {
        assert_true(request.step < TT_HTTP_WHOLE);
    } else if (rows[row].code > 0) {
        if (request.code != rows[row].code) print_message("row %zu: %s\n", row, text);
        assert_int_equal(request.step, TT_HTTP_REFUSED);
        assert_int_equal(request.code, rows[row].code);
        assert_false(request.keeps);
    } else {
        if (request.step != TT_HTTP_WHOLE) print_message("row %zu: %s: %s\n", row, text, request.reason);
        assert_int_equal(request.step, TT_HTTP_WHOLE);
        assert_string_equal(request.method, rows[row].method);
        assert_string_equal(request.path, rows[row].path);
        assert_string_equal(tt_str_text(&request.body), rows[row].body);
        assert_int_equal(request.keeps, rows[row].keeps);
        assert_int_equal(request.expects, rows[row].expects);
        assert_int_equal(request.too_large, rows[row].too_large);
        assert_int_equal(bytes - taken, rows[row].rest);
    }
    tt_http_request_deinit(&request);
}

static void table(void **state)
{
    (void)state;
    for (size_t row = 0; row < sizeof rows / sizeof *rows; row++)
        for (size_t piece = 1; piece < 9; piece++) read_row(row, piece < 8 ? piece : 1000);
}

/* A begin, `count` times `part`, and an end: its code, or 0 where it is read. */
static int code_of(const char *begin, const char *part, size_t count, const char *end)
{
    struct tt_http_request request = {.body_most = BODY_MOST};
    struct tt_str text = {0};
    assert_int_equal(tt_str_append_text(&text, begin), TT_OK);
    for (size_t i = 0; i < count; i++) assert_int_equal(tt_str_append_text(&text, part), TT_OK);
    assert_int_equal(tt_str_append_text(&text, end), TT_OK);
    for (size_t taken = 0; taken < text.bytes && request.step < TT_HTTP_WHOLE;)
        taken += tt_http_request_read(&request, text.data + taken, text.bytes - taken);
    int code = request.step == TT_HTTP_WHOLE ? 0 : request.step == TT_HTTP_REFUSED ? request.code : -1;
    tt_str_deinit(&text);
    tt_http_request_deinit(&request);
    return code;
}

static void bounds(void **state)
{
    static const char chunked[] = "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n";
    (void)state;
    assert_int_equal(code_of("GET /", "a", TT_HTTP_PATH_BYTES - 2, " HTTP/1.1\r\n" HOST "\r\n"), 0);
    assert_int_equal(code_of("GET /", "a", TT_HTTP_PATH_BYTES - 1, " HTTP/1.1\r\n" HOST "\r\n"), 414);
    assert_int_equal(code_of("GET / HTTP/1.1\r\n" HOST, "a: b\r\n", TT_HTTP_FIELDS_MAX - 1, "\r\n"), 0);
    assert_int_equal(code_of("GET / HTTP/1.1\r\n" HOST, "a: b\r\n", TT_HTTP_FIELDS_MAX, "\r\n"), 431);
    assert_int_equal(code_of("GET / HTTP/1.1\r\n" HOST "X: ", "a", TT_HTTP_HEAD_BYTES_MAX - 100, "\r\n\r\n"),
                     0);
    /* refused before it ends */
    assert_int_equal(code_of("GET / HTTP/1.1\r\n" HOST "X: ", "a", TT_HTTP_HEAD_BYTES_MAX, ""), 431);
    assert_int_equal(code_of(chunked, "1\r\nx\r\n", BODY_MOST, "0\r\n\r\n"), 0);
    assert_int_equal(code_of(chunked, "0", TT_HTTP_LINE_BYTES, ""), -1);
    assert_int_equal(code_of(chunked, "0", TT_HTTP_LINE_BYTES + 1, ""), 400);
    assert_int_equal(code_of("POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n0\r\n", "a: b\r\n",
                             TT_HTTP_TRAILER_BYTES_MAX / 6 + 1, ""),
                     431);
}

static void fields(void **state)
{
    static const char text[] = "GET / HTTP/1.1\r\n" HOST "X-One: \t a b \t\r\nx-one: c\r\nEmpty:\r\n\r\n";
    struct tt_http_request request = {0};
    (void)state;
    assert_int_equal(tt_http_request_read(&request, text, sizeof text - 1), sizeof text - 1);
    assert_string_equal(tt_http_request_field(&request, "x-ONE"), "a b");
    assert_string_equal(tt_http_request_field(&request, "empty"), "");
    assert_null(tt_http_request_field(&request, "X"));
    tt_http_request_reset(&request);
    assert_null(tt_http_request_field(&request, "Host"));
    tt_http_request_deinit(&request);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(table),
        cmocka_unit_test(bounds),
        cmocka_unit_test(fields),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
