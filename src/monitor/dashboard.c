#include "monitor/dashboard.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "http/server.h"
#include "monitor/board.h"
#include "monitor/page.h"
#include "monitor/pictures.h"

enum { CONNECTIONS_MAX = 64, BODY_BYTES_MAX = 1024 };
static const double seconds_max = 30.0, fresh_seconds = 1.0;

/* Everything belongs to the server's thread once it runs. */
struct tt_dashboard {
    struct tt_http_server *server;
    struct tt_run_figures *runs; /* [count] */
    int count, opened;
    bool live;
    struct tt_str page, data;
    uint64_t version; /* of `data` */
    double read;      /* tt_clock_seconds */
};

static uint64_t version_of(const struct tt_dashboard *dashboard)
{
    uint64_t version = 0;
    for (int r = 0; r < dashboard->count; r++) version += dashboard->runs[r].version;
    return version;
}

static tt_status refresh(struct tt_dashboard *dashboard)
{
    double now = tt_clock_seconds();
    if (dashboard->data.bytes > 0 && now - dashboard->read < fresh_seconds) return TT_OK;
    dashboard->read = now;
    for (int r = 0; r < dashboard->count; r++) TT_TRY(tt_run_figures_update(&dashboard->runs[r]));
    if (dashboard->data.bytes > 0 && version_of(dashboard) == dashboard->version) return TT_OK;
    tt_str_clear(&dashboard->data);
    TT_TRY(tt_board_write(dashboard->runs, (size_t)dashboard->count,
                          dashboard->live ? TT_BOARD_LIVE : TT_BOARD_SERVED, &dashboard->data));
    dashboard->version = version_of(dashboard);
    return TT_OK;
}

static void answer_text(struct tt_http_exchange *exchange, int code, const char *text)
{
    tt_http_answer(exchange, code, "text/plain; charset=utf-8", text, strlen(text));
}

static void answer_data(struct tt_dashboard *dashboard, struct tt_http_exchange *exchange, const char *known)
{
    char text[600];
    if (refresh(dashboard) != TT_OK) {
        tt_error_format(tt_error_last(), text, sizeof text);
        tt_debug("dashboard: %s", text);
        answer_text(exchange, 500, "the folder of a run cannot be read\n");
        tt_error_clear();
        return;
    }
    snprintf(text, sizeof text, "%llu", (unsigned long long)dashboard->version);
    if (known != NULL && strcmp(known, text) == 0)
        answer_text(exchange, 204, "");
    else
        tt_http_answer(exchange, 200, "application/json", dashboard->data.data, dashboard->data.bytes);
}

/* `path`: "R/NAME" */
static void answer_picture(const struct tt_dashboard *dashboard, struct tt_http_exchange *exchange,
                           const char *path)
{
    struct tt_str bytes = {0};
    char *name = NULL;
    unsigned long run = path[0] >= '0' && path[0] <= '9' ? strtoul(path, &name, 10) : 0;
    bool known = name != NULL && name[0] == '/' && run < (unsigned long)dashboard->count &&
                 tt_picture_read(dashboard->runs[run].folder, name + 1, &bytes) == TT_OK;
    if (known)
        tt_http_answer(exchange, 200, "image/jpeg", bytes.data, bytes.bytes);
    else
        answer_text(exchange, 404, "there is no such picture\n");
    tt_error_clear();
    tt_str_deinit(&bytes);
}

static void handle(void *context, struct tt_http_exchange *exchange)
{
    struct tt_dashboard *dashboard = context;
    const char *method = tt_http_method(exchange), *path = tt_http_path(exchange);
    if (strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0)
        answer_text(exchange, 405, "only GET and HEAD\n");
    else if (strcmp(path, "/") == 0)
        tt_http_answer(exchange, 200, "text/html; charset=utf-8", dashboard->page.data,
                       dashboard->page.bytes);
    else if (strcmp(path, "/data") == 0)
        answer_data(dashboard, exchange, NULL);
    else if (tt_starts_with(path, "/data/"))
        answer_data(dashboard, exchange, path + strlen("/data/"));
    else if (tt_starts_with(path, "/picture/"))
        answer_picture(dashboard, exchange, path + strlen("/picture/"));
    else
        answer_text(exchange, 404, "there is only /\n");
    tt_http_release(exchange);
}

static tt_status open_runs(struct tt_dashboard *dashboard, const struct tt_dashboard_config *config)
{
    struct tt_path path;
    dashboard->runs = tt_calloc((size_t)config->count, sizeof *dashboard->runs);
    if (dashboard->runs == NULL) return TT_ERR_MEMORY;
    for (; dashboard->count < config->count; dashboard->count++) {
        const char *folder = config->folders[dashboard->count];
        TT_TRY(tt_path_set(&path, folder, "metrics.jsonl"));
        if (!config->live && !tt_path_exists(path.text)) {
            tt_fail(TT_ERR_DATA, "'%s' has no metrics.jsonl", folder);
            tt_hint("give the output_dir of a training");
            return TT_ERR_DATA;
        }
        TT_TRY(tt_run_figures_open(folder, &dashboard->runs[dashboard->count]));
    }
    return refresh(dashboard);
}

tt_status tt_dashboard_open(const struct tt_dashboard_config *config, struct tt_dashboard **out)
{
    tt_status status = TT_OK;
    struct tt_dashboard *dashboard = tt_calloc(1, sizeof *dashboard);
    if (dashboard == NULL) return TT_ERR_MEMORY;
    dashboard->live = config->live;
    TT_GO(tt_page_write("", &dashboard->page));
    TT_GO(open_runs(dashboard, config));
    struct tt_http_config http = {
        .host = config->host,
        .port = config->port,
        .port_setting = config->port_setting,
        .connections = CONNECTIONS_MAX,
        .allowed_hosts = config->allowed_hosts,
        .body_bytes = BODY_BYTES_MAX,
        .seconds = seconds_max,
        .handler = handle,
        .context = dashboard,
    };
    TT_GO(tt_http_open(&http, &dashboard->server));
    *out = dashboard;
    dashboard = NULL;
out:
    tt_dashboard_close(dashboard);
    return status;
}

int tt_dashboard_port(const struct tt_dashboard *dashboard)
{
    return tt_http_port(dashboard->server);
}

void tt_dashboard_close(struct tt_dashboard *dashboard)
{
    if (dashboard == NULL) return;
    tt_http_close(dashboard->server);
    for (int r = 0; r < dashboard->count; r++) tt_run_figures_deinit(&dashboard->runs[r]);
    tt_free(dashboard->runs);
    tt_str_deinit(&dashboard->page);
    tt_str_deinit(&dashboard->data);
    tt_free(dashboard);
}
