/* Log lines. Libraries never print: they hand lines to the sink that src/cli installs (none by default). */
#ifndef TT_BASE_LOG_H
#define TT_BASE_LOG_H

enum tt_log_level { TT_LOG_DEBUG, TT_LOG_INFO, TT_LOG_WARNING };

typedef void tt_log_sink(void *context, enum tt_log_level level, const char *line);

/* Called once at start-up, before any thread; the sink must be thread safe. */
void tt_log_set_sink(tt_log_sink *sink, void *context);
void tt_log(enum tt_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));
#define tt_debug(...) tt_log(TT_LOG_DEBUG, __VA_ARGS__)
#define tt_info(...) tt_log(TT_LOG_INFO, __VA_ARGS__)
#define tt_warn(...) tt_log(TT_LOG_WARNING, __VA_ARGS__)

#endif
