/* PNG files, through libpng. */
#include "image/codec.h"

#ifdef TT_HAVE_SPNG

#include <stdlib.h>

#include <spng.h>

#include "base/alloc.h"

enum { RGB = 3 };
/* Limits of one ancillary chunk, and of all that a file's reader keeps. */
#define CHUNK_BYTES_MAX ((size_t)64 << 20)

static tt_status fail_damaged(const struct tt_image_source *source, int error)
{
    if (error == SPNG_EMEM) return tt_fail(TT_ERR_MEMORY, "out of memory while reading '%s'", source->origin);
    return tt_fail(TT_ERR_DATA, "'%s' is damaged: %s", source->origin, spng_strerror(error));
}

/* 16 bits become their upper 8, palettes their colours, transparency is dropped, as PIL converts to RGB. */
static tt_status read_pixels(const struct tt_image_source *source, spng_ctx *context, uint8_t **rgb)
{
    size_t bytes;
    int error = spng_decoded_image_size(context, SPNG_FMT_RGB8, &bytes);
    if (error != 0) return fail_damaged(source, error);
    uint8_t *pixels = tt_calloc(bytes, 1);
    if (pixels == NULL) return TT_ERR_MEMORY;
    error = spng_decode_image(context, pixels, bytes, SPNG_FMT_RGB8, 0);
    if (error != 0) {
        tt_free(pixels);
        return fail_damaged(source, error);
    }
    *rgb = pixels;
    return TT_OK;
}

tt_status tt_png_decode(const struct tt_image_source *source, int32_t *height, int32_t *width, uint8_t **rgb)
{
    struct spng_ihdr head;
    spng_ctx *context = spng_ctx_new(0);
    if (context == NULL) return tt_fail(TT_ERR_MEMORY, "out of memory while reading '%s'", source->origin);
    int error = spng_set_chunk_limits(context, CHUNK_BYTES_MAX, CHUNK_BYTES_MAX);
    if (error == 0) error = spng_set_png_buffer(context, source->data, source->bytes);
    if (error == 0) error = spng_get_ihdr(context, &head);
    tt_status status =
        error == 0 ? tt_image_check_size(source, head.height, head.width) : fail_damaged(source, error);
    if (status == TT_OK && rgb != NULL) status = read_pixels(source, context, rgb);
    if (status == TT_OK) {
        *height = (int32_t)head.height;
        *width = (int32_t)head.width;
    }
    spng_ctx_free(context);
    return status;
}

tt_status tt_image_encode_png(const struct tt_image *image, struct tt_str *file)
{
    spng_ctx *context = spng_ctx_new(SPNG_CTX_ENCODER);
    if (context == NULL) return tt_fail(TT_ERR_MEMORY, "out of memory while writing a PNG image");
    struct spng_ihdr head = {.width = (uint32_t)image->width,
                             .height = (uint32_t)image->height,
                             .bit_depth = 8,
                             .color_type = SPNG_COLOR_TYPE_TRUECOLOR};
    size_t bytes = 0;
    int error = spng_set_option(context, SPNG_ENCODE_TO_BUFFER, 1);
    if (error == 0) error = spng_set_ihdr(context, &head);
    if (error == 0)
        error = spng_encode_image(context, image->rgb, (size_t)image->height * (size_t)image->width * RGB,
                                  SPNG_FMT_PNG, SPNG_ENCODE_FINALIZE);
    void *data = error == 0 ? spng_get_png_buffer(context, &bytes, &error) : NULL;
    tt_status status = data != NULL
                           ? tt_str_append(file, data, bytes)
                           : tt_fail(TT_ERR_INTERNAL, "cannot write a PNG image of %d x %d pixels: %s",
                                     image->width, image->height, spng_strerror(error));
    free(data);
    spng_ctx_free(context);
    return status;
}

#else

static tt_status fail_without(const char *what)
{
    tt_fail(TT_ERR_UNSUPPORTED, "%s: this build has no libspng", what);
    tt_hint("install libspng-dev and build again, or use JPEG");
    return TT_ERR_UNSUPPORTED;
}

tt_status tt_png_decode(const struct tt_image_source *source, int32_t *height, int32_t *width, uint8_t **rgb)
{
    (void)height, (void)width, (void)rgb;
    return fail_without(source->origin);
}

tt_status tt_image_encode_png(const struct tt_image *image, struct tt_str *file)
{
    (void)image, (void)file;
    return fail_without("writing a PNG image");
}

#endif
