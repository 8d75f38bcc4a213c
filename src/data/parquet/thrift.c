#include "data/parquet/thrift.h"

enum { DEPTH_MAX = 32 };

bool thrift_varint(const uint8_t **at, const uint8_t *end, uint64_t *out)
{
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        if (*at == end) return false;
        uint8_t byte = *(*at)++;
        if (shift == 63 && byte > 1) return false;
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            *out = value;
            return true;
        }
    }
    return false;
}

int64_t thrift_zigzag(uint64_t value)
{
    return (int64_t)((value >> 1) ^ (0 - (value & 1)));
}

static void fail(struct thrift *thrift)
{
    thrift->failed = true;
    thrift->at = thrift->end;
}

static uint8_t read_byte(struct thrift *thrift)
{
    if (thrift->at < thrift->end) return *thrift->at++;
    fail(thrift);
    return 0;
}

static uint64_t read_varint(struct thrift *thrift)
{
    uint64_t value = 0;
    if (!thrift_varint(&thrift->at, thrift->end, &value)) fail(thrift);
    return thrift->failed ? 0 : value;
}

static void skip_bytes(struct thrift *thrift, uint64_t bytes)
{
    if (bytes > (uint64_t)(thrift->end - thrift->at))
        fail(thrift);
    else
        thrift->at += bytes;
}

bool thrift_next(struct thrift *thrift, struct thrift_field *field)
{
    uint8_t head = read_byte(thrift);
    if (thrift->failed || head == THRIFT_STOP) return false;
    field->type = head & 15;
    if (head >> 4 != 0) {
        field->id += head >> 4;
    } else {
        field->id = (int)thrift_integer(thrift, THRIFT_I16, INT16_MIN, INT16_MAX);
    }
    if (field->type == THRIFT_STOP || field->type > THRIFT_UUID || field->id > INT16_MAX) fail(thrift);
    return !thrift->failed;
}

int64_t thrift_integer(struct thrift *thrift, enum thrift_type type, int64_t least, int64_t most)
{
    int64_t value = 0;
    if (type == THRIFT_BYTE) {
        value = (int8_t)read_byte(thrift);
    } else if (type == THRIFT_I16 || type == THRIFT_I32 || type == THRIFT_I64) {
        value = thrift_zigzag(read_varint(thrift));
    } else {
        fail(thrift);
    }
    if (!thrift->failed && (value < least || value > most)) fail(thrift);
    return thrift->failed ? 0 : value;
}

bool thrift_bool(struct thrift *thrift, enum thrift_type type)
{
    if (type != THRIFT_TRUE && type != THRIFT_FALSE) fail(thrift);
    return type == THRIFT_TRUE;
}

struct tt_span thrift_binary(struct thrift *thrift, enum thrift_type type)
{
    if (type != THRIFT_BINARY) fail(thrift);
    uint64_t bytes = read_varint(thrift);
    const char *data = (const char *)thrift->at;
    skip_bytes(thrift, bytes);
    return thrift->failed ? (struct tt_span){"", 0} : (struct tt_span){data, (size_t)bytes};
}

/* An element has at least one byte, so a count cannot exceed the bytes that are left. */
static uint64_t read_list(struct thrift *thrift, enum thrift_type *element)
{
    uint8_t head = read_byte(thrift);
    uint64_t count = head >> 4;
    *element = head & 15;
    if (count == 15) count = read_varint(thrift);
    if (count > (uint64_t)(thrift->end - thrift->at)) fail(thrift);
    return thrift->failed ? 0 : count;
}

size_t thrift_structs(struct thrift *thrift, enum thrift_type type)
{
    enum thrift_type element = THRIFT_STOP;
    if (type != THRIFT_LIST) fail(thrift);
    uint64_t count = read_list(thrift, &element);
    if (count > 0 && element != THRIFT_STRUCT) fail(thrift);
    return thrift->failed ? 0 : (size_t)count;
}

bool thrift_struct(struct thrift *thrift, enum thrift_type type)
{
    if (type != THRIFT_STRUCT) fail(thrift);
    return !thrift->failed;
}

static void skip_value(struct thrift *thrift, enum thrift_type type, bool in_list, int depth);

static void skip_map(struct thrift *thrift, int depth)
{
    uint64_t count = read_varint(thrift);
    uint8_t types = count > 0 ? read_byte(thrift) : 0;
    for (uint64_t i = 0; i < count && !thrift->failed; i++) {
        skip_value(thrift, types >> 4, true, depth);
        skip_value(thrift, types & 15, true, depth);
    }
}

static void skip_value(struct thrift *thrift, enum thrift_type type, bool in_list, int depth)
{
    enum thrift_type element = THRIFT_STOP;
    uint64_t count;
    if (depth > DEPTH_MAX) fail(thrift);
    if (thrift->failed) return;
    switch (type) {
    case THRIFT_TRUE:
    case THRIFT_FALSE:
        if (in_list) skip_bytes(thrift, 1); /* else the header of the field is the value */
        return;
    case THRIFT_BYTE:
        skip_bytes(thrift, 1);
        return;
    case THRIFT_I16:
    case THRIFT_I32:
    case THRIFT_I64:
        read_varint(thrift);
        return;
    case THRIFT_DOUBLE:
        skip_bytes(thrift, 8);
        return;
    case THRIFT_BINARY:
        skip_bytes(thrift, read_varint(thrift));
        return;
    case THRIFT_LIST:
    case THRIFT_SET:
        count = read_list(thrift, &element);
        for (uint64_t i = 0; i < count && !thrift->failed; i++) skip_value(thrift, element, true, depth + 1);
        return;
    case THRIFT_MAP:
        skip_map(thrift, depth + 1);
        return;
    case THRIFT_STRUCT:
        for (struct thrift_field field = {0}; thrift_next(thrift, &field);)
            skip_value(thrift, field.type, false, depth + 1);
        return;
    case THRIFT_UUID:
        skip_bytes(thrift, 16);
        return;
    case THRIFT_STOP:
        break;
    }
    fail(thrift);
}

void thrift_skip(struct thrift *thrift, enum thrift_type type)
{
    skip_value(thrift, type, false, 0);
}
