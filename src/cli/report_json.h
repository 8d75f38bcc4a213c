/* Log lines as JSON (--log_format json), for collectors of logs: one object a line on standard error, with "ts" (UTC),
 * "level" (info, notice, warning, error), "rank" (of this process's first rank) and "event":
 *
 *   message     "message": a line of the log
 *   log         "step", "max_steps", "epoch", "fields": a row of training, as in metrics.jsonl
 *   evaluation  the same for an evaluation
 *   end         the summary of a training
 *   error       "status", "exit_code", "message", and where they are there "context" (innermost first) and "hint"
 *   ended       this rank ended because another one did, which reports the error
 *
 * The functions take the lock of the report. They leave the error record of the thread alone; a line for which memory
 * does not suffice is dropped. */
#ifndef TT_CLI_REPORT_JSON_H
#define TT_CLI_REPORT_JSON_H

#include "cli/report.h"

void tt_report_json_message(struct tt_report *report, enum tt_log_level level, const char *line);
void tt_report_json_row(struct tt_report *report, const struct tt_log_row *row, int64_t max_steps);
void tt_report_json_summary(struct tt_report *report, const struct tt_train_summary *summary);
void tt_report_json_error(struct tt_report *report, const struct tt_error *error);

#endif
