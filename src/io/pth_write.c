/* Writes a file of torch.save: a ZIP archive with a pickle of the names and a member for each storage. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "base/alloc.h"
#include "base/file.h"
#include "io/pth.h"
#include "io/pth_storage.h"

enum { ALIGNMENT = 64, CHUNK_BYTES = 1 << 20, VERSION_NEEDED = 0, VERSION_ZIP64 = 45 };
#define FIELD_MAX ((uint64_t)UINT32_MAX)
/* A marker of an extra field without meaning that pads data to its alignment (PyTorch: "FB"). */
static const char padding_mark[2] = "FB";
static const char folder[] = "archive";

struct member {
    const char *name;
    uint64_t head, bytes;
    uint32_t sum;
};

struct writing {
    const char *path; /* of the unfinished file */
    int descriptor;
    uint64_t at;
    struct tt_arena arena;
    struct member *members;
    size_t count;
};

static tt_status put(struct tt_str *to, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++) TT_TRY(tt_str_append_char(to, i < 8 ? (char)(value >> (8 * i)) : 0));
    return TT_OK;
}

static tt_status append(struct writing *writing, const void *data, size_t bytes)
{
    TT_TRY(tt_file_pwrite(writing->descriptor, writing->path, data, bytes, writing->at));
    writing->at += bytes;
    return TT_OK;
}

/* ---- The archive ---- */

/* The local header of a member, padded so that its data are aligned. Sizes and sum follow behind the data. */
static tt_status begin_member(struct writing *writing, const char *name)
{
    struct tt_str head = {0};
    tt_status status = TT_OK;
    struct member *member = &writing->members[writing->count];
    *member = (struct member){.head = writing->at};
    member->name = tt_arena_printf(&writing->arena, "%s/%s", folder, name);
    if (member->name == NULL) return TT_ERR_MEMORY;
    size_t name_bytes = strlen(member->name);
    uint64_t start = writing->at + 30 + name_bytes + 4;
    size_t padding = (size_t)((ALIGNMENT - start % ALIGNMENT) % ALIGNMENT);
    TT_GO(tt_str_append(&head, "PK\3\4", 4));
    TT_GO(put(&head, VERSION_NEEDED, 2));
    TT_GO(put(&head, 0x808, 2)); /* sizes behind the data; the name is UTF-8 */
    TT_GO(put(&head, 0, 2 + 2 + 2 + 4 + 4 + 4));
    TT_GO(put(&head, name_bytes, 2));
    TT_GO(put(&head, 4 + padding, 2));
    TT_GO(tt_str_append_text(&head, member->name));
    TT_GO(tt_str_append(&head, padding_mark, 2));
    TT_GO(put(&head, padding, 2));
    TT_GO(tt_str_append_fill(&head, 'Z', padding));
    TT_GO(append(writing, head.data, head.bytes));
out:
    tt_str_deinit(&head);
    return status;
}

static tt_status add_data(struct writing *writing, const void *data, size_t bytes)
{
    struct member *member = &writing->members[writing->count];
    member->sum = (uint32_t)crc32(member->sum, data, (uInt)bytes);
    member->bytes += bytes;
    return append(writing, data, bytes);
}

static tt_status end_member(struct writing *writing)
{
    struct tt_str tail = {0};
    tt_status status = TT_OK;
    const struct member *member = &writing->members[writing->count];
    int size_bytes = member->bytes >= FIELD_MAX ? 8 : 4;
    TT_GO(tt_str_append(&tail, "PK\7\10", 4));
    TT_GO(put(&tail, member->sum, 4));
    TT_GO(put(&tail, member->bytes, size_bytes));
    TT_GO(put(&tail, member->bytes, size_bytes));
    TT_GO(append(writing, tail.data, tail.bytes));
    writing->count++;
out:
    tt_str_deinit(&tail);
    return status;
}

static tt_status add_member(struct writing *writing, const char *name, const void *data, size_t bytes)
{
    TT_TRY(begin_member(writing, name));
    TT_TRY(add_data(writing, data, bytes));
    return end_member(writing);
}

static tt_status put_entry(struct tt_str *to, const struct member *member)
{
    bool long_size = member->bytes >= FIELD_MAX, long_head = member->head >= FIELD_MAX;
    unsigned extra = (long_size ? 16u : 0u) + (long_head ? 8u : 0u);
    TT_TRY(tt_str_append(to, "PK\1\2", 4));
    TT_TRY(put(to, extra > 0 ? VERSION_ZIP64 : VERSION_NEEDED, 2));
    TT_TRY(put(to, extra > 0 ? VERSION_ZIP64 : VERSION_NEEDED, 2));
    TT_TRY(put(to, 0x808, 2));
    TT_TRY(put(to, 0, 2 + 2 + 2));
    TT_TRY(put(to, member->sum, 4));
    TT_TRY(put(to, long_size ? FIELD_MAX : member->bytes, 4));
    TT_TRY(put(to, long_size ? FIELD_MAX : member->bytes, 4));
    TT_TRY(put(to, strlen(member->name), 2));
    TT_TRY(put(to, extra > 0 ? extra + 4 : 0, 2));
    TT_TRY(put(to, 0, 2 + 2 + 2 + 4));
    TT_TRY(put(to, long_head ? FIELD_MAX : member->head, 4));
    TT_TRY(tt_str_append_text(to, member->name));
    if (extra > 0) TT_TRY(put(to, 1 | extra << 16, 4));
    if (long_size) TT_TRY(put(to, member->bytes, 8));
    if (long_size) TT_TRY(put(to, member->bytes, 8));
    return long_head ? put(to, member->head, 8) : TT_OK;
}

/* The central directory, and the records at the end; those of ZIP64 always, as torch writes them. */
static tt_status end_archive(struct writing *writing)
{
    struct tt_str tail = {0};
    tt_status status = TT_OK;
    uint64_t start = writing->at;
    for (size_t i = 0; i < writing->count; i++) TT_GO(put_entry(&tail, &writing->members[i]));
    uint64_t bytes = tail.bytes, end = start + bytes;
    TT_GO(tt_str_append(&tail, "PK\6\6", 4));
    TT_GO(put(&tail, 44, 8));
    TT_GO(put(&tail, VERSION_ZIP64 | VERSION_ZIP64 << 16, 4));
    TT_GO(put(&tail, 0, 8)); /* one volume */
    TT_GO(put(&tail, writing->count, 8));
    TT_GO(put(&tail, writing->count, 8));
    TT_GO(put(&tail, bytes, 8));
    TT_GO(put(&tail, start, 8));
    TT_GO(tt_str_append(&tail, "PK\6\7\0\0\0\0", 8));
    TT_GO(put(&tail, end, 8));
    TT_GO(put(&tail, 1, 4));
    TT_GO(tt_str_append(&tail, "PK\5\6\0\0\0\0", 8));
    uint64_t count = writing->count < UINT16_MAX ? writing->count : UINT16_MAX;
    TT_GO(put(&tail, count | count << 16, 4));
    TT_GO(put(&tail, bytes < FIELD_MAX ? bytes : FIELD_MAX, 4));
    TT_GO(put(&tail, start < FIELD_MAX ? start : FIELD_MAX, 4));
    TT_GO(put(&tail, 0, 2));
    TT_GO(append(writing, tail.data, tail.bytes));
out:
    tt_str_deinit(&tail);
    return status;
}

/* ---- The pickle ---- */

static tt_status put_text(struct tt_str *pickle, const char *text)
{
    size_t bytes = strlen(text);
    TT_TRY(tt_str_append_char(pickle, 'X'));
    TT_TRY(put(pickle, bytes, 4));
    return tt_str_append(pickle, text, bytes);
}

static tt_status put_integer(struct tt_str *pickle, int64_t value)
{
    bool is_short = value >= 0 && value <= INT32_MAX;
    TT_TRY(tt_str_append(pickle, is_short ? "J" : "\x8a\x08", is_short ? 1 : 2));
    return put(pickle, (uint64_t)value, is_short ? 4 : 8);
}

static tt_status put_tuple(struct tt_str *pickle, const int64_t *numbers, int count)
{
    TT_TRY(tt_str_append_char(pickle, '('));
    for (int i = 0; i < count; i++) TT_TRY(put_integer(pickle, numbers[i]));
    return tt_str_append_char(pickle, 't');
}

static tt_status put_tensor(struct tt_str *pickle, const struct tt_safetensors_entry *entry, size_t index)
{
    char key[24];
    int64_t strides[TT_SAFETENSORS_RANK_MAX], stride = 1;
    for (int i = entry->rank - 1; i >= 0; i--) {
        strides[i] = stride;
        stride *= entry->dims[i] > 0 ? entry->dims[i] : 1;
    }
    snprintf(key, sizeof key, "%zu", index);
    TT_TRY(put_text(pickle, entry->name));
    TT_TRY(tt_str_append_text(pickle, "ctorch._utils\n_rebuild_tensor_v2\n(("));
    TT_TRY(put_text(pickle, "storage"));
    TT_TRY(tt_str_printf(pickle, "ctorch\n%s\n", tt_pth_storage_name(entry->dtype)));
    TT_TRY(put_text(pickle, key));
    TT_TRY(put_text(pickle, "cpu"));
    TT_TRY(put_integer(pickle, tt_safetensors_elements(entry)));
    TT_TRY(tt_str_append_text(pickle, "tQ"));
    TT_TRY(put_integer(pickle, 0));
    TT_TRY(put_tuple(pickle, entry->dims, entry->rank));
    TT_TRY(put_tuple(pickle, strides, entry->rank));
    return tt_str_append_text(pickle, "\x89"
                                      "ccollections\nOrderedDict\n)RtR");
}

static tt_status make_pickle(const struct tt_safetensors_entry *entries, size_t count, struct tt_str *pickle)
{
    TT_TRY(tt_str_append_text(pickle, "\x80\x02"
                                      "ccollections\nOrderedDict\n)R("));
    for (size_t i = 0; i < count; i++) TT_TRY(put_tensor(pickle, &entries[i], i));
    return tt_str_append_text(pickle, "u.");
}

/* ---- Both ---- */

struct source {
    tt_status (*read)(void *context, size_t index, int64_t first, int64_t count, void *to);
    void *context;
};

static tt_status write_tensor(struct writing *writing, const struct tt_safetensors_entry *entry, size_t index,
                              const struct source *source, void *buffer)
{
    char name[32];
    size_t width = tt_dtype_bytes(entry->dtype);
    int64_t left = tt_safetensors_elements(entry), most = (int64_t)(CHUNK_BYTES / width);
    snprintf(name, sizeof name, "data/%zu", index);
    TT_TRY(begin_member(writing, name));
    for (int64_t first = 0; left > 0;) {
        int64_t count = left < most ? left : most;
        TT_TRY(source->read(source->context, index, first, count, buffer));
        TT_TRY(add_data(writing, buffer, (size_t)count * width));
        first += count;
        left -= count;
    }
    return end_member(writing);
}

static tt_status write_members(struct writing *writing, const struct tt_safetensors_entry *entries,
                               size_t count, const struct source *source)
{
    struct tt_str pickle = {0};
    tt_status status = TT_OK;
    void *buffer = tt_alloc_aligned(CHUNK_BYTES);
    writing->members = tt_calloc(count + 8, sizeof *writing->members);
    if (buffer == NULL || writing->members == NULL) TT_GO(TT_ERR_MEMORY);
    TT_GO(make_pickle(entries, count, &pickle));
    TT_GO(add_member(writing, "data.pkl", pickle.data, pickle.bytes));
    TT_GO(add_member(writing, ".format_version", "1", 1));
    TT_GO(add_member(writing, ".storage_alignment", "64", 2));
    TT_GO(add_member(writing, "byteorder", "little", 6));
    for (size_t i = 0; i < count; i++) TT_GO(write_tensor(writing, &entries[i], i, source, buffer));
    TT_GO(add_member(writing, "version", "3\n", 2));
    TT_GO(end_archive(writing));
out:
    tt_free(buffer);
    tt_str_deinit(&pickle);
    return status;
}

tt_status tt_pth_write(const char *path, const struct tt_safetensors_entry *entries, size_t count,
                       tt_status (*read)(void *context, size_t index, int64_t first, int64_t count, void *to),
                       void *context)
{
    struct tt_str unfinished = {0};
    struct writing writing = {.descriptor = -1};
    const struct source source = {read, context};
    bool created = false;
    tt_status status = TT_OK;
    for (size_t i = 0; i < count; i++)
        if (tt_pth_storage_name(entries[i].dtype) == NULL)
            return tt_fail(TT_ERR_UNSUPPORTED, "'%s': torch has no storage for tensor '%s' of type %s", path,
                           entries[i].name, tt_dtype_name(entries[i].dtype));
    TT_GO(tt_str_printf(&unfinished, "%s.unfinished", path));
    writing.path = tt_str_text(&unfinished);
    TT_GO(tt_file_create(writing.path, 0, &writing.descriptor));
    created = true;
    TT_GO(write_members(&writing, entries, count, &source));
    status = tt_file_sync_close(writing.descriptor, writing.path);
    writing.descriptor = -1;
    TT_GO(status);
    TT_GO(tt_file_rename(writing.path, path));
    created = false;
out:
    tt_file_close(writing.descriptor);
    if (created) (void)tt_file_remove(writing.path);
    tt_free(writing.members);
    tt_arena_deinit(&writing.arena);
    tt_str_deinit(&unfinished);
    if (status != TT_OK) tt_while("writing '%s'", path);
    return status;
}
