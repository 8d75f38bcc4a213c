#include "io/safetensors.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"
#include "io/safetensors_impl.h"
#include "io/safetensors_types.h"

/* The reference reader's limit (safetensors/src/tensor.rs, MAX_HEADER_SIZE). */
#define HEADER_BYTES_MAX 100000000u
#define READ_BUFFER_BYTES ((size_t)512 << 10)

static tt_status read_metadata(struct tt_safetensors *file, const struct tt_json_value *object)
{
    if (!tt_json_is_object(object)) {
        return tt_fail(TT_ERR_DATA, "'%s': __metadata__ must be an object of strings", file->path);
    }
    size_t count = tt_json_count(object);
    file->metadata = tt_arena_alloc(&file->arena, (count + 1) * sizeof *file->metadata);
    if (file->metadata == NULL) return TT_ERR_MEMORY;
    const char *key;
    const struct tt_json_value *value;
    for (size_t member = 0; tt_json_next_member(object, &member, &key, &value);) {
        if (!tt_json_is_string(value)) {
            return tt_fail(TT_ERR_DATA, "'%s': __metadata__ '%s' must be a string", file->path, key);
        }
        struct tt_safetensors_pair pair = {tt_arena_strdup(&file->arena, key),
                                           tt_arena_strdup(&file->arena, tt_json_text(value))};
        if (pair.key == NULL || pair.value == NULL) return TT_ERR_MEMORY;
        file->metadata[file->metadata_count++] = pair;
    }
    return TT_OK;
}

/* Returns a member that must be a list of integers >= 0. */
static tt_status read_list(const struct tt_safetensors *file, const struct tt_json_value *object,
                           const char *name, const char *key, const struct tt_json_value **out)
{
    const struct tt_json_value *list = tt_json_get(object, key);
    if (!tt_json_is_list(list)) {
        return tt_fail(TT_ERR_DATA, "'%s': tensor '%s' has no list '%s'", file->path, name, key);
    }
    for (size_t i = 0; i < tt_json_count(list); i++) {
        const struct tt_json_value *value = tt_json_at(list, i);
        if (!tt_json_is_integer(value) || tt_json_integer(value) < 0) {
            return tt_fail(TT_ERR_DATA, "'%s': tensor '%s': '%s' must hold integers of 0 and more",
                           file->path, name, key);
        }
    }
    *out = list;
    return TT_OK;
}

/* Bytes of a shape of a type, neither of which is trusted. */
static tt_status check_shape(const struct tt_safetensors *file, const struct tt_safetensors_entry *entry,
                             unsigned bits, uint64_t *bytes)
{
    uint64_t count = 1, all_bits;
    bool fits = true, empty = false;
    /* The other dimensions of an empty tensor are multiplied too, so that later products cannot overflow. */
    for (int i = 0; i < entry->rank; i++) {
        uint64_t dim = (uint64_t)entry->dims[i];
        if (dim == 0) empty = true;
        fits = fits && !__builtin_mul_overflow(count, dim > 0 ? dim : 1, &count);
    }
    /* One bound for all later arithmetic: element counts and byte counts fit int64. */
    if (!fits || __builtin_mul_overflow(count, (uint64_t)bits, &all_bits) || all_bits > INT64_MAX) {
        return tt_fail(TT_ERR_DATA, "'%s': tensor '%s' has a shape of more elements than a file can hold",
                       file->path, entry->name);
    }
    if (empty) all_bits = 0;
    if (all_bits % 8 != 0) {
        return tt_fail(TT_ERR_DATA, "'%s': tensor '%s' of type %s does not end at a byte", file->path,
                       entry->name, entry->dtype_name);
    }
    *bytes = all_bits / 8;
    return TT_OK;
}

static tt_status read_entry(struct tt_safetensors *file, const char *name, const struct tt_json_value *object,
                            uint64_t data_start, struct tt_safetensors_entry *entry)
{
    entry->name = tt_arena_strdup(&file->arena, name);
    if (entry->name == NULL) return TT_ERR_MEMORY;
    const char *dtype = tt_json_text(tt_json_get(object, "dtype"));
    if (dtype == NULL) return tt_fail(TT_ERR_DATA, "'%s': tensor '%s' has no 'dtype'", file->path, name);
    const struct tt_safetensors_type *type = tt_safetensors_type_find(dtype);
    if (type == NULL) {
        return tt_fail(TT_ERR_DATA, "'%s': tensor '%s' has the unknown type '%.40s'", file->path, name,
                       dtype);
    }
    entry->dtype = tt_dtype_from_name(dtype, strlen(dtype));
    memcpy(entry->dtype_name, type->name, sizeof entry->dtype_name);

    const struct tt_json_value *shape, *offsets;
    TT_TRY(read_list(file, object, name, "shape", &shape));
    TT_TRY(read_list(file, object, name, "data_offsets", &offsets));
    if (tt_json_count(shape) > TT_SAFETENSORS_RANK_MAX) {
        return tt_fail(TT_ERR_UNSUPPORTED, "'%s': tensor '%s' has %zu dimensions; at most %d are supported",
                       file->path, name, tt_json_count(shape), TT_SAFETENSORS_RANK_MAX);
    }
    entry->rank = (int)tt_json_count(shape);
    for (int i = 0; i < entry->rank; i++) entry->dims[i] = tt_json_integer(tt_json_at(shape, (size_t)i));
    uint64_t bytes;
    TT_TRY(check_shape(file, entry, type->bits, &bytes));

    if (tt_json_count(offsets) != 2) {
        return tt_fail(TT_ERR_DATA, "'%s': tensor '%s': 'data_offsets' must hold two numbers", file->path,
                       name);
    }
    uint64_t begin = (uint64_t)tt_json_integer(tt_json_at(offsets, 0));
    uint64_t end = (uint64_t)tt_json_integer(tt_json_at(offsets, 1));
    uint64_t data_bytes = file->file_bytes - data_start;
    if (begin > end) {
        return tt_fail(TT_ERR_DATA, "'%s': tensor '%s' ends (%llu) before it begins (%llu)", file->path, name,
                       (unsigned long long)end, (unsigned long long)begin);
    }
    if (end > data_bytes) {
        tt_fail(TT_ERR_DATA, "'%s': tensor '%s' ends at byte %llu of the data, of which the file has %llu",
                file->path, name, (unsigned long long)end, (unsigned long long)data_bytes);
        tt_hint("the file is incomplete: download or write it again");
        return TT_ERR_DATA;
    }
    if (end - begin != bytes) {
        return tt_fail(TT_ERR_DATA, "'%s': tensor '%s' has %llu bytes, but its type and shape need %llu",
                       file->path, name, (unsigned long long)(end - begin), (unsigned long long)bytes);
    }
    entry->offset = data_start + begin;
    entry->bytes = bytes;
    return TT_OK;
}

static int compare_offsets(const void *a, const void *b)
{
    const struct tt_safetensors_entry *x = a, *y = b;
    if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
    /* Empty tensors share their offset with the one that follows. */
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? -1 : 1;
    return strcmp(x->name, y->name);
}

static int compare_names(const void *a, const void *b)
{
    const struct tt_safetensors_entry *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

static tt_status sort_names(struct tt_safetensors *file)
{
    for (size_t i = 0; i < file->count; i++) file->by_name[i] = &file->entries[i];
    qsort(file->by_name, file->count, sizeof *file->by_name, compare_names);
    for (size_t i = 1; i < file->count; i++)
        if (strcmp(file->by_name[i - 1]->name, file->by_name[i]->name) == 0)
            return tt_fail(TT_ERR_DATA, "'%s' has two tensors '%s'", file->path, file->by_name[i]->name);
    return TT_OK;
}

tt_status tt_safetensors_index(struct tt_safetensors *file)
{
    file->by_name = tt_calloc(file->count + 1, sizeof *file->by_name);
    return file->by_name != NULL ? sort_names(file) : TT_ERR_MEMORY;
}

tt_status tt_safetensors_rename(struct tt_safetensors *file,
                                const char *(*name_of)(const void *context, const char *name,
                                                       struct tt_arena *arena),
                                const void *context)
{
    for (size_t i = 0; i < file->count; i++) {
        file->entries[i].name = name_of(context, file->entries[i].name, &file->arena);
        if (file->entries[i].name == NULL) return TT_ERR_MEMORY;
    }
    return sort_names(file);
}

/* The format allows neither holes nor overlap nor bytes after the last tensor. */
static tt_status check_cover(const struct tt_safetensors *file, uint64_t data_start)
{
    uint64_t at = data_start;
    const char *before = "the header";
    for (size_t i = 0; i < file->count; i++) {
        const struct tt_safetensors_entry *entry = &file->entries[i];
        if (entry->offset != at) {
            return tt_fail(
                TT_ERR_DATA, "'%s': tensor '%s' %s %s: it begins at byte %llu of the data, not at %llu",
                file->path, entry->name, entry->offset < at ? "overlaps with" : "leaves a hole after", before,
                (unsigned long long)(entry->offset - data_start), (unsigned long long)(at - data_start));
        }
        at += entry->bytes;
        before = entry->name;
    }
    if (at != file->file_bytes) {
        return tt_fail(TT_ERR_DATA, "'%s': %llu bytes follow the last tensor", file->path,
                       (unsigned long long)(file->file_bytes - at));
    }
    return TT_OK;
}

static tt_status read_entries(struct tt_safetensors *file, const struct tt_json_value *root,
                              uint64_t data_start)
{
    size_t members = tt_json_count(root);
    file->entries = tt_calloc(members + 1, sizeof *file->entries);
    if (file->entries == NULL) return TT_ERR_MEMORY;
    const char *key;
    const struct tt_json_value *value;
    for (size_t member = 0; tt_json_next_member(root, &member, &key, &value);) {
        if (strcmp(key, "__metadata__") == 0) {
            TT_TRY(read_metadata(file, value));
        } else {
            TT_TRY(read_entry(file, key, value, data_start, &file->entries[file->count]));
            file->count++;
        }
    }
    qsort(file->entries, file->count, sizeof *file->entries, compare_offsets);
    TT_TRY(check_cover(file, data_start));
    return tt_safetensors_index(file);
}

static tt_status fail_header_size(const struct tt_safetensors *file, const unsigned char *start,
                                  uint64_t header_bytes)
{
    tt_fail(TT_ERR_DATA,
            "'%s' is not a safetensors file: it claims a header of %llu bytes; the file has %llu", file->path,
            (unsigned long long)header_bytes, (unsigned long long)file->file_bytes);
    if (memcmp(start, "version ", 8) == 0) {
        tt_hint("it looks like a Git LFS pointer: run 'git lfs pull' in that folder");
    } else if (memcmp(start, "GGUF", 4) == 0) {
        tt_hint(
            "it is a GGUF file, which is written (trimtab export gguf) and not read; the model folder is");
    } else if (start[0] == '{') {
        tt_hint("it looks like JSON: rows are shown by trimtab data --dataset_name %.200s", file->path);
    } else if (header_bytes <= HEADER_BYTES_MAX) {
        tt_hint("the file is incomplete: download or write it again");
    }
    return TT_ERR_DATA;
}

static tt_status read_header(struct tt_safetensors *file)
{
    unsigned char start[8];
    if (file->file_bytes < sizeof start) {
        return tt_fail(TT_ERR_DATA, "'%s' is not a safetensors file: it has only %llu bytes", file->path,
                       (unsigned long long)file->file_bytes);
    }
    TT_TRY(tt_file_pread(file->descriptor, file->path, start, sizeof start, 0));
    uint64_t header_bytes = 0;
    for (int i = 7; i >= 0; i--) header_bytes = header_bytes << 8 | start[i];
    if (header_bytes > HEADER_BYTES_MAX || header_bytes > file->file_bytes - sizeof start) {
        return fail_header_size(file, start, header_bytes);
    }

    tt_status status = TT_OK;
    struct tt_json json = {0};
    char *header = tt_calloc((size_t)header_bytes + 1, 1);
    if (header == NULL) return TT_ERR_MEMORY;
    TT_GO(tt_file_pread(file->descriptor, file->path, header, (size_t)header_bytes, sizeof start));
    /* The reference library skips white space before the object since 0.8. */
    if (header[strspn(header, " \t\r\n")] != '{') {
        TT_GO(tt_fail(TT_ERR_DATA, "'%s' is not a safetensors file: its header does not start with '{'",
                      file->path));
    }
    status = tt_json_parse(header, (size_t)header_bytes, "the header", &json);
    if (status != TT_OK) {
        tt_while("reading '%s'", file->path);
        goto out;
    }
    tt_free(header);
    header = NULL;
    TT_GO(read_entries(file, json.root, sizeof start + header_bytes));
out:
    tt_json_deinit(&json);
    tt_free(header);
    return status;
}

struct tt_safetensors *tt_safetensors_create(const char *path, size_t entries)
{
    struct tt_safetensors *file = tt_calloc(1, sizeof *file);
    if (file == NULL) return NULL;
    file->descriptor = -1;
    file->path = tt_strdup(path);
    if (entries > 0) file->entries = tt_calloc(entries, sizeof *file->entries);
    if (file->path != NULL && (entries == 0 || file->entries != NULL)) return file;
    tt_safetensors_close(file);
    return NULL;
}

tt_status tt_safetensors_open(const char *path, struct tt_safetensors **out)
{
    struct tt_safetensors *file = tt_safetensors_create(path, 0);
    if (file == NULL) return TT_ERR_MEMORY;
    tt_status status = TT_OK;
    TT_GO(tt_file_open_read(path, &file->descriptor, &file->file_bytes));
    TT_GO(read_header(file));
    /* Only a hint to read ahead in larger steps; a failure is harmless. */
    (void)posix_fadvise(file->descriptor, 0, 0, POSIX_FADV_SEQUENTIAL);
    *out = file;
    return TT_OK;
out:
    tt_safetensors_close(file);
    return status;
}

void tt_safetensors_close(struct tt_safetensors *file)
{
    if (file == NULL) return;
    tt_file_close(file->descriptor);
    tt_free(file->path);
    tt_free(file->entries);
    tt_free(file->by_name);
    tt_free(file->strides);
    tt_joined_destroy(file->joined);
    tt_mxfp4_destroy(file->mxfp4);
    tt_coded_experts_destroy(file->coded);
    tt_shown_adapters_destroy(file->adapters);
    tt_grown_rows_destroy(file->grown);
    tt_halves_destroy(file->halves);
    tt_arena_deinit(&file->arena);
    tt_free(file);
}

const char *tt_safetensors_path(const struct tt_safetensors *file)
{
    return file->path;
}

uint64_t tt_safetensors_file_bytes(const struct tt_safetensors *file)
{
    return file->file_bytes;
}

size_t tt_safetensors_count(const struct tt_safetensors *file)
{
    return file->count;
}

const struct tt_safetensors_entry *tt_safetensors_entry(const struct tt_safetensors *file, size_t index)
{
    return index < file->count ? &file->entries[index] : NULL;
}

const struct tt_safetensors_entry *tt_safetensors_find(const struct tt_safetensors *file, const char *name)
{
    size_t low = 0, high = file->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = strcmp(name, file->by_name[middle]->name);
        if (order == 0) return file->by_name[middle];
        if (order < 0) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return NULL;
}

const char *tt_safetensors_metadata(const struct tt_safetensors *file, const char *key)
{
    for (size_t i = 0; i < file->metadata_count; i++) {
        if (strcmp(file->metadata[i].key, key) == 0) return file->metadata[i].value;
    }
    return NULL;
}

static bool is_convertible(tt_dtype dtype)
{
    return dtype == TT_F32 || dtype == TT_BF16 || dtype == TT_F16 || dtype == TT_F64;
}

static tt_status check_read(const struct tt_safetensors *file, const struct tt_safetensors_entry *entry,
                            int64_t first, int64_t count, tt_dtype dtype)
{
    bool readable = entry->dtype != TT_DTYPE_NONE &&
                    (entry->dtype == dtype || (is_convertible(entry->dtype) && is_convertible(dtype)));
    if (!readable) {
        return tt_fail(TT_ERR_UNSUPPORTED, "'%s': tensor '%s' of type %s cannot be read as %s", file->path,
                       entry->name, entry->dtype_name, tt_dtype_name(dtype));
    }
    int64_t elements = (int64_t)(entry->bytes / tt_dtype_bytes(entry->dtype));
    if (first < 0 || count < 0 || first > elements || count > elements - first) {
        return tt_fail(TT_ERR_INTERNAL, "'%s': elements %lld + %lld of tensor '%s', which has %lld",
                       file->path, (long long)first, (long long)count, entry->name, (long long)elements);
    }
    return TT_OK;
}

/* Elements in their own type. */
static tt_status read_raw(const struct tt_safetensors *file, const struct tt_safetensors_entry *entry,
                          int64_t first, int64_t count, void *to)
{
    if (file->joined != NULL) return tt_joined_read(file, entry, first, count, to);
    if (file->mxfp4 != NULL) return tt_mxfp4_read(file, entry, first, count, to);
    if (file->coded != NULL) return tt_coded_experts_read(file, entry, first, count, to);
    if (file->adapters != NULL) return tt_shown_adapters_read(file, entry, first, count, to);
    if (file->grown != NULL) return tt_grown_rows_read(file, entry, first, count, to);
    if (file->halves != NULL) return tt_halves_read(file, entry, first, count, to);
    if (file->strides != NULL && !file->strides[entry - file->entries].by_rows)
        return tt_strided_read(file, entry, first, count, to);
    size_t width = tt_dtype_bytes(entry->dtype);
    return tt_file_pread(file->descriptor, file->path, to, (size_t)count * width,
                         entry->offset + (uint64_t)first * width);
}

tt_status tt_safetensors_read(const struct tt_safetensors *file, const struct tt_safetensors_entry *entry,
                              int64_t first, int64_t count, void *to, tt_dtype dtype)
{
    TT_TRY(check_read(file, entry, first, count, dtype));
    size_t from_bytes = tt_dtype_bytes(entry->dtype), to_bytes = tt_dtype_bytes(dtype);
    tt_status status = TT_OK;
    if (entry->dtype == dtype) {
        status = read_raw(file, entry, first, count, to);
    } else if (count > 0) {
        size_t step = READ_BUFFER_BYTES / from_bytes, left = (size_t)count;
        if (step > left) step = left;
        void *buffer = tt_alloc_aligned(step * from_bytes);
        if (buffer == NULL) status = TT_ERR_MEMORY;
        char *at = to;
        while (status == TT_OK && left > 0) {
            size_t part = left < step ? left : step;
            status = read_raw(file, entry, first, (int64_t)part, buffer);
            if (status != TT_OK) break;
            tt_dtype_convert(at, dtype, buffer, entry->dtype, part);
            at += part * to_bytes;
            first += (int64_t)part;
            left -= part;
        }
        tt_free(buffer);
    }
    if (status != TT_OK) tt_while("reading tensor '%s'", entry->name);
    return status;
}
