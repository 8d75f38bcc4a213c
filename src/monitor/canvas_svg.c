/* A canvas as SVG. */
#include "monitor/canvas.h"

#include "base/alloc.h"

struct svg {
    struct tt_canvas base;
    struct tt_str text;
};

static struct tt_str *text_of(struct tt_canvas *canvas)
{
    return &((struct svg *)canvas)->text;
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

static tt_status svg_curve(struct tt_canvas *canvas, const double *xy, size_t points, uint32_t colour)
{
    struct tt_str *text = text_of(canvas);
    TT_TRY(tt_str_printf(text, "<polyline fill=\"none\" stroke=\"#%06x\" stroke-width=\"1.6\" points=\"",
                         colour));
    for (size_t i = 0; i < points; i++) TT_TRY(tt_str_printf(text, "%.1f,%.1f ", xy[2 * i], xy[2 * i + 1]));
    return tt_str_append_text(text, "\"/>\n");
}

static tt_status svg_dot(struct tt_canvas *canvas, double x, double y, uint32_t colour)
{
    return tt_str_printf(text_of(canvas), "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" fill=\"#%06x\"/>\n", x, y,
                         colour);
}

static tt_status svg_box(struct tt_canvas *canvas, double x, double y, double width, double height,
                         uint32_t colour)
{
    return tt_str_printf(text_of(canvas),
                         "<rect x=\"%.0f\" y=\"%.0f\" width=\"%.0f\" height=\"%.0f\" fill=\"#%06x\"/>", x, y,
                         width, height, colour);
}

static tt_status svg_grid_line(struct tt_canvas *canvas, double x, double y, double to_x)
{
    return tt_str_printf(text_of(canvas),
                         "<line x1=\"%.0f\" y1=\"%.1f\" x2=\"%.0f\" y2=\"%.1f\" class=\"grid\"/>", x, y, to_x,
                         y);
}

static tt_status svg_text(struct tt_canvas *canvas, double x, double y, enum tt_canvas_text kind,
                          const char *word)
{
    static const char *const attributes[] = {
        [TT_CANVAS_TEXT_FROM] = "",
        [TT_CANVAS_TEXT_TO] = " text-anchor=\"end\"",
        [TT_CANVAS_TITLE] = " class=\"title\"",
    };
    struct tt_str *text = text_of(canvas);
    TT_TRY(tt_str_printf(text, "<text x=\"%.0f\" y=\"%.1f\"%s>", x, y, attributes[kind]));
    TT_TRY(append_escaped(text, word));
    return tt_str_append_text(text, "</text>\n");
}

static tt_status svg_write(struct tt_canvas *canvas, struct tt_str *file)
{
    struct tt_str *text = text_of(canvas);
    TT_TRY(tt_str_append_text(text, "</svg>\n"));
    return tt_str_append(file, text->data, text->bytes);
}

static void svg_destroy(struct tt_canvas *canvas)
{
    tt_str_deinit(text_of(canvas));
    tt_free(canvas);
}

static const struct tt_canvas_ops ops = {
    .curve = svg_curve,
    .dot = svg_dot,
    .box = svg_box,
    .grid_line = svg_grid_line,
    .text = svg_text,
    .write = svg_write,
    .destroy = svg_destroy,
};

tt_status tt_canvas_svg(double width, double height, struct tt_canvas **canvas)
{
    struct svg *svg = tt_calloc(1, sizeof *svg);
    if (svg == NULL) return TT_ERR_MEMORY;
    svg->base.ops = &ops;
    tt_status status =
        tt_str_printf(&svg->text,
                      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" role=\"img\">\n"
                      "<style>svg{background:#fff;color:#222;font:12px sans-serif}text{fill:currentColor}"
                      ".title{font-weight:bold}.grid{stroke:currentColor;stroke-opacity:.2}"
                      "@media(prefers-color-scheme:dark){svg{background:#16181c;color:#e6e6e6}}</style>\n",
                      width, height);
    if (status == TT_OK)
        *canvas = &svg->base;
    else
        svg_destroy(&svg->base);
    return status;
}
