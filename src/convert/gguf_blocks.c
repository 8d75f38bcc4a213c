/* Encodes blocks of 32 weights with one scale: q4_0, q4_1, q5_0, q5_1 and q8_0 (gguf_types.h). */
#include <math.h>
#include <string.h>

#include "base/integer.h"
#include "convert/gguf_blocks_impl.h"
#include "convert/gguf_types.h"
#include "tensor/encode_isa.h"

enum { WEIGHTS = 32, HALF = WEIGHTS / 2 };

/* ---- Types ---- */

const struct tt_gguf_type_facts *tt_gguf_type_facts(enum tt_gguf_type type)
{
    static const struct tt_gguf_type_facts types[] = {
#define PLAIN(word, number_, name_, dtype_) {.name = name_, .number = number_, .dtype = dtype_, .weights = 1},
#define BLOCKS(word, number_, name_, weights_, bytes_, at_, halves_, encode_)                                \
    {.name = name_,                                                                                          \
     .number = number_,                                                                                      \
     .weights = weights_,                                                                                    \
     .bytes = bytes_,                                                                                        \
     .at = at_,                                                                                              \
     .halves = halves_,                                                                                      \
     .encode = encode_},
#include "convert/gguf_types.def"
#undef PLAIN
#undef BLOCKS
    };
    return &types[type];
}

enum tt_gguf_type tt_gguf_plain_type(tt_dtype dtype)
{
    for (int type = 0; type < TT_GGUF_TYPES; type++)
        if (dtype != TT_DTYPE_NONE && tt_gguf_type_facts(type)->dtype == dtype) return type;
    return TT_GGUF_TYPES;
}

uint64_t tt_gguf_type_bytes(enum tt_gguf_type type, int64_t weights)
{
    const struct tt_gguf_type_facts *facts = tt_gguf_type_facts(type);
    size_t bytes = facts->dtype != TT_DTYPE_NONE ? tt_dtype_bytes(facts->dtype) : facts->bytes;
    return (uint64_t)(weights / facts->weights) * bytes;
}

/* ---- Scales and rounding ---- */

/* 1 / d, where 0 stands for 1 / 0. */
static float inverse(float d)
{
    return d != 0 ? 1.0f / d : 0.0f;
}

/* The weight of the largest magnitude, of several the first. */
static float largest(const float *weights)
{
    float found = 0;
    for (int i = 0; i < WEIGHTS; i++)
        if (fabsf(weights[i]) > fabsf(found)) found = weights[i];
    return found;
}

static void bounds(const float *weights, float *least, float *most)
{
    *least = *most = weights[0];
    for (int i = 1; i < WEIGHTS; i++) {
        *least = weights[i] < *least ? weights[i] : *least;
        *most = weights[i] > *most ? weights[i] : *most;
    }
}

/* Cuts the fraction; 0 of a number that is none, as where a scale is below the least normal number. */
static int whole(float value, int most)
{
    if (!isfinite(value)) return 0;
    int code = (int)value;
    return code < most ? code : most;
}

/* The nearest integer, of halves the one away from 0. */
static int nearest(float value)
{
    if (!isfinite(value)) return 0;
    int code = (int)value;
    float rest = value - (float)code;
    return code + (rest >= 0.5f) - (rest <= -0.5f);
}

/* ---- Blocks ---- */

/* Codes of 4 bits share bytes with those half a block later; fifth bits stand in 32 bits before them. */
static uint8_t *put_codes(const int *codes, bool five, uint8_t *to)
{
    uint32_t fifth = 0;
    for (int i = 0; i < WEIGHTS; i++) fifth |= (uint32_t)(codes[i] >> 4) << i;
    for (int byte = 0; five && byte < 4; byte++) *to++ = (uint8_t)(fifth >> 8 * byte);
    for (int i = 0; i < HALF; i++) *to++ = (uint8_t)((codes[i] & 15) | (codes[i + HALF] & 15) << 4);
    return to;
}

/* The largest weight becomes the code 0: -8, or -16, steps. */
static void encode_centred(const float *weights, int64_t blocks, int centre, uint8_t *to)
{
    int codes[WEIGHTS];
    for (int64_t block = 0; block < blocks; block++, weights += WEIGHTS) {
        float d = largest(weights) / (float)-centre, scale = inverse(d);
        to = gguf_put_half(to, d);
        for (int i = 0; i < WEIGHTS; i++)
            codes[i] = whole(weights[i] * scale + ((float)centre + 0.5f), 2 * centre - 1);
        to = put_codes(codes, centre > 8, to);
    }
}

static void encode_from_least(const float *weights, int64_t blocks, int most, uint8_t *to)
{
    int codes[WEIGHTS];
    for (int64_t block = 0; block < blocks; block++, weights += WEIGHTS) {
        float low, high;
        bounds(weights, &low, &high);
        float d = (high - low) / (float)most, scale = inverse(d);
        to = gguf_put_half(gguf_put_half(to, d), low);
        for (int i = 0; i < WEIGHTS; i++) codes[i] = whole((weights[i] - low) * scale + 0.5f, most);
        to = put_codes(codes, most > 15, to);
    }
}

void gguf_encode_q4_0(const float *weights, int64_t blocks, uint8_t *to)
{
    encode_centred(weights, blocks, 8, to);
}

void gguf_encode_q5_0(const float *weights, int64_t blocks, uint8_t *to)
{
    encode_centred(weights, blocks, 16, to);
}

void gguf_encode_q4_1(const float *weights, int64_t blocks, uint8_t *to)
{
    encode_from_least(weights, blocks, 15, to);
}

void gguf_encode_q5_1(const float *weights, int64_t blocks, uint8_t *to)
{
    encode_from_least(weights, blocks, 31, to);
}

void gguf_encode_q8_0(const float *weights, int64_t blocks, uint8_t *to)
{
    for (int64_t block = 0; block < blocks; block++, weights += WEIGHTS) {
        float d = fabsf(largest(weights)) / 127.0f, scale = inverse(d);
        to = gguf_put_half(to, d);
        for (int i = 0; i < WEIGHTS; i++) *to++ = (uint8_t)nearest(weights[i] * scale);
    }
}

/* ---- Checks ---- */

static bool are_finite(const float *weights, int64_t count)
{
    uint32_t bad = 0;
    for (int64_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, weights + i, sizeof bits);
        bad |= (bits & 0x7f800000u) == 0x7f800000u;
    }
    return bad == 0;
}

static bool has_finite_scales(const struct tt_gguf_type_facts *facts, int64_t blocks, const uint8_t *data)
{
    for (int64_t block = 0; block < blocks; block++)
        for (int i = 0; i < facts->halves; i++)
            if ((data[(size_t)block * facts->bytes + facts->at + 2 * (size_t)i + 1] & 0x7c) == 0x7c)
                return false;
    return true;
}

tt_status tt_gguf_encode(enum tt_gguf_type type, const float *weights, int64_t count, uint8_t *to)
{
    const struct tt_gguf_type_facts *facts = tt_gguf_type_facts(type);
    if (!are_finite(weights, count)) return tt_fail(TT_ERR_DATA, "a value is not finite");
    facts->encode(weights, count / facts->weights, to);
    if (has_finite_scales(facts, count / facts->weights, to)) return TT_OK;
    return tt_fail(TT_ERR_DATA, "a scale of %s is too large for float16", facts->name);
}
