/* The server of a build without libmicrohttpd. */
#include "http/server.h"

#ifndef TT_HAVE_MICROHTTPD

tt_status tt_http_open(const struct tt_http_config *config, struct tt_http_server **out)
{
    (void)config, (void)out;
    tt_fail(TT_ERR_UNSUPPORTED, "this build has no HTTP server");
    tt_hint("install libmicrohttpd-dev and build again (docs/dependencies.md)");
    return TT_ERR_UNSUPPORTED;
}

int tt_http_port(const struct tt_http_server *server)
{
    (void)server;
    return 0;
}

size_t tt_http_busy(struct tt_http_server *server)
{
    (void)server;
    return 0;
}

void tt_http_close(struct tt_http_server *server)
{
    (void)server;
}

const char *tt_http_method(const struct tt_http_exchange *exchange)
{
    (void)exchange;
    return "";
}

const char *tt_http_path(const struct tt_http_exchange *exchange)
{
    (void)exchange;
    return "";
}

struct tt_span tt_http_body(const struct tt_http_exchange *exchange)
{
    (void)exchange;
    return (struct tt_span){"", 0};
}

const char *tt_http_header(const struct tt_http_exchange *exchange, const char *name)
{
    (void)exchange, (void)name;
    return NULL;
}

void tt_http_answer(struct tt_http_exchange *exchange, int code, const char *type, const char *body,
                    size_t bytes)
{
    (void)exchange, (void)code, (void)type, (void)body, (void)bytes;
}

void tt_http_begin(struct tt_http_exchange *exchange, int code, const char *type)
{
    (void)exchange, (void)code, (void)type;
}

void tt_http_origin(const struct tt_http_exchange *exchange, unsigned char origin[TT_ORIGIN_BYTES])
{
    (void)exchange, (void)origin;
}

void tt_http_set_policy(struct tt_http_exchange *exchange, const char *policy)
{
    (void)exchange, (void)policy;
}

void tt_http_write(struct tt_http_exchange *exchange, const char *data, size_t bytes)
{
    (void)exchange, (void)data, (void)bytes;
}

void tt_http_end(struct tt_http_exchange *exchange)
{
    (void)exchange;
}

size_t tt_http_pending(struct tt_http_exchange *exchange)
{
    (void)exchange;
    return 0;
}

bool tt_http_is_gone(struct tt_http_exchange *exchange)
{
    (void)exchange;
    return true;
}

void tt_http_release(struct tt_http_exchange *exchange)
{
    (void)exchange;
}

#endif
