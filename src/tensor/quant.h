/* Quantized matrices in the formats of bitsandbytes: layout, code tables, and encoding on the host. The op `dequantize`
 * (backend/ops/quant.h) decodes.
 *
 * A quantized matrix [rows, cols] is ONE contiguous segment of bytes, so that it is stored, split, gathered and copied
 * like any other frozen tensor. Sections, in this order, each beginning at a multiple of 64 bytes:
 *
 *     codes          4 bits: two weights a byte, the first in the high nibble; int8, fp8: one weight a byte
 *     absmax         one number per block: f32[blocks], or u8[blocks] when nested; int8: f32[rows]; fp8: the scales,
 *                    f32[rows], or f32[ceil(rows / 128), ceil(cols / 128)] of squares
 *     nested absmax  when nested, one number per nested_block absmax: f32[nested_blocks]
 *     map            4 bits: the value of each code, f32[16]
 *     nested map     when nested: the value of each absmax code, f32[256]
 *     offset         when nested: the mean of all absmax, f32[1]
 *
 * Weights are counted in row-major order and blocks continue from row to row; int8, fp8: a row is a block. With a block
 * size of 128 fp8 has squares of 128 x 128 weights, the last ones cut, as folders hold them (io/quantized.h): these are
 * decoded, not made. A segment holds its own tables, because the tables of a folder are used as stored.
 *
 *     absmax  nested: nested_map[code] * nested_absmax[block / nested_block] + offset; mxfp4 is always nested, with the
 *             powers of two from 2^-127 on in the map, nested absmax of 1 and an offset of 0
 *     weight  4 bits: map[code] * absmax[weight / block];  int8: code * absmax[row] * (1/127), from the left;
 *             fp8: E4M3 code * scale[row], or of its square (tensor/e4m3.h)
 *
 * all in fp32, each operation rounded separately. Numbers are little-endian, as in files. How the formats differ is in
 * tensor/format.h: each is one file.
 *
 * Codes and scales, but those of fp8, are bit for bit those of bitsandbytes 0.50 on a CPU; docs/quantization.md lists
 * the differences of its GPU kernels. All functions are pure and work on ranges: any number of threads and ranks,
 * split anywhere, produces the same bytes. A split at multiples of 64 * 256 weights keeps nested blocks whole. */
#ifndef TT_TENSOR_QUANT_H
#define TT_TENSOR_QUANT_H

#include "base/error.h"
#include "tensor/dtype.h"

enum tt_quant_type {
    TT_QUANT_NONE = 0,
#define FORMAT(id, name) TT_QUANT_##id,
#include "tensor/formats.def"
#undef FORMAT
};

enum {
    TT_QUANT_BLOCK = 64, /* the library's defaults */
    TT_QUANT_NESTED_BLOCK = 256,
    TT_QUANT_MAP = 16,
    TT_QUANT_NESTED_MAP = 256,
    TT_QUANT_ALIGN = 64,
    TT_FP8_BLOCK = 128, /* side of a square */
};

struct tt_quant_format {
    enum tt_quant_type type;
    bool nested;          /* "double quantization": 4 bits only */
    int64_t block;        /* 32 .. 4096, a power of two; 0 for int8 and fp8; TT_FP8_BLOCK: fp8 in squares */
    int64_t nested_block; /* a power of two, 16 .. 4096; 0 unless nested */
};

struct tt_quant_section {
    size_t offset, bytes; /* in the segment; bytes 0: absent */
};

struct tt_quant_layout {
    struct tt_quant_format format;
    int64_t rows, cols, count;     /* of the matrix */
    int64_t blocks, nested_blocks; /* numbers of absmax and of nested absmax */
    int64_t block_weights;         /* weights of a block: format.block, or those of a row; 0: squares */
    int64_t row_squares;           /* squares beside each other; 0: none */
    int byte_weights;              /* weights of a byte of codes */
    struct tt_quant_section codes, absmax, nested_absmax, map, nested_map, offset;
    size_t bytes; /* of the segment, a multiple of TT_QUANT_ALIGN */
};

const char *tt_quant_type_name(enum tt_quant_type type);      /* "nf4", "fp4", "int8", "none" */
enum tt_quant_type tt_quant_type_from_name(const char *name); /* NONE for others */
/* The members of a format's row (tensor/format.h) that other floors ask for; false for NONE. */
bool tt_quant_multiplies(enum tt_quant_type type);
bool tt_quant_is_compressed(enum tt_quant_type type);
/* The format to which products recode: the first that multiplies. */
enum tt_quant_type tt_quant_multiplied(void);
/* The library's block sizes: 64 weights, 256 absmax. */
struct tt_quant_format tt_quant_format_make(enum tt_quant_type type, bool nested);

/* TT_ERR_DATA for block sizes outside the format and for shapes whose size overflows. Odd counts and matrices that end
 * within a block are valid. */
TT_MUST_USE tt_status tt_quant_layout_make(struct tt_quant_format format, int64_t rows, int64_t cols,
                                           struct tt_quant_layout *out);

/* The tables that bitsandbytes writes. */
const float *tt_quant_map(enum tt_quant_type type); /* [16]; NULL where a code is a number */
const float *tt_quant_nested_map(void);             /* [256], ascending */
const float *tt_quant_unsigned_map(void);           /* the same without signs, from 0 to 1 */

/* A segment is encoded in two passes over the weights:
 *   1. tt_quant_absmax over all blocks (by any number of threads; every rank needs all of them), and tt_quant_mean of
 *      the result when nested;
 *   2. tt_quant_encode for any range of bytes of the segment; it reads only the weights of its codes.
 * The codes depend on the exact absmax, not on its nested form. */

/* The block of weight `index`. */
static inline int64_t tt_quant_block_of(const struct tt_quant_layout *layout, int64_t index)
{
    if (layout->row_squares == 0) return index / layout->block_weights;
    int64_t row = index / layout->cols, col = index % layout->cols;
    return row / layout->format.block * layout->row_squares + col / layout->format.block;
}
/* First weight of block `index` (int8, fp8: of a row); the count of weights for index == blocks. Not of squares. */
int64_t tt_quant_block_first(const struct tt_quant_layout *layout, int64_t index);
/* absmax[0 .. count - 1] (fp8: the scales) of blocks first .. first + count - 1, whose weights are in `weights`: F32,
 * BF16 or F16. NaN and infinity are passed on: see tt_quant_check. */
void tt_quant_absmax(const struct tt_quant_layout *layout, int64_t first, int64_t count, const void *weights,
                     tt_dtype dtype, float *absmax);
/* `absmax` of all blocks. TT_ERR_DATA when one is not finite: such weights cannot be quantized. */
TT_MUST_USE tt_status tt_quant_check(const struct tt_quant_layout *layout, const float *absmax);
/* Mean, summed in the order of torch on one CPU thread: eight lanes, in a cascade. */
float tt_quant_mean(const float *absmax, int64_t count);
/* The offset of nested scales: their mean; 0 for scales that are powers of two, and for those that are not nested. */
float tt_quant_offset(const struct tt_quant_layout *layout, const float *absmax);

/* Codes of weights first .. first + count - 1 (4 bits: first is even). `absmax` is the whole array. */
void tt_quant_codes(const struct tt_quant_layout *layout, int64_t first, int64_t count, const void *weights,
                    tt_dtype dtype, const float *absmax, uint8_t *codes);
/* The nested form of absmax blocks first .. first + count - 1. `absmax` is the whole array; `codes` and `nested_absmax`
 * receive the values of these blocks. */
void tt_quant_nested(const struct tt_quant_layout *layout, int64_t first, int64_t count, const float *absmax,
                     float offset, uint8_t *codes, float *nested_absmax);

/* Reads `count` weights from weight `first` on, in the source's type. */
typedef tt_status tt_quant_read(void *context, int64_t first, int64_t count, void *to);
struct tt_quant_source {
    const float *absmax; /* all of them, from tt_quant_absmax */
    float offset;        /* tt_quant_offset */
    tt_dtype dtype;      /* of the weights that `read` returns: F32, BF16, F16 */
    tt_quant_read *read;
    void *context;
};
/* Bytes [first, first + bytes) of the segment; gaps between sections are zeros. Reads through a buffer of at
 * most 1 MiB. */
TT_MUST_USE tt_status tt_quant_encode(const struct tt_quant_layout *layout,
                                      const struct tt_quant_source *source, size_t first, size_t bytes,
                                      void *to);

/* Decodes on the host, for tests and tools: weights first .. first + count - 1 as F32, BF16 or F16. */
void tt_quant_decode(const struct tt_quant_layout *layout, const void *segment, int64_t first, int64_t count,
                     void *to, tt_dtype dtype);

#endif
