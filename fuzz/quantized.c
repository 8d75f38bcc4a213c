/* A folder of quantized weights: the safetensors file is the input. Weights are found or refused, and reading
 * them accesses only their own memory and bytes of the file. An input that begins with a brace is parsed as JSON
 * instead: as the state of a weight, and as a config.json. */
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

/* The numbers of FP8 in two pieces. */
static void read_numbers(const struct tt_model_folder *folder, const struct tt_quantized *tensor)
{
    int64_t count = tensor->layout.count, middle = count / 3;
    if (tensor->layout.bytes > SEGMENT_MAX) return;
    float *whole = malloc((size_t)count * sizeof *whole), *parts = malloc((size_t)count * sizeof *parts);
    if (whole == NULL || parts == NULL) abort();
    if (tt_quantized_read_weights(folder, tensor, 0, count, whole) != TT_OK) abort();
    if (tt_quantized_read_weights(folder, tensor, 0, middle, parts) != TT_OK) abort();
    if (tt_quantized_read_weights(folder, tensor, middle, count - middle, parts + middle) != TT_OK) abort();
    if (memcmp(whole, parts, (size_t)count * sizeof *whole) != 0) abort();
    (void)!tt_quantized_check_values(folder, tensor);
    free(parts);
    free(whole);
}

static void read_weight(const struct tt_model_folder *folder, const struct tt_quantized *tensor)
{
    size_t bytes = tensor->layout.bytes, middle = bytes / 3;
    if (tensor->layout.format.type == TT_QUANT_FP8) read_numbers(folder, tensor);
    if (bytes > SEGMENT_MAX || tensor->scales == TT_FP8_BLOCK_SCALES) return;
    uint8_t *whole = malloc(bytes), *parts = malloc(bytes);
    float *values = malloc((size_t)tensor->layout.count * sizeof *values);
    if (whole == NULL || parts == NULL || values == NULL) abort();
    if (tt_quantized_read(folder, tensor, 0, bytes, whole) != TT_OK) abort(); /* it has been checked */
    if (tt_quantized_read(folder, tensor, 0, middle, parts) != TT_OK) abort();
    if (tt_quantized_read(folder, tensor, middle, bytes - middle, parts + middle) != TT_OK) abort();
    if (memcmp(whole, parts, bytes) != 0) abort();
    tt_quant_decode(&tensor->layout, whole, 0, tensor->layout.count, values, TT_F32);
    (void)!tt_quantized_check_values(folder, tensor);
    free(values);
    free(parts);
    free(whole);
}

/* The sections follow each other in the segment. */
static void check_layout(const struct tt_quant_layout *layout)
{
    const struct tt_quant_section sections[] = {layout->codes, layout->absmax,     layout->nested_absmax,
                                                layout->map,   layout->nested_map, layout->offset};
    size_t end = 0;
    for (size_t i = 0; i < sizeof sections / sizeof *sections; i++) {
        if (sections[i].bytes == 0) continue;
        if (sections[i].offset < end || sections[i].bytes > layout->bytes - sections[i].offset) abort();
        end = sections[i].offset + sections[i].bytes;
    }
    if (end > layout->bytes || layout->bytes % TT_QUANT_ALIGN != 0) abort();
}

static void decode_zeros(const struct tt_quant_layout *layout)
{
    if (layout->bytes > SEGMENT_MAX) return;
    uint8_t *segment = calloc(1, layout->bytes);
    float *values = malloc((size_t)layout->count * sizeof *values);
    if (segment == NULL || values == NULL) abort();
    tt_quant_decode(layout, segment, 0, layout->count, values, TT_F32);
    free(values);
    free(segment);
}

/* The text written from a state parses to the same state. */
static void read_state(const char *text, size_t bytes)
{
    struct tt_quant_layout layout = {0}, layout_again = {0};
    struct tt_str written = {0};
    tt_dtype dtype = TT_DTYPE_NONE, dtype_again = TT_DTYPE_NONE;
    float offset = 0, offset_again = 0;
    if (tt_quantized_state_parse(text, bytes, "fuzz", &layout, &dtype, &offset) != TT_OK) return;
    check_layout(&layout);
    decode_zeros(&layout);
    if (tt_quantized_state_write(&layout, dtype, offset, &written) != TT_OK ||
        tt_quantized_state_parse(tt_str_text(&written), written.bytes, "written", &layout_again, &dtype_again,
                                 &offset_again) != TT_OK)
        abort();
    if (layout_again.rows != layout.rows || layout_again.cols != layout.cols ||
        layout_again.bytes != layout.bytes || layout_again.format.type != layout.format.type ||
        layout_again.format.block != layout.format.block ||
        layout_again.format.nested_block != layout.format.nested_block || dtype_again != dtype ||
        memcmp(&offset_again, &offset, sizeof offset) != 0)
        abort();
    tt_str_deinit(&written);
}

static void read_config(const char *text, size_t bytes)
{
    struct tt_json json = {0}, json_again = {0};
    struct tt_quantized_config config, again;
    if (tt_json_parse(text, bytes, "fuzz", &json) != TT_OK) return;
    if (tt_quantized_config_read(&json, &config) == TT_OK && config.type != TT_QUANT_NONE) {
        for (size_t i = 0; i < tt_json_count(config.skip_list) && i < TT_QUANTIZED_SKIP_MAX; i++)
            config.skip[config.skip_count++] = tt_json_text(tt_json_at(config.skip_list, i));
        json_again = (struct tt_json){.root = tt_json_new_object(), .origin = "written"};
        struct tt_json_value *made = tt_quantized_config_make(&config);
        if (made == NULL || tt_json_set(json_again.root, "quantization_config", made) != 0 ||
            tt_quantized_config_read(&json_again, &again) != TT_OK)
            abort();
        if (again.type != config.type || again.nested != config.nested ||
            tt_json_count(again.skip_list) != (size_t)config.skip_count ||
            again.compute_dtype != config.compute_dtype || again.storage_dtype != config.storage_dtype)
            abort();
        for (int i = 0; i < config.skip_count; i++)
            if (strcmp(tt_json_text(tt_json_at(again.skip_list, (size_t)i)), config.skip[i]) != 0) abort();
    }
    tt_json_deinit(&json);
    tt_json_deinit(&json_again);
}

static void read_folder(const uint8_t *data, size_t size)
{
    struct tt_model_folder *folder = NULL;
    if (weights < 0) make_folder();
    if (ftruncate(weights, 0) != 0 || pwrite(weights, data, size, 0) != (ssize_t)size) abort();
    if (tt_model_folder_open(folder_path, true, &folder) != TT_OK) return;
    for (size_t i = 0; i < tt_model_folder_tensor_count(folder); i++) {
        const char *name = tt_model_folder_tensor(folder, i)->name;
        struct tt_quantized tensor;
        size_t module_bytes;
        if (tt_quantized_is_part(name, &module_bytes) && module_bytes >= strlen(name)) abort();
        if (tt_quantized_find(folder, name, &tensor) != TT_OK) continue;
        if (tensor.layout.format.type != TT_QUANT_NONE) read_weight(folder, &tensor);
    }
    tt_model_folder_close(folder);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size > 0 && data[0] == '{') {
        read_state((const char *)data, size);
        read_config((const char *)data, size);
    } else {
        read_folder(data, size);
    }
    return 0;
}
