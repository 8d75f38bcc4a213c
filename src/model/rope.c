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
    case TT_ROPE_PROPORTIONAL:
        return index < rope->turning ? frequency / rope->factor : 0;
    case TT_ROPE_LONGROPE: /* has its own function */
    case TT_ROPE_DYNAMIC:
    case TT_ROPE_DEFAULT:
    case TT_ROPE_TYPES:
        break;
    }
    return frequency;
}

/* Ding et al., arXiv 2402.13753. */
static float longrope_frequency(const struct tt_rope *rope, int64_t length, int64_t index)
{
    bool beyond = length > rope->original_max_position;
    float power = (float)pow(rope->theta, (double)(2 * index) / (double)rope->columns);
    return 1.0f / ((beyond ? rope->long_factor[index] : rope->short_factor[index]) * power);
}

static void add_end(struct tt_rope_parts *parts, int64_t end)
{
    int at = 0;
    while (at < parts->count && parts->ends[at] < end) at++;
    if (at < parts->count && parts->ends[at] == end) return;
    for (int i = parts->count; i > at; i--) parts->ends[i] = parts->ends[i - 1];
    parts->ends[at] = end;
    parts->count++;
}

void tt_rope_parts_make(const struct tt_model_facts *facts, int64_t length, struct tt_rope_parts *parts)
{
    *parts = (struct tt_rope_parts){0};
    add_end(parts, length);
    for (int i = 0; i < facts->rope_count; i++) {
        const struct tt_rope *rope = &facts->ropes[i];
        bool changes = rope->type == TT_ROPE_LONGROPE && rope->original_max_position < length;
        if (changes) add_end(parts, rope->original_max_position);
    }
    for (int p = 0; p < parts->count; p++) {
        parts->first_rows[p] = parts->rows;
        parts->rows += parts->ends[p];
    }
}

int tt_rope_part_of(const struct tt_rope_parts *parts, int64_t length)
{
    int part = 0;
    while (part < parts->count - 1 && length > parts->ends[part]) part++;
    return part;
}

static double temperature_at(const struct tt_rope *rope, int64_t position)
{
    if (rope->temperature == 0) return 1;
    return 1 + rope->temperature * log(1 + (double)(position / rope->original_max_position));
}

/* The rows of sequences of at most `length` tokens. */
static void fill_part(const struct tt_rope *rope, int64_t length, float *cos_PE, float *sin_PE)
{
    int64_t half = rope->columns / 2;
    bool longrope = rope->type == TT_ROPE_LONGROPE;
    double scale = rope->type == TT_ROPE_YARN || longrope ? rope->attention_factor : 1;
    for (int64_t e = 0; e < half; e++) {
        float frequency = longrope ? longrope_frequency(rope, length, e) : (float)frequency_of(rope, e);
        for (int64_t p = 0; p < length; p++) {
            float angle = (float)p * frequency;
            double factor = scale * temperature_at(rope, p);
            cos_PE[p * half + e] = (float)(cos((double)angle) * factor);
            sin_PE[p * half + e] = (float)(sin((double)angle) * factor);
        }
    }
}

void tt_model_fill_rope(const struct tt_rope *rope, const struct tt_rope_parts *parts, float *cos_PE,
                        float *sin_PE)
{
    for (int p = 0; p < parts->count; p++) {
        int64_t at = parts->first_rows[p] * (rope->columns / 2);
        fill_part(rope, parts->ends[p], cos_PE + at, sin_PE + at);
    }
}
