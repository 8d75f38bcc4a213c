/* All ops of the plugin, in one table. */
#ifndef TT_BACKEND_CUDA_OPS_TABLE_H
#define TT_BACKEND_CUDA_OPS_TABLE_H

#include "backend/device_impl.h"

extern const struct tt_op_table tt_cuda_op_table;

#endif
