#include "io/pth_storage.h"

#include <string.h>

#include "base/alloc.h"
#include "base/file.h"

/* The first bytes of a file of the older container (torch/serialization.py, MAGIC_NUMBER and PROTOCOL_VERSION). */
static const char magic[10] = "\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19";
enum { STREAM_VERSION = 1001, BYTE_ORDER_BYTES_MAX = 16, TAR_MARK_OFFSET = 257 };

static const struct {
    const char *name;
    tt_dtype dtype;
    unsigned width;
} types[] = {
    {"FloatStorage", TT_F32, 4},
    {"HalfStorage", TT_F16, 2},
    {"BFloat16Storage", TT_BF16, 2},
    {"DoubleStorage", TT_F64, 8},
    {"LongStorage", TT_I64, 8},
    {"IntStorage", TT_I32, 4},
    {"ShortStorage", TT_I16, 2},
    {"CharStorage", TT_I8, 1},
    {"ByteStorage", TT_U8, 1},
    {"BoolStorage", TT_BOOL, 1},
    {"UntypedStorage", TT_DTYPE_NONE, 1},
    {"ComplexFloatStorage", TT_DTYPE_NONE, 8},
    {"ComplexDoubleStorage", TT_DTYPE_NONE, 16},
    {"QInt8Storage", TT_DTYPE_NONE, 1},
    {"QUInt8Storage", TT_DTYPE_NONE, 1},
    {"QInt32Storage", TT_DTYPE_NONE, 4},
};

const char *tt_pth_storage_name(tt_dtype dtype)
{
    for (size_t i = 0; dtype != TT_DTYPE_NONE && i < sizeof types / sizeof types[0]; i++)
        if (types[i].dtype == dtype) return types[i].name;
    return NULL;
}

/* ---- What persistent ids say ---- */

/* ('storage', type, key, location, elements[, view]) */
static tt_status read_id(struct tt_pth_file *file, const struct tt_pickle_value *id,
                         struct tt_pth_storage *storage)
{
    const char *kind = tt_pickle_text(tt_pickle_at(id, 0)), *key = tt_pickle_text(tt_pickle_at(id, 2));
    const struct tt_pickle_value *type = tt_pickle_at(id, 1), *elements = tt_pickle_at(id, 4);
    bool well_formed = kind != NULL && strcmp(kind, "storage") == 0 && key != NULL && type != NULL &&
                       type->kind == TT_PICKLE_GLOBAL && elements != NULL &&
                       elements->kind == TT_PICKLE_INTEGER && elements->integer >= 0;
    if (!well_formed)
        return tt_fail(TT_ERR_DATA, "'%s': a persistent id is not one of a storage", file->path);
    *storage = (struct tt_pth_storage){
        .key = key, .type_name = type->global.name, .elements = (uint64_t)elements->integer};
    if (strncmp(type->global.module, "torch", 5) != 0) return TT_OK;
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        if (strcmp(types[i].name, type->global.name) != 0) continue;
        storage->dtype = types[i].dtype;
        storage->width = types[i].width;
    }
    return TT_OK;
}

/* One storage for each key; all ids of a key must agree. */
static tt_status collect(struct tt_pth_file *file)
{
    const struct tt_pickle *object = &file->object;
    file->storages = tt_calloc(object->stored_count + 1, sizeof *file->storages);
    if (file->storages == NULL) return TT_ERR_MEMORY;
    for (size_t i = 0; i < object->stored_count; i++) {
        struct tt_pth_storage storage;
        size_t number;
        TT_TRY(read_id(file, object->stored[i]->id, &storage));
        if (!tt_name_index_find(&file->index, storage.key, &number)) {
            file->storages[file->count] = storage;
            TT_TRY(tt_name_index_add(&file->index, storage.key, file->count++));
            continue;
        }
        const struct tt_pth_storage *other = &file->storages[number];
        if (other->elements != storage.elements || strcmp(other->type_name, storage.type_name) != 0)
            return tt_fail(TT_ERR_DATA, "'%s': storage '%s' is given two types or sizes", file->path,
                           storage.key);
    }
    return TT_OK;
}

/* ---- The archive ---- */

/* The member "ANYTHING/data.pkl". */
static const struct tt_zip_member *find_object(const struct tt_zip *zip)
{
    for (size_t i = 0; i < zip->count; i++) {
        const char *slash = strchr(zip->members[i].name, '/');
        if (slash != NULL && strcmp(slash, "/data.pkl") == 0) return &zip->members[i];
    }
    return NULL;
}

static tt_status check_byte_order(struct tt_pth_file *file, const char *folder)
{
    char order[BYTE_ORDER_BYTES_MAX + 1] = "";
    uint64_t offset;
    const char *name = tt_arena_printf(&file->arena, "%s/byteorder", folder);
    if (name == NULL) return TT_ERR_MEMORY;
    const struct tt_zip_member *member = tt_zip_find(&file->zip, name);
    if (member == NULL) return TT_OK;
    TT_TRY(tt_zip_locate(&file->zip, member, &offset));
    if (member->bytes <= BYTE_ORDER_BYTES_MAX)
        TT_TRY(tt_file_pread(file->descriptor, file->path, order, (size_t)member->bytes, offset));
    if (strcmp(order, "little") == 0) return TT_OK;
    return tt_fail(TT_ERR_UNSUPPORTED, "'%s' has the byte order '%s'; only little is supported", file->path,
                   order);
}

static tt_status open_archive(struct tt_pth_file *file)
{
    uint64_t offset;
    TT_TRY(tt_zip_read(file->descriptor, file->path, file->file_bytes, &file->zip));
    const struct tt_zip_member *object = find_object(&file->zip);
    if (object == NULL)
        return tt_fail(TT_ERR_DATA, "'%s' is a ZIP archive, but not one of torch.save: it has no data.pkl",
                       file->path);
    size_t folder_bytes = strlen(object->name) - strlen("/data.pkl");
    const char *folder = tt_arena_strndup(&file->arena, object->name, folder_bytes);
    if (folder == NULL) return TT_ERR_MEMORY;
    file->prefix = tt_arena_printf(&file->arena, "%s/data/", folder);
    if (file->prefix == NULL) return TT_ERR_MEMORY;
    TT_TRY(check_byte_order(file, folder));
    TT_TRY(tt_zip_locate(&file->zip, object, &offset));
    TT_TRY(tt_pickle_read(file->descriptor, file->path, &offset, offset + object->bytes, &file->object));
    return collect(file);
}

static tt_status locate_member(struct tt_pth_file *file, struct tt_pth_storage *storage)
{
    const char *name = tt_arena_printf(&file->arena, "%s%s", file->prefix, storage->key);
    if (name == NULL) return TT_ERR_MEMORY;
    const struct tt_zip_member *member = tt_zip_find(&file->zip, name);
    if (member == NULL) return tt_fail(TT_ERR_DATA, "'%s' has no member '%s'", file->path, name);
    TT_TRY(tt_zip_locate(&file->zip, member, &storage->offset));
    uint64_t bytes;
    if (__builtin_mul_overflow(storage->elements, (uint64_t)storage->width, &bytes) || bytes != member->bytes)
        return tt_fail(TT_ERR_DATA, "'%s': the member '%s' has %llu bytes, not those of %llu elements",
                       file->path, name, (unsigned long long)member->bytes,
                       (unsigned long long)storage->elements);
    storage->located = true;
    return TT_OK;
}

/* ---- The stream: magic, version, machine, object, keys; then each storage's count and data ---- */

static tt_status check_head(struct tt_pth_file *file, uint64_t *offset)
{
    struct tt_pickle head = {0};
    for (int i = 0; i < 3; i++) {
        TT_TRY(tt_pickle_read(file->descriptor, file->path, offset, file->file_bytes, &head));
        const struct tt_pickle_value *value = head.root, *little = tt_pickle_get(value, "little_endian");
        bool good = true;
        if (i == 0)
            good = value->kind == TT_PICKLE_HUGE && value->text.bytes == sizeof magic &&
                   memcmp(value->text.data, magic, sizeof magic) == 0;
        if (i == 1) good = value->kind == TT_PICKLE_INTEGER && value->integer == STREAM_VERSION;
        if (i == 2) good = little != NULL && little->kind == TT_PICKLE_BOOL && little->truth;
        tt_pickle_deinit(&head);
        if (good) continue;
        if (i == 2)
            return tt_fail(TT_ERR_UNSUPPORTED, "'%s' was not written on a little-endian machine", file->path);
        tt_fail(TT_ERR_DATA, "'%s' is a pickle, but not a file of torch.save", file->path);
        tt_hint("pickle.dump and joblib write other files; save the state dictionary with torch.save");
        return TT_ERR_DATA;
    }
    return TT_OK;
}

/* The count and the data of one storage. */
static tt_status locate_next(struct tt_pth_file *file, const char *key, uint64_t *offset)
{
    size_t number;
    uint8_t raw[8];
    uint64_t elements = 0, bytes;
    if (key == NULL || !tt_name_index_find(&file->index, key, &number))
        return tt_fail(TT_ERR_DATA, "'%s' lists a storage that its object does not name", file->path);
    struct tt_pth_storage *storage = &file->storages[number];
    if (storage->width == 0)
        return tt_fail(TT_ERR_UNSUPPORTED, "'%s': storage '%s' is of the unknown type '%s'", file->path, key,
                       storage->type_name);
    if (file->file_bytes - *offset < sizeof raw)
        return tt_fail(TT_ERR_DATA, "'%s' is truncated: storage '%s' is missing", file->path, key);
    TT_TRY(tt_file_pread(file->descriptor, file->path, raw, sizeof raw, *offset));
    for (int i = 7; i >= 0; i--) elements = elements << 8 | raw[i];
    *offset += sizeof raw;
    if (elements != storage->elements || storage->located)
        return tt_fail(TT_ERR_DATA, "'%s': storage '%s' has %llu elements in one place, %llu in another",
                       file->path, key, (unsigned long long)elements, (unsigned long long)storage->elements);
    if (__builtin_mul_overflow(elements, (uint64_t)storage->width, &bytes) ||
        bytes > file->file_bytes - *offset) {
        tt_fail(TT_ERR_DATA, "'%s' is truncated in storage '%s' of %llu elements", file->path, key,
                (unsigned long long)elements);
        tt_hint("the file is incomplete: download or write it again");
        return TT_ERR_DATA;
    }
    storage->offset = *offset;
    storage->located = true;
    *offset += bytes;
    return TT_OK;
}

static tt_status open_stream(struct tt_pth_file *file)
{
    struct tt_pickle keys = {0};
    uint64_t offset = 0;
    tt_status status = TT_OK;
    TT_TRY(check_head(file, &offset));
    TT_TRY(tt_pickle_read(file->descriptor, file->path, &offset, file->file_bytes, &file->object));
    TT_TRY(collect(file));
    TT_TRY(tt_pickle_read(file->descriptor, file->path, &offset, file->file_bytes, &keys));
    if (keys.root->kind != TT_PICKLE_LIST)
        TT_GO(tt_fail(TT_ERR_DATA, "'%s': the list of storages is none", file->path));
    for (uint32_t i = 0; i < keys.root->list.count; i++)
        TT_GO(locate_next(file, tt_pickle_text(tt_pickle_at(keys.root, i)), &offset));
out:
    tt_pickle_deinit(&keys);
    return status;
}

/* ---- Both ---- */

static tt_status fail_format(const struct tt_pth_file *file, const uint8_t *head, size_t bytes)
{
    if (bytes >= TAR_MARK_OFFSET + 5 && memcmp(head + TAR_MARK_OFFSET, "ustar", 5) == 0) {
        tt_fail(TT_ERR_UNSUPPORTED, "'%s' is a tar archive, as torch before 0.1.10 wrote it", file->path);
        tt_hint("save it again with torch 1.6 or later: torch.save(torch.load(path), other)");
        return TT_ERR_UNSUPPORTED;
    }
    tt_fail(TT_ERR_DATA, "'%s' is not a file of torch.save", file->path);
    if (bytes >= 8 && memcmp(head, "version ", 8) == 0)
        tt_hint("it looks like a Git LFS pointer: run 'git lfs pull' in that folder");
    return TT_ERR_DATA;
}

tt_status tt_pth_file_open(int descriptor, const char *path, uint64_t file_bytes, struct tt_pth_file *file)
{
    uint8_t head[TAR_MARK_OFFSET + 5];
    size_t bytes = file_bytes < sizeof head ? (size_t)file_bytes : sizeof head;
    *file = (struct tt_pth_file){.descriptor = descriptor, .path = path, .file_bytes = file_bytes};
    TT_TRY(tt_file_pread(descriptor, path, head, bytes, 0));
    tt_status status;
    if (bytes >= 4 && memcmp(head, "PK\3\4", 4) == 0)
        status = open_archive(file);
    else if (bytes >= 4 && memcmp(head, "\x80\x02", 2) == 0)
        status = open_stream(file);
    else
        status = fail_format(file, head, bytes);
    if (status != TT_OK) tt_pth_file_close(file);
    return status;
}

void tt_pth_file_close(struct tt_pth_file *file)
{
    tt_pickle_deinit(&file->object);
    tt_zip_deinit(&file->zip);
    tt_name_index_deinit(&file->index);
    tt_free(file->storages);
    tt_arena_deinit(&file->arena);
    *file = (struct tt_pth_file){0};
}

/* The sixth element of an id: None, or (key, offset, elements) of a view in the storage. */
static tt_status read_view(const struct tt_pth_file *file, const struct tt_pickle_value *id,
                           const struct tt_pth_storage *storage, uint64_t *skipped)
{
    const struct tt_pickle_value *view = tt_pickle_at(id, 5), *offset = tt_pickle_at(view, 1);
    *skipped = 0;
    if (view == NULL || view->kind == TT_PICKLE_NONE) return TT_OK;
    if (offset == NULL || offset->kind != TT_PICKLE_INTEGER || offset->integer < 0 ||
        (uint64_t)offset->integer > storage->elements)
        return tt_fail(TT_ERR_DATA, "'%s': a view of storage '%s' begins outside it", file->path,
                       storage->key);
    *skipped = (uint64_t)offset->integer;
    return TT_OK;
}

tt_status tt_pth_file_storage(struct tt_pth_file *file, const struct tt_pickle_value *stored,
                              const struct tt_pth_storage **storage, uint64_t *skipped)
{
    size_t number;
    const char *key = tt_pickle_text(tt_pickle_at(stored->id, 2));
    if (key == NULL || !tt_name_index_find(&file->index, key, &number))
        return tt_fail(TT_ERR_INTERNAL, "'%s' names no storage '%s'", file->path, key != NULL ? key : "");
    struct tt_pth_storage *found = &file->storages[number];
    if (found->width == 0)
        return tt_fail(TT_ERR_UNSUPPORTED, "'%s': storage '%s' is of the unknown type '%s'", file->path, key,
                       found->type_name);
    if (!found->located && file->prefix != NULL) TT_TRY(locate_member(file, found));
    if (!found->located) return tt_fail(TT_ERR_DATA, "'%s' does not hold storage '%s'", file->path, key);
    TT_TRY(read_view(file, stored->id, found, skipped));
    *storage = found;
    return TT_OK;
}
