/* A choice between two ways to the same attention, for sequences that begin with keys of others
 * (nn/attention_branches.c). */
#ifndef TT_BACKEND_OPS_ATTENTION_WHOLE_H
#define TT_BACKEND_OPS_ATTENTION_WHOLE_H

#include "backend/device.h"

/* Whether bf16 attention of as many queries as keys is faster on the device than that of the last queries alone,
 * although it computes more: cuDNN, for which there is no plan for fewer queries, is about twice as fast as this
 * library's own kernels. The same for a device and its plan. */
bool tt_attention_prefers_whole(const struct tt_device *device);

#endif
