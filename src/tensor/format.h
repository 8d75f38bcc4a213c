/* A weight format: how the formats of quantized matrices (tensor/quant.h) differ from each other. One file each in
 * tensor/formats/, one line each in formats.def. */
#ifndef TT_TENSOR_FORMAT_H
#define TT_TENSOR_FORMAT_H

#include "tensor/quant.h"

struct tt_weight_format {
    const char *name; /* in settings, messages and files */
    int byte_weights; /* codes a byte: 2, the first in the high nibble, or 1 */
    bool row_blocks;  /* a row is a block; otherwise blocks of 32 .. 4096 weights, which may be nested */
    bool has_state;   /* its files describe it by JSON text, which names the type of the original weights */
    bool through_f16; /* weights are rounded to fp16 before they are measured and encoded */
    const float *map; /* [TT_QUANT_MAP], the value of each code; NULL: a code is a number */
    /* Codes of x[0 .. count - 1], weights first .. first + count - 1 of the matrix; `first` is a multiple of
     * byte_weights. `absmax` is the whole array. */
    void (*encode)(const struct tt_quant_layout *layout, const float *x, int64_t first, int64_t count,
                   const float *absmax, uint8_t *codes);
    /* The value of weight `index` of the segment; `absmax` is that of its block. */
    float (*decode)(const struct tt_quant_layout *layout, const uint8_t *segment, int64_t index,
                    float absmax);
};

const struct tt_weight_format *tt_weight_format(enum tt_quant_type type); /* NULL for NONE */

#define FORMAT(id, name) extern const struct tt_weight_format tt_format_##name;
#include "tensor/formats.def"
#undef FORMAT

#endif
