#include "http/request.h"

#include <string.h>

#include "base/ascii.h"
#include "base/integer.h"

void tt_http_request_reset(struct tt_http_request *request)
{
    tt_http_request_deinit(request);
    *request = (struct tt_http_request){.body_most = request->body_most};
}

void tt_http_request_deinit(struct tt_http_request *request)
{
    tt_str_deinit(&request->head);
    tt_str_deinit(&request->body);
}

const char *tt_http_request_field(const struct tt_http_request *request, const char *name)
{
    for (size_t i = 0; i < request->fields_count; i++)
        if (tt_ascii_same(request->fields[i].name, name)) return request->fields[i].value;
    return NULL;
}

/* Returns false, for `return refuse(...)`. */
static bool refuse(struct tt_http_request *request, int code, const char *reason)
{
    tt_error_clear();
    request->step = TT_HTTP_REFUSED;
    request->code = code;
    request->reason = reason;
    request->keeps = false;
    return false;
}

/* ---- The head ---- */

static bool is_token(const char *text)
{
    static const char others[] = "!#$%&'*+-.^_`|~";
    for (const char *at = text; *at != '\0'; at++)
        if (!tt_ascii_is_letter(*at) && !tt_ascii_is_digit(*at) && strchr(others, *at) == NULL) return false;
    return text[0] != '\0';
}

/* No character that ends a line, or text, for another reader. */
static bool is_plain(const char *text)
{
    for (; *text != '\0'; text++)
        if (((unsigned char)*text < ' ' && *text != '\t') || *text == 0x7f) return false;
    return true;
}

static int digit_of(char c, int base)
{
    int value = 99;
    if (tt_ascii_is_digit(c))
        value = c - '0';
    else if (tt_ascii_is_letter(c))
        value = tt_ascii_upper(c) - 'A' + 10;
    return value < base ? value : -1;
}

/* A number without sign, and `most` digits at most, up to `end`. */
static bool read_number(const char *text, const char *end, int base, int most, uint64_t *out)
{
    uint64_t value = 0;
    if (text == end || end - text > most) return false;
    for (; text < end; text++) {
        int digit = digit_of(*text, base);
        if (digit < 0) return false;
        value = value * (uint64_t)base + (uint64_t)digit;
    }
    *out = value;
    return true;
}

/* The path of a target without its query, with %XX decoded. */
static bool set_path(struct tt_http_request *request, const char *target)
{
    size_t bytes = 0;
    for (; *target != '\0' && *target != '?'; target++) {
        char c = *target;
        if (c == '%') {
            int high = digit_of(target[1], 16), low = high < 0 ? -1 : digit_of(target[2], 16);
            if (low < 0) return refuse(request, 400, "a % of the path is not followed by two digits\n");
            c = (char)(high * 16 + low);
            target += 2;
        }
        if ((unsigned char)c < ' ' || c == 0x7f)
            return refuse(request, 400, "the path has a control character\n");
        if (bytes + 1 == sizeof request->path) return refuse(request, 414, "the path is too long\n");
        request->path[bytes++] = c;
    }
    request->path[bytes] = '\0';
    return true;
}

/* "/path?query", "http://authority/path?query", or "*". */
static bool set_target(struct tt_http_request *request, char *target)
{
    size_t scheme = tt_ascii_same_start(target, "http://", 7) && strlen(target) > 7    ? 7
                    : tt_ascii_same_start(target, "https://", 8) && strlen(target) > 8 ? 8
                                                                                       : 0;
    if (scheme == 0) {
        if (target[0] != '/' && strcmp(target, "*") != 0)
            return refuse(request, 400, "the target is no path\n");
        return set_path(request, target);
    }
    /* The authority moves to the begin of the target, which leaves room for its end. */
    size_t bytes = strcspn(target + scheme, "/?");
    const char *rest = target + scheme + bytes;
    if (!set_path(request, *rest == '/' ? rest : "/")) return false;
    memmove(target, target + scheme, bytes);
    target[bytes] = '\0';
    request->authority = target;
    return true;
}

static bool set_first_line(struct tt_http_request *request, char *line)
{
    char *target = strchr(line, ' '), *version = target != NULL ? strrchr(line, ' ') : NULL;
    if (target == NULL || version == target) return refuse(request, 400, "this is no request of HTTP\n");
    *target++ = '\0';
    *version++ = '\0';
    if (strchr(target, ' ') != NULL || target[0] == '\0' || !is_token(line))
        return refuse(request, 400, "this is no request of HTTP\n");
    if (strlen(line) >= sizeof request->method) return refuse(request, 501, "the method is unknown\n");
    if (strncmp(version, "HTTP/", 5) != 0 || !tt_ascii_is_digit(version[5]) || version[6] != '.' ||
        !tt_ascii_is_digit(version[7]) || version[8] != '\0')
        return refuse(request, 400, "this is no request of HTTP\n");
    if (version[5] != '1') return refuse(request, 505, "this server speaks HTTP/1.1\n");
    request->old = version[7] == '0';
    memcpy(request->method, line, strlen(line) + 1);
    return set_target(request, target);
}

static bool add_field(struct tt_http_request *request, char *line)
{
    char *colon = strchr(line, ':');
    if (colon == NULL) return refuse(request, 400, "a header has no colon\n");
    *colon = '\0';
    if (!is_token(line)) return refuse(request, 400, "the name of a header is wrong\n");
    char *value = colon + 1 + strspn(colon + 1, " \t"), *end = value + strlen(value);
    while (end > value && (end[-1] == ' ' || end[-1] == '\t')) end--;
    *end = '\0';
    if (request->fields_count == TT_HTTP_FIELDS_MAX)
        return refuse(request, 431, "there are too many headers\n");
    request->fields[request->fields_count++] = (struct tt_http_field){line, value};
    return true;
}

/* Whether a list, with commas between its members, has this word. */
static bool lists(const char *list, const char *word)
{
    size_t bytes = strlen(word);
    while (*list != '\0') {
        list += strspn(list, ", \t");
        size_t length = strcspn(list, ", \t");
        if (length == bytes && tt_ascii_same_start(list, word, bytes)) return true;
        list += length;
    }
    return false;
}

/* Whether one of the headers of this name does. */
static bool any_lists(const struct tt_http_request *request, const char *name, const char *word)
{
    for (size_t i = 0; i < request->fields_count; i++)
        if (tt_ascii_same(request->fields[i].name, name) && lists(request->fields[i].value, word))
            return true;
    return false;
}

static size_t count_fields(const struct tt_http_request *request, const char *name)
{
    size_t count = 0;
    for (size_t i = 0; i < request->fields_count; i++) count += tt_ascii_same(request->fields[i].name, name);
    return count;
}

/* How long the body is: two statements about it are refused even where they agree. */
static bool set_length(struct tt_http_request *request)
{
    size_t lengths = count_fields(request, "Content-Length");
    size_t codings = count_fields(request, "Transfer-Encoding");
    if (lengths + codings > 1) return refuse(request, 400, "the length of the body is given twice\n");
    if (codings == 1) {
        if (request->old) return refuse(request, 400, "HTTP/1.0 has no Transfer-Encoding\n");
        if (!tt_ascii_same(tt_http_request_field(request, "Transfer-Encoding"), "chunked"))
            return refuse(request, 501, "the Transfer-Encoding is unknown\n");
        request->step = TT_HTTP_AT_SIZE;
        return true;
    }
    if (lengths == 1) {
        const char *text = tt_http_request_field(request, "Content-Length");
        if (!read_number(text, text + strlen(text), 10, 18, &request->left))
            return refuse(request, 400, "the Content-Length is no number\n");
        request->too_large = request->left > request->body_most;
    }
    request->step = TT_HTTP_AT_BODY;
    return true;
}

static bool set_meaning(struct tt_http_request *request)
{
    const char *host = tt_http_request_field(request, "Host");
    size_t hosts = count_fields(request, "Host");
    if (hosts > 1 || (hosts == 0 && !request->old))
        return refuse(request, 400, "a request has one header Host\n");
    if (request->authority != NULL && host != NULL && !tt_ascii_same(request->authority, host))
        return refuse(request, 400, "the target and the header Host differ\n");
    if (!set_length(request)) return false;
    const char *expect = tt_http_request_field(request, "Expect");
    if (expect != NULL && !request->old) {
        if (!tt_ascii_same(expect, "100-continue"))
            return refuse(request, 417, "only 100-continue can be expected\n");
        request->expects = true;
    }
    request->keeps = request->old ? any_lists(request, "Connection", "keep-alive")
                                  : !any_lists(request, "Connection", "close");
    return true;
}

/* Reads the lines of a complete head. */
static bool parse_head(struct tt_http_request *request)
{
    char *line = request->head.data;
    if (memchr(line, '\0', request->head.bytes) != NULL)
        return refuse(request, 400, "the head has a control character\n");
    for (bool first = true;; first = false) {
        char *end = strchr(line, '\n'), *next = end + 1;
        if (end > line && end[-1] == '\r') end--;
        *end = '\0';
        if (*line == '\0') break;
        if (!is_plain(line)) return refuse(request, 400, "the head has a control character\n");
        if (first ? !set_first_line(request, line) : !add_field(request, line)) return false;
        line = next;
    }
    return set_meaning(request);
}

static size_t read_head(struct tt_http_request *request, const char *data, size_t bytes)
{
    size_t skipped = 0, taken;
    bool complete = false;
    /* Empty lines before a request: some clients end a body with one. */
    if (request->head.bytes == 0)
        while (skipped < bytes && (data[skipped] == '\r' || data[skipped] == '\n')) skipped++;
    for (taken = skipped; taken < bytes && !complete; taken++) {
        if (data[taken] != '\n') {
            request->line_bytes++;
            continue;
        }
        char last = taken > skipped
                        ? data[taken - 1]
                        : (request->head.bytes > 0 ? request->head.data[request->head.bytes - 1] : '\0');
        complete = request->line_bytes == 0 || (request->line_bytes == 1 && last == '\r');
        request->line_bytes = 0;
    }
    if (taken - skipped > TT_HTTP_HEAD_BYTES_MAX - request->head.bytes)
        refuse(request, 431, "the headers are too long\n");
    else if (tt_str_append(&request->head, data + skipped, taken - skipped) != TT_OK)
        refuse(request, 503, "no memory is left for this request\n");
    else if (complete)
        (void)parse_head(request);
    return taken;
}

/* ---- The body ---- */

static bool keep(struct tt_http_request *request, const char *data, size_t bytes)
{
    if (request->too_large || bytes > request->body_most - request->body.bytes) {
        request->too_large = true;
        tt_str_deinit(&request->body);
        return true;
    }
    if (tt_str_append(&request->body, data, bytes) == TT_OK) return true;
    return refuse(request, 503, "no memory is left for this request\n");
}

/* Takes bytes of the body, or of a chunk. */
static size_t read_body(struct tt_http_request *request, const char *data, size_t bytes,
                        enum tt_http_step next)
{
    size_t taken = request->left < bytes ? (size_t)request->left : bytes;
    if (taken > 0 && !keep(request, data, taken)) return taken;
    request->left -= taken;
    if (request->left == 0) request->step = next;
    return taken;
}

/* Takes bytes of a line between chunks, which ends with CR and LF. True: it is complete, and stands in `line` without
 * them. */
static bool read_line(struct tt_http_request *request, const char *data, size_t bytes, size_t *taken)
{
    for (*taken = 0; *taken < bytes;) {
        char c = data[(*taken)++];
        bool returned = request->line_bytes > 0 && request->line[request->line_bytes - 1] == '\r';
        if ((unsigned char)c < ' ' && c != '\r' && c != '\n' && c != '\t')
            return refuse(request, 400, "a line of the body has a control character\n");
        if (returned != (c == '\n'))
            return refuse(request, 400, "a line of the body ends without CR and LF\n");
        if (returned) {
            request->line[request->line_bytes - 1] = '\0';
            request->line_bytes = 0;
            return true;
        }
        if (request->line_bytes == sizeof request->line)
            return refuse(request, 400, "a line between chunks is too long\n");
        request->line[request->line_bytes++] = c;
    }
    return false;
}

static void set_size(struct tt_http_request *request)
{
    const char *end = request->line + strcspn(request->line, " \t;"), *behind = end + strspn(end, " \t");
    if ((*behind != '\0' && *behind != ';') || !read_number(request->line, end, 16, 15, &request->left))
        refuse(request, 400, "the size of a chunk is no number\n");
    else
        request->step = request->left > 0 ? TT_HTTP_AT_CHUNK : TT_HTTP_AT_TRAILER;
}

static size_t read_trailer(struct tt_http_request *request, const char *data, size_t bytes)
{
    size_t taken;
    for (taken = 0; taken < bytes && request->step == TT_HTTP_AT_TRAILER; taken++) {
        char last = request->line[0], c = data[taken];
        if (++request->trailer_bytes > TT_HTTP_TRAILER_BYTES_MAX)
            refuse(request, 431, "the trailer is too long\n");
        else if (c != '\n')
            request->line_bytes++;
        else if (last != '\r')
            refuse(request, 400, "a line of the body ends without CR and LF\n");
        else if (request->line_bytes == 1)
            request->step = TT_HTTP_WHOLE;
        else
            request->line_bytes = 0;
        request->line[0] = c;
    }
    return taken;
}

static size_t read_part(struct tt_http_request *request, const char *data, size_t bytes)
{
    size_t taken = 0;
    switch (request->step) {
    case TT_HTTP_AT_HEAD:
        return read_head(request, data, bytes);
    case TT_HTTP_AT_BODY:
        return read_body(request, data, bytes, TT_HTTP_WHOLE);
    case TT_HTTP_AT_CHUNK:
        return read_body(request, data, bytes, TT_HTTP_AT_CHUNK_END);
    case TT_HTTP_AT_SIZE:
        if (read_line(request, data, bytes, &taken)) set_size(request);
        return taken;
    case TT_HTTP_AT_CHUNK_END:
        if (!read_line(request, data, bytes, &taken)) return taken;
        if (request->line[0] != '\0')
            refuse(request, 400, "a chunk is longer than its size\n");
        else
            request->step = TT_HTTP_AT_SIZE;
        return taken;
    case TT_HTTP_AT_TRAILER:
        return read_trailer(request, data, bytes);
    case TT_HTTP_WHOLE:
    case TT_HTTP_REFUSED:
        break;
    }
    return 0;
}

size_t tt_http_request_read(struct tt_http_request *request, const char *data, size_t bytes)
{
    size_t taken = 0;
    bool head = request->step == TT_HTTP_AT_HEAD;
    while (taken < bytes && request->step < TT_HTTP_WHOLE) {
        taken += read_part(request, data + taken, bytes - taken);
        if (head && request->step != TT_HTTP_AT_HEAD) break;
    }
    if (request->step == TT_HTTP_AT_BODY && request->left == 0) request->step = TT_HTTP_WHOLE;
    return taken;
}
