/* init_lora_weights olora: with the weight as Q R, B is the first columns of Q and A the first rows of R, which train,
 * and the base is what is left (Büyükakyüz, arXiv:2406.01775; PEFT's olora_init). Q's first columns are those of the
 * weight's first columns, so that no more is decomposed. */
#include <string.h>

#include "base/alloc.h"
#include "model/factors.h"
#include "model/lora_init.h"

/* Row k of Q' W. */
static void project(const struct tt_lora_init_call *call, const double *q_O, double *sum_I, float *a_I)
{
    memset(sum_I, 0, (size_t)call->in * sizeof *sum_I);
    for (int64_t o = 0; o < call->out; o++) {
        const float *w_I = call->weight_OI + o * call->in;
        for (int64_t i = 0; i < call->in; i++) sum_I[i] += q_O[o] * (double)w_I[i];
    }
    for (int64_t i = 0; i < call->in; i++) a_I[i] = (float)sum_I[i];
}

tt_status tt_lora_init_olora(const struct tt_lora_init_call *call)
{
    int64_t out = call->out, r = call->r;
    double *q_RO = tt_alloc_aligned((size_t)(out * r) * sizeof *q_RO);
    double *sum_I = tt_alloc_aligned((size_t)call->in * sizeof *sum_I);
    tt_status status = q_RO != NULL && sum_I != NULL ? TT_OK : TT_ERR_MEMORY;
    for (int64_t k = 0; k < r && status == TT_OK; k++)
        for (int64_t o = 0; o < out; o++) q_RO[k * out + o] = (double)call->weight_OI[o * call->in + k];
    if (status == TT_OK) tt_factor_orthonormalize(q_RO, out, r);
    for (int64_t k = 0; k < r && status == TT_OK; k++) {
        project(call, q_RO + k * out, sum_I, call->a_RI + k * call->in);
        for (int64_t o = 0; o < out; o++) call->b_OR[o * r + k] = (float)q_RO[k * out + o];
    }
    tt_free(q_RO);
    tt_free(sum_I);
    return status;
}
