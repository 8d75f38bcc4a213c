/* Output of the program. Results go to standard output; messages, errors and progress go to standard error. A terminal
 * gets one line of progress, redrawn at most ten times a second, and at the end the last training rows; its lines are
 * broken at words to fit its width. A file or pipe gets plain lines. Where none comes for half a minute of training, a
 * line says how far the step is; each such line doubles the time until the next, up to ten minutes. Colour is used only
 * on a terminal, and not if NO_COLOR is set. All functions may be called from any thread. */
#ifndef TT_CLI_REPORT_H
#define TT_CLI_REPORT_H

#include <pthread.h>
#include <stdio.h>

#include "base/error.h"
#include "base/log.h"
#include "cli/last_rows.h"
#include "run/trainer.h"

struct tt_json_value;

struct tt_report {
    FILE *out, *err;
    bool terminal; /* err is a terminal */
    bool colour;
    bool bar;       /* show progress as one line that is redrawn */
    bool bar_shown; /* the cursor is behind a bar */
    bool json;      /* lines are JSON objects (cli/report_json.h); without bar and colours */
    int rank;       /* that the launcher gave this process, or 0 */
    bool quiet; /* a launcher started this process as a rank other than 0, and rank 0 logs the same lines */
    bool once;  /* a warning that was printed already is left out */
    struct tt_str warnings;      /* that were printed, while `once` */
    double drawn_at;             /* seconds of tt_clock_seconds */
    double printed_at;           /* the last line, or the start */
    double patience;             /* seconds without a line until one says how far the step is */
    struct tt_progress progress; /* of the last call of on_progress or on_step_part, */
    double part;                 /* with this part of the next step */
    struct tt_last_rows last;    /* that the bar has shown, for the end of the run */
    pthread_mutex_t lock;        /* for progress, rows and the bar */
};

void tt_report_init(struct tt_report *report, FILE *out, FILE *err);
void tt_report_deinit(struct tt_report *report);                 /* ends the line of the bar */
void tt_report_set_json(struct tt_report *report, bool json);    /* before other threads use the report */
void tt_report_line(struct tt_report *report, const char *line); /* prints a message above the bar */
/* Shows how far other work than steps is: as the bar, or as a line in half a minute where there is none. `over`: the
 * last of its kind, which stays. */
void tt_report_work(struct tt_report *report, const char *line, bool over);
/* Prints the error record of this thread: all of it, or one line if another rank reports the error. */
void tt_report_error(struct tt_report *report);

/* A sink for tt_log_set_sink; `context` is the report. */
tt_log_sink tt_report_log;
/* Callbacks that print progress, log rows and messages; borrows `report`. */
struct tt_train_observer tt_report_observer(struct tt_report *report);
void tt_report_summary(struct tt_report *report, const struct tt_train_summary *summary);

/* Writes the line of progress, at most `columns` wide and without an end of line, into `text` and returns it. `part`:
 * of the next step. Public for tests. */
const char *tt_report_format_bar(const struct tt_progress *progress, double part, int columns, char *text,
                                 size_t text_bytes);
/* Columns of the terminal that `file` writes to; 80 if it is not a terminal. */
int tt_report_columns(FILE *file);
/* The same for rows that programs read too: without a bound if it is not a terminal, a row is one line there. */
int tt_report_row_columns(FILE *file);

/* Prints on standard output, with control characters escaped. A closed pipe or a full disk is TT_ERR_IO. */
TT_MUST_USE tt_status tt_report_print(struct tt_report *report, const char *text);
/* The same; on a terminal broken to its width, with `indent` before what continues a line; below 0: not broken, as
 * JSON. */
TT_MUST_USE tt_status tt_report_print_wrapped(struct tt_report *report, const char *text, int indent);
/* Prints `object` and a line feed as tt_report_print does, and releases it. NULL: TT_ERR_MEMORY. `indent`: as of
 * tt_json_write. */
TT_MUST_USE tt_status tt_report_print_json(struct tt_report *report, struct tt_json_value *object,
                                           int indent);
/* Prints a result: unchanged into files and pipes, and as tt_report_print does on a terminal. */
TT_MUST_USE tt_status tt_report_print_raw(struct tt_report *report, const char *text, size_t bytes);
/* Prints a text that is escaped already, and that may hold colours. */
TT_MUST_USE tt_status tt_report_print_escaped(struct tt_report *report, const char *text, size_t bytes);
/* Whether standard output takes colours. */
bool tt_report_colours_out(const struct tt_report *report);

#endif
