/* detect/drawing.h: found and annotated boxes on a picture. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "detect/drawing.h"
#include "image/draw.h"
#include "support/detect_images.h"

enum { HEIGHT = 60, WIDTH = 80 };

static struct tt_detect_dataset *make_dataset(void)
{
    struct tt_detect_dataset *dataset = NULL;
    char folder[300];
    test_put_folder("images");
    test_put_folder("labels");
    test_put_image("images/a.png", 2 * HEIGHT, 2 * WIDTH, 1);
    test_put("labels/train.json",
             "{\"images\": [{\"id\": 42, \"file_name\": \"a.png\"}], \"categories\": [{\"id\": 7, \"name\": "
             "\"cat\"}, "
             "{\"id\": 5, \"name\": \"dog\"}], \"annotations\": [{\"id\": 1, \"image_id\": 42, "
             "\"category_id\": 7, "
             "\"bbox\": [20, 40, 60, 50], \"area\": 3000}, {\"id\": 2, \"image_id\": 42, \"category_id\": 5, "
             "\"bbox\": [120, 20, 30, 30], \"iscrowd\": 1}]}");
    snprintf(folder, sizeof folder, "%s", test_at("images"));
    const struct tt_detect_dataset_config config = {.image_dir = folder};
    if (tt_detect_dataset_load(&config, &dataset) != TT_OK) fail_msg("%s", tt_error_last()->message);
    return dataset;
}

static void expect(const struct tt_image *image, int32_t x, int32_t y, const uint8_t colour[3])
{
    const uint8_t *at = image->rgb + ((size_t)y * WIDTH + (size_t)x) * 3;
    if (memcmp(at, colour, 3) != 0)
        fail_msg("pixel %d, %d is %d, %d, %d", (int)x, (int)y, at[0], at[1], at[2]);
}

static void all(void **state)
{
    (void)state;
    static const uint8_t black[3] = {0}, blue[3] = {0, 100, 255};
    if (!test_images_work()) skip();
    struct tt_detect_dataset *dataset = make_dataset();
    struct tt_detection items[] = {{10, 20, 40, 45, 0.875f, 2}, {0.5f, 0, 3, 4.25f, 0.1f, 1}};
    const struct tt_detection_list list = {items, 2, 2};
    struct tt_box_style style = {.scale = 1, .min_score = 0.5};
    struct tt_image image = {0};
    uint8_t cat[3];
    tt_draw_colour(2, cat);
    assert_int_equal(tt_image_create(HEIGHT, WIDTH, &image), TT_OK);
    assert_int_equal(tt_detections_draw(&image, dataset, &list, &style), 1);
    expect(&image, 10, 30, cat); /* the frame */
    expect(&image, 11, 7, cat);  /* its label */
    expect(&image, 2, 2, black); /* below min_score */
    expect(&image, 60, 15, black);
    tt_image_deinit(&image);

    /* Half as large, in one colour: the annotated boxes, crowds too, with names below and within the picture. */
    assert_int_equal(tt_image_create(HEIGHT, WIDTH, &image), TT_OK);
    style = (struct tt_box_style){.scale = 0.5, .colour = blue};
    assert_int_equal(tt_truths_draw(&image, dataset, 0, &style), 2);
    expect(&image, 10, 30, blue);
    expect(&image, 39, 40, blue);
    expect(&image, 41, 40, black);
    expect(&image, 60, 15, blue);
    expect(&image, 12, 58, blue); /* "cat": the box ends at 45, its name at 59 */
    expect(&image, 12, 44, blue);
    tt_image_deinit(&image);

    /* A name at the lower border, and places that are no numbers. */
    struct tt_detection odd[] = {{-1e30f, 1e30f, 1e30f, 2e30f, 0.9f, 1}, {0.0f / 0.0f, 0, 0, 0, 0.9f, 1}};
    const struct tt_detection_list odd_list = {odd, 2, 2};
    assert_int_equal(tt_image_create(HEIGHT, WIDTH, &image), TT_OK);
    style = (struct tt_box_style){.scale = 1, .min_score = 0.5};
    assert_int_equal(tt_detections_draw(&image, dataset, &odd_list, &style), 2);
    tt_image_deinit(&image);
    tt_detect_dataset_destroy(dataset);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(all, test_root_create, test_root_remove)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
