/* Weights that a folder holds quantized (io/quantized.h): the shards hold them as stored, with their tables and scales.
 * FP8 in blocks for a parameter with scales of rows, and the transposed copies of FP8, are quantized anew instead
 * (load_quantized.h). */
#ifndef TT_CHECKPOINT_LOAD_STORED_H
#define TT_CHECKPOINT_LOAD_STORED_H

#include "checkpoint/reader.h"
#include "io/quantized.h"
#include "model/model.h"
#include "shard/unit.h"

enum { TT_STORED_RANGES_MAX = TT_QUANTIZED_PARTS + 1 };

/* True if the tensor `name` of a folder belongs to a quantized weight of the model, besides its codes. */
bool tt_stored_quant_owns(const struct tt_model *model, const char *name);
/* Checks that all tensors of the weight exist, have the right types and sizes, and its format: TT_ERR_DATA, or
 * TT_ERR_UNSUPPORTED for another block size. */
TT_MUST_USE tt_status tt_stored_quant_check(const struct tt_model_folder *folder, const tt_param *param);

/* A stored weight, lent to the ranges or the item that read it. */
struct tt_stored_quant {
    const struct tt_model_folder *folder;
    struct tt_quantized tensor;
};
/* `param`: of a transposed copy its original. */
TT_MUST_USE tt_status tt_stored_quant_find(const struct tt_model_folder *folder, const tt_param *param,
                                           struct tt_stored_quant *out);
/* Whether the piece holds the weight as stored; otherwise its numbers are quantized anew. */
bool tt_stored_quant_keeps(const struct tt_stored_quant *stored, const tt_param *param);
/* Appends the ranges of such a piece (at most TT_STORED_RANGES_MAX) to `ranges`. `stored` is lent until they are
 * read. */
TT_MUST_USE tt_status tt_stored_quant_ranges(struct tt_stored_quant *stored, const struct tt_piece *piece,
                                             struct tt_read_range *ranges, size_t *range_count);

#endif
