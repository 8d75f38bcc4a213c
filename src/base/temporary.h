/* Files of a process that no one else sees, and that go with it. */
#ifndef TT_BASE_TEMPORARY_H
#define TT_BASE_TEMPORARY_H

#include <stdint.h>

#include "base/error.h"

/* TMPDIR, else /tmp. */
const char *tt_file_temporary_folder(void);

/* A file without a name in TMPDIR (else /tmp), for reading and writing; it goes when it is closed and no longer mapped.
 * TT_ERR_IO names the folder. */
TT_MUST_USE tt_status tt_file_open_temporary(int *descriptor);

/* Bytes that such a file may grow to here: nine tenths of the free space of the folder; of a folder in memory at most
 * half the memory that the process may use. */
TT_MUST_USE tt_status tt_file_temporary_room(uint64_t *bytes);

#endif
