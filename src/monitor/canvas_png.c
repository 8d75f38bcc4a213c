/* A canvas as PNG, through cairo. */
#include "monitor/canvas.h"

#ifdef TT_HAVE_CAIRO

#include <dlfcn.h>
#include <string.h>

#include <cairo.h>

#include "base/alloc.h"

enum { PIXELS = 2, FONT = 12 }; /* pixels of a unit; units */
#define LIBRARY "libcairo.so.2"
#define INK 0x222222u

/* Opened at run time: a training needs neither cairo nor the 20 libraries below it. */
#define CALLS(CALL)                                                                                          \
    CALL(image_surface_create)                                                                               \
    CALL(create)                                                                                             \
    CALL(status)                                                                                             \
    CALL(status_to_string)                                                                                   \
    CALL(scale)                                                                                              \
    CALL(set_source_rgba)                                                                                    \
    CALL(paint)                                                                                              \
    CALL(set_line_width)                                                                                     \
    CALL(set_line_join)                                                                                      \
    CALL(move_to)                                                                                            \
    CALL(line_to)                                                                                            \
    CALL(stroke)                                                                                             \
    CALL(arc)                                                                                                \
    CALL(rectangle)                                                                                          \
    CALL(fill)                                                                                               \
    CALL(select_font_face)                                                                                   \
    CALL(set_font_size)                                                                                      \
    CALL(text_extents)                                                                                       \
    CALL(show_text)                                                                                          \
    CALL(surface_write_to_png_stream)                                                                        \
    CALL(destroy)                                                                                            \
    CALL(surface_destroy)

struct cairo {
#define CALL(name) __typeof__(cairo_##name) *name;
    CALLS(CALL)
#undef CALL
};

static const struct {
    const char *name;
    size_t offset;
} symbols[] = {
#define CALL(name) {"cairo_" #name, offsetof(struct cairo, name)},
    CALLS(CALL)
#undef CALL
};

struct png {
    struct tt_canvas base;
    struct cairo cairo;
    cairo_surface_t *surface;
    cairo_t *pen;
};

static struct png *png_of(struct tt_canvas *canvas)
{
    return (struct png *)canvas;
}

static tt_status open_cairo(struct cairo *cairo)
{
    void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL); /* stays open: fontconfig keeps its fonts */
    if (library == NULL) {
        const char *why = dlerror();
        tt_status status =
            tt_fail(TT_ERR_UNSUPPORTED, "no PNG: %s", why != NULL ? why : LIBRARY " cannot be opened");
        tt_hint("install cairo (Debian's package libcairo2), or write .svg");
        return status;
    }
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
        void *symbol = dlsym(library, symbols[i].name);
        if (symbol == NULL)
            return tt_fail(TT_ERR_UNSUPPORTED, "no PNG: " LIBRARY " has no %s", symbols[i].name);
        memcpy((char *)cairo + symbols[i].offset, &symbol, sizeof symbol);
    }
    return TT_OK;
}

/* cairo remembers the first error of a drawing. */
static tt_status check(const struct png *png)
{
    cairo_status_t error = png->cairo.status(png->pen);
    if (error == CAIRO_STATUS_SUCCESS) return TT_OK;
    return tt_fail(error == CAIRO_STATUS_NO_MEMORY ? TT_ERR_MEMORY : TT_ERR_INTERNAL, "cairo: %s",
                   png->cairo.status_to_string(error));
}

static void set_colour(struct png *png, uint32_t colour, double opacity)
{
    png->cairo.set_source_rgba(png->pen, (colour >> 16 & 255) / 255.0, (colour >> 8 & 255) / 255.0,
                               (colour & 255) / 255.0, opacity);
}

static tt_status png_curve(struct tt_canvas *canvas, const double *xy, size_t points, uint32_t colour)
{
    struct png *png = png_of(canvas);
    set_colour(png, colour, 1.0);
    png->cairo.set_line_width(png->pen, 1.6);
    for (size_t i = 0; i < points; i++) /* a text leaves the pen at its end */
        (i == 0 ? png->cairo.move_to : png->cairo.line_to)(png->pen, xy[2 * i], xy[2 * i + 1]);
    png->cairo.stroke(png->pen);
    return check(png);
}

static tt_status png_dot(struct tt_canvas *canvas, double x, double y, uint32_t colour)
{
    struct png *png = png_of(canvas);
    set_colour(png, colour, 1.0);
    png->cairo.arc(png->pen, x, y, 3.0, 0.0, 6.283185307179586);
    png->cairo.fill(png->pen);
    return check(png);
}

static tt_status png_box(struct tt_canvas *canvas, double x, double y, double width, double height,
                         uint32_t colour)
{
    struct png *png = png_of(canvas);
    set_colour(png, colour, 1.0);
    png->cairo.rectangle(png->pen, x, y, width, height);
    png->cairo.fill(png->pen);
    return check(png);
}

static tt_status png_grid_line(struct tt_canvas *canvas, double x, double y, double to_x)
{
    struct png *png = png_of(canvas);
    set_colour(png, INK, 0.2);
    png->cairo.set_line_width(png->pen, 1.0);
    png->cairo.move_to(png->pen, x, y);
    png->cairo.line_to(png->pen, to_x, y);
    png->cairo.stroke(png->pen);
    return check(png);
}

static tt_status png_text(struct tt_canvas *canvas, double x, double y, enum tt_canvas_text kind,
                          const char *text)
{
    struct png *png = png_of(canvas);
    set_colour(png, INK, 1.0);
    png->cairo.select_font_face(png->pen, "sans-serif", CAIRO_FONT_SLANT_NORMAL,
                                kind == TT_CANVAS_TITLE ? CAIRO_FONT_WEIGHT_BOLD : CAIRO_FONT_WEIGHT_NORMAL);
    png->cairo.set_font_size(png->pen, FONT);
    if (kind == TT_CANVAS_TEXT_TO) {
        cairo_text_extents_t extents;
        png->cairo.text_extents(png->pen, text, &extents);
        x -= extents.x_advance;
    }
    png->cairo.move_to(png->pen, x, y);
    png->cairo.show_text(png->pen, text);
    return check(png);
}

static cairo_status_t append_bytes(void *file, const unsigned char *data, unsigned int bytes)
{
    return tt_str_append(file, (const char *)data, bytes) == TT_OK ? CAIRO_STATUS_SUCCESS
                                                                   : CAIRO_STATUS_NO_MEMORY;
}

static tt_status png_write(struct tt_canvas *canvas, struct tt_str *file)
{
    struct png *png = png_of(canvas);
    cairo_status_t error = png->cairo.surface_write_to_png_stream(png->surface, append_bytes, file);
    if (error == CAIRO_STATUS_SUCCESS) return TT_OK;
    return tt_fail(error == CAIRO_STATUS_NO_MEMORY ? TT_ERR_MEMORY : TT_ERR_INTERNAL,
                   "cairo cannot write a PNG image: %s", png->cairo.status_to_string(error));
}

static void png_destroy(struct tt_canvas *canvas)
{
    struct png *png = png_of(canvas);
    if (png->pen != NULL) png->cairo.destroy(png->pen);
    if (png->surface != NULL) png->cairo.surface_destroy(png->surface);
    tt_free(png);
}

static const struct tt_canvas_ops ops = {
    .curve = png_curve,
    .dot = png_dot,
    .box = png_box,
    .grid_line = png_grid_line,
    .text = png_text,
    .write = png_write,
    .destroy = png_destroy,
};

tt_status tt_canvas_png(double width, double height, struct tt_canvas **canvas)
{
    tt_status status = TT_OK;
    struct png *png = tt_calloc(1, sizeof *png);
    if (png == NULL) return TT_ERR_MEMORY;
    png->base.ops = &ops;
    TT_GO(open_cairo(&png->cairo));
    png->surface =
        png->cairo.image_surface_create(CAIRO_FORMAT_RGB24, (int)(width * PIXELS), (int)(height * PIXELS));
    png->pen = png->cairo.create(png->surface);
    TT_GO(check(png));
    png->cairo.scale(png->pen, PIXELS, PIXELS);
    png->cairo.set_line_join(png->pen, CAIRO_LINE_JOIN_ROUND);
    set_colour(png, 0xffffff, 1.0);
    png->cairo.paint(png->pen);
    TT_GO(check(png));
    *canvas = &png->base;
    return TT_OK;
out:
    png_destroy(&png->base);
    return status;
}

#else

tt_status tt_canvas_png(double width, double height, struct tt_canvas **canvas)
{
    (void)width, (void)height, (void)canvas;
    tt_status status = tt_fail(TT_ERR_UNSUPPORTED, "no PNG: this trimtab was built without cairo");
    tt_hint("install libcairo2-dev and build again, or write .svg");
    return status;
}

#endif
