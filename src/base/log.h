/* Log lines. Nothing here prints: lines go to the sink that the program, or the user of the library, installs with
 * tt_log_set_sink (trimtab.h; none by default). The sink is thread safe and set before any other thread starts.
 * The sink gets single lines: control characters and line breaks in inserted texts are escaped (base/utf8.h). */
#ifndef TT_BASE_LOG_H
#define TT_BASE_LOG_H

#include "trimtab.h"

void tt_log(enum tt_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));
#define tt_debug(...) tt_log(TT_LOG_DEBUG, __VA_ARGS__)
#define tt_notice(...) tt_log(TT_LOG_NOTICE, __VA_ARGS__)
#define tt_info(...) tt_log(TT_LOG_INFO, __VA_ARGS__)
#define tt_warn(...) tt_log(TT_LOG_WARNING, __VA_ARGS__)

#endif
