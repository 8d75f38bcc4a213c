#include "io/tensor_compare.h"

#include <string.h>

#include "base/alloc.h"
#include "io/safetensors_impl.h"

enum { CHUNK = 1 << 20 };

static bool is_by_rows(const struct tt_stored_tensor *tensor)
{
    const struct tt_safetensors *file = tensor->file;
    return file->strides == NULL || file->strides[tensor->entry - file->entries].by_rows;
}

/* Names of torch.save may share a storage. */
static bool is_one(const struct tt_stored_tensor *a, const struct tt_stored_tensor *b)
{
    return a->file == b->file && a->entry->offset == b->entry->offset && a->entry->dtype == b->entry->dtype &&
           is_by_rows(a) && is_by_rows(b);
}

static int mantissa_bits(tt_dtype dtype)
{
    switch (dtype) {
    case TT_F64:
        return 52;
    case TT_F32:
        return 23;
    case TT_F16:
        return 10;
    default:
        return 7;
    }
}

tt_status tt_stored_compare(const struct tt_stored_tensor *a, const struct tt_stored_tensor *b, int64_t first,
                            int64_t count, int64_t *at)
{
    tt_dtype type =
        mantissa_bits(a->entry->dtype) < mantissa_bits(b->entry->dtype) ? a->entry->dtype : b->entry->dtype;
    size_t element = tt_dtype_bytes(type);
    tt_status status = TT_OK;
    *at = -1;
    if (is_one(a, b)) return TT_OK;
    char *values = tt_alloc_aligned(2 * CHUNK * element), *others = values + CHUNK * element;
    if (values == NULL) return TT_ERR_MEMORY;
    for (int64_t done = 0, here; done < count && *at < 0; done += here) {
        here = count - done < CHUNK ? count - done : CHUNK;
        TT_GO(tt_safetensors_read(a->file, a->entry, first + done, here, values, type));
        TT_GO(tt_safetensors_read(b->file, b->entry, first + done, here, others, type));
        if (memcmp(values, others, (size_t)here * element) == 0) continue;
        int64_t i = 0;
        while (memcmp(values + (size_t)i * element, others + (size_t)i * element, element) == 0) i++;
        *at = first + done + i;
    }
out:
    tt_free(values);
    return status;
}
