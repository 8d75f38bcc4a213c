#include "base/temporary.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static const char *temporary_folder(void)
{
    const char *folder = getenv("TMPDIR");
    return folder != NULL && *folder != '\0' ? folder : "/tmp";
}

/* Where the file system has no files without names: one whose name is removed at once. */
tt_status tt_file_open_temporary(int *descriptor)
{
    char name[PATH_MAX];
    const char *folder = temporary_folder();
    *descriptor = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (*descriptor >= 0) return TT_OK;
    int written = snprintf(name, sizeof name, "%s/trimtab.XXXXXX", folder);
    if (written > 0 && (size_t)written < sizeof name) {
        *descriptor = mkostemp(name, O_CLOEXEC);
        if (*descriptor >= 0) {
            unlink(name);
            return TT_OK;
        }
    }
    tt_status status = tt_fail_errno(errno, "no temporary file can be made in '%s'", folder);
    tt_hint("TMPDIR names another folder");
    return status;
}
