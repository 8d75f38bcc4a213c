#include "checkpoint/plain_adapter.h"

#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/str.h"

struct joining {
    const struct tt_safetensors *trained;
    const struct tt_first_adapter *first;
    struct tt_safetensors_entry *entries;
    size_t count;
    struct tt_str header;
    uint64_t bytes;
    int descriptor;
    const char *path;
};

/* The first values of a matrix; NULL: it has none. */
static const struct tt_safetensors_entry *find_first(const struct joining *joining, const char *name)
{
    return tt_safetensors_find(joining->first->file, name);
}

static bool is_b(const char *name)
{
    return tt_ends_with(name, ".lora_B.weight");
}

static tt_status lay_out(struct joining *joining)
{
    joining->count = tt_safetensors_count(joining->trained);
    joining->entries = tt_calloc(joining->count + 1, sizeof *joining->entries);
    if (joining->entries == NULL) return TT_ERR_MEMORY;
    for (size_t i = 0; i < joining->count; i++) {
        struct tt_safetensors_entry *entry = &joining->entries[i];
        *entry = *tt_safetensors_entry(joining->trained, i);
        const struct tt_safetensors_entry *first = find_first(joining, entry->name);
        if (first == NULL) continue;
        if (first->rank != 2 || entry->rank != 2 || first->dims[0] != entry->dims[0] ||
            first->dims[1] != entry->dims[1])
            return tt_fail(TT_ERR_INTERNAL, "'%s' has other first values", entry->name);
        entry->dims[is_b(entry->name)] *= 2;
    }
    return tt_safetensors_layout(joining->entries, joining->count, &joining->header, &joining->bytes);
}

/* The values of a tensor as it is, or beside those of `first`: A above A', B left of -B'. */
static tt_status read_values(const struct joining *joining, const struct tt_safetensors_entry *trained,
                             const struct tt_safetensors_entry *first, char *to)
{
    size_t width = tt_dtype_bytes(trained->dtype);
    int64_t count = tt_safetensors_elements(trained);
    if (first == NULL || !is_b(trained->name)) {
        TT_TRY(tt_safetensors_read(joining->trained, trained, 0, count, to, trained->dtype));
        if (first == NULL) return TT_OK;
        return tt_safetensors_read(joining->first->file, first, 0, count, to + (size_t)count * width,
                                   trained->dtype);
    }
    float *both = tt_alloc_aligned(2 * (size_t)count * sizeof *both);
    if (both == NULL) return TT_ERR_MEMORY;
    tt_status status = tt_safetensors_read(joining->trained, trained, 0, count, both, TT_F32);
    if (status == TT_OK)
        status = tt_safetensors_read(joining->first->file, first, 0, count, both + count, TT_F32);
    float sign = joining->first->negated ? 1.0f : -1.0f;
    for (int64_t i = 0; i < count && status == TT_OK; i++) both[count + i] *= sign;
    int64_t r = trained->dims[1];
    for (int64_t row = 0; row < 2 * trained->dims[0] && status == TT_OK; row++) {
        int64_t from = row % 2 * count + row / 2 * r;
        (void)tt_dtype_convert(to + (size_t)(row * r) * width, trained->dtype, both + from, TT_F32,
                               (size_t)r);
    }
    tt_free(both);
    return status;
}

static tt_status write_tensor(const struct joining *joining, const struct tt_safetensors_entry *entry)
{
    const struct tt_safetensors_entry *trained = tt_safetensors_find(joining->trained, entry->name);
    char *values = tt_alloc_aligned((size_t)entry->bytes + 1);
    if (values == NULL) return TT_ERR_MEMORY;
    tt_status status = read_values(joining, trained, find_first(joining, entry->name), values);
    if (status == TT_OK)
        status = tt_file_pwrite(joining->descriptor, joining->path, values, entry->bytes, entry->offset);
    tt_free(values);
    return status;
}

static tt_status write_file(struct joining *joining)
{
    TT_TRY(lay_out(joining));
    TT_TRY(tt_file_create(joining->path, joining->bytes, &joining->descriptor));
    tt_status status =
        tt_file_pwrite(joining->descriptor, joining->path, joining->header.data, joining->header.bytes, 0);
    for (size_t i = 0; i < joining->count && status == TT_OK; i++)
        status = write_tensor(joining, &joining->entries[i]);
    if (status == TT_OK) return tt_file_sync_close(joining->descriptor, joining->path);
    tt_file_close(joining->descriptor);
    return status;
}

tt_status tt_plain_adapter_write(const char *folder, const char *name, const struct tt_first_adapter *first)
{
    struct joining joining = {.first = first};
    struct tt_safetensors *trained = NULL;
    struct tt_path from, to;
    TT_TRY(tt_path_set(&from, folder, name));
    TT_TRY(tt_path_set(&to, folder, ".plain.safetensors"));
    TT_TRY(tt_safetensors_open(from.text, &trained));
    joining.trained = trained;
    joining.path = to.text;
    tt_status status = write_file(&joining);
    tt_safetensors_close(trained);
    tt_free(joining.entries);
    tt_str_deinit(&joining.header);
    if (status == TT_OK) status = tt_file_rename(to.text, from.text);
    if (status != TT_OK) tt_while("writing '%s' as an adapter of the base as it was", from.text);
    return status;
}
