#include "store/s3_sign.h"

#include <sodium.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/number.h"
#include "net/sha256.h"

enum { QUERY_PARTS_MAX = 32 };

void tt_sha256_text(const void *data, size_t bytes, char text[TT_SHA256_TEXT_BYTES])
{
    struct tt_sha256 state;
    unsigned char sum[TT_SHA256_BYTES];
    tt_sha256_begin(&state);
    tt_sha256_add(&state, data, bytes);
    tt_sha256_end(&state, sum);
    sodium_bin2hex(text, TT_SHA256_TEXT_BYTES, sum, sizeof sum);
}

void tt_s3_time(double unix_seconds, char text[TT_S3_TIME_BYTES])
{
    struct tm parts = {0};
    time_t whole = (time_t)unix_seconds;
    (void)gmtime_r(&whole, &parts);
    (void)tt_snprintf(text, TT_S3_TIME_BYTES, "%04d%02d%02dT%02d%02d%02dZ", (parts.tm_year + 1900) % 10000,
                      (parts.tm_mon + 1) % 100, parts.tm_mday % 100, parts.tm_hour % 100, parts.tm_min % 100,
                      parts.tm_sec % 100);
}

/* HMAC-SHA256; `out` may be `key`. */
static void keyed_sum(const void *key, size_t key_bytes, const void *data, size_t bytes,
                      unsigned char out[crypto_auth_hmacsha256_BYTES])
{
    crypto_auth_hmacsha256_state state;
    crypto_auth_hmacsha256_init(&state, key, key_bytes);
    crypto_auth_hmacsha256_update(&state, data, bytes);
    crypto_auth_hmacsha256_final(&state, out);
    sodium_memzero(&state, sizeof state);
}

static int compare_parts(const void *a, const void *b)
{
    const struct tt_span *x = a, *y = b;
    size_t least = x->bytes < y->bytes ? x->bytes : y->bytes;
    int order = memcmp(x->data, y->data, least);
    return order != 0 ? order : (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

/* The parts of the query by the bytes of their names; equal names by their values. */
static tt_status add_query(struct tt_str *request, const char *query)
{
    struct tt_span parts[QUERY_PARTS_MAX];
    size_t count = 0;
    for (const char *at = query; *at != '\0'; at += *at == '&') {
        size_t bytes = strcspn(at, "&");
        if (count == QUERY_PARTS_MAX) return tt_fail(TT_ERR_INTERNAL, "a query of too many parts");
        parts[count++] = (struct tt_span){at, bytes};
        at += bytes;
    }
    qsort(parts, count, sizeof *parts, compare_parts);
    for (size_t i = 0; i < count; i++) {
        if (i > 0) TT_TRY(tt_str_append_char(request, '&'));
        TT_TRY(tt_str_append(request, parts[i].data, parts[i].bytes));
    }
    return tt_str_append_char(request, '\n');
}

/* Appends a value without blanks at its ends, and with one for each run of blanks inside. */
static tt_status add_value(struct tt_str *request, const char *value)
{
    value += strspn(value, " \t");
    while (*value != '\0') {
        size_t bytes = strcspn(value, " \t"), blanks = strspn(value + bytes, " \t");
        TT_TRY(tt_str_append(request, value, bytes));
        value += bytes + blanks;
        if (blanks > 0 && *value != '\0') TT_TRY(tt_str_append_char(request, ' '));
    }
    return TT_OK;
}

static tt_status add_names(struct tt_str *text, const struct tt_s3_signing *signing)
{
    for (size_t i = 0; i < signing->header_count; i++)
        TT_TRY(tt_str_printf(text, "%s%s", i > 0 ? ";" : "", signing->headers[i].name));
    return TT_OK;
}

static tt_status add_request(struct tt_str *request, const struct tt_s3_signing *signing)
{
    TT_TRY(tt_str_printf(request, "%s\n%s\n", signing->method, signing->path));
    TT_TRY(add_query(request, signing->query));
    for (size_t i = 0; i < signing->header_count; i++) {
        TT_TRY(tt_str_printf(request, "%s:", signing->headers[i].name));
        TT_TRY(add_value(request, signing->headers[i].value));
        TT_TRY(tt_str_append_char(request, '\n'));
    }
    TT_TRY(tt_str_append_char(request, '\n'));
    TT_TRY(add_names(request, signing));
    return tt_str_printf(request, "\n%s", signing->content);
}

static tt_status make_key(const struct tt_s3_signing *signing,
                          unsigned char key[crypto_auth_hmacsha256_BYTES])
{
    struct tt_str start = {0};
    tt_status status = tt_str_printf(&start, "AWS4%s", signing->secret);
    if (status == TT_OK) {
        keyed_sum(start.data, start.bytes, signing->time, 8, key);
        keyed_sum(key, 32, signing->region, strlen(signing->region), key);
        keyed_sum(key, 32, signing->service, strlen(signing->service), key);
        keyed_sum(key, 32, "aws4_request", 12, key);
        sodium_memzero(start.data, start.bytes);
    }
    tt_str_deinit(&start);
    return status;
}

tt_status tt_s3_sign(const struct tt_s3_signing *signing, struct tt_str *authorization)
{
    tt_status status = TT_OK;
    struct tt_str request = {0}, text = {0}, scope = {0};
    unsigned char key[crypto_auth_hmacsha256_BYTES];
    char sum[TT_SHA256_TEXT_BYTES], signature[TT_SHA256_TEXT_BYTES];
    TT_GO(make_key(signing, key));
    TT_GO(tt_str_printf(&scope, "%.8s/%s/%s/aws4_request", signing->time, signing->region, signing->service));
    TT_GO(add_request(&request, signing));
    tt_sha256_text(request.data, request.bytes, sum);
    TT_GO(tt_str_printf(&text, "AWS4-HMAC-SHA256\n%s\n%s\n%s", signing->time, tt_str_text(&scope), sum));
    keyed_sum(key, sizeof key, text.data, text.bytes, key);
    sodium_bin2hex(signature, sizeof signature, key, sizeof key);
    TT_GO(tt_str_printf(authorization, "AWS4-HMAC-SHA256 Credential=%s/%s, SignedHeaders=", signing->access,
                        tt_str_text(&scope)));
    TT_GO(add_names(authorization, signing));
    TT_GO(tt_str_printf(authorization, ", Signature=%s", signature));
out:
    sodium_memzero(key, sizeof key);
    tt_str_deinit(&scope);
    tt_str_deinit(&text);
    tt_str_deinit(&request);
    return status;
}
