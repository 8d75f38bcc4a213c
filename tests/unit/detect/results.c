/* detect/results.h: COCO's results as text, the input of mean average precision. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "base/json.h"
#include "detect/results.h"
#include "support/detect_images.h"

static struct tt_detect_dataset *make_dataset(void)
{
    struct tt_detect_dataset *dataset = NULL;
    char folder[300];
    test_put_folder("images");
    test_put_folder("labels");
    test_put_image("images/a.png", 60, 80, 1);
    test_put("labels/train.json", "{\"images\": [{\"id\": 42, \"file_name\": \"a.png\"}], \"categories\": "
                                  "[{\"id\": 7, \"name\": \"cat\"}, "
                                  "{\"id\": 5, \"name\": \"dog\"}], \"annotations\": [{\"id\": 1, "
                                  "\"image_id\": 42, \"category_id\": 7, "
                                  "\"bbox\": [10, 20, 30, 25], \"area\": 700}, {\"id\": 2, \"image_id\": 42, "
                                  "\"category_id\": 5, \"bbox\": "
                                  "[1, 2, 3, 4], \"iscrowd\": 1}]}");
    snprintf(folder, sizeof folder, "%s", test_at("images"));
    const struct tt_detect_dataset_config config = {.image_dir = folder};
    if (tt_detect_dataset_load(&config, &dataset) != TT_OK) fail_msg("%s", tt_error_last()->message);
    return dataset;
}

static void all(void **state)
{
    (void)state;
    if (!test_images_work()) skip();
    struct tt_detect_dataset *dataset = make_dataset();
    struct tt_detection items[] = {{10, 20, 40, 45, 0.875f, 2}, {0.5f, 0, 3, 4.25f, 0.1f, 1}};
    const struct tt_detection_list list = {items, 2, 2}, none = {0};
    struct tt_coco_results results = {0};
    assert_int_equal(tt_coco_results_add(&results, dataset, 42, &none), TT_OK);
    assert_int_equal(tt_coco_results_add(&results, dataset, 42, &list), TT_OK);
    assert_int_equal(tt_coco_results_write(&results, test_at("results.json")), TT_OK);
    assert_string_equal(
        tt_str_text(&results.text),
        "[{\"image_id\": 42, \"category_id\": 7, \"bbox\": [10, 20, 30, 25], \"score\": 0.875},\n"
        "{\"image_id\": 42, \"category_id\": 5, \"bbox\": [0.5, 0, 2.5, 4.25], \"score\": "
        "0.10000000149011612}]\n");
    tt_coco_results_deinit(&results);
    struct tt_json json = {0};
    assert_int_equal(tt_json_read(test_at("results.json"), 1 << 16, &json), TT_OK);
    assert_int_equal(tt_json_count(json.root), 2);
    tt_json_deinit(&json);
    assert_int_equal(tt_coco_results_write(&results, test_at("results.json")), TT_OK);
    assert_string_equal(tt_str_text(&results.text), "[]\n");
    tt_coco_results_deinit(&results);

    struct tt_map_truth *truths = NULL;
    struct tt_map_detection found[2];
    int64_t count = 0;
    struct tt_coco_map map;
    assert_int_equal(tt_map_truths_of(dataset, &truths, &count), TT_OK);
    tt_map_detections_of(42, &list, found);
    assert_true(count == 2 && truths[0].image == 42 && truths[0].area == 700 && truths[1].crowd);
    const struct tt_map_input input = {truths, count, found, 2, tt_detect_dataset_class_count(dataset)};
    assert_int_equal(tt_coco_map_compute(&input, &map, NULL, NULL), TT_OK);
    assert_true(map.map > 0.999 && map.mar_1 == 1 && map.map_large == -1);
    tt_free(truths);
    tt_detect_dataset_destroy(dataset);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(all, test_root_create, test_root_remove)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
