#include "cli/report_json.h"

#include <math.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/json.h"
#include "cli/exit_codes.h"

/* "2026-11-24T12:34:56.789Z" */
static void format_time(char *text, size_t text_bytes)
{
    double now = tt_clock_unix_seconds();
    time_t seconds = (time_t)floor(now);
    struct tm parts;
    size_t length = 0;
    if (gmtime_r(&seconds, &parts) != NULL) length = strftime(text, text_bytes, "%Y-%m-%dT%H:%M:%S", &parts);
    snprintf(text + length, text_bytes - length, ".%03dZ", (int)((now - (double)seconds) * 1000));
}

static struct tt_json_value *new_line(const struct tt_report *report, const char *level, const char *event)
{
    char now[48];
    format_time(now, sizeof now);
    return tt_json_pack("{s:s,s:s,s:i,s:s}", "ts", now, "level", level, "rank", report->rank, "event", event);
}

/* Prints and releases `line`. NULL: there was no memory for it. */
static void print_line(struct tt_report *report, struct tt_json_value *line)
{
    struct tt_str text = {0};
    if (tt_json_write(line, 0, false, &text) == TT_OK) {
        pthread_mutex_lock(&report->lock);
        fprintf(report->err, "%s\n", tt_str_text(&text));
        fflush(report->err);
        report->printed_at = tt_clock_seconds();
        pthread_mutex_unlock(&report->lock);
    }
    tt_str_deinit(&text);
    tt_json_release(line);
}

void tt_report_json_message(struct tt_report *report, enum tt_log_level level, const char *line)
{
    static const char *const names[] = {[TT_LOG_DEBUG] = "debug",
                                        [TT_LOG_INFO] = "info",
                                        [TT_LOG_NOTICE] = "notice",
                                        [TT_LOG_WARNING] = "warning"};
    struct tt_error record;
    tt_error_copy(&record);
    struct tt_json_value *object = new_line(report, names[level], "message");
    tt_json_set(object, "message", tt_json_new_string(line));
    print_line(report, object);
    (void)!tt_error_restore(&record);
}

void tt_report_json_row(struct tt_report *report, const struct tt_log_row *row, int64_t max_steps)
{
    struct tt_error record;
    tt_error_copy(&record);
    struct tt_json_value *object = new_line(report, "info", row->evaluation ? "evaluation" : "log"),
                         *fields = tt_json_new_object();
    for (int i = 0; i < row->field_count; i++)
        tt_json_set(fields, row->fields[i].name, tt_json_new_real(row->fields[i].value));
    tt_json_set(object, "step", tt_json_new_integer(row->step));
    if (max_steps > 0) tt_json_set(object, "max_steps", tt_json_new_integer(max_steps));
    tt_json_set(object, "epoch", tt_json_new_real(row->epoch));
    tt_json_set(object, "fields", fields);
    print_line(report, object);
    (void)!tt_error_restore(&record);
}

void tt_report_json_summary(struct tt_report *report, const struct tt_train_summary *summary)
{
    bool images = summary->unit != NULL && strcmp(summary->unit, "images") == 0;
    const struct {
        const char *name;
        double value;
    } reals[] = {
        {"epochs", summary->epochs},
        {"train_loss", summary->train_loss},
        {"eval_loss", summary->last_eval_loss},
        {"seconds", summary->seconds},
        {images ? "images_per_second" : "tokens_per_second", summary->tokens_per_second},
        {"samples_per_second", summary->samples_per_second},
        {"model_tflops", summary->model_tflops},
    };
    struct tt_error record;
    tt_error_copy(&record);
    struct tt_json_value *object = new_line(report, "info", "end");
    tt_json_set(object, "stopped", tt_json_new_bool(summary->stopped));
    tt_json_set(object, "steps", tt_json_new_integer(summary->steps));
    if (summary->was_complete) tt_json_set(object, "was_complete", tt_json_new_bool(true));
    for (size_t i = 0; i < sizeof reals / sizeof *reals && !summary->was_complete; i++)
        if (!isnan(reals[i].value)) tt_json_set(object, reals[i].name, tt_json_new_real(reals[i].value));
    tt_json_set(object, "planned_bytes", tt_json_new_integer((int64_t)summary->planned_bytes));
    tt_json_set(object, "peak_bytes", tt_json_new_integer((int64_t)summary->peak_bytes));
    tt_json_set(object, "output", tt_json_new_string(summary->output));
    print_line(report, object);
    (void)!tt_error_restore(&record);
}

/* The lines as a list. */
static struct tt_json_value *new_items(char *lines)
{
    struct tt_json_value *list = tt_json_new_list();
    char *rest = lines;
    for (char *line = strtok_r(lines, "\n", &rest); line != NULL; line = strtok_r(NULL, "\n", &rest))
        tt_json_append(list, tt_json_new_string(line));
    return list;
}

void tt_report_json_error(struct tt_report *report, const struct tt_error *error)
{
    struct tt_error record = *error;
    bool own = !record.reported_elsewhere;
    struct tt_json_value *object = new_line(report, own ? "error" : "notice", own ? "error" : "ended"),
                         *context = record.context_count > 0 ? tt_json_new_list() : NULL;
    for (int i = 0; i < record.context_count; i++)
        tt_json_append(context, tt_json_new_string(record.context[i]));
    tt_json_set(object, "status", tt_json_new_string(tt_status_name(record.status)));
    tt_json_set(object, "exit_code", tt_json_new_integer(tt_exit_code_of_error(&record)));
    tt_json_set(object, "message", tt_json_new_string(record.message));
    if (record.items[0] != 0) tt_json_set(object, "items", new_items(record.items));
    if (record.context_count > 0) tt_json_set(object, "context", context);
    if (record.hint[0] != 0) tt_json_set(object, "hint", tt_json_new_string(record.hint));
    print_line(report, object);
    (void)!tt_error_restore(&record);
}
