#include "io/fp8_experts.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/integer.h"
#include "base/str.h"
#include "io/param_source_impl.h"
#include "io/quantized_impl.h"
#include "io/safetensors_impl.h"

enum { READ_NUMBERS = 1 << 14 };

static const char weight_end[] = ".weight";

/* The sources of each tensor of the file. */
struct tt_fp8_experts {
    const struct tt_model_folder *folder;
    struct tt_quantized *items;
};

void tt_fp8_experts_destroy(struct tt_fp8_experts *experts)
{
    if (experts == NULL) return;
    tt_free(experts->items);
    tt_free(experts);
}

tt_status tt_fp8_experts_read(const struct tt_safetensors *file, const struct tt_safetensors_entry *entry,
                              int64_t first, int64_t count, void *to)
{
    const struct tt_quantized *from = &file->fp8->items[entry - file->entries];
    float numbers[READ_NUMBERS];
    uint16_t *out = to;
    for (int64_t done = 0, here; done < count; done += here) {
        here = tt_smaller(READ_NUMBERS, count - done);
        TT_TRY(tt_quantized_read_weights(file->fp8->folder, from, first + done, here, numbers));
        for (int64_t i = 0; i < here; i++) out[done + i] = tt_f32_to_bf16(numbers[i]);
    }
    return TT_OK;
}

/* The tensor beside a weight: its name with another end. */
static const struct tt_stored_tensor_place *beside(const struct tt_stored_tensor_place *tensors, size_t count,
                                                   const char *weight, const char *end)
{
    char name[TT_SOURCE_NAME_BYTES];
    int module = (int)(strlen(weight) - strlen(weight_end));
    int bytes = snprintf(name, sizeof name, "%.*s%s", module, weight, end);
    return bytes > 0 && (size_t)bytes < sizeof name ? tt_stored_tensor_find(tensors, count, name) : NULL;
}

static const struct tt_stored_tensor_place *find_scales(const struct tt_stored_tensor_place *tensors,
                                                        size_t count, const char *weight)
{
    const struct tt_stored_tensor_place *scales = beside(tensors, count, weight, ".weight_scale_inv");
    return scales != NULL ? scales : beside(tensors, count, weight, ".weight_scale");
}

/* Codes of a single expert's matrix. */
static bool is_coded(const struct tt_param_sources *sources, const struct tt_stored_tensor_place *place)
{
    struct tt_source_numbers numbers;
    if (place->entry->dtype != TT_F8_E4M3 || !tt_ends_with(place->name, weight_end)) return false;
    for (const struct tt_param_source *row = sources->rows; row->param != NULL; row++)
        for (int p = 0; p < tt_source_part_count(row); p++)
            if (tt_source_by_expert(&row->parts[p]) &&
                tt_source_fits(sources->path, row->parts[p].tensor, place->name, &numbers))
                return true;
    return false;
}

/* Scales of such a matrix, and of its input, which training does not read. */
static bool is_beside(const struct tt_safetensors *file, const struct tt_stored_tensor_place *place)
{
    size_t bytes;
    char name[TT_SOURCE_NAME_BYTES];
    if (!tt_quantized_is_part(place->name, &bytes) || bytes + sizeof weight_end > sizeof name) return false;
    (void)snprintf(name, sizeof name, "%.*s%s", (int)bytes, place->name, weight_end);
    return tt_safetensors_find(file, name) != NULL;
}

static tt_status add(struct tt_safetensors *file, const struct tt_stored_tensor_place *codes,
                     const struct tt_stored_tensor_place *scales)
{
    struct tt_safetensors_entry *entry = &file->entries[file->count];
    TT_TRY(tt_fp8_find(codes->entry, scales->entry, &file->fp8->items[file->count]));
    *entry = *codes->entry;
    entry->name = tt_arena_strdup(&file->arena, codes->name);
    if (entry->name == NULL) return TT_ERR_MEMORY;
    entry->dtype = TT_BF16;
    memcpy(entry->dtype_name, "BF16", sizeof "BF16");
    entry->bytes *= tt_dtype_bytes(TT_BF16);
    entry->offset = file->file_bytes;
    file->file_bytes += entry->bytes;
    file->count++;
    return TT_OK;
}

static tt_status create_file(const struct tt_model_folder *folder, size_t most, struct tt_safetensors **out)
{
    struct tt_safetensors *file = *out = tt_safetensors_create(tt_model_folder_path(folder), most);
    if (file == NULL) return TT_ERR_MEMORY;
    file->fp8 = tt_calloc(1, sizeof *file->fp8);
    if (file->fp8 == NULL) return TT_ERR_MEMORY;
    file->fp8->folder = folder;
    file->fp8->items = tt_calloc(most, sizeof *file->fp8->items);
    return file->fp8->items != NULL ? TT_OK : TT_ERR_MEMORY;
}

/* Only tensors whose scales are there. */
static const struct tt_stored_tensor_place *scales_of(const struct tt_param_sources *sources,
                                                      const struct tt_stored_tensor_place *tensors,
                                                      size_t count, size_t index)
{
    return is_coded(sources, &tensors[index]) ? find_scales(tensors, count, tensors[index].name) : NULL;
}

tt_status tt_fp8_experts_show(const struct tt_model_folder *folder, const struct tt_param_sources *sources,
                              struct tt_stored_tensor_place *tensors, size_t *count,
                              struct tt_safetensors **out)
{
    size_t coded = 0, kept = 0;
    struct tt_safetensors *file = NULL;
    tt_status status = TT_OK;
    *out = NULL;
    for (size_t i = 0; i < *count; i++) coded += scales_of(sources, tensors, *count, i) != NULL;
    if (coded == 0) return TT_OK;
    TT_GO(create_file(folder, coded, &file));
    for (size_t i = 0; i < *count; i++) {
        const struct tt_stored_tensor_place *scales = scales_of(sources, tensors, *count, i);
        if (scales != NULL) TT_GO(add(file, &tensors[i], scales));
    }
    TT_GO(tt_safetensors_index(file));
    for (size_t i = 0, next = 0; i < *count; i++) {
        const struct tt_safetensors_entry *entry = next < file->count ? &file->entries[next] : NULL;
        if (entry != NULL && strcmp(entry->name, tensors[i].name) == 0) {
            tensors[kept++] = (struct tt_stored_tensor_place){entry->name, entry, file};
            next++;
        } else if (!is_beside(file, &tensors[i])) {
            tensors[kept++] = tensors[i];
        }
    }
    *count = kept;
    *out = file;
    file = NULL;
out:
    tt_safetensors_close(file);
    return status;
}
