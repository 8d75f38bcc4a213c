/* detect/dataset.h: images with boxes in Parquet and Arrow files (tests/golden/detect/make_tables.py): the same as in
 * files, what is left out, what is refused, and damage. */
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "detect/dataset.h"
#include "vision/pixel_cache.h"
#include "support/allocations.h"
#include "support/detect_images.h"

#define TABLES TT_TEST_ROOT "/golden/detect/tables/"

static int fresh(void **state)
{
    return test_root_create(state);
}

static struct tt_detect_dataset_config of_tables(const char *const *paths, size_t count)
{
    return (struct tt_detect_dataset_config){.tables = paths,
                                             .table_count = count,
                                             .tables_of_split = true,
                                             .split = TT_DETECT_TRAIN,
                                             .train = true,
                                             .threads = 2};
}

static struct tt_detect_dataset *load(const struct tt_detect_dataset_config *config)
{
    struct tt_detect_dataset *dataset = NULL;
    if (tt_detect_dataset_load(config, &dataset) != TT_OK) fail_msg("%s", tt_error_last()->message);
    return dataset;
}

static void refuse(const struct tt_detect_dataset_config *config, tt_status wanted, const char *words)
{
    struct tt_detect_dataset *dataset = NULL;
    tt_status status = tt_detect_dataset_load(config, &dataset);
    if (status != wanted || strstr(tt_error_last()->message, words) == NULL)
        fail_msg("'%s': %d, %s", words, status, tt_error_last()->message);
}

static struct tt_image read_pixels(const struct tt_detect_dataset *dataset, int64_t index)
{
    struct tt_image image = {0};
    assert_int_equal(tt_pixel_cache_read(NULL, &tt_detect_dataset_record(dataset, index)->file, 0, &image),
                     TT_OK);
    return image;
}

static void expect_same(const struct tt_detect_dataset *wanted, const struct tt_detect_dataset *got)
{
    assert_int_equal(tt_detect_dataset_count(got), tt_detect_dataset_count(wanted));
    assert_int_equal(tt_detect_dataset_class_count(got), tt_detect_dataset_class_count(wanted));
    for (int64_t label = 1; label < tt_detect_dataset_class_count(wanted); label++)
        assert_int_equal(tt_detect_dataset_class(got, label)->id, tt_detect_dataset_class(wanted, label)->id);
    for (int64_t i = 0; i < tt_detect_dataset_count(wanted); i++) {
        const struct tt_detect_record *a = tt_detect_dataset_record(wanted, i),
                                      *b = tt_detect_dataset_record(got, i);
        assert_true(a->id == b->id && a->file.height == b->file.height && a->file.width == b->file.width);
        assert_string_equal(a->name, b->name);
        assert_int_equal(a->file.bytes, b->file.bytes);
        assert_int_equal(a->box_count, b->box_count);
        const struct tt_detect_box *x = tt_detect_dataset_boxes(wanted, i),
                                   *y = tt_detect_dataset_boxes(got, i);
        for (int64_t j = 0; j < a->box_count; j++) {
            assert_true(x[j].x == y[j].x && x[j].y == y[j].y && x[j].w == y[j].w && x[j].h == y[j].h);
            assert_true(x[j].label == y[j].label && x[j].area == y[j].area && x[j].id == y[j].id);
        }
        struct tt_image first = read_pixels(wanted, i), second = read_pixels(got, i);
        assert_memory_equal(first.rgb, second.rgb, (size_t)a->file.height * (size_t)a->file.width * 3);
        tt_image_deinit(&first);
        tt_image_deinit(&second);
    }
}

static void every_writer_gives_the_same(void **state)
{
    (void)state;
    if (!test_images_work()) skip();
    static const char *const tables[] = {TABLES "train-columns.parquet", TABLES "train-list.parquet",
                                         TABLES "saved/train/data-00000-of-00001.arrow",
                                         TABLES "train-packed.parquet", TABLES "train-plain.arrow"};
    const struct tt_detect_dataset_config files = {.image_dir = TABLES "files",
                                                   .annotations = TABLES "files/train.json",
                                                   .split = TT_DETECT_TRAIN,
                                                   .train = true,
                                                   .threads = 1};
    struct tt_detect_dataset *wanted = load(&files);
    assert_int_equal(tt_detect_dataset_count(wanted), 6);
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        struct tt_detect_dataset_config config = of_tables(&tables[i], 1);
        config.box_format = strstr(tables[i], "packed") != NULL ? TT_BOX_XYXY : TT_BOX_XYWH;
        struct tt_detect_dataset *got = load(&config);
        if (strstr(tables[i], "plain") == NULL) {
            expect_same(wanted, got);
            const char *name = strstr(tables[i], "packed") != NULL ? "2" : "disc";
            assert_string_equal(tt_detect_dataset_class(got, 3)->name, name);
        } else { /* texts have no ids */
            assert_string_equal(tt_detect_dataset_class(got, 1)->key, "bar");
            assert_int_equal(tt_detect_dataset_boxes(got, 1)->label,
                             tt_detect_dataset_boxes(wanted, 1)->label);
        }
        const char *row = strrchr(tt_detect_dataset_record(got, 2)->file.path, '#');
        assert_non_null(row);
        assert_string_equal(row, "#3");
        tt_detect_dataset_destroy(got);
    }
    tt_detect_dataset_destroy(wanted);
}

static void formats(void **state)
{
    (void)state;
    if (!test_images_work()) skip();
    const char *const path = TABLES "train-columns.parquet";
    struct tt_detect_dataset_config config = of_tables(&path, 1);
    struct tt_detect_dataset *as[3];
    for (int i = 0; i < 3; i++) {
        config.box_format = (enum tt_box_format)i;
        as[i] = load(&config);
    }
    struct tt_detect_box box = tt_detect_dataset_boxes(as[TT_BOX_XYWH], 0)[0];
    struct tt_detect_box centred = tt_detect_dataset_boxes(as[TT_BOX_CXCYWH], 0)[0];
    assert_true(centred.x == box.x - box.w / 2 && centred.y == box.y - box.h / 2 && centred.w == box.w);
    /* Corners that are no corners: boxes without an area are left out, and counted. */
    int64_t kept = tt_detect_dataset_report(as[TT_BOX_XYXY])->boxes,
            empty = tt_detect_dataset_report(as[TT_BOX_XYXY])->boxes_empty;
    assert_true(empty > 0 && kept + empty <= 9);
    for (int i = 0; i < 3; i++) tt_detect_dataset_destroy(as[i]);
}

/* Which rows of named.parquet have an image: `rows`, of which the first has the id 0. */
static void expect_named(const char *table, const char *image_dir, const char *rows, const char *first_absent)
{
    struct tt_detect_dataset_config config = of_tables(&table, 1);
    config.image_dir = image_dir;
    struct tt_detect_dataset *got = load(&config);
    assert_int_equal(tt_detect_dataset_count(got), strlen(rows));
    for (int64_t i = 0; i < tt_detect_dataset_count(got); i++) {
        struct tt_image image = read_pixels(got, i);
        assert_int_equal(tt_detect_dataset_record(got, i)->id, rows[i] - '0');
        assert_true(image.height > 0);
        tt_image_deinit(&image);
    }
    const struct tt_detect_report *report = tt_detect_dataset_report(got);
    assert_int_equal(report->images_absent, 10 - (int64_t)strlen(rows));
    assert_string_equal(report->first_absent, first_absent);
    tt_detect_dataset_destroy(got);
}

/* A copy of named.parquet whose absolute path is that of `folder`, with parts that change nothing. */
static void place_table(const char *folder, const char *copy)
{
    enum { PLACE = sizeof "/absolute" - 1 + 190 };
    static char bytes[1 << 16];
    FILE *file = fopen(TABLES "named.parquet", "rb");
    assert_non_null(file);
    size_t count = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    assert_true(count > 0 && count < sizeof bytes);
    size_t length = strlen(folder), replaced = 0;
    assert_true(length < PLACE);
    for (size_t at = 0; at + PLACE < count; at++) {
        if (memcmp(bytes + at, "/absolute-----", 14) != 0) continue;
        memset(bytes + at, '/', PLACE);
        memcpy(bytes + at, folder, length);
        replaced++;
    }
    assert_int_equal(replaced, 1);
    file = fopen(copy, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, count, file), count);
    assert_int_equal(fclose(file), 0);
}

/* The path of an image without bytes is looked for below image_dir, or else the folder of the table. */
static void images_by_name(void **state)
{
    (void)state;
    char table[600], whole[PATH_MAX];
    if (!test_images_work()) skip();
    expect_named(TABLES "named.parquet", NULL, "01", "../tables/files/p2.jpg");
    expect_named(TABLES "named.parquet", TABLES, "01", "../tables/files/p2.jpg");
    (void)snprintf(table, sizeof table, "%s", test_at("named.parquet"));
    assert_int_equal(symlink(TABLES "files", test_at("files")), 0);
    assert_non_null(realpath(test_at("."), whole));
    place_table(whole, table);
    expect_named(table, NULL, "016", "../tables/files/p2.jpg"); /* absolute, in the folder */
    expect_named(table, whole, "016", "../tables/files/p2.jpg");
    expect_named(table, TABLES, "01", "../tables/files/p2.jpg"); /* it is not in this one */
    const char *const tables[] = {table};
    struct tt_detect_dataset_config config = of_tables(tables, 1);
    config.image_dir = TABLES "saved";
    refuse(&config, TT_ERR_DATA, "");
}

/* Two files are one data set: ids that are there twice are replaced by the numbers of the rows. */
static void several_files(void **state)
{
    (void)state;
    if (!test_images_work()) skip();
    const char *const paths[] = {TABLES "train-columns.parquet", TABLES "validation-columns.parquet",
                                 TABLES "train-columns.parquet"};
    struct tt_detect_dataset_config config = of_tables(paths, 2);
    struct tt_detect_dataset *two = load(&config);
    assert_int_equal(tt_detect_dataset_count(two), 9);
    assert_int_equal(tt_detect_dataset_record(two, 8)->id, 108);
    tt_detect_dataset_destroy(two);
    config.table_count = 3;
    struct tt_detect_dataset *three = load(&config);
    assert_int_equal(tt_detect_dataset_count(three), 15);
    for (int64_t i = 0; i < 15; i++) assert_int_equal(tt_detect_dataset_record(three, i)->id, i + 1);
    tt_detect_dataset_destroy(three);
    /* Parts by a sum of file and row: together they are all rows. */
    config.tables_of_split = false;
    config.validation_share = 0.4;
    struct tt_detect_dataset *train = load(&config);
    config.split = TT_DETECT_VALIDATION;
    config.train = false;
    config.classes_of = train;
    struct tt_detect_dataset *validation = load(&config);
    int64_t held_out = tt_detect_dataset_count(validation);
    assert_int_equal(tt_detect_dataset_count(train) + held_out, 15);
    assert_true(held_out > 0 && held_out < 15);
    tt_detect_dataset_destroy(validation);
    tt_detect_dataset_destroy(train);
}

static void odd_rows(void **state)
{
    (void)state;
    if (!test_images_work()) skip();
    const char *const path = TABLES "odd.parquet";
    struct tt_detect_dataset_config config = of_tables(&path, 1);
    refuse(&config, TT_ERR_DATA, "odd.parquet#4");
    config.skip_corrupt = true;
    config.train = false;
    struct tt_detect_dataset *dataset = load(&config);
    const struct tt_detect_report *report = tt_detect_dataset_report(dataset);
    assert_int_equal(tt_detect_dataset_count(dataset), 4);
    assert_true(report->images_absent == 2 && report->rows_absent == 3 && report->images_corrupt == 1);
    assert_non_null(strstr(report->first_corrupt, "odd.parquet#4"));
    assert_true(report->boxes_outside == 1 && report->boxes_empty == 0 && report->boxes_unknown == 1);
    assert_string_equal(report->first_unknown, "3");
    assert_int_equal(tt_detect_dataset_record(dataset, 1)->box_count, 0);
    assert_true(tt_detect_dataset_boxes(dataset, 3)[0].crowd);
    tt_detect_dataset_destroy(dataset);
    /* Its row without boxes trains if asked, the one whose only box is outside does not. */
    config.train = true;
    dataset = load(&config);
    int64_t with_boxes = tt_detect_dataset_count(dataset);
    tt_detect_dataset_destroy(dataset);
    config.keep_empty = true;
    dataset = load(&config);
    assert_int_equal(tt_detect_dataset_count(dataset), with_boxes + 1);
    assert_int_equal(tt_detect_dataset_report(dataset)->images_background, 1);
    tt_detect_dataset_destroy(dataset);
}

/* Classes of the weights, by key or by name; a table's others are left out. */
static void classes_of_the_weights(void **state)
{
    (void)state;
    if (!test_images_work()) skip();
    static char list[300];
    test_put("classes.csv", "/m/1,disc\nbar,bar\n");
    snprintf(list, sizeof list, "%s", test_at("classes.csv"));
    const char *const path = TABLES "train-columns.parquet";
    struct tt_detect_dataset_config config = of_tables(&path, 1);
    config.train = false;
    config.classes = list;
    struct tt_detect_dataset *dataset = load(&config);
    const struct tt_detect_report *report = tt_detect_dataset_report(dataset);
    assert_int_equal(tt_detect_dataset_class_count(dataset), 3);
    assert_string_equal(tt_detect_dataset_class(dataset, 1)->name, "disc");
    assert_true(report->boxes_unknown > 0 && report->boxes + report->boxes_unknown == 9);
    assert_string_equal(report->first_unknown, "1");
    tt_detect_dataset_destroy(dataset);
}

/* A copy that is cut, or has a byte changed, is read or refused; pixels of what is read stay within the file. */
static void damage(void **state)
{
    (void)state;
    if (!test_images_work()) skip();
    static const char *const names[] = {"train-list.parquet", "train-packed.parquet", "train-plain.arrow"};
    static char copy[300];
    snprintf(copy, sizeof copy, "%s", test_at("x.parquet"));
    const char *const path = copy;
    struct tt_detect_dataset_config config = of_tables(&path, 1);
    config.skip_corrupt = true;
    int64_t read = 0, refused = 0;
    for (size_t n = 0; n < sizeof names / sizeof *names; n++) {
        char from[300];
        struct tt_str file = {0};
        snprintf(from, sizeof from, "%s%s", TABLES, names[n]);
        assert_int_equal(tt_file_read(from, 1 << 20, &file), TT_OK);
        for (size_t at = 0; at < file.bytes; at += 97) {
            struct tt_detect_dataset *dataset = NULL;
            size_t bytes = at % 3 == 0 ? at : file.bytes;
            FILE *out = fopen(copy, "wb");
            assert_non_null(out);
            file.data[at] = (char)~file.data[at];
            fwrite(file.data, 1, bytes, out);
            fclose(out);
            file.data[at] = (char)~file.data[at];
            tt_status status = tt_detect_dataset_load(&config, &dataset);
            if (status != TT_OK && status != TT_ERR_DATA && status != TT_ERR_UNSUPPORTED)
                fail_msg("%s, byte %zu: %s", names[n], at, tt_error_last()->message);
            read += status == TT_OK;
            refused += status != TT_OK;
            tt_detect_dataset_destroy(dataset);
        }
        tt_str_deinit(&file);
    }
    assert_true(read > 5 && refused > 50);
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
    const char *const paths[] = {TABLES "train-columns.parquet",
                                 TABLES "saved/train/data-00000-of-00001.arrow"};
    struct tt_detect_dataset_config config = of_tables(paths, 2);
    config.threads = 1;
    assert_true(test_allocations_fail(attempt, &config) > 50);
    const char *const packed = TABLES "train-packed.parquet";
    config.tables = &packed;
    config.table_count = 1;
    assert_true(test_allocations_fail(attempt, &config) > 50);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_writer_gives_the_same, fresh, test_root_remove),
        cmocka_unit_test_setup_teardown(formats, fresh, test_root_remove),
        cmocka_unit_test_setup_teardown(several_files, fresh, test_root_remove),
        cmocka_unit_test_setup_teardown(images_by_name, fresh, test_root_remove),
        cmocka_unit_test_setup_teardown(odd_rows, fresh, test_root_remove),
        cmocka_unit_test_setup_teardown(classes_of_the_weights, fresh, test_root_remove),
        cmocka_unit_test_setup_teardown(damage, fresh, test_root_remove),
        cmocka_unit_test_setup_teardown(every_allocation_may_fail, fresh, test_root_remove),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
