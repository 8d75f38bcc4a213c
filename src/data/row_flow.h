/* The rows of sources one after the other, read on as they are asked for: no file is opened before its first row, and
 * none is kept behind its last. Files of lines (.jsonl, .ndjson) are read in pieces of a few MiB, by ranges where a
 * store has them (base/store.h); every other file (compressed, a table, an array, a text) as a whole by data/rows.h,
 * into TMPDIR where it must be unpacked or a store has it, and one at a time. max_samples and max_source_samples of an
 * epoch count as of tt_dataset_load_sources. */
#ifndef TT_DATA_ROW_FLOW_H
#define TT_DATA_ROW_FLOW_H

#include "data/dataset.h"
#include "data/sources.h"

/* The row that comes next. */
struct tt_flow_place {
    int64_t file;         /* in the sources */
    int64_t offset, line; /* of a file of lines: the byte and the line, from 0 and 1, where reading goes on */
    int64_t row;          /* rows of the file before it */
    int64_t rows, source_rows; /* rows before it, of the epoch and of its source */
};

struct tt_flow_row {
    char *data; /* owned by the caller of tt_row_flow_next */
    size_t bytes;
    uint64_t line;
    struct tt_flow_place place; /* its own */
};

struct tt_row_flow;
/* Borrows both. `max_rows`: of an epoch; 0: all. */
TT_MUST_USE tt_status tt_row_flow_create(const struct tt_sources *sources,
                                         const struct tt_data_config *config, int64_t max_rows,
                                         struct tt_row_flow **out);
void tt_row_flow_destroy(struct tt_row_flow *flow); /* takes NULL */
/* Goes on with the row of a place, NULL: the first. */
TT_MUST_USE tt_status tt_row_flow_seek(struct tt_row_flow *flow, const struct tt_flow_place *place);
/* *end: there are no more rows. TT_ERR_DATA, with the file: it has none, a row is longer than max_row_size, or the file
 * became shorter while it was read. */
TT_MUST_USE tt_status tt_row_flow_next(struct tt_row_flow *flow, struct tt_flow_row *row, bool *end);

/* A sum (base/crc64.h) that tells files that were changed: of each its size, its first and last 64 KiB and, on a disk,
 * 64 blocks of 4 KiB between them. *bytes: of all files. */
TT_MUST_USE tt_status tt_sources_sum(const struct tt_sources *sources, uint64_t *sum, uint64_t *bytes);

#endif
