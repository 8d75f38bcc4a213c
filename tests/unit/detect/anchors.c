/* detect/anchors.h against the numbers of torchvision's AnchorGenerator. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include "detect/anchors.h"

static void cells(void **state)
{
    (void)state;
    static const float p3[9][2] = {{23, 11}, {28, 14}, {35, 18}, {16, 16}, {20, 20},
                                   {25, 25}, {11, 23}, {14, 28}, {18, 35}};
    static const float p7[6][2] = {{362, 181}, {456, 228}, {574, 287}, {256, 256}, {322, 322}, {406, 406}};
    struct tt_anchor_grid grid = tt_anchor_grid_make(800, 800);
    for (int i = 0; i < 9; i++) {
        const float *cell = grid.levels[0].cells[i];
        assert_true(cell[0] == -p3[i][0] && cell[1] == -p3[i][1] && cell[2] == p3[i][0] &&
                    cell[3] == p3[i][1]);
    }
    for (int i = 0; i < 6; i++) {
        const float *cell = grid.levels[4].cells[i];
        assert_true(cell[0] == -p7[i][0] && cell[1] == -p7[i][1] && cell[2] == p7[i][0] &&
                    cell[3] == p7[i][1]);
    }
}

static void grids(void **state)
{
    (void)state;
    static const struct {
        int64_t height, width, count, stride_y[5], stride_x[5];
    } cases[] = {{800, 800, 120087, {8, 16, 32, 61, 114}, {8, 16, 32, 61, 114}},
                 {800, 1344, 201600, {8, 16, 32, 61, 114}, {8, 16, 32, 64, 122}},
                 {1344, 1344, 338454, {8, 16, 32, 64, 122}, {8, 16, 32, 64, 122}}};
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        struct tt_anchor_grid grid = tt_anchor_grid_make(cases[c].height, cases[c].width);
        assert_int_equal(grid.count, cases[c].count);
        for (int i = 0; i < 5; i++) {
            assert_int_equal(grid.levels[i].stride_y, cases[c].stride_y[i]);
            assert_int_equal(grid.levels[i].stride_x, cases[c].stride_x[i]);
        }
        float *boxes = calloc((size_t)grid.count * 4, sizeof *boxes);
        assert_non_null(boxes);
        tt_anchor_grid_write(&grid, boxes);
        /* Place (row 1, column 2) of P6, its anchor 3: a square of half extents 128. */
        const struct tt_anchor_level *p6 = &grid.levels[3];
        const float *box = boxes + (p6->first + (p6->width + 2) * 9 + 3) * 4;
        float x = (float)(2 * p6->stride_x), y = (float)p6->stride_y;
        assert_true(box[0] == x - 128 && box[1] == y - 128 && box[2] == x + 128 && box[3] == y + 128);
        free(boxes);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(cells), cmocka_unit_test(grids)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
