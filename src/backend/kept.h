/* Matrices that never change, for the CPU, whose products of some rows pack their operands into panels: the device
 * packs each of these matrices once, at its first such product, and not for each. Results have the same bits. */
#ifndef TT_BACKEND_KEPT_H
#define TT_BACKEND_KEPT_H

#include "backend/device.h"
#include "tensor/dtype.h"

/* Memory whose content stays as it is until tt_device_drop_panels. Ranges that touch hold matrices together. */
struct tt_kept_range {
    const void *data;
    size_t bytes;
};

/* Bytes of the panels of a matrix [n, k] for products of at most `rows` rows of type `input`; 0: such products read it
 * as it is, or the device is no CPU. `device` may be that of a plan. */
size_t tt_kept_bytes(const struct tt_device_config *device, int64_t rows, int64_t n, int64_t k,
                     tt_dtype dtype, tt_dtype input);
/* Keeps panels of matrices in `ranges` in `memory`, as many as fit. Copies the ranges, borrows the memory. */
TT_MUST_USE tt_status tt_device_keep_panels(struct tt_device *device, struct tt_buffer *memory,
                                            const struct tt_kept_range *ranges, size_t count);
void tt_device_drop_panels(struct tt_device *device);

#endif
