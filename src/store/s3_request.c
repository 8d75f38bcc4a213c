/* A request to S3: its address, its signature, and what its refusals mean. */
#include <sodium.h>
#include <string.h>

#include "base/alloc.h"
#include "base/ascii.h"
#include "base/clock.h"
#include "base/number.h"
#include "net/url.h"
#include "store/s3_request_impl.h"
#include "store/s3_time.h"
#include "store/xml.h"

enum { RENEW_SECONDS = 300 };

/* ---- The address ---- */

/* "127.0.0.1", "[::1]" */
static bool is_numeric(struct tt_span host)
{
    for (size_t i = 0; i < host.bytes; i++)
        if (!tt_ascii_is_digit(host.data[i]) && host.data[i] != '.') return host.data[0] == '[';
    return true;
}

/* A bucket with a dot matches no certificate of *.s3.amazonaws.com, so it stands in the path. */
static bool has_own_host(const struct tt_s3 *s3, const char *bucket)
{
    struct tt_url_origin origin;
    if (s3->style == TT_S3_PATH || strchr(bucket, '.') != NULL) return false;
    if (s3->endpoint.bytes == 0) return true;
    return s3->style == TT_S3_VIRTUAL && tt_url_origin(tt_str_text(&s3->endpoint), &origin) &&
           !is_numeric(origin.host);
}

static tt_status make_path(const struct tt_s3 *s3, const struct s3_request *request, struct tt_str *path)
{
    struct tt_str key = {0};
    tt_status status = TT_OK;
    if (!has_own_host(s3, request->bucket)) TT_GO(tt_str_printf(path, "/%s", request->bucket));
    if (path->bytes == 0 || request->key.bytes > 0) TT_GO(tt_str_append_char(path, '/'));
    if (request->key.bytes > 0) {
        TT_GO(tt_str_append(&key, request->key.data, request->key.bytes));
        TT_GO(tt_url_append_escaped(path, tt_str_text(&key), true));
    }
out:
    tt_str_deinit(&key);
    return status;
}

static tt_status make_url(const struct tt_s3 *s3, const struct s3_request *request, const char *path,
                          struct tt_str *url)
{
    const char *endpoint = tt_str_text(&s3->endpoint), *region = tt_str_text(&s3->region);
    const bool own = has_own_host(s3, request->bucket);
    const char *host = strstr(endpoint, "://");
    host = host != NULL ? host + 3 : endpoint;
    TT_TRY(s3->endpoint.bytes > 0 ? tt_str_append(url, endpoint, (size_t)(host - endpoint))
                                  : tt_str_append_text(url, "https://"));
    if (own) TT_TRY(tt_str_printf(url, "%s.", request->bucket));
    TT_TRY(s3->endpoint.bytes > 0 ? tt_str_append_text(url, host)
                                  : tt_str_printf(url, "s3.%s.amazonaws.com%s", region,
                                                  tt_starts_with(region, "cn-") ? ".cn" : ""));
    TT_TRY(tt_str_append_text(url, path));
    return request->query != NULL ? tt_str_printf(url, "?%s", request->query) : TT_OK;
}

/* The header Host that libcurl makes of the address: with the port if it is not the scheme's. */
static tt_status host_of(const char *url, struct tt_str *host)
{
    struct tt_url_origin origin;
    if (!tt_url_origin(url, &origin)) {
        tt_status status =
            tt_fail(TT_ERR_USAGE, "the endpoint of s3:// paths is no address of http or https");
        tt_hint("AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL has it: https://HOST[:PORT]");
        return status;
    }
    bool plain = origin.port == (tt_span_equals(origin.scheme, "https") ? 443 : 80);
    TT_TRY(tt_str_append(host, origin.host.data, origin.host.bytes));
    return plain ? TT_OK : tt_str_printf(host, ":%d", origin.port);
}

/* ---- The signature ---- */

struct signing {
    struct tt_s3 *s3;
    const char *method, *path, *query, *host;
    char content[TT_SHA256_TEXT_BYTES];
};

/* The keys, new ones where these end soon. */
static tt_status lend_keys(struct tt_s3 *s3, struct tt_s3_keys *keys)
{
    tt_status status = TT_OK;
    pthread_mutex_lock(&s3->mutex);
    bool ends = s3->keys.expires > 0 &&
                s3->keys.expires - tt_clock_unix_seconds() - atomic_load(&s3->skew) < RENEW_SECONDS;
    if (s3->keys.access.bytes == 0 || ends) {
        struct tt_s3_keys found = {0};
        status = tt_s3_keys_find(s3->net, tt_str_text(&s3->region), &found);
        if (status == TT_OK) {
            tt_s3_keys_deinit(&s3->keys);
            s3->keys = found;
        } else {
            tt_s3_keys_deinit(&found);
        }
    }
    if (status == TT_OK) status = tt_s3_keys_copy(&s3->keys, keys);
    pthread_mutex_unlock(&s3->mutex);
    return status;
}

static tt_status sign(void *context, struct tt_net_headers *headers)
{
    const struct signing *signing = context;
    struct tt_s3_keys keys = {0};
    struct tt_str authorization = {0};
    char time[TT_S3_TIME_BYTES];
    tt_status status = TT_OK;
    TT_GO(lend_keys(signing->s3, &keys));
    tt_s3_time(tt_clock_unix_seconds() + atomic_load(&signing->s3->skew), time);
    const struct tt_s3_header signed_headers[] = {{"host", signing->host},
                                                  {"x-amz-content-sha256", signing->content},
                                                  {"x-amz-date", time},
                                                  {"x-amz-security-token", tt_str_text(&keys.token)}};
    TT_GO(tt_s3_sign(&(struct tt_s3_signing){.access = tt_str_text(&keys.access),
                                             .secret = tt_str_text(&keys.secret),
                                             .region = tt_str_text(&signing->s3->region),
                                             .service = "s3",
                                             .time = time,
                                             .method = signing->method,
                                             .path = signing->path,
                                             .query = signing->query,
                                             .headers = signed_headers,
                                             .header_count = keys.token.bytes > 0 ? 4 : 3,
                                             .content = signing->content},
                     &authorization));
    TT_GO(tt_net_add_header(headers, "Authorization", tt_str_text(&authorization), true));
    TT_GO(tt_net_add_header(headers, "x-amz-content-sha256", signing->content, false));
    TT_GO(tt_net_add_header(headers, "x-amz-date", time, false));
    if (keys.token.bytes > 0)
        TT_GO(tt_net_add_header(headers, "x-amz-security-token", tt_str_text(&keys.token), true));
out:
    if (authorization.data != NULL) sodium_memzero(authorization.data, authorization.capacity);
    tt_str_deinit(&authorization);
    tt_s3_keys_deinit(&keys);
    return status;
}

/* ---- Answers ---- */

struct wanted {
    const char *path;
    char *text;
    size_t bytes;
};

static tt_status take_element(void *context, const char *path, const char *text)
{
    const struct wanted *wanted = context;
    if (strcmp(path, wanted->path) == 0 && wanted->text[0] == '\0')
        (void)tt_snprintf(wanted->text, wanted->bytes, "%s", text);
    return TT_OK;
}

void s3_element(const struct tt_net_answer *answer, const char *path, char *text, size_t bytes)
{
    struct tt_error error;
    struct wanted wanted = {path, text, bytes};
    text[0] = '\0';
    tt_error_copy(&error);
    if (tt_xml_visit(tt_str_text(&answer->body), answer->body.bytes, "an answer", take_element, &wanted) !=
        TT_OK)
        text[0] = '\0';
    (void)tt_error_restore(&error);
}

static void hint_code(const struct tt_s3 *s3, const char *code, const struct tt_net_answer *answer)
{
    char region[64];
    if (tt_net_header(&answer->headers, "x-amz-bucket-region", region, sizeof region) &&
        strcmp(region, tt_str_text(&s3->region)) != 0)
        tt_hint("the bucket lies in region %s: set AWS_REGION", region);
    else if (strcmp(code, "NoSuchBucket") == 0)
        tt_hint("make the bucket first: trimtab makes none");
    else if (strcmp(code, "ExpiredToken") == 0 || strcmp(code, "InvalidToken") == 0)
        tt_hint("the session's token has expired: renew the credentials, then start again");
    else if (strcmp(code, "RequestTimeTooSkewed") == 0)
        tt_hint("set this machine's clock: the server refuses its time");
    else if (strcmp(code, "SignatureDoesNotMatch") == 0 || strcmp(code, "InvalidAccessKeyId") == 0)
        tt_hint(
            "the credentials are not those of this server: docs/object-storage.md says where they come from");
    else if (answer->code == 403)
        tt_hint(
            "the credentials must allow s3:GetObject, s3:PutObject, s3:DeleteObject and s3:ListBucket here");
}

tt_status s3_fail(const struct tt_s3 *s3, const struct s3_request *request,
                  const struct tt_net_answer *answer)
{
    char code[64], message[200];
    s3_element(answer, "Error/Code", code, sizeof code);
    s3_element(answer, "Error/Message", message, sizeof message);
    bool later = answer->code == 408 || answer->code == 429 || answer->code >= 500;
    tt_status status =
        tt_fail(later ? TT_ERR_IO : TT_ERR_DATA, "the server refused %s: %d%s%s%s%s", request->what,
                answer->code, code[0] != '\0' ? " " : "", code, message[0] != '\0' ? ", " : "", message);
    hint_code(s3, code, answer);
    return status;
}

/* Whether the refusal is one of an old token or a wrong clock, which is mended. */
static bool mend(struct tt_s3 *s3, const struct tt_net_answer *answer)
{
    char code[64], date[64];
    double now;
    if (answer->code != 403 && answer->code != 400) return false;
    s3_element(answer, "Error/Code", code, sizeof code);
    /* An answer to HEAD has no text. */
    bool skewed = strcmp(code, "RequestTimeTooSkewed") == 0, unknown = code[0] == '\0';
    if ((skewed || unknown) && tt_net_header(&answer->headers, "date", date, sizeof date) &&
        tt_s3_parse_date(date, &now)) {
        double skew = now - tt_clock_unix_seconds();
        double change = skew - atomic_load(&s3->skew);
        if (change > 60 || change < -60) {
            atomic_store(&s3->skew, skew);
            return true;
        }
        if (skewed) return false;
    }
    if (strcmp(code, "ExpiredToken") != 0 && strcmp(code, "InvalidToken") != 0 && !unknown) return false;
    pthread_mutex_lock(&s3->mutex);
    bool renews = s3->keys.expires > 0;
    tt_s3_keys_deinit(&s3->keys);
    pthread_mutex_unlock(&s3->mutex);
    return renews;
}

static tt_status read_body(void *context, uint64_t offset, void *data, size_t bytes)
{
    memcpy(data, (const char *)context + offset, bytes);
    return TT_OK;
}

static const char *name_of(enum tt_net_method method)
{
    static const char *const names[] = {"GET", "HEAD", "PUT", "POST", "DELETE"};
    return names[method];
}

tt_status s3_send(struct tt_s3 *s3, const struct s3_request *request, struct tt_net_answer *answer)
{
    tt_status status = TT_OK;
    struct tt_str path = {0}, url = {0}, host = {0};
    TT_GO(make_path(s3, request, &path));
    TT_GO(make_url(s3, request, tt_str_text(&path), &url));
    TT_GO(host_of(tt_str_text(&url), &host));
    struct signing signing = {.s3 = s3,
                              .method = name_of(request->method),
                              .path = tt_str_text(&path),
                              .query = request->query != NULL ? request->query : "",
                              .host = tt_str_text(&host)};
    tt_sha256_text(request->body, request->body_bytes, signing.content);
    const struct tt_net_source body = {
        .bytes = request->body_bytes, .read = read_body, .context = (void *)(uintptr_t)request->body};
    const struct tt_net_request net = {.method = request->method,
                                       .url = tt_str_text(&url),
                                       .what = request->what,
                                       .headers = request->headers,
                                       .header_count = request->header_count,
                                       .sign = sign,
                                       .sign_context = &signing,
                                       .redirects = TT_NET_STAY,
                                       .body = request->body != NULL ? &body : NULL,
                                       .ranged = request->ranged,
                                       .first = request->first,
                                       .count = request->count,
                                       .sink = request->sink,
                                       .answer_bytes = request->answer_bytes,
                                       .repeatable = true};
    for (int attempt = 0;; attempt++) {
        TT_GO(tt_net_call(s3->net, &net, answer));
        if (attempt > 0 || !mend(s3, answer)) break;
    }
out:
    tt_str_deinit(&path);
    tt_str_deinit(&url);
    tt_str_deinit(&host);
    return status;
}
