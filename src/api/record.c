/* The public accessors of an error record, and the version. */
#include "base/error.h"

const char *tt_version(void)
{
    return TT_VERSION;
}

tt_status tt_error_status(const struct tt_error *error)
{
    return error->status;
}

const char *tt_error_message(const struct tt_error *error)
{
    return error->message;
}

const char *tt_error_context(const struct tt_error *error, int index)
{
    return index >= 0 && index < error->context_count ? error->context[index] : NULL;
}

const char *tt_error_hint(const struct tt_error *error)
{
    return error->hint[0] != 0 ? error->hint : NULL;
}
