/* monitor/run_plot.h: a PNG opens, has the size of its panels, and shows each run in its colour, axes and names. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <cmocka.h>

#include "base/file.h"
#include "image/image.h"
#include "monitor/run_plot.h"
#include "support/temporary.h"

enum { WIDTH = 1800, PANEL = 420, LEGEND = 44, MARGIN = 20, LEFT = 160 };

static void read_run(const char *folder, const char *rows, struct tt_run_figures *figures)
{
    char path[4200];
    assert_int_equal(mkdir(folder, 0700), 0);
    snprintf(path, sizeof path, "%s/metrics.jsonl", folder);
    assert_int_equal(tt_file_write_atomic(path, rows, strlen(rows)), TT_OK);
    assert_int_equal(tt_run_figures_read(folder, figures), TT_OK);
}

/* Pixels of the rows [from, to) that are near a colour. */
static int count_pixels(const struct tt_image *image, int from, int to, uint32_t colour)
{
    int count = 0;
    for (int y = from; y < to; y++)
        for (int x = 0; x < image->width; x++) {
            const uint8_t *rgb = image->rgb + 3 * ((size_t)y * (size_t)image->width + (size_t)x);
            int distance = abs(rgb[0] - (int)(colour >> 16)) + abs(rgb[1] - (int)(colour >> 8 & 255)) +
                           abs(rgb[2] - (int)(colour & 255));
            count += distance < 12;
        }
    return count;
}

static void test_two_runs(void **state)
{
    struct tt_str file = {0};
    struct tt_image image = {0};
    struct tt_run_figures runs[2] = {0};
    char root[4096], folder[4110];
    (void)state;
    test_temporary(root, sizeof root, "plot-XXXXXX");
    assert_non_null(mkdtemp(root));
    snprintf(folder, sizeof folder, "%s/one", root);
    read_run(folder, "{\"step\": 1, \"loss\": 2}\n{\"step\": 2, \"loss\": 1}\n", &runs[0]);
    snprintf(folder, sizeof folder, "%s/t\xff <w>", root); /* no UTF-8 */
    read_run(folder, "{\"step\": 1, \"loss\": 2, \"grad_norm\": 0.5}\n", &runs[1]);
    tt_status status = tt_run_plot(runs, 2, TT_PLOT_PNG, &file);
    if (status == TT_ERR_UNSUPPORTED) {
        printf("skipped: %s\n", tt_error_last()->message);
        exit(77);
    }
    assert_int_equal(status, TT_OK);
    status = tt_image_decode(file.data, file.bytes, "plot", 0, &image);
    if (status == TT_ERR_UNSUPPORTED) {
        printf("skipped: %s\n", tt_error_last()->message);
        exit(77);
    }
    assert_int_equal(status, TT_OK);
    int head = 2 * LEGEND + MARGIN;
    assert_int_equal(image.width, WIDTH);
    assert_int_equal(image.height, head + 2 * PANEL);
    /* A bar of 18 x 4 and a name for each run; the curve of the first; a dot of radius 3 for the other. */
    assert_int_equal(count_pixels(&image, 0, head, 0x2f7ed8), 4 * 18 * 4);
    assert_int_equal(count_pixels(&image, 0, head, 0xd9542b), 4 * 18 * 4);
    assert_in_range(count_pixels(&image, 0, head, 0x222222), 200, 20000);
    assert_in_range(count_pixels(&image, head, head + PANEL, 0x2f7ed8), WIDTH - LEFT, 3 * WIDTH);
    assert_in_range(count_pixels(&image, head + PANEL, head + 2 * PANEL, 0xd9542b), 80, 130);
    assert_int_equal(count_pixels(&image, head + PANEL, head + 2 * PANEL, 0x2f7ed8), 0);
    assert_in_range(count_pixels(&image, 0, image.height, 0xffffff), image.height * WIDTH * 8 / 10,
                    image.height * WIDTH * 99 / 100);
    tt_image_deinit(&image);
    tt_str_deinit(&file);
    for (int i = 0; i < 2; i++) tt_run_figures_deinit(&runs[i]);
}

/* For builds with sanitizers: fontconfig keeps what it has read of the fonts. */
__attribute__((visibility("default"))) const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
    return "leak:libfontconfig";
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_two_runs)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
