/* detect/coco_map.h against pycocotools on 200 random sets (tests/golden/detect/make_map.py, whose sets are made here
 * again), and detect/open_images_map.h against TensorFlow's object detection library on the same and by hand. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "base/json.h"
#include "detect/open_images_map.h"
#include "support/allocations.h"
#include "support/root.h"

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
                          const struct tt_map_label *verified, int64_t verified_count, double *class_ap)
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
    const struct tt_map_label verified[] = {{1, 1, true}, {2, 1, true}, {1, 2, false}, {2, 2, true}};
    /* Class 1: precision 1, 1/2, 2/3 at recall 1/3, 1/3, 2/3; class 2: 0, 1/2 at recall 0, 1. */
    double map = open_images(truths, 4, detections, 7, verified, 4, ap);
    assert_true(ap[0] == -1);
    assert_true(fabs(ap[1] - (1.0 / 3 + 1.0 / 3 * 2 / 3)) < 1e-15);
    assert_true(fabs(ap[2] - 0.5) < 1e-15);
    assert_true(fabs(map - (ap[1] + ap[2]) / 2) < 1e-15);
    /* Without verified labels class 2 is wrong in image 3 too: 0, 0, 1/3. */
    open_images(truths, 4, detections, 7, NULL, 0, ap);
    assert_true(fabs(ap[2] - 1.0 / 3) < 1e-15);
    /* Exactly half of the box, and exactly half of a detection in a group: both are right. */
    const struct tt_map_detection half[] = {{1, 1, 0, 0, 10, 5, 0.9}, {2, 1, 95, 0, 10, 10, 0.8}};
    open_images(truths, 4, half, 2, NULL, 0, ap);
    assert_true(fabs(ap[1] - 2.0 / 3) < 1e-15);
    assert_true(open_images(NULL, 0, NULL, 0, NULL, 0, ap) == -1);
}

/* Scores without ties; classes that are verified: make_open_images.py. */
static int64_t vary(size_t number, struct set *set, struct tt_map_label *verified)
{
    uint64_t state = number + 1000;
    int64_t count = 0, images = 0;
    for (int64_t i = 0; i < set->input.detection_count; i++)
        set->detections[i].score = (double)(i * 7919 % 2503 + 1) / 2504;
    uint64_t again = number;
    (void)below(&again, 4);
    images = 1 + (int64_t)below(&again, 6);
    for (int64_t image = 1; image <= images; image++)
        for (int32_t label = 0; label < set->input.class_count; label++)
            if (below(&state, 3) == 0 || number % 2 == 1)
                verified[count++] = (struct tt_map_label){image, label, false};
    return count;
}

static void as_tensorflow(void **state)
{
    (void)state;
    static struct set set;
    struct tt_json json = {0};
    struct tt_map_label verified[6 * CLASSES_MAX];
    double furthest = 0;
    assert_int_equal(tt_json_read(TT_TEST_ROOT "/golden/detect/open_images.json", 1 << 20, &json), TT_OK);
    assert_int_equal(tt_json_count(json.root), SETS);
    for (size_t n = 0; n < SETS; n++) {
        double ap[CLASSES_MAX], map, sum = 0;
        int64_t classes = 0;
        make_set(n, &set);
        int64_t count = vary(n, &set, verified);
        assert_int_equal(tt_open_images_map_compute(&set.input, verified, count, &map, ap), TT_OK);
        const struct tt_json_value *row = tt_json_at(json.root, n);
        assert_int_equal(tt_json_count(row), set.input.class_count);
        for (int64_t k = 0; k < set.input.class_count; k++) {
            const struct tt_json_value *wanted = tt_json_at(row, (size_t)k);
            double error = tt_json_is_null(wanted) ? fabs(ap[k] + 1) : fabs(ap[k] - tt_json_number(wanted));
            if (error > 1e-12) fail_msg("set %zu, class %lld: %g away", n, (long long)k, error);
            furthest = fmax(furthest, error);
            if (tt_json_is_null(wanted)) continue;
            sum += tt_json_number(wanted);
            classes++;
        }
        assert_true(fabs(map - (classes > 0 ? sum / (double)classes : -1)) < 1e-12);
    }
    print_message("furthest from TensorFlow: %g\n", furthest);
    tt_json_deinit(&json);
}

static tt_status read_hierarchy(const char *text, struct tt_name_index *by_key,
                                struct tt_hierarchy *hierarchy)
{
    static const char *const keys[] = {"/m/animal", "/m/cat", "/m/pet", "/m/kitten"};
    *by_key = (struct tt_name_index){0};
    for (size_t i = 0; i < 4; i++) assert_int_equal(tt_name_index_add(by_key, keys[i], i), TT_OK);
    test_put("hierarchy.json", text);
    tt_status status = tt_hierarchy_read(test_at("hierarchy.json"), by_key, 4, hierarchy);
    tt_name_index_deinit(by_key);
    return status;
}

/* A cat is below animal and below pet; a class that the annotations lack is between cat and kitten. */
static const char tree[] =
    "{\"LabelName\": \"/m/0bl9f\", \"Subcategory\": [{\"LabelName\": \"/m/animal\", \"Part\": "
    "[{\"LabelName\": "
    "\"/m/pet\"}], \"Subcategory\": [{\"LabelName\": \"/m/cat\", \"Subcategory\": [{\"LabelName\": \"/m/x\", "
    "\"Subcategory\": [{\"LabelName\": \"/m/kitten\"}]}]}]}, {\"LabelName\": \"/m/pet\", \"Subcategory\": "
    "[{\"LabelName\": \"/m/cat\"}, {\"LabelName\": \"/m/cat\"}]}]}";

static void hierarchy(void **state)
{
    (void)state;
    enum { ANIMAL, CAT, PET, KITTEN };
    struct tt_hierarchy classes;
    struct tt_name_index by_key;
    struct tt_map_truth *boxes = NULL;
    struct tt_map_label *labels = NULL;
    int64_t count = 0;
    if (read_hierarchy(tree, &by_key, &classes) != TT_OK) fail_msg("%s", tt_error_last()->message);
    const struct tt_map_truth truths[] = {{.image = 1, .label = KITTEN, .w = 1},
                                          {.image = 2, .label = ANIMAL, .w = 2},
                                          {.image = 3, .label = CAT, .w = 3}};
    static const int32_t wanted[] = {KITTEN, ANIMAL, CAT, ANIMAL, CAT, ANIMAL, PET};
    static const int64_t images[] = {1, 1, 1, 2, 3, 3, 3};
    assert_int_equal(tt_hierarchy_expand_truths(&classes, truths, 3, &boxes, &count), TT_OK);
    assert_int_equal(count, 7);
    for (int i = 0; i < 7; i++)
        assert_true(boxes[i].label == wanted[i] && boxes[i].image == images[i] &&
                    boxes[i].w == (double)images[i]);
    const struct tt_map_label checked[] = {
        {1, KITTEN, true}, {2, ANIMAL, false}, {3, PET, false}, {4, CAT, false}};
    static const int32_t of_image[] = {KITTEN, ANIMAL, CAT, ANIMAL, CAT, KITTEN, PET, CAT, CAT, KITTEN};
    assert_int_equal(tt_hierarchy_expand_labels(&classes, checked, 4, &labels, &count), TT_OK);
    assert_int_equal(count, 10);
    for (int i = 0; i < 10; i++) assert_int_equal(labels[i].label, of_image[i]);
    assert_true(labels[2].there && !labels[5].there && labels[5].image == 2);
    tt_free(boxes);
    tt_free(labels);
    tt_hierarchy_deinit(&classes);
    assert_int_equal(read_hierarchy("{\"LabelName\": \"a\", \"Subcategory\": [{\"LabelName\": \"/m/cat\", "
                                    "\"Subcategory\": [{\"LabelName\": \"/m/cat\"}]}]}",
                                    &by_key, &classes),
                     TT_ERR_DATA);
    assert_non_null(strstr(tt_error_last()->message, "below itself"));
    assert_int_equal(read_hierarchy("{\"LabelName\": \"a\"}", &by_key, &classes), TT_ERR_DATA);
    assert_non_null(strstr(tt_error_last()->message, "no two classes"));
    assert_int_equal(read_hierarchy("[]", &by_key, &classes), TT_ERR_DATA);
    assert_int_equal(read_hierarchy("{\"Subcategory\": []}", &by_key, &classes), TT_ERR_DATA);
}

static tt_status attempt(void *context)
{
    struct set *set = context;
    struct tt_coco_map map;
    double open_map;
    const struct tt_map_label verified = {1, 0, true};
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
        cmocka_unit_test(as_tensorflow),
        cmocka_unit_test(nothing_there),
        cmocka_unit_test(open_images_rules),
        cmocka_unit_test_setup_teardown(hierarchy, test_root_create, test_root_remove),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
