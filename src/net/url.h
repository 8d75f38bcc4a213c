/* URLs as text. Source: RFC 3986. */
#ifndef TT_NET_URL_H
#define TT_NET_URL_H

#include <stdbool.h>

#include "base/error.h"
#include "base/str.h"

/* Appends `text` with all bytes but letters, digits and "-._~" as %XX (section 2.3), and with `slashes` also '/' as it
 * is. The same is the encoding of Amazon's signature. */
TT_MUST_USE tt_status tt_url_append_escaped(struct tt_str *url, const char *text, bool slashes);

/* The parts of scheme://host[:port]/...; spans of the text, which is lent. */
struct tt_url_origin {
    struct tt_span scheme, host; /* the host of [::1] has its brackets */
    int port;                    /* 80 and 443 where the URL has none */
};
/* False: no URL of http or https, a port out of range, or a user before the host. */
bool tt_url_origin(const char *url, struct tt_url_origin *origin);
/* Whether scheme, host and port are the same; host and scheme without case. False where one is no such URL. */
bool tt_url_same_origin(const char *a, const char *b);

#endif
