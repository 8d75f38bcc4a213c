/* Compressed data files, by their first bytes: gzip (RFC 1952, any number of members, zeros behind them) and Zstandard
 * (RFC 8878, any number of frames); and Parquet and Arrow, by their names too, whose rows become JSON
 * Lines (data/parquet/parquet.h, data/arrow/arrow.h).
 *
 * A file is unpacked into a file without a name in TMPDIR (else /tmp), which is mapped and goes with the map: memory is
 * bounded, and the disk needs room for the unpacked bytes. What a file says about its sizes is a stranger's word: its
 * bytes in all are limited by the free space, what is in memory at a time (a page, a value) by numbers of its own. */
#ifndef TT_DATA_UNPACK_H
#define TT_DATA_UNPACK_H

#include "base/file.h"

struct tt_unpack_limits {
    uint64_t rows;      /* no more of them are read, of compressed files all; 0: no limit */
    uint64_t row_bytes; /* a longer row is an error; 0: no limit */
    uint64_t bytes;     /* unpacked; more are an error. 0: what there is room for (tt_file_temporary_room) */
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
