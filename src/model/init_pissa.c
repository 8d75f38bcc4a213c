/* init_lora_weights pissa and pissa_niter_N: A and B are the largest singular values and vectors of the weight over the
 * scaling, which train, and the base is what is left (Meng et al., arXiv:2404.02948; PEFT's pissa_init). */
#include "base/alloc.h"
#include "model/factors.h"
#include "model/lora_init.h"

double *tt_lora_init_double(const struct tt_lora_init_call *call)
{
    int64_t count = call->out * call->in;
    double *w_OI = tt_alloc_aligned((size_t)count * sizeof *w_OI);
    for (int64_t i = 0; i < count && w_OI != NULL; i++) w_OI[i] = (double)call->weight_OI[i];
    return w_OI;
}

tt_status tt_lora_init_pissa(const struct tt_lora_init_call *call)
{
    double *w_OI = tt_lora_init_double(call);
    if (w_OI == NULL) return TT_ERR_MEMORY;
    tt_status status = call->number == 0 ? tt_factor_top(w_OI, call->out, call->in, call->r, call->scaling,
                                                         call->a_RI, call->b_OR)
                                         : tt_factor_random(w_OI, call->out, call->in, call->r, call->number,
                                                            call->rng, call->scaling, call->a_RI, call->b_OR);
    tt_free(w_OI);
    return status;
}
