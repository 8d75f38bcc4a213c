/* Blocks by the SHA extensions (Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2: SHA256RNDS2,
 * SHA256MSG1, SHA256MSG2). One instruction does two rounds; the state lies in two registers as it wants it: {f e b a}
 * and {h g d c}, the last letter in the highest word. */
#include "base/sha256_impl.h"

#if defined(__x86_64__)

#include <immintrin.h>

#define FAST __attribute__((target("sha,sse4.1,ssse3")))

bool sha256_has_instructions(void)
{
    unsigned a, b, c, d;
    __asm__("cpuid" : "=a"(a), "=b"(b), "=c"(c), "=d"(d) : "a"(0), "c"(0));
    if (a < 7 || !__builtin_cpu_supports("sse4.1")) return false;
    __asm__("cpuid" : "=a"(a), "=b"(b), "=c"(c), "=d"(d) : "a"(7), "c"(0));
    return (b >> 29 & 1) != 0;
}

/* The next four words of the schedule, from the last sixteen, the oldest first. */
FAST static inline __m128i extend(__m128i w0, __m128i w1, __m128i w2, __m128i w3)
{
    __m128i sum = _mm_add_epi32(_mm_sha256msg1_epu32(w0, w1), _mm_alignr_epi8(w3, w2, 4));
    return _mm_sha256msg2_epu32(sum, w3);
}

FAST static inline void four_rounds(__m128i *abef, __m128i *cdgh, __m128i words, int round)
{
    __m128i sum =
        _mm_add_epi32(words, _mm_loadu_si128((const __m128i *)(const void *)(sha256_constants + round)));
    *cdgh = _mm_sha256rnds2_epu32(*cdgh, *abef, sum);
    *abef = _mm_sha256rnds2_epu32(*abef, *cdgh, _mm_shuffle_epi32(sum, 0x0e));
}

FAST void sha256_add_fast(uint32_t state[8], const unsigned char *blocks, size_t count)
{
    const __m128i swap = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
    __m128i *stored = (__m128i *)(void *)state;
    const __m128i cdab = _mm_shuffle_epi32(_mm_loadu_si128(stored), 0xb1);
    const __m128i efgh = _mm_shuffle_epi32(_mm_loadu_si128(stored + 1), 0x1b);
    __m128i abef = _mm_alignr_epi8(cdab, efgh, 8), cdgh = _mm_blend_epi16(efgh, cdab, 0xf0);
    for (; count > 0; count--, blocks += 64) {
        const __m128i *from = (const __m128i *)(const void *)blocks;
        const __m128i abef_before = abef, cdgh_before = cdgh;
        __m128i w[4];
        for (int i = 0; i < 4; i++) {
            w[i] = _mm_shuffle_epi8(_mm_loadu_si128(from + i), swap);
            four_rounds(&abef, &cdgh, w[i], 4 * i);
        }
        for (int round = 16; round < 64; round += 16) {
            for (int i = 0; i < 4; i++) {
                w[i] = extend(w[i], w[(i + 1) % 4], w[(i + 2) % 4], w[(i + 3) % 4]);
                four_rounds(&abef, &cdgh, w[i], round + 4 * i);
            }
        }
        abef = _mm_add_epi32(abef, abef_before);
        cdgh = _mm_add_epi32(cdgh, cdgh_before);
    }
    const __m128i feba = _mm_shuffle_epi32(abef, 0x1b), dchg = _mm_shuffle_epi32(cdgh, 0xb1);
    _mm_storeu_si128(stored, _mm_blend_epi16(feba, dchg, 0xf0));
    _mm_storeu_si128(stored + 1, _mm_alignr_epi8(dchg, feba, 8));
}

#else

bool sha256_has_instructions(void)
{
    return false;
}

void sha256_add_fast(uint32_t state[8], const unsigned char *blocks, size_t count)
{
    sha256_add_plain(state, blocks, count);
}

#endif
