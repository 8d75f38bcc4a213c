/* Weights that bitsandbytes has quantized and transformers has saved (io/quantized.h): they lie in the shards as they
 * are stored, tables too. */
#ifndef TT_CHECKPOINT_LOAD_STORED_H
#define TT_CHECKPOINT_LOAD_STORED_H

#include "checkpoint/reader.h"
#include "io/quantized.h"
#include "model/model.h"
#include "shard/unit.h"

enum { TT_STORED_RANGES_MAX = TT_QUANTIZED_PARTS + 1 };

/* Whether `name` of a folder belongs to a weight of the model that is quantized, beside its codes. */
bool tt_stored_quant_owns(const struct tt_model *model, const char *name);
/* All tensors of the weight are there, of the right types and sizes, and have its format: TT_ERR_DATA, or
 * TT_ERR_UNSUPPORTED for another block size. */
TT_MUST_USE tt_status tt_stored_quant_check(const struct tt_model_folder *folder, const tt_param *param);
/* Appends what fills the piece (at most TT_STORED_RANGES_MAX) to `ranges`. `offset` is lent for the reading. */
TT_MUST_USE tt_status tt_stored_quant_ranges(const struct tt_model_folder *folder,
                                             const struct tt_piece *piece, float *offset,
                                             struct tt_read_range *ranges, size_t *range_count);

#endif
