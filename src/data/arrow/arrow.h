/* Arrow files as rows of JSON, as data/parquet/parquet.h reads Parquet: the format of datasets' save_to_disk and cache
 * (IPC streams, and IPC files). Values are read where they are in the map.
 *
 * Refused: compressed buffers, dictionaries, views, unions, run ends, intervals, durations, decimals of 256 bits. */
#ifndef TT_DATA_ARROW_ARROW_H
#define TT_DATA_ARROW_ARROW_H

#include "data/parquet/parquet.h"

/* Whether a file is Arrow, by its first bytes. */
bool tt_arrow_is(const struct tt_file_map *file);
/* The same as tt_parquet_read. */
TT_MUST_USE tt_status tt_arrow_read(const char *path, const struct tt_file_map *file,
                                    const struct tt_parquet_limits *limits,
                                    tt_status (*put)(void *context, const char *data, size_t bytes),
                                    void *context);
/* The same as tt_parquet_read_into, and tt_parquet_note. */
TT_MUST_USE tt_status tt_arrow_read_into(const char *path, const struct tt_file_map *file,
                                         const struct tt_parquet_limits *limits,
                                         const struct tt_parquet_sink *sink);
TT_MUST_USE tt_status tt_arrow_note(const char *path, const struct tt_file_map *file, const char *key,
                                    struct tt_span *value);

#endif
