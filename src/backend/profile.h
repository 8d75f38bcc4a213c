/* Where the time of a device goes, by op: counted only while switched on. On devices that compute in the calling thread the
 * seconds are those of the work itself. */
#ifndef TT_BACKEND_PROFILE_H
#define TT_BACKEND_PROFILE_H

#include <stdbool.h>
#include <stdint.h>

struct tt_device;

enum tt_op {
#define OP(name) TT_OP_##name,
#include "backend/ops.def"
#undef OP
    TT_OP_COUNT
};

struct tt_op_time {
    int64_t calls;
    double seconds;
};

const char *tt_op_name(enum tt_op op); /* "rmsnorm_forward" */
void tt_device_profile(struct tt_device *device, bool on);
/* Borrows the [TT_OP_COUNT] counters; switching on clears them. */
const struct tt_op_time *tt_device_op_times(const struct tt_device *device);

#endif
