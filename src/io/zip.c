#include "io/zip.h"

#include <string.h>

#include "base/alloc.h"
#include "base/file.h"

enum {
    END_BYTES = 22,
    END64_BYTES = 56,
    LOCATOR_BYTES = 20,
    ENTRY_BYTES = 46,
    LOCAL_BYTES = 30,
    COMMENT_MAX = 65535,
    MEMBERS_MAX = 1 << 20,
    FLAG_ENCRYPTED = 1,
    EXTRA_ZIP64 = 1,
};
#define DIRECTORY_BYTES_MAX ((uint64_t)1 << 28)

static const uint8_t end_mark[4] = "PK\5\6", end64_mark[4] = "PK\6\6", locator_mark[4] = "PK\6\7";
static const uint8_t entry_mark[4] = "PK\1\2", local_mark[4] = "PK\3\4";

static uint64_t number(const uint8_t *at, int bytes)
{
    uint64_t value = 0;
    for (int i = bytes - 1; i >= 0; i--) value = value << 8 | at[i];
    return value;
}

static tt_status fail_truncated(const struct tt_zip *zip, const char *what)
{
    tt_fail(TT_ERR_DATA, "'%s' is a ZIP archive %s", zip->path, what);
    tt_hint("the file is incomplete: download or write it again");
    return TT_ERR_DATA;
}

/* Where the central directory is, and how many members it claims. */
struct directory {
    uint64_t offset, bytes, count;
};

static tt_status read_end64(const struct tt_zip *zip, uint64_t end, struct directory *directory)
{
    uint8_t locator[LOCATOR_BYTES], record[END64_BYTES];
    if (end < LOCATOR_BYTES) return TT_OK;
    TT_TRY(tt_file_pread(zip->descriptor, zip->path, locator, sizeof locator, end - LOCATOR_BYTES));
    if (memcmp(locator, locator_mark, 4) != 0) return TT_OK;
    uint64_t at = number(locator + 8, 8);
    if (end < LOCATOR_BYTES + END64_BYTES || at > end - LOCATOR_BYTES - END64_BYTES)
        return fail_truncated(zip, "whose ZIP64 record is beyond its end");
    TT_TRY(tt_file_pread(zip->descriptor, zip->path, record, sizeof record, at));
    if (memcmp(record, end64_mark, 4) != 0) return fail_truncated(zip, "whose ZIP64 record is damaged");
    *directory = (struct directory){number(record + 48, 8), number(record + 40, 8), number(record + 32, 8)};
    return TT_OK;
}

static tt_status find_end(const struct tt_zip *zip, uint64_t file_bytes, struct directory *directory)
{
    uint64_t tail_bytes = file_bytes < END_BYTES + COMMENT_MAX ? file_bytes : END_BYTES + COMMENT_MAX;
    if (tail_bytes < END_BYTES) return fail_truncated(zip, "without a directory");
    uint8_t *tail = tt_calloc((size_t)tail_bytes, 1);
    if (tail == NULL) return TT_ERR_MEMORY;
    tt_status status =
        tt_file_pread(zip->descriptor, zip->path, tail, (size_t)tail_bytes, file_bytes - tail_bytes);
    bool found = false;
    for (uint64_t at = tail_bytes - END_BYTES + 1; status == TT_OK && !found && at-- > 0;) {
        const uint8_t *end = tail + at;
        found = memcmp(end, end_mark, 4) == 0 && at + END_BYTES + number(end + 20, 2) == tail_bytes;
        if (!found) continue;
        *directory = (struct directory){number(end + 16, 4), number(end + 12, 4), number(end + 10, 2)};
        status = read_end64(zip, file_bytes - tail_bytes + at, directory);
        bool inside = directory->offset <= file_bytes && directory->bytes <= file_bytes - directory->offset;
        if (status == TT_OK && !inside) status = fail_truncated(zip, "whose directory is beyond its end");
    }
    tt_free(tail);
    if (status == TT_OK && !found) return fail_truncated(zip, "without a directory at its end");
    return status;
}

/* ZIP64: the numbers that do not fit their fields follow in an extra field, in this order. */
static bool read_extra(const uint8_t *extra, size_t bytes, struct tt_zip_member *member)
{
    uint64_t *const wide[] = {&member->bytes, &member->stored_bytes, &member->head};
    while (bytes >= 4) {
        size_t length = (size_t)number(extra + 2, 2);
        if (length > bytes - 4) return false;
        const uint8_t *at = extra + 4, *end = at + length;
        for (size_t i = 0; number(extra, 2) == EXTRA_ZIP64 && i < 3; i++) {
            if (*wide[i] != UINT32_MAX) continue;
            if (end - at < 8) return false;
            *wide[i] = number(at, 8);
            at += 8;
        }
        extra = end;
        bytes -= 4 + length;
    }
    return true;
}

/* Reads one entry of the directory; *used: its bytes. */
static tt_status read_entry(struct tt_zip *zip, const uint8_t *at, uint64_t left, uint64_t *used)
{
    struct tt_zip_member *member = &zip->members[zip->count];
    if (left < ENTRY_BYTES || memcmp(at, entry_mark, 4) != 0)
        return fail_truncated(zip, "with a damaged directory");
    size_t name_bytes = (size_t)number(at + 28, 2), extra_bytes = (size_t)number(at + 30, 2);
    *used = ENTRY_BYTES + name_bytes + extra_bytes + number(at + 32, 2);
    if (*used > left) return fail_truncated(zip, "with a damaged directory");
    *member = (struct tt_zip_member){.bytes = number(at + 24, 4),
                                     .stored_bytes = number(at + 20, 4),
                                     .head = number(at + 42, 4),
                                     .method = (unsigned)number(at + 10, 2),
                                     .flags = (unsigned)number(at + 8, 2)};
    if (!read_extra(at + ENTRY_BYTES + name_bytes, extra_bytes, member))
        return fail_truncated(zip, "with a damaged directory");
    if (memchr(at + ENTRY_BYTES, 0, name_bytes) != NULL)
        return tt_fail(TT_ERR_DATA, "'%s': the name of member %zu holds a NUL", zip->path, zip->count);
    member->name = tt_arena_strndup(&zip->arena, (const char *)at + ENTRY_BYTES, name_bytes);
    if (member->name == NULL) return TT_ERR_MEMORY;
    size_t other;
    if (tt_name_index_find(&zip->index, member->name, &other))
        return tt_fail(TT_ERR_DATA, "'%s' has two members '%s'", zip->path, member->name);
    return tt_name_index_add(&zip->index, member->name, zip->count++);
}

static tt_status read_directory(struct tt_zip *zip, const struct directory *directory)
{
    tt_status status = TT_OK;
    uint8_t *data = NULL;
    if (directory->count > MEMBERS_MAX || directory->bytes > DIRECTORY_BYTES_MAX ||
        directory->count * ENTRY_BYTES > directory->bytes)
        return fail_truncated(zip, "with a damaged directory");
    data = tt_calloc((size_t)directory->bytes + 1, 1);
    zip->members = tt_calloc((size_t)directory->count + 1, sizeof *zip->members);
    if (data == NULL || zip->members == NULL) TT_GO(TT_ERR_MEMORY);
    TT_GO(tt_file_pread(zip->descriptor, zip->path, data, (size_t)directory->bytes, directory->offset));
    uint64_t at = 0, used = 0;
    for (uint64_t i = 0; i < directory->count; i++, at += used)
        TT_GO(read_entry(zip, data + at, directory->bytes - at, &used));
out:
    tt_free(data);
    return status;
}

tt_status tt_zip_read(int descriptor, const char *path, uint64_t file_bytes, struct tt_zip *zip)
{
    struct directory directory;
    *zip = (struct tt_zip){.descriptor = descriptor, .path = path};
    tt_status status = find_end(zip, file_bytes, &directory);
    if (status == TT_OK) {
        zip->data_end = directory.offset;
        status = read_directory(zip, &directory);
    }
    if (status != TT_OK) tt_zip_deinit(zip);
    return status;
}

void tt_zip_deinit(struct tt_zip *zip)
{
    tt_name_index_deinit(&zip->index);
    tt_free(zip->members);
    tt_arena_deinit(&zip->arena);
    *zip = (struct tt_zip){0};
}

const struct tt_zip_member *tt_zip_find(const struct tt_zip *zip, const char *name)
{
    size_t index;
    return tt_name_index_find(&zip->index, name, &index) ? &zip->members[index] : NULL;
}

tt_status tt_zip_locate(const struct tt_zip *zip, const struct tt_zip_member *member, uint64_t *offset)
{
    uint8_t local[LOCAL_BYTES];
    if ((member->flags & FLAG_ENCRYPTED) != 0)
        return tt_fail(TT_ERR_UNSUPPORTED, "'%s': the member '%s' is encrypted", zip->path, member->name);
    if (member->method != 0 || member->bytes != member->stored_bytes) {
        tt_fail(TT_ERR_UNSUPPORTED, "'%s': the member '%s' is compressed", zip->path, member->name);
        tt_hint("torch.save stores its members; write the file with it again");
        return TT_ERR_UNSUPPORTED;
    }
    if (member->head > zip->data_end || zip->data_end - member->head < LOCAL_BYTES)
        return tt_fail(TT_ERR_DATA, "'%s': the member '%s' begins beyond the data", zip->path, member->name);
    TT_TRY(tt_file_pread(zip->descriptor, zip->path, local, sizeof local, member->head));
    uint64_t start = member->head + LOCAL_BYTES + number(local + 26, 2) + number(local + 28, 2);
    if (memcmp(local, local_mark, 4) != 0 || start > zip->data_end || member->bytes > zip->data_end - start)
        return tt_fail(TT_ERR_DATA, "'%s': the member '%s' of %llu bytes is truncated", zip->path,
                       member->name, (unsigned long long)member->bytes);
    *offset = start;
    return TT_OK;
}
