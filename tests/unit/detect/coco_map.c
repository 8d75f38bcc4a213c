/* detect/coco_map.h against pycocotools on 200 random sets (tests/golden/detect/make_map.py, whose sets are made here
 * again), and detect/open_images_map.h by hand. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "base/json.h"
#include "detect/open_images_map.h"
#include "support/allocations.h"

enum { SETS = 200, TRUTHS_MAX = 100, DETECTIONS_MAX = 2500, CLASSES_MAX = 4 };

struct set {
    struct tt_map_truth truths[TRUTHS_MAX];
    struct tt_map_detection detections[DETECTIONS_MAX];
    struct tt_map_input input;
    int64_t of_image; /* the first truth of the image that is made */
};

/* splitmix64 */
static uint64_t below(uint64_t *state, uint64_t bound)
{
    *state += 0x9E3779B97F4A7C15u;
    uint64_t z = *state;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return (z ^ (z >> 31)) % bound;
}

static double whole(uint64_t *state, uint64_t bound)
{
    return (double)below(state, bound);
}

static void make_box(uint64_t *state, double box[4])
{
    static const uint64_t sides[4] = {40, 160, 500, 1600};
    uint64_t side = sides[below(state, 4)];
    box[0] = whole(state, 2000) / 4;
    box[1] = whole(state, 2000) / 4;
    box[2] = (1 + whole(state, side)) / 4;
    box[3] = (1 + whole(state, side)) / 4;
}

static void make_truth(uint64_t *state, struct set *set, int64_t image)
{
    double box[4];
    int32_t label = (int32_t)below(state, (uint64_t)set->input.class_count);
    make_box(state, box);
    if (below(state, 12) == 0) box[2] = box[3] = 32;
    double share = 1 + whole(state, 4);
    struct tt_map_truth *truth = &set->truths[set->input.truth_count++];
    *truth = (struct tt_map_truth){.image = image,
                                   .label = label,
                                   .x = box[0],
                                   .y = box[1],
                                   .w = box[2],
                                   .h = box[3],
                                   .area = box[2] * box[3] * share / 4};
    truth->crowd = below(state, 8) == 0;
}

static void make_detection(uint64_t *state, struct set *set, int64_t image)
{
    double box[4];
    int32_t label = (int32_t)below(state, (uint64_t)set->input.class_count);
    make_box(state, box);
    uint64_t mine = (uint64_t)(set->input.truth_count - set->of_image);
    if (below(state, 3) > 0 && mine > 0) {
        const struct tt_map_truth *other = &set->truths[set->of_image + (int64_t)below(state, mine)];
        label = other->label;
        box[0] = other->x + (whole(state, 9) - 4) / 4;
        box[1] = other->y + (whole(state, 9) - 4) / 4;
        box[2] = other->w + whole(state, 3) / 4;
        box[3] = other->h + whole(state, 3) / 4;
    }
    uint64_t scores = below(state, 2) == 0 ? 20 : 1000003;
    set->detections[set->input.detection_count++] = (struct tt_map_detection){
        image, label, box[0], box[1], box[2], box[3], whole(state, scores) / 1000003};
}

static void make_set(uint64_t number, struct set *set)
{
    uint64_t state = number;
    set->input = (struct tt_map_input){.truths = set->truths, .detections = set->detections};
    set->input.class_count = 1 + (int64_t)below(&state, 4);
    int64_t images = 1 + (int64_t)below(&state, 6);
    bool many = below(&state, 20) == 0;
    for (int64_t image = 1; image <= images; image++) {
        set->of_image = set->input.truth_count;
        for (uint64_t i = below(&state, 14); i > 0; i--) make_truth(&state, set, image);
        for (uint64_t i = below(&state, many ? 400 : 30); i > 0; i--) make_detection(&state, set, image);
    }
}

static void as_pycocotools(void **state)
{
    (void)state;
    static struct set set;
    struct tt_json json = {0};
    int64_t crowds = 0, many = 0;
    double furthest = 0;
    assert_int_equal(tt_json_read(TT_TEST_ROOT "/golden/detect/map.json", 1 << 20, &json), TT_OK);
    assert_int_equal(tt_json_count(json.root), SETS);
    for (size_t n = 0; n < SETS; n++) {
        struct tt_coco_map map;
        double classes[2 * CLASSES_MAX];
        make_set(n, &set);
        size_t count = (size_t)set.input.class_count;
        assert_int_equal(tt_coco_map_compute(&set.input, &map, classes, classes + count), TT_OK);
        const double got[12] = {map.map,        map.map_50,    map.map_75,     map.map_small,
                                map.map_medium, map.map_large, map.mar_1,      map.mar_10,
                                map.mar_100,    map.mar_small, map.mar_medium, map.mar_large};
        const struct tt_json_value *row = tt_json_at(json.root, n);
        assert_int_equal(tt_json_count(row), 12 + 2 * count);
        for (size_t i = 0; i < 12 + 2 * count; i++) {
            double error = fabs((i < 12 ? got[i] : classes[i - 12]) - tt_json_number(tt_json_at(row, i)));
            if (error > 1e-12) fail_msg("set %zu, number %zu: %g away", n, i, error);
            furthest = fmax(furthest, error);
        }
        for (int64_t i = 0; i < set.input.truth_count; i++) crowds += set.truths[i].crowd;
        many += set.input.detection_count > 400;
    }
    assert_true(crowds > 100 && many >= 3);
    print_message("furthest from pycocotools: %g\n", furthest);
    tt_json_deinit(&json);
}

static void nothing_there(void **state)
{
    (void)state;
    struct tt_coco_map map;
    double classes[2];
    const struct tt_map_input empty = {.class_count = 2};
    assert_int_equal(tt_coco_map_compute(&empty, &map, classes, NULL), TT_OK);
    assert_true(map.map == -1 && map.mar_100 == -1 && classes[0] == -1 && classes[1] == -1);
    struct tt_map_detection none = {.image = 1, .label = 0, .w = 1, .h = 1, .score = NAN};
    struct tt_map_input input = {.detections = &none, .detection_count = 1, .class_count = 2};
    assert_int_equal(tt_coco_map_compute(&input, &map, NULL, NULL), TT_ERR_DATA);
    none.label = 2;
    assert_int_equal(tt_coco_map_compute(&input, &map, NULL, NULL), TT_ERR_INTERNAL);
}

/* ---- Open Images ---- */

static double open_images(const struct tt_map_truth *truths, int64_t truth_count,
                          const struct tt_map_detection *detections, int64_t count,
                          const struct tt_map_verified *verified, int64_t verified_count, double *class_ap)
{
    double map;
    const struct tt_map_input input = {truths, truth_count, detections, count, 3};
    assert_int_equal(tt_open_images_map_compute(&input, verified, verified_count, &map, class_ap), TT_OK);
    return map;
}

static void open_images_rules(void **state)
{
    (void)state;
    double ap[3];
    /* Two boxes of class 1 in image 1; a group of it and a box of class 2 in image 2. */
    const struct tt_map_truth truths[] = {
        {.image = 1, .label = 1, .w = 10, .h = 10},
        {.image = 1, .label = 1, .x = 50, .w = 10, .h = 10},
        {.image = 2, .label = 1, .w = 100, .h = 100, .crowd = true},
        {.image = 2, .label = 2, .x = 200, .w = 10, .h = 10},
    };
    /* Right; wrong (the same box again); right in the group; ignored in the group; ignored (class 2 is not verified in
     * image 3); wrong (class 2 is verified in image 1). */
    const struct tt_map_detection detections[] = {
        {1, 1, 0, 0, 10, 10, 0.9},   {1, 1, 0, 0, 10, 9, 0.8}, {2, 1, 5, 5, 10, 10, 0.7},
        {2, 1, 30, 5, 10, 10, 0.6},  {3, 2, 0, 0, 5, 5, 0.5},  {1, 2, 0, 0, 5, 5, 0.4},
        {2, 2, 200, 0, 10, 10, 0.3},
    };
    const struct tt_map_verified verified[] = {{1, 1}, {2, 1}, {1, 2}, {2, 2}};
    /* Class 1: precision 1, 1/2, 2/3 at recall 1/3, 1/3, 2/3; class 2: 0, 1/2 at recall 0, 1. */
    double map = open_images(truths, 4, detections, 7, verified, 4, ap);
    assert_true(ap[0] == -1);
    assert_true(fabs(ap[1] - (1.0 / 3 + 1.0 / 3 * 2 / 3)) < 1e-15);
    assert_true(fabs(ap[2] - 0.5) < 1e-15);
    assert_true(fabs(map - (ap[1] + ap[2]) / 2) < 1e-15);
    /* Without verified labels class 2 is wrong in image 3 too: 0, 0, 1/3. */
    open_images(truths, 4, detections, 7, NULL, 0, ap);
    assert_true(fabs(ap[2] - 1.0 / 3) < 1e-15);
    /* Exactly half of the box, and exactly half of a detection in a group. */
    const struct tt_map_detection half[] = {{1, 1, 0, 0, 10, 5, 0.9}, {2, 1, 95, 0, 10, 10, 0.8}};
    open_images(truths, 4, half, 2, NULL, 0, ap);
    assert_true(fabs(ap[1] - 1.0 / 3) < 1e-15);
    assert_true(open_images(NULL, 0, NULL, 0, NULL, 0, ap) == -1);
}

static void hierarchy(void **state)
{
    (void)state;
    const struct tt_map_truth truths[] = {{.image = 1, .label = 2, .w = 1}, {.image = 2, .label = 0, .w = 2}};
    const int32_t parents[] = {-1, 0, 1}, circle[] = {1, 0, 1};
    struct tt_map_truth *expanded = NULL;
    int64_t count = 0;
    assert_int_equal(tt_open_images_expand(truths, 2, parents, 3, &expanded, &count), TT_OK);
    assert_int_equal(count, 4);
    for (int i = 0; i < 3; i++) assert_true(expanded[i].label == 2 - i && expanded[i].image == 1);
    assert_true(expanded[3].label == 0 && expanded[3].image == 2);
    tt_free(expanded);
    assert_int_equal(tt_open_images_expand(truths, 2, circle, 3, &expanded, &count), TT_ERR_DATA);
}

static tt_status attempt(void *context)
{
    struct set *set = context;
    struct tt_coco_map map;
    double open_map;
    const struct tt_map_verified verified = {1, 0};
    TT_TRY(tt_coco_map_compute(&set->input, &map, NULL, NULL));
    return tt_open_images_map_compute(&set->input, &verified, 1, &open_map, NULL);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    static struct set set;
    make_set(1, &set);
    assert_true(test_allocations_fail(attempt, &set) > 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_pycocotools),
        cmocka_unit_test(nothing_there),
        cmocka_unit_test(open_images_rules),
        cmocka_unit_test(hierarchy),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
