/* Compression of Parquet's pages: none, Snappy, gzip, raw LZ4, Zstandard. */
#ifndef TT_DATA_PARQUET_CODEC_H
#define TT_DATA_PARQUET_CODEC_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

enum {
    PARQUET_CODEC_NONE,
    PARQUET_CODEC_SNAPPY,
    PARQUET_CODEC_GZIP,
    PARQUET_CODEC_ZSTD = 6,
    PARQUET_CODEC_LZ4_RAW,
};

/* Why a codec cannot be read; NULL: it can. */
const char *parquet_codec_refusal(int codec);

/* Memory of the libraries; a zeroed struct is empty. */
struct parquet_codec {
    void *zstd;
};
void parquet_codec_deinit(struct parquet_codec *state);

/* Unpacks to exactly `bytes`. *why describes damage (TT_ERR_DATA), without an error record. */
TT_MUST_USE tt_status parquet_unpack(struct parquet_codec *state, int codec, const uint8_t *packed,
                                     size_t packed_bytes, uint8_t *out, size_t bytes, const char **why);

#endif
