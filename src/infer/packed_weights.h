/* Weights that a rank on a CPU packs once for the passes of a generation (backend/kept.h): about their memory again,
 * and no packing in passes of some rows. Only weights that the rank has whole: of one rank, or with NO_SHARD. */
#ifndef TT_INFER_PACKED_WEIGHTS_H
#define TT_INFER_PACKED_WEIGHTS_H

#include "engine/rank.h"

/* Bytes for passes of `rows` rows; 0: nothing is gained. `rank` may be on the plan device. */
size_t tt_packed_weights_bytes(const struct tt_rank *rank, const struct tt_device_config *device,
                               int64_t rows);
/* Allocates the memory; the weights are packed at their first use. *memory stays NULL where nothing is gained. The
 * weights may not change before tt_packed_weights_end. */
TT_MUST_USE tt_status tt_packed_weights_begin(const struct tt_rank *rank,
                                              const struct tt_device_config *device, int64_t rows,
                                              struct tt_buffer **memory);
void tt_packed_weights_end(const struct tt_rank *rank, struct tt_buffer *memory); /* takes NULL */

#endif
