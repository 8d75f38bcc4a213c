#include "backend/kept.h"

#include <string.h>

#include "backend/device_impl.h"

size_t tt_kept_bytes(const struct tt_device_config *device, int64_t rows, int64_t n, int64_t k,
                     tt_dtype dtype, tt_dtype input)
{
    bool planned = strcmp(device->kind, "plan") == 0 &&
                   (device->stands_for == NULL || strcmp(device->stands_for, "cpu") == 0);
    if (strcmp(device->kind, "cpu") != 0 && !planned) return 0;
    return tt_cpu_kept_bytes(&device->tuning, rows, n, k, dtype, input);
}

tt_status tt_device_keep_panels(struct tt_device *device, struct tt_buffer *memory,
                                const struct tt_kept_range *ranges, size_t count)
{
    if (device->table->keep_panels == NULL) return TT_OK;
    return device->table->keep_panels(device, tt_buffer_data(memory), tt_buffer_bytes(memory), ranges, count);
}

void tt_device_drop_panels(struct tt_device *device)
{
    if (device->table->keep_panels != NULL) (void)device->table->keep_panels(device, NULL, 0, NULL, 0);
}
