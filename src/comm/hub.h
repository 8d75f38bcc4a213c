/* The middle of the star in comm/tcp.c: a thread in the process of rank 0 to which every process and every
 * rank is connected. It brings the ranks together, carries out their collectives, and hears when one of them
 * is gone. */
#ifndef TT_COMM_HUB_H
#define TT_COMM_HUB_H

#include "comm/proof.h"

struct tt_hub;
struct tt_hub_config {
    const char *bind; /* borrowed while it starts; see tt_wire_listen */
    bool local;
    int port;
    int world_size;
    const char *settings; /* copied */
    struct tt_proof_key key;
    double timeout_seconds; /* until all ranks must be there */
};

TT_MUST_USE tt_status tt_hub_start(const struct tt_hub_config *config, struct tt_hub **out);
/* Takes leave of the others: what was sent to them arrives, as long as they listen. Takes NULL. */
void tt_hub_stop(struct tt_hub *hub);

#endif
