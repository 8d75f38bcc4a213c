/* The OpenAI-compatible server: /v1/chat/completions, /v1/completions, /v1/models and /healthz, and a page to talk to
 * it. The thread of the HTTP server parses requests and queues them; one thread of its own renders, tokenizes and
 * generates, all running requests in one batch. */
#ifndef TT_SERVE_SERVER_H
#define TT_SERVE_SERVER_H

#include "http/server.h"
#include "serve/chat_page.h"
#include "serve/keys.h"
#include "serve/serve_metrics.h"
#include "serve/talk.h"

struct tt_serve_config {
    struct tt_talk *talk; /* lent; used by the thread of the server only until tt_serve_close */
    struct tt_sampling_options sampling; /* of requests that give none */
    int64_t max_new_tokens;              /* of requests that give none */
    uint64_t seed;
    bool ignore_end;
    const char *model_name;           /* lent: the base model */
    const char *const *adapter_names; /* lent, as the list: of all adapters, in the order of the inputs */
    size_t adapter_count;
    bool takes_adapters;                /* at run time, too: places were reserved for them */
    struct tt_serve_adapters *adapters; /* the server's own */
    int64_t waiting;                    /* requests that wait for a slot; further ones get 429 */
    int64_t per_client; /* answers of one client, running or waiting; further ones get 429; 0: any number */
    const struct tt_keys *keys;       /* lent; NULL: everybody may ask */
    const struct tt_chat_page *page;  /* lent; NULL: none */
    struct tt_serve_metrics *metrics; /* the server's own */
    struct tt_http_config http;       /* without handler */
};

/* Whether a server can listen at the address, which it then leaves. Errors as of tt_http_open. */
TT_MUST_USE tt_status tt_serve_check(const struct tt_http_config *http);

struct tt_server;
TT_MUST_USE tt_status tt_serve_open(const struct tt_serve_config *config, struct tt_server **out);
int tt_serve_port(const struct tt_server *server);
/* The engine has failed: close, which returns its error. */
bool tt_serve_has_failed(const struct tt_server *server);
/* Requests for answers are refused from now on with 503, as is /readyz: load balancers go elsewhere. */
void tt_serve_drain(struct tt_server *server);
/* No request runs or waits, and clients have fetched their answers. */
bool tt_serve_is_idle(struct tt_server *server);
/* Ends: running requests are cancelled, and their connections closed. */
TT_MUST_USE tt_status tt_serve_close(struct tt_server *server);

#endif
