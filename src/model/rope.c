/* Tables of rotary positions, rounded where transformers rounds (frequencies and angles in fp32), because models were
 * trained with these values. Types: modeling_rope_utils.py of transformers; yarn: Peng et al., arXiv 2309.00071. */
#include <math.h>
#include "model/model.h"

static const double two_pi = 6.283185307179586476925;

/* The Llama 3.1 rule: long waves are slowed by `factor`, short waves are unchanged, waves between are blended. */
static double llama3_frequency(const struct tt_rope *rope, double frequency)
{
    double original = (double)rope->original_max_position, wavelength = two_pi / frequency;
    if (wavelength > original / rope->low_freq_factor) return frequency / rope->factor;
    if (wavelength < original / rope->high_freq_factor) return frequency;
    double smooth =
        (original / wavelength - rope->low_freq_factor) / (rope->high_freq_factor - rope->low_freq_factor);
    return (1 - smooth) * frequency / rope->factor + smooth * frequency;
}

/* The dimension whose wave turns `rotations` times over the original length. */
static double yarn_dimension(const struct tt_rope *rope, double rotations)
{
    double original = (double)rope->original_max_position;
    return (double)rope->columns * log(original / (rotations * two_pi)) / (2 * log(rope->theta));
}

static double yarn_frequency(const struct tt_rope *rope, double frequency, int64_t index)
{
    double low = yarn_dimension(rope, rope->beta_fast), high = yarn_dimension(rope, rope->beta_slow);
    if (rope->truncate) {
        low = floor(low);
        high = ceil(high);
    }
    low = fmax(low, 0);
    high = fmin(high, (double)rope->columns - 1);
    if (low == high) high += 0.001; /* the reference's guard against 0 / 0 */
    double ramp = fmin(fmax(((double)index - low) / (high - low), 0), 1);
    return frequency / rope->factor * ramp + frequency * (1 - ramp);
}

static double frequency_of(const struct tt_rope *rope, int64_t index)
{
    double frequency = (float)pow(rope->theta, -(double)(2 * index) / (double)rope->columns);
    switch (rope->type) {
    case TT_ROPE_LINEAR:
        return frequency / rope->factor;
    case TT_ROPE_LLAMA3:
        return llama3_frequency(rope, frequency);
    case TT_ROPE_YARN:
        return yarn_frequency(rope, frequency, index);
    case TT_ROPE_LONGROPE: /* has its own function */
    case TT_ROPE_DEFAULT:
        break;
    }
    return frequency;
}

/* Ding et al., arXiv 2402.13753. */
static float longrope_frequency(const struct tt_rope *rope, int64_t positions, int64_t index)
{
    bool beyond = positions > rope->original_max_position;
    float power = (float)pow(rope->theta, (double)(2 * index) / (double)rope->columns);
    return 1.0f / ((beyond ? rope->long_factor[index] : rope->short_factor[index]) * power);
}

void tt_model_fill_rope(const struct tt_rope *rope, int64_t positions, float *cos_PE, float *sin_PE)
{
    int64_t half = rope->columns / 2;
    bool longrope = rope->type == TT_ROPE_LONGROPE;
    double scale = rope->type == TT_ROPE_YARN || longrope ? rope->attention_factor : 1;
    for (int64_t e = 0; e < half; e++) {
        float frequency = longrope ? longrope_frequency(rope, positions, e) : (float)frequency_of(rope, e);
        for (int64_t p = 0; p < positions; p++) {
            float angle = (float)p * frequency;
            cos_PE[p * half + e] = (float)(cos((double)angle) * scale);
            sin_PE[p * half + e] = (float)(sin((double)angle) * scale);
        }
    }
}
