/* Weights quantized by bitsandbytes and saved by transformers (io/quantized.h): the shards hold them as stored, with
 * their tables. */
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
/* Appends the ranges of the piece (at most TT_STORED_RANGES_MAX) to `ranges`. `offset` is lent until they are read. */
TT_MUST_USE tt_status tt_stored_quant_ranges(const struct tt_model_folder *folder,
                                             const struct tt_piece *piece, float *offset,
                                             struct tt_read_range *ranges, size_t *range_count);

#endif
