/* Private header of the sources that encode: one function for any processor, one for AVX2. The order of every rounding
 * is that of bitsandbytes on a CPU, so the compiler must not contract operations to fused multiply-adds: the AVX2 path
 * is compiled without them. Included after all other headers. */
#ifndef TT_TENSOR_ENCODE_ISA_H
#define TT_TENSOR_ENCODE_ISA_H

#include <stdbool.h>
#include <stdint.h>

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("fp-contract=off")
#else
#pragma STDC FP_CONTRACT OFF
#endif

enum { TT_ENCODE_PIECE = 4096, TT_ENCODE_LANES = 8 }; /* weights widened at a time; floats of a vector */

static const float tt_encode_least_absmax = 1e-38f; /* the library's divisor where all weights are 0 */

#if defined(__x86_64__)
#include <immintrin.h>
#define AVX2 __attribute__((target("avx2,f16c")))
static inline bool has_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); /* f16c came before fma */
}
#else
#define AVX2
static inline bool has_avx2(void)
{
    return false;
}
#endif
/* The same code for any processor and for AVX2, in the compiler's vectors. */
#define BODY static inline __attribute__((always_inline))
#pragma GCC diagnostic ignored "-Wpsabi" /* they stay within inlined functions */

#define BEST(name) (has_avx2() ? name##_avx2 : name##_any)

#endif
