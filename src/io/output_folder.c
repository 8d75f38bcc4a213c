#include "io/output_folder.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"

static tt_status see_entry(void *context, const char *name)
{
    (void)name;
    *(bool *)context = true;
    return TT_OK;
}

tt_status tt_output_folder_check(const char *folder, bool overwrite)
{
    bool filled = false, is_dir = tt_path_is_dir(folder);
    if (!tt_path_exists(folder)) return TT_OK;
    if (is_dir) TT_TRY(tt_dir_list(folder, see_entry, &filled));
    if (is_dir && (!filled || overwrite)) return TT_OK;
    tt_status status =
        tt_fail(TT_ERR_USAGE, "output_dir '%s' %s", folder, is_dir ? "is not empty" : "is a file");
    if (is_dir) tt_hint("name another, or replace it with --overwrite_output_dir");
    return status;
}

bool tt_output_folder_is(const char *folder, const char *other)
{
    char *a = realpath(folder, NULL), *b = realpath(other, NULL);
    bool same = a != NULL && b != NULL && strcmp(a, b) == 0;
    free(a);
    free(b);
    return same;
}
