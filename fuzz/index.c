/* model.safetensors.index.json beside two small files of weights: the index agrees with them or is refused,
 * and names no file outside the folder. */
/* words: src/io src/tensor */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "folder.h"
#include "io/model_folder.h"

/* One F32 tensor of two elements. */
static void write_weights(const char *name, const char *tensor)
{
    char file[160] = {0};
    int bytes = snprintf(file + 8, sizeof file - 8,
                         "{\"%s\": {\"dtype\": \"F32\", \"shape\": [2], \"data_offsets\": [0, 8]}}", tensor);
    file[0] = (char)bytes;
    fuzz_write(name, file, 8 + (size_t)bytes + 8);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static bool ready;
    if (!ready) {
        fuzz_write("config.json", "{}", 2);
        write_weights("model-00001-of-00002.safetensors", "a");
        write_weights("model-00002-of-00002.safetensors", "b");
        ready = true;
    }
    fuzz_write("model.safetensors.index.json", data, size);
    struct tt_model_folder *folder = NULL;
    if (tt_model_folder_open(fuzz_folder(), true, &folder) != TT_OK) return 0;
    size_t count = tt_model_folder_tensor_count(folder); /* an index need not list all files of the folder */
    if (count < 1 || count > 2) abort();
    for (size_t i = 0; i < count; i++) {
        float values[2];
        const struct tt_safetensors_entry *entry = tt_model_folder_tensor(folder, i);
        if (tt_model_folder_file(folder, entry) == NULL) abort();
        if (tt_model_folder_read(folder, entry, 0, 2, values, TT_F32) != TT_OK || values[0] != 0) abort();
    }
    tt_model_folder_close(folder);
    return 0;
}
