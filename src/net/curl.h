/* The part of libcurl's interface that the client uses, by its numbers, so that a build needs no header of it. They are
 * the same in all versions 7.66 and later: libcurl keeps its ABI. Sources: curl/curl.h, curl/urlapi.h, curl's
 * docs/libcurl/ABI.md. For this folder alone. */
#ifndef TT_NET_CURL_H
#define TT_NET_CURL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

enum { CURL_ERROR_BYTES = 256 };

/* CURLoption: the type in tens of thousands (0 long, 1 pointer, 2 function, 3 curl_off_t). */
enum curl_option {
    CURL_WRITE_DATA = 10001,
    CURL_URL = 10002,
    CURL_READ_DATA = 10009,
    CURL_ERROR_BUFFER = 10010,
    CURL_USER_AGENT = 10018,
    CURL_HEADERS = 10023,
    CURL_HEADER_DATA = 10029,
    CURL_CUSTOM_REQUEST = 10036,
    CURL_PROGRESS_DATA = 10057,
    CURL_CA_FILE = 10065,
    CURL_CA_PATH = 10097,
    CURL_SEEK_DATA = 10168,
    CURL_WRITE_FUNCTION = 20011,
    CURL_READ_FUNCTION = 20012,
    CURL_HEADER_FUNCTION = 20079,
    CURL_SEEK_FUNCTION = 20167,
    CURL_PROGRESS_FUNCTION = 20219,
    CURL_UPLOAD_BYTES = 30115,
    CURL_POST_BYTES = 30120,
    CURL_LOW_SPEED_LIMIT = 19,
    CURL_LOW_SPEED_TIME = 20,
    CURL_NO_PROGRESS = 43,
    CURL_NO_BODY = 44,
    CURL_UPLOAD = 46,
    CURL_POST = 47,
    CURL_VERIFY_PEER = 64,
    CURL_CONNECT_TIMEOUT = 78,
    CURL_VERIFY_HOST = 81,
    CURL_WHOLE_MILLISECONDS = 155, /* CURLOPT_TIMEOUT_MS */
    CURL_BUFFER_BYTES = 98,
    CURL_NO_SIGNAL = 99,
    CURL_PROTOCOLS = 181,
    CURL_KEEP_ALIVE = 213,
    CURL_SUPPRESS_CONNECT_HEADERS = 265,
};
enum { CURL_PROTOCOL_HTTP = 1, CURL_PROTOCOL_HTTPS = 2, CURL_VERIFY_NAMES = 2, CURL_READ_ABORT = 0x10000000 };

/* CURLcode, those that are told apart. */
enum curl_code {
    CURL_OK = 0,
    CURL_UNSUPPORTED_PROTOCOL = 1,
    CURL_MALFORMED_URL = 3,
    CURL_NO_PROXY_ADDRESS = 5,
    CURL_NO_ADDRESS = 6,
    CURL_NO_CONNECTION = 7,
    CURL_OUT_OF_MEMORY = 27,
    CURL_CERTIFICATE_REFUSED = 60,
    CURL_BAD_CA_FILE = 77,
    CURL_ISSUER_REFUSED = 83,
};

enum { CURL_URL_WHOLE = 0, CURL_PART_FRAGMENT = 9 }; /* CURLUPart */

struct curl {
    void *library;
    int (*global_init)(long flags);
    void *(*easy_init)(void);
    int (*easy_setopt)(void *easy, int option, ...);
    int (*easy_perform)(void *easy);
    void (*easy_reset)(void *easy);
    void (*easy_cleanup)(void *easy);
    const char *(*easy_strerror)(int code);
    void *(*slist_append)(void *list, const char *text);
    void (*slist_free_all)(void *list);
    void *(*url)(void);
    int (*url_set)(void *url, int part, const char *text, unsigned flags);
    int (*url_get)(void *url, int part, char **text, unsigned flags);
    void (*url_cleanup)(void *url);
    void (*free)(void *text);
};

/* Opens the library, which stays open, and fills the table. TT_ERR_UNSUPPORTED; `what`: what needs it. */
TT_MUST_USE tt_status curl_open(const char *what, struct curl *curl);

#endif
