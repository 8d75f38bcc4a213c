/* What people see: the only place of the program that writes to a terminal. Results go to standard output; messages,
 * errors and progress to standard error. A terminal gets one line of progress, redrawn at most ten times a second and
 * fitted to its width; anything else gets plain lines. Colour only on a terminal, and not when NO_COLOR is set. */
#ifndef TT_CLI_REPORT_H
#define TT_CLI_REPORT_H

#include <pthread.h>
#include <stdio.h>

#include "base/error.h"
#include "base/log.h"
#include "run/trainer.h"

struct tt_report {
    FILE *out, *err;
    bool terminal; /* err is one */
    bool colour;
    bool bar; /* progress as one line that is redrawn */
    bool bar_shown;
    bool quiet;      /* a launcher started this process as another rank than 0: its facts are rank 0's too */
    double drawn_at; /* seconds */
    struct tt_progress progress; /* the last that was told */
    pthread_mutex_t lock;
};

void tt_report_init(struct tt_report *report, FILE *out, FILE *err);
void tt_report_deinit(struct tt_report *report);                 /* ends a line of progress */
void tt_report_line(struct tt_report *report, const char *line); /* a message */
/* the error record of this thread; one line where another rank tells it */
void tt_report_error(struct tt_report *report);
void tt_report_bar_end(struct tt_report *report);

/* A sink for tt_log_set_sink; `context` is the report. */
tt_log_sink tt_report_log;
/* Callbacks that report; borrows `report`. */
struct tt_train_observer tt_report_observer(struct tt_report *report);
void tt_report_summary(struct tt_report *report, const struct tt_train_summary *summary);

/* The line of progress in `columns` columns, without an end of line; returns `text`. For tests, and for the bar. */
const char *tt_report_format_bar(const struct tt_progress *progress, int columns, char *text,
                                 size_t text_bytes);
/* Columns of the terminal behind `file`; 80 when there is none. */
int tt_report_columns(FILE *file);

/* Standard output. A closed pipe or a full disk is TT_ERR_IO. */
TT_MUST_USE tt_status tt_report_print(struct tt_report *report, const char *text);
/* A text that is a result itself: byte for byte into files and pipes, as tt_report_print does on a terminal. */
TT_MUST_USE tt_status tt_report_print_raw(struct tt_report *report, const char *text, size_t bytes);

#endif
