/* image/image.h and image/resize.h against PIL and torchvision (tests/golden/images), and damaged files. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "base/crc64.h"
#include "base/file.h"
#include "base/json.h"
#include "image/draw.h"
#include "image/resize.h"
#include "support/allocations.h"
#include "support/root.h"

#define GOLDEN TT_TEST_ROOT "/golden/images/"

static bool is_built(const char *name)
{
    struct tt_image one = {0};
    struct tt_str file = {0};
    bool png = tt_ends_with(name, ".png");
    assert_int_equal(tt_image_create(1, 1, &one), TT_OK);
    tt_status status = png ? tt_image_encode_png(&one, &file) : tt_image_encode_jpeg(&one, 90, &file);
    tt_image_deinit(&one);
    tt_str_deinit(&file);
    if (status == TT_ERR_UNSUPPORTED) print_message("skipped: %s: %s\n", name, tt_error_last()->message);
    return status != TT_ERR_UNSUPPORTED;
}

static const char *golden(const char *name)
{
    static char path[300];
    snprintf(path, sizeof path, "%s%s", GOLDEN, name);
    return path;
}

static void as_pil_reads(void **state)
{
    (void)state;
    struct tt_json json = {0};
    const char *name;
    const struct tt_json_value *facts;
    assert_int_equal(tt_json_read(GOLDEN "images.json", 1 << 20, &json), TT_OK);
    assert_int_equal(tt_json_count(json.root), 18);
    for (size_t member = 0; tt_json_next_member(json.root, &member, &name, &facts);) {
        struct tt_image image = {0};
        int32_t height, width;
        if (!is_built(name)) continue;
        if (tt_image_read(golden(name), 0, &image) != TT_OK) fail_msg("%s", tt_error_last()->message);
        assert_int_equal(tt_image_size(golden(name), 0, &height, &width), TT_OK);
        assert_int_equal(image.height, tt_json_integer(tt_json_get(facts, "height")));
        assert_int_equal(image.width, tt_json_integer(tt_json_get(facts, "width")));
        assert_true(height == image.height && width == image.width);
        char sum[20];
        snprintf(sum, sizeof sum, "%016llx",
                 (unsigned long long)tt_crc64(0, image.rgb, (size_t)height * (size_t)width * 3));
        const char *wanted = tt_json_text(tt_json_get(facts, "crc64"));
        if (strcmp(sum, wanted) != 0) fail_msg("%s: %s instead of %s", name, sum, wanted);
        tt_image_deinit(&image);
    }
    tt_json_deinit(&json);
}

static void as_torchvision_resizes(void **state)
{
    (void)state;
    struct tt_json json = {0};
    assert_int_equal(tt_json_read(GOLDEN "transform.json", 1 << 20, &json), TT_OK);
    const struct tt_json_value *sizes = tt_json_get(json.root, "sizes");
    assert_true(tt_json_count(sizes) > 200);
    for (size_t i = 0; i < tt_json_count(sizes); i++) {
        int32_t row[6], height, width;
        for (size_t j = 0; j < 6; j++) row[j] = (int32_t)tt_json_integer(tt_json_at(tt_json_at(sizes, i), j));
        tt_image_resized_size(row[0], row[1], row[2], row[3], &height, &width);
        if (height != row[4] || width != row[5])
            fail_msg("%d x %d: %d x %d instead of %d x %d", row[0], row[1], height, width, row[4], row[5]);
    }
    const struct tt_json_value *images = tt_json_get(json.root, "images");
    for (size_t i = 0; i < tt_json_count(images); i++) {
        const struct tt_json_value *wanted = tt_json_at(images, i), *values = tt_json_get(wanted, "values");
        const char *name = tt_json_text(tt_json_get(wanted, "file"));
        struct tt_image image = {0};
        int32_t height = (int32_t)tt_json_integer(tt_json_get(wanted, "height"));
        int32_t width = (int32_t)tt_json_integer(tt_json_get(wanted, "width"));
        if (!is_built(name)) continue;
        assert_int_equal(tt_image_read(golden(name), 0, &image), TT_OK);
        float *pixels = tt_calloc((size_t)height * (size_t)width * 8, sizeof *pixels);
        const struct tt_image_target target = {pixels, TT_F32, (int64_t)width * 8, 8, height, width, false};
        assert_int_equal(tt_image_normalize_resize(image.rgb, image.height, image.width, &target), TT_OK);
        for (size_t v = 0; v < tt_json_count(values); v++) {
            const struct tt_json_value *value = tt_json_at(values, v);
            int64_t y = tt_json_integer(tt_json_at(value, 0)), x = tt_json_integer(tt_json_at(value, 1));
            float got = pixels[(y * width + x) * 8 + tt_json_integer(tt_json_at(value, 2))];
            double error = fabs(got - tt_json_number(tt_json_at(value, 3)));
            if (!(error <= 2e-6))
                fail_msg("%s: pixel %lld, %lld is %g away", name, (long long)y, (long long)x, error);
        }
        for (int64_t p = 0; p < (int64_t)height * width; p++)
            for (int c = 3; c < 8; c++) assert_true(pixels[p * 8 + c] == 0);
        tt_free(pixels);
        tt_image_deinit(&image);
    }
    tt_json_deinit(&json);
}

/* A flip before resizing is the flip of a flipped image; bf16 is the rounded float. */
static void flips_and_rounds(void **state)
{
    (void)state;
    struct tt_image image = {0}, flipped = {0};
    assert_int_equal(tt_image_create(5, 7, &image), TT_OK);
    assert_int_equal(tt_image_create(5, 7, &flipped), TT_OK);
    for (size_t i = 0; i < 5 * 7 * 3; i++) image.rgb[i] = (uint8_t)(i * 37 % 256);
    for (size_t y = 0; y < 5; y++)
        for (size_t x = 0; x < 7; x++)
            memcpy(flipped.rgb + (y * 7 + x) * 3, image.rgb + (y * 7 + 6 - x) * 3, 3);
    float a[11 * 9 * 3], b[11 * 9 * 3];
    uint16_t half[11 * 9 * 3];
    struct tt_image_target target = {a, TT_F32, 9 * 3, 3, 11, 9, true};
    assert_int_equal(tt_image_normalize_resize(image.rgb, 5, 7, &target), TT_OK);
    target.flipped = false;
    target.pixels = b;
    assert_int_equal(tt_image_normalize_resize(flipped.rgb, 5, 7, &target), TT_OK);
    assert_memory_equal(a, b, sizeof a);
    target.pixels = half;
    target.dtype = TT_BF16;
    assert_int_equal(tt_image_normalize_resize(flipped.rgb, 5, 7, &target), TT_OK);
    for (size_t i = 0; i < sizeof a / sizeof a[0]; i++) assert_int_equal(half[i], tt_f32_to_bf16(a[i]));
    target.dtype = TT_F16;
    assert_int_equal(tt_image_normalize_resize(flipped.rgb, 5, 7, &target), TT_ERR_INTERNAL);
    tt_image_deinit(&image);
    tt_image_deinit(&flipped);
}

static void assert_refused(const void *data, size_t bytes, int64_t most, tt_status status, const char *part)
{
    struct tt_image image = {0};
    uint64_t live = tt_alloc_live();
    tt_status got = tt_image_decode(data, bytes, "x.img", most, &image);
    if (got != status) fail_msg("%s: status %d: %s", part, (int)got, tt_error_last()->message);
    assert_null(image.rgb);
    assert_int_equal(tt_alloc_live(), live);
    if (strstr(tt_error_last()->message, part) == NULL)
        fail_msg("'%s' not in '%s'", part, tt_error_last()->message);
}

static void damaged_files(void **state)
{
    (void)state;
    assert_refused("", 0, 0, TT_ERR_DATA, "'x.img' is neither a JPEG nor a PNG");
    assert_refused("GIF89a", 6, 0, TT_ERR_UNSUPPORTED, "is a GIF image");
    assert_refused("RIFF\4\0\0\0WEBP", 12, 0, TT_ERR_UNSUPPORTED, "is a WebP image");
    static const char *const names[] = {"420.jpg", "progressive.jpg", "cmyk.jpg", "rgb.png", "palette.png"};
    for (size_t n = 0; n < sizeof names / sizeof names[0]; n++) {
        struct tt_str file = {0};
        if (!is_built(names[n])) continue;
        assert_int_equal(tt_file_read(golden(names[n]), 1 << 20, &file), TT_OK);
        assert_refused(file.data, file.bytes, 100, TT_ERR_DATA, "more than the 100 that are allowed");
        /* Without the end of a PNG, which carries no pixels, the image is whole. */
        size_t end = tt_ends_with(names[n], ".png") ? 16 : 2;
        for (size_t bytes = 0; bytes < file.bytes - end; bytes += 7)
            assert_refused(file.data, bytes, 0, TT_ERR_DATA, "'x.img'");
        for (size_t i = 0; i < file.bytes; i += 3) {
            struct tt_image image = {0};
            char before = file.data[i];
            file.data[i] = (char)(before ^ 0x55);
            tt_status status = tt_image_decode(file.data, file.bytes, "x.img", 10000, &image);
            assert_true(status == TT_OK || status == TT_ERR_DATA);
            tt_image_deinit(&image);
            file.data[i] = before;
        }
        tt_str_deinit(&file);
    }
}

static void writes_what_it_reads(void **state)
{
    (void)state;
    struct tt_image image = {0}, again = {0};
    if (!is_built("x.png") || !is_built("x.jpg")) return;
    assert_int_equal(tt_image_read(golden("444.jpg"), 0, &image), TT_OK);
    assert_int_equal(tt_image_write(test_at("x.png"), &image), TT_OK);
    assert_int_equal(tt_image_read(test_at("x.png"), 0, &again), TT_OK);
    assert_memory_equal(image.rgb, again.rgb, 32 * 48 * 3);
    tt_image_deinit(&again);
    assert_int_equal(tt_image_write(test_at("x.jpg"), &image), TT_OK);
    assert_int_equal(tt_image_read(test_at("x.jpg"), 0, &again), TT_OK);
    int furthest = 0;
    for (int i = 0; i < 32 * 48 * 3; i++) {
        int error = abs(image.rgb[i] - again.rgb[i]);
        if (error > furthest) furthest = error;
    }
    assert_true(furthest < 100);
    tt_image_deinit(&again);
    assert_int_equal(tt_image_write(test_at("x.bmp"), &image), TT_ERR_USAGE);
    tt_file_fail_at(2, 28, true);
    assert_int_equal(tt_image_write(test_at("full.png"), &image), TT_ERR_IO);
    tt_file_fail_at(0, 0, false);
    tt_image_deinit(&image);
}

static bool has_colour(const struct tt_image *image, int32_t y, int32_t x, const uint8_t colour[3])
{
    return memcmp(image->rgb + ((size_t)y * (size_t)image->width + (size_t)x) * 3, colour, 3) == 0;
}

static void draws_boxes(void **state)
{
    (void)state;
    static const uint8_t black[3] = {0, 0, 0};
    uint8_t red[3], other[3];
    struct tt_image image = {0};
    tt_draw_colour(1, red);
    tt_draw_colour(2, other);
    assert_memory_not_equal(red, other, 3);
    assert_int_equal(tt_image_create(60, 80, &image), TT_OK);
    tt_draw_box(&image, 20, 30, 50, 50, 2, red);
    assert_true(has_colour(&image, 30, 20, red) && has_colour(&image, 31, 21, red));
    assert_true(has_colour(&image, 40, 20, red) && has_colour(&image, 40, 49, red));
    assert_true(has_colour(&image, 49, 30, red) && has_colour(&image, 40, 48, red));
    assert_true(has_colour(&image, 32, 22, black) && has_colour(&image, 29, 20, black) &&
                has_colour(&image, 50, 30, black) && has_colour(&image, 40, 50, black));
    /* Beyond the image, upside down, and no numbers: nothing outside is written. */
    tt_draw_box(&image, -1e9f, -5, 1e9f, 1e9f, 3, other);
    tt_draw_box(&image, NAN, 0, 10, INFINITY, 1, other);
    tt_draw_box(&image, 50, 50, 20, 30, 1, other);
    tt_draw_text(&image, 70, 55, "cat 0.93", red);
    tt_draw_text(&image, -3, -3, "\xff\x01~", red);
    int lit = 0;
    tt_draw_text(&image, 4, 4, "A", red);
    for (int y = 0; y < 20; y++)
        for (int x = 0; x < 20; x++) lit += has_colour(&image, y, x, red);
    assert_true(lit > 20);
    tt_image_deinit(&image);
}

static void shrinks_by_means(void **state)
{
    (void)state;
    struct tt_image image = {0}, small = {0};
    assert_int_equal(tt_image_create(4, 6, &image), TT_OK);
    for (size_t i = 0; i < 4 * 6 * 3; i++) image.rgb[i] = (uint8_t)(i * 7 % 251);
    assert_int_equal(tt_image_shrink(&image, 6, &small), TT_OK); /* no larger than it may be: a copy */
    assert_true(small.height == 4 && small.width == 6);
    assert_memory_equal(small.rgb, image.rgb, 4 * 6 * 3);
    tt_image_deinit(&small);
    assert_int_equal(tt_image_shrink(&image, 3, &small), TT_OK);
    assert_true(small.height == 2 && small.width == 3);
    for (size_t y = 0; y < 2; y++)
        for (size_t x = 0; x < 3; x++)
            for (size_t c = 0; c < 3; c++) {
                const uint8_t *at = image.rgb + (2 * y * 6 + 2 * x) * 3 + c;
                double mean = (at[0] + at[3] + at[18] + at[21]) / 4.0;
                assert_true(fabs(small.rgb[(y * 3 + x) * 3 + c] - mean) <= 0.5);
            }
    tt_image_deinit(&small);
    tt_image_deinit(&image);
    assert_int_equal(tt_image_create(1, 1000, &image), TT_OK); /* no side vanishes */
    memset(image.rgb, 9, 3000);
    assert_int_equal(tt_image_shrink(&image, 7, &small), TT_OK);
    assert_true(small.height == 1 && small.width == 7 && small.rgb[0] == 9 && small.rgb[20] == 9);
    tt_image_deinit(&small);
    tt_image_deinit(&image);
}

/* Adds a chunk behind the head of a PNG file; nobody looks at its sum. */
static void add_chunk(struct tt_str *file, const char *name, const void *data, unsigned char bytes)
{
    struct tt_str longer = {0};
    const size_t head = 8 + 8 + 13 + 4;
    const char length[4] = {0, 0, 0, (char)bytes};
    assert_int_equal(tt_str_append(&longer, file->data, head), TT_OK);
    assert_int_equal(tt_str_append(&longer, length, 4), TT_OK);
    assert_int_equal(tt_str_append_text(&longer, name), TT_OK);
    assert_int_equal(tt_str_append(&longer, data, bytes), TT_OK);
    assert_int_equal(tt_str_append(&longer, "sum.", 4), TT_OK);
    assert_int_equal(tt_str_append(&longer, file->data + head, file->bytes - head), TT_OK);
    tt_str_deinit(file);
    *file = longer;
}

static void orientations(void **state)
{
    static const char little[] =
        "II*\0\x0a\0\0\0..\2\0\0\1\4\0\1\0\0\0\7\0\0\0\x12\1\3\0\1\0\0\0\x08\0\0\0\0\0\0";
    struct tt_str file = {0};
    (void)state;
    assert_int_equal(tt_file_read(golden("rotated.jpg"), 1 << 20, &file), TT_OK);
    assert_int_equal(tt_image_orientation(file.data, file.bytes), 6);
    /* Cut anywhere, it is 6 or unknown, and nothing behind the end is read. */
    for (size_t bytes = 0; bytes < 80; bytes++) {
        char *part = malloc(bytes + 1);
        assert_non_null(part);
        memcpy(part, file.data, bytes);
        int found = tt_image_orientation(part, bytes);
        assert_true(found == 1 || (found == 6 && bytes > 50));
        free(part);
    }
    char *value = memchr(file.data + 40, 6, 40);
    assert_non_null(value);
    *value = 9; /* none of the eight */
    assert_int_equal(tt_image_orientation(file.data, file.bytes), 1);
    tt_str_deinit(&file);
    assert_int_equal(tt_file_read(golden("420.jpg"), 1 << 20, &file), TT_OK);
    assert_int_equal(tt_image_orientation(file.data, file.bytes), 1);
    tt_str_deinit(&file);
    assert_int_equal(tt_file_read(golden("rgb.png"), 1 << 20, &file), TT_OK);
    assert_int_equal(tt_image_orientation(file.data, file.bytes), 1);
    add_chunk(&file, "eXIf", little, sizeof little - 1);
    assert_int_equal(tt_image_orientation(file.data, file.bytes), 8);
    tt_str_deinit(&file);
    assert_int_equal(tt_image_orientation("no image", 8), 1);
}

/* libjpeg writes no longer side: an error of the image, and none of the program. */
static void too_long_for_jpeg(void **state)
{
    struct tt_image image = {0};
    struct tt_str file = {0};
    (void)state;
    if (!is_built("x.jpg")) return;
    assert_int_equal(tt_image_create(TT_JPEG_SIDE_MAX, 1, &image), TT_OK);
    assert_int_equal(tt_image_encode_jpeg(&image, 50, &file), TT_OK);
    tt_image_deinit(&image);
    tt_str_deinit(&file);
    assert_int_equal(tt_image_create(1, TT_JPEG_SIDE_MAX + 1, &image), TT_OK);
    assert_int_equal(tt_image_encode_jpeg(&image, 50, &file), TT_ERR_UNSUPPORTED);
    assert_non_null(strstr(tt_error_last()->message, "at most 65500 pixels on a side"));
    tt_image_deinit(&image);
    tt_str_deinit(&file);
}

/* Where a marker stands, from `at` on. */
static size_t find_marker(const struct tt_str *file, size_t at, const char *marker)
{
    while (memcmp(file->data + at, marker, 2) != 0) at++;
    return at;
}

/* The first scan of a progressive file, with its tables, repeated: each costs a pass over the image. */
static void scans_have_a_limit(void **state)
{
    (void)state;
    const struct {
        int more;
        bool decodes;
    } cases[] = {{0, true}, {80, true}, {100, false}, {20000, false}};
    struct tt_str file = {0};
    struct tt_image image = {0};
    if (!is_built("x.jpg")) return;
    assert_int_equal(tt_file_read(golden("progressive.jpg"), 1 << 20, &file), TT_OK);
    size_t end = file.bytes - 2, first = find_marker(&file, 0, "\xFF\xC4");
    size_t bytes = find_marker(&file, find_marker(&file, first, "\xFF\xDA"), "\xFF\xC4") - first;
    assert_memory_equal(file.data + end, "\xFF\xD9", 2);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tt_str made = {0};
        assert_int_equal(tt_str_append(&made, file.data, end), TT_OK);
        for (int n = 0; n < cases[i].more; n++)
            assert_int_equal(tt_str_append(&made, file.data + first, bytes), TT_OK);
        assert_int_equal(tt_str_append(&made, "\xFF\xD9", 2), TT_OK);
        tt_status status = tt_image_decode(made.data, made.bytes, "a.jpg", 0, &image);
        if (status != (cases[i].decodes ? TT_OK : TT_ERR_DATA)) fail_msg("%d more scans", cases[i].more);
        if (!cases[i].decodes)
            assert_string_equal(tt_error_last()->message, "'a.jpg' is damaged: it has more than 100 scans");
        tt_image_deinit(&image);
        tt_str_deinit(&made);
    }
    tt_str_deinit(&file);
}

static tt_status attempt(void *context)
{
    struct tt_image image = {0};
    uint16_t pixels[16 * 16 * 3];
    struct tt_str file = {0};
    const struct tt_image_target target = {pixels, TT_BF16, 16 * 3, 3, 16, 16, false};
    tt_status status = tt_image_read(context, 0, &image);
    if (status == TT_OK) status = tt_image_normalize_resize(image.rgb, image.height, image.width, &target);
    if (status == TT_OK) status = tt_image_encode_jpeg(&image, 50, &file);
    tt_str_deinit(&file);
    tt_image_deinit(&image);
    return status;
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    char jpeg[] = GOLDEN "cmyk.jpg", png[] = GOLDEN "palette.png";
    if (!is_built("x.png") || !is_built("x.jpg")) return;
    test_allocations_fail(attempt, jpeg);
    test_allocations_fail(attempt, png);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_pil_reads),
        cmocka_unit_test(as_torchvision_resizes),
        cmocka_unit_test(flips_and_rounds),
        cmocka_unit_test(damaged_files),
        cmocka_unit_test_setup_teardown(writes_what_it_reads, test_root_create, test_root_remove),
        cmocka_unit_test(draws_boxes),
        cmocka_unit_test(shrinks_by_means),
        cmocka_unit_test(orientations),
        cmocka_unit_test(too_long_for_jpeg),
        cmocka_unit_test(scans_have_a_limit),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
