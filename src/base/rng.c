#include "base/rng.h"

#include <math.h>
#include <string.h>

/* Salmon et al., table 2 and section 3.3: multipliers and the key schedule's Weyl increments (golden ratio
 * and sqrt(3) - 1). Ten rounds. */
#define PHILOX_M0 0xD2511F53u
#define PHILOX_M1 0xCD9E8D57u
#define PHILOX_W0 0x9E3779B9u
#define PHILOX_W1 0xBB67AE85u

/* Derivations use blocks that no draw can reach: draws of this file have counter_hi 0, and users of tt_rng_block must
 * stay below these. */
#define DERIVE_NAME 0xF100000000000000u
#define DERIVE_INDEX 0xF200000000000000u
#define PERMUTE_ROUND 0xF300000000000000u

void tt_rng_block(struct tt_rng rng, uint64_t counter_hi, uint64_t counter_lo, uint32_t out[4])
{
    uint32_t c0 = (uint32_t)counter_lo, c1 = (uint32_t)(counter_lo >> 32);
    uint32_t c2 = (uint32_t)counter_hi, c3 = (uint32_t)(counter_hi >> 32);
    uint32_t k0 = (uint32_t)rng.key, k1 = (uint32_t)(rng.key >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)PHILOX_M0 * c0, p1 = (uint64_t)PHILOX_M1 * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += PHILOX_W0;
        k1 += PHILOX_W1;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

static uint64_t first_u64(struct tt_rng rng, uint64_t counter_hi, uint64_t counter_lo)
{
    uint32_t words[4];
    tt_rng_block(rng, counter_hi, counter_lo, words);
    return (uint64_t)words[1] << 32 | words[0];
}

struct tt_rng tt_rng_make(uint64_t seed)
{
    return (struct tt_rng){seed};
}

/* Chains the name through the cipher, eight bytes at a time, the number of bytes left in the counter: names
 * that are prefixes of each other end in different streams. */
struct tt_rng tt_rng_derive(struct tt_rng parent, const char *name)
{
    size_t left = strlen(name);
    do {
        size_t taken = left < 8 ? left : 8;
        uint64_t chunk = 0;
        for (size_t i = 0; i < taken; i++) chunk |= (uint64_t)(unsigned char)name[i] << (8 * i);
        parent.key = first_u64(parent, DERIVE_NAME | left, chunk);
        name += taken;
        left -= taken;
    } while (left > 0);
    return parent;
}

struct tt_rng tt_rng_derive_index(struct tt_rng parent, uint64_t index)
{
    return (struct tt_rng){first_u64(parent, DERIVE_INDEX, index)};
}

uint64_t tt_rng_u64(struct tt_rng rng, uint64_t counter)
{
    return first_u64(rng, 0, counter);
}

double tt_rng_uniform(struct tt_rng rng, uint64_t counter)
{
    return (double)(tt_rng_u64(rng, counter) >> 11) * 0x1p-53;
}

double tt_rng_normal(struct tt_rng rng, uint64_t counter)
{
    uint32_t words[4];
    tt_rng_block(rng, 0, counter, words);
    uint64_t a = (uint64_t)words[1] << 32 | words[0], b = (uint64_t)words[3] << 32 | words[2];
    /* (0, 1], so that the logarithm is finite. */
    double u = (double)((a >> 11) + 1) * 0x1p-53, v = (double)(b >> 11) * 0x1p-53;
    return sqrt(-2.0 * log(u)) * cos(6.283185307179586476925 * v);
}

uint64_t tt_rng_below(struct tt_rng rng, uint64_t counter, uint64_t bound)
{
    /* Lemire, "Fast random integer generation in an interval", 2019: the high half of the product. */
    return (uint64_t)(((unsigned __int128)tt_rng_u64(rng, counter) * bound) >> 64);
}

/* A Feistel network over Z_a x Z_b with a * b just above count (Black and Rogaway, "Ciphers with arbitrary
 * finite domains", 2002): a cycle walk leaves the range with probability of about 1 / sqrt(count) only. */
uint64_t tt_rng_permute(struct tt_rng rng, uint64_t index, uint64_t count)
{
    enum { ROUNDS = 8 };
    uint64_t a = (uint64_t)sqrtl((long double)count);
    while (a > 1 && (a > 0xffffffffu || a * a > count)) a--;
    while (a == 0 || (a <= 0xffffffffu && a * a < count)) a++;
    uint64_t b = count / a + (count % a != 0);
    do {
        uint64_t left = index / b, right = index % b;
        for (uint64_t round = 0; round < ROUNDS; round++) {
            if (round % 2 == 0) {
                uint64_t word = first_u64(rng, PERMUTE_ROUND | round, right);
                left = (left + (uint64_t)(((unsigned __int128)word * a) >> 64)) % a;
            } else {
                uint64_t word = first_u64(rng, PERMUTE_ROUND | round, left);
                right = (right + (uint64_t)(((unsigned __int128)word * b) >> 64)) % b;
            }
        }
        index = left * b + right;
    } while (index >= count);
    return index;
}
