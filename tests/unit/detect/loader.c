/* detect/order.h, detect/loader.h and vision/pixel_cache.h: the same batches for any number of threads, the same global
 * steps for any split over ranks, resuming, boxes that follow their image, corrupt files. */
#include <dirent.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/crc64.h"
#include "detect/loader.h"
#include "image/resize.h"
#include "support/allocations.h"
#include "support/detect_images.h"

enum { IMAGES = 23 };

static struct tt_detect_dataset *dataset;

/* Portraits, landscapes and squares, each with as many boxes as its number has ones in binary, plus one. */
static int make_dataset(void **state)
{
    if (test_root_create(state) != 0) return -1;
    if (!test_images_work()) return 0;
    struct tt_str rows = {0};
    test_put_folder("images");
    if (tt_str_append_text(&rows, "ImageID,LabelName,XMin,XMax,YMin,YMax,IsGroupOf\n") != TT_OK) return -1;
    for (int i = 0; i < IMAGES; i++) {
        static const int32_t shapes[][2] = {{30, 60}, {60, 30}, {40, 44}, {50, 50}};
        char name[40];
        snprintf(name, sizeof name, "images/%02d.png", i);
        test_put_image(name, shapes[i * 7 % 4][0] + i % 3, shapes[i * 7 % 4][1], (unsigned)i);
        for (int b = 0; b <= __builtin_popcount((unsigned)i); b++)
            if (tt_str_printf(&rows, "%02d,/m/%d,0.25,0.5,0.125,0.%d,0\n", i, b, 25 + b) != TT_OK) return -1;
        if (tt_str_printf(&rows, "%02d,/m/0,0,1,0,1,1\n", i) != TT_OK) return -1;
    }
    test_put("train-annotations-bbox.csv", tt_str_text(&rows));
    tt_str_deinit(&rows);
    char folder[300];
    snprintf(folder, sizeof folder, "%s", test_at("images"));
    const struct tt_detect_dataset_config config = {.image_dir = folder, .train = true};
    return tt_detect_dataset_load(&config, &dataset) == TT_OK ? 0 : -1;
}

static int free_dataset(void **state)
{
    tt_detect_dataset_destroy(dataset);
    return test_root_remove(state);
}

static struct tt_detect_loader_config config_of(int64_t batch_size, int world_size, int64_t accumulation)
{
    return (struct tt_detect_loader_config){
        .dataset = dataset,
        .order = {.view = {.min_size_count = 3, .min_sizes = {32, 40, 48}, .max_size = 80, .flip = 0.5},
                  .batch_size = batch_size,
                  .world_size = world_size,
                  .accumulation = accumulation,
                  .seed = 42,
                  .train = true,
                  .group_by_aspect = true},
        .workers = 1,
        .ahead = 2,
        .pixel_dtype = TT_F32};
}

/* The sum of everything in a batch. */
static uint64_t sum_of(const struct tt_detect_batch *batch)
{
    uint64_t sum = tt_crc64(0, &batch->epoch, sizeof batch->epoch);
    size_t pixels = (size_t)(batch->image_count * batch->height * batch->width) * TT_DETECT_CHANNELS;
    sum = tt_crc64(sum, &batch->step, sizeof batch->step);
    sum = tt_crc64(sum, batch->pixels, pixels * tt_dtype_bytes(batch->pixel_dtype));
    sum = tt_crc64(sum, batch->offsets, (size_t)(batch->image_count + 1) * sizeof *batch->offsets);
    sum = tt_crc64(sum, batch->boxes, (size_t)batch->box_count * 4 * sizeof *batch->boxes);
    for (int64_t i = 0; i < batch->image_count; i++)
        sum = tt_crc64(sum, &batch->images[i].id, sizeof(int64_t));
    return tt_crc64(sum, batch->labels, (size_t)batch->box_count * sizeof *batch->labels);
}

static struct tt_detect_loader *create(const struct tt_detect_loader_config *config, int64_t first_step)
{
    struct tt_detect_loader *loader = NULL;
    assert_int_equal(tt_detect_loader_create(config, first_step, &loader), TT_OK);
    return loader;
}

static const struct tt_detect_batch *next(struct tt_detect_loader *loader)
{
    const struct tt_detect_batch *batch = NULL;
    if (tt_detect_loader_next(loader, &batch) != TT_OK) fail_msg("%s", tt_error_last()->message);
    return batch;
}

/* 23 images in batches of 4: 6 micro steps an epoch, 3 steps of 2. */
static void same_batches(void **state)
{
    (void)state;
    if (dataset == NULL) skip();
    enum { BATCHES = 15 };
    uint64_t sums[BATCHES];
    static const int workers[] = {1, 2, 5};
    struct tt_detect_loader_config config = config_of(4, 1, 2);
    for (size_t w = 0; w < 3; w++) {
        config.workers = workers[w];
        config.ahead = workers[w];
        struct tt_detect_loader *loader = create(&config, 0);
        for (int b = 0; b < BATCHES; b++) {
            const struct tt_detect_batch *batch = next(loader);
            assert_int_equal(batch->step, b / 2);
            assert_int_equal(batch->micro, b % 2);
            assert_int_equal(batch->epoch, b / 6);
            assert_int_equal(batch->step_images, b % 6 < 4 ? 8 : 7);
            uint64_t sum = sum_of(batch);
            if (w > 0) assert_true(sum == sums[b]);
            sums[b] = sum;
        }
        tt_detect_loader_destroy(loader);
    }
    for (int b = 1; b < BATCHES; b++) assert_true(sums[b] != sums[b - 1]);
    /* From the fifth step on. */
    struct tt_detect_loader *loader = create(&config, 4);
    for (int b = 8; b < BATCHES; b++) assert_true(sum_of(next(loader)) == sums[b]);
    tt_detect_loader_destroy(loader);
    config.order.seed = 43;
    loader = create(&config, 0);
    assert_true(sum_of(next(loader)) != sums[0]);
    tt_detect_loader_destroy(loader);
}

/* Two ranks of 2, and three of which the last batch has 23 % 6 = 5 images, have the images of one rank in its order. */
static void same_steps(void **state)
{
    (void)state;
    if (dataset == NULL) skip();
    static const struct {
        int64_t batch;
        int world;
    } splits[] = {{3, 2}, {2, 3}, {1, 6}};
    struct tt_detect_loader_config whole = config_of(6, 1, 1);
    for (size_t s = 0; s < 3; s++) {
        struct tt_detect_loader_config part = config_of(splits[s].batch, splits[s].world, 1);
        struct tt_detect_loader *one = create(&whole, 0), *ranks[6];
        for (part.rank = 0; part.rank < splits[s].world; part.rank++) ranks[part.rank] = create(&part, 0);
        for (int step = 0; step < 6; step++) {
            const struct tt_detect_batch *batch = next(one);
            size_t pixels = (size_t)(batch->height * batch->width) * TT_DETECT_CHANNELS;
            int64_t at = 0, boxes = 0;
            for (int r = 0; r < splits[s].world; r++) {
                const struct tt_detect_batch *mine = next(ranks[r]);
                assert_true(mine->height == batch->height && mine->width == batch->width);
                assert_int_equal(mine->step_images, batch->step_images);
                assert_memory_equal(mine->boxes, batch->boxes + boxes * 4, (size_t)mine->box_count * 16);
                for (int64_t i = 0; i < mine->image_count; i++, at++) {
                    assert_int_equal(mine->images[i].id, batch->images[at].id);
                    assert_memory_equal((const float *)mine->pixels + (size_t)i * pixels,
                                        (const float *)batch->pixels + (size_t)at * pixels,
                                        pixels * sizeof(float));
                }
                boxes += mine->box_count;
            }
            assert_int_equal(at, batch->image_count);
            assert_int_equal(boxes, batch->box_count);
        }
        for (int r = 0; r < splits[s].world; r++) tt_detect_loader_destroy(ranks[r]);
        tt_detect_loader_destroy(one);
    }
}

/* Every image once an epoch; full micro steps have images of one group. */
static void whole_epochs(void **state)
{
    (void)state;
    if (dataset == NULL) skip();
    struct tt_detect_order_config config = config_of(2, 2, 3).order;
    int64_t before[IMAGES] = {0};
    for (int64_t epoch = 0; epoch < 3; epoch++) {
        struct tt_detect_order *order = NULL;
        int64_t seen[IMAGES] = {0}, sequence[IMAGES], count = 0, mixed = 0, micros = 0;
        assert_int_equal(tt_detect_order_create(dataset, &config, epoch, &order), TT_OK);
        assert_int_equal(tt_detect_order_steps(order), 2);
        for (int64_t step = 0; step < 2; step++) {
            struct tt_detect_step_facts facts = tt_detect_order_step(order, step);
            assert_int_equal(facts.micro_count, 3);
            for (int64_t m = 0; m < 3; m++, micros++) {
                bool portrait = false, landscape = false;
                for (int r = 0; r < 2; r++) {
                    struct tt_detect_share share = tt_detect_order_share(order, step, m, r);
                    assert_true(share.height % 32 == 0 && share.width % 32 == 0 && share.height > 0);
                    for (int64_t i = 0; i < share.count; i++) {
                        const struct tt_detect_record *record =
                            tt_detect_dataset_record(dataset, share.images[i]);
                        struct tt_detect_placement place =
                            tt_detect_place(record, share.images[i], &config, epoch);
                        assert_true(place.height <= share.height && place.width <= share.width);
                        seen[share.images[i]]++;
                        sequence[count++] = share.images[i];
                        portrait = portrait || record->file.height > record->file.width * 3 / 2;
                        landscape = landscape || record->file.width > record->file.height * 3 / 2;
                    }
                }
                mixed += portrait && landscape;
            }
        }
        assert_int_equal(count, IMAGES);
        for (int i = 0; i < IMAGES; i++) assert_int_equal(seen[i], 1);
        assert_true(mixed <= 1);
        assert_true(memcmp(before, sequence, sizeof before) != 0);
        memcpy(before, sequence, sizeof before);
        tt_detect_order_destroy(order);
    }
    /* Evaluation: by index, the last of the sizes, no flips. */
    struct tt_detect_order *order = NULL;
    config.train = false;
    assert_int_equal(tt_detect_order_create(dataset, &config, 7, &order), TT_OK);
    struct tt_detect_share share = tt_detect_order_share(order, 0, 0, 1);
    assert_true(share.count == 2 && share.images[0] == 2 && share.images[1] == 3);
    for (int64_t i = 0; i < IMAGES; i++) {
        const struct tt_detect_record *record = tt_detect_dataset_record(dataset, i);
        struct tt_detect_placement place = tt_detect_place(record, i, &config, 7);
        int32_t height, width;
        tt_image_resized_size(record->file.height, record->file.width, 48, 80, &height, &width);
        assert_true(place.height == height && place.width == width && !place.flipped);
    }
    tt_detect_order_destroy(order);
    config.batch_size = 0;
    assert_int_equal(tt_detect_order_create(dataset, &config, 7, &order), TT_ERR_INTERNAL);
}

static void draws(void **state)
{
    (void)state;
    if (dataset == NULL) skip();
    struct tt_detect_order_config config = config_of(2, 2, 3).order;
    int flips = 0, sizes[3] = {0};
    const struct tt_detect_record *record = tt_detect_dataset_record(dataset, 1);
    for (int64_t epoch = 0; epoch < 1000; epoch++) {
        struct tt_detect_placement place = tt_detect_place(record, 1, &config, epoch);
        flips += place.flipped;
        for (int s = 0; s < 3; s++) {
            int32_t height, width;
            tt_image_resized_size(record->file.height, record->file.width, config.view.min_sizes[s], 80,
                                  &height, &width);
            sizes[s] += place.height == height;
        }
    }
    assert_true(flips > 420 && flips < 580);
    for (int s = 0; s < 3; s++) assert_true(sizes[s] > 250 && sizes[s] < 420);
    struct tt_detect_limits limits;
    tt_detect_order_limits(dataset, &config, &limits);
    assert_true(limits.images == 2 && limits.height == 96 && limits.width == 96 && limits.pixels == 96 * 96);
    config.view.fixed_height = 64;
    config.view.fixed_width = 96;
    struct tt_detect_placement place = tt_detect_place(record, 1, &config, 0);
    assert_true(place.height == 64 && place.width == 96);
    tt_detect_order_limits(dataset, &config, &limits);
    assert_true(limits.height == 64 && limits.width == 96);
}

/* A flipped image has its boxes flipped, scaled like the image; padding is zero. */
static void boxes_follow(void **state)
{
    (void)state;
    if (dataset == NULL) skip();
    struct tt_detect_loader_config config = config_of(4, 1, 1);
    config.pixel_dtype = TT_BF16;
    struct tt_detect_loader *loader = create(&config, 0);
    int flipped = 0, straight = 0;
    for (int b = 0; b < 12; b++) {
        const struct tt_detect_batch *batch = next(loader);
        const uint16_t *pixels = batch->pixels;
        for (int64_t i = 0; i < batch->image_count; i++) {
            const struct tt_detect_image *image = &batch->images[i];
            const float *box = batch->boxes + batch->offsets[i] * 4;
            assert_int_equal(batch->offsets[i + 1] - batch->offsets[i],
                             1 + __builtin_popcount((unsigned)image->index)); /* without the crowd */
            float left = image->flipped ? 0.5f : 0.25f;
            assert_true(fabsf(box[0] - left * (float)image->width) < 1e-3f);
            assert_true(fabsf(box[2] - (left + 0.25f) * (float)image->width) < 1e-3f);
            assert_true(fabsf(box[3] - 0.25f * (float)image->height) < 1e-3f);
            *(image->flipped ? &flipped : &straight) += 1;
            for (int64_t y = 0; y < batch->height; y++)
                for (int64_t x = 0; x < batch->width; x++) {
                    const uint16_t *pixel = pixels + ((i * batch->height + y) * batch->width + x) * 8;
                    for (int c = 0; c < 8; c++)
                        if (c > 2 || y >= image->height || x >= image->width) assert_int_equal(pixel[c], 0);
                }
        }
    }
    assert_true(flipped > 5 && straight > 5);
    tt_detect_loader_destroy(loader);
}

/* More ranks than images in a step: some have none, and the canvas of the others. */
static void empty_shares(void **state)
{
    (void)state;
    if (dataset == NULL) skip();
    struct tt_detect_loader_config config = config_of(2, 11, 1);
    config.order.group_by_aspect = false;
    config.rank = 0;
    struct tt_detect_loader *loader = create(&config, 1); /* the 23rd image alone */
    const struct tt_detect_batch *batch = next(loader);
    assert_true(batch->image_count == 0 && batch->box_count == 0 && batch->height > 0 &&
                batch->step_images == 1);
    assert_int_equal(batch->offsets[0], 0);
    tt_detect_loader_destroy(loader);
    config.rank = 10;
    loader = create(&config, 1);
    assert_int_equal(next(loader)->image_count, 1);
    tt_detect_loader_destroy(loader);
}

static int64_t count_files(const char *folder)
{
    DIR *dir = opendir(folder);
    int64_t count = 0;
    assert_non_null(dir);
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) count += entry->d_name[0] != '.';
    closedir(dir);
    return count;
}

static void damage_files(const char *folder)
{
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        char path[600];
        if (entry->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        FILE *file = fopen(path, "r+b");
        assert_non_null(file);
        assert_int_equal(fseek(file, 100, SEEK_SET), 0);
        fputc(fgetc(file) == 7 ? 8 : 7, file);
        fclose(file);
    }
    closedir(dir);
}

static void cached_pixels(void **state)
{
    (void)state;
    if (dataset == NULL) skip();
    struct tt_detect_loader_config config = config_of(4, 1, 1);
    uint64_t sums[6];
    char folder[300];
    snprintf(folder, sizeof folder, "%s", test_at("cache/pixels"));
    for (int run = 0; run < 5; run++) {
        struct tt_pixel_cache *cache = NULL;
        /* The last run has no room for more, and keeps what there is. */
        assert_int_equal(tt_pixel_cache_open(test_at("cache"), run == 4 ? 1 : 1 << 20, &cache), TT_OK);
        config.cache = run == 0 ? NULL : cache;
        config.workers = 3;
        if (run == 3) damage_files(folder);
        struct tt_detect_loader *loader = create(&config, 0);
        for (int b = 0; b < 6; b++) {
            uint64_t sum = sum_of(next(loader));
            if (run > 0) assert_true(sum == sums[b]);
            sums[b] = sum;
        }
        tt_detect_loader_destroy(loader);
        struct tt_pixel_cache_counts counts = tt_pixel_cache_counts(cache);
        if (run == 1)
            assert_true(counts.misses == IMAGES || counts.misses > IMAGES); /* the next epoch is begun */
        if (run == 2 || run == 4) assert_int_equal(counts.misses, 0);
        if (run == 2) assert_true(counts.hits >= IMAGES);
        if (run == 3) assert_true(counts.misses >= 1);
        tt_pixel_cache_close(cache);
    }
    assert_int_equal(count_files(folder), IMAGES);
    /* A full disk: pixels are not kept, and the run goes on. */
    struct tt_pixel_cache *cache = NULL;
    assert_int_equal(tt_pixel_cache_open(test_at("full"), 1 << 20, &cache), TT_OK);
    config.cache = cache;
    config.workers = 1;
    tt_file_fail_at(2, 28, true);
    struct tt_detect_loader *loader = create(&config, 0);
    for (int b = 0; b < 6; b++) assert_true(sum_of(next(loader)) == sums[b]);
    tt_file_fail_at(0, 0, false);
    tt_detect_loader_destroy(loader);
    tt_pixel_cache_close(cache);
    assert_int_equal(count_files(test_at("full/pixels")), 0);
}

/* The error comes with the batch of the image, and not before. */
static void corrupt_image(void **state)
{
    (void)state;
    if (dataset == NULL) skip();
    struct tt_detect_loader_config config = config_of(4, 1, 1);
    config.order.train = false;
    config.workers = 2;
    struct tt_str whole = {0};
    char path[300];
    snprintf(path, sizeof path, "%s", test_at("images/09.png"));
    assert_int_equal(tt_file_read(path, 1 << 20, &whole), TT_OK);
    assert_int_equal(truncate(path, (off_t)whole.bytes - 40), 0);
    struct tt_detect_loader *loader = create(&config, 0);
    const struct tt_detect_batch *batch = NULL;
    next(loader);
    next(loader);
    assert_int_equal(tt_detect_loader_next(loader, &batch), TT_ERR_DATA);
    assert_non_null(strstr(tt_error_last()->message, "09.png"));
    assert_int_equal(next(loader)->images[0].index, 12); /* the caller may go on */
    tt_detect_loader_destroy(loader);
    test_put_image("images/09.png", 9, 9, 1);
    loader = create(&config, 2);
    assert_int_equal(tt_detect_loader_next(loader, &batch), TT_ERR_DATA);
    assert_non_null(strstr(tt_error_last()->message, "has 9 x 9 pixels, the data set says"));
    tt_detect_loader_destroy(loader);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    fwrite(whole.data, 1, whole.bytes, file);
    fclose(file);
    tt_str_deinit(&whole);
}

static tt_status attempt(void *context)
{
    (void)context;
    struct tt_detect_loader_config config = config_of(4, 1, 1);
    struct tt_detect_order *order = NULL;
    TT_TRY(tt_detect_order_create(dataset, &config.order, 0, &order));
    tt_detect_order_destroy(order);
    return TT_OK;
}

struct heap {
    int64_t blocks;
};

static void *take(void *context, size_t bytes)
{
    struct heap *heap = context;
    heap->blocks++;
    return malloc(bytes);
}

static void give(void *context, void *block)
{
    struct heap *heap = context;
    heap->blocks--;
    free(block);
}

static void memory(void **state)
{
    (void)state;
    if (dataset == NULL) skip();
    assert_true(test_allocations_fail(attempt, NULL) >= 3);
    struct heap heap = {0};
    struct tt_detect_loader_config config = config_of(4, 1, 1);
    config.allocate = take;
    config.release = give;
    config.context = &heap;
    struct tt_detect_loader *loader = create(&config, 0);
    for (int b = 0; b < 4; b++) next(loader);
    assert_true(heap.blocks >= 1 && heap.blocks <= 3);
    assert_true(tt_detect_loader_waited(loader) > 0);
    tt_detect_loader_destroy(loader);
    assert_int_equal(heap.blocks, 0);
    config.pixel_dtype = TT_U8;
    assert_int_equal(tt_detect_loader_create(&config, 0, &loader), TT_ERR_INTERNAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_batches),  cmocka_unit_test(same_steps),    cmocka_unit_test(whole_epochs),
        cmocka_unit_test(draws),         cmocka_unit_test(boxes_follow),  cmocka_unit_test(empty_shares),
        cmocka_unit_test(cached_pixels), cmocka_unit_test(corrupt_image), cmocka_unit_test(memory),
    };
    return cmocka_run_group_tests(tests, make_dataset, free_dataset);
}
