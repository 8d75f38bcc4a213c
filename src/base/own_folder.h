/* Files that are installed beside the program. */
#ifndef TT_BASE_OWN_FOLDER_H
#define TT_BASE_OWN_FOLDER_H

#include <stdbool.h>
#include <stddef.h>

/* The folder of the file with this code, the program or libtrimtab.so, without links in it. False: it is unknown, or
 * longer than `bytes`. */
bool tt_own_folder(char *folder, size_t bytes);

#endif
