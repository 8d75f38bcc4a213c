#include "backend/cpu/gemm/gather.h"

#include <string.h>

#include "base/integer.h"

/* The top left pixel of each row's patch. */
struct corner {
    int64_t h, w;
    const char *image;
};

static void find_corners(const struct tt_gemm_source *source, int64_t row, int64_t rows,
                         struct corner *corners)
{
    const struct tt_gemm_gather *gather = source->gather;
    int64_t bytes = gather->height * gather->width * gather->pixel * (int64_t)tt_dtype_bytes(source->dtype);
    int64_t j = row % gather->grid_w, i = row / gather->grid_w % gather->grid_h;
    const char *image = (const char *)source->data + row / gather->grid_w / gather->grid_h * bytes;
    for (int64_t r = 0; r < rows; r++) {
        corners[r] = (struct corner){
            .h = gather->first_h + i * gather->step, .w = gather->first_w + j * gather->step, .image = image};
        if (++j < gather->grid_w) continue;
        j = 0;
        if (++i < gather->grid_h) continue;
        i = 0;
        image += bytes;
    }
}

/* Copies `count` channels from `channel` on of one tap, for all rows. */
static void copy_tap(const struct tt_gemm_gather *gather, size_t element, const struct corner *corners,
                     int64_t rows, int64_t tap, int64_t channel, int64_t count, char *to, int64_t stride)
{
    int64_t h = tap / gather->taps_w * gather->tap_step, w = tap % gather->taps_w * gather->tap_step;
    size_t bytes = (size_t)count * element;
    for (int64_t r = 0; r < rows; r++, to += stride) {
        int64_t y = corners[r].h + h, x = corners[r].w + w;
        if (y < 0 || y >= gather->height || x < 0 || x >= gather->width)
            memset(to, 0, bytes);
        else
            memcpy(to,
                   corners[r].image + (size_t)((y * gather->width + x) * gather->pixel + channel) * element,
                   bytes);
    }
}

static void gather_image(const struct tt_gemm_source *source, char *to, int64_t stride, int64_t row,
                         int64_t rows, int64_t first, int64_t count)
{
    const struct tt_gemm_gather *gather = source->gather;
    size_t element = tt_dtype_bytes(source->dtype);
    struct corner corners[TT_GEMM_STRIP_K];
    find_corners(source, row, rows, corners);
    for (int64_t done = 0, some; done < count; done += some) {
        int64_t channel = (first + done) % gather->channels;
        some = tt_smaller(gather->channels - channel, count - done);
        copy_tap(gather, element, corners, rows, (first + done) / gather->channels, channel, some,
                 to + (size_t)done * element, stride);
    }
}

static void gather_weights(const struct tt_gemm_source *source, char *to, int64_t stride, int64_t row,
                           int64_t rows, int64_t first, int64_t count)
{
    const struct tt_gemm_gather *gather = source->gather;
    size_t element = tt_dtype_bytes(source->dtype);
    for (int64_t r = 0; r < rows; r++, to += stride) {
        int64_t channel = first % gather->channels, tap = first / gather->channels;
        const char *from =
            (const char *)source->data + (size_t)(gather->first + (row + r) * gather->row) * element;
        for (int64_t e = 0; e < count; tap++, channel = 0) {
            const char *at =
                from + (tap / gather->taps_w * gather->tap_h + tap % gather->taps_w * gather->tap_w) *
                           (int64_t)element;
            for (; channel < gather->channels && e < count; channel++, e++)
                memcpy(to + (size_t)e * element, at + channel * gather->channel * (int64_t)element, element);
        }
    }
}

struct tt_gemm_source tt_gemm_gather(const struct tt_gemm_source *source, float *strip, int64_t first,
                                     int width, int64_t k_first, int64_t k)
{
    int64_t across = tt_smaller(width, source->across - first);
    int64_t row = source->k_contiguous ? first : k_first, rows = source->k_contiguous ? across : k;
    int64_t column = source->k_contiguous ? k_first : first, columns = source->k_contiguous ? k : across;
    int64_t stride = source->k_contiguous ? TT_GEMM_STRIP_K : TT_GEMM_STRIP_WIDTH;
    int64_t stride_bytes = stride * (int64_t)tt_dtype_bytes(source->dtype);
    if (source->gather->is_image)
        gather_image(source, (char *)strip, stride_bytes, row, rows, column, columns);
    else
        gather_weights(source, (char *)strip, stride_bytes, row, rows, column, columns);
    return (struct tt_gemm_source){.data = strip,
                                   .dtype = source->dtype,
                                   .stride = stride,
                                   .k_contiguous = source->k_contiguous,
                                   .across = across};
}

void tt_gemm_apply_epilogue(const struct tt_gemm_epilogue *epilogue, tt_dtype dtype, float *sums,
                            int64_t stride, int64_t row, int64_t rows, int64_t column, int64_t columns)
{
    static const float one = 1.0f, zero = 0.0f;
    int64_t scale_step = epilogue->scale != NULL, bias_step = epilogue->bias != NULL;
    const float *scale = scale_step ? epilogue->scale + column : &one;
    const float *bias = bias_step ? epilogue->bias + column : &zero;
    for (int64_t i = 0; i < rows; i++, sums += stride) {
        for (int64_t j = 0; j < columns; j++) sums[j] = sums[j] * scale[j * scale_step] + bias[j * bias_step];
        int64_t at = (row + i) * epilogue->residual_stride + column;
        if (epilogue->residual != NULL && dtype == TT_BF16)
            for (int64_t j = 0; j < columns; j++)
                sums[j] += tt_bf16_to_f32(((const uint16_t *)epilogue->residual)[at + j]);
        else if (epilogue->residual != NULL)
            for (int64_t j = 0; j < columns; j++) sums[j] += ((const float *)epilogue->residual)[at + j];
        /* NaN stays */
        if (epilogue->relu)
            for (int64_t j = 0; j < columns; j++) sums[j] = sums[j] < 0.0f ? 0.0f : sums[j];
    }
}
