#include "backend/plan/plan_ops.h"

#define OP(name)                                                                                             \
    static tt_status plan_##name(struct tt_stream *stream, const struct tt_##name##_args *args)              \
    {                                                                                                        \
        (void)stream, (void)args;                                                                            \
        return TT_OK;                                                                                        \
    }
#include "backend/ops.def"
#undef OP

const struct tt_op_table tt_plan_op_table = {
#define OP(name) .name = plan_##name,
#include "backend/ops.def"
#undef OP
};
