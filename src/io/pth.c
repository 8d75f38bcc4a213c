#include "io/pth.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "io/pth_storage.h"
#include "io/safetensors_impl.h"

/* The members of a checkpoint that hold its state dictionary. */
static const char *const wrappers[] = {"model", "state_dict", "model_state_dict", "module"};

/* Reading one file. */
struct opening {
    struct tt_pth_file file;
    struct tt_safetensors *out;
};

/* ---- Tensors ---- */

/* Arguments of a call of torch._utils' functions; NULL: the value is none. */
static const struct tt_pickle_value *arguments_of(const struct tt_pickle_value *value, const char *function)
{
    bool called = value != NULL && value->kind == TT_PICKLE_OBJECT &&
                  tt_pickle_is_global(value->object.callee, "torch._utils", function);
    return called ? value->object.arguments : NULL;
}

/* The arguments of the tensor's rebuilding, also of a parameter's; NULL: not a tensor. *typed: the last but one names
 * the type, and the storage is one of bytes. */
static const struct tt_pickle_value *tensor_arguments(const struct tt_pickle_value *value, bool *typed)
{
    const struct tt_pickle_value *parameter = arguments_of(value, "_rebuild_parameter");
    if (parameter == NULL) parameter = arguments_of(value, "_rebuild_parameter_with_state");
    if (parameter != NULL) value = tt_pickle_at(parameter, 0);
    const struct tt_pickle_value *third = arguments_of(value, "_rebuild_tensor_v3");
    *typed = third != NULL;
    if (third != NULL) return third;
    const struct tt_pickle_value *second = arguments_of(value, "_rebuild_tensor_v2");
    return second != NULL ? second : arguments_of(value, "_rebuild_tensor");
}

static bool is_tensor(const struct tt_pickle_value *value)
{
    bool typed;
    return tensor_arguments(value, &typed) != NULL;
}

/* A tuple of sizes or strides, also as torch.Size. */
static tt_status read_numbers(const struct tt_safetensors *out, const char *name,
                              const struct tt_pickle_value *list, int64_t *numbers, int *count)
{
    if (list != NULL && list->kind == TT_PICKLE_OBJECT &&
        tt_pickle_is_global(list->object.callee, "torch", "Size"))
        list = tt_pickle_at(list->object.arguments, 0);
    if (list == NULL || list->kind != TT_PICKLE_LIST)
        return tt_fail(TT_ERR_DATA, "'%s': the shape of tensor '%s' is no tuple", out->path, name);
    if (list->list.count > TT_SAFETENSORS_RANK_MAX)
        return tt_fail(TT_ERR_UNSUPPORTED, "'%s': tensor '%s' has %u dimensions; at most %d are supported",
                       out->path, name, list->list.count, TT_SAFETENSORS_RANK_MAX);
    *count = (int)list->list.count;
    for (int i = 0; i < *count; i++) {
        const struct tt_pickle_value *number = list->list.items[i];
        if (number->kind != TT_PICKLE_INTEGER || number->integer < 0)
            return tt_fail(TT_ERR_DATA, "'%s': tensor '%s' has a size or stride below 0", out->path, name);
        numbers[i] = number->integer;
    }
    return TT_OK;
}

/* The type: of the storage, or named beside it ("torch float8_e4m3fn"). */
static tt_status read_type(const struct tt_safetensors *out, const struct tt_pth_storage *storage,
                           const struct tt_pickle_value *named, struct tt_safetensors_entry *entry,
                           unsigned *width)
{
    const char *type_name = storage->type_name;
    entry->dtype = storage->dtype;
    *width = storage->width;
    if (named != NULL) {
        if (named->kind != TT_PICKLE_GLOBAL || storage->width != 1)
            return tt_fail(TT_ERR_DATA, "'%s': tensor '%s' has no type", out->path, entry->name);
        type_name = named->global.name;
        entry->dtype = tt_dtype_from_torch_name(type_name);
        if (entry->dtype == TT_DTYPE_NONE)
            return tt_fail(TT_ERR_UNSUPPORTED, "'%s': tensor '%s' is of the unknown type '%s'", out->path,
                           entry->name, type_name);
        *width = (unsigned)tt_dtype_bytes(entry->dtype);
    }
    const char *shown = entry->dtype != TT_DTYPE_NONE ? tt_dtype_name(entry->dtype) : type_name;
    strncpy(entry->dtype_name, shown, sizeof entry->dtype_name - 1);
    return TT_OK;
}

/* Whether all elements are in the storage, and how they are laid out. Nothing is trusted. */
static tt_status check_layout(const struct tt_safetensors *out, struct tt_safetensors_entry *entry,
                              struct tt_tensor_strides *strides, uint64_t offset, uint64_t elements,
                              unsigned width)
{
    uint64_t count = 1, last = offset, extent, bits;
    bool fits = true, empty = false;
    strides->by_rows = true;
    for (int i = entry->rank - 1; i >= 0; i--) {
        uint64_t dim = (uint64_t)entry->dims[i], stride = (uint64_t)strides->of[i];
        if (dim == 0) empty = true;
        if (dim > 1 && stride != count) strides->by_rows = false;
        fits = fits && !__builtin_mul_overflow(count, dim > 0 ? dim : 1, &count);
        fits = fits && !__builtin_mul_overflow(dim > 0 ? dim - 1 : 0, stride, &extent) &&
               !__builtin_add_overflow(last, extent, &last);
    }
    fits = fits && !__builtin_mul_overflow(count, (uint64_t)width * 8, &bits) && bits <= INT64_MAX;
    if (empty) strides->by_rows = true;
    bool inside = empty ? offset <= elements : last < elements;
    if (fits && inside) {
        entry->bytes = empty ? 0 : count * width;
        return TT_OK;
    }
    return tt_fail(TT_ERR_DATA, "'%s': tensor '%s' reaches beyond its storage of %llu elements", out->path,
                   entry->name, (unsigned long long)elements);
}

static tt_status add_tensor(struct opening *opening, const char *name, const struct tt_pickle_value *value)
{
    bool typed;
    struct tt_safetensors *out = opening->out;
    const struct tt_pickle_value *arguments = tensor_arguments(value, &typed);
    const struct tt_pickle_value *stored = tt_pickle_at(arguments, 0), *offset = tt_pickle_at(arguments, 1);
    struct tt_safetensors_entry *entry = &out->entries[out->count];
    struct tt_tensor_strides *strides = &out->strides[out->count];
    *entry = (struct tt_safetensors_entry){.name = tt_arena_strdup(&out->arena, name)};
    if (entry->name == NULL) return TT_ERR_MEMORY;
    if (stored == NULL || stored->kind != TT_PICKLE_STORED || offset == NULL ||
        offset->kind != TT_PICKLE_INTEGER || offset->integer < 0)
        return tt_fail(TT_ERR_DATA, "'%s': tensor '%s' has no storage", out->path, name);
    int stride_count;
    TT_TRY(read_numbers(out, name, tt_pickle_at(arguments, 2), entry->dims, &entry->rank));
    TT_TRY(read_numbers(out, name, tt_pickle_at(arguments, 3), strides->of, &stride_count));
    if (stride_count != entry->rank)
        return tt_fail(TT_ERR_DATA, "'%s': tensor '%s' has %d sizes and %d strides", out->path, name,
                       entry->rank, stride_count);
    const struct tt_pth_storage *storage;
    uint64_t skipped, first;
    unsigned width;
    TT_TRY(tt_pth_file_storage(&opening->file, stored, &storage, &skipped));
    TT_TRY(read_type(out, storage, typed ? tt_pickle_at(arguments, 6) : NULL, entry, &width));
    if (__builtin_add_overflow(skipped, (uint64_t)offset->integer, &first)) first = UINT64_MAX;
    uint64_t elements = storage->elements / (typed ? width : 1);
    TT_TRY(check_layout(out, entry, strides, first, elements, width));
    entry->offset = storage->offset + first * width;
    out->count++;
    return TT_OK;
}

/* ---- The dictionary ---- */

static uint32_t count_tensors(const struct tt_pickle_value *dict)
{
    uint32_t count = 0;
    if (dict == NULL || dict->kind != TT_PICKLE_DICT) return 0;
    for (uint32_t i = 0; i + 1 < dict->list.count; i += 2)
        count += tt_pickle_text(dict->list.items[i]) != NULL && is_tensor(dict->list.items[i + 1]);
    return count;
}

static tt_status fail_no_tensors(const struct opening *opening, const struct tt_pickle_value *root)
{
    const char *path = opening->out->path;
    if (root->kind == TT_PICKLE_OBJECT && root->object.callee->kind == TT_PICKLE_GLOBAL && !is_tensor(root)) {
        tt_fail(TT_ERR_UNSUPPORTED, "'%s' holds an object of the class '%s.%s', not tensors by name", path,
                root->object.callee->global.module, root->object.callee->global.name);
        tt_hint("nothing of a file is executed: save model.state_dict() instead of the model");
        return TT_ERR_UNSUPPORTED;
    }
    tt_fail(TT_ERR_DATA, "'%s' holds no tensors by name", path);
    tt_hint("a state dictionary, or one as the member model, state_dict, model_state_dict or module of a "
            "dictionary, is read");
    return TT_ERR_DATA;
}

static tt_status find_dict(const struct opening *opening, const struct tt_pickle_value **dict)
{
    const struct tt_pickle_value *root = opening->file.object.root;
    *dict = root;
    if (count_tensors(root) > 0) return TT_OK;
    for (size_t i = 0; i < sizeof wrappers / sizeof wrappers[0]; i++) {
        *dict = tt_pickle_get(root, wrappers[i]);
        if (count_tensors(*dict) > 0) return TT_OK;
    }
    return fail_no_tensors(opening, root);
}

/* Members of a state dictionary that are no tensors are ignored, but for the tensors that this reader does not
 * know. */
static tt_status check_other(const struct opening *opening, const char *name,
                             const struct tt_pickle_value *value)
{
    bool called = value->kind == TT_PICKLE_OBJECT && value->object.callee->kind == TT_PICKLE_GLOBAL;
    if (!called || strncmp(value->object.callee->global.module, "torch._", 7) != 0) return TT_OK;
    return tt_fail(TT_ERR_UNSUPPORTED, "'%s': tensor '%s' is made by '%s.%s', which is not supported",
                   opening->out->path, name, value->object.callee->global.module,
                   value->object.callee->global.name);
}

static void drop_prefix(struct tt_safetensors *out)
{
    static const char prefix[] = "module.";
    for (size_t i = 0; i < out->count; i++)
        if (!tt_starts_with(out->entries[i].name, prefix)) return;
    for (size_t i = 0; i < out->count; i++) out->entries[i].name += sizeof prefix - 1;
}

struct placed {
    struct tt_safetensors_entry entry;
    struct tt_tensor_strides strides;
};

static int compare_placed(const void *a, const void *b)
{
    const struct placed *x = a, *y = b;
    if (x->entry.offset != y->entry.offset) return x->entry.offset < y->entry.offset ? -1 : 1;
    if (x->entry.bytes != y->entry.bytes) return x->entry.bytes < y->entry.bytes ? -1 : 1;
    return strcmp(x->entry.name, y->entry.name);
}

static tt_status sort_by_offset(struct tt_safetensors *out)
{
    struct placed *placed = tt_calloc(out->count, sizeof *placed);
    if (placed == NULL) return TT_ERR_MEMORY;
    for (size_t i = 0; i < out->count; i++) placed[i] = (struct placed){out->entries[i], out->strides[i]};
    qsort(placed, out->count, sizeof *placed, compare_placed);
    for (size_t i = 0; i < out->count; i++) {
        out->entries[i] = placed[i].entry;
        out->strides[i] = placed[i].strides;
    }
    tt_free(placed);
    return TT_OK;
}

static tt_status add_tensors(struct opening *opening)
{
    const struct tt_pickle_value *dict;
    struct tt_safetensors *out = opening->out;
    TT_TRY(find_dict(opening, &dict));
    uint32_t count = count_tensors(dict);
    out->entries = tt_calloc(count, sizeof *out->entries);
    out->strides = tt_calloc(count, sizeof *out->strides);
    if (out->entries == NULL || out->strides == NULL) return TT_ERR_MEMORY;
    for (uint32_t i = 0; i + 1 < dict->list.count; i += 2) {
        const char *name = tt_pickle_text(dict->list.items[i]);
        const struct tt_pickle_value *value = dict->list.items[i + 1];
        if (name == NULL) continue;
        TT_TRY(is_tensor(value) ? add_tensor(opening, name, value) : check_other(opening, name, value));
    }
    drop_prefix(out);
    TT_TRY(sort_by_offset(out));
    return tt_safetensors_index(out);
}

/* ---- Opening ---- */

tt_status tt_pth_open(const char *path, struct tt_safetensors **out)
{
    struct opening opening = {.out = tt_safetensors_create(path, 0)};
    struct tt_safetensors *file = opening.out;
    if (file == NULL) return TT_ERR_MEMORY;
    tt_status status = TT_OK;
    TT_GO(tt_file_open_read(path, &file->descriptor, &file->file_bytes));
    TT_GO(tt_pth_file_open(file->descriptor, file->path, file->file_bytes, &opening.file));
    TT_GO(add_tensors(&opening));
    tt_pth_file_close(&opening.file);
    *out = file;
    return TT_OK;
out:
    tt_pth_file_close(&opening.file);
    tt_safetensors_close(file);
    return status;
}

bool tt_pth_is_name(const char *path)
{
    return tt_ends_with(path, ".pth") || tt_ends_with(path, ".pt") || tt_ends_with(path, ".bin");
}

/* safetensors begins with the length of a header and its '{'. */
tt_status tt_weights_open(const char *path, struct tt_safetensors **out, bool *pickled)
{
    int descriptor;
    uint64_t bytes;
    uint8_t head[9] = {0};
    TT_TRY(tt_file_open_read(path, &descriptor, &bytes));
    tt_status status =
        tt_file_pread(descriptor, path, head, bytes < sizeof head ? (size_t)bytes : sizeof head, 0);
    tt_file_close(descriptor);
    if (status != TT_OK) return status;
    bool marked = memcmp(head, "PK\3\4", 4) == 0 || memcmp(head, "\x80\x02\x8a", 3) == 0;
    *pickled = head[8] != '{' && (marked || tt_pth_is_name(path));
    return *pickled ? tt_pth_open(path, out) : tt_safetensors_open(path, out);
}
