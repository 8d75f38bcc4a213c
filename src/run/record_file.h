/* A file that grows by records during a run (metrics.jsonl, TensorBoard's events). A record that cannot be written does
 * not end the run: one warning gives the reason, the record is kept in memory, and every later record retries all kept
 * ones. A partially written record is truncated, so that the file always ends with a complete record. Where the
 * store of the path
 * cannot append (base/store.h), the file is stored as a whole at most every 30 s, and when it is closed. */
#ifndef TT_RUN_RECORD_FILE_H
#define TT_RUN_RECORD_FILE_H

#include <stddef.h>
#include <stdint.h>
#include "base/error.h"

struct tt_record_file;

/* Creates or truncates the file. */
TT_MUST_USE tt_status tt_record_file_create(const char *path, struct tt_record_file **out);
/* The same for a file of JSON objects with a member "step", one a line, with the lines up to `first_step` that it
 * already has, as far as they are whole. */
TT_MUST_USE tt_status tt_record_file_continue(const char *path, int64_t first_step,
                                              struct tt_record_file **out);
/* Writes what the file has, and each later record, into a file of the disk too: for readers of this machine, where the
 * store cannot append. Created anew. The first record that cannot be written there ends it with a warning. */
TT_MUST_USE tt_status tt_record_file_mirror(struct tt_record_file *file, const char *path);
/* Appends one record, or keeps it in memory until it can be written. */
void tt_record_file_append(struct tt_record_file *file, const void *data, size_t bytes);
/* Retries once more; a warning gives the number of lost records. Takes NULL. */
void tt_record_file_close(struct tt_record_file *file);

#endif
