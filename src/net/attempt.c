/* One attempt through libcurl: its headers, callbacks and options. */
#include "net/attempt_impl.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/ascii.h"
#include "net/fields.h"
#include "net/url.h"

enum {
    HEADERS_BYTES_MAX = 256 << 10,
    ERROR_BODY_BYTES = 64 << 10,
    CONNECT_SECONDS = 30,
    BUFFER_BYTES = 256 << 10,
};

static bool is_success(int code)
{
    return code >= 200 && code <= 299;
}

/* "HTTP/1.1 206 Partial Content" and "HTTP/2 200" begin the headers of an answer, and end those of one before. */
static tt_status take_header(struct net_attempt *attempt, const char *line, size_t bytes)
{
    struct tt_net_answer *answer = attempt->call->answer;
    while (bytes > 0 && (line[bytes - 1] == '\n' || line[bytes - 1] == '\r')) bytes--;
    if (bytes >= 5 && memcmp(line, "HTTP/", 5) == 0) {
        tt_str_clear(&answer->headers);
        const char *code = memchr(line, ' ', bytes);
        answer->code = 0;
        for (int i = 1; code != NULL && i <= 3 && code + i < line + bytes && tt_ascii_is_digit(code[i]); i++)
            answer->code = answer->code * 10 + (code[i] - '0');
        return TT_OK;
    }
    if (bytes == 0 || memchr(line, ':', bytes) == NULL) return TT_OK;
    if (answer->headers.bytes + bytes > HEADERS_BYTES_MAX)
        return tt_fail(TT_ERR_DATA, "the headers of an answer have more than %d KiB",
                       HEADERS_BYTES_MAX >> 10);
    TT_TRY(tt_str_append(&answer->headers, line, bytes));
    return tt_str_append_char(&answer->headers, '\n');
}

static size_t on_header(char *data, size_t size, size_t count, void *context)
{
    struct net_attempt *attempt = context;
    attempt->status = take_header(attempt, data, size * count);
    return attempt->status == TT_OK ? size * count : 0;
}

/* Where the body lies in the object: after a break it must be the same object, and go on where it broke off. */
static tt_status open_body(struct net_attempt *attempt)
{
    struct net_call *call = attempt->call;
    const struct tt_net_request *request = call->request;
    const uint64_t from = request->first + call->done;
    char etag[NET_ETAG_BYTES] = "", value[128] = "";
    attempt->opened = true;
    (void)tt_net_header(&call->answer->headers, "etag", etag, sizeof etag);
    if (call->done > 0 && strcmp(etag, call->etag) != 0) {
        tt_fail(TT_ERR_DATA, "%s changed on the server while it was read",
                request->what != NULL ? request->what : "the object");
        tt_hint("start again; a revision that is a commit, or an object that nobody writes, does not change");
        return TT_ERR_DATA;
    }
    memcpy(call->etag, etag, sizeof etag);
    if (call->answer->code == 206) {
        struct tt_content_range range;
        if (!tt_net_header(&call->answer->headers, "content-range", value, sizeof value) ||
            !tt_parse_content_range(value, &range) || range.first != from)
            return tt_fail(TT_ERR_DATA, "the server sent '%.60s' where bytes from %llu on were asked for",
                           value, (unsigned long long)from);
    } else {
        attempt->skip = from;
    }
    if (!call->begun && request->sink->begin != NULL)
        TT_TRY(request->sink->begin(request->sink->context, call->answer));
    call->begun = true;
    return TT_OK;
}

static tt_status deliver(struct net_attempt *attempt, const char *data, size_t bytes)
{
    struct net_call *call = attempt->call;
    const struct tt_net_request *request = call->request;
    if (!attempt->opened) TT_TRY(open_body(attempt));
    size_t over = attempt->skip < bytes ? (size_t)attempt->skip : bytes;
    attempt->skip -= over;
    data += over;
    bytes -= over;
    if (request->ranged && request->count > 0 && bytes > request->count - call->done)
        bytes = (size_t)(request->count - call->done);
    if (bytes > 0) TT_TRY(request->sink->write(request->sink->context, data, bytes));
    call->done += bytes;
    call->answer->bytes = call->done;
    attempt->complete = request->ranged && request->count > 0 && call->done == request->count;
    return TT_OK;
}

static tt_status take_body(struct net_attempt *attempt, const char *data, size_t bytes)
{
    struct tt_net_answer *answer = attempt->call->answer;
    const struct tt_net_request *request = attempt->call->request;
    if (!is_success(answer->code)) {
        size_t room = ERROR_BODY_BYTES -
                      (answer->body.bytes < ERROR_BODY_BYTES ? answer->body.bytes : ERROR_BODY_BYTES);
        return tt_str_append(&answer->body, data, bytes < room ? bytes : room);
    }
    if (request->sink != NULL) return deliver(attempt, data, bytes);
    size_t most = request->answer_bytes != 0 ? request->answer_bytes : (size_t)TT_NET_ANSWER_BYTES;
    if (bytes > most - answer->body.bytes) {
        char text[32];
        return tt_fail(TT_ERR_DATA, "the answer has more than %s",
                       tt_format_bytes((double)most, text, sizeof text));
    }
    return tt_str_append(&answer->body, data, bytes);
}

static size_t on_body(char *data, size_t size, size_t count, void *context)
{
    struct net_attempt *attempt = context;
    if (attempt->complete) return 0;
    attempt->status = take_body(attempt, data, size * count);
    return attempt->status == TT_OK ? size * count : 0;
}

static size_t on_read(char *data, size_t size, size_t count, void *context)
{
    struct net_attempt *attempt = context;
    const struct tt_net_source *body = attempt->call->request->body;
    uint64_t left = body != NULL ? body->bytes - attempt->sent : 0;
    size_t bytes = left < size * count ? (size_t)left : size * count;
    if (bytes == 0) return 0;
    attempt->status = body->read(body->context, attempt->sent, data, bytes);
    if (attempt->status != TT_OK) return CURL_READ_ABORT;
    attempt->sent += bytes;
    return bytes;
}

/* Where a connection that was kept open turns out to be closed, libcurl sends the body again. */
static int on_seek(void *context, int64_t offset, int origin)
{
    struct net_attempt *attempt = context;
    const struct tt_net_source *body = attempt->call->request->body;
    if (origin != SEEK_SET || offset < 0 || body == NULL || (uint64_t)offset > body->bytes) return 1;
    attempt->sent = (uint64_t)offset;
    return 0;
}

static int on_progress(void *context, int64_t down_all, int64_t down, int64_t up_all, int64_t up)
{
    struct net_attempt *attempt = context;
    const struct tt_net_config *config = &attempt->call->net->config;
    (void)down_all, (void)down, (void)up_all, (void)up;
    if (config->cancelled == NULL || !config->cancelled(config->context)) return 0;
    attempt->status = tt_fail(TT_ERR_CANCELLED, "stopped on request");
    return 1;
}

static bool is_plain(const char *text)
{
    for (; *text != '\0'; text++)
        if ((unsigned char)*text < ' ' || *text == 0x7f) return false;
    return true;
}

tt_status tt_net_add_header(struct tt_net_headers *headers, const char *name, const char *value, bool secret)
{
    tt_status status = TT_OK;
    struct tt_str line = {0};
    if (secret && !headers->own_host) return TT_OK;
    if (name[0] == '\0' || strchr(name, ':') != NULL || !is_plain(name) || !is_plain(value))
        return tt_fail(TT_ERR_USAGE, "the value of the header '%s' has a line break or a control character",
                       name);
    /* A header without a value is written with ';' for libcurl, and sent with ':'. */
    TT_GO(tt_str_printf(&line, value[0] != '\0' ? "%s: %s" : "%s;%s", name, value));
    void *longer = headers->curl->slist_append(headers->list, line.data);
    if (longer == NULL) TT_GO(tt_fail(TT_ERR_MEMORY, "no memory for the headers of a request"));
    headers->list = longer;
    headers->has_type |= tt_ascii_same(name, "content-type");
out:
    tt_str_deinit(&line);
    return status;
}

static tt_status make_headers(const struct net_call *call, struct tt_net_headers *headers)
{
    const struct tt_net_request *request = call->request;
    headers->own_host = tt_url_same_origin(request->url, call->url.data);
    for (size_t i = 0; i < request->header_count; i++)
        TT_TRY(tt_net_add_header(headers, request->headers[i].name, request->headers[i].value,
                                 request->headers[i].secret));
    if (request->ranged || call->done > 0) {
        char value[64];
        uint64_t first = request->first + call->done;
        int used = snprintf(value, sizeof value, "bytes=%llu-", (unsigned long long)first);
        if (request->ranged && request->count > 0)
            snprintf(value + used, sizeof value - (size_t)used, "%llu",
                     (unsigned long long)(request->first + request->count - 1));
        TT_TRY(tt_net_add_header(headers, "Range", value, false));
    }
    if (request->sign != NULL && headers->own_host) TT_TRY(request->sign(request->sign_context, headers));
    if (!headers->has_type && (request->method == TT_NET_POST || request->method == TT_NET_PUT)) {
        /* libcurl's own is not sent. */
        void *longer = headers->curl->slist_append(headers->list, "Content-Type:");
        if (longer == NULL) return tt_fail(TT_ERR_MEMORY, "no memory for the headers of a request");
        headers->list = longer;
    }
    return TT_OK;
}

static void set_method(const struct curl *curl, void *easy, const struct tt_net_request *request)
{
    int64_t bytes = request->body != NULL ? (int64_t)request->body->bytes : 0;
    switch (request->method) {
    case TT_NET_GET:
        break;
    case TT_NET_HEAD:
        curl->easy_setopt(easy, CURL_NO_BODY, 1L);
        break;
    case TT_NET_DELETE:
        curl->easy_setopt(easy, CURL_CUSTOM_REQUEST, "DELETE");
        break;
    case TT_NET_PUT:
        curl->easy_setopt(easy, CURL_UPLOAD, 1L);
        curl->easy_setopt(easy, CURL_UPLOAD_BYTES, bytes);
        break;
    case TT_NET_POST:
        curl->easy_setopt(easy, CURL_POST, 1L);
        curl->easy_setopt(easy, CURL_POST_BYTES, bytes);
        break;
    }
}

static void set_callbacks(const struct curl *curl, void *easy, struct net_attempt *attempt)
{
    curl->easy_setopt(easy, CURL_ERROR_BUFFER, attempt->error);
    curl->easy_setopt(easy, CURL_HEADER_FUNCTION, on_header);
    curl->easy_setopt(easy, CURL_HEADER_DATA, attempt);
    curl->easy_setopt(easy, CURL_WRITE_FUNCTION, on_body);
    curl->easy_setopt(easy, CURL_WRITE_DATA, attempt);
    curl->easy_setopt(easy, CURL_READ_FUNCTION, on_read);
    curl->easy_setopt(easy, CURL_READ_DATA, attempt);
    curl->easy_setopt(easy, CURL_SEEK_FUNCTION, on_seek);
    curl->easy_setopt(easy, CURL_SEEK_DATA, attempt);
    curl->easy_setopt(easy, CURL_NO_PROGRESS, 0L);
    curl->easy_setopt(easy, CURL_PROGRESS_FUNCTION, on_progress);
    curl->easy_setopt(easy, CURL_PROGRESS_DATA, attempt);
}

static void set_connection(const struct tt_net *net, void *easy, const char *url)
{
    const struct curl *curl = &net->curl;
    curl->easy_setopt(easy, CURL_URL, url);
    curl->easy_setopt(easy, CURL_PROTOCOLS, (long)(CURL_PROTOCOL_HTTP | CURL_PROTOCOL_HTTPS));
    curl->easy_setopt(easy, CURL_VERIFY_PEER, 1L);
    curl->easy_setopt(easy, CURL_VERIFY_HOST, (long)CURL_VERIFY_NAMES);
    if (net->ca_file != NULL) curl->easy_setopt(easy, CURL_CA_FILE, net->ca_file);
    if (net->ca_path != NULL) curl->easy_setopt(easy, CURL_CA_PATH, net->ca_path);
    curl->easy_setopt(easy, CURL_USER_AGENT, "trimtab/" TT_VERSION);
    curl->easy_setopt(easy, CURL_NO_SIGNAL, 1L);
    curl->easy_setopt(easy, CURL_KEEP_ALIVE, 1L);
    curl->easy_setopt(easy, CURL_SUPPRESS_CONNECT_HEADERS, 1L);
    curl->easy_setopt(easy, CURL_BUFFER_BYTES, (long)BUFFER_BYTES);
    curl->easy_setopt(easy, CURL_CONNECT_TIMEOUT, (long)CONNECT_SECONDS);
    if (net->config.whole_seconds > 0)
        curl->easy_setopt(easy, CURL_WHOLE_MILLISECONDS, (long)(net->config.whole_seconds * 1000));
    curl->easy_setopt(easy, CURL_LOW_SPEED_LIMIT, 1L);
    curl->easy_setopt(easy, CURL_LOW_SPEED_TIME, (long)(net->config.silent_seconds + 0.999));
}

void net_attempt_run(struct net_attempt *attempt)
{
    struct net_call *call = attempt->call;
    const struct curl *curl = &call->net->curl;
    struct tt_net_headers headers = {.curl = curl};
    tt_str_clear(&call->answer->headers);
    if (call->request->sink == NULL || !call->begun) tt_str_clear(&call->answer->body);
    call->answer->code = 0;
    attempt->status = make_headers(call, &headers);
    if (attempt->status == TT_OK) {
        curl->easy_reset(attempt->easy);
        set_connection(call->net, attempt->easy, call->url.data);
        set_callbacks(curl, attempt->easy, attempt);
        set_method(curl, attempt->easy, call->request);
        curl->easy_setopt(attempt->easy, CURL_HEADERS, headers.list);
        attempt->result = curl->easy_perform(attempt->easy);
        if (attempt->complete && attempt->status == TT_OK) attempt->result = CURL_OK;
        /* The handle outlives the list and the attempt. */
        curl->easy_reset(attempt->easy);
    }
    if (headers.list != NULL) curl->slist_free_all(headers.list);
}
