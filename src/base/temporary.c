#include "base/temporary.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/cgroup.h"

const char *tt_file_temporary_folder(void)
{
    const char *folder = getenv("TMPDIR");
    return folder != NULL && *folder != '\0' ? folder : "/tmp";
}

/* Where the file system has no files without names: one whose name is removed at once. */
tt_status tt_file_open_temporary(int *descriptor)
{
    char name[PATH_MAX];
    const char *folder = tt_file_temporary_folder();
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

tt_status tt_dir_make_temporary(struct tt_path *path)
{
    struct tt_path made;
    TT_TRY(tt_path_set(&made, tt_file_temporary_folder(), "trimtab.XXXXXX"));
    if (mkdtemp(made.text) == NULL) {
        tt_status status = tt_fail_errno(errno, "no folder can be made in '%s'", tt_file_temporary_folder());
        tt_hint("TMPDIR names another folder");
        return status;
    }
    *path = made;
    return TT_OK;
}

static bool is_in_memory(const char *folder)
{
    enum { TMPFS = 0x01021994 };
    const unsigned long ramfs = 0x858458f6;
    struct statfs info;
    if (statfs(folder, &info) != 0) return false;
    return (unsigned long)info.f_type == TMPFS || (unsigned long)info.f_type == ramfs;
}

tt_status tt_file_temporary_room(uint64_t *bytes)
{
    bool grouped;
    const char *folder = tt_file_temporary_folder();
    TT_TRY(tt_dir_free_bytes(folder, bytes, NULL));
    *bytes -= *bytes / 10;
    uint64_t memory = tt_memory_bytes(&grouped) / 2;
    if (is_in_memory(folder) && memory > 0 && memory < *bytes) *bytes = memory;
    return TT_OK;
}
