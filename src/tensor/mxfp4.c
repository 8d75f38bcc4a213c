#include "tensor/mxfp4.h"

#include <math.h>

#include "tensor/dtype.h"

/* The values of codes 0 .. 15. */
static const float values[16] = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                 -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};

void tt_mxfp4_decode(const uint8_t *codes, const uint8_t *scales, int64_t first, int64_t count, uint16_t *to)
{
    for (int64_t at = first, end = first + count; at < end;) {
        int64_t block = at / TT_MXFP4_BLOCK, stop = (block + 1) * TT_MXFP4_BLOCK;
        double power = ldexp(1.0, scales[block] - 127);
        for (stop = stop < end ? stop : end; at < stop; at++) {
            unsigned pair = codes[at / 2], code = at % 2 == 0 ? pair & 15 : pair >> 4;
            *to++ = tt_f32_to_bf16((float)((double)values[code] * power));
        }
    }
}
