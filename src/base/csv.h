/* Rows of a CSV file (RFC 4180): fields with commas, quotes and line breaks in quotes; lines end with LF or CRLF. */
#ifndef TT_BASE_CSV_H
#define TT_BASE_CSV_H

#include <stdbool.h>
#include <stdint.h>

#include "base/file.h"

enum { TT_CSV_FIELDS_MAX = 64 };

struct tt_csv {
    const char *path; /* borrowed */
    struct tt_file_map map;
    bool borrows;           /* the map */
    uint64_t row_bytes_max; /* 1 MiB unless it is set: a longer row is an error */
    uint64_t at;
    int64_t row;            /* of the last row, from 1 */
    uint64_t line;          /* on which it begins, from 1 */
    uint64_t lines;         /* before `at` */
    struct tt_str unquoted; /* storage of fields that were in quotes */
    int count;
    struct tt_span fields[TT_CSV_FIELDS_MAX]; /* of the last row; valid until the next */
};

TT_MUST_USE tt_status tt_csv_open(const char *path, struct tt_csv *csv);
/* The same over a map, which is borrowed. */
void tt_csv_over(const char *path, const struct tt_file_map *map, struct tt_csv *csv);
void tt_csv_close(struct tt_csv *csv);
/* Reads the next row that is not blank; *found false: there is none. */
TT_MUST_USE tt_status tt_csv_next(struct tt_csv *csv, bool *found);
/* Column of the last row, a header, with this name; -1: none. */
int tt_csv_column(const struct tt_csv *csv, const char *name);
/* The number in a field of the last row; TT_ERR_DATA names file, row and column. */
TT_MUST_USE tt_status tt_csv_number(const struct tt_csv *csv, int column, double *number);

#endif
