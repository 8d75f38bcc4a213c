/* detect/detections.h against torchvision's RetinaNet (tests/golden/detect/make_detections.py, whose outputs are made
 * here again), and its order and limits. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "base/json.h"
#include "detect/detections.h"
#include "support/allocations.h"
#include "support/detections.h"

/* splitmix64 */
static double draw(uint64_t *state)
{
    *state += 0x9E3779B97F4A7C15u;
    uint64_t z = *state;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return (double)((z ^ (z >> 31)) % 1000003) / 1000003;
}

/* The heads' outputs of one image, with padding between the places as on a device. */
struct set {
    struct tt_detections_config config;
    struct tt_anchor_grid grid;
    struct tt_detect_image image;
    struct tt_detect_outputs outputs[TT_ANCHOR_LEVELS];
};

static void set_free(struct set *set)
{
    for (int l = 0; l < TT_ANCHOR_LEVELS; l++) {
        tt_free((void *)(uintptr_t)set->outputs[l].logits);
        tt_free((void *)(uintptr_t)set->outputs[l].deltas);
    }
}

static void make_set(uint64_t number, double shift, struct set *set)
{
    uint64_t state = 1000 + number;
    int64_t columns = TT_ANCHORS_A_PLACE * set->config.class_count;
    for (int l = 0; l < TT_ANCHOR_LEVELS; l++) {
        int64_t places = set->grid.levels[l].height * set->grid.levels[l].width, stride = columns + 5;
        float *logits = tt_calloc((size_t)(places * stride), sizeof *logits);
        for (int64_t i = 0; i < places * stride; i++)
            logits[i] = i % stride < columns ? (float)(draw(&state) * 10 - shift) : INFINITY;
        set->outputs[l] = (struct tt_detect_outputs){logits, NULL, TT_F32, stride, 40};
    }
    for (int l = 0; l < TT_ANCHOR_LEVELS; l++) {
        int64_t places = set->grid.levels[l].height * set->grid.levels[l].width;
        float *deltas = tt_calloc((size_t)(places * 40), sizeof *deltas);
        set->outputs[l].deltas = deltas;
    }
}

/* Levels draw their logits and their deltas in turn. */
static void fill_set(uint64_t number, double shift, struct set *set)
{
    uint64_t state = 1000 + number;
    int64_t columns = TT_ANCHORS_A_PLACE * set->config.class_count;
    make_set(number, shift, set);
    for (int l = 0; l < TT_ANCHOR_LEVELS; l++) {
        int64_t places = set->grid.levels[l].height * set->grid.levels[l].width;
        float *logits = (float *)(uintptr_t)set->outputs[l].logits,
              *deltas = (float *)(uintptr_t)set->outputs[l].deltas;
        for (int64_t p = 0; p < places; p++)
            for (int64_t c = 0; c < columns; c++)
                logits[p * set->outputs[l].logits_stride + c] = (float)(draw(&state) * 10 - shift);
        for (int64_t p = 0; p < places; p++)
            for (int64_t c = 0; c < 36; c++)
                deltas[p * 40 + c] =
                    (float)(c % 4 < 2 ? draw(&state) * 4 - 2 : draw(&state) * (number == 2 ? 8 : 4.5) - 3.5);
    }
}

static int64_t number_at(const struct tt_json_value *object, const char *key, size_t index)
{
    return tt_json_integer(tt_json_at(tt_json_get(object, key), index));
}

static void begin(const struct tt_json_value *wanted, struct set *set)
{
    int64_t number = tt_json_integer(tt_json_get(wanted, "number"));
    *set = (struct set){.config = tt_detections_default(tt_json_integer(tt_json_get(wanted, "classes")))};
    set->grid = tt_anchor_grid_make(number_at(wanted, "canvas", 0), number_at(wanted, "canvas", 1));
    set->image = (struct tt_detect_image){.height = (int32_t)number_at(wanted, "size", 0),
                                          .width = (int32_t)number_at(wanted, "size", 1),
                                          .original_height = (int32_t)number_at(wanted, "original", 0),
                                          .original_width = (int32_t)number_at(wanted, "original", 1)};
    fill_set((uint64_t)number, tt_json_number(tt_json_get(wanted, "shift")), set);
}

static void check_anchors(const struct tt_json_value *wanted, const struct tt_anchor_grid *grid)
{
    const struct tt_json_value *values = tt_json_get(wanted, "anchors");
    float *boxes = tt_calloc((size_t)grid->count * 4, sizeof *boxes);
    tt_anchor_grid_write(grid, boxes);
    assert_int_equal(tt_json_count(values), (grid->count + 96) / 97 * 4);
    for (size_t i = 0; i < tt_json_count(values); i++)
        assert_true(boxes[i / 4 * 97 * 4 + i % 4] == (float)tt_json_number(tt_json_at(values, i)));
    tt_free(boxes);
}

/* At place i; scores that differ by less than 1e-5 may change places. */
static bool is_listed(const struct tt_detection *got, const struct tt_json_value *rows, size_t i)
{
    if (test_detection_is(got, tt_json_at(rows, i), 1e-6, 1e-3)) return true;
    for (size_t other = 0; other < tt_json_count(rows); other++) {
        const struct tt_json_value *row = tt_json_at(rows, other);
        double apart =
            tt_json_number(tt_json_at(row, 1)) - tt_json_number(tt_json_at(tt_json_at(rows, i), 1));
        if (fabs(apart) <= 1e-5 && test_detection_is(got, row, 1e-6, 1e-3)) return true;
    }
    return false;
}

static void as_torchvision(void **state)
{
    (void)state;
    struct tt_json json = {0};
    struct tt_detection_list list = {0};
    assert_int_equal(tt_json_read(TT_TEST_ROOT "/golden/detect/detections.json", 1 << 20, &json), TT_OK);
    assert_int_equal(tt_json_count(json.root), 4);
    int64_t compared = 0;
    for (size_t s = 0; s < 4; s++) {
        struct set set;
        const struct tt_json_value *wanted = tt_json_at(json.root, s),
                                   *rows = tt_json_get(wanted, "detections");
        begin(wanted, &set);
        check_anchors(wanted, &set.grid);
        assert_int_equal(tt_detections_make(&set.config, &set.grid, set.outputs, &set.image, &list), TT_OK);
        assert_int_equal(list.count, tt_json_count(rows));
        for (int64_t i = 0; i < list.count; i++, compared++)
            if (!is_listed(&list.items[i], rows, (size_t)i))
                fail_msg("set %zu: detection %lld is not torchvision's", s, (long long)i);
        set_free(&set);
    }
    assert_true(compared > 500);
    tt_detection_list_deinit(&list);
    tt_json_deinit(&json);
}

/* One level of one place: anchors 0 .. 8 of a canvas of 32 x 32, and the coarser levels silent. */
static void silent_set(struct set *set, int64_t classes)
{
    *set = (struct set){.config = tt_detections_default(classes), .grid = tt_anchor_grid_make(32, 32)};
    set->image =
        (struct tt_detect_image){.height = 32, .width = 32, .original_height = 64, .original_width = 32};
    make_set(0, 0, set);
    for (int l = 0; l < TT_ANCHOR_LEVELS; l++) {
        int64_t places = set->grid.levels[l].height * set->grid.levels[l].width;
        for (int64_t i = 0; i < places * set->outputs[l].logits_stride; i++)
            ((float *)(uintptr_t)set->outputs[l].logits)[i] = -20;
    }
}

/* A logit of 0 is a score of one half, to the bit: a score counts above the threshold, not at it. */
static void scores_at_the_threshold(void **state)
{
    (void)state;
    struct set set;
    struct tt_detection_list list = {0};
    silent_set(&set, 2);
    ((float *)(uintptr_t)set.outputs[0].logits)[0] = 0;
    set.config.score_threshold = 0.5f;
    assert_int_equal(tt_detections_make(&set.config, &set.grid, set.outputs, &set.image, &list), TT_OK);
    assert_int_equal(list.count, 0);
    set.config.score_threshold = nextafterf(0.5f, 0);
    assert_int_equal(tt_detections_make(&set.config, &set.grid, set.outputs, &set.image, &list), TT_OK);
    assert_int_equal(list.count, 1);
    assert_true(list.items[0].score == 0.5f);
    tt_detection_list_deinit(&list);
    set_free(&set);
}

static void ties_and_limits(void **state)
{
    (void)state;
    struct set set;
    struct tt_detection_list list = {0};
    silent_set(&set, 2);
    float *logits = (float *)(uintptr_t)set.outputs[0].logits;
    int64_t stride = set.outputs[0].logits_stride;
    /* Anchor 4 of places 0 and 1 overlap by more than a half; equal scores: the first one stays, in each class. */
    logits[4 * 2 + 0] = logits[stride + 4 * 2 + 0] = 2;
    logits[4 * 2 + 1] = 1;
    assert_int_equal(tt_detections_make(&set.config, &set.grid, set.outputs, &set.image, &list), TT_OK);
    assert_int_equal(list.count, 2);
    assert_true(list.items[0].label == 0 && list.items[1].label == 1);
    assert_true(list.items[0].x1 == 0 && list.items[0].x2 == 20 && list.items[0].y2 == 40); /* scaled back */
    set.config.nms_threshold = 1;
    assert_int_equal(tt_detections_make(&set.config, &set.grid, set.outputs, &set.image, &list), TT_OK);
    assert_int_equal(list.count, 3);
    assert_true(list.items[0].x2 == 20 && list.items[1].x2 == 28);
    set.config.count_max = 2;
    assert_int_equal(tt_detections_make(&set.config, &set.grid, set.outputs, &set.image, &list), TT_OK);
    assert_int_equal(list.count, 2);
    set.config.level_count_max = 1;
    assert_int_equal(tt_detections_make(&set.config, &set.grid, set.outputs, &set.image, &list), TT_OK);
    assert_true(list.count == 1 && list.items[0].x2 == 20);
    /* NaN logits are no detections, and a delta that is no number ends at the border of the image. */
    set.config = tt_detections_default(2);
    for (int64_t i = 0; i < stride; i++) logits[i] = NAN;
    assert_int_equal(tt_detections_make(&set.config, &set.grid, set.outputs, &set.image, &list), TT_OK);
    assert_int_equal(list.count, 1);
    set.outputs[2].dtype = TT_I32;
    assert_int_equal(tt_detections_make(&set.config, &set.grid, set.outputs, &set.image, &list),
                     TT_ERR_INTERNAL);
    set_free(&set);
    tt_detection_list_deinit(&list);
}

/* Outputs in bf16 and fp16 are those of their values in fp32. */
static void narrow_types(void **state)
{
    (void)state;
    static const tt_dtype types[] = {TT_BF16, TT_F16};
    struct tt_detection_list lists[2] = {0};
    for (size_t t = 0; t < 2; t++) {
        struct set set = {.config = tt_detections_default(3), .grid = tt_anchor_grid_make(64, 96)};
        set.image =
            (struct tt_detect_image){.height = 64, .width = 96, .original_height = 64, .original_width = 96};
        fill_set(5, 8, &set);
        void *narrow[2 * TT_ANCHOR_LEVELS];
        struct tt_detect_outputs outputs[TT_ANCHOR_LEVELS];
        for (int l = 0; l < TT_ANCHOR_LEVELS; l++) {
            size_t places = (size_t)(set.grid.levels[l].height * set.grid.levels[l].width);
            size_t counts[2] = {places * (size_t)set.outputs[l].logits_stride, places * 40};
            void *wide[2] = {(void *)(uintptr_t)set.outputs[l].logits,
                             (void *)(uintptr_t)set.outputs[l].deltas};
            for (int i = 0; i < 2; i++) {
                narrow[2 * l + i] = tt_calloc(counts[i], 2);
                assert_true(tt_dtype_convert(narrow[2 * l + i], types[t], wide[i], TT_F32, counts[i]));
                assert_true(tt_dtype_convert(wide[i], TT_F32, narrow[2 * l + i], types[t], counts[i]));
            }
            outputs[l] = set.outputs[l];
            outputs[l].logits = narrow[2 * l];
            outputs[l].deltas = narrow[2 * l + 1];
            outputs[l].dtype = types[t];
        }
        assert_int_equal(tt_detections_make(&set.config, &set.grid, set.outputs, &set.image, &lists[0]),
                         TT_OK);
        assert_int_equal(tt_detections_make(&set.config, &set.grid, outputs, &set.image, &lists[1]), TT_OK);
        assert_true(lists[0].count > 10 && lists[0].count == lists[1].count);
        assert_memory_equal(lists[0].items, lists[1].items, (size_t)lists[0].count * sizeof *lists[0].items);
        for (int i = 0; i < 2 * TT_ANCHOR_LEVELS; i++) tt_free(narrow[i]);
        set_free(&set);
    }
    tt_detection_list_deinit(&lists[0]);
    tt_detection_list_deinit(&lists[1]);
}

static tt_status attempt(void *context)
{
    const struct set *set = context;
    struct tt_detection_list list = {0};
    tt_status status = tt_detections_make(&set->config, &set->grid, set->outputs, &set->image, &list);
    tt_detection_list_deinit(&list);
    return status;
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    struct set set = {.config = tt_detections_default(3), .grid = tt_anchor_grid_make(64, 96)};
    set.image =
        (struct tt_detect_image){.height = 64, .width = 96, .original_height = 64, .original_width = 96};
    fill_set(5, 8, &set);
    assert_true(test_allocations_fail(attempt, &set) > 4);
    set_free(&set);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_torchvision),
        cmocka_unit_test(ties_and_limits),
        cmocka_unit_test(scores_at_the_threshold),
        cmocka_unit_test(narrow_types),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
