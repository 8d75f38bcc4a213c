#include "tensor/param.h"

int64_t tt_param_count(const tt_param *param)
{
    int64_t count = 1;
    for (int i = 0; i < param->rank; i++) count *= param->dims[i];
    return count;
}

int64_t tt_param_stored_count(const tt_param *param)
{
    return tt_param_is_quantized(param) ? (int64_t)param->quant.bytes : tt_param_count(param);
}
