/* Decompositions of weights for the first values of adapters, in double. Internal to src/model. */
#ifndef TT_MODEL_FACTORS_H
#define TT_MODEL_FACTORS_H

#include "base/rng.h"
#include "base/error.h"

/* The `r` largest singular values s_1 >= s_2 ... of a matrix w [out, in], with W ~ U diag(s) V', divided as
 *     a [r, in] = diag(sqrt(s / scaling)) V',   b [out, r] = U diag(sqrt(s / scaling)).
 * Each pair of vectors has an arbitrary sign, B A has not. By the eigenvectors of W W' or W' W, the smaller one: B A is
 * that of a singular value decomposition in fp32 but for its rounding. Needs base/lapack.h. */
TT_MUST_USE tt_status tt_factor_top(const double *w_OI, int64_t out, int64_t in, int64_t r, double scaling,
                                    float *a_RI, float *b_OR);
/* The same, nearly: of the part of W in a space of r dimensions that `steps` powers of W W' find (Halko et al.,
 * "Finding structure with randomness", algorithm 4.4), as torch.svd_lowrank with q = r. */
TT_MUST_USE tt_status tt_factor_random(const double *w_OI, int64_t out, int64_t in, int64_t r, int64_t steps,
                                       struct tt_rng rng, double scaling, float *a_RI, float *b_OR);
/* Makes the columns of q [rows, r], column by column in memory, orthonormal, each in the space of those up to it. A
 * column without a part of its own is replaced by another direction. */
void tt_factor_orthonormalize(double *q_RO, int64_t rows, int64_t r);

#endif
