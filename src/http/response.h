/* The head of a response. Internal to http/. */
#ifndef TT_HTTP_RESPONSE_H
#define TT_HTTP_RESPONSE_H

#include <stdbool.h>

#include "base/str.h"

struct tt_http_head {
    int code;
    const char *type, *policy; /* policy: the Content-Security-Policy; NULL: none */
    bool sized;   /* false: the body comes in chunks, or to an old client until the end of the connection */
    size_t bytes; /* of the body, where it is sized */
    bool old, keeps; /* as in http/request.h */
};

/* Appends it, with the empty line. */
TT_MUST_USE tt_status tt_http_head_append(const struct tt_http_head *head, struct tt_str *out);

#endif
