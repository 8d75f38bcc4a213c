/* /metrics, /healthz, /readyz and /readyz/step of a running training, over HTTP. GET and HEAD only; no keys and no
 * encryption: the address to listen at decides who can ask, and by which names (http/hosts.h). */
#ifndef TT_MONITOR_ENDPOINTS_H
#define TT_MONITOR_ENDPOINTS_H

#include "monitor/live.h"

struct tt_endpoints;
/* `live` and the texts are lent. Errors as of tt_http_open. */
TT_MUST_USE tt_status tt_endpoints_open(const char *host, int port, const char *allowed_hosts,
                                        struct tt_live *live, struct tt_endpoints **out);
int tt_endpoints_port(const struct tt_endpoints *endpoints);
void tt_endpoints_close(struct tt_endpoints *endpoints); /* takes NULL */

#endif
