#include "tensor/dtype.h"

struct dtype_facts {
    uint8_t bytes;
    bool is_float;
    const char *name;
    const char *torch_name;
};

static const struct dtype_facts table[TT_DTYPE_COUNT] = {
    [TT_DTYPE_NONE] = {0, false, "none", "none"},
    [TT_F32] = {4, true, "F32", "float32"},
    [TT_BF16] = {2, true, "BF16", "bfloat16"},
    [TT_F16] = {2, true, "F16", "float16"},
    [TT_F64] = {8, true, "F64", "float64"},
    [TT_I64] = {8, false, "I64", "int64"},
    [TT_I32] = {4, false, "I32", "int32"},
    [TT_I16] = {2, false, "I16", "int16"},
    [TT_I8] = {1, false, "I8", "int8"},
    [TT_U8] = {1, false, "U8", "uint8"},
    [TT_BOOL] = {1, false, "BOOL", "bool"},
    [TT_U16] = {2, false, "U16", "uint16"},
    [TT_U32] = {4, false, "U32", "uint32"},
    [TT_U64] = {8, false, "U64", "uint64"},
    [TT_F8_E4M3] = {1, true, "F8_E4M3", "float8_e4m3fn"},
    [TT_F8_E5M2] = {1, true, "F8_E5M2", "float8_e5m2"},
    [TT_F8_E8M0] = {1, true, "F8_E8M0", "float8_e8m0fnu"},
};

/* Short spellings that configuration files and torch also accept. */
static const struct {
    const char *name;
    tt_dtype dtype;
} aliases[] = {
    {"bf16", TT_BF16}, {"fp16", TT_F16},   {"half", TT_F16}, {"fp32", TT_F32},
    {"float", TT_F32}, {"double", TT_F64}, {"fp64", TT_F64}, {"long", TT_I64},
};

static const struct dtype_facts *facts(tt_dtype dtype)
{
    return &table[(unsigned)dtype < TT_DTYPE_COUNT ? dtype : TT_DTYPE_NONE];
}

size_t tt_dtype_bytes(tt_dtype dtype)
{
    return facts(dtype)->bytes;
}

const char *tt_dtype_name(tt_dtype dtype)
{
    return facts(dtype)->name;
}

const char *tt_dtype_torch_name(tt_dtype dtype)
{
    return facts(dtype)->torch_name;
}

bool tt_dtype_is_float(tt_dtype dtype)
{
    return facts(dtype)->is_float;
}

tt_dtype tt_dtype_from_name(const char *name, size_t bytes)
{
    for (int i = 1; i < TT_DTYPE_COUNT; i++) {
        if (strlen(table[i].name) == bytes && memcmp(table[i].name, name, bytes) == 0) return (tt_dtype)i;
    }
    return TT_DTYPE_NONE;
}

tt_dtype tt_dtype_from_torch_name(const char *name)
{
    if (strncmp(name, "torch.", 6) == 0) name += 6;
    for (int i = 1; i < TT_DTYPE_COUNT; i++) {
        if (strcmp(table[i].torch_name, name) == 0) return (tt_dtype)i;
    }
    for (size_t i = 0; i < sizeof aliases / sizeof aliases[0]; i++) {
        if (strcmp(aliases[i].name, name) == 0) return aliases[i].dtype;
    }
    return TT_DTYPE_NONE;
}

static inline float float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* Selects instead of branches, so that loops over these two vectorise. */
static inline float f16_to_f32(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000u) << 16, magnitude = (uint32_t)(half & 0x7fffu) << 13;
    uint32_t normal = magnitude + (112u << 23); /* exponent bias 15 -> 127 */
    /* subnormals are multiples of 2^-24 */
    uint32_t tiny = bits_of((float)(int32_t)(half & 0x7fffu) * 0x1p-24f);
    uint32_t bits = magnitude < 0x00800000u ? tiny : normal;
    bits = magnitude >= 0x0f800000u ? magnitude | 0x7f800000u : bits; /* infinity and NaN */
    return float_of(bits | sign);
}

static inline uint16_t f32_to_f16(float value)
{
    uint32_t bits = bits_of(value), magnitude = bits & 0x7fffffffu, sign = (bits >> 16) & 0x8000u;
    /* Rounds to nearest even while dropping 13 bits; a carry into the exponent is correct. */
    uint32_t normal = (magnitude - (112u << 23) + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
    /* The addition of 0.5, whose last place is 2^-24, rounds to the subnormal grid below 2^-14. */
    uint32_t tiny = bits_of(float_of(magnitude) + 0.5f) - 0x3f000000u;
    uint32_t half = magnitude < 0x38800000u ? tiny : normal;
    half = magnitude >= 0x477ff000u ? 0x7c00u : half; /* 65520 and more round to infinity */
    half = magnitude > 0x7f800000u ? 0x7e00u | ((magnitude >> 13) & 0x3ffu) : half;
    return (uint16_t)(half | sign);
}

float tt_f16_to_f32(uint16_t bits)
{
    return f16_to_f32(bits);
}

uint16_t tt_f32_to_f16(float value)
{
    return f32_to_f16(value);
}

/* double -> float, rounded to odd: a second rounding to fewer than 23 bits then equals a single rounding (Boldo and
 * Melquiond, "When double rounding is odd", 2005). */
static inline float f64_to_f32_odd(double value)
{
    float rounded = (float)value;
    double back = (double)rounded;
    if (back == value || value != value) return rounded;
    uint32_t bits = bits_of(rounded);
    double magnitude = value < 0 ? -value : value;
    if ((back < 0 ? -back : back) > magnitude) bits--;
    return float_of(bits | 1u);
}

static void widen(float *to, const void *from, tt_dtype from_dtype, size_t count)
{
    const uint16_t *narrow = from;
    if (from_dtype == TT_BF16) {
        for (size_t i = 0; i < count; i++) to[i] = tt_bf16_to_f32(narrow[i]);
    } else if (from_dtype == TT_F16) {
        for (size_t i = 0; i < count; i++) to[i] = f16_to_f32(narrow[i]);
    } else {
        memcpy(to, from, count * sizeof *to);
    }
}

static void narrow_from_f32(void *to, tt_dtype to_dtype, const float *from, size_t count)
{
    uint16_t *narrow = to;
    double *wide = to;
    if (to_dtype == TT_BF16) {
        for (size_t i = 0; i < count; i++) narrow[i] = tt_f32_to_bf16(from[i]);
    } else if (to_dtype == TT_F16) {
        for (size_t i = 0; i < count; i++) narrow[i] = f32_to_f16(from[i]);
    } else if (to_dtype == TT_F64) {
        for (size_t i = 0; i < count; i++) wide[i] = (double)from[i];
    } else {
        memcpy(to, from, count * sizeof *from);
    }
}

static bool is_convertible(tt_dtype dtype)
{
    return dtype == TT_F32 || dtype == TT_BF16 || dtype == TT_F16 || dtype == TT_F64;
}

bool tt_dtype_convert(void *to, tt_dtype to_dtype, const void *from, tt_dtype from_dtype, size_t count)
{
    enum { BLOCK = 1024 };
    if (to_dtype == from_dtype && from_dtype != TT_DTYPE_NONE) {
        if (count > 0) memmove(to, from, count * tt_dtype_bytes(from_dtype));
        return true;
    }
    if (!is_convertible(to_dtype) || !is_convertible(from_dtype)) return false;
    if (to_dtype == TT_F32 && from_dtype != TT_F64) {
        widen(to, from, from_dtype, count);
        return true;
    }
    if (from_dtype == TT_F32) {
        narrow_from_f32(to, to_dtype, from, count);
        return true;
    }
    /* Every other pair is converted through float, block by block. This is exact, except for F64, which is rounded to
     * odd unless the target is float. */
    float block[BLOCK];
    size_t from_bytes = tt_dtype_bytes(from_dtype), to_bytes = tt_dtype_bytes(to_dtype);
    for (size_t done = 0; done < count; done += BLOCK) {
        size_t part = count - done < BLOCK ? count - done : BLOCK;
        const char *source = (const char *)from + done * from_bytes;
        if (from_dtype == TT_F64) {
            const double *wide = (const double *)(const void *)source;
            for (size_t i = 0; i < part; i++)
                block[i] = to_dtype == TT_F32 ? (float)wide[i] : f64_to_f32_odd(wide[i]);
        } else {
            widen(block, source, from_dtype, part);
        }
        narrow_from_f32((char *)to + done * to_bytes, to_dtype, block, part);
    }
    return true;
}
