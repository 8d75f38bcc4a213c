/* A white sheet for lines, dots, boxes and text: the target of a drawing, as SVG or as PNG. Coordinates start at the
 * upper left corner; a colour is 0xrrggbb. */
#ifndef TT_MONITOR_CANVAS_H
#define TT_MONITOR_CANVAS_H

#include <stdint.h>

#include "base/str.h"

enum tt_canvas_text {
    TT_CANVAS_TEXT_FROM, /* begins at its place */
    TT_CANVAS_TEXT_TO,   /* ends at its place */
    TT_CANVAS_TITLE,     /* begins at its place, bold */
};

struct tt_canvas;

struct tt_canvas_ops {
    /* xy [points, 2] */
    tt_status (*curve)(struct tt_canvas *canvas, const double *xy, size_t points, uint32_t colour);
    tt_status (*dot)(struct tt_canvas *canvas, double x, double y, uint32_t colour);
    tt_status (*box)(struct tt_canvas *canvas, double x, double y, double width, double height,
                     uint32_t colour);
    tt_status (*grid_line)(struct tt_canvas *canvas, double x, double y, double to_x);
    /* `text` is valid UTF-8. */
    tt_status (*text)(struct tt_canvas *canvas, double x, double y, enum tt_canvas_text kind,
                      const char *text);
    /* Appends the file's bytes; the last call but destroy. */
    tt_status (*write)(struct tt_canvas *canvas, struct tt_str *file);
    void (*destroy)(struct tt_canvas *canvas);
};

struct tt_canvas {
    const struct tt_canvas_ops *ops;
};

/* A drawing that is readable in light and dark, and scales to any size. */
TT_MUST_USE tt_status tt_canvas_svg(double width, double height, struct tt_canvas **canvas);
/* Two pixels for each unit, drawn by cairo, which is opened at the first use. TT_ERR_UNSUPPORTED in a build or on a
 * machine without it. */
TT_MUST_USE tt_status tt_canvas_png(double width, double height, struct tt_canvas **canvas);

#endif
