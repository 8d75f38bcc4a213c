/* A file that grows by records while a run goes on (metrics.jsonl, TensorBoard's events). A record that cannot be
 * written does not end the run: one warning says why, the record is kept in memory, and every later record tries to
 * write all that is kept. A part of a record that reached the file is cut off again, so that the file always ends with
 * a whole one. */
#ifndef TT_RUN_RECORD_FILE_H
#define TT_RUN_RECORD_FILE_H

#include <stddef.h>
#include "base/error.h"

struct tt_record_file;

/* Creates the file, or empties it. */
TT_MUST_USE tt_status tt_record_file_create(const char *path, struct tt_record_file **out);
/* One record. */
void tt_record_file_append(struct tt_record_file *file, const void *data, size_t bytes);
/* A last try, and a warning that says how many records were lost. Takes NULL. */
void tt_record_file_close(struct tt_record_file *file);

#endif
