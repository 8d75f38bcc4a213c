/* Counter-based random numbers: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3",
 * SC11, section 3.3). A number is a pure function of (key, counter): no state, no order, the same on any number
 * of ranks. Keys are derived per purpose, so that no two uses share a stream. */
#ifndef TT_BASE_RNG_H
#define TT_BASE_RNG_H

#include <stdint.h>

struct tt_rng {
    uint64_t key;
};

struct tt_rng tt_rng_make(uint64_t seed);
/* A child stream named by text ("dropout", a parameter name) or by a number (step, layer). */
struct tt_rng tt_rng_derive(struct tt_rng parent, const char *name);
struct tt_rng tt_rng_derive_index(struct tt_rng parent, uint64_t index);

/* Four 32-bit words of block (counter_hi, counter_lo). */
void tt_rng_block(struct tt_rng rng, uint64_t counter_hi, uint64_t counter_lo, uint32_t out[4]);
uint64_t tt_rng_u64(struct tt_rng rng, uint64_t counter);
double tt_rng_uniform(struct tt_rng rng, uint64_t counter); /* [0, 1), 53 bits */
/* Box-Muller, mean 0, deviation 1 */
double tt_rng_normal(struct tt_rng rng, uint64_t counter);
/* [0, bound), bound >= 1, unbiased to 2^-64 */
uint64_t tt_rng_below(struct tt_rng rng, uint64_t counter, uint64_t bound);
/* Element `index` of a pseudo-random permutation of 0..count-1, in O(1) memory (a Feistel network with cycle
 * walking): the shuffle of a data set of any size is a pure function of (key, index). count >= 1. */
uint64_t tt_rng_permute(struct tt_rng rng, uint64_t index, uint64_t count);

#endif
