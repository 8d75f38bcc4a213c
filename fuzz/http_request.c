/* Requests to the HTTP server: read in one piece and in pieces whose sizes the input chooses they are the same, and
 * nothing that is read passes its bound. */
/* links: tt_http */
/* words: src/http/request.c */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "http/request.h"

enum { BODY_MOST = 64 };

/* Reads one request; `pieces`: take as many bytes at a time as the input's first byte and the place say. */
static size_t read_one(struct tt_http_request *request, const char *data, size_t bytes, unsigned seed)
{
    size_t taken = 0;
    while (taken < bytes && request->step < TT_HTTP_WHOLE) {
        size_t piece = seed == 0 ? bytes - taken : 1 + (taken * seed + seed) % 7;
        if (piece > bytes - taken) piece = bytes - taken;
        size_t now = tt_http_request_read(request, data + taken, piece);
        if (now == 0 || now > piece) abort();
        taken += now;
    }
    return taken;
}

static void check(const struct tt_http_request *request)
{
    if (request->body.bytes > BODY_MOST || request->head.bytes > TT_HTTP_HEAD_BYTES_MAX) abort();
    if (request->step == TT_HTTP_REFUSED && (request->code < 400 || request->reason == NULL)) abort();
    if (request->step != TT_HTTP_WHOLE) return;
    for (const char *at = request->path; *at != '\0'; at++)
        if ((unsigned char)*at < ' ') abort();
    if (request->method[0] == '\0' || request->path[0] == '\0') abort();
    for (size_t i = 0; i < request->fields_count; i++)
        if (strpbrk(request->fields[i].value, "\r\n") != NULL || request->fields[i].name[0] == '\0') abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tt_http_request whole = {.body_most = BODY_MOST}, parts = {.body_most = BODY_MOST};
    const char *text = (const char *)data;
    /* Requests that follow each other. */
    for (size_t at = 0; at < size;) {
        size_t taken = read_one(&whole, text + at, size - at, 0);
        size_t again = read_one(&parts, text + at, size - at, 1 + data[0]);
        check(&whole);
        check(&parts);
        if (whole.step != parts.step || whole.code != parts.code) abort();
        if (whole.step == TT_HTTP_WHOLE) {
            if (taken != again || strcmp(whole.path, parts.path) != 0 || whole.body.bytes != parts.body.bytes)
                abort();
            if (whole.body.bytes > 0 && memcmp(whole.body.data, parts.body.data, whole.body.bytes) != 0)
                abort();
        }
        if (whole.step != TT_HTTP_WHOLE) break;
        at += taken;
        tt_http_request_reset(&whole);
        tt_http_request_reset(&parts);
    }
    tt_http_request_deinit(&whole);
    tt_http_request_deinit(&parts);
    return 0;
}
