/* Compiles the kernels of one op once per instruction set. An op's file has two parts:
 *
 *     #ifndef TT_VECTOR_LANES                         first reading: everything but the kernels
 *     #include ...
 *     #define TT_VECTOR_SOURCE "backend/cpu/<op>.c"
 *     #include "backend/cpu/vector_math_passes.h"     reads the second part once per instruction set
 *     ... the op itself, which calls TT_BEST(stream, kernel)(...)
 *     #else
 *     static void TT_PASS(kernel)(...) { ... }             written with the types of vector_math.h
 *     #endif
 *
 * So one binary runs on plain x86-64 and uses AVX2 + FMA or AVX-512 where the machine has them. Other architectures
 * have one portable pass over 16-byte vectors. (There is no include guard: each op reads this file once.) Macros that a
 * kernel defines stay defined for the op itself, so none may have the name of an OpenMP clause. */
#include "backend/cpu/parallel.h"

#if defined(__x86_64__)
#include <immintrin.h>
#define TT_TEXT(x) #x
#if defined(__clang__)
#define TT_TARGET_BEGIN(isa)                                                                                 \
    _Pragma(TT_TEXT(clang attribute push(__attribute__((target(isa))), apply_to = function)))
#define TT_TARGET_END _Pragma("clang attribute pop")
#define TT_TARGET_AVX512 "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma"
#else
#define TT_TARGET_BEGIN(isa) _Pragma("GCC push_options") _Pragma(TT_TEXT(GCC target(isa)))
#define TT_TARGET_END _Pragma("GCC pop_options")
#define TT_TARGET_AVX512 "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,prefer-vector-width=512"
#endif

TT_TARGET_BEGIN(TT_TARGET_AVX512)
#define TT_VECTOR_LANES 16
#define TT_PASS(name) name##_avx512
#include "backend/cpu/vector_math.h"
#include TT_VECTOR_SOURCE
#undef TT_VECTOR_LANES
#undef TT_PASS
TT_TARGET_END

TT_TARGET_BEGIN("avx2,fma")
#define TT_VECTOR_LANES 8
#define TT_PASS(name) name##_avx2
#include "backend/cpu/vector_math.h"
#include TT_VECTOR_SOURCE
#undef TT_VECTOR_LANES
#undef TT_PASS
TT_TARGET_END
#endif

#define TT_VECTOR_LANES 4
#define TT_PASS(name) name##_portable
#include "backend/cpu/vector_math.h"
#include TT_VECTOR_SOURCE
#undef TT_VECTOR_LANES
#undef TT_PASS

/* The pass for the instruction set of the device of `stream`. */
#if defined(__x86_64__)
#define TT_BEST(stream, name)                                                                                \
    (tt_cpu_isa(stream) >= TT_CPU_AVX512 ? name##_avx512                                                     \
     : tt_cpu_isa(stream) >= TT_CPU_AVX2 ? name##_avx2                                                       \
                                         : name##_portable)
#else
#define TT_BEST(stream, name) ((void)(stream), name##_portable)
#endif
