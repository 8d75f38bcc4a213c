/* Compressed data files, by their first bytes: gzip (RFC 1952, any number of members, zeros behind them) and Zstandard
 * (RFC 8878, any number of frames); and Parquet and Arrow, by their names too, whose rows become JSON
 * Lines (data/parquet/parquet.h, data/arrow/arrow.h).
 *
 * A file is unpacked into a file without a name in TMPDIR (else /tmp), which is mapped and goes with the map: memory is
 * bounded, and the disk needs room for the unpacked bytes. */
#ifndef TT_DATA_UNPACK_H
#define TT_DATA_UNPACK_H

#include "base/file.h"

/* Beyond the first 64 MiB a file may unpack to so many times its size; real rows take a tenth of that. */
enum { TT_UNPACK_RATIO_MAX = 200 };

/* Of Parquet and Arrow, whose rows are known: no more of them are read. 0: no limit. */
struct tt_unpack_limits {
    uint64_t rows, row_bytes;
};

/* Endings of names of compressed files, ".gz" and the like, ended by NULL. */
extern const char *const tt_unpack_endings[];
/* Sets *packed, and when it is true maps the unpacked bytes. TT_ERR_DATA for a file that is cut or damaged, with the
 * place, and for one that grows beyond the limits; TT_ERR_IO when the disk is full. */
TT_MUST_USE tt_status tt_unpack_map(const char *path, const struct tt_unpack_limits *limits,
                                    struct tt_file_map *map, bool *packed);
/* Whether the name is that of a Parquet or Arrow file. */
bool tt_unpack_is_table(const char *path);

#endif
