/* Anchor boxes of RetinaNet (torchvision, models/detection/anchor_utils.py): five levels, nine anchors at each place of
 * a level's grid. Anchor (y * width + x) * 9 + a of a level; levels one after the other. */
#ifndef TT_DETECT_ANCHORS_H
#define TT_DETECT_ANCHORS_H

#include <stdint.h>

enum { TT_ANCHOR_LEVELS = 5, TT_ANCHORS_A_PLACE = 9 };

struct tt_anchor_level {
    int64_t height, width;              /* of the grid */
    int64_t stride_y, stride_x;         /* canvas / grid, rounded down: 61 and 64 for P6 of 800 x 1344 */
    int64_t first;                      /* number of the level's first anchor */
    float cells[TT_ANCHORS_A_PLACE][4]; /* x1, y1, x2, y2 around a place */
};

struct tt_anchor_grid {
    struct tt_anchor_level levels[TT_ANCHOR_LEVELS];
    int64_t count;
};

/* The grid of a canvas whose sides are multiples of 32. */
struct tt_anchor_grid tt_anchor_grid_make(int64_t height, int64_t width);
/* One anchor of a level. */
void tt_anchor_at(const struct tt_anchor_level *level, int64_t index, float box[4]);
/* All anchors, [count, 4]. */
void tt_anchor_grid_write(const struct tt_anchor_grid *grid, float *boxes);

#endif
