/* Errors: a status names the kind, one thread-local record describes the failure.
 *
 * The function that detects a problem calls tt_fail() exactly once with the exact cause. Its callers add context with
 * tt_while(), innermost first, and may add one hint with tt_hint(). Only src/cli prints.
 *
 *     error: cannot open 'model-00003.safetensors': No such file or directory
 *       while loading layer 17 of 32
 *       while loading model 'llama-8b'
 *       hint: the index lists 4 files, the folder has 3
 *
 * An error of several parts, such as a file with several wrong lines, lists them with tt_item(), one line each.
 *
 * The kinds (tt_status) and the access to a record (tt_error_last, tt_error_clear, tt_error_format, tt_status_name) are
 * public: trimtab.h declares them.
 *
 * Each text is one line of printable UTF-8: terminal control characters are escaped as \x1b (base/utf8.h), from
 * whatever file or machine the text comes.
 *
 * A record belongs to the thread that failed. To carry it to another thread (a rank's error to the thread that joins
 * it), copy it with tt_error_copy() and restore it there with tt_error_restore().
 */
#ifndef TT_BASE_ERROR_H
#define TT_BASE_ERROR_H

#include <stdbool.h>

#include "trimtab.h"

#define TT_PRINTF(format_index, first_index) __attribute__((format(printf, format_index, first_index)))

enum {
    TT_ERROR_CONTEXT_MAX = 6,
    TT_ERROR_ITEMS_BYTES = 6144,
    TT_ERROR_TEXT_BYTES = 10240, /* the text of any record (tt_error_format) */
};

struct tt_error {
    tt_status status;
    char message[640];
    char items[TT_ERROR_ITEMS_BYTES];        /* lines; empty when the error is one */
    char context[TT_ERROR_CONTEXT_MAX][200]; /* innermost first; further calls of tt_while are dropped */
    int context_count;
    char hint[400]; /* empty when there is none */
    /* Members for runs over several processes, each of which may end in an error: */
    tt_status cause;         /* TT_ERR_PEER: status of the other rank's error; TT_OK when unknown */
    bool reported_elsewhere; /* another rank reports this error, or its cause */
};

/* Starts a fresh record in this thread and returns `status`, so that `return tt_fail(...)` reads well. */
tt_status tt_fail(tt_status status, const char *format, ...) TT_PRINTF(2, 3);
/* The same as tt_fail, with ": strerror(error_number)" appended. The status is TT_ERR_DATA where the path itself is
 * wrong (ENOENT, EACCES, EISDIR, EROFS, ...), and TT_ERR_IO for all others, which a retry may cure (ENOSPC, EDQUOT,
 * EIO, ESTALE, ETIMEDOUT, ...). */
tt_status tt_fail_errno(int error_number, const char *format, ...) TT_PRINTF(2, 3);
/* Adds a line to the parts of this thread's error. False where there is no room: the record is as before. */
bool tt_item(const char *format, ...) TT_PRINTF(1, 2);
/* Adds one line of context to the record of this thread ("loading layer 17 of 32"). */
void tt_while(const char *format, ...) TT_PRINTF(1, 2);
/* Sets the hint of the record of this thread, unless it has one already. */
void tt_hint(const char *format, ...) TT_PRINTF(1, 2);

void tt_error_copy(struct tt_error *out);
/* The record of this thread, for code that is linked twice: a plugin has its own copy of this file. The program makes
 * it use the program's records, once and before any other call. */
struct tt_error *tt_error_record(void);
void tt_error_use_records(struct tt_error *(*record_of_thread)(void));
/* Makes `error` the record of this thread and returns its status. */
tt_status tt_error_restore(const struct tt_error *error);
/* Sets `reported_elsewhere` of the record of this thread, and its `cause` (TT_OK: unknown). */
void tt_error_set_reported_elsewhere(tt_status cause);

/* Returns from the calling function unless `call` returns TT_OK. */
#define TT_TRY(call)                                                                                         \
    do {                                                                                                     \
        tt_status tt_try_status_ = (call);                                                                   \
        if (tt_try_status_ != TT_OK) return tt_try_status_;                                                  \
    } while (0)

/* The exit of functions that own resources: requires `tt_status status = TT_OK;` and one label `out:`. */
#define TT_GO(call)                                                                                          \
    do {                                                                                                     \
        status = (call);                                                                                     \
        if (status != TT_OK) goto out;                                                                       \
    } while (0)

#endif
