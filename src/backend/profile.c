#include "backend/profile.h"

#include <string.h>

#include "backend/device_impl.h"

const char *tt_op_name(enum tt_op op)
{
    static const char *const names[TT_OP_COUNT] = {
#define OP(name) #name,
#include "backend/ops.def"
#undef OP
    };
    return names[op];
}

void tt_device_profile(struct tt_device *device, bool on)
{
    if (on) memset(device->op_times, 0, sizeof device->op_times);
    device->profiles = on;
}

const struct tt_op_time *tt_device_op_times(const struct tt_device *device)
{
    return device->op_times;
}
