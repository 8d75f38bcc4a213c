/* Files of JSON objects, one a line, that may still grow: metrics.jsonl, ranks/rank-N.jsonl, generations.jsonl. Each
 * call reads what is new. A line without its end waits for it; a line that is no object is counted and left out. */
#ifndef TT_MONITOR_ROWS_H
#define TT_MONITOR_ROWS_H

#include <stdint.h>
#include "base/json.h"

enum { TT_ROWS_MARK_BYTES = 64 };

/* A zeroed struct is at the beginning. */
struct tt_rows {
    uint64_t taken; /* bytes of the lines so far */
    /* The bytes before `taken`: a file that was written anew, as by a resumed run, has others. */
    char mark[TT_ROWS_MARK_BYTES];
    size_t mark_bytes;
    size_t broken; /* lines that were left out */
    bool torn;     /* the file ends with a part of a line */
};

typedef tt_status tt_rows_take(void *context, const struct tt_json_value *row);

/* Sets *anew if the file is no longer the one whose rows were taken: the caller drops what it knows and reads from the
 * beginning (`rows` is zeroed). `last`: nobody writes the file any more, so its last line may lack its end. A file that
 * is missing has no rows. */
TT_MUST_USE tt_status tt_rows_read(struct tt_rows *rows, const char *path, bool last, tt_rows_take *take,
                                   void *context, bool *anew);

#endif
