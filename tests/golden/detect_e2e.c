/* A narrow RetinaNet on images, from PNG files to detections, against torchvision (golden/detect/make_e2e.py). */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/json.h"
#include "detect/loader.h"
#include "infer/detector.h"
#include "io/pth.h"
#include "support/allocations.h"
#include "support/detect_images.h"
#include "support/detections.h"

#define GOLDEN TT_TEST_ROOT "/golden/"
static const char *const names[] = {"grey.png", "palette.png", "rgb.png"};
enum { IMAGES = 3 };

/* At place i; scores that differ by less than 1e-5 may change places. */
static bool is_listed(const struct tt_detection *got, const struct tt_json_value *rows, size_t i)
{
    double score = tt_json_number(tt_json_at(tt_json_at(rows, i), 1));
    if (test_detection_is(got, tt_json_at(rows, i), 1e-4, 1e-4)) return true;
    for (size_t other = 0; other < tt_json_count(rows); other++) {
        const struct tt_json_value *row = tt_json_at(rows, other);
        if (fabs(tt_json_number(tt_json_at(row, 1)) - score) <= 1e-5 &&
            test_detection_is(got, row, 1e-4, 1e-4))
            return true;
    }
    return false;
}

static int fresh(void **state)
{
    char from[400], to[300];
    if (test_root_create(state) != 0) return -1;
    test_put_folder("images");
    for (int i = 0; i < IMAGES; i++) {
        (void)snprintf(from, sizeof from, "%simages/%s", GOLDEN, names[i]);
        (void)snprintf(to, sizeof to, "images/%s", names[i]);
        if (tt_file_copy(from, test_at(to)) != TT_OK) return -1;
    }
    return 0;
}

static struct tt_detect_loader *create_loader(tt_dtype dtype, int64_t batch_size,
                                              struct tt_detect_dataset **dataset)
{
    static char folder[300];
    struct tt_detect_loader *loader = NULL;
    (void)snprintf(folder, sizeof folder, "%s", test_at("images"));
    const struct tt_detect_dataset_config data = {.image_dir = folder, .unannotated_classes = 5};
    if (tt_detect_dataset_load(&data, dataset) != TT_OK) fail_msg("%s", tt_error_last()->message);
    const struct tt_detect_loader_config config = {
        .dataset = *dataset,
        .order = {.view = {.min_size_count = 1, .min_sizes = {128}, .max_size = 213},
                  .batch_size = batch_size,
                  .world_size = 1,
                  .accumulation = 1},
        .workers = 1,
        .pixel_dtype = dtype};
    assert_int_equal(tt_detect_loader_create(&config, 0, &loader), TT_OK);
    return loader;
}

static struct tt_detector *create_detector(tt_dtype dtype, int threads)
{
    struct tt_detector *detector = NULL;
    const struct tt_detector_config config = {GOLDEN "detect/retinanet/weights.pth", -1, dtype, threads};
    if (tt_detector_create(&config, &detector) != TT_OK) fail_msg("%s", tt_error_last()->message);
    assert_int_equal(tt_detector_class_count(detector), 5);
    return detector;
}

static void as_torchvision(void **state)
{
    (void)state;
    if (!test_images_work()) skip();
    struct tt_json json = {0};
    struct tt_detection_list list = {0}, again = {0};
    struct tt_detect_dataset *dataset = NULL;
    assert_int_equal(tt_json_read(GOLDEN "detect/e2e.json", 1 << 20, &json), TT_OK);
    struct tt_detect_loader *loader = create_loader(TT_F32, 1, &dataset);
    struct tt_detector *detector = create_detector(TT_F32, 2), *other = create_detector(TT_F32, 1);
    const struct tt_detections_config limits = tt_detections_default(5);
    for (size_t n = 0; n < IMAGES; n++) {
        const struct tt_detect_batch *batch;
        const struct tt_json_value *rows = tt_json_get(json.root, names[n]);
        assert_int_equal(tt_detect_loader_next(loader, &batch), TT_OK);
        if (tt_detector_run(detector, batch, &limits, &list) != TT_OK)
            fail_msg("%s", tt_error_last()->message);
        assert_int_equal(list.count, tt_json_count(rows));
        assert_true(list.count > 100);
        for (int64_t i = 0; i < list.count; i++)
            if (!is_listed(&list.items[i], rows, (size_t)i))
                fail_msg("%s: detection %lld is not torchvision's", names[n], (long long)i);
        /* The same bits on another number of threads. */
        assert_int_equal(tt_detector_run(other, batch, &limits, &again), TT_OK);
        assert_int_equal(list.count, again.count);
        assert_memory_equal(list.items, again.items, (size_t)list.count * sizeof *list.items);
    }
    tt_detector_destroy(detector);
    tt_detector_destroy(other);
    tt_detect_loader_destroy(loader);
    tt_detect_dataset_destroy(dataset);
    tt_detection_list_deinit(&list);
    tt_detection_list_deinit(&again);
    tt_json_deinit(&json);
}

/* Images of different sizes in one batch, in both types: the workspace grows, and every image has detections. */
static void batches(void **state)
{
    (void)state;
    if (!test_images_work()) skip();
    static const tt_dtype types[] = {TT_F32, TT_BF16};
    for (size_t t = 0; t < 2; t++) {
        struct tt_detect_dataset *dataset = NULL;
        struct tt_detection_list lists[2] = {0};
        const struct tt_detect_batch *batch;
        const struct tt_detections_config limits = tt_detections_default(5);
        struct tt_detect_loader *loader = create_loader(types[t], 2, &dataset);
        struct tt_detector *detector = create_detector(types[t], 1);
        for (int b = 0; b < 3; b++) {
            assert_int_equal(tt_detect_loader_next(loader, &batch), TT_OK);
            if (tt_detector_run(detector, batch, &limits, lists) != TT_OK)
                fail_msg("%s", tt_error_last()->message);
            for (int64_t n = 0; n < batch->image_count; n++) {
                assert_true(lists[n].count > 100);
                assert_true(lists[n].items[0].x2 <= (float)batch->images[n].original_width + 0.01f);
            }
        }
        struct tt_detector *wrong = create_detector(types[!t], 1);
        assert_int_equal(tt_detector_run(wrong, batch, &limits, lists), TT_ERR_INTERNAL);
        tt_detector_destroy(wrong);
        tt_detector_destroy(detector);
        tt_detect_loader_destroy(loader);
        tt_detect_dataset_destroy(dataset);
        tt_detection_list_deinit(&lists[0]);
        tt_detection_list_deinit(&lists[1]);
    }
}

/* The weights under the names of torchvision before 0.13, as those of other networks, with a tensor too few. */
struct renaming {
    const struct tt_safetensors *from;
    const size_t *index;
};

static tt_status read_renamed(void *context, size_t index, int64_t first, int64_t count, void *to)
{
    const struct renaming *renaming = context;
    const struct tt_safetensors_entry *entry = tt_safetensors_entry(renaming->from, renaming->index[index]);
    return tt_safetensors_read(renaming->from, entry, first, count, to, entry->dtype);
}

static void rename_old(const char *name, char old[200])
{
    int a, b;
    char head[100], last[40];
    if (sscanf(name, "backbone.fpn.%90[a-z_].%d.%d.%30s", head, &a, &b, last) == 4)
        (void)snprintf(old, 200, "backbone.fpn.%s.%d.%s", head, a, last);
    else if (sscanf(name, "head.%90[a-z_].conv.%d.%d.%30s", head, &a, &b, last) == 4)
        (void)snprintf(old, 200, "head.%s.conv.%d.%s", head, 2 * a, last);
    else
        (void)snprintf(old, 200, "%s", name);
}

static void other_files(void **state)
{
    (void)state;
    enum { MOST = 200 };
    struct tt_safetensors *file = NULL;
    static struct tt_safetensors_entry entries[MOST];
    static char texts[MOST][200];
    static size_t index[MOST];
    assert_int_equal(tt_pth_open(GOLDEN "detect/retinanet/weights.pth", &file), TT_OK);
    size_t count = tt_safetensors_count(file), renamed = 0;
    assert_true(count <= MOST);
    for (size_t i = 0; i < count; i++) {
        entries[i] = *tt_safetensors_entry(file, i);
        index[i] = i;
        rename_old(entries[i].name, texts[i]);
        renamed += strcmp(texts[i], entries[i].name) != 0;
        entries[i].name = texts[i];
    }
    assert_true(renamed == 28); /* three and three of the pyramid, four and four of the heads, two of each */
    struct renaming renaming = {file, index};
    assert_int_equal(tt_pth_write(test_at("old.pth"), entries, count, read_renamed, &renaming), TT_OK);
    struct tt_detector *detector = NULL;
    char path[300];
    (void)snprintf(path, sizeof path, "%s", test_at("old.pth"));
    const struct tt_detector_config config = {path, 1e-5, TT_F32, 1};
    if (tt_detector_create(&config, &detector) != TT_OK) fail_msg("%s", tt_error_last()->message);
    tt_detector_destroy(detector);
    /* Without one of its tensors; and a language model. */
    for (size_t i = 0; i + 1 < count; i++)
        if (strcmp(entries[i].name, "backbone.body.bn1.weight") == 0) {
            entries[i] = entries[count - 1];
            index[i] = count - 1;
        }
    assert_int_equal(tt_pth_write(test_at("old.pth"), entries, count - 1, read_renamed, &renaming), TT_OK);
    assert_int_equal(tt_detector_create(&config, &detector), TT_ERR_DATA);
    assert_non_null(strstr(tt_error_last()->message, "has no tensor 'backbone.body.bn1.weight'"));
    const struct tt_detector_config language = {GOLDEN "qwen2/model/model.safetensors", -1, TT_F32, 1};
    assert_int_equal(tt_detector_create(&language, &detector), TT_ERR_DATA);
    assert_non_null(strstr(tt_error_last()->message, "is not a RetinaNet of torchvision"));
    tt_safetensors_close(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(as_torchvision, fresh, test_root_remove),
        cmocka_unit_test_setup_teardown(batches, fresh, test_root_remove),
        cmocka_unit_test_setup_teardown(other_files, fresh, test_root_remove)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
