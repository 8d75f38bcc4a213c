/* detect/dataset.h: Open Images and COCO beside a folder of images, what is left out and counted, what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "detect/dataset.h"
#include "vision/image_files.h"
#include "vision/pixel_cache.h"
#include "support/allocations.h"
#include "support/detect_images.h"

#define HEAD "ImageID,Source,LabelName,Confidence,XMin,XMax,YMin,YMax,IsOccluded,IsTruncated,IsGroupOf\n"

static int fresh(void **state)
{
    if (test_root_create(state) != 0) return -1;
    test_put_folder("images");
    return 0;
}

/* The paths stay valid: test_at's do not. */
static struct tt_detect_dataset_config config_of(enum tt_detect_split split)
{
    static char image_dir[300];
    snprintf(image_dir, sizeof image_dir, "%s", test_at("images"));
    return (struct tt_detect_dataset_config){.image_dir = image_dir,
                                             .split = split,
                                             .validation_share = 0.1,
                                             .train = split == TT_DETECT_TRAIN,
                                             .threads = 2};
}

static struct tt_detect_dataset *load(const struct tt_detect_dataset_config *config)
{
    struct tt_detect_dataset *dataset = NULL;
    if (tt_detect_dataset_load(config, &dataset) != TT_OK) fail_msg("%s", tt_error_last()->message);
    return dataset;
}

static void put_open_images(void)
{
    test_put_image("images/b.png", 20, 40, 1);
    test_put_image("images/a.png", 30, 30, 2);
    test_put_image("images/c.png", 10, 10, 3);
    test_put_image("images/d.png", 10, 10, 3);
    test_put("train-annotations-bbox.csv", HEAD
             "b,x,/m/2,1,0.25,0.75,0.5,1,0,0,0\nb,x,/m/1,1,0,0.5,0,0.5,-1,-1,1\n"
             "zz,x,/m/1,1,0,1,0,1,0,0,0\nzz,x,/m/1,1,0,1,0,1,0,0,0\n\n"
             "a,x,/m/9,1,0,1,0,1,0,0,0\r\na,x,\"/m/1\",1,0.1,0.2,0.1,0.1,0,0,0\na,x,/m/1,1,0,0.5,0,1,0,0,-1\n"
             "c,x,/m/1,1,0,0.05,0,1,0,0,0\n");
    test_put("validation-annotations-bbox.csv", HEAD "d,x,/m/2,1,0,1,0,1,0,0,0\n");
    test_put("class-descriptions-boxable.csv", "/m/1,\"Cat, \"\"big\"\"\"\n/m/2,Tortoise\n");
}

static void open_images(void **state)
{
    (void)state;
    if (!test_images_work()) skip();
    put_open_images();
    struct tt_detect_dataset_config config = config_of(TT_DETECT_TRAIN);
    struct tt_detect_dataset *dataset = load(&config);
    const struct tt_detect_report *report = tt_detect_dataset_report(dataset);
    assert_int_equal(tt_detect_dataset_count(dataset), 2);
    assert_int_equal(tt_detect_dataset_class_count(dataset), 3);
    assert_null(tt_detect_dataset_class(dataset, 0)->name);
    assert_string_equal(tt_detect_dataset_class(dataset, 1)->name, "Cat, \"big\"");
    assert_string_equal(tt_detect_dataset_class(dataset, 2)->key, "/m/2");
    const struct tt_detect_record *a = tt_detect_dataset_record(dataset, 0);
    const struct tt_detect_record *b = tt_detect_dataset_record(dataset, 1);
    assert_string_equal(a->name, "a");
    assert_string_equal(b->name, "b");
    assert_true(a->id == 1 && b->id == 2 && b->file.height == 20 && b->file.width == 40 && b->box_count == 2);
    const struct tt_detect_box *boxes = tt_detect_dataset_boxes(dataset, 1);
    assert_true(boxes[0].x == 10 && boxes[0].y == 10 && boxes[0].w == 20 && boxes[0].h == 10);
    assert_true(boxes[0].label == 2 && !boxes[0].crowd && boxes[0].area == 200 && boxes[1].crowd);
    /* c has a box of half a pixel only; a's box of an unknown class and its empty one are gone. */
    assert_int_equal(a->box_count, 1);
    assert_int_equal(report->images_empty, 1);
    assert_int_equal(report->boxes_empty, 1);
    assert_int_equal(report->boxes_unknown, 1);
    assert_string_equal(report->first_unknown, "/m/9");
    assert_true(report->images_absent == 1 && report->rows_absent == 2);
    assert_string_equal(report->first_absent, "zz");
    struct tt_detect_dataset_config other = config_of(TT_DETECT_VALIDATION);
    other.classes_of = dataset;
    struct tt_detect_dataset *validation = load(&other);
    assert_int_equal(tt_detect_dataset_count(validation), 1);
    assert_int_equal(tt_detect_dataset_class_count(validation), 3);
    assert_int_equal(tt_detect_dataset_boxes(validation, 0)->label, 2);
    tt_detect_dataset_destroy(validation);
    tt_detect_dataset_destroy(dataset);
    config.max_images = 1;
    dataset = load(&config);
    assert_int_equal(tt_detect_dataset_count(dataset), 1);
    assert_int_equal(tt_detect_dataset_report(dataset)->images_over, 2);
    tt_detect_dataset_destroy(dataset);
}

/* Without a file of the validation a share of the images is it: both parts together are all, and neither overlaps. */
static void one_file(void **state)
{
    (void)state;
    if (!test_images_work()) skip();
    struct tt_str rows = {0};
    assert_int_equal(tt_str_append_text(&rows, HEAD), TT_OK);
    for (int i = 0; i < 60; i++) {
        char name[40];
        snprintf(name, sizeof name, "images/%04d.png", i * 7);
        test_put_image(name, 8, 8, (unsigned)i);
        assert_int_equal(tt_str_printf(&rows, "%04d,x,/m/%d,1,0,1,0,1,0,0,0\n", i * 7, i % 3), TT_OK);
    }
    test_put("train-annotations-bbox.csv", tt_str_text(&rows));
    tt_str_deinit(&rows);
    struct tt_detect_dataset_config config = config_of(TT_DETECT_TRAIN),
                                    other = config_of(TT_DETECT_VALIDATION);
    config.validation_share = other.validation_share = 0.25;
    struct tt_detect_dataset *train = load(&config);
    other.classes_of = train;
    struct tt_detect_dataset *validation = load(&other);
    int64_t counts[2] = {tt_detect_dataset_count(train), tt_detect_dataset_count(validation)};
    assert_int_equal(counts[0] + counts[1], 60);
    assert_true(counts[1] > 5 && counts[1] < 30);
    for (int64_t i = 0; i < counts[0]; i++)
        for (int64_t j = 0; j < counts[1]; j++)
            assert_string_not_equal(tt_detect_dataset_record(train, i)->name,
                                    tt_detect_dataset_record(validation, j)->name);
    assert_int_equal(tt_detect_dataset_class_count(train), 4); /* in the order of the file */
    tt_detect_dataset_destroy(train);
    tt_detect_dataset_destroy(validation);
}

static void fiftyone_layout(void **state)
{
    (void)state;
    if (!test_images_work()) skip();
    test_put_folder("images/train/data");
    test_put_folder("images/train/labels");
    test_put_folder("images/train/metadata");
    test_put_folder("images/validation/data");
    test_put_folder("images/validation/labels");
    test_put_image("images/train/data/a.png", 8, 8, 1);
    test_put_image("images/validation/data/b.png", 8, 8, 1);
    test_put("images/train/labels/detections.csv", HEAD "a,x,/m/2,1,0,1,0,1,0,0,0\n");
    test_put("images/validation/labels/detections.csv", HEAD "b,x,/m/2,1,0,1,0,1,0,0,0\n");
    test_put("images/train/metadata/classes.csv", "LabelName,DisplayName\n/m/1,One\n/m/2,Two\n");
    for (int split = TT_DETECT_TRAIN; split <= TT_DETECT_VALIDATION; split++) {
        struct tt_detect_dataset_config config = config_of((enum tt_detect_split)split);
        struct tt_detect_dataset *dataset = load(&config);
        assert_int_equal(tt_detect_dataset_count(dataset), 1);
        assert_string_equal(tt_detect_dataset_record(dataset, 0)->name, split == TT_DETECT_TRAIN ? "a" : "b");
        assert_int_equal(tt_detect_dataset_boxes(dataset, 0)->label, 2);
        tt_detect_dataset_destroy(dataset);
    }
}

#define COCO_HEAD                                                                                            \
    "{\"info\": {\"x\": [1, {\"}\": 2}]}, \"annotations\": ["                                                \
    "{\"id\": 7, \"image_id\": 30, \"category_id\": 18, \"bbox\": [1, 2, 3.5, 4], \"area\": 5.5, "           \
    "\"iscrowd\": 0,"                                                                                        \
    " \"segmentation\": [[1, 2, 3]]},"                                                                       \
    "{\"id\": 8, \"image_id\": 2, \"category_id\": 3, \"bbox\": [-2, 0, 6, 5], \"iscrowd\": 1}, "
#define COCO_TAIL                                                                                            \
    "{\"id\": 9, \"image_id\": 2, \"category_id\": 18, \"bbox\": [2, 1, 4, 4], \"area\": 16},"               \
    "{\"id\": 10, \"image_id\": 5, \"category_id\": 18, \"bbox\": [2, 1, 4, 4]}],"                           \
    "\"images\": [{\"id\": 30, \"file_name\": \"train/x.png\", \"height\": 9, \"width\": 8},"                \
    "{\"id\": 2, \"file_name\": \"y]\\\".png\"}, {\"id\": 5, \"file_name\": \"absent.png\"}],"               \
    "\"categories\": [{\"id\": 18, \"name\": \"dog\"}, {\"id\": 3, \"name\": \"car\"}]}"

static void coco(void **state)
{
    (void)state;
    if (!test_images_work()) skip();
    test_put_folder("images/train");
    test_put_folder("labels");
    test_put_image("images/train/x.png", 9, 8, 1);
    test_put_image("images/y]\".png", 6, 7, 1);
    test_put("labels/train.json", COCO_HEAD COCO_TAIL);
    test_put("labels/validation.json", COCO_HEAD COCO_TAIL);
    struct tt_detect_dataset_config config = config_of(TT_DETECT_TRAIN);
    struct tt_detect_dataset *dataset = load(&config);
    assert_int_equal(tt_detect_dataset_count(dataset), 2);
    assert_int_equal(tt_detect_dataset_class_count(dataset), 3);
    assert_string_equal(tt_detect_dataset_class(dataset, 1)->name, "car");
    assert_int_equal(tt_detect_dataset_class(dataset, 2)->id, 18);
    assert_int_equal(tt_detect_dataset_record(dataset, 0)->id, 2);
    assert_int_equal(tt_detect_dataset_record(dataset, 1)->id, 30);
    assert_int_equal(tt_detect_dataset_record(dataset, 1)->file.height, 9);
    assert_int_equal(tt_detect_dataset_record(dataset, 0)->file.width, 7);
    const struct tt_detect_box *boxes = tt_detect_dataset_boxes(dataset, 0);
    assert_true(boxes[0].crowd && boxes[0].id == 8 && boxes[0].x == -2 && boxes[0].area == 30 &&
                boxes[0].label == 1);
    assert_true(!boxes[1].crowd && boxes[1].label == 2 && boxes[1].area == 16);
    assert_true(tt_detect_dataset_boxes(dataset, 1)->area == 5.5);
    const struct tt_detect_report *report = tt_detect_dataset_report(dataset);
    assert_true(report->images_absent == 1 && report->rows_absent == 1);
    assert_string_equal(report->first_absent, "absent.png");
    tt_detect_dataset_destroy(dataset);
    config.labels = TT_DETECT_LABELS_RAW;
    dataset = load(&config);
    assert_int_equal(tt_detect_dataset_class_count(dataset), 19);
    assert_null(tt_detect_dataset_class(dataset, 5)->name);
    assert_int_equal(tt_detect_dataset_boxes(dataset, 1)->label, 18);
    tt_detect_dataset_destroy(dataset);
}

static void assert_refused(const struct tt_detect_dataset_config *config, const char *part, const char *hint)
{
    struct tt_detect_dataset *dataset = NULL;
    uint64_t live = tt_alloc_live();
    assert_int_not_equal(tt_detect_dataset_load(config, &dataset), TT_OK);
    const struct tt_error *error = tt_error_last();
    if (strstr(error->message, part) == NULL) fail_msg("'%s' not in '%s'", part, error->message);
    if (hint != NULL && strstr(error->hint, hint) == NULL)
        fail_msg("'%s' not in hint '%s'", hint, error->hint);
    assert_int_equal(tt_alloc_live(), live);
}

static void refused_csv(void **state)
{
    (void)state;
    static const struct {
        const char *text, *part;
    } cases[] = {
        {"", "is empty"},
        {"ImageID,LabelName,XMin,XMax,YMin\n", "has no column 'YMax'"},
        {HEAD "a,x,/m/1,1,x,1,0,1,0,0,0\n", "row 2, column 5: 'x' is no number"},
        {HEAD "a,x,/m/1,1,nan,1,0,1,0,0,0\n", "'nan' is no number"},
        {HEAD "\n\na,x,/m/1\n", "row 4, column 5: '' is no number"},
        {HEAD "a,x,/m/1,1,0,1.5,0,1,0,0,0\n", "row 2: the box 0, 0 to 1.5, 1 is not in the image"},
        {HEAD "a,x,/m/1,1,0.9,0.5,0,1,0,0,0\n", "is not in the image"},
        {HEAD "a,x,,1,0,1,0,1,0,0,0\n", "row 2 has no ImageID or no LabelName"},
        {HEAD "\"a,x,/m/1,1,0,1,0,1,0,0,0\n", "the file ends within quotes"},
        {HEAD "\"a\"b,x,/m/1,1,0,1,0,1,0,0,0\n", "text after the quotes"},
        {HEAD "b,x,/m/1,1,0,1,0,1,0,0,0\n", "no image of"},
        {HEAD "a,x,/m/1,1,0,0,0,1,0,0,0\n", "no image of"},
    };
    if (!test_images_work()) skip();
    struct tt_detect_dataset_config config = config_of(TT_DETECT_TRAIN);
    assert_refused(&config, "no annotations for",
                   "Parquet and Arrow files with images are given as dataset_name");
    test_put("train-annotations-bbox.csv", HEAD);
    assert_refused(&config, "has no images", "NAME.jpg");
    test_put_image("images/a.png", 8, 8, 1);
    config.validation_share = 0;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        test_put("train-annotations-bbox.csv", cases[i].text);
        assert_refused(&config, cases[i].part, NULL);
    }
    test_put("train-annotations-bbox.csv", HEAD "a,x,/m/1,1,0,1,0,1,0,0,0\n");
    test_put("classes.csv", "/m/1,One\n/m/1,Two\n");
    assert_refused(&config, "the class '/m/1' is there twice", NULL);
    test_put("classes.csv", "/m/2,Two\n");
    assert_refused(&config, "no image of", "the first '/m/1'");
    config.image_dir = test_at("nowhere");
    assert_refused(&config, "is not there", NULL);
}

static void refused_json(void **state)
{
    (void)state;
#define IMAGES "\"images\": [{\"id\": 1, \"file_name\": \"a.png\"}]"
#define CATEGORIES "\"categories\": [{\"id\": 1, \"name\": \"cat\"}]"
    static const struct {
        const char *text, *part;
    } cases[] = {
        {"{", "labels"},
        {"[]", "has no list 'categories'"},
        {"{" CATEGORIES ", \"annotations\": []}", "has no list 'images'"},
        {"{" IMAGES ", " CATEGORIES ", \"annotations\": [1]}", "element 0 of 'annotations' is no object"},
        {"{" IMAGES ", " CATEGORIES ", \"annotations\": [{\"id\": 1, \"image_id\": 1, \"category_id\": 1}]}",
         "bbox"},
        {"{" IMAGES ", " CATEGORIES
         ", \"annotations\": [{\"image_id\": 1, \"category_id\": 1, \"bbox\": [1, 2, 3]}]}",
         "annotations 0: 'bbox' must be four numbers"},
        {"{" IMAGES ", " CATEGORIES
         ", \"annotations\": [{\"image_id\": 4, \"category_id\": 1, \"bbox\": [1, 2, 3, 4]}]}",
         "is of image 4, which the file does not list"},
        {"{" CATEGORIES ", \"annotations\": [], \"images\": [{\"id\": 1, \"file_name\": \"a.png\"}, "
         "{\"id\": 1, \"file_name\": \"b.png\"}]}",
         "two images have the id 1"},
        {"{" CATEGORIES ", \"annotations\": [{\"image_id\": 1, \"category_id\": 1, \"bbox\": [1, 1, 3, 3]}], "
         "\"images\": [{\"id\": 1, \"file_name\": \"../images/a.png\"}]}",
         "no image of"},
        {"{" IMAGES ", \"annotations\": [], \"categories\": [{\"id\": 0, \"name\": \"none\"}, {\"id\": 0, "
         "\"name\": \"x\"}]}",
         "two categories have the id 0"},
    };
    if (!test_images_work()) skip();
    struct tt_detect_dataset_config config = config_of(TT_DETECT_TRAIN);
    test_put_image("images/a.png", 8, 8, 1);
    test_put_folder("labels");
    config.validation_share = 0;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        test_put("labels/train.json", cases[i].text);
        assert_refused(&config, cases[i].part, NULL);
    }
    test_put("labels/train.json",
             "{" IMAGES ", \"annotations\": [], \"categories\": [{\"id\": 0, \"name\": \"none\"}]}");
    config.labels = TT_DETECT_LABELS_RAW;
    assert_refused(&config, "class 'none' has the number 0", NULL);
}

static void corrupt_images(void **state)
{
    (void)state;
    if (!test_images_work()) skip();
    put_open_images();
    test_put("images/a.png", "\x89PNG\r\n\x1a\nnothing");
    struct tt_detect_dataset_config config = config_of(TT_DETECT_TRAIN);
    assert_refused(&config, "a.png' is damaged", NULL);
    struct tt_pixel_cache *cache = NULL;
    assert_int_equal(tt_pixel_cache_open(test_at("cache"), 1 << 20, &cache), TT_OK);
    config.skip_corrupt = true;
    config.cache = cache;
    struct tt_detect_dataset *dataset = load(&config);
    assert_int_equal(tt_detect_dataset_count(dataset), 1);
    assert_int_equal(tt_detect_dataset_report(dataset)->images_corrupt, 1);
    assert_non_null(strstr(tt_detect_dataset_report(dataset)->first_corrupt, "a.png"));
    assert_int_equal(tt_pixel_cache_counts(cache).misses, 3); /* a, b and c are decoded */
    tt_detect_dataset_destroy(dataset);
    tt_pixel_cache_close(cache);
    /* Annotations that state another size. */
    test_put_folder("labels");
    test_put("labels/train.json",
             "{" CATEGORIES ", \"annotations\": [{\"image_id\": 1, \"category_id\": 1, \"bbox\": [1, 1, "
             "3, 3]}], \"images\": [{\"id\": 1, \"file_name\": \"b.png\", \"height\": 21, \"width\": 40}]}");
    struct tt_detect_dataset_config other = config_of(TT_DETECT_TRAIN);
    other.annotations = test_at("labels/train.json");
    other.skip_corrupt = true;
    assert_refused(&other, "no image of", "has 40 x 20 pixels, the annotations say 40 x 21");
}

/* Annotations of the picture that a viewer shows: their sides are those of the file exchanged. */
static void turned_by_exif(void **state)
{
    struct tt_str file = {0};
    (void)state;
    if (!test_images_work()) skip();
    assert_int_equal(tt_file_read(TT_TEST_ROOT "/golden/images/rotated.jpg", 1 << 20, &file), TT_OK);
    assert_int_equal(tt_file_write_atomic(test_at("images/a.jpg"), file.data, file.bytes), TT_OK);
    tt_str_deinit(&file);
    test_put_image("images/b.png", 20, 40, 1);
    test_put_folder("labels");
    struct tt_detect_dataset_config config = config_of(TT_DETECT_TRAIN);
    config.skip_corrupt = true; /* so that all of an image is read here, not by the loader */
    const struct {
        const char *image, *message, *hint;
    } cases[] = {
        {"\"a.jpg\", \"height\": 29, \"width\": 37", "no image of",
         "has 29 x 37 pixels, the annotations say 37 x 29: viewers turn it by its Exif orientation, 6"},
        {"\"b.png\", \"height\": 40, \"width\": 20", "no image of",
         "has 40 x 20 pixels, the annotations say 20 x 40"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[400];
        snprintf(text, sizeof text,
                 "{" CATEGORIES ", \"annotations\": [{\"image_id\": 1, \"category_id\": 1, \"bbox\": [1, 1, "
                 "3, 3]}], \"images\": [{\"id\": 1, \"file_name\": %s}]}",
                 cases[i].image);
        test_put("labels/train.json", text);
        config.annotations = test_at("labels/train.json");
        assert_refused(&config, cases[i].message, cases[i].hint);
    }
    /* The size from the list of the cache, as the loader has it from the file. */
    const struct tt_image_file rotated = {
        .path = TT_TEST_ROOT "/golden/images/rotated.jpg", .height = 29, .width = 37};
    assert_int_equal(tt_image_files_fail_size(&rotated, 37, 29, "the data set says"), TT_ERR_DATA);
    assert_non_null(strstr(tt_error_last()->message, "37 x 29: viewers turn it by its Exif orientation, 6"));
    const struct tt_image_file other = {.path = test_at("images/b.png"), .height = 40, .width = 20};
    assert_int_equal(tt_image_files_fail_size(&other, 20, 40, "the data set says"), TT_ERR_DATA);
    assert_null(strstr(tt_error_last()->message, "Exif"));
}

/* COCO's images without an annotation train as background if asked; one that lost its box does not. */
static void images_without_boxes(void **state)
{
    (void)state;
    if (!test_images_work()) skip();
    for (char name[] = "images/a.png"; name[7] <= 'e'; name[7]++) test_put_image(name, 20, 40, 1);
    test_put_folder("labels");
    test_put(
        "labels/train.json",
        "{" CATEGORIES ", \"images\": [{\"id\": 1, \"file_name\": \"a.png\"}, {\"id\": 2, \"file_name\": "
        "\"b.png\"}, {\"id\": 3, \"file_name\": \"c.png\"}, {\"id\": 4, \"file_name\": \"d.png\"}, "
        "{\"id\": 5, \"file_name\": \"e.png\"}], \"annotations\": [{\"image_id\": 1, \"category_id\": 1, "
        "\"bbox\": [1, 1, 3, 3]}, {\"image_id\": 1, \"category_id\": 1, \"bbox\": [5, 5, 0, 3]}, "
        "{\"image_id\": 3, \"category_id\": 1, \"bbox\": [5, 5, 3, 0]}, {\"image_id\": 4, \"category_id\": "
        "1, "
        "\"bbox\": [50, 5, 3, 3]}, {\"image_id\": 5, \"category_id\": 1, \"bbox\": [1, 1, 9, 9], "
        "\"iscrowd\": "
        "1}]}");
    struct tt_detect_dataset_config config = config_of(TT_DETECT_TRAIN);
    char path[300];
    snprintf(path, sizeof path, "%s", test_at("labels/train.json"));
    config.annotations = path;
    config.validation_share = 0;
    for (int keep = 0; keep < 2; keep++) {
        config.keep_empty = keep == 1;
        struct tt_detect_dataset *dataset = load(&config);
        const struct tt_detect_report *report = tt_detect_dataset_report(dataset);
        assert_int_equal(tt_detect_dataset_count(dataset), 1 + keep);
        assert_true(report->images_empty == 4 - keep && report->images_background == keep);
        assert_true(report->boxes_empty == 2 && report->boxes_outside == 1);
        if (keep) assert_string_equal(tt_detect_dataset_record(dataset, 1)->name, "b.png");
        if (keep) assert_int_equal(tt_detect_dataset_record(dataset, 1)->box_count, 0);
        tt_detect_dataset_destroy(dataset);
    }
}

/* The hint says what all boxes have in common. */
static void nothing_to_train_on(void **state)
{
    static const struct {
        const char *box, *hint;
    } cases[] = {{"5, 5, 0, 3", "1 boxes have no width or height: bbox_format"},
                 {"50, 5, 3, 3", "1 boxes are outside their image: bbox_format"},
                 {"5, 5, 1, 3", "no box of 1 training images is larger than a pixel"}};
    (void)state;
    if (!test_images_work()) skip();
    test_put_image("images/a.png", 20, 40, 1);
    test_put_folder("labels");
    struct tt_detect_dataset_config config = config_of(TT_DETECT_TRAIN);
    char path[300];
    snprintf(path, sizeof path, "%s", test_at("labels/train.json"));
    config.annotations = path;
    config.validation_share = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[300];
        snprintf(text, sizeof text,
                 "{" CATEGORIES ", " IMAGES
                 ", \"annotations\": [{\"image_id\": 1, \"category_id\": 1, \"bbox\": [%s]}]}",
                 cases[i].box);
        test_put("labels/train.json", text);
        assert_refused(&config, "has annotations that can be used", cases[i].hint);
    }
}

/* The second run takes the sizes from the list, while file size and time are the same. */
static void kept_sizes(void **state)
{
    (void)state;
    if (!test_images_work()) skip();
    put_open_images();
    struct tt_detect_dataset_config config = config_of(TT_DETECT_TRAIN);
    char folder[300];
    snprintf(folder, sizeof folder, "%s", test_at("cache"));
    config.cache_dir = folder;
    tt_detect_dataset_destroy(load(&config));
    struct tt_str list = {0};
    assert_int_equal(tt_file_read(test_at("cache/image-sizes"), 1 << 16, &list), TT_OK);
    char *size = strstr(list.data, " 20 40 ");
    assert_non_null(size);
    memcpy(size, " 40 80 ", 7);
    test_put("cache/image-sizes", list.data);
    struct tt_detect_dataset *dataset = load(&config);
    assert_int_equal(tt_detect_dataset_record(dataset, 1)->file.height, 40);
    tt_detect_dataset_destroy(dataset);
    test_put_image("images/b.png", 22, 44, 9); /* another file */
    dataset = load(&config);
    assert_int_equal(tt_detect_dataset_record(dataset, 1)->file.height, 22);
    tt_detect_dataset_destroy(dataset);
    test_put("cache/image-sizes",
             "trimtab image sizes 2\nx\n1 2 3\n1 2 3 4 x\n-1 2 3 4 1 x\n99999999999999999999 1 1 1 1 x\n");
    dataset = load(&config);
    assert_int_equal(tt_detect_dataset_record(dataset, 1)->file.height, 22);
    tt_detect_dataset_destroy(dataset);
    tt_str_deinit(&list);
}

static tt_status attempt(void *context)
{
    struct tt_detect_dataset *dataset = NULL;
    TT_TRY(tt_detect_dataset_load(context, &dataset));
    tt_detect_dataset_destroy(dataset);
    return TT_OK;
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    if (!test_images_work()) skip();
    put_open_images();
    struct tt_detect_dataset_config config = config_of(TT_DETECT_TRAIN);
    config.threads = 1;
    assert_true(test_allocations_fail(attempt, &config) > 20);
    test_put_folder("images/train");
    test_put_folder("labels");
    test_put_image("images/train/x.png", 9, 8, 1);
    test_put("labels/train.json", COCO_HEAD COCO_TAIL);
    char path[300];
    snprintf(path, sizeof path, "%s", test_at("labels/train.json"));
    config.annotations = path;
    assert_true(test_allocations_fail(attempt, &config) > 20);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, fresh, test_root_remove)
    const struct CMUnitTest tests[] = {TEST(open_images),         TEST(one_file),
                                       TEST(fiftyone_layout),     TEST(coco),
                                       TEST(refused_csv),         TEST(refused_json),
                                       TEST(turned_by_exif),      TEST(images_without_boxes),
                                       TEST(nothing_to_train_on), TEST(corrupt_images),
                                       TEST(kept_sizes),          TEST(every_allocation_may_fail)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
