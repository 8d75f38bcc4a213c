/* Quantization of weights to FP8 with a scale a row by the device, where it is not the host: the numbers are read, or
 * made from counters, into memory that the device lends, and ops make codes and scales of them. The bits are those of
 * load_quantized.h, on any number of ranks and with any size of that memory; but weights that no file has are those
 * numbers in bf16, quantized, instead of random codes.
 *
 * A rank reads the rows that its piece holds; for a transposed copy, of each row of the original the columns that are
 * rows of its piece. A matrix that a rank holds whole both ways is read once. */
#ifndef TT_CHECKPOINT_LOAD_ON_DEVICE_H
#define TT_CHECKPOINT_LOAD_ON_DEVICE_H

#include "checkpoint/load_quantized.h"

/* Whether the device quantizes this item with `scratch_bytes` of lent memory. */
bool tt_load_on_device_takes(const struct tt_device *device, const struct tt_quant_item *item,
                             size_t scratch_bytes);
/* `scratch`: u8, rank 1, device memory, lent until the call returns; for at least one row, or 16 of a transposed copy.
 * Waits until the values are in place. TT_ERR_DATA for weights that are not finite. */
TT_MUST_USE tt_status tt_load_on_device(struct tt_stream *stream, const struct tt_quant_item *items,
                                        size_t item_count, uint64_t seed, tt_tensor scratch,
                                        const struct tt_reader_config *config);

#endif
