/* The vector layer of the cpu kernels: TT_VECTOR_LANES floats at a time in GCC's vector types. The operators
 * + - * / & | << on them compile to single instructions, and a * b + c to a fused multiply-add where the machine
 * has one. vector_math_passes.h includes this file once per instruction set (hence no include guard); the short
 * names are macros for the names of that set.
 *
 *     vf, vi, vu            TT_VECTOR_LANES of float, int32_t, uint32_t
 *     vload, vstore         TT_VECTOR_LANES elements from / to f32 or bf16 (`bf16` should be a constant after inlining)
 *     vload_some, ...       the first n of them; the other lanes are 0 / are not touched
 *     vexp, vexp2           saturate outside the range of float; NaN stays NaN
 *     vselect(mask, a, b)   mask lanes are all ones (a) or zero (b), as comparisons make them */
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include "tensor/dtype.h"

#define TT_INLINE static inline __attribute__((always_inline, unused))

#define vf TT_PASS(vf)
#define vi TT_PASS(vi)
#define vu TT_PASS(vu)
#define vh TT_PASS(vh)
#define vf_unaligned TT_PASS(vf_unaligned)
#define vh_unaligned TT_PASS(vh_unaligned)
#define vsplat TT_PASS(vsplat)
#define vsplat_int TT_PASS(vsplat_int)
#define vselect TT_PASS(vselect)
#define vmax TT_PASS(vmax)
#define vmin TT_PASS(vmin)
#define vmultiply_add TT_PASS(vmultiply_add)
#define vsum TT_PASS(vsum)
#define vmax_of TT_PASS(vmax_of)
#define vany TT_PASS(vany)
#define vbf16_widen TT_PASS(vbf16_widen)
#define vbf16_round TT_PASS(vbf16_round)
#define vload TT_PASS(vload)
#define vstore TT_PASS(vstore)
#define vload_some TT_PASS(vload_some)
#define vload_part TT_PASS(vload_part)
#define vstore_part TT_PASS(vstore_part)
#define vstore_some TT_PASS(vstore_some)
#define vround_base TT_PASS(vround_base)
#define vtimes_power TT_PASS(vtimes_power)
#define vexp TT_PASS(vexp)
#define vexp2 TT_PASS(vexp2)
#define vsigmoid TT_PASS(vsigmoid)
#define vtanh TT_PASS(vtanh)

typedef float vf __attribute__((vector_size(4 * TT_VECTOR_LANES), may_alias));
typedef int32_t vi __attribute__((vector_size(4 * TT_VECTOR_LANES), may_alias));
typedef uint32_t vu __attribute__((vector_size(4 * TT_VECTOR_LANES), may_alias));
typedef uint16_t vh __attribute__((vector_size(2 * TT_VECTOR_LANES), may_alias));
typedef float vf_unaligned __attribute__((vector_size(4 * TT_VECTOR_LANES), aligned(4), may_alias));
typedef uint16_t vh_unaligned __attribute__((vector_size(2 * TT_VECTOR_LANES), aligned(2), may_alias));

TT_INLINE vf vsplat(float x)
{
    return x - (vf){0}; /* minus, so that -0 stays -0 */
}

TT_INLINE vi vsplat_int(int32_t x)
{
    return x - (vi){0};
}

TT_INLINE vf vselect(vi mask, vf a, vf b)
{
#if TT_VECTOR_LANES == 8 && defined(__x86_64__)
    return (vf)_mm256_blendv_ps((__m256)b, (__m256)a, (__m256)mask);
#else
    return (vf)(((vi)a & mask) | ((vi)b & ~mask));
#endif
}

/* a > b ? a : b and a < b ? a : b, lane by lane; b when either is NaN, as the machine instruction does. */
TT_INLINE vf vmax(vf a, vf b)
{
#if TT_VECTOR_LANES == 16
    return (vf)_mm512_max_ps((__m512)a, (__m512)b);
#elif TT_VECTOR_LANES == 8
    return (vf)_mm256_max_ps((__m256)a, (__m256)b);
#elif defined(__x86_64__)
    return (vf)_mm_max_ps((__m128)a, (__m128)b);
#else
    return vselect((vi)(a > b), a, b);
#endif
}

/* a * b + c, rounded once where the instruction set can. Sums that must be equal bit for bit all use it, so that
 * the compiler does not choose which ones to fuse. */
TT_INLINE vf vmultiply_add(vf a, vf b, vf c)
{
#if TT_VECTOR_LANES == 16
    return (vf)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif TT_VECTOR_LANES == 8
    return (vf)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#else
    return a * b + c;
#endif
}

TT_INLINE vf vmin(vf a, vf b)
{
#if TT_VECTOR_LANES == 16
    return (vf)_mm512_min_ps((__m512)a, (__m512)b);
#elif TT_VECTOR_LANES == 8
    return (vf)_mm256_min_ps((__m256)a, (__m256)b);
#elif defined(__x86_64__)
    return (vf)_mm_min_ps((__m128)a, (__m128)b);
#else
    return vselect((vi)(a < b), a, b);
#endif
}

/* The sum over the lanes, by halves. */
TT_INLINE float vsum(vf x)
{
    float lanes[TT_VECTOR_LANES];
    memcpy(lanes, &x, sizeof lanes);
    for (int half = TT_VECTOR_LANES / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++) lanes[i] += lanes[i + half];
    return lanes[0];
}

/* The largest lane; NaN lanes may be ignored. */
TT_INLINE float vmax_of(vf x)
{
    float best = x[0];
    for (int i = 1; i < TT_VECTOR_LANES; i++)
        if (x[i] > best) best = x[i];
    return best;
}

/* Whether any lane of a mask is set. */
TT_INLINE bool vany(vi mask)
{
#if TT_VECTOR_LANES == 16
    return _mm512_movepi32_mask((__m512i)mask) != 0;
#elif TT_VECTOR_LANES == 8
    return _mm256_movemask_ps((__m256)mask) != 0;
#else
    int32_t any = 0;
    for (int i = 0; i < TT_VECTOR_LANES; i++) any |= mask[i];
    return any != 0;
#endif
}

/* bf16 is the upper half of a float. */
TT_INLINE vf vbf16_widen(vh bits)
{
#if TT_VECTOR_LANES == 16
    return (vf)_mm512_slli_epi32(_mm512_cvtepu16_epi32((__m256i)bits), 16);
#elif TT_VECTOR_LANES == 8
    return (vf)_mm256_slli_epi32(_mm256_cvtepu16_epi32((__m128i)bits), 16);
#else
    return (vf)(__builtin_convertvector(bits, vu) << 16);
#endif
}

/* The same as tt_f32_to_bf16: to nearest even, NaN stays NaN. */
TT_INLINE vh vbf16_round(vf x)
{
    vu bits = (vu)x;
    vf rounded = (vf)(bits + 0x7fffu + ((bits >> 16) & 1u));
    vu upper = (vu)vselect((vi)(x != x), (vf)(bits | 0x00400000u), rounded) >> 16;
#if TT_VECTOR_LANES == 16
    return (vh)_mm512_cvtepi32_epi16((__m512i)upper);
#elif TT_VECTOR_LANES == 8
    return (vh)_mm_packus_epi32(_mm256_castsi256_si128((__m256i)upper),
                                _mm256_extracti128_si256((__m256i)upper, 1));
#else
    return __builtin_convertvector(upper, vh);
#endif
}

TT_INLINE vf vload(const void *from, int64_t index, bool bf16)
{
    if (bf16) return vbf16_widen((vh) * (const vh_unaligned *)((const uint16_t *)from + index));
    return (vf) * (const vf_unaligned *)((const float *)from + index);
}

TT_INLINE void vstore(void *to, int64_t index, bool bf16, vf x)
{
    if (bf16)
        *(vh_unaligned *)((uint16_t *)to + index) = (vh_unaligned)vbf16_round(x);
    else
        *(vf_unaligned *)((float *)to + index) = (vf_unaligned)x;
}

TT_INLINE vf vload_some(const void *from, int64_t index, bool bf16, int64_t n)
{
    float lanes[TT_VECTOR_LANES] = {0};
    for (int64_t i = 0; i < n; i++)
        lanes[i] =
            bf16 ? tt_bf16_to_f32(((const uint16_t *)from)[index + i]) : ((const float *)from)[index + i];
    return vload(lanes, 0, false);
}

TT_INLINE void vstore_some(void *to, int64_t index, bool bf16, vf x, int64_t n)
{
    float lanes[TT_VECTOR_LANES];
    vstore(lanes, 0, false, x);
    for (int64_t i = 0; i < n; i++) {
        if (bf16)
            ((uint16_t *)to)[index + i] = tt_f32_to_bf16(lanes[i]);
        else
            ((float *)to)[index + i] = lanes[i];
    }
}

/* A vector, or the `left` elements that are fewer. */
TT_INLINE vf vload_part(const void *from, int64_t index, bool bf16, int64_t left)
{
    return left >= TT_VECTOR_LANES ? vload(from, index, bf16) : vload_some(from, index, bf16, left);
}

TT_INLINE void vstore_part(void *to, int64_t index, bool bf16, vf x, int64_t left)
{
    if (left >= TT_VECTOR_LANES)
        vstore(to, index, bf16, x);
    else
        vstore_some(to, index, bf16, x, left);
}

/* exp(x) = 2^n exp(r) with n = round(x / ln 2) and |r| <= ln(2) / 2 (the reduction of Cody and Waite, with ln 2
 * in two parts of which the first has trailing zeros). exp(r) = 1 + r + r^2 q(r), with q of degree 4 by the
 * Remez exchange for the least relative error, 3.1e-9 before rounding; about 1 ulp in all. Adding 1.5 * 2^23
 * rounds to an integer and leaves it in the low mantissa bits, which a shift moves to the exponent. The even and
 * odd terms of q are summed separately (Estrin), because a loop of exps is bound by the latency of its
 * polynomial. */
TT_INLINE vf vround_base(void)
{
    return vsplat(0x1.8p23f);
}

TT_INLINE vf vtimes_power(vf x, vf shifted)
{
    return (vf)((vu)x + ((vu)shifted << 23));
}

TT_INLINE vf vexp(vf x)
{
    x = vmin(vsplat(88.7f), vmax(vsplat(-87.3f), x)); /* constants first: NaN passes */
    vf shifted = x * 0x1.715476p+0f + vround_base();
    vf n = shifted - vround_base();
    vf r = x - n * 0x1.62e4p-1f;
    r = r - n * 0x1.7f7d1cp-20f;
    vf r2 = r * r, low = 0x1.555492p-3f * r + 0x1.fffffcp-2f, high = 0x1.1239f2p-7f * r + 0x1.5558f2p-5f;
    vf q = (0x1.6a241ap-10f * r2 + high) * r2 + low;
    return vtimes_power((q * r2 + r) + 1.0f, shifted);
}

/* 2^x: n = round(x), r = x - n, and the same polynomial with the powers of ln 2 in its coefficients. */
TT_INLINE vf vexp2(vf x)
{
    x = vmin(vsplat(127.9f), vmax(vsplat(-126.0f), x));
    vf shifted = x + vround_base();
    vf r = x - (shifted - vround_base());
    vf r2 = r * r, low = 0x1.c6af88p-5f * r + 0x1.ebfbdcp-3f, high = 0x1.5f0402p-10f * r + 0x1.3b2e0cp-7f;
    vf q = (0x1.414ea6p-13f * r2 + high) * r2 + low;
    return vtimes_power((q * r2 + 0x1.62e430p-1f * r) + 1.0f, shifted);
}

TT_INLINE vf vsigmoid(vf x)
{
    return 1.0f / (1.0f + vexp(-x));
}

/* Lambert's continued fraction below 0.8, x / (1 + x^2 / (3 + x^2 / (5 + x^2 / (7 + x^2 / 9)))), whose relative error
 * is at most 2e-8 there; above, where nothing cancels, (1 - e) / (1 + e) with e = exp(-2 |x|). */
TT_INLINE vf vtanh(vf x)
{
    vf x2 = x * x, size = vmax(x, -x), e = vexp(-2.0f * size), large = (1.0f - e) / (1.0f + e);
    vf near = x * ((x2 + 105.0f) * x2 + 945.0f) / ((15.0f * x2 + 420.0f) * x2 + 945.0f);
    vf far = vselect((vi)(x < vsplat(0)), -large, large);
    return vselect((vi)(size < vsplat(0.8f)), near, far);
}
