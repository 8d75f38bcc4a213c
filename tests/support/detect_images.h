/* Folders of small images with boxes, for tests of data sets and loaders. */
#ifndef TT_TESTS_SUPPORT_DETECT_IMAGES_H
#define TT_TESTS_SUPPORT_DETECT_IMAGES_H

#include <stdint.h>
#include <stdio.h>

#include "base/file.h"
#include "image/image.h"
#include "support/root.h"

/* Whether this build writes and reads PNG: tests that need images are skipped without it. */
static inline bool test_images_work(void)
{
    struct tt_image one = {0};
    struct tt_str file = {0};
    bool works = tt_image_create(1, 1, &one) == TT_OK && tt_image_encode_png(&one, &file) == TT_OK;
    tt_image_deinit(&one);
    tt_str_deinit(&file);
    return works;
}

/* ROOT/name, a PNG of this size whose pixels depend on `seed`. */
static inline void test_put_image(const char *name, int32_t height, int32_t width, unsigned seed)
{
    struct tt_image image = {0};
    struct tt_str file = {0};
    if (tt_image_create(height, width, &image) != TT_OK) return;
    for (size_t i = 0; i < (size_t)height * (size_t)width * 3; i++)
        image.rgb[i] = (uint8_t)((i * 31 + seed * 97) >> 2);
    if (tt_image_encode_png(&image, &file) == TT_OK) {
        FILE *out = fopen(test_at(name), "wb");
        if (out != NULL) {
            fwrite(file.data, 1, file.bytes, out);
            fclose(out);
        }
    }
    tt_str_deinit(&file);
    tt_image_deinit(&image);
}

static inline void test_put_folder(const char *name)
{
    (void)!tt_dir_create(test_at(name));
}

#endif
