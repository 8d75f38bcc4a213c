/* Internal to cpu/winograd*.c: the tiles of F(4 x 4, 3 x 3). A tile makes 4 x 4 places of y from 6 x 6 of x, with
 * padding 1; between them are the values at 36 points. */
#ifndef TT_BACKEND_CPU_CONV_WINOGRAD_TILES_H
#define TT_BACKEND_CPU_CONV_WINOGRAD_TILES_H

#include "tensor/tensor.h"

enum {
    TT_TILE_X = 6, /* the side of a tile of x */
    TT_TILE_Y = 4, /* of y, and the step from tile to tile */
    TT_TILE_POINTS = TT_TILE_X * TT_TILE_X,
    TT_TILE_CHANNELS = 64, /* most channels that are transformed at once */
    TT_TILE_PAD = 16,      /* floats, so that the 36 matrices do not share lines of the first-level cache */
};

struct tt_tiles {
    int64_t height, width; /* of an image */
    int64_t rows, columns; /* tiles of an image */
    int64_t count;
};
static inline struct tt_tiles tt_tiles_of(int64_t images, int64_t height, int64_t width)
{
    int64_t rows = (height + TT_TILE_Y - 1) / TT_TILE_Y, columns = (width + TT_TILE_Y - 1) / TT_TILE_Y;
    return (struct tt_tiles){height, width, rows, columns, images * rows * columns};
}

/* The first place of y of a tile: row `h` and column `w` of the image whose first place is `image`. */
struct tt_tile_corner {
    int64_t image, h, w;
};
static inline struct tt_tile_corner tt_tile_corner_of(const struct tt_tiles *tiles, int64_t index)
{
    return (struct tt_tile_corner){.image =
                                       index / tiles->columns / tiles->rows * tiles->height * tiles->width,
                                   .h = index / tiles->columns % tiles->rows * TT_TILE_Y,
                                   .w = index % tiles->columns * TT_TILE_Y};
}

static inline const void *tt_tile_place(const tt_tensor *x, int64_t row, int64_t channel)
{
    return (const char *)x->data + (row * x->strides[0] + channel) * (int64_t)tt_dtype_bytes(x->dtype);
}

/* The addresses of `side` x `side` places from (h, w) on; zeros outside the image. */
static inline void tt_tile_places(const struct tt_tiles *tiles, const tt_tensor *x, int64_t image, int64_t h,
                                  int64_t w, int side, int64_t channel, const void **places)
{
    static const float zeros[TT_TILE_CHANNELS];
    for (int i = 0; i < side; i++)
        for (int j = 0; j < side; j++) {
            bool inside = h + i >= 0 && h + i < tiles->height && w + j >= 0 && w + j < tiles->width;
            int64_t row = image + (h + i) * tiles->width + w + j;
            places[i * side + j] = inside ? tt_tile_place(x, row, channel) : zeros;
        }
}

#endif
