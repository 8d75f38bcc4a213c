#include "ops_peak.h"

#include <stdbool.h>
#include <string.h>

#include "base/clock.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

enum { STEPS = 100000, ROUNDS = 5 };

/* Runs STEPS steps and returns their FLOPs. The empty asm keeps the results alive, and hides from the compiler
 * that all chains are equal. */
typedef double unit_loop(void);

#define LOOP(type, chains, operation)                                                                        \
    type sum[chains];                                                                                        \
    memset(sum, 0, sizeof sum);                                                                              \
    _Pragma("GCC unroll 24") for (int i = 0; i < chains; i++) __asm__ volatile("" : "+v"(sum[i]));           \
    for (int step = 0; step < STEPS; step++) {                                                               \
        __asm__ volatile("" : "+v"(a), "+v"(b));                                                             \
        _Pragma("GCC unroll 24") for (int i = 0; i < chains; i++) sum[i] = operation;                        \
    }                                                                                                        \
    _Pragma("GCC unroll 24") for (int i = 0; i < chains; i++) __asm__ volatile("" : : "v"(sum[i]))

typedef float four __attribute__((vector_size(16)));

static double portable_loop(void)
{
    enum { CHAINS = 12 };
    four a = {1, 1, 1, 1}, b = a;
    LOOP(four, CHAINS, sum[i] + a * b);
    return 2.0 * 4 * CHAINS * STEPS;
}

#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) static double avx2_loop(void)
{
    enum { CHAINS = 12 };
    __m256 a = _mm256_set1_ps(1), b = a;
    LOOP(__m256, CHAINS, _mm256_fmadd_ps(a, b, sum[i]));
    return 2.0 * 8 * CHAINS * STEPS;
}

__attribute__((target("avx512f"))) static double avx512_loop(void)
{
    enum { CHAINS = 24 };
    __m512 a = _mm512_set1_ps(1), b = a;
    LOOP(__m512, CHAINS, _mm512_fmadd_ps(a, b, sum[i]));
    return 2.0 * 16 * CHAINS * STEPS;
}

__attribute__((target("avx512f,avx512bf16"))) static double pairs_loop(void)
{
    enum { CHAINS = 24 };
    __m512 a = _mm512_castsi512_ps(_mm512_set1_epi32(0x3f803f80)), b = a; /* ones */
    LOOP(__m512, CHAINS, _mm512_dpbf16_ps(sum[i], (__m512bh)a, (__m512bh)b));
    return 2.0 * 32 * CHAINS * STEPS;
}

/* Four tiles of sums from two and two tiles of zeros, as in a matrix product. */
__attribute__((target("amx-tile,amx-bf16"))) static double amx_loop(void)
{
    static const struct {
        unsigned char palette, start_row, reserved[14];
        unsigned short row_bytes[16];
        unsigned char rows[16];
    } config = {.palette = 1,
                .row_bytes = {64, 64, 64, 64, 64, 64, 64, 64},
                .rows = {16, 16, 16, 16, 16, 16, 16, 16}};
    _tile_loadconfig(&config);
    _tile_zero(4);
    _tile_zero(5);
    _tile_zero(6);
    _tile_zero(7);
    for (int step = 0; step < STEPS / 4; step++) {
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_release();
    return 4 * 2.0 * 16 * 16 * 32 * (STEPS / 4);
}
#endif

static double best_of(unit_loop *loop, int threads)
{
    double best = 0;
    for (int round = 0; round < ROUNDS; round++) {
        double flops = 0, start = tt_clock_seconds();
#pragma omp parallel for num_threads(threads) schedule(static, 1) reduction(+ : flops)
        for (int thread = 0; thread < threads; thread++) flops += loop();
        double rate = flops / (tt_clock_seconds() - start);
        if (rate > best) best = rate;
    }
    return best;
}

struct bench_peak bench_peak_of(const char *level, int threads)
{
    struct bench_peak peak = {.f32_unit = "multiply, add", .f32_flops = 0};
    unit_loop *loop = portable_loop;
#if defined(__x86_64__)
    bool wide = strncmp(level, "avx512", 6) == 0 || strcmp(level, "amx") == 0;
    if (wide) {
        peak.f32_unit = "fma of 512 bits";
        loop = avx512_loop;
    } else if (strcmp(level, "avx2") == 0) {
        peak.f32_unit = "fma of 256 bits";
        loop = avx2_loop;
    }
#endif
    peak.f32_flops = best_of(loop, threads);
    peak.bf16_unit = peak.f32_unit;
    peak.bf16_flops = peak.f32_flops;
#if defined(__x86_64__)
    bool tiles = strcmp(level, "amx") == 0;
    if (!tiles && strcmp(level, "avx512_bf16") != 0) return peak;
    double rate = best_of(tiles ? amx_loop : pairs_loop, threads);
    if (rate <= peak.f32_flops) return peak;
    peak.bf16_unit = tiles ? "tdpbf16ps" : "vdpbf16ps";
    peak.bf16_flops = rate;
#else
    (void)level;
#endif
    return peak;
}
