/* JPEG files, through libjpeg. */
#include "image/codec.h"

#ifdef TT_HAVE_JPEG

#include <setjmp.h>
#include <stdio.h> /* jpeglib.h needs it */
#include <stdlib.h>

#include <jerror.h>
#include <jpeglib.h>

#include "base/alloc.h"

/* Encoders write about ten scans. Each one costs a pass over all blocks of the image, however few bytes it has. */
enum { RGB = 3, CMYK = 4, SCANS_MAX = 100 };

/* libjpeg's error manager, with the way out of it. */
struct manager {
    struct jpeg_error_mgr base; /* first: libjpeg knows only this */
    jmp_buf out;
    char message[JMSG_LENGTH_MAX];
    bool cut; /* a warning that pixels are missing */
};

static void leave(j_common_ptr info)
{
    struct manager *manager = (struct manager *)info->err;
    info->err->format_message(info, manager->message);
    longjmp(manager->out, 1);
}

/* Most warnings are of harmless bytes between markers, which other programs ignore; these two are of missing data. */
static void warn(j_common_ptr info, int level)
{
    struct manager *manager = (struct manager *)info->err;
    int code = info->err->msg_code;
    if (level < 0 && (code == JWRN_JPEG_EOF || code == JWRN_HIT_MARKER)) manager->cut = true;
}

static void keep_quiet(j_common_ptr info)
{
    (void)info;
}

static void manager_init(struct manager *manager)
{
    jpeg_std_error(&manager->base);
    manager->base.error_exit = leave;
    manager->base.emit_message = warn;
    manager->base.output_message = keep_quiet;
    manager->cut = false;
}

static uint8_t divide_255(unsigned product)
{
    product += 128;
    return (uint8_t)((product + (product >> 8)) >> 8);
}

/* Files with four colours are Adobe's, whose values are inverted: key - colour * key, in place, as PIL converts. */
static void convert_row(const uint8_t *cmyk, size_t width, uint8_t *rgb)
{
    for (size_t x = 0; x < width; x++, cmyk += CMYK, rgb += RGB) {
        unsigned key = cmyk[3];
        for (int c = 0; c < RGB; c++) rgb[c] = (uint8_t)(key - divide_255((255u - cmyk[c]) * key));
    }
}

/* The resources to free when libjpeg jumps out. */
struct decoding {
    struct jpeg_decompress_struct info;
    struct manager manager;
    struct jpeg_progress_mgr progress;
    const struct tt_image_source *source;
    uint8_t *rgb, *row;
    tt_status status;
};

/* libjpeg calls it for each row of blocks. */
static void limit_scans(j_common_ptr info)
{
    struct manager *manager = (struct manager *)info->err;
    if (((j_decompress_ptr)info)->input_scan_number <= SCANS_MAX) return;
    snprintf(manager->message, sizeof manager->message, "it has more than %d scans", SCANS_MAX);
    longjmp(manager->out, 1);
}

static void decode_rows(struct decoding *decoding)
{
    struct jpeg_decompress_struct *info = &decoding->info;
    bool cmyk = info->jpeg_color_space == JCS_CMYK || info->jpeg_color_space == JCS_YCCK;
    size_t width = info->image_width;
    info->out_color_space = cmyk ? JCS_CMYK : JCS_RGB;
    decoding->rgb = tt_calloc((size_t)info->image_height * width, RGB);
    decoding->row = tt_calloc(width, CMYK);
    if (decoding->rgb == NULL || decoding->row == NULL) {
        decoding->status = TT_ERR_MEMORY;
        return;
    }
    jpeg_start_decompress(info);
    while (info->output_scanline < info->output_height) {
        uint8_t *to = decoding->rgb + (size_t)info->output_scanline * width * RGB;
        JSAMPROW row = cmyk ? decoding->row : to;
        jpeg_read_scanlines(info, &row, 1);
        if (cmyk) convert_row(decoding->row, width, to);
    }
    jpeg_finish_decompress(info);
}

/* Only this function is left by longjmp; it changes no variable of its own after setjmp. */
static void decode(struct decoding *decoding, bool pixels)
{
    struct jpeg_decompress_struct *info = &decoding->info;
    const struct tt_image_source *source = decoding->source;
    if (setjmp(decoding->manager.out) != 0) {
        decoding->status =
            tt_fail(TT_ERR_DATA, "'%s' is damaged: %s", source->origin, decoding->manager.message);
        return;
    }
    jpeg_create_decompress(info);
    decoding->progress.progress_monitor = limit_scans;
    info->progress = &decoding->progress;
    jpeg_mem_src(info, source->data, source->bytes);
    jpeg_read_header(info, TRUE);
    decoding->status = tt_image_check_size(source, info->image_height, info->image_width);
    if (decoding->status == TT_OK && pixels) decode_rows(decoding);
}

tt_status tt_jpeg_decode(const struct tt_image_source *source, int32_t *height, int32_t *width, uint8_t **rgb)
{
    struct decoding *decoding = tt_calloc(1, sizeof *decoding);
    if (decoding == NULL) return TT_ERR_MEMORY;
    decoding->source = source;
    decoding->info.err = &decoding->manager.base;
    manager_init(&decoding->manager);
    decode(decoding, rgb != NULL);
    tt_status status = decoding->status;
    if (status == TT_OK && rgb != NULL && decoding->manager.cut)
        status = tt_fail(TT_ERR_DATA, "'%s' is damaged: a part of the image is missing", source->origin);
    *height = (int32_t)decoding->info.image_height;
    *width = (int32_t)decoding->info.image_width;
    jpeg_destroy_decompress(&decoding->info);
    tt_free(decoding->row);
    if (status == TT_OK && rgb != NULL)
        *rgb = decoding->rgb;
    else
        tt_free(decoding->rgb);
    tt_free(decoding);
    return status;
}

struct encoding {
    struct jpeg_compress_struct info;
    struct manager manager;
    const struct tt_image *image;
    int quality;
    unsigned char *data; /* malloc'ed by libjpeg */
    unsigned long bytes;
    bool failed;
};

static void encode(struct encoding *encoding)
{
    struct jpeg_compress_struct *info = &encoding->info;
    const struct tt_image *image = encoding->image;
    if (setjmp(encoding->manager.out) != 0) {
        encoding->failed = true;
        return;
    }
    jpeg_create_compress(info);
    jpeg_mem_dest(info, &encoding->data, &encoding->bytes);
    info->image_width = (JDIMENSION)image->width;
    info->image_height = (JDIMENSION)image->height;
    info->input_components = RGB;
    info->in_color_space = JCS_RGB;
    jpeg_set_defaults(info);
    jpeg_set_quality(info, encoding->quality, TRUE);
    jpeg_start_compress(info, TRUE);
    while (info->next_scanline < info->image_height) {
        JSAMPROW row = image->rgb + (size_t)info->next_scanline * (size_t)image->width * RGB;
        jpeg_write_scanlines(info, &row, 1);
    }
    jpeg_finish_compress(info);
}

tt_status tt_image_encode_jpeg(const struct tt_image *image, int quality, struct tt_str *file)
{
    if (image->height > TT_JPEG_SIDE_MAX || image->width > TT_JPEG_SIDE_MAX)
        return tt_fail(TT_ERR_UNSUPPORTED, "a JPEG file has at most %d pixels on a side, the image %d x %d",
                       TT_JPEG_SIDE_MAX, image->width, image->height);
    struct encoding *encoding = tt_calloc(1, sizeof *encoding);
    if (encoding == NULL) return TT_ERR_MEMORY;
    encoding->image = image;
    encoding->quality = quality;
    encoding->info.err = &encoding->manager.base;
    manager_init(&encoding->manager);
    encode(encoding);
    tt_status status = encoding->failed
                           ? tt_fail(TT_ERR_INTERNAL, "libjpeg cannot write an image of %d x %d pixels: %s",
                                     image->width, image->height, encoding->manager.message)
                           : tt_str_append(file, (const char *)encoding->data, encoding->bytes);
    jpeg_destroy_compress(&encoding->info);
    free(encoding->data);
    tt_free(encoding);
    return status;
}

#else

static tt_status fail_without(const char *what)
{
    tt_fail(TT_ERR_UNSUPPORTED, "%s: this build has no libjpeg", what);
    tt_hint("install libjpeg62-turbo-dev and build again, or use PNG");
    return TT_ERR_UNSUPPORTED;
}

tt_status tt_jpeg_decode(const struct tt_image_source *source, int32_t *height, int32_t *width, uint8_t **rgb)
{
    (void)height, (void)width, (void)rgb;
    return fail_without(source->origin);
}

tt_status tt_image_encode_jpeg(const struct tt_image *image, int quality, struct tt_str *file)
{
    (void)image, (void)quality, (void)file;
    return fail_without("writing a JPEG image");
}

#endif
