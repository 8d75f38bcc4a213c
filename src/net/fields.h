/* Values of headers of strangers, as numbers. Sources: RFC 9110 (14.4 Content-Range, 10.2.3 Retry-After, 5.6.7 dates),
 * IETF draft ratelimit-headers (RateLimit with t, the seconds until its window ends: the Hugging Face hub sends it). */
#ifndef TT_NET_FIELDS_H
#define TT_NET_FIELDS_H

#include <stdbool.h>
#include <stdint.h>

/* "bytes FIRST-LAST/TOTAL" or with "*" as TOTAL, which is then UINT64_MAX. */
struct tt_content_range {
    uint64_t first, last, total;
};
bool tt_parse_content_range(const char *value, struct tt_content_range *range);
/* Seconds, or a date like "Sun, 06 Nov 1994 08:49:37 GMT", as seconds from `now` (since 1970); at least 0. */
bool tt_parse_retry_after(const char *value, double now, double *seconds);
/* t of "limit"; r=0; t=55. */
bool tt_parse_rate_limit(const char *value, double *seconds);

#endif
