/* Files of a process that no one else sees, and that go with it. */
#ifndef TT_BASE_TEMPORARY_H
#define TT_BASE_TEMPORARY_H

#include "base/error.h"

/* A file without a name in TMPDIR (else /tmp), for reading and writing; it goes when it is closed and no longer mapped.
 * TT_ERR_IO names the folder. */
TT_MUST_USE tt_status tt_file_open_temporary(int *descriptor);

#endif
