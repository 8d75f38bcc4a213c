#include "convert/gguf.h"

#include <string.h>

/* gguf_metadata_value_type of docs/gguf.md. */
enum { TYPE_U32 = 4, TYPE_I32 = 5, TYPE_F32 = 6, TYPE_BOOL = 7, TYPE_STRING = 8, TYPE_ARRAY = 9 };
enum { VERSION = 3, NAME_BYTES_MAX = 63 };

void tt_gguf_header_deinit(struct tt_gguf_header *header)
{
    tt_str_deinit(&header->keys);
    tt_str_deinit(&header->tensors);
    *header = (struct tt_gguf_header){0};
}

/* Little-endian on any machine. */
static tt_status put_number(struct tt_str *to, uint64_t value, int bytes)
{
    char text[8];
    for (int i = 0; i < bytes; i++) text[i] = (char)(value >> (8 * i) & 0xff);
    return tt_str_append(to, text, (size_t)bytes);
}

static tt_status put_text(struct tt_str *to, struct tt_span text)
{
    TT_TRY(put_number(to, text.bytes, 8));
    return text.bytes > 0 ? tt_str_append(to, text.data, text.bytes) : TT_OK;
}

static tt_status put_float(struct tt_str *to, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return put_number(to, bits, 4);
}

static tt_status put_key(struct tt_gguf_header *header, const char *key, int type)
{
    header->key_count++;
    TT_TRY(put_text(&header->keys, tt_span_of(key)));
    return put_number(&header->keys, (uint64_t)type, 4);
}

static tt_status put_array(struct tt_gguf_header *header, const char *key, int type, size_t count)
{
    TT_TRY(put_key(header, key, TYPE_ARRAY));
    TT_TRY(put_number(&header->keys, (uint64_t)type, 4));
    return put_number(&header->keys, count, 8);
}

tt_status tt_gguf_put_u32(struct tt_gguf_header *header, const char *key, int64_t value)
{
    if (value < 0 || value > UINT32_MAX)
        return tt_fail(TT_ERR_UNSUPPORTED, "%s is %lld, which GGUF's 32 bits cannot hold", key,
                       (long long)value);
    TT_TRY(put_key(header, key, TYPE_U32));
    return put_number(&header->keys, (uint64_t)value, 4);
}

tt_status tt_gguf_put_f32(struct tt_gguf_header *header, const char *key, double value)
{
    TT_TRY(put_key(header, key, TYPE_F32));
    return put_float(&header->keys, (float)value);
}

tt_status tt_gguf_put_bool(struct tt_gguf_header *header, const char *key, bool value)
{
    TT_TRY(put_key(header, key, TYPE_BOOL));
    return put_number(&header->keys, value, 1);
}

tt_status tt_gguf_put_string(struct tt_gguf_header *header, const char *key, struct tt_span text)
{
    TT_TRY(put_key(header, key, TYPE_STRING));
    return put_text(&header->keys, text);
}

tt_status tt_gguf_put_strings(struct tt_gguf_header *header, const char *key, const struct tt_span *texts,
                              size_t count)
{
    TT_TRY(put_array(header, key, TYPE_STRING, count));
    for (size_t i = 0; i < count; i++) TT_TRY(put_text(&header->keys, texts[i]));
    return TT_OK;
}

tt_status tt_gguf_put_i32s(struct tt_gguf_header *header, const char *key, const int32_t *values,
                           size_t count)
{
    TT_TRY(put_array(header, key, TYPE_I32, count));
    for (size_t i = 0; i < count; i++) TT_TRY(put_number(&header->keys, (uint32_t)values[i], 4));
    return TT_OK;
}

tt_status tt_gguf_put_bools(struct tt_gguf_header *header, const char *key, const int32_t *values,
                            size_t count)
{
    TT_TRY(put_array(header, key, TYPE_BOOL, count));
    for (size_t i = 0; i < count; i++) TT_TRY(put_number(&header->keys, values[i] != 0, 1));
    return TT_OK;
}

tt_status tt_gguf_put_f32s(struct tt_gguf_header *header, const char *key, const float *values, size_t count)
{
    TT_TRY(put_array(header, key, TYPE_F32, count));
    for (size_t i = 0; i < count; i++) TT_TRY(put_float(&header->keys, values[i]));
    return TT_OK;
}

static uint64_t padded(uint64_t bytes)
{
    return (bytes + TT_GGUF_ALIGNMENT - 1) / TT_GGUF_ALIGNMENT * TT_GGUF_ALIGNMENT;
}

tt_status tt_gguf_add_tensor(struct tt_gguf_header *header, const char *name, int rank, const int64_t *dims,
                             enum tt_gguf_type type, uint64_t *offset)
{
    struct tt_str *to = &header->tensors;
    int64_t count = 1;
    if (strlen(name) > NAME_BYTES_MAX)
        return tt_fail(TT_ERR_UNSUPPORTED, "'%s' is too long a name for GGUF", name);
    TT_TRY(put_text(to, tt_span_of(name)));
    TT_TRY(put_number(to, (uint64_t)rank, 4));
    for (int d = rank - 1; d >= 0; d--) {
        count *= dims[d];
        TT_TRY(put_number(to, (uint64_t)dims[d], 8));
    }
    TT_TRY(put_number(to, tt_gguf_type_facts(type)->number, 4));
    TT_TRY(put_number(to, header->data_bytes, 8));
    header->tensor_count++;
    *offset = header->data_bytes;
    header->data_bytes += padded(tt_gguf_type_bytes(type, count));
    return TT_OK;
}

tt_status tt_gguf_header_write(const struct tt_gguf_header *header, struct tt_str *bytes)
{
    TT_TRY(tt_str_append_text(bytes, "GGUF"));
    TT_TRY(put_number(bytes, VERSION, 4));
    TT_TRY(put_number(bytes, header->tensor_count, 8));
    TT_TRY(put_number(bytes, header->key_count, 8));
    if (header->keys.bytes > 0) TT_TRY(tt_str_append(bytes, header->keys.data, header->keys.bytes));
    if (header->tensors.bytes > 0) TT_TRY(tt_str_append(bytes, header->tensors.data, header->tensors.bytes));
    while (bytes->bytes % TT_GGUF_ALIGNMENT != 0) TT_TRY(tt_str_append_char(bytes, 0));
    return TT_OK;
}
