#include "image/draw.h"

#include <math.h>
#include <string.h>

#include "base/ascii.h"

/* Letters of 3 x 5 dots, drawn twice as large; bits from the upper left row by row. */
enum { GLYPH_WIDTH = 3, GLYPH_HEIGHT = 5, SCALE = 2, MARGIN = 2 };
static const char letters[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ.-%_/";
static const char *const glyphs[] = {
    "####.##.##.####", ".#.##..#..#.###", "###..#####..###", "###..#.##..####", "#.##.####..#..#",
    "####..###..####", "####..####.####", "###..#.#..#..#.", "####.#####.####", "####.####..####",
    ".#.#.#####.##.#", "##.#.###.#.###.", ".###..#..#...##", "##.#.##.##.###.", "####..##.#..###",
    "####..##.#..#..", ".###..#.##.#.##", "#.##.#####.##.#", "###.#..#..#.###", "..#..#..##.#.#.",
    "#.##.###.#.##.#", "#..#..#..#..###", "#.########.##.#", "##.#.##.##.##.#", ".#.#.##.##.#.#.",
    "##.#.###.#..#..", ".#.#.##.####.##", "##.#.###.#.##.#", ".###...#...###.", "###.#..#..#..#.",
    "#.##.##.##.####", "#.##.##.##.#.#.", "#.##.########.#", "#.##.#.#.#.##.#", "#.##.#.#..#..#.",
    "###..#.#.#..###", ".............#.", "......###......", "#.#..#.#.#..#.#", "............###",
    "..#..#.#.#..#..",
};

static void set(struct tt_image *image, int64_t x, int64_t y, const uint8_t colour[3])
{
    if (x < 0 || y < 0 || x >= image->width || y >= image->height) return;
    memcpy(image->rgb + ((size_t)y * (size_t)image->width + (size_t)x) * 3, colour, 3);
}

static void fill(struct tt_image *image, int64_t x1, int64_t y1, int64_t x2, int64_t y2,
                 const uint8_t colour[3])
{
    for (int64_t y = y1 > 0 ? y1 : 0; y < y2 && y < image->height; y++)
        for (int64_t x = x1 > 0 ? x1 : 0; x < x2 && x < image->width; x++) set(image, x, y, colour);
}

void tt_draw_colour(int64_t label, uint8_t colour[3])
{
    /* Hues a golden section apart, at full saturation. */
    double hue = fmod((double)label * 0.6180339887498949, 1) * 6;
    for (int c = 0; c < 3; c++) {
        double k = fmod(5 - 2 * c + hue, 6), part = fmin(fmin(k, 4 - k), 1);
        colour[c] = (uint8_t)lrint(255 * (1 - fmax(part, 0)));
    }
}

/* A coordinate as a pixel, near enough to the image that sums do not overflow. */
static int64_t pixel_at(float place)
{
    return isnan(place) ? 0 : (int64_t)lrintf(fminf(fmaxf(place, -1e6f), 1e8f));
}

void tt_draw_box(struct tt_image *image, float x1, float y1, float x2, float y2, int32_t thickness,
                 const uint8_t colour[3])
{
    int64_t left = pixel_at(x1), top = pixel_at(y1), right = pixel_at(x2), bottom = pixel_at(y2);
    fill(image, left, top, right, top + thickness < bottom ? top + thickness : bottom, colour);
    fill(image, left, bottom - thickness > top ? bottom - thickness : top, right, bottom, colour);
    fill(image, left, top, left + thickness < right ? left + thickness : right, bottom, colour);
    fill(image, right - thickness > left ? right - thickness : left, top, right, bottom, colour);
}

static void draw_letter(struct tt_image *image, int64_t x, int64_t y, char letter, const uint8_t ink[3])
{
    const char *found = letter != '\0' ? strchr(letters, tt_ascii_upper(letter)) : NULL;
    if (found == NULL) return;
    const char *glyph = glyphs[found - letters];
    for (int i = 0; i < GLYPH_WIDTH * GLYPH_HEIGHT; i++) {
        int64_t left = x + i % GLYPH_WIDTH * SCALE, top = y + i / GLYPH_WIDTH * SCALE;
        if (glyph[i] == '#') fill(image, left, top, left + SCALE, top + SCALE, ink);
    }
}

void tt_draw_text(struct tt_image *image, int32_t x, int32_t y, const char *text, const uint8_t colour[3])
{
    int64_t left = x, count = (int64_t)strlen(text);
    uint8_t ink[3];
    bool bright = 2 * colour[0] + 3 * colour[1] + colour[2] > 3 * 255;
    memset(ink, bright ? 0 : 255, sizeof ink);
    fill(image, left, y, left + count * TT_DRAW_TEXT_WIDTH + MARGIN, (int64_t)y + TT_DRAW_TEXT_HEIGHT,
         colour);
    for (int64_t i = 0; i < count; i++)
        draw_letter(image, left + MARGIN + i * TT_DRAW_TEXT_WIDTH, (int64_t)y + MARGIN, text[i], ink);
}
