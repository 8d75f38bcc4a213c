#include "io/mxfp4.h"

#include <string.h>

#include "base/alloc.h"
#include "base/integer.h"
#include "base/str.h"
#include "io/param_source_impl.h"
#include "io/safetensors_impl.h"
#include "tensor/mxfp4.h"

static const char codes_ending[] = "_blocks", scales_ending[] = "_scales";

enum { READ_NUMBERS = 1 << 16 };

struct coded {
    struct tt_stored_tensor_place codes, scales;
};

/* The sources of each tensor of the file. */
struct tt_mxfp4_tensors {
    struct coded *items;
};

void tt_mxfp4_destroy(struct tt_mxfp4_tensors *tensors)
{
    if (tensors == NULL) return;
    tt_free(tensors->items);
    tt_free(tensors);
}

tt_status tt_mxfp4_read(const struct tt_safetensors *file, const struct tt_safetensors_entry *entry,
                        int64_t first, int64_t count, void *to)
{
    const struct coded *coded = &file->mxfp4->items[entry - file->entries];
    uint8_t codes[READ_NUMBERS / 2 + TT_MXFP4_BYTES], scales[READ_NUMBERS / TT_MXFP4_BLOCK + 1];
    uint16_t *out = to;
    while (count > 0) {
        int64_t skipped = first % TT_MXFP4_BLOCK, block = first / TT_MXFP4_BLOCK;
        int64_t here = tt_smaller(READ_NUMBERS, skipped + count);
        int64_t blocks = (here + TT_MXFP4_BLOCK - 1) / TT_MXFP4_BLOCK;
        TT_TRY(tt_safetensors_read(coded->codes.file, coded->codes.entry, block * TT_MXFP4_BYTES,
                                   blocks * TT_MXFP4_BYTES, codes, TT_U8));
        TT_TRY(tt_safetensors_read(coded->scales.file, coded->scales.entry, block, blocks, scales, TT_U8));
        tt_mxfp4_decode(codes, scales, skipped, here - skipped, out);
        out += here - skipped;
        first += here - skipped;
        count -= here - skipped;
    }
    return TT_OK;
}

static bool is_coded(const struct tt_stored_tensor_place *place)
{
    const struct tt_safetensors_entry *entry = place->entry;
    return tt_ends_with(place->name, codes_ending) && entry->dtype == TT_U8 && entry->rank >= 2 &&
           entry->dims[entry->rank - 1] == TT_MXFP4_BYTES;
}

/* The scales beside the codes. */
static tt_status find_scales(const char *origin, const struct tt_stored_tensor_place *tensors, size_t count,
                             const struct tt_stored_tensor_place *codes,
                             const struct tt_stored_tensor_place **out)
{
    char name[TT_SOURCE_NAME_BYTES];
    const struct tt_safetensors_entry *entry = codes->entry;
    size_t bytes = strlen(codes->name) - strlen(codes_ending);
    if (bytes + sizeof scales_ending > sizeof name)
        return tt_fail(TT_ERR_DATA, "'%s': the name '%s' is longer than %d bytes", origin, codes->name,
                       TT_SOURCE_NAME_BYTES);
    memcpy(name, codes->name, bytes);
    memcpy(name + bytes, scales_ending, sizeof scales_ending);
    *out = tt_stored_tensor_find(tensors, count, name);
    if (*out == NULL) return tt_fail(TT_ERR_DATA, "'%s' has '%s' and lacks '%s'", origin, codes->name, name);
    const struct tt_safetensors_entry *scales = (*out)->entry;
    bool fits = scales->dtype == TT_U8 && scales->rank == entry->rank - 1;
    for (int d = 0; d < entry->rank - 1 && fits; d++) fits = scales->dims[d] == entry->dims[d];
    if (fits) return TT_OK;
    return tt_fail(TT_ERR_DATA, "'%s': '%s' has another type or shape than the scales of '%s'", origin, name,
                   codes->name);
}

static tt_status create_file(const char *origin, size_t most, struct tt_safetensors **out)
{
    struct tt_safetensors *file = *out = tt_safetensors_create(origin, most);
    if (file == NULL) return TT_ERR_MEMORY;
    file->mxfp4 = tt_calloc(1, sizeof *file->mxfp4);
    if (file->mxfp4 != NULL) file->mxfp4->items = tt_calloc(most, sizeof *file->mxfp4->items);
    return file->mxfp4 != NULL && file->mxfp4->items != NULL ? TT_OK : TT_ERR_MEMORY;
}

/* The decoded tensor. */
static tt_status add_tensor(struct tt_safetensors *file, const struct tt_stored_tensor_place *codes,
                            const struct tt_stored_tensor_place *scales)
{
    struct tt_safetensors_entry entry = *codes->entry;
    int last = entry.rank - 2;
    entry.name = tt_arena_strdup(&file->arena, codes->name);
    if (entry.name == NULL) return TT_ERR_MEMORY;
    entry.dtype = TT_BF16;
    memcpy(entry.dtype_name, "BF16", sizeof "BF16");
    entry.dims[last] *= TT_MXFP4_BLOCK;
    entry.rank--;
    entry.bytes *= 4; /* 2 numbers a byte, 2 bytes a number */
    entry.offset = file->file_bytes;
    file->file_bytes += entry.bytes;
    file->mxfp4->items[file->count] = (struct coded){*codes, *scales};
    file->entries[file->count++] = entry;
    return TT_OK;
}

tt_status tt_mxfp4_show(const char *origin, struct tt_stored_tensor_place *tensors, size_t *count,
                        struct tt_safetensors **out)
{
    size_t coded = 0, kept = 0;
    struct tt_safetensors *file = NULL;
    tt_status status = TT_OK;
    *out = NULL;
    for (size_t i = 0; i < *count; i++) coded += is_coded(&tensors[i]);
    if (coded == 0) return TT_OK;
    TT_GO(create_file(origin, coded, &file));
    for (size_t i = 0; i < *count; i++) {
        const struct tt_stored_tensor_place *scales;
        if (!is_coded(&tensors[i])) continue;
        TT_GO(find_scales(origin, tensors, *count, &tensors[i], &scales));
        TT_GO(add_tensor(file, &tensors[i], scales));
    }
    TT_GO(tt_safetensors_index(file));
    for (size_t i = 0, next = 0; i < *count; i++) {
        bool is_scales = false;
        if (is_coded(&tensors[i])) {
            const struct tt_safetensors_entry *entry = &file->entries[next++];
            tensors[kept++] = (struct tt_stored_tensor_place){entry->name, entry, file};
            continue;
        }
        for (size_t s = 0; s < coded && !is_scales; s++)
            is_scales = file->mxfp4->items[s].scales.entry == tensors[i].entry;
        if (!is_scales) tensors[kept++] = tensors[i];
    }
    *count = kept;
    *out = file;
    file = NULL;
out:
    tt_safetensors_close(file);
    return status;
}
