#include "nn/axis.h"

const char *tt_axis_name(enum tt_axis axis)
{
    static const char *const names[TT_AXIS_COUNT] = {
#define AXIS(value, name) name,
#include "nn/axis.def"
#undef AXIS
    };
    return (unsigned)axis < TT_AXIS_COUNT ? names[axis] : "added";
}
