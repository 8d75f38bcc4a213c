/* init_lora_weights orthogonal: A from the odd rows of a random orthogonal matrix of R x R, B from its even ones, so
 * that B A = 0 with both other than 0. */
#include "base/alloc.h"
#include "model/factors.h"
#include "model/lora_init.h"

/* Element c of a sum of rows first, first + 2, ... of Q, each times a random number, over 10. */
static double element(const double *q_RR, int64_t r, int64_t first, int64_t c, struct tt_rng rng, int64_t at)
{
    double sum = 0;
    for (int64_t k = 0; k < r / 2; k++)
        sum += tt_rng_normal(rng, (uint64_t)(at * (r / 2) + k)) * q_RR[(2 * k + first) * r + c];
    return sum / 10;
}

tt_status tt_lora_init_orthogonal(const struct tt_lora_init_call *call)
{
    int64_t r = call->r;
    double *q_RR = tt_calloc((size_t)(r * r), sizeof *q_RR);
    struct tt_rng own = tt_rng_derive(call->rng, "orthogonal");
    struct tt_rng in = tt_rng_derive(call->rng, "in"), out = tt_rng_derive(call->rng, "out");
    if (q_RR == NULL) return TT_ERR_MEMORY;
    for (int64_t i = 0; i < r * r; i++) q_RR[i] = tt_rng_normal(own, (uint64_t)i);
    tt_factor_orthonormalize(q_RR, r, r); /* its columns, here rows */
    for (int64_t i = 0; i < call->in; i++)
        for (int64_t j = 0; j < r; j++) call->a_RI[j * call->in + i] = (float)element(q_RR, r, 0, j, in, i);
    for (int64_t o = 0; o < call->out; o++)
        for (int64_t j = 0; j < r; j++) call->b_OR[o * r + j] = (float)element(q_RR, r, 1, j, out, o);
    tt_free(q_RR);
    return TT_OK;
}
