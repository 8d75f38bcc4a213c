#include "cli/report.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/str.h"
#include "base/utf8.h"
#include "cli/report_json.h"
#include "cli/wrap.h"
#include "comm/launcher.h"

enum { COLUMNS_DEFAULT = 80, COLUMNS_FOR_BAR = 60, BAR_MIN = 10, BAR_MAX = 30 };
static const double redraw_seconds = 0.1, patience_first = 30, patience_most = 600;

int tt_report_columns(FILE *file)
{
    struct winsize size;
    if (ioctl(fileno(file), TIOCGWINSZ, &size) != 0 || size.ws_col < 20) return COLUMNS_DEFAULT;
    return size.ws_col;
}

int tt_report_row_columns(FILE *file)
{
    return isatty(fileno(file)) == 1 ? tt_report_columns(file) : INT_MAX;
}

static bool is_dumb(void)
{
    const char *kind = getenv("TERM");
    return kind != NULL && strcmp(kind, "dumb") == 0;
}

static bool wants_colour(void)
{
    const char *no_colour = getenv("NO_COLOR");
    return no_colour == NULL || no_colour[0] == 0;
}

void tt_report_init(struct tt_report *report, FILE *out, FILE *err)
{
    *report = (struct tt_report){
        .out = out, .err = err, .printed_at = tt_clock_seconds(), .patience = patience_first};
    report->terminal = isatty(fileno(err)) == 1;
    tt_report_set_json(report, false);
    report->rank = tt_launcher_rank();
    report->quiet = report->rank > 0;
    pthread_mutex_init(&report->lock, NULL);
}

/* Ends the line of the bar; the next update draws a new one. */
static void end_bar(struct tt_report *report)
{
    pthread_mutex_lock(&report->lock);
    if (report->bar_shown) fputc('\n', report->err);
    report->bar_shown = false;
    fflush(report->err);
    pthread_mutex_unlock(&report->lock);
}

void tt_report_deinit(struct tt_report *report)
{
    end_bar(report);
    tt_str_deinit(&report->warnings);
    pthread_mutex_destroy(&report->lock);
}

void tt_report_set_json(struct tt_report *report, bool json)
{
    report->json = json;
    report->bar = !json && report->terminal && !is_dumb();
    report->colour = report->bar && wants_colour();
}

static void erase_bar(struct tt_report *report)
{
    if (report->bar_shown) fputs("\r\033[K", report->err);
    report->bar_shown = false;
}

static void draw_bar(struct tt_report *report, double now)
{
    char text[400];
    int columns = tt_report_columns(report->err);
    fprintf(report->err, "\r%s\033[K",
            tt_report_format_bar(&report->progress, report->part, columns - 1, text, sizeof text));
    fflush(report->err);
    report->bar_shown = true;
    report->drawn_at = now;
}

/* A command that the reader may copy stays whole. */
static const char to_copy[] = "  try it: ";

/* Writes `text` behind `used` columns of its first line. */
static void write_lines(struct tt_report *report, const char *text, int used)
{
    struct tt_str wrapped = {0};
    const struct tt_wrap wrap = {.columns = tt_report_columns(report->err), .used = used, .indent = 2};
    bool plain =
        !report->terminal || tt_starts_with(text, to_copy) || tt_wrap_append(&wrapped, text, &wrap) != TT_OK;
    fputs(plain ? text : tt_str_text(&wrapped), report->err);
    tt_str_deinit(&wrapped);
}

/* Prints a line above the bar. `word`: before it, of `used` columns. */
static void print_line(struct tt_report *report, const char *word, int used, const char *line)
{
    pthread_mutex_lock(&report->lock);
    bool shown = report->bar_shown;
    erase_bar(report);
    fputs(word, report->err);
    write_lines(report, line, used);
    fputc('\n', report->err);
    report->printed_at = tt_clock_seconds();
    if (shown) draw_bar(report, tt_clock_seconds());
    fflush(report->err);
    pthread_mutex_unlock(&report->lock);
}

void tt_report_line(struct tt_report *report, const char *line)
{
    if (report->json)
        tt_report_json_message(report, TT_LOG_INFO, line);
    else
        print_line(report, "", 0, line);
}

void tt_report_work(struct tt_report *report, const char *line, bool over)
{
    if (!report->bar) {
        if (over || tt_clock_seconds() - report->printed_at >= report->patience) tt_report_line(report, line);
        return;
    }
    pthread_mutex_lock(&report->lock);
    fprintf(report->err, "\r%.*s\033[K", tt_report_columns(report->err) - 1, line);
    report->bar_shown = true;
    if (over) end_bar(report);
    fflush(report->err);
    pthread_mutex_unlock(&report->lock);
}

/* Whether `warning` came before, of a report that prints each once. */
static bool is_known(struct tt_report *report, const char *warning)
{
    bool known = false;
    if (!report->once) return false;
    pthread_mutex_lock(&report->lock);
    for (const char *at = tt_str_text(&report->warnings); *at != '\0' && !known; at += strcspn(at, "\n") + 1)
        known = strcspn(at, "\n") == strlen(warning) && tt_starts_with(at, warning);
    if (!known && tt_str_printf(&report->warnings, "%s\n", warning) != TT_OK) report->once = false;
    pthread_mutex_unlock(&report->lock);
    return known;
}

void tt_report_log(void *context, enum tt_log_level level, const char *line)
{
    struct tt_report *report = context;
    /* Rank 0 logs the same lines as a quiet process, except notices, which concern one process. */
    if (level == TT_LOG_DEBUG || (report->quiet && level != TT_LOG_NOTICE)) return;
    if (level == TT_LOG_WARNING && is_known(report, line)) return;
    if (report->json)
        tt_report_json_message(report, level, line);
    else if (level == TT_LOG_WARNING)
        print_line(report,
                   report->colour ? "\033[33mwarning:\033[0m " : "warning: ", (int)strlen("warning: "), line);
    else
        print_line(report, "", 0, line);
}

/* The values that the bar has shown last, after it. */
static void print_last_rows(struct tt_report *report)
{
    struct tt_str text = {0};
    pthread_mutex_lock(&report->lock);
    if (tt_last_rows_take(&report->last, tt_report_columns(report->err), &text) == TT_OK && text.bytes > 0)
        fputs(tt_str_text(&text), report->err);
    pthread_mutex_unlock(&report->lock);
    tt_str_deinit(&text);
}

void tt_report_error(struct tt_report *report)
{
    char text[TT_ERROR_TEXT_BYTES];
    const struct tt_error *error = tt_error_last();
    if (report->json) {
        tt_report_json_error(report, error);
        return;
    }
    tt_error_format(error, text, sizeof text);
    end_bar(report);
    print_last_rows(report);
    /* one line for the log of this rank: another rank prints the whole record */
    if (error->reported_elsewhere) {
        fprintf(report->err, "ended: %s\n", error->message);
        fflush(report->err);
        return;
    }
    const char *word = "error: ";
    bool coloured = report->colour && tt_starts_with(text, word);
    size_t used = coloured ? strlen(word) : 0;
    if (coloured) fputs("\033[1;31merror:\033[0m ", report->err);
    write_lines(report, text + used, (int)used);
    if (text[0] == 0 || text[strlen(text) - 1] != '\n') fputc('\n', report->err);
    if (error->status == TT_ERR_INTERNAL)
        fputs("  this is a bug in trimtab: please report it\n", report->err);
    fflush(report->err);
}

/* 12345.6 -> "12.3k". */
static void format_rate(double rate, char *text, size_t text_bytes)
{
    if (!(rate > 0) || !isfinite(rate))
        snprintf(text, text_bytes, "-");
    else if (rate >= 1e6)
        snprintf(text, text_bytes, "%.1fM", rate / 1e6);
    else if (rate >= 1e4)
        snprintf(text, text_bytes, "%.1fk", rate / 1e3);
    else
        snprintf(text, text_bytes, "%.0f", rate);
}

/* Appends two blanks and `piece` if they fit. */
static void add_piece(char *text, size_t text_bytes, int columns, const char *piece)
{
    size_t length = strlen(text);
    if ((int)(length + 2 + strlen(piece)) > columns || length + 3 + strlen(piece) > text_bytes) return;
    snprintf(text + length, text_bytes - length, "  %s", piece);
}

/* Loss, remaining time and speed as far as they are known. */
static void add_pace(char *text, size_t text_bytes, int columns, const struct tt_progress *progress)
{
    char piece[80], number[32];
    bool known = progress->tokens_per_second > 0;
    if (known) {
        snprintf(piece, sizeof piece, "loss %.4f", progress->loss);
        add_piece(text, text_bytes, columns, piece);
    }
    if (progress->seconds_left >= 0) {
        snprintf(piece, sizeof piece, "%s left",
                 tt_format_duration(progress->seconds_left, number, sizeof number));
        add_piece(text, text_bytes, columns, piece);
    }
    if (!known) return;
    format_rate(progress->tokens_per_second, number, sizeof number);
    snprintf(piece, sizeof piece, "%s %s/s", number, progress->unit != NULL ? progress->unit : "tokens");
    add_piece(text, text_bytes, columns, piece);
}

const char *tt_report_format_bar(const struct tt_progress *progress, double part, int columns, char *text,
                                 size_t text_bytes)
{
    char facts[300], piece[80], bar[BAR_MAX + 3] = "";
    int room = columns >= COLUMNS_FOR_BAR ? columns - BAR_MIN - 3 : columns;
    double share =
        progress->max_steps > 0 ? ((double)progress->step + part) / (double)progress->max_steps : 0;
    share = share < 0 ? 0 : share > 1 ? 1 : share;
    snprintf(facts, sizeof facts, "%3d%% %lld/%lld", (int)(share * 100), (long long)progress->step,
             (long long)progress->max_steps);
    add_pace(facts, sizeof facts, room, progress);
    snprintf(piece, sizeof piece, "epoch %.2f", progress->epoch);
    add_piece(facts, sizeof facts, room, piece);
    int width = columns - (int)strlen(facts) - 3;
    width = width > BAR_MAX ? BAR_MAX : width;
    if (width >= BAR_MIN) {
        int full = (int)(share * width + 0.5);
        bar[0] = '[';
        for (int i = 0; i < width; i++) bar[1 + i] = i < full ? '#' : '.';
        bar[1 + width] = ']';
        bar[2 + width] = 0;
        snprintf(text, text_bytes, "%s %s", bar, facts);
    } else {
        snprintf(text, text_bytes, "%.*s", columns > 0 ? columns : 0, facts);
    }
    return text;
}

static void on_message(void *context, const char *line)
{
    tt_report_line(context, line);
}

static void set_progress(struct tt_report *report, const struct tt_progress *progress, double part)
{
    pthread_mutex_lock(&report->lock);
    report->progress = *progress;
    report->part = part;
    double now = tt_clock_seconds();
    bool due = !report->bar_shown || now - report->drawn_at >= redraw_seconds ||
               progress->step >= progress->max_steps;
    if (report->bar && due) draw_bar(report, now);
    pthread_mutex_unlock(&report->lock);
}

static void on_progress(void *context, const struct tt_progress *progress)
{
    set_progress(context, progress, 0);
}

/* A long silence ends with a line where there is no bar. The next silence may be longer. */
static void on_step_part(void *context, const struct tt_progress *progress, double part)
{
    struct tt_report *report = context;
    char line[300];
    set_progress(report, progress, part);
    if (report->bar || tt_clock_seconds() - report->printed_at < report->patience) return;
    report->patience = report->patience < patience_most / 2 ? 2 * report->patience : patience_most;
    snprintf(line, sizeof line, "step %lld/%lld  %d %% done", (long long)progress->step + 1,
             (long long)progress->max_steps, (int)(part * 100));
    add_pace(line, sizeof line, (int)sizeof line, progress);
    tt_report_line(report, line);
}

static void append_field(char *line, size_t line_bytes, const char *name, double value)
{
    char number[40];
    size_t length = strlen(line);
    snprintf(line + length, line_bytes - length, "  %s %s", name,
             tt_last_rows_value(value, number, sizeof number));
}

static bool has_field(const struct tt_log_row *row, const char *name)
{
    for (int i = 0; i < row->field_count; i++)
        if (strcmp(row->fields[i].name, name) == 0) return true;
    return false;
}

/* Appends speed and remaining time, unless the row has them. */
static void append_pace(char *line, size_t line_bytes, const struct tt_log_row *row,
                        const struct tt_progress *progress)
{
    char number[32];
    size_t length = strlen(line);
    if (row->evaluation || !(progress->tokens_per_second > 0)) return;
    if (!has_field(row, "tokens_per_second") && !has_field(row, "images_per_second")) {
        format_rate(progress->tokens_per_second, number, sizeof number);
        length += (size_t)snprintf(line + length, line_bytes - length, "  %s %s/s", number,
                                   progress->unit != NULL ? progress->unit : "tokens");
    }
    if (progress->seconds_left >= 0 && length < line_bytes)
        snprintf(line + length, line_bytes - length, "  %s left",
                 tt_format_duration(progress->seconds_left, number, sizeof number));
}

/* The fields of an evaluation beside a bar: what it costs and the epoch are left out, "eval_" stands once. */
static void append_brief(char *line, size_t line_bytes, const struct tt_log_row *row)
{
    static const char *const left_out[] = {"_runtime", "_per_second", "epoch", "step"};
    bool first = true;
    for (int i = 0; i < row->field_count; i++) {
        const char *name = row->fields[i].name;
        bool out = false;
        for (size_t k = 0; k < sizeof left_out / sizeof *left_out; k++)
            out |= tt_ends_with(name, left_out[k]);
        if (out) continue;
        bool shorter = !first && tt_starts_with(name, "eval_");
        append_field(line, line_bytes, shorter ? name + strlen("eval_") : name, row->fields[i].value);
        first = false;
    }
}

static void append_fields(char *line, size_t line_bytes, const struct tt_log_row *row,
                          const struct tt_progress *progress)
{
    for (int i = 0; i < row->field_count; i++)
        if (strcmp(row->fields[i].name, "step") != 0)
            append_field(line, line_bytes, row->fields[i].name, row->fields[i].value);
    if (!has_field(row, "epoch")) append_field(line, line_bytes, "epoch", row->epoch);
    append_pace(line, line_bytes, row, progress);
}

/* Training rows are kept for the end of the run where there is a bar: it shows their values. Evaluation rows always
 * print a line. The last row of a run prints nothing: tt_report_summary has its values. */
static void on_log(void *context, const struct tt_log_row *row)
{
    struct tt_report *report = context;
    char line[600];
    if (has_field(row, "train_runtime")) return;
    pthread_mutex_lock(&report->lock);
    struct tt_progress progress = report->progress;
    bool kept = report->bar && !row->evaluation;
    if (kept) tt_last_rows_add(&report->last, row);
    pthread_mutex_unlock(&report->lock);
    if (kept) return;
    if (report->json) {
        tt_report_json_row(report, row, progress.max_steps);
        return;
    }
    snprintf(line, sizeof line, "step %lld", (long long)row->step);
    if (progress.max_steps > 0)
        snprintf(line, sizeof line, "step %lld/%lld", (long long)row->step, (long long)progress.max_steps);
    if (report->bar)
        append_brief(line, sizeof line, row);
    else
        append_fields(line, sizeof line, row, &progress);
    tt_report_line(report, line);
}

struct tt_train_observer tt_report_observer(struct tt_report *report)
{
    return (struct tt_train_observer){
        .context = report,
        .on_message = on_message,
        .on_progress = on_progress,
        .on_log = on_log,
        .on_step_part = on_step_part,
    };
}

void tt_report_summary(struct tt_report *report, const struct tt_train_summary *summary)
{
    char number[32], planned[32], peak[32], output[4096];
    if (report->json) {
        tt_report_json_summary(report, summary);
        return;
    }
    (void)tt_utf8_printable(summary->output, strlen(summary->output), "", output, sizeof output);
    end_bar(report);
    print_last_rows(report);
    FILE *err = report->err;
    if (summary->was_complete) {
        fprintf(err, "  result: %s\n", output);
        return;
    }
    fprintf(err, "%s: %lld step%s, %.2f epochs in %s\n", summary->stopped ? "stopped" : "done",
            (long long)summary->steps, summary->steps == 1 ? "" : "s", summary->epochs,
            tt_format_duration(summary->seconds, number, sizeof number));
    fprintf(err, "  train loss %.4f", summary->train_loss);
    if (!isnan(summary->last_eval_loss)) fprintf(err, ", eval loss %.4f", summary->last_eval_loss);
    format_rate(summary->tokens_per_second, number, sizeof number);
    if (summary->unit != NULL && strcmp(summary->unit, "images") == 0)
        fprintf(err, "\n  %.2f images/s", summary->samples_per_second);
    else
        fprintf(err, "\n  %s tokens/s, %.2f samples/s", number, summary->samples_per_second);
    if (summary->model_tflops > 0) fprintf(err, ", %.3g model TFLOP/s", summary->model_tflops);
    if (summary->peak_bytes > 0)
        fprintf(err, "\n  memory of rank 0: %s planned, %s at most in use",
                tt_format_bytes((double)summary->planned_bytes, planned, sizeof planned),
                tt_format_bytes((double)summary->peak_bytes, peak, sizeof peak));
    fprintf(err, "\n  result: %s\n", output);
    fflush(err);
}

static tt_status write_out(struct tt_report *report, const char *text, size_t bytes)
{
    errno = 0;
    if (fwrite(text, 1, bytes, report->out) == bytes && fflush(report->out) == 0) return TT_OK;
    return tt_fail_errno(errno, "cannot write to standard output");
}

tt_status tt_report_print(struct tt_report *report, const char *text)
{
    size_t bytes = strlen(text), needed = tt_utf8_printable(text, bytes, "\n\t", NULL, 0);
    char *shown = tt_calloc(needed + 1, 1);
    if (shown == NULL) return TT_ERR_MEMORY;
    (void)tt_utf8_printable(text, bytes, "\n\t", shown, needed + 1);
    tt_status status = write_out(report, shown, needed);
    tt_free(shown);
    return status;
}

tt_status tt_report_print_wrapped(struct tt_report *report, const char *text, int indent)
{
    struct tt_str wrapped = {0};
    const struct tt_wrap wrap = {.columns = tt_report_columns(report->out), .indent = indent};
    if (indent < 0 || isatty(fileno(report->out)) != 1) return tt_report_print(report, text);
    tt_status status = tt_wrap_append(&wrapped, text, &wrap);
    if (status == TT_OK) status = tt_report_print(report, tt_str_text(&wrapped));
    tt_str_deinit(&wrapped);
    return status;
}

tt_status tt_report_print_json(struct tt_report *report, struct tt_json_value *object, int indent)
{
    struct tt_str text = {0};
    tt_status status = tt_json_write(object, indent, false, &text);
    if (status == TT_OK) status = tt_str_append_char(&text, '\n');
    if (status == TT_OK) status = tt_report_print(report, tt_str_text(&text));
    tt_str_deinit(&text);
    tt_json_release(object);
    return status;
}

tt_status tt_report_print_raw(struct tt_report *report, const char *text, size_t bytes)
{
    return isatty(fileno(report->out)) ? tt_report_print(report, text) : write_out(report, text, bytes);
}

tt_status tt_report_print_escaped(struct tt_report *report, const char *text, size_t bytes)
{
    return write_out(report, text, bytes);
}

bool tt_report_colours_out(const struct tt_report *report)
{
    return isatty(fileno(report->out)) == 1 && !is_dumb() && wants_colour();
}
