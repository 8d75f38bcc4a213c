/* Lines of standard input that a signal can interrupt. */
#ifndef TT_CLI_LINE_READER_H
#define TT_CLI_LINE_READER_H

#include "base/str.h"
#include "base/thread.h"

enum tt_line_end { TT_LINE_READ, TT_LINE_END_OF_INPUT, TT_LINE_INTERRUPTED, TT_LINE_STOPPED };

/* A zeroed struct with `file` and `cancel` set is ready. */
struct tt_line_reader {
    int file; /* descriptor */
    /* lent; a request ends the wait with TT_LINE_STOPPED, an interrupt with TT_LINE_INTERRUPTED */
    const struct tt_cancel *cancel;
    struct tt_str pending; /* bytes behind the last line */
    bool ended;
};

/* Replaces `line` by the next line without its end. A line of more than 1 MiB is TT_ERR_DATA. `interrupts`: the count
 * cancel->interrupts before the prompt was printed; a later interrupt ends the line. */
TT_MUST_USE tt_status tt_line_read(struct tt_line_reader *reader, int interrupts, struct tt_str *line,
                                   enum tt_line_end *end);
void tt_line_reader_deinit(struct tt_line_reader *reader);

#endif
