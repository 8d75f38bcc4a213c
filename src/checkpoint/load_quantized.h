/* Quantization of weights during loading: from float tensors in files, from weights that the folder holds in FP8 with
 * other scales than those of rows, or from random codes for benchmarks.
 *
 * Ranks work independently. A rank reads the weights of the codes in its slice; the rank that also holds scales of a
 * nested format reads the rest of that tensor, because they depend on the mean over all of it (at most one more reading
 * of each tensor over all ranks). The stored bits are the same on any number of ranks.
 *
 * A transposed copy (tensor/param.h) is made of the tensor of its original: the rows of the copy that the rank holds
 * are collected in host memory first, then measured and encoded like those of any tensor.
 *
 * The threads of the reader (checkpoint/reader.h) encode directly into its buffers. Besides these, host memory is one
 * absmax for each block of the tensors in flight, at most 256 MiB plus that of one tensor, and 1 MiB a thread; with
 * transposed copies 1 GiB plus the rows of one tensor, and 4 MiB a thread. */
#ifndef TT_CHECKPOINT_LOAD_QUANTIZED_H
#define TT_CHECKPOINT_LOAD_QUANTIZED_H

#include "checkpoint/load_stored.h"
#include "checkpoint/reader.h"
#include "checkpoint/residual.h"
#include "shard/unit.h"

/* A piece of a quantized parameter and the source of its weights (of a transposed copy: of its original's). */
struct tt_quant_item {
    struct tt_piece piece; /* bytes of the segment; count > 0 */
    /* lent; NULL: random codes from `seed`, scaled to the parameter's init_scale */
    const struct tt_safetensors *file;
    const struct tt_safetensors_entry *entry;
    const struct tt_stored_quant *stored; /* NULL; lent: its numbers are the source */
    struct tt_residual *residual;         /* NULL; lent: what it leaves of the weights is the source */
};

/* The type of its weights as read: F32, BF16 or F16. */
tt_dtype tt_quant_item_dtype(const struct tt_quant_item *item);
/* Weights first .. first + count - 1 of its source, which has a file, in that type; from a file also in another of
 * these types. */
TT_MUST_USE tt_status tt_quant_item_read(const struct tt_quant_item *item, tt_dtype dtype, int64_t first,
                                         int64_t count, void *to);
/* Rows of a format with a scale a row: *first .. *end - 1 are those whose codes or scales are in the piece. */
void tt_quant_item_rows(const struct tt_quant_item *item, int64_t *first, int64_t *end);

TT_MUST_USE tt_status tt_load_quantized(struct tt_stream *stream, const struct tt_quant_item *items,
                                        size_t item_count, uint64_t seed,
                                        const struct tt_reader_config *config);

#endif
