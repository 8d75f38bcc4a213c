/* Random codes of quantized weights that the host makes, for benchmarks: a pure function of the seed, the parameter's
 * name and the place. The transposed copy of a matrix has the codes of the matrix. */
#ifndef TT_CHECKPOINT_RANDOM_CODES_H
#define TT_CHECKPOINT_RANDOM_CODES_H

#include <stdint.h>

#include "base/rng.h"
#include "tensor/param.h"

struct tt_random_codes {
    struct tt_rng rng;
    bool has_table, transposed;
    int64_t rows, cols; /* of the matrix as it is stored, transposed or not */
    uint8_t table[256]; /* codes whose values are distributed normally */
};

/* Returns the absmax (fp8: the scale) of all blocks with which the values have the parameter's init_scale as
 * standard deviation; approximate where all codes are equally frequent. */
float tt_random_codes_init(struct tt_random_codes *codes, const tt_param *param, uint64_t seed);
/* Bytes first .. first + count - 1 of the codes. */
void tt_random_codes_fill(const struct tt_random_codes *codes, int64_t first, int64_t count, uint8_t *to);

#endif
