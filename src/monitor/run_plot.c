#include "monitor/run_plot.h"

#include <math.h>
#include <string.h>

enum { WIDTH = 900, PANEL = 210, LEFT = 80, RIGHT = 20, TOP = 34, BOTTOM = 30, COLUMNS = 800, LEGEND = 22 };

static const char *const colours[] = {"#2f7ed8", "#d9542b", "#2a9d5c", "#a65fd0", "#c08a00", "#0a9bb0"};

static const char *colour_of(size_t run)
{
    return colours[run % (sizeof colours / sizeof *colours)];
}

static tt_status append_escaped(struct tt_str *text, const char *word)
{
    for (; *word != '\0'; word++) {
        switch (*word) {
        case '&':
            TT_TRY(tt_str_append_text(text, "&amp;"));
            break;
        case '<':
            TT_TRY(tt_str_append_text(text, "&lt;"));
            break;
        case '"':
            TT_TRY(tt_str_append_text(text, "&quot;"));
            break;
        default:
            TT_TRY(tt_str_append_char(text, (unsigned char)*word < ' ' ? '?' : *word));
        }
    }
    return TT_OK;
}

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

static tt_status append_point(const struct panel *panel, double step, double value, struct tt_str *svg)
{
    return tt_str_printf(svg, "%.1f,%.1f ", place_x(panel, step), place_y(panel, value));
}

/* The least and the largest value of each column, in the order of their steps. */
static tt_status draw_curve(const struct panel *panel, const struct tt_series *series, const char *colour,
                            struct tt_str *svg)
{
    TT_TRY(
        tt_str_printf(svg, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"1.6\" points=\"", colour));
    size_t each = series->count / COLUMNS + 1;
    for (size_t first = 0; first < series->count; first += each) {
        size_t end = first + each < series->count ? first + each : series->count, low = first, high = first;
        for (size_t i = first; i < end; i++) {
            if (series->values[i] < series->values[low]) low = i;
            if (series->values[i] > series->values[high]) high = i;
        }
        size_t one = low < high ? low : high, other = low < high ? high : low;
        TT_TRY(append_point(panel, series->steps[one], series->values[one], svg));
        if (one != other) TT_TRY(append_point(panel, series->steps[other], series->values[other], svg));
    }
    TT_TRY(tt_str_append_text(svg, "\"/>\n"));
    if (series->count > 1) return TT_OK;
    return tt_str_printf(svg, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" fill=\"%s\"/>\n",
                         place_x(panel, series->steps[0]), place_y(panel, series->values[0]), colour);
}

static tt_status draw_axes(const struct panel *panel, const char *title, struct tt_str *svg)
{
    TT_TRY(tt_str_printf(svg, "<text x=\"%d\" y=\"%.1f\" class=\"title\">%s</text>\n", LEFT, panel->top - 10,
                         title));
    for (int i = 0; i <= 2; i++) {
        double value = panel->y.low + (panel->y.high - panel->y.low) * i / 2, y = place_y(panel, value);
        TT_TRY(tt_str_printf(svg,
                             "<line x1=\"%d\" y1=\"%.1f\" x2=\"%d\" y2=\"%.1f\" class=\"grid\"/>"
                             "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%.4g</text>\n",
                             LEFT, y, WIDTH - RIGHT, y, LEFT - 8, y + 4, value));
    }
    double bottom = panel->top + PANEL - TOP - BOTTOM + 18;
    return tt_str_printf(svg,
                         "<text x=\"%d\" y=\"%.1f\">%.0f</text>"
                         "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">step %.0f</text>\n",
                         LEFT, bottom, panel->x.low, WIDTH - RIGHT, bottom, panel->x.high);
}

static tt_status draw_panel(const struct tt_run_figures *runs, size_t count, enum tt_figure figure,
                            double top, struct tt_str *svg)
{
    struct panel panel = {{NAN, NAN}, {NAN, NAN}, top};
    for (size_t r = 0; r < count; r++) {
        const struct tt_series *series = &runs[r].series[figure];
        for (size_t i = 0; i < series->count; i++) {
            widen(&panel.x, series->steps[i]);
            widen(&panel.y, series->values[i]);
        }
    }
    TT_TRY(draw_axes(&panel, tt_figure_title(figure), svg));
    for (size_t r = 0; r < count; r++)
        if (runs[r].series[figure].count > 0)
            TT_TRY(draw_curve(&panel, &runs[r].series[figure], colour_of(r), svg));
    return TT_OK;
}

static bool has(const struct tt_run_figures *runs, size_t count, enum tt_figure figure)
{
    for (size_t r = 0; r < count; r++)
        if (runs[r].series[figure].count > 0) return true;
    return false;
}

tt_status tt_run_plot(const struct tt_run_figures *runs, size_t count, struct tt_str *svg)
{
    double top = (double)LEGEND * (double)count + 10;
    int panels = 0;
    for (int f = 0; f < TT_FIGURE_COUNT; f++) panels += has(runs, count, (enum tt_figure)f);
    TT_TRY(tt_str_printf(svg,
                         "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %.0f\" role=\"img\">\n"
                         "<style>svg{background:#fff;color:#222;font:12px sans-serif}text{fill:currentColor}"
                         ".title{font-weight:bold}.grid{stroke:currentColor;stroke-opacity:.2}"
                         "@media(prefers-color-scheme:dark){svg{background:#16181c;color:#e6e6e6}}</style>\n",
                         WIDTH, top + panels * PANEL));
    for (size_t r = 0; r < count; r++) {
        double y = (double)LEGEND * (double)(r + 1);
        TT_TRY(tt_str_printf(
            svg,
            "<rect x=\"%d\" y=\"%.0f\" width=\"18\" height=\"4\" fill=\"%s\"/><text x=\"%d\" y=\"%.0f\">",
            LEFT, y - 6, colour_of(r), LEFT + 26, y));
        TT_TRY(append_escaped(svg, runs[r].folder));
        TT_TRY(tt_str_append_text(svg, "</text>\n"));
    }
    for (int f = 0; f < TT_FIGURE_COUNT; f++) {
        if (!has(runs, count, (enum tt_figure)f)) continue;
        TT_TRY(draw_panel(runs, count, (enum tt_figure)f, top + TOP, svg));
        top += PANEL;
    }
    return tt_str_append_text(svg, "</svg>\n");
}
