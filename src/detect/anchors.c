#include "detect/anchors.h"

#include <math.h>

/* Sizes of the first level's anchors: 32, and 32 times the cube roots of 2 and 4, rounded down. */
static const float sizes[TT_ANCHOR_LEVELS][3] = {
    {32, 40, 50}, {64, 80, 101}, {128, 161, 203}, {256, 322, 406}, {512, 645, 812}};
static const float ratios[3] = {0.5f, 1, 2};

static void make_cells(int level, float cells[TT_ANCHORS_A_PLACE][4])
{
    for (int r = 0; r < 3; r++) {
        float h_ratio = sqrtf(ratios[r]), w_ratio = 1 / h_ratio;
        for (int s = 0; s < 3; s++) {
            float *cell = cells[r * 3 + s];
            float w = w_ratio * sizes[level][s], h = h_ratio * sizes[level][s];
            /* rintf rounds half to even, as torch.round does. */
            cell[0] = rintf(-w / 2);
            cell[1] = rintf(-h / 2);
            cell[2] = rintf(w / 2);
            cell[3] = rintf(h / 2);
        }
    }
}

struct tt_anchor_grid tt_anchor_grid_make(int64_t height, int64_t width)
{
    struct tt_anchor_grid grid = {.count = 0};
    int64_t h = height / 4, w = width / 4;
    for (int i = 0; i < TT_ANCHOR_LEVELS; i++) {
        struct tt_anchor_level *level = &grid.levels[i];
        /* Convolutions of stride 2 with padding round up. */
        h = (h + 1) / 2;
        w = (w + 1) / 2;
        *level = (struct tt_anchor_level){
            .height = h, .width = w, .stride_y = height / h, .stride_x = width / w, .first = grid.count};
        make_cells(i, level->cells);
        grid.count += h * w * TT_ANCHORS_A_PLACE;
    }
    return grid;
}

void tt_anchor_at(const struct tt_anchor_level *level, int64_t index, float box[4])
{
    int64_t place = index / TT_ANCHORS_A_PLACE;
    const float *cell = level->cells[index % TT_ANCHORS_A_PLACE];
    float x = (float)(place % level->width * level->stride_x);
    float y = (float)(place / level->width * level->stride_y);
    box[0] = x + cell[0];
    box[1] = y + cell[1];
    box[2] = x + cell[2];
    box[3] = y + cell[3];
}

void tt_anchor_grid_write(const struct tt_anchor_grid *grid, float *boxes)
{
    for (int i = 0; i < TT_ANCHOR_LEVELS; i++) {
        const struct tt_anchor_level *level = &grid->levels[i];
        int64_t count = level->height * level->width * TT_ANCHORS_A_PLACE;
        for (int64_t a = 0; a < count; a++) tt_anchor_at(level, a, boxes + (level->first + a) * 4);
    }
}
