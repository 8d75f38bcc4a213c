/* Rows of E4M3 codes (tensor/e4m3.h) to numbers, for each instruction set. */
#ifndef TT_BACKEND_CPU_E4M3_H
#define TT_BACKEND_CPU_E4M3_H

#include <stdbool.h>
#include <stdint.h>

struct tt_stream;

/* y[at + i] = codes[i] * scale for i = 0 .. count - 1, the product rounded to fp32 and then to y's type: bf16, else
 * fp32. The bits are those of tt_e4m3_to_f32 and tt_f32_to_bf16; where the scale is NaN, y is some NaN. */
typedef void tt_cpu_e4m3_decode(const uint8_t *codes, int64_t count, float scale, void *y, int64_t at,
                                bool bf16);
tt_cpu_e4m3_decode *tt_cpu_e4m3_decode_of(const struct tt_stream *stream);

/* y[i] = codes[i] for i = 0 .. count - 1, in bf16, which has every code exactly. */
typedef void tt_cpu_e4m3_widen(const uint8_t *codes, int64_t count, uint16_t *y);
tt_cpu_e4m3_widen *tt_cpu_e4m3_widen_of(const struct tt_stream *stream);

#endif
