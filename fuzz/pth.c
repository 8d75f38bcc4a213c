/* A file of torch.save, of either container. */
/* words: src/io/pth.c src/io/pth_storage.c src/io/pickle.c */
#include "io/pth.h"
#include "memory_file.h"

enum { BYTES_MAX = 1 << 16 };

static void touch(const struct tt_safetensors *file)
{
    double *values = malloc((size_t)BYTES_MAX * sizeof *values);
    if (values == NULL) abort();
    for (size_t i = 0; i < tt_safetensors_count(file); i++) {
        const struct tt_safetensors_entry *entry = tt_safetensors_entry(file, i);
        if (tt_safetensors_find(file, entry->name) != entry) abort();
        if (entry->offset > tt_safetensors_file_bytes(file)) abort();
        /* A stride of 0 makes tensors of any size from few bytes. */
        if (entry->dtype == TT_DTYPE_NONE || entry->bytes > BYTES_MAX) continue;
        int64_t count = (int64_t)(entry->bytes / tt_dtype_bytes(entry->dtype));
        tt_status status = tt_safetensors_read(file, entry, 0, count, values, entry->dtype);
        if (status != TT_OK && status != TT_ERR_UNSUPPORTED) abort();
    }
    free(values);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[64];
    int descriptor = fuzz_open_memory_file(data, size, path);
    struct tt_safetensors *file = NULL;
    if (tt_pth_open(path, &file) == TT_OK) touch(file);
    tt_safetensors_close(file);
    close(descriptor);
    return 0;
}
