/* Files of a process that no one else sees, and that go with it. */
#ifndef TT_BASE_TEMPORARY_H
#define TT_BASE_TEMPORARY_H

#include <stdint.h>

#include "base/error.h"
#include "base/file.h"

/* TMPDIR, else /tmp. */
const char *tt_file_temporary_folder(void);

/* A file without a name in TMPDIR (else /tmp), for reading and writing; it goes when it is closed and no longer mapped.
 * TT_ERR_IO names the folder. */
TT_MUST_USE tt_status tt_file_open_temporary(int *descriptor);

/* Makes a folder in TMPDIR (else /tmp) for this user alone, which the caller removes. */
TT_MUST_USE tt_status tt_dir_make_temporary(struct tt_path *path);

/* Bytes that such a file may grow to here: nine tenths of the free space of the folder; of a folder in memory at most
 * half the memory that the process may use. */
TT_MUST_USE tt_status tt_file_temporary_room(uint64_t *bytes);

#endif
