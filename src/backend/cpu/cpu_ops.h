/* The ops of the cpu device, one function per line of ops.def. Arguments have been checked by backend/ops/. */
#ifndef TT_BACKEND_CPU_CPU_OPS_H
#define TT_BACKEND_CPU_CPU_OPS_H

#include "backend/device_impl.h"

#define OP(name) tt_status tt_cpu_##name(struct tt_stream *stream, const struct tt_##name##_args *args);
#include "backend/ops.def"
#undef OP

extern const struct tt_op_table tt_cpu_op_table;

#endif
