#include "data/parquet/codec.h"

#include <stdbool.h>
#include <string.h>

#include <zlib.h>
#include <zstd.h>

const char *parquet_codec_refusal(int codec)
{
    switch (codec) {
    case PARQUET_CODEC_NONE:
    case PARQUET_CODEC_SNAPPY:
    case PARQUET_CODEC_GZIP:
    case PARQUET_CODEC_ZSTD:
    case PARQUET_CODEC_LZ4_RAW:
        return NULL;
    case 3:
        return "it is compressed with LZO, which is not supported";
    case 4:
        return "it is compressed with Brotli, which is not supported";
    case 5:
        return "it is compressed with LZ4 in its old frames, which is not supported";
    default:
        return "it is compressed in an unknown way";
    }
}

void parquet_codec_deinit(struct parquet_codec *state)
{
    ZSTD_freeDCtx(state->zstd);
    *state = (struct parquet_codec){0};
}

/* ---- Snappy and LZ4: literal bytes, and copies of earlier output ---- */

struct copier {
    const uint8_t *at, *end;
    uint8_t *out, *to, *out_end;
};

static bool copy_literal(struct copier *c, size_t bytes)
{
    if (bytes > (size_t)(c->end - c->at) || bytes > (size_t)(c->out_end - c->to)) return false;
    memcpy(c->to, c->at, bytes);
    c->at += bytes;
    c->to += bytes;
    return true;
}

/* Source and target may overlap: the bytes before then repeat. */
static bool copy_back(struct copier *c, size_t distance, size_t bytes)
{
    if (distance == 0 || distance > (size_t)(c->to - c->out) || bytes > (size_t)(c->out_end - c->to))
        return false;
    const uint8_t *from = c->to - distance;
    if (distance >= bytes) {
        memcpy(c->to, from, bytes);
    } else {
        for (size_t i = 0; i < bytes; i++) c->to[i] = from[i];
    }
    c->to += bytes;
    return true;
}

/* A number of `count` bytes. */
static bool read_number(struct copier *c, size_t count, size_t *out)
{
    if (count > (size_t)(c->end - c->at)) return false;
    *out = 0;
    for (size_t i = 0; i < count; i++) *out |= (size_t)c->at[i] << 8 * i;
    c->at += count;
    return true;
}

static bool snappy_element(struct copier *c)
{
    uint8_t tag = *c->at++;
    size_t bytes = (size_t)(tag >> 2) + 1, distance;
    switch (tag & 3) {
    case 0:
        if (bytes > 60) {
            if (!read_number(c, bytes - 60, &bytes)) return false;
            bytes++;
        }
        return copy_literal(c, bytes);
    case 1:
        if (!read_number(c, 1, &distance)) return false;
        return copy_back(c, distance | (size_t)(tag >> 5) << 8, 4 + (tag >> 2 & 7));
    default:
        return read_number(c, (tag & 3) == 2 ? 2 : 4, &distance) && copy_back(c, distance, bytes);
    }
}

static const char *unpack_snappy(struct copier *c)
{
    size_t bytes = 0;
    for (int shift = 0;; shift += 7) {
        if (c->at == c->end || shift > 28) return "its Snappy data has no length";
        bytes |= (size_t)(*c->at & 0x7f) << shift;
        if (*c->at++ < 0x80) break;
    }
    if (bytes != (size_t)(c->out_end - c->out)) return "its Snappy data has another length than the page";
    while (c->at < c->end)
        if (!snappy_element(c)) return "its Snappy data is damaged";
    return c->to == c->out_end ? NULL : "its Snappy data ends early";
}

static bool lz4_length(struct copier *c, size_t nibble, size_t *length)
{
    *length = nibble;
    for (uint8_t byte = 255; nibble == 15 && byte == 255; *length += byte) {
        if (c->at == c->end) return false;
        byte = *c->at++;
    }
    return true;
}

static const char *unpack_lz4(struct copier *c)
{
    static const char damaged[] = "its LZ4 data is damaged";
    while (c->at < c->end) {
        uint8_t token = *c->at++;
        size_t bytes, distance;
        if (!lz4_length(c, token >> 4, &bytes) || !copy_literal(c, bytes)) return damaged;
        if (c->at == c->end) break; /* the last sequence has no copy */
        if (!read_number(c, 2, &distance) || !lz4_length(c, token & 15, &bytes)) return damaged;
        if (!copy_back(c, distance, bytes + 4)) return damaged;
    }
    return c->to == c->out_end ? NULL : "its LZ4 data ends early";
}

/* ---- Libraries ---- */

static tt_status unpack_gzip(const struct copier *c, const char **why)
{
    z_stream z = {0};
    if (inflateInit2(&z, 32 + MAX_WBITS) != Z_OK) return tt_fail(TT_ERR_MEMORY, "zlib has no memory");
    z.next_in = (Bytef *)(uintptr_t)c->at;
    z.avail_in = (uInt)(c->end - c->at);
    z.next_out = c->out;
    z.avail_out = (uInt)(c->out_end - c->out);
    int result = inflate(&z, Z_FINISH);
    if (result != Z_STREAM_END || z.avail_out != 0) *why = "its gzip data is damaged";
    inflateEnd(&z);
    return result == Z_MEM_ERROR ? tt_fail(TT_ERR_MEMORY, "zlib has no memory") : TT_OK;
}

static tt_status unpack_zstd(struct parquet_codec *state, const struct copier *c, const char **why)
{
    if (state->zstd == NULL) state->zstd = ZSTD_createDCtx();
    if (state->zstd == NULL) return tt_fail(TT_ERR_MEMORY, "libzstd has no memory");
    size_t bytes = (size_t)(c->out_end - c->out);
    size_t result = ZSTD_decompressDCtx(state->zstd, c->out, bytes, c->at, (size_t)(c->end - c->at));
    if (ZSTD_isError(result)) {
        *why = ZSTD_getErrorName(result);
    } else if (result != bytes) {
        *why = "its Zstandard data ends early";
    }
    return TT_OK;
}

tt_status parquet_unpack(struct parquet_codec *state, int codec, const uint8_t *packed, size_t packed_bytes,
                         uint8_t *out, size_t bytes, const char **why)
{
    struct copier c = {packed, packed + packed_bytes, out, out, out + bytes};
    *why = NULL;
    if (codec == PARQUET_CODEC_SNAPPY) {
        *why = unpack_snappy(&c);
    } else if (codec == PARQUET_CODEC_LZ4_RAW) {
        *why = unpack_lz4(&c);
    } else if (codec == PARQUET_CODEC_GZIP) {
        TT_TRY(unpack_gzip(&c, why));
    } else if (codec == PARQUET_CODEC_ZSTD) {
        TT_TRY(unpack_zstd(state, &c, why));
    } else if (packed_bytes != bytes) {
        *why = "it has another length than its header says";
    } else if (bytes > 0) {
        memcpy(out, packed, bytes);
    }
    return *why == NULL ? TT_OK : TT_ERR_DATA;
}
