/* The table of ops of the cpu device. */
#include "backend/cpu/cpu_ops.h"

const struct tt_op_table tt_cpu_op_table = {
#define OP(name) .name = tt_cpu_##name,
#include "backend/ops.def"
#undef OP
};
