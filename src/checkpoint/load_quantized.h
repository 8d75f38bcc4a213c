/* Weights that are quantized while they are loaded: from float tensors in files, or made up for benchmarks.
 *
 * No rank needs another. It reads the weights whose codes its slice holds; the rank that also holds scales of
 * a nested format reads the rest of that tensor, because these depend on the mean over all of it (at most one
 * reading more of each tensor, all ranks together). What is stored is the same bits on any number of ranks.
 *
 * Codes are made by the threads of the reader (checkpoint/reader.h) on their way into its buffers. Beside
 * these, host memory is one absmax for each block of the tensors in flight, at most 256 MiB and a tensor's, and 1 MiB a
 * thread. */
#ifndef TT_CHECKPOINT_LOAD_QUANTIZED_H
#define TT_CHECKPOINT_LOAD_QUANTIZED_H

#include "checkpoint/reader.h"
#include "shard/unit.h"

/* A piece of a quantized parameter and where its weights are. */
struct tt_quant_item {
    struct tt_piece piece; /* bytes of the segment; count > 0 */
    /* lent; NULL: codes are made up from `seed`, for the deviation */
    const struct tt_safetensors *file;
    const struct tt_safetensors_entry *entry; /* init_scale of the parameter */
};

TT_MUST_USE tt_status tt_load_quantized(struct tt_stream *stream, const struct tt_quant_item *items,
                                        size_t item_count, uint64_t seed,
                                        const struct tt_reader_config *config);

#endif
