/* Types of tensors in GGUF files (gguf_types.def): plain numbers, and blocks of weights with scales of their own.
 *
 * The blocks have the bytes that llama.cpp's quantizer makes without an importance matrix: the same formulas in fp32,
 * in the same order of additions. Source: ggml b10605, ggml-common.h for the layouts, ggml-quants.c for the search of
 * scales. Here eight parts of a K type's block are searched at a time, one in each lane of a vector, so that the
 * additions of each keep their order. A block's weights are stored as
 *
 *     q4_0 q5_0 q8_0   d q_i           d: the weight of the largest magnitude / -8, / -16; the magnitude / 127
 *     q4_1 q5_1        d q_i + m       m: the least weight, d: (largest - least) / 15, / 31
 *     q4_K q5_K        d s q_i - D t   s and t for 32 weights, with 6 bits; d and D in fp16
 *     q2_K             the same, s and t for 16 weights, with 4 bits
 *     q3_K q6_K        d s q_i         s for 16 weights, with 6 and 8 bits
 */
#ifndef TT_CONVERT_GGUF_TYPES_H
#define TT_CONVERT_GGUF_TYPES_H

#include "base/error.h"
#include "tensor/dtype.h"

enum tt_gguf_type {
#define PLAIN(word, number, name, dtype) TT_GGUF_##word,
#define BLOCKS(word, number, name, weights, bytes, at, halves, encode) TT_GGUF_##word,
#include "convert/gguf_types.def"
#undef PLAIN
#undef BLOCKS
    TT_GGUF_TYPES
};

struct tt_gguf_type_facts {
    const char *name; /* as ggml spells it: "q4_K" */
    uint32_t number;  /* ggml_type */
    tt_dtype dtype;   /* of plain numbers; NONE: blocks */
    int64_t weights;  /* of a block; 1 */
    size_t bytes;     /* of a block */
    size_t at;        /* its scales in fp16 begin here */
    int halves;       /* and are so many */
    /* Weights are finite. A scale that fp16 cannot hold becomes infinite. */
    void (*encode)(const float *weights, int64_t blocks, uint8_t *to);
};
const struct tt_gguf_type_facts *tt_gguf_type_facts(enum tt_gguf_type type);
/* The type of plain numbers; TT_GGUF_TYPES: none. */
enum tt_gguf_type tt_gguf_plain_type(tt_dtype dtype);
uint64_t tt_gguf_type_bytes(enum tt_gguf_type type, int64_t weights); /* of whole blocks */

/* Encodes `count` weights, whole blocks. TT_ERR_DATA: one of them is not finite, or a scale is too large for fp16. */
TT_MUST_USE tt_status tt_gguf_encode(enum tt_gguf_type type, const float *weights, int64_t count,
                                     uint8_t *to);

#endif
