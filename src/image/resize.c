#include "image/resize.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"

enum { RGB = 3, LEVELS = 256 };

static const float means[RGB] = {0.485f, 0.456f, 0.406f}, deviations[RGB] = {0.229f, 0.224f, 0.225f};

void tt_image_resized_size(int32_t height, int32_t width, int32_t min_size, int32_t max_size,
                           int32_t *out_height, int32_t *out_width)
{
    double shorter = height < width ? height : width, longer = height < width ? width : height;
    double scale = fmin((double)min_size / shorter, (double)max_size / longer);
    *out_height = (int32_t)fmax(floor(height * scale), 1);
    *out_width = (int32_t)fmax(floor(width * scale), 1);
}

/* The two pixels between which an output pixel lies. */
struct tap {
    int32_t first, second;
    float of_first, of_second;
};

static struct tap tap_at(int32_t i, int32_t in, int32_t out)
{
    float scale = (float)in / (float)out;
    float place = fmaxf(scale * ((float)i + 0.5f) - 0.5f, 0);
    int32_t first = (int32_t)place;
    if (first > in - 1) first = in - 1;
    float fraction = place - (float)first;
    return (struct tap){first, first < in - 1 ? first + 1 : first, 1 - fraction, fraction};
}

struct resizing {
    const uint8_t *rgb;
    int32_t height, width;
    const struct tt_image_target *target;
    struct tap *columns;
    float normal[RGB][LEVELS];
    float *rows[2], *out; /* two source rows at the width of the target, and the target's row */
    int32_t row_of[2];
};

static void widen_row(struct resizing *resizing, int32_t y, float *to)
{
    const uint8_t *row = resizing->rgb + (size_t)y * (size_t)resizing->width * RGB;
    for (int32_t x = 0; x < resizing->target->width; x++, to += RGB) {
        const struct tap *tap = &resizing->columns[x];
        const uint8_t *a = row + (size_t)tap->first * RGB, *b = row + (size_t)tap->second * RGB;
        for (int c = 0; c < RGB; c++)
            to[c] = tap->of_first * resizing->normal[c][a[c]] + tap->of_second * resizing->normal[c][b[c]];
    }
}

/* Source row `y` at the width of the target; the row that the other tap needs, `keep`, stays. */
static const float *row_at(struct resizing *resizing, int32_t y, int32_t keep)
{
    for (int i = 0; i < 2; i++)
        if (resizing->row_of[i] == y) return resizing->rows[i];
    int slot = resizing->row_of[0] == keep ? 1 : 0;
    widen_row(resizing, y, resizing->rows[slot]);
    resizing->row_of[slot] = y;
    return resizing->rows[slot];
}

static void store_row(const struct tt_image_target *target, int32_t y, const float *row)
{
    size_t at = (size_t)y * (size_t)target->row_stride;
    for (int32_t x = 0; x < target->width; x++, at += (size_t)target->channels, row += RGB) {
        if (target->dtype == TT_F32) {
            memcpy((float *)target->pixels + at, row, RGB * sizeof *row);
            continue;
        }
        for (int c = 0; c < RGB; c++) ((uint16_t *)target->pixels)[at + (size_t)c] = tt_f32_to_bf16(row[c]);
    }
}

static void resize(struct resizing *resizing)
{
    const struct tt_image_target *target = resizing->target;
    size_t values = (size_t)target->width * RGB;
    for (int32_t y = 0; y < target->height; y++) {
        const struct tap tap = tap_at(y, resizing->height, target->height);
        const float *a = row_at(resizing, tap.first, tap.second);
        const float *b = row_at(resizing, tap.second, tap.first);
        for (size_t i = 0; i < values; i++) resizing->out[i] = tap.of_first * a[i] + tap.of_second * b[i];
        store_row(target, y, resizing->out);
    }
}

static void prepare(struct resizing *resizing)
{
    const struct tt_image_target *target = resizing->target;
    for (int c = 0; c < RGB; c++)
        for (int v = 0; v < LEVELS; v++)
            resizing->normal[c][v] = ((float)v / 255.0f - means[c]) / deviations[c];
    for (int32_t x = 0; x < target->width; x++) {
        struct tap *tap = &resizing->columns[x];
        *tap = tap_at(x, resizing->width, target->width);
        if (!target->flipped) continue;
        tap->first = resizing->width - 1 - tap->first;
        tap->second = resizing->width - 1 - tap->second;
    }
    resizing->row_of[0] = resizing->row_of[1] = -1;
}

tt_status tt_image_normalize_resize(const uint8_t *rgb, int32_t height, int32_t width,
                                    const struct tt_image_target *target)
{
    if (target->dtype != TT_F32 && target->dtype != TT_BF16)
        return tt_fail(TT_ERR_INTERNAL, "images are not resized to %s", tt_dtype_name(target->dtype));
    struct resizing *resizing = tt_calloc(1, sizeof *resizing);
    if (resizing == NULL) return TT_ERR_MEMORY;
    size_t values = (size_t)target->width * RGB;
    *resizing = (struct resizing){.rgb = rgb, .height = height, .width = width, .target = target};
    resizing->columns = tt_calloc((size_t)target->width, sizeof *resizing->columns);
    float *rows = tt_calloc(3 * values, sizeof *rows);
    bool all = resizing->columns != NULL && rows != NULL;
    if (all) {
        resizing->rows[0] = rows;
        resizing->rows[1] = rows + values;
        resizing->out = rows + 2 * values;
        prepare(resizing);
        resize(resizing);
    }
    tt_free(resizing->columns);
    tt_free(rows);
    tt_free(resizing);
    return all ? TT_OK : TT_ERR_MEMORY;
}
