/* vision/loader.h without boxes: the pixels of each image at its place, batches in order for any number of threads, a
 * failure that ends its own batch only. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "image/resize.h"
#include "support/detect_images.h"
#include "vision/loader.h"

enum { IMAGES = 5, CHANNELS = 4, SIDE = 24, AHEAD = 2, SLOTS = AHEAD + 1 };

static char paths[IMAGES][300];
static struct tt_image_file files[IMAGES];
static bool works;

static int make_images(void **state)
{
    if (test_root_create(state) != 0) return -1;
    works = test_images_work();
    for (int i = 0; works && i < IMAGES; i++) {
        char name[20];
        snprintf(name, sizeof name, "%d.png", i);
        test_put_image(name, 20 + i, 30 - i, (unsigned)i);
        snprintf(paths[i], sizeof paths[i], "%s", test_at(name));
        files[i] = (struct tt_image_file){.path = paths[i], .height = 20 + i, .width = 30 - i};
    }
    return 0;
}

/* Batch b has b % 3 images: b, b + 1, ... modulo IMAGES; batch `fails` is none. */
struct owner {
    int64_t opened, fails;
    struct tt_image_place places[SLOTS][2];
};

static struct tt_image_place place_of(int64_t image)
{
    return (struct tt_image_place){&files[image % IMAGES], 10 + (int32_t)(image % 7), 12, image % 2 == 0};
}

static tt_status open_batch(void *context, int slot, struct tt_image_canvas *canvas)
{
    struct owner *owner = context;
    int64_t batch = owner->opened++;
    if (batch == owner->fails) return tt_fail(TT_ERR_DATA, "batch %d is none", (int)batch);
    *canvas = (struct tt_image_canvas){
        .count = batch % 3, .height = SIDE, .width = SIDE, .places = owner->places[slot]};
    for (int64_t i = 0; i < canvas->count; i++) owner->places[slot][i] = place_of(batch + i);
    return TT_OK;
}

static struct tt_image_loader *create(struct owner *owner, int workers)
{
    struct tt_image_loader *loader = NULL;
    const struct tt_image_loader_config config = {.workers = workers,
                                                  .ahead = AHEAD,
                                                  .pixel_dtype = TT_F32,
                                                  .channels = CHANNELS,
                                                  .open = open_batch,
                                                  .owner = owner};
    assert_int_equal(tt_image_loader_slots(AHEAD), SLOTS);
    assert_int_equal(tt_image_loader_create(&config, &loader), TT_OK);
    return loader;
}

static void assert_image(const struct tt_image_place *place, const float *pixels)
{
    static float wanted[SIDE * SIDE * CHANNELS];
    struct tt_image image = {0};
    const struct tt_image_target target = {.pixels = wanted,
                                           .dtype = TT_F32,
                                           .row_stride = SIDE * CHANNELS,
                                           .channels = CHANNELS,
                                           .height = place->height,
                                           .width = place->width,
                                           .flipped = place->flipped};
    memset(wanted, 0, sizeof wanted);
    assert_int_equal(tt_image_read(place->file->path, 0, &image), TT_OK);
    assert_int_equal(tt_image_normalize_resize(image.rgb, image.height, image.width, &target), TT_OK);
    assert_memory_equal(pixels, wanted, sizeof wanted);
    tt_image_deinit(&image);
}

static void pixels_in_order(void **state)
{
    (void)state;
    if (!works) skip();
    for (int workers = 1; workers <= 4; workers += 3) {
        struct owner owner = {.fails = 7};
        struct tt_image_loader *loader = create(&owner, workers);
        for (int64_t batch = 0; batch < 12; batch++) {
            int slot = -1;
            const struct tt_image_canvas *canvas = NULL;
            tt_status status = tt_image_loader_next(loader, &slot, &canvas);
            assert_int_equal(slot, batch % SLOTS);
            assert_int_equal(status, batch == 7 ? TT_ERR_DATA : TT_OK);
            if (batch == 7) assert_string_equal(tt_error_last()->message, "batch 7 is none");
            if (batch == 7) continue;
            assert_int_equal(canvas->count, batch % 3);
            for (int64_t i = 0; i < canvas->count; i++) {
                struct tt_image_place place = place_of(batch + i);
                assert_image(&place, (const float *)canvas->pixels + i * SIDE * SIDE * CHANNELS);
            }
        }
        tt_image_loader_destroy(loader);
    }
}

/* A file of another size than the list's, and a type that pixels have not. */
static void refusals(void **state)
{
    (void)state;
    if (!works) skip();
    struct owner owner = {.fails = -1};
    files[1].width++;
    struct tt_image_loader *loader = create(&owner, 2);
    const struct tt_image_canvas *canvas = NULL;
    int slot;
    assert_int_equal(tt_image_loader_next(loader, &slot, &canvas), TT_OK);
    assert_int_equal(tt_image_loader_next(loader, &slot, &canvas), TT_ERR_DATA);
    assert_non_null(strstr(tt_error_last()->message, "1.png' has 29 x 21 pixels, the data set says 30 x 21"));
    files[1].width--;
    tt_image_loader_destroy(loader);
    const struct tt_image_loader_config config = {.pixel_dtype = TT_F16, .open = open_batch, .owner = &owner};
    assert_int_equal(tt_image_loader_create(&config, &loader), TT_ERR_INTERNAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(pixels_in_order), cmocka_unit_test(refusals)};
    return cmocka_run_group_tests(tests, make_images, test_root_remove);
}
