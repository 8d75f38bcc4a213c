#include "tensor/param.h"

int64_t tt_param_count(const tt_param *param)
{
    int64_t count = 1;
    for (int i = 0; i < param->rank; i++) count *= param->dims[i];
    return count;
}
