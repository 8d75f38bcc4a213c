#include "image/image.h"

#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "image/codec.h"

enum { RGB = 3, JPEG_QUALITY = 90 };
/* Encoded images; larger ones are no photographs. */
#define FILE_BYTES_MAX ((size_t)1 << 30)

void tt_image_deinit(struct tt_image *image)
{
    tt_free(image->rgb);
    *image = (struct tt_image){0};
}

tt_status tt_image_create(int32_t height, int32_t width, struct tt_image *image)
{
    if (height < 0 || width < 0) return tt_fail(TT_ERR_INTERNAL, "an image of %d x %d pixels", width, height);
    uint8_t *rgb = tt_calloc((size_t)height * (size_t)width, RGB);
    if (rgb == NULL) return TT_ERR_MEMORY;
    *image = (struct tt_image){height, width, rgb};
    return TT_OK;
}

/* The mean of the pixels of rows [y, y_end) and columns [x, x_end), rounded. */
static void average(const struct tt_image *image, int64_t y, int64_t y_end, int64_t x, int64_t x_end,
                    uint8_t *rgb)
{
    uint64_t sums[RGB] = {0}, count = (uint64_t)((y_end - y) * (x_end - x));
    for (; y < y_end; y++) {
        const uint8_t *at = image->rgb + (size_t)(y * image->width + x) * RGB;
        for (int64_t i = 0; i < (x_end - x) * RGB; i++) sums[i % RGB] += at[i];
    }
    for (int c = 0; c < RGB; c++) rgb[c] = (uint8_t)((2 * sums[c] + count) / (2 * count));
}

tt_status tt_image_shrink(const struct tt_image *image, int32_t longest, struct tt_image *out)
{
    int64_t most = image->height > image->width ? image->height : image->width, height = image->height,
            width = image->width;
    if (longest > 0 && most > longest) {
        height = (2 * height * longest + most) / (2 * most);
        width = (2 * width * longest + most) / (2 * most);
        height += height == 0;
        width += width == 0;
    }
    TT_TRY(tt_image_create((int32_t)height, (int32_t)width, out));
    for (int64_t y = 0; y < height; y++)
        for (int64_t x = 0; x < width; x++)
            average(image, y * image->height / height, (y + 1) * image->height / height,
                    x * image->width / width, (x + 1) * image->width / width,
                    out->rgb + (size_t)(y * width + x) * RGB);
    return TT_OK;
}

tt_status tt_image_check_size(const struct tt_image_source *source, uint64_t height, uint64_t width)
{
    uint64_t limit = source->max_pixels > 0 ? (uint64_t)source->max_pixels : (uint64_t)TT_IMAGE_PIXELS_MAX;
    if (height == 0 || width == 0) return tt_fail(TT_ERR_DATA, "'%s' has no pixels", source->origin);
    if (height > INT32_MAX || width > INT32_MAX || height * width > limit)
        return tt_fail(TT_ERR_DATA, "'%s' has %llu x %llu pixels, more than the %llu that are allowed",
                       source->origin, (unsigned long long)width, (unsigned long long)height,
                       (unsigned long long)limit);
    return TT_OK;
}

static tt_status fail_format(const struct tt_image_source *source)
{
    static const struct {
        const char *mark, *name;
        size_t bytes, offset;
    } others[] = {{"GIF8", "GIF", 4, 0},   {"RIFF", "WebP", 4, 0},  {"BM", "BMP", 2, 0},
                  {"II*\0", "TIFF", 4, 0}, {"MM\0*", "TIFF", 4, 0}, {"ftyp", "HEIF or AVIF", 4, 4}};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        size_t end = others[i].offset + others[i].bytes;
        if (source->bytes < end) continue;
        if (memcmp((const char *)source->data + others[i].offset, others[i].mark, others[i].bytes) != 0)
            continue;
        return tt_fail(TT_ERR_UNSUPPORTED, "'%s' is a %s image; JPEG and PNG are read", source->origin,
                       others[i].name);
    }
    return tt_fail(TT_ERR_DATA, "'%s' is neither a JPEG nor a PNG image", source->origin);
}

static tt_status decode(const struct tt_image_source *source, int32_t *height, int32_t *width, uint8_t **rgb)
{
    if (source->bytes >= 3 && memcmp(source->data, "\xff\xd8\xff", 3) == 0)
        return tt_jpeg_decode(source, height, width, rgb);
    if (source->bytes >= 8 && memcmp(source->data, "\x89PNG\r\n\x1a\n", 8) == 0)
        return tt_png_decode(source, height, width, rgb);
    return fail_format(source);
}

tt_status tt_image_decode(const void *data, size_t bytes, const char *origin, int64_t max_pixels,
                          struct tt_image *image)
{
    const struct tt_image_source source = {data, bytes, origin, max_pixels};
    struct tt_image decoded = {0};
    TT_TRY(decode(&source, &decoded.height, &decoded.width, &decoded.rgb));
    *image = decoded;
    return TT_OK;
}

tt_status tt_image_decode_size(const void *data, size_t bytes, const char *origin, int64_t max_pixels,
                               int32_t *height, int32_t *width)
{
    const struct tt_image_source source = {data, bytes, origin, max_pixels};
    return decode(&source, height, width, NULL);
}

tt_status tt_image_read(const char *path, int64_t max_pixels, struct tt_image *image)
{
    struct tt_str file = {0};
    TT_TRY(tt_file_read(path, FILE_BYTES_MAX, &file));
    tt_status status = tt_image_decode(file.data, file.bytes, path, max_pixels, image);
    tt_str_deinit(&file);
    return status;
}

/* The size is in the first bytes of most files, behind a thumbnail in some. */
tt_status tt_image_size(const char *path, int64_t max_pixels, int32_t *height, int32_t *width)
{
    enum { HEAD_BYTES = 64 << 10 };
    int descriptor = -1;
    uint64_t bytes;
    TT_TRY(tt_file_open_read(path, &descriptor, &bytes));
    char *head = tt_calloc(HEAD_BYTES, 1);
    tt_status status = head != NULL ? TT_OK : TT_ERR_MEMORY;
    size_t head_bytes = bytes < HEAD_BYTES ? (size_t)bytes : HEAD_BYTES;
    if (status == TT_OK) status = tt_file_pread(descriptor, path, head, head_bytes, 0);
    tt_file_close(descriptor);
    if (status == TT_OK) status = tt_image_decode_size(head, head_bytes, path, max_pixels, height, width);
    tt_free(head);
    if (status != TT_ERR_DATA || bytes <= HEAD_BYTES) return status;
    struct tt_str file = {0};
    TT_TRY(tt_file_read(path, FILE_BYTES_MAX, &file));
    status = tt_image_decode_size(file.data, file.bytes, path, max_pixels, height, width);
    tt_str_deinit(&file);
    return status;
}

tt_status tt_image_write(const char *path, const struct tt_image *image)
{
    struct tt_str file = {0};
    tt_status status;
    if (tt_ends_with(path, ".png"))
        status = tt_image_encode_png(image, &file);
    else if (tt_ends_with(path, ".jpg") || tt_ends_with(path, ".jpeg"))
        status = tt_image_encode_jpeg(image, JPEG_QUALITY, &file);
    else
        status = tt_fail(TT_ERR_USAGE, "'%s' ends in none of .png, .jpg and .jpeg", path);
    if (status == TT_OK) status = tt_file_write_atomic(path, file.data, file.bytes);
    tt_str_deinit(&file);
    return status;
}
