/* Which tensor of a quantized GGUF file gets which type: llama.cpp's rule without an importance matrix. Source: b10605,
 * src/llama-quant.cpp. Most tensors have the type of the mixture (gguf_mixtures.def); those that cost the most accuracy
 * have more bits, in some layers. Rows that are no whole blocks get a type of 32 weights instead of 256, else fp16.
 */
#ifndef TT_CONVERT_GGUF_MIXTURE_H
#define TT_CONVERT_GGUF_MIXTURE_H

#include "convert/gguf_types.h"

struct tt_gguf_mixture {
    const char *name;   /* "q4_k_m" */
    uint32_t file_type; /* general.file_type */
    enum tt_gguf_type type;
};
/* Number `index` of gguf_mixtures.def; NULL behind the last. */
const struct tt_gguf_mixture *tt_gguf_mixture_at(int index);

/* A file whose tensors get their types. */
struct tt_gguf_rule {
    const struct tt_gguf_mixture *mixture;
    const char *architecture;
    int64_t layers, experts;     /* experts: of a layer, 0 without */
    int64_t heads, key_heads;    /* of the first layer */
    bool has_head;               /* set by tt_gguf_rule_count, as is */
    int64_t values;              /* the number of value projections */
    int64_t values_at, downs_at; /* those that have a type */
};
/* Called for all tensors of the file before the first one gets its type. */
void tt_gguf_rule_count(struct tt_gguf_rule *rule, const char *name);
/* The type of a tensor; `dims`: outermost first. Called in order of layers (-1: outside of them). TT_GGUF_TYPES: it is
 * not quantized. */
enum tt_gguf_type tt_gguf_rule_type(struct tt_gguf_rule *rule, const char *name, int64_t layer, int rank,
                                    const int64_t *dims);

#endif
