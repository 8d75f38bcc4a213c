#include "monitor/run_colour.h"

#include <math.h>

enum { HUES = 12, STEP = 150 /* degrees to the next run's hue: neighbours in the list differ most */ };

/* A share of light as a number of an sRGB file (IEC 61966-2-1). */
static uint32_t encode(double light)
{
    double value = light <= 0.0031308 ? 12.92 * light : 1.055 * pow(light, 1 / 2.4) - 0.055;
    return (uint32_t)lround(255 * fmin(1.0, fmax(0.0, value)));
}

/* Oklab's lightness, chroma and hue (degrees) as sRGB; matrices: B. Ottosson, "A perceptual color space for image
 * processing" (2020). */
static uint32_t from_oklch(double lightness, double chroma, double hue)
{
    double angle = hue * acos(-1.0) / 180, a = chroma * cos(angle), b = chroma * sin(angle);
    double l = pow(lightness + 0.3963377774 * a + 0.2158037573 * b, 3);
    double m = pow(lightness - 0.1055613458 * a - 0.0638541728 * b, 3);
    double s = pow(lightness - 0.0894841775 * a - 1.2914855480 * b, 3);
    return encode(4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s) << 16 |
           encode(-1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s) << 8 |
           encode(-0.0041960863 * l - 0.7034186147 * m + 1.7076147010 * s);
}

uint32_t tt_run_colour(size_t run, size_t count)
{
    static const uint32_t few[] = {0x2f7ed8, 0xd9542b, 0x2a9d5c, 0xa65fd0, 0xc08a00, 0x0a9bb0};
    static const struct {
        double lightness, chroma, turn;
    } rounds[] = {{0.6, 0.17, 0},   {0.74, 0.13, 15}, {0.46, 0.15, 8},
                  {0.67, 0.09, 22}, {0.53, 0.1, 4},   {0.8, 0.1, 26}};
    if (count <= sizeof few / sizeof *few) return few[run % (sizeof few / sizeof *few)];
    size_t round = run / HUES % (sizeof rounds / sizeof *rounds);
    return from_oklch(rounds[round].lightness, rounds[round].chroma,
                      fmod((double)run * STEP + rounds[round].turn, 360));
}
