#include "net/url.h"

#include <string.h>

#include "base/ascii.h"

tt_status tt_url_append_escaped(struct tt_str *url, const char *text, bool slashes)
{
    static const char digits[] = "0123456789ABCDEF";
    for (; *text != '\0'; text++) {
        unsigned char c = (unsigned char)*text;
        if (tt_ascii_is_letter(*text) || tt_ascii_is_digit(*text) || strchr("-._~", c) != NULL ||
            (slashes && c == '/')) {
            TT_TRY(tt_str_append_char(url, *text));
            continue;
        }
        char escaped[3] = {'%', digits[c >> 4], digits[c & 15]};
        TT_TRY(tt_str_append(url, escaped, sizeof escaped));
    }
    return TT_OK;
}

bool tt_url_origin(const char *url, struct tt_url_origin *origin)
{
    struct tt_url_origin found = {.scheme = {url, 0}};
    if (tt_ascii_same_start(url, "https://", 8)) {
        found.scheme.bytes = 5;
        found.port = 443;
    } else if (tt_ascii_same_start(url, "http://", 7)) {
        found.scheme.bytes = 4;
        found.port = 80;
    } else {
        return false;
    }
    const char *host = url + found.scheme.bytes + 3, *end = host + strcspn(host, "/?#");
    if (memchr(host, '@', (size_t)(end - host)) != NULL) return false;
    const char *closed = *host == '[' ? memchr(host, ']', (size_t)(end - host)) : host;
    if (closed == NULL) return false;
    const char *colon = memchr(closed, ':', (size_t)(end - closed));
    found.host = (struct tt_span){host, (size_t)((colon != NULL ? colon : end) - host)};
    if (found.host.bytes == 0) return false;
    if (colon != NULL && colon + 1 < end) {
        found.port = 0;
        for (const char *digit = colon + 1; digit < end; digit++) {
            if (!tt_ascii_is_digit(*digit)) return false;
            found.port = found.port * 10 + (*digit - '0');
            if (found.port > 65535) return false;
        }
    }
    *origin = found;
    return true;
}

static bool same_span(struct tt_span a, struct tt_span b)
{
    return a.bytes == b.bytes && tt_ascii_same_start(a.data, b.data, a.bytes);
}

bool tt_url_same_origin(const char *a, const char *b)
{
    struct tt_url_origin left, right;
    return tt_url_origin(a, &left) && tt_url_origin(b, &right) && same_span(left.scheme, right.scheme) &&
           same_span(left.host, right.host) && left.port == right.port;
}
