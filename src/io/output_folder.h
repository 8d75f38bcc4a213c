/* The folder that a command is told to write, before anything is written: may it be? */
#ifndef TT_IO_OUTPUT_FOLDER_H
#define TT_IO_OUTPUT_FOLDER_H

#include "base/error.h"

/* TT_OK when `folder` is not there, is empty, or may be replaced; a file, or a folder with something in it, is TT_ERR_USAGE. */
TT_MUST_USE tt_status tt_output_folder_check(const char *folder, bool overwrite);
/* Whether both paths lead to one file or folder that is there. */
bool tt_output_folder_is(const char *folder, const char *other);

#endif
