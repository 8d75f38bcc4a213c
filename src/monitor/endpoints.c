#include "monitor/endpoints.h"

#include <string.h>

#include "base/alloc.h"
#include "http/server.h"
#include "monitor/exposition.h"

/* A scrape takes milliseconds. Slow clients are cut off. */
enum { CONNECTIONS_MAX = 256, BODY_BYTES_MAX = 1024 };
static const double seconds_max = 5.0;
static const char *const probes[] = {"/healthz", "/readyz", "/readyz/step", NULL};

struct tt_endpoints {
    struct tt_live *live;
    struct tt_http_server *server;
};

static void answer_text(struct tt_http_exchange *exchange, int code, const char *text)
{
    tt_http_answer(exchange, code, "text/plain; charset=utf-8", text, strlen(text));
}

static void answer_metrics(struct tt_http_exchange *exchange, struct tt_live *live)
{
    struct tt_str text = {0};
    bool open_metrics = tt_exposition_wants_open_metrics(tt_http_header(exchange, "Accept"));
    if (tt_live_metrics(live, open_metrics, &text) == TT_OK)
        tt_http_answer(exchange, 200, tt_exposition_type(open_metrics), tt_str_text(&text), text.bytes);
    tt_str_deinit(&text);
}

static void handle(void *context, struct tt_http_exchange *exchange)
{
    struct tt_endpoints *endpoints = context;
    const char *method = tt_http_method(exchange), *path = tt_http_path(exchange);
    char why[200];
    if (strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0) {
        answer_text(exchange, 405, "only GET and HEAD\n");
    } else if (strcmp(path, "/metrics") == 0) {
        answer_metrics(exchange, endpoints->live);
    } else if (strcmp(path, "/healthz") == 0) {
        bool healthy = tt_live_is_healthy(endpoints->live, why, sizeof why);
        answer_text(exchange, healthy ? 200 : 503, why);
    } else if (strcmp(path, "/readyz") == 0 || strcmp(path, "/readyz/step") == 0) {
        bool ready = tt_live_is_ready(endpoints->live, path[strlen("/readyz")] != '\0', why, sizeof why);
        answer_text(exchange, ready ? 200 : 503, why);
    } else {
        answer_text(exchange, 404, "there are /metrics, /healthz, /readyz and /readyz/step\n");
    }
    tt_http_release(exchange);
}

tt_status tt_endpoints_open(const char *host, int port, const char *allowed_hosts, struct tt_live *live,
                            struct tt_endpoints **out)
{
    tt_status status = TT_OK;
    struct tt_endpoints *endpoints = tt_calloc(1, sizeof *endpoints);
    if (endpoints == NULL) return TT_ERR_MEMORY;
    endpoints->live = live;
    struct tt_http_config config = {
        .host = host,
        .port = port,
        .port_setting = "metrics_port",
        .connections = CONNECTIONS_MAX,
        .allowed_hosts = allowed_hosts,
        .probes = probes,
        .body_bytes = BODY_BYTES_MAX,
        .seconds = seconds_max,
        .handler = handle,
        .context = endpoints,
    };
    TT_GO(tt_http_open(&config, &endpoints->server));
    *out = endpoints;
    endpoints = NULL;
out:
    tt_endpoints_close(endpoints);
    return status;
}

int tt_endpoints_port(const struct tt_endpoints *endpoints)
{
    return tt_http_port(endpoints->server);
}

void tt_endpoints_close(struct tt_endpoints *endpoints)
{
    if (endpoints == NULL) return;
    tt_http_close(endpoints->server);
    tt_free(endpoints);
}
