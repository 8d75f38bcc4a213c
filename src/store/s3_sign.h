/* Amazon's Signature Version 4, which S3, STS and the servers that speak as S3 check.
 *
 * Source of the format: AWS, "Authenticating Requests (AWS Signature Version 4)" of the S3 API reference. The signature
 * is HMAC-SHA256, with a key made of the secret, the day, the region and the service, over a text of the time and the
 * SHA-256 of the request's canonical form. */
#ifndef TT_STORE_S3_SIGN_H
#define TT_STORE_S3_SIGN_H

#include <stddef.h>

#include "base/error.h"
#include "base/str.h"

enum { TT_SHA256_TEXT_BYTES = 65, TT_S3_TIME_BYTES = 17 };

/* The SHA-256 of the data, as hexadecimal text. */
void tt_sha256_text(const void *data, size_t bytes, char text[TT_SHA256_TEXT_BYTES]);
/* "20130524T000000Z" of seconds since 1970. */
void tt_s3_time(double unix_seconds, char text[TT_S3_TIME_BYTES]);

struct tt_s3_header {
    const char *name, *value; /* the name in lower case */
};

struct tt_s3_signing {
    const char *access, *secret, *region, *service; /* service: "s3", "sts" */
    const char *time;                               /* tt_s3_time */
    const char *method;                             /* "GET" */
    const char *path;                               /* encoded: "/a%20b" */
    const char *query;                              /* encoded: "b=&a=1", in any order; "": none */
    const struct tt_s3_header *headers; /* that are signed, in order of their names; host is one */
    size_t header_count;
    const char *content; /* the SHA-256 of the body, as text */
};
/* Appends the value of the header Authorization. */
TT_MUST_USE tt_status tt_s3_sign(const struct tt_s3_signing *signing, struct tt_str *authorization);

#endif
