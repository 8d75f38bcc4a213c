#include "cli/termination.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void tt_termination_write(const struct tt_error *error)
{
    char text[TT_TERMINATION_BYTES_MAX];
    struct stat info;
    const char *path = getenv("TRIMTAB_TERMINATION_LOG");
    if (path == NULL || path[0] == 0) path = "/dev/termination-log";
    tt_error_format(error, text, sizeof text);
    int file = open(path, O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (file < 0) return;
    if (fstat(file, &info) == 0 && S_ISREG(info.st_mode) && ftruncate(file, 0) == 0)
        (void)!write(file, text, strlen(text));
    close(file);
}
