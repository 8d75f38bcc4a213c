/* model.safetensors.index.json beside two small files of weights. The index agrees with them or is refused, and
 * names no file outside the folder, where there is one more. */
/* words: src/io src/tensor */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "folder.h"
#include "io/model_folder.h"

/* F32 tensors of two elements, all zero; `second` may be NULL. */
static void write_weights(const char *name, const char *first, const char *second)
{
    static const char end[] = "\"dtype\": \"F32\", \"shape\": [2], \"data_offsets\":";
    char file[256] = {0}, *header = file + 8;
    int bytes = snprintf(header, sizeof file - 8, "{\"%s\": {%s [0, 8]}", first, end);
    if (second != NULL)
        bytes +=
            snprintf(header + bytes, sizeof file - 8 - (size_t)bytes, ", \"%s\": {%s [8, 16]}", second, end);
    header[bytes++] = '}';
    file[0] = (char)bytes;
    memset(header + bytes, 0, 16);
    fuzz_write(name, file, 8 + (size_t)bytes + (second != NULL ? 16 : 8));
}

/* The opened tensors are those of the index, each in its file. */
static void check_tensors(const struct tt_model_folder *folder, const struct tt_json_value *weight_map)
{
    size_t count = tt_model_folder_tensor_count(folder);
    if (count == 0 || tt_json_count(weight_map) != count) abort();
    for (size_t i = 0; i < count; i++) {
        float values[2];
        const struct tt_safetensors_entry *entry = tt_model_folder_tensor(folder, i);
        const struct tt_safetensors *file = tt_model_folder_file(folder, entry);
        const char *name = tt_json_text(tt_json_get(weight_map, entry->name));
        if (file == NULL || name == NULL || strcmp(tt_path_basename(tt_safetensors_path(file)), name) != 0)
            abort();
        if (strcmp(entry->name, "secret") == 0) abort();
        if (tt_model_folder_read(folder, entry, 0, 2, values, TT_F32) != TT_OK || values[0] != 0) abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static bool ready;
    if (!ready) {
        if (mkdir(fuzz_path("model"), 0700) != 0) abort();
        write_weights("outside.safetensors", "secret", NULL);
        fuzz_write("model/config.json", "{}", 2);
        write_weights("model/model-00001-of-00002.safetensors", "a", NULL);
        write_weights("model/model-00002-of-00002.safetensors", "b", "c");
        ready = true;
    }
    struct tt_model_folder *folder = NULL;
    struct tt_json index = {0};
    const char *path = fuzz_write("model/model.safetensors.index.json", data, size);
    if (tt_json_read(path, size + 1, &index) != TT_OK) index.root = NULL;
    if (tt_model_folder_open(fuzz_path("model"), true, &folder) == TT_OK) {
        if (index.root == NULL) abort();
        check_tensors(folder, tt_json_get(index.root, "weight_map"));
    }
    tt_model_folder_close(folder);
    tt_json_deinit(&index);
    return 0;
}
