/* Where the processes of comm/tcp.c meet: a thread in the process of rank 0 to which each of them keeps a
 * control connection. It brings the ranks together, tells them where the others listen for data lines, and
 * notices when one of them is gone. No data passes here. */
#ifndef TT_COMM_HUB_H
#define TT_COMM_HUB_H

#include "comm/proof.h"

struct tt_hub;
struct tt_hub_config {
    const char *bind; /* borrowed while it starts; see tt_wire_listen */
    bool local;
    int port;
    int world_size;
    size_t lines;         /* connections of this process to other ranks, for the limit of open files */
    const char *settings; /* copied */
    struct tt_proof_key key;
    double timeout_seconds; /* until all ranks must be there */
};

TT_MUST_USE tt_status tt_hub_start(const struct tt_hub_config *config, struct tt_hub **out);
/* Takes leave of the others: what was sent to them arrives, as long as they listen. Takes NULL. */
void tt_hub_stop(struct tt_hub *hub);

#endif
