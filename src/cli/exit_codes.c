#include "cli/exit_codes.h"

#include <stddef.h>

const struct tt_exit_meaning tt_exit_meanings[] = {
    {TT_EXIT_DONE, "done"},
    {TT_EXIT_USAGE, "command line or configuration"},
    {TT_EXIT_DATA, "input or output files"},
    {TT_EXIT_MEMORY, "memory"},
    {TT_EXIT_IO, "reading or writing failed (retry)"},
    {TT_EXIT_DEVICE, "device or peer (retry)"},
    {TT_EXIT_STOPPED, "stopped and resumable (retry)"},
    {TT_EXIT_BUG, "a bug in trimtab"},
    {0, NULL},
};

enum tt_exit_code tt_exit_code_of(tt_status status)
{
    switch (status) {
    case TT_OK:
        return TT_EXIT_DONE;
    case TT_ERR_USAGE:
    case TT_ERR_UNSUPPORTED:
        return TT_EXIT_USAGE;
    case TT_ERR_DATA:
        return TT_EXIT_DATA;
    case TT_ERR_IO:
        return TT_EXIT_IO;
    case TT_ERR_MEMORY:
        return TT_EXIT_MEMORY;
    case TT_ERR_DEVICE:
    case TT_ERR_COMM:
    case TT_ERR_PEER:
        return TT_EXIT_DEVICE;
    case TT_ERR_CANCELLED:
        return TT_EXIT_STOPPED;
    case TT_ERR_INTERNAL:
        break;
    }
    return TT_EXIT_BUG;
}

enum tt_exit_code tt_exit_code_of_error(const struct tt_error *error)
{
    bool has_cause = error->status == TT_ERR_PEER && error->cause != TT_OK;
    return tt_exit_code_of(has_cause ? error->cause : error->status);
}
