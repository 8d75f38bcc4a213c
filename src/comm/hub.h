/* The hub of a tcp run: a thread in the process of rank 0 with a control connection to every process. It admits the
 * processes, sends them the addresses at which the others accept data lines, and detects processes that have ended or
 * are silent. No tensor data passes through it. */
#ifndef TT_COMM_HUB_H
#define TT_COMM_HUB_H

#include "comm/proof.h"

struct tt_hub;
struct tt_hub_config {
    const char *bind; /* borrowed until tt_hub_start returns; see tt_wire_listen */
    bool local;
    int port;
    int world_size;
    size_t lines;         /* connections of this process to other ranks, for the limit of open files */
    const char *settings; /* copied */
    struct tt_proof_key key;
    double timeout_seconds; /* until all ranks must have joined */
    char run[80];           /* as in struct tt_tcp_config */
    char host[256];         /* where the others look for rank 0; for messages; empty: not known */
    int64_t attempt;
};

TT_MUST_USE tt_status tt_hub_start(const struct tt_hub_config *config, struct tt_hub **out);
/* Sends the queued messages and a farewell, waits up to 2 s for the others to close, and frees the hub. Takes NULL. */
void tt_hub_stop(struct tt_hub *hub);

#endif
