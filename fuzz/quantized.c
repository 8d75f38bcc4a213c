/* A folder of quantized weights: the safetensors file is the input. Whatever it holds, weights are found or
 * refused, and what is found is read without touching memory or bytes of the file that are not its own. */
/* words: src/io src/tensor */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/file.h"
#include "io/quantized.h"

enum { SEGMENT_MAX = 1 << 20 };

/* A folder whose model.safetensors is a file in memory, the same for all inputs. */
static int weights = -1;
static char folder_path[160];

static void end_folder(void)
{
    if (tt_dir_remove(folder_path) != TT_OK) abort();
}

static void make_folder(void)
{
    static const char config[] = "{\"model_type\": \"llama\"}";
    char path[256], target[64];
    const char *temporary = getenv("TMPDIR");
    snprintf(folder_path, sizeof folder_path, "%s/tt-fuzz-quantized-%ld",
             temporary != NULL ? temporary : "/tmp", (long)getpid());
    weights = memfd_create("fuzz", MFD_CLOEXEC);
    if (weights < 0 || tt_dir_create(folder_path) != TT_OK) abort();
    atexit(end_folder);
    snprintf(path, sizeof path, "%s/config.json", folder_path);
    if (tt_file_write_atomic(path, config, sizeof config - 1) != TT_OK) abort();
    snprintf(path, sizeof path, "%s/model.safetensors", folder_path);
    snprintf(target, sizeof target, "/proc/self/fd/%d", weights);
    if (symlink(target, path) != 0) abort();
}

static void read_weight(const struct tt_model_folder *folder, const struct tt_quantized *tensor)
{
    size_t bytes = tensor->layout.bytes, middle = bytes / 3;
    if (bytes > SEGMENT_MAX) return;
    uint8_t *whole = malloc(bytes), *parts = malloc(bytes);
    float *values = malloc((size_t)tensor->layout.count * sizeof *values);
    if (whole == NULL || parts == NULL || values == NULL) abort();
    if (tt_quantized_read(folder, tensor, 0, bytes, whole) != TT_OK) abort(); /* it was checked */
    if (tt_quantized_read(folder, tensor, 0, middle, parts) != TT_OK) abort();
    if (tt_quantized_read(folder, tensor, middle, bytes - middle, parts + middle) != TT_OK) abort();
    if (memcmp(whole, parts, bytes) != 0) abort();
    tt_quant_decode(&tensor->layout, whole, 0, tensor->layout.count, values, TT_F32);
    (void)!tt_quantized_check_values(folder, tensor);
    free(values);
    free(parts);
    free(whole);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tt_model_folder *folder = NULL;
    if (weights < 0) make_folder();
    if (ftruncate(weights, 0) != 0 || pwrite(weights, data, size, 0) != (ssize_t)size) abort();
    if (tt_model_folder_open(folder_path, true, &folder) != TT_OK) return 0;
    for (size_t i = 0; i < tt_model_folder_tensor_count(folder); i++) {
        const char *name = tt_model_folder_tensor(folder, i)->name;
        struct tt_quantized tensor;
        size_t module_bytes;
        if (tt_quantized_is_part(name, &module_bytes) && module_bytes >= strlen(name)) abort();
        if (tt_quantized_find(folder, name, &tensor) != TT_OK) continue;
        if (tensor.layout.format.type != TT_QUANT_NONE) read_weight(folder, &tensor);
    }
    tt_model_folder_close(folder);
    return 0;
}
