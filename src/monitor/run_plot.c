#include "monitor/run_plot.h"

#include <math.h>
#include <string.h>

#include "base/number.h"
#include "base/utf8.h"
#include "monitor/canvas.h"
#include "monitor/run_colour.h"

enum {
    WIDTH = 900,
    PANEL = 210,
    LEFT = 80,
    RIGHT = 20,
    TOP = 34,
    BOTTOM = 30,
    COLUMNS = 800,
    LEGEND = 22,
    NAMES = 3
};

struct range {
    double low, high;
};

static void widen(struct range *range, double value)
{
    if (!(range->low <= value)) range->low = value;
    if (!(range->high >= value)) range->high = value;
}

struct panel {
    struct range x, y;
    double top; /* of its area */
};

static double place_x(const struct panel *panel, double step)
{
    double wide = panel->x.high > panel->x.low ? panel->x.high - panel->x.low : 1.0;
    return LEFT + (step - panel->x.low) / wide * (WIDTH - LEFT - RIGHT);
}

static double place_y(const struct panel *panel, double value)
{
    double high = panel->y.high > panel->y.low ? panel->y.high - panel->y.low : 1.0;
    return panel->top + (panel->y.high - value) / high * (PANEL - TOP - BOTTOM);
}

/* xy [2 * COLUMNS, 2] */
struct points {
    double xy[2 * 2 * COLUMNS];
    size_t count;
};

static void add_point(const struct panel *panel, double step, double value, struct points *points)
{
    points->xy[2 * points->count] = place_x(panel, step);
    points->xy[2 * points->count + 1] = place_y(panel, value);
    points->count++;
}

/* The least and the largest value of each column, in the order of their steps. */
static tt_status draw_curve(const struct panel *panel, const struct tt_series *series, uint32_t colour,
                            struct tt_canvas *canvas)
{
    struct points points = {.count = 0};
    size_t each = series->count / COLUMNS + 1;
    for (size_t first = 0; first < series->count; first += each) {
        size_t end = first + each < series->count ? first + each : series->count, at[2];
        tt_series_extremes(series, first, end, at);
        add_point(panel, series->steps[at[0]], series->values[at[0]], &points);
        if (at[1] != at[0]) add_point(panel, series->steps[at[1]], series->values[at[1]], &points);
    }
    TT_TRY(canvas->ops->curve(canvas, points.xy, points.count, colour));
    if (series->count > 1) return TT_OK;
    return canvas->ops->dot(canvas, points.xy[0], points.xy[1], colour);
}

static tt_status draw_axes(const struct panel *panel, const char *title, struct tt_canvas *canvas)
{
    char words[64];
    TT_TRY(canvas->ops->text(canvas, LEFT, panel->top - 10, TT_CANVAS_TITLE, title));
    for (int i = 0; i <= 2; i++) {
        double value = panel->y.low + (panel->y.high - panel->y.low) * i / 2, y = place_y(panel, value);
        TT_TRY(canvas->ops->grid_line(canvas, LEFT, y, WIDTH - RIGHT));
        tt_snprintf(words, sizeof words, fabs(value) >= 1e4 && fabs(value) < 1e7 ? "%.0f" : "%.4g", value);
        TT_TRY(canvas->ops->text(canvas, LEFT - 8, y + 4, TT_CANVAS_TEXT_TO, words));
    }
    double bottom = panel->top + PANEL - TOP - BOTTOM + 18;
    tt_snprintf(words, sizeof words, "%.0f", panel->x.low);
    TT_TRY(canvas->ops->text(canvas, LEFT, bottom, TT_CANVAS_TEXT_FROM, words));
    tt_snprintf(words, sizeof words, "step %.0f", panel->x.high);
    return canvas->ops->text(canvas, WIDTH - RIGHT, bottom, TT_CANVAS_TEXT_TO, words);
}

static void widen_steps(const struct tt_run_figures *runs, size_t count, struct range *x)
{
    for (size_t r = 0; r < count; r++)
        for (int f = 0; f < TT_FIGURE_COUNT; f++)
            for (size_t i = 0; i < runs[r].series[f].count; i++) widen(x, runs[r].series[f].steps[i]);
}

/* x: the steps of all panels. */
static tt_status draw_panel(const struct tt_run_figures *runs, size_t count, enum tt_figure figure,
                            struct range x, double top, struct tt_canvas *canvas)
{
    struct panel panel = {x, {NAN, NAN}, top};
    for (size_t r = 0; r < count; r++) {
        const struct tt_series *series = &runs[r].series[figure];
        for (size_t i = 0; i < series->count; i++) widen(&panel.y, series->values[i]);
    }
    TT_TRY(draw_axes(&panel, tt_figure_title(figure), canvas));
    for (size_t r = 0; r < count; r++)
        if (runs[r].series[figure].count > 0)
            TT_TRY(draw_curve(&panel, &runs[r].series[figure], tt_run_colour(r, count), canvas));
    return TT_OK;
}

static bool has(const struct tt_run_figures *runs, size_t count, enum tt_figure figure)
{
    for (size_t r = 0; r < count; r++)
        if (runs[r].series[figure].count > 0) return true;
    return false;
}

/* Names stand in as many columns as the longest leaves room for; a character is at most 8 units wide. */
static size_t count_columns(const struct tt_run_figures *runs, size_t count)
{
    size_t longest = 1;
    for (size_t r = 0; r < count; r++) {
        size_t bytes = strlen(runs[r].folder);
        if (bytes > longest) longest = bytes;
    }
    size_t columns = count <= NAMES ? 1 : (WIDTH - LEFT - RIGHT) / (26 + 8 * longest);
    return columns < 1 ? 1 : columns > NAMES ? NAMES : columns;
}

static tt_status draw_names(const struct tt_run_figures *runs, size_t count, size_t rows,
                            struct tt_canvas *canvas)
{
    size_t columns = count_columns(runs, count);
    char name[1024];
    for (size_t r = 0; r < count; r++) {
        double x = LEFT + (double)(r / rows) * (WIDTH - LEFT - RIGHT) / (double)columns;
        double y = (double)LEGEND * (double)(r % rows + 1);
        TT_TRY(canvas->ops->box(canvas, x, y - 6, 18, 4, tt_run_colour(r, count)));
        tt_utf8_printable(runs[r].folder, strlen(runs[r].folder), "", name, sizeof name);
        TT_TRY(canvas->ops->text(canvas, x + 26, y, TT_CANVAS_TEXT_FROM, name));
    }
    return TT_OK;
}

tt_status tt_run_plot(const struct tt_run_figures *runs, size_t count, enum tt_plot_format format,
                      struct tt_str *file)
{
    size_t columns = count_columns(runs, count), rows = (count + columns - 1) / columns;
    double top = (double)LEGEND * (double)rows + 10;
    struct range x = {NAN, NAN};
    int panels = 0;
    for (int f = 0; f < TT_FIGURE_COUNT; f++) panels += has(runs, count, (enum tt_figure)f);
    struct tt_canvas *canvas;
    TT_TRY((format == TT_PLOT_PNG ? tt_canvas_png : tt_canvas_svg)(WIDTH, top + panels * PANEL, &canvas));
    widen_steps(runs, count, &x);
    tt_status status = draw_names(runs, count, rows, canvas);
    for (int f = 0; f < TT_FIGURE_COUNT && status == TT_OK; f++) {
        if (!has(runs, count, (enum tt_figure)f)) continue;
        status = draw_panel(runs, count, (enum tt_figure)f, x, top + TOP, canvas);
        top += PANEL;
    }
    if (status == TT_OK) status = canvas->ops->write(canvas, file);
    canvas->ops->destroy(canvas);
    return status;
}
