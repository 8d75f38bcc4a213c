#include "monitor/board.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "monitor/pictures.h"

enum { SHARE_COLUMNS = 120, EVENTS_SHOWN = 200, RANKS_SHOWN = 1024 };

size_t tt_board_thin(const struct tt_series *series, size_t columns, size_t *indices)
{
    size_t count = 0, each = series->count / columns + 1;
    for (size_t first = 0; first < series->count; first += each) {
        size_t end = first + each < series->count ? first + each : series->count, at[2];
        tt_series_extremes(series, first, end, at);
        if (first == 0 && at[0] != 0) indices[count++] = 0;
        indices[count++] = at[0];
        if (at[1] != at[0]) indices[count++] = at[1];
    }
    if (count > 0 && indices[count - 1] != series->count - 1) indices[count++] = series->count - 1;
    return count;
}

/* Appends ", " where something stands before in its list or object. */
static tt_status separate(struct tt_str *text)
{
    char before = text->bytes > 0 ? text->data[text->bytes - 1] : '[';
    return before == '[' || before == '{' ? TT_OK : tt_str_append_char(text, ',');
}

static tt_status write_number(double value, const char *format, struct tt_str *text)
{
    if (!isfinite(value)) return tt_str_append_text(text, "null");
    return tt_str_printf(text, format, value);
}

static tt_status write_key(const char *key, struct tt_str *text)
{
    TT_TRY(separate(text));
    return tt_str_printf(text, "\"%s\":", key);
}

static tt_status write_text(const char *value, struct tt_str *text)
{
    struct tt_json_value *string = tt_json_new_string(value);
    tt_status status = string != NULL ? tt_json_write(string, 0, false, text) : TT_ERR_MEMORY;
    tt_json_release(string);
    return status;
}

/* {"steps": [..], "values": [..]} */
static tt_status write_points(const struct tt_series *series, const size_t *indices, size_t count,
                              struct tt_str *text)
{
    TT_TRY(tt_str_append_text(text, "{\"steps\":["));
    for (size_t i = 0; i < count; i++) {
        TT_TRY(separate(text));
        TT_TRY(write_number(series->steps[indices[i]], "%.9g", text));
    }
    TT_TRY(tt_str_append_text(text, "],\"values\":["));
    for (size_t i = 0; i < count; i++) {
        TT_TRY(separate(text));
        TT_TRY(write_number(series->values[indices[i]], "%.6g", text));
    }
    return tt_str_append_text(text, "]}");
}

static tt_status write_curves(const struct tt_run_figures *run, struct tt_str *text)
{
    size_t indices[2 * TT_BOARD_POINTS + 2];
    TT_TRY(write_key("curves", text));
    TT_TRY(tt_str_append_char(text, '{'));
    for (int f = 0; f < TT_FIGURE_COUNT; f++) {
        const struct tt_series *series = &run->series[f];
        if (series->count == 0) continue;
        TT_TRY(write_key(tt_figure_key((enum tt_figure)f), text));
        TT_TRY(write_points(series, indices, tt_board_thin(series, TT_BOARD_POINTS, indices), text));
    }
    return tt_str_append_char(text, '}');
}

/* Means of columns of rows, which all series of shares have in common. */
static tt_status write_share(const struct tt_series *series, struct tt_str *text)
{
    size_t each = series->count / SHARE_COLUMNS + 1;
    TT_TRY(tt_str_append_char(text, '['));
    for (size_t first = 0; first < series->count; first += each) {
        size_t end = first + each < series->count ? first + each : series->count;
        double sum = 0;
        for (size_t i = first; i < end; i++) sum += series->values[i];
        TT_TRY(separate(text));
        TT_TRY(write_number(sum / (double)(end - first), "%.4g", text));
    }
    return tt_str_append_char(text, ']');
}

static tt_status write_shares(const struct tt_run_figures *run, struct tt_str *text)
{
    const struct tt_series *steps = &run->share_series[TT_SHARE_STEP];
    size_t each = steps->count / SHARE_COLUMNS + 1;
    TT_TRY(write_key("time", text));
    TT_TRY(tt_str_append_text(text, "{\"steps\":["));
    for (size_t first = 0; first < steps->count; first += each) {
        size_t last = first + each < steps->count ? first + each - 1 : steps->count - 1;
        TT_TRY(separate(text));
        TT_TRY(write_number(steps->steps[last], "%.9g", text));
    }
    TT_TRY(tt_str_append_text(text, "]"));
    for (int i = 0; i < TT_SHARE_COUNT; i++) {
        if (run->shares[i] <= 0) continue;
        TT_TRY(write_key(tt_share_key((enum tt_share)i), text));
        TT_TRY(tt_str_append_text(text, "{\"mean\":"));
        TT_TRY(write_number(run->steps > 0 ? run->shares[i] / run->steps : 0.0, "%.6g", text));
        TT_TRY(write_key("values", text));
        TT_TRY(write_share(&run->share_series[i], text));
        TT_TRY(tt_str_append_char(text, '}'));
    }
    return tt_str_append_char(text, '}');
}

static tt_status write_rank(int rank, double step, double step_seconds, double wait_seconds, double bytes,
                            struct tt_str *text)
{
    TT_TRY(separate(text));
    TT_TRY(tt_str_printf(text, "{\"rank\":%d,\"step\":", rank));
    TT_TRY(write_number(step, "%.9g", text));
    TT_TRY(write_key("step_seconds", text));
    TT_TRY(write_number(step_seconds, "%.6g", text));
    TT_TRY(write_key("rank_wait_seconds", text));
    TT_TRY(write_number(wait_seconds, "%.6g", text));
    TT_TRY(write_key("device_bytes", text));
    TT_TRY(write_number(bytes, "%.12g", text));
    return tt_str_append_char(text, '}');
}

static tt_status write_ranks(const struct tt_run_figures *run, struct tt_str *text)
{
    TT_TRY(write_key("ranks", text));
    TT_TRY(tt_str_append_char(text, '['));
    if (run->steps > 0)
        TT_TRY(write_rank(0, tt_json_number(tt_json_get(run->last, "step")),
                          run->shares[TT_SHARE_STEP] / run->steps, run->shares[TT_SHARE_RANKS] / run->steps,
                          run->device_bytes, text));
    /* An earlier run of the folder may have had more ranks. */
    int64_t world = tt_json_integer(tt_json_get(tt_json_get(run->run.root, "ranks"), "count"));
    for (size_t i = 0; i < run->rank_count && i < RANKS_SHOWN; i++) {
        const struct tt_rank_figures *rank = &run->ranks[i];
        if (world > 0 && rank->rank >= world) continue;
        double steps = rank->steps > 0 ? rank->steps : 1.0;
        TT_TRY(write_rank(rank->rank, rank->step, rank->step_seconds / steps, rank->rank_wait_seconds / steps,
                          rank->device_bytes, text));
    }
    return tt_str_append_char(text, ']');
}

/* The last `most` elements of a list. */
static tt_status write_list(const char *key, const struct tt_json_value *list, size_t most,
                            struct tt_str *text)
{
    size_t count = tt_json_count(list), first = count > most ? count - most : 0;
    TT_TRY(write_key(key, text));
    TT_TRY(tt_str_append_char(text, '['));
    for (size_t i = first; i < count; i++) {
        if (i > first) TT_TRY(tt_str_append_char(text, ','));
        TT_TRY(tt_json_write(tt_json_at(list, i), 0, false, text));
    }
    return tt_str_append_char(text, ']');
}

static tt_status write_value(const char *key, const struct tt_json_value *value, struct tt_str *text)
{
    TT_TRY(write_key(key, text));
    return value != NULL ? tt_json_write(value, 0, false, text) : tt_str_append_text(text, "null");
}

static tt_status write_run(const struct tt_run_figures *run, enum tt_board_use use, struct tt_str *text)
{
    TT_TRY(separate(text));
    TT_TRY(tt_str_append_text(text, "{\"folder\":"));
    TT_TRY(write_text(run->folder, text));
    TT_TRY(write_key("changed", text));
    TT_TRY(write_number(run->changed, "%.3f", text));
    TT_TRY(tt_str_printf(text, ",\"ended\":%s,\"saves\":%zu,\"broken\":%zu", run->ended ? "true" : "false",
                         run->saves, run->broken + run->rows.torn));
    TT_TRY(write_key("mfu", text));
    TT_TRY(write_number(run->mfu, "%.4g", text));
    TT_TRY(write_curves(run, text));
    TT_TRY(write_shares(run, text));
    TT_TRY(write_ranks(run, text));
    TT_TRY(write_value("last", run->last, text));
    TT_TRY(write_value("evaluation", run->last_eval, text));
    TT_TRY(write_list("events", run->events, EVENTS_SHOWN, text));
    TT_TRY(write_list("generations", run->generations, EVENTS_SHOWN, text));
    TT_TRY(write_key("pictures", text));
    TT_TRY(tt_pictures_write(run->folder, run->pictures, use == TT_BOARD_ALONE, text));
    TT_TRY(write_value("run", run->run.root, text));
    return tt_str_append_char(text, '}');
}

/* Length of a number at `at` that Python's JSON has and a browser's has not; 0: none. */
static size_t odd_number(const char *at, size_t left)
{
    static const char *const words[] = {"NaN", "Infinity", "-Infinity"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        size_t bytes = strlen(words[i]);
        if (left >= bytes && memcmp(at, words[i], bytes) == 0) return bytes;
    }
    return 0;
}

/* Rows may come from strangers. "<" stands only in strings, where it may be written so that no markup ends or begins;
 * numbers that are none become null. */
static tt_status make_safe(struct tt_str *text)
{
    struct tt_str safe = {0};
    tt_status status = TT_OK;
    bool quoted = false;
    for (size_t i = 0, odd; i < text->bytes && status == TT_OK; i++) {
        char c = text->data[i];
        if (c == '"') quoted = !quoted;
        if (quoted && c == '\\') {
            status = tt_str_append(&safe, text->data + i++, 2);
        } else if (c == '<') {
            status = tt_str_append_text(&safe, "\\u003c");
        } else if (!quoted && (odd = odd_number(text->data + i, text->bytes - i)) > 0) {
            status = tt_str_append_text(&safe, "null");
            i += odd - 1;
        } else {
            status = tt_str_append_char(&safe, c);
        }
    }
    if (status == TT_OK) {
        struct tt_str plain = *text;
        *text = safe;
        safe = plain;
    }
    tt_str_deinit(&safe);
    return status;
}

/* Keys and titles, in the order of the charts. */
static tt_status write_figures(struct tt_str *text)
{
    TT_TRY(tt_str_append_text(text, "\"figures\":["));
    for (int f = 0; f < TT_FIGURE_COUNT; f++)
        TT_TRY(tt_str_printf(text, "%s[\"%s\",\"%s\"]", f > 0 ? "," : "", tt_figure_key((enum tt_figure)f),
                             tt_figure_title((enum tt_figure)f)));
    return tt_str_append_text(text, "],");
}

tt_status tt_board_write(const struct tt_run_figures *runs, size_t count, enum tt_board_use use,
                         struct tt_str *text)
{
    uint64_t version = 0;
    for (size_t r = 0; r < count; r++) version += runs[r].version;
    TT_TRY(tt_str_printf(text, "{\"version\":%llu,\"live\":%s,\"now\":%.3f,", (unsigned long long)version,
                         use == TT_BOARD_LIVE ? "true" : "false", tt_clock_unix_seconds()));
    TT_TRY(write_figures(text));
    TT_TRY(tt_str_append_text(text, "\"runs\":["));
    for (size_t r = 0; r < count; r++) TT_TRY(write_run(&runs[r], use, text));
    TT_TRY(tt_str_append_text(text, "]}"));
    return make_safe(text);
}
