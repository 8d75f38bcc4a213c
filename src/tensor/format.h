/* A weight format: how the formats of quantized matrices (tensor/quant.h) differ from each other. One file each in
 * tensor/formats/, one line each in formats.def. */
#ifndef TT_TENSOR_FORMAT_H
#define TT_TENSOR_FORMAT_H

#include "tensor/quant.h"

/* One tensor of a weight in files. */
struct tt_format_tensor {
    const char *ending; /* of its name, after the module's: ".weight.absmax" */
    size_t section;     /* offsetof(struct tt_quant_layout, absmax): the section that it fills */
    /* without and with nested scales; TT_DTYPE_NONE: any, only the bytes count */
    tt_dtype dtype, nested_dtype;
};

enum { TT_FORMAT_TENSORS = 5 };

/* How files of a model hold a weight; io/quantized.h reads and writes them. */
struct tt_format_files {
    const char *sign;     /* ending of a tensor that weights of this format have and no others */
    const char *sign_too; /* NULL, or another ending with the same meaning */
    /* NULL, or endings of tensors that may be there and are not read; the last is NULL */
    const char *const *unread;
    const char *order; /* NULL, or ending of one U8 that may be absent: the order of the codes, 0 for rows */
    const struct tt_format_tensor *tensors; /* the codes first; a tensor whose section is empty is absent */
    int count;                              /* at most TT_FORMAT_TENSORS */
    tt_dtype original;                      /* unless has_state: the type of the original weights */
    /* compressed-tensors' form: config.json does not say of each weight whether it has it, and scales, columns of a
     * matrix, are of several types; otherwise bitsandbytes' */
    bool compressed;
};

struct tt_weight_format {
    const char *name; /* in settings, messages and files */
    int load_bits;    /* 4: load_in_4bit requests it, with its name; 8: load_in_8bit; 0: neither */
    int byte_weights; /* codes a byte: 2, the first in the high nibble, or 1 */
    bool row_blocks;  /* a row is a block; otherwise blocks of 32 .. 4096 weights, which may be nested */
    int square;       /* 0, or with row_blocks the block size that stands for squares with this side */
    int64_t block;    /* weights of a block as it is made; 0: the library's 64, or a row */
    bool powers;      /* scales are powers of two: always nested, by their exponents + 127 alone */
    bool has_state;   /* its sign in files is JSON text: shape, blocks and type of the original weights */
    bool through_f16; /* weights are rounded to fp16 before they are measured and encoded */
    /* Devices multiply its codes as they are, with a scale a row; products of other formats recode to it. */
    bool multiplies;
    struct tt_format_files files;
    /* NULL: a segment stores the largest size of a block itself, else this scale of it, in its place */
    float (*scale_of)(float absmax);
    const float *map; /* [TT_QUANT_MAP], the value of each code; NULL: a code is a number */
    /* Codes of x[0 .. count - 1], weights first .. first + count - 1 of the matrix; `first` is a multiple of
     * byte_weights. `absmax` is the whole array. */
    void (*encode)(const struct tt_quant_layout *layout, const float *x, int64_t first, int64_t count,
                   const float *absmax, uint8_t *codes);
    /* The value of weight `index` of the segment; `absmax` is that of its block. */
    float (*decode)(const struct tt_quant_layout *layout, const uint8_t *segment, int64_t index,
                    float absmax);
};

/* NULL for NONE and behind the last: types count up from NONE + 1. */
const struct tt_weight_format *tt_weight_format(enum tt_quant_type type);
/* The scale of block `block` of a segment, as decoding computes it. */
float tt_quant_scale(const struct tt_quant_layout *layout, const void *segment, int64_t block);
static inline const struct tt_quant_section *tt_format_section(const struct tt_quant_layout *layout,
                                                               const struct tt_format_tensor *tensor)
{
    return (const struct tt_quant_section *)(const void *)((const char *)layout + tensor->section);
}
/* The format at `place` of those with `load_bits`, in the order of formats.def; NONE behind the last. */
enum tt_quant_type tt_format_of_width(int load_bits, int place);
/* "nf4 or fp4": the names of those with `load_bits`; 0: of all. Returns `text`. */
const char *tt_format_names(int load_bits, char *text, size_t bytes);

#define FORMAT(id, name) extern const struct tt_weight_format tt_format_##name;
#include "tensor/formats.def"
#undef FORMAT

#endif
