#include "data/parquet/values.h"

#include <string.h>

#include "base/alloc.h"

size_t parquet_width(enum parquet_type type, int32_t fixed_bytes)
{
    static const uint8_t widths[] = {[PARQUET_BOOLEAN] = 1, [PARQUET_INT32] = 4, [PARQUET_INT64] = 8,
                                     [PARQUET_INT96] = 12,  [PARQUET_FLOAT] = 4, [PARQUET_DOUBLE] = 8};
    if (type == PARQUET_FIXED_BYTES) return (size_t)fixed_bytes;
    return type < PARQUET_BYTES ? widths[type] : 0;
}

/* ---- Plain values ---- */

static bool next_plain(const uint8_t **at, const uint8_t *end, size_t width, struct parquet_value *out)
{
    uint32_t bytes = (uint32_t)width;
    if (width == 0) {
        if (end - *at < 4) return false;
        memcpy(&bytes, *at, sizeof bytes);
        *at += 4;
    }
    if (bytes > (size_t)(end - *at)) return false;
    *out = (struct parquet_value){*at, bytes};
    *at += bytes;
    return true;
}

tt_status parquet_dictionary_read(struct parquet_dictionary *dictionary, size_t width, uint8_t *page,
                                  size_t bytes, size_t count)
{
    const uint8_t *at = page, *end = page + bytes;
    parquet_dictionary_deinit(dictionary);
    dictionary->page = page;
    if (count > bytes / (width > 0 ? width : 4)) return TT_ERR_DATA;
    dictionary->values = tt_calloc(count, sizeof *dictionary->values);
    if (dictionary->values == NULL) return TT_ERR_MEMORY;
    for (size_t i = 0; i < count; i++)
        if (!next_plain(&at, end, width, &dictionary->values[i])) return TT_ERR_DATA;
    dictionary->count = count;
    return TT_OK;
}

void parquet_dictionary_deinit(struct parquet_dictionary *dictionary)
{
    tt_free(dictionary->page);
    tt_free(dictionary->values);
    *dictionary = (struct parquet_dictionary){0};
}

/* ---- Opening ---- */

static bool open_dictionary(struct parquet_values *v, size_t bytes, const char **why)
{
    if (v->dictionary->page == NULL) {
        *why = "it refers to a dictionary that is not there";
        return false;
    }
    /* A page of nulls may have no bytes at all. */
    int width = bytes > 0 ? *v->at : 0;
    if (width > 32) {
        *why = "its indices are wider than 32 bits";
        return false;
    }
    v->runs = parquet_runs_make(v->at + (bytes > 0), bytes > 0 ? bytes - 1 : 0, width);
    return true;
}

/* Booleans as runs, with their length before them. */
static bool open_runs(struct parquet_values *v, size_t bytes)
{
    uint32_t length;
    if (bytes < sizeof length) return bytes == 0;
    memcpy(&length, v->at, sizeof length);
    if (length > bytes - sizeof length) return false;
    v->runs = parquet_runs_make(v->at + sizeof length, length, 1);
    return true;
}

/* Lengths, then the bytes of all values; where values share beginnings, the lengths of these first. */
static bool open_lengths(struct parquet_values *v, uint64_t most)
{
    if (v->encoding == PARQUET_DELTA_BYTE_ARRAY) {
        if (!parquet_deltas_open(v->at, (size_t)(v->end - v->at), most, &v->prefixes)) return false;
        v->at = parquet_deltas_end(&v->prefixes);
        if (v->at == NULL) return false;
    }
    if (!parquet_deltas_open(v->at, (size_t)(v->end - v->at), most, &v->deltas)) return false;
    v->at = parquet_deltas_end(&v->deltas);
    return v->at != NULL;
}

static bool is_readable(enum parquet_type type, int encoding)
{
    bool integer = type == PARQUET_INT32 || type == PARQUET_INT64;
    bool bytes = type == PARQUET_BYTES || type == PARQUET_FIXED_BYTES;
    switch (encoding) {
    case PARQUET_PLAIN:
        return true;
    case PARQUET_PLAIN_DICTIONARY:
    case PARQUET_RLE_DICTIONARY:
        return type != PARQUET_BOOLEAN;
    case PARQUET_RLE:
        return type == PARQUET_BOOLEAN;
    case PARQUET_DELTA_BINARY_PACKED:
        return integer;
    case PARQUET_DELTA_LENGTH_BYTE_ARRAY:
        return type == PARQUET_BYTES;
    case PARQUET_DELTA_BYTE_ARRAY:
        return bytes;
    case PARQUET_BYTE_STREAM_SPLIT:
        return integer || type == PARQUET_FLOAT || type == PARQUET_DOUBLE || type == PARQUET_FIXED_BYTES;
    default:
        return false;
    }
}

bool parquet_values_open(struct parquet_values *v, int encoding, const uint8_t *data, size_t bytes,
                         uint64_t most, const char **why, bool *unsupported)
{
    bool opened = true;
    *unsupported = !is_readable(v->type, encoding);
    if (*unsupported) {
        *why = "its values have an encoding that is not supported for their type";
        return false;
    }
    v->encoding = encoding;
    v->at = data;
    v->end = data + bytes;
    v->index = 0;
    *why = "its values are damaged";
    switch (encoding) {
    case PARQUET_PLAIN_DICTIONARY:
    case PARQUET_RLE_DICTIONARY:
        opened = open_dictionary(v, bytes, why);
        break;
    case PARQUET_RLE:
        opened = open_runs(v, bytes);
        break;
    case PARQUET_DELTA_BINARY_PACKED:
        opened = bytes == 0 || parquet_deltas_open(data, bytes, most, &v->deltas);
        break;
    case PARQUET_DELTA_LENGTH_BYTE_ARRAY:
    case PARQUET_DELTA_BYTE_ARRAY:
        tt_str_clear(&v->made);
        opened = bytes == 0 || open_lengths(v, most);
        break;
    case PARQUET_BYTE_STREAM_SPLIT:
        v->count = bytes / v->width;
        opened = bytes % v->width == 0;
        break;
    default:
        break;
    }
    if (bytes == 0) v->deltas = v->prefixes = (struct parquet_deltas){0};
    return opened;
}

/* ---- Reading ---- */

static bool next_boolean(struct parquet_values *v)
{
    uint32_t bit;
    if (v->encoding == PARQUET_RLE) {
        if (!parquet_runs_next(&v->runs, &bit)) return false;
    } else {
        if (v->index / 8 >= (uint64_t)(v->end - v->at)) return false;
        bit = v->at[v->index / 8] >> v->index % 8 & 1;
        v->index++;
    }
    v->number[0] = (uint8_t)bit;
    return true;
}

/* Byte k of all values, then byte k + 1. */
static tt_status next_split(struct parquet_values *v, struct parquet_value *out)
{
    if (v->index == v->count) return TT_ERR_DATA;
    tt_str_clear(&v->made);
    for (size_t k = 0; k < v->width; k++)
        TT_TRY(tt_str_append_char(&v->made, (char)v->at[k * v->count + v->index]));
    v->index++;
    *out = (struct parquet_value){(const uint8_t *)v->made.data, v->made.bytes};
    return TT_OK;
}

static bool next_suffix(struct parquet_values *v, struct parquet_value *out)
{
    int64_t length;
    if (!parquet_deltas_next(&v->deltas, &length) || length < 0 || length > v->end - v->at) return false;
    *out = (struct parquet_value){v->at, (size_t)length};
    v->at += length;
    return true;
}

static tt_status next_joined(struct parquet_values *v, struct parquet_value *out)
{
    int64_t prefix;
    if (!parquet_deltas_next(&v->prefixes, &prefix) || prefix < 0 || (uint64_t)prefix > v->made.bytes)
        return TT_ERR_DATA;
    if (!next_suffix(v, out)) return TT_ERR_DATA;
    v->made.bytes = (size_t)prefix;
    TT_TRY(tt_str_append(&v->made, (const char *)out->data, out->bytes));
    *out = (struct parquet_value){(const uint8_t *)v->made.data, v->made.bytes};
    return v->width == 0 || out->bytes == v->width ? TT_OK : TT_ERR_DATA;
}

tt_status parquet_values_next(struct parquet_values *v, struct parquet_value *out)
{
    uint32_t index;
    int64_t number;
    bool found = true;
    switch (v->encoding) {
    case PARQUET_PLAIN_DICTIONARY:
    case PARQUET_RLE_DICTIONARY:
        found = parquet_runs_next(&v->runs, &index) && index < v->dictionary->count;
        if (found) *out = v->dictionary->values[index];
        break;
    case PARQUET_DELTA_BINARY_PACKED:
        found = parquet_deltas_next(&v->deltas, &number);
        if (found) memcpy(v->number, &number, sizeof number);
        *out = (struct parquet_value){v->number, v->width};
        break;
    case PARQUET_DELTA_LENGTH_BYTE_ARRAY:
        found = next_suffix(v, out);
        break;
    case PARQUET_DELTA_BYTE_ARRAY:
        return next_joined(v, out);
    case PARQUET_BYTE_STREAM_SPLIT:
        return next_split(v, out);
    default:
        if (v->type == PARQUET_BOOLEAN) {
            found = next_boolean(v);
            *out = (struct parquet_value){v->number, 1};
        } else {
            found = next_plain(&v->at, v->end, v->width, out);
        }
    }
    return found ? TT_OK : TT_ERR_DATA;
}

void parquet_values_deinit(struct parquet_values *values)
{
    tt_str_deinit(&values->made);
    *values = (struct parquet_values){0};
}
