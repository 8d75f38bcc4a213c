#include "comm/comm_impl.h"

tt_status tt_comm_create_tcp(const struct tt_tcp_config *config, struct tt_comm **out, int *machines)
{
    (void)config;
    (void)out;
    (void)machines;
    return tt_fail(TT_ERR_UNSUPPORTED, "processes that find each other by address are not served yet");
}
