/* The dashboard of runs over HTTP: the page at /, its data at /data, and at /data/VERSION: only where they differ
 * from that version; at /picture/R/NAME a picture of the run R, counted from 0. Folders are read again at most once a
 * second. GET and HEAD only, of hosts as in http/hosts.h. */
#ifndef TT_MONITOR_DASHBOARD_H
#define TT_MONITOR_DASHBOARD_H

#include <stdbool.h>
#include "base/error.h"

enum { TT_DASHBOARD_RUNS_MAX = 64 };

struct tt_dashboard_config {
    const char *host;
    int port;                  /* 0: a free one */
    const char *port_setting;  /* its name */
    const char *allowed_hosts; /* of http/hosts.h; lent */
    const char *const *folders;
    int count;
    bool live; /* a training serves its own folder, which may have no row yet */
};

struct tt_dashboard;
/* TT_ERR_DATA for a folder without metrics.jsonl, unless `live`, and as of tt_http_open. */
TT_MUST_USE tt_status tt_dashboard_open(const struct tt_dashboard_config *config, struct tt_dashboard **out);
int tt_dashboard_port(const struct tt_dashboard *dashboard);
void tt_dashboard_close(struct tt_dashboard *dashboard); /* takes NULL */

#endif
