#include "base/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/number.h"
#include "base/utf8.h"

/* One record per thread, and in a plugin where the program keeps its own (set once, before any other call).
 */
static _Thread_local struct tt_error own_record;
static struct tt_error *(*host_record)(void);

struct tt_error *tt_error_record(void)
{
    return host_record != NULL ? host_record() : &own_record;
}

void tt_error_use_records(struct tt_error *(*record_of_thread)(void))
{
    host_record = record_of_thread;
}

/* Messages contain texts from files and from the network. Control characters and line breaks are escaped, so that no
 * part of a file looks like a message of its own. */
static void set_text(const char *text, char *out, size_t out_bytes)
{
    (void)tt_utf8_printable(text, strlen(text), "", out, out_bytes);
}

/* The text is formatted before the record changes: arguments may point into the old record. */
static void start_record(tt_status status, const char *text)
{
    struct tt_error *record = tt_error_record();
    record->status = status;
    record->cause = TT_OK;
    record->reported_elsewhere = false;
    record->context_count = 0;
    record->hint[0] = '\0';
    record->items[0] = '\0';
    set_text(text, record->message, sizeof record->message);
}

tt_status tt_fail(tt_status status, const char *format, ...)
{
    char text[sizeof own_record.message];
    va_list arguments;
    va_start(arguments, format);
    tt_vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    start_record(status, text);
    return status;
}

/* A retry does not help when a path is wrong or not accessible. It may help with any other error (a full or broken
 * disk, a server that does not answer). */
static tt_status status_of_errno(int error_number)
{
    static const int lasting[] = {ENOENT, ENOTDIR, EISDIR, EACCES, EPERM,
                                  ELOOP,  EROFS,   ENXIO,  ENODEV, ENAMETOOLONG};
    for (size_t i = 0; i < sizeof lasting / sizeof *lasting; i++)
        if (error_number == lasting[i]) return TT_ERR_DATA;
    return TT_ERR_IO;
}

tt_status tt_fail_errno(int error_number, const char *format, ...)
{
    char text[sizeof own_record.message];
    va_list arguments;
    va_start(arguments, format);
    int written = tt_vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    size_t used = written < 0 ? 0 : (size_t)written;
    if (used >= sizeof text) used = sizeof text - 1;
    snprintf(text + used, sizeof text - used, ": %s", tt_errno_text(error_number));
    tt_status status = status_of_errno(error_number);
    start_record(status, text);
    if (error_number == EMFILE)
        tt_hint("this process may open no more files: 'ulimit -n 4096' before the command raises the limit");
    return status;
}

void tt_while(const char *format, ...)
{
    struct tt_error *record = tt_error_record();
    if (record->context_count >= TT_ERROR_CONTEXT_MAX) return;
    char text[sizeof own_record.context[0]];
    va_list arguments;
    va_start(arguments, format);
    tt_vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    set_text(text, record->context[record->context_count], sizeof text);
    record->context_count++;
}

bool tt_item(const char *format, ...)
{
    char text[sizeof own_record.message + sizeof own_record.hint], line[sizeof text];
    struct tt_error *record = tt_error_record();
    va_list arguments;
    va_start(arguments, format);
    tt_vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    set_text(text, line, sizeof line);
    size_t used = strlen(record->items);
    if (used + 1 + strlen(line) >= sizeof record->items) return false;
    (void)tt_snprintf(record->items + used, sizeof record->items - used, "%s%s", used > 0 ? "\n" : "", line);
    return true;
}

void tt_hint(const char *format, ...)
{
    struct tt_error *record = tt_error_record();
    if (record->hint[0] != '\0') return;
    char text[sizeof own_record.hint];
    va_list arguments;
    va_start(arguments, format);
    tt_vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    set_text(text, record->hint, sizeof text);
}

const struct tt_error *tt_error_last(void)
{
    return tt_error_record();
}

void tt_error_clear(void)
{
    *tt_error_record() = (struct tt_error){0};
}

void tt_error_copy(struct tt_error *out)
{
    *out = *tt_error_record();
}

tt_status tt_error_restore(const struct tt_error *error)
{
    struct tt_error *record = tt_error_record();
    if (error == record) return record->status;
    *record = *error;
    /* It may come from another process. */
    set_text(error->message, record->message, sizeof record->message);
    set_text(error->hint, record->hint, sizeof record->hint);
    for (int i = 0; i < record->context_count; i++)
        set_text(error->context[i], record->context[i], sizeof record->context[i]);
    return record->status;
}

void tt_error_set_reported_elsewhere(tt_status cause)
{
    tt_error_record()->cause = cause;
    tt_error_record()->reported_elsewhere = true;
}

/* Appends at *used and counts the bytes that a large enough buffer would hold. */
static void append(char *text, size_t text_bytes, size_t *used, const char *prefix, const char *line)
{
    size_t at = *used < text_bytes ? *used : text_bytes;
    int written = snprintf(at < text_bytes ? text + at : NULL, text_bytes - at, "%s%s", prefix, line);
    if (written > 0) *used += (size_t)written;
}

static void append_items(const char *items, char *text, size_t text_bytes, size_t *used)
{
    char line[sizeof own_record.message + sizeof own_record.hint];
    for (const char *at = items; *at != '\0'; at += *at == '\n') {
        size_t bytes = strcspn(at, "\n");
        (void)tt_snprintf(line, sizeof line, "%.*s", (int)bytes, at);
        append(text, text_bytes, used, "\n  - ", line);
        at += bytes;
    }
}

size_t tt_error_format(const struct tt_error *error, char *text, size_t text_bytes)
{
    size_t used = 0;
    if (text_bytes > 0) text[0] = '\0';
    append(text, text_bytes, &used, "error: ", error->message);
    append_items(error->items, text, text_bytes, &used);
    for (int i = 0; i < error->context_count; i++) {
        append(text, text_bytes, &used, "\n  while ", error->context[i]);
    }
    if (error->hint[0] != '\0') append(text, text_bytes, &used, "\n  hint: ", error->hint);
    return used;
}

const char *tt_status_name(tt_status status)
{
    switch (status) {
    case TT_OK:
        return "OK";
    case TT_ERR_USAGE:
        return "USAGE";
    case TT_ERR_DATA:
        return "DATA";
    case TT_ERR_IO:
        return "IO";
    case TT_ERR_MEMORY:
        return "MEMORY";
    case TT_ERR_DEVICE:
        return "DEVICE";
    case TT_ERR_COMM:
        return "COMM";
    case TT_ERR_PEER:
        return "PEER";
    case TT_ERR_UNSUPPORTED:
        return "UNSUPPORTED";
    case TT_ERR_CANCELLED:
        return "CANCELLED";
    case TT_ERR_INTERNAL:
        return "INTERNAL";
    }
    return "UNKNOWN";
}
