/* Drawing on images: boxes and short texts. Everything is clipped to the image. */
#ifndef TT_IMAGE_DRAW_H
#define TT_IMAGE_DRAW_H

#include "image/image.h"

enum { TT_DRAW_TEXT_HEIGHT = 14, TT_DRAW_TEXT_WIDTH = 8 }; /* of a character with its margins, in pixels */

/* A colour for a class: neighbours differ. */
void tt_draw_colour(int64_t label, uint8_t colour[3]);
/* The frame of x1, y1, x2, y2, `thickness` pixels to the inside. */
void tt_draw_box(struct tt_image *image, float x1, float y1, float x2, float y2, int32_t thickness,
                 const uint8_t colour[3]);
/* Black or white letters on the colour, from the upper left corner (x, y). Characters other than letters, digits and
 * " .-%_/" are drawn as blanks. */
void tt_draw_text(struct tt_image *image, int32_t x, int32_t y, const char *text, const uint8_t colour[3]);

#endif
