#include "grammar/work.h"

#include <stdarg.h>

#include "base/number.h"

bool grammar_is_well(const struct grammar_work *work)
{
    return work->status == TT_OK;
}

void grammar_fail(struct grammar_work *work, tt_status status)
{
    if (work->status == TT_OK) work->status = status;
}

void grammar_refuse(struct grammar_work *work, const char *format, ...)
{
    char text[400];
    va_list arguments;
    if (work->status != TT_OK) return;
    va_start(arguments, format);
    tt_vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    work->status = tt_fail(TT_ERR_USAGE, "%s", text);
}

bool grammar_spend(struct grammar_work *work, size_t steps, size_t bytes)
{
    if (work->status != TT_OK) return false;
    work->steps += steps;
    work->bytes += bytes;
    if (work->bytes > GRAMMAR_BYTES_MAX)
        grammar_refuse(work, "the grammar takes more than %d MiB: lower its lengths and counts",
                       GRAMMAR_BYTES_MAX >> 20);
    else if (work->steps > GRAMMAR_STEPS_MAX)
        grammar_refuse(work, "the grammar takes more than 100 ms to compile: make it smaller");
    return work->status == TT_OK;
}
