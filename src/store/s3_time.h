/* Times in answers of S3 and STS. Sources: RFC 3339 ("2015-08-30T12:36:00Z"), RFC 9110 5.6.7. */
#ifndef TT_STORE_S3_TIME_H
#define TT_STORE_S3_TIME_H

#include <stdbool.h>

/* Seconds since 1970 of "2015-08-30T12:36:00Z", with or without a fraction; false: it is none. */
bool tt_s3_parse_time(const char *text, double *unix_seconds);
/* The same of "Sun, 30 Aug 2015 12:36:00 GMT". */
bool tt_s3_parse_date(const char *text, double *unix_seconds);

#endif
