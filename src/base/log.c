#include "base/log.h"

#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include "base/number.h"
#include "base/utf8.h"

/* Set once before any thread starts (see the header) and only read afterwards. */
static tt_log_sink *installed_sink;
static void *installed_context;

void tt_log_set_sink(tt_log_sink *sink, void *context)
{
    installed_sink = sink;
    installed_context = context;
}

void tt_log(enum tt_log_level level, const char *format, ...)
{
    if (installed_sink == NULL) return;
    char line[1024];
    va_list arguments;
    va_start(arguments, format);
    tt_vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    char shown[sizeof line];
    (void)tt_utf8_printable(line, strlen(line), "", shown, sizeof shown);
    installed_sink(installed_context, level, shown);
}
