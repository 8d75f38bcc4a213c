/* A data file as a list of rows: where each begins, how long it is, on which line. JSON Lines, a JSON array, or plain
 * text (one row: the whole file). Rows are found here and read in data/row_reader.h, by any thread. */
#ifndef TT_DATA_ROWS_H
#define TT_DATA_ROWS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/file.h"

struct tt_row_span {
    const char *data; /* in the map */
    size_t bytes;
    uint64_t line; /* from 1 */
};

struct tt_rows {
    const char *path; /* borrowed */
    struct tt_file_map map;
    bool plain_text;
    size_t max_row_size;
    struct tt_row_span *spans;
    size_t count, capacity;
};

/* At most `max_rows` rows from the start; 0: all. A file without rows is TT_ERR_DATA, and so is a row of more than
 * `max_row_size` (0: any): a line with the blanks in it, or an element of an array; a text file may be longer. The end
 * of a longer row is not looked for. */
TT_MUST_USE tt_status tt_rows_open(const char *path, size_t max_rows, size_t max_row_size,
                                   struct tt_rows *rows);
void tt_rows_close(struct tt_rows *rows); /* takes a zeroed struct */

#endif
