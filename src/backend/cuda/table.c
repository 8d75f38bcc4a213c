/* The table of ops of the cuda device. */
#include "backend/cuda/cuda.h"
#include "backend/cuda/ops_table.h"

const struct tt_op_table tt_cuda_op_table = {
#define OP(name) .name = tt_cuda_##name,
#include "backend/ops.def"
#undef OP
};
