#include "data/arrow/flat.h"

static const struct flat none;

/* Reads `width` bytes, the lowest first; false beyond the end. */
static bool read_at(struct flat f, size_t at, size_t width, int64_t *out)
{
    uint64_t value = 0;
    if (at > f.bytes || width > f.bytes - at) return false;
    for (size_t i = 0; i < width; i++) value |= (uint64_t)f.data[at + i] << 8 * i;
    int unused = 64 - 8 * (int)width;
    *out = (int64_t)(value << unused) >> unused;
    return true;
}

/* The target of the offset at `at`; 0: none. Offsets are forward and unsigned. */
static size_t follow(struct flat f, size_t at)
{
    int64_t offset;
    if (!read_at(f, at, 4, &offset)) return 0;
    uint64_t target = at + (uint64_t)(uint32_t)offset;
    return offset != 0 && target < f.bytes ? (size_t)target : 0;
}

struct flat flat_root(const uint8_t *data, size_t bytes)
{
    struct flat f = {data, bytes, 0};
    f.at = follow(f, 0);
    return f;
}

/* Where the field's value is; 0: absent. */
static size_t find(struct flat table, int field)
{
    int64_t back, bytes, offset;
    if (table.at == 0 || !read_at(table, table.at, 4, &back)) return 0;
    int64_t fields = (int64_t)table.at - back;
    if (fields < 0 || !read_at(table, (size_t)fields, 2, &bytes)) return 0;
    int64_t place = 4 + 2 * (int64_t)field;
    if (place + 2 > (bytes & 0xffff) || !read_at(table, (size_t)(fields + place), 2, &offset)) return 0;
    size_t at = table.at + (size_t)(offset & 0xffff);
    return (offset & 0xffff) != 0 && at < table.bytes ? at : 0;
}

int64_t flat_integer(struct flat table, int field, size_t width, int64_t absent)
{
    size_t at = find(table, field);
    int64_t value;
    return at != 0 && read_at(table, at, width, &value) ? value : absent;
}

struct flat flat_table(struct flat table, int field)
{
    size_t at = find(table, field);
    table.at = at != 0 ? follow(table, at) : 0;
    return table.at != 0 ? table : none;
}

size_t flat_vector(struct flat table, int field, size_t width, size_t *at)
{
    size_t place = find(table, field), start = place != 0 ? follow(table, place) : 0;
    int64_t count;
    *at = start + 4;
    if (start == 0 || !read_at(table, start, 4, &count)) return 0;
    size_t left = table.bytes - *at;
    return (uint32_t)count <= left / width ? (uint32_t)count : 0;
}

struct tt_span flat_text(struct flat table, int field)
{
    size_t at, bytes = flat_vector(table, field, 1, &at);
    return bytes > 0 ? (struct tt_span){(const char *)table.data + at, bytes} : (struct tt_span){"", 0};
}

struct flat flat_element(struct flat table, int field, size_t index)
{
    size_t at, count = flat_vector(table, field, 4, &at);
    table.at = index < count ? follow(table, at + 4 * index) : 0;
    return table.at != 0 ? table : none;
}
