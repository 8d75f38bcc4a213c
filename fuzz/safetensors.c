/* The header of a safetensors file. */
/* words: src/io src/tensor */
#include "io/safetensors.h"
#include "memory_file.h"

static void touch(const struct tt_safetensors *file)
{
    for (size_t i = 0; i < tt_safetensors_count(file); i++) {
        const struct tt_safetensors_entry *entry = tt_safetensors_entry(file, i);
        if (tt_safetensors_find(file, entry->name) != entry) abort();
        if (entry->offset + entry->bytes > tt_safetensors_file_bytes(file)) abort();
        if (entry->dtype == TT_DTYPE_NONE) continue;
        int64_t count = (int64_t)(entry->bytes / tt_dtype_bytes(entry->dtype));
        double *values = malloc((size_t)count * sizeof *values + 1);
        tt_status status = tt_safetensors_read(file, entry, 0, count, values, TT_F64);
        if (status != TT_OK && status != TT_ERR_UNSUPPORTED) abort();
        free(values);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[64];
    int descriptor = fuzz_open_memory_file(data, size, path);
    struct tt_safetensors *file = NULL;
    if (tt_safetensors_open(path, &file) == TT_OK) touch(file);
    tt_safetensors_close(file);
    close(descriptor);
    return 0;
}
