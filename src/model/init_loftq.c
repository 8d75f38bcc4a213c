/* init_lora_weights loftq: A and B are the largest singular values and vectors of what quantization takes from the
 * weight, W - Q (Li et al., arXiv:2310.08659; PEFT's replace_lora_weights_loftq, which is loftq_init of one iteration).
 * As there, they are not divided by the scaling. The base stays the quantized one, so that the adapter is an adapter of
 * a base that is loaded in so many bits. */
#include <string.h>

#include "base/alloc.h"
#include "model/factors.h"
#include "model/lora_init.h"

static tt_status read_weight(void *context, int64_t first, int64_t count, void *to)
{
    const struct tt_lora_init_call *call = context;
    memcpy(to, call->weight_OI + first, (size_t)count * sizeof(float));
    return TT_OK;
}

/* The weight as it is stored, decoded. */
static tt_status quantize(const struct tt_lora_init_call *call, float *absmax, void *segment,
                          float *decoded_OI)
{
    const struct tt_quant_layout *layout = call->quant;
    tt_quant_absmax(layout, 0, layout->blocks, call->weight_OI, TT_F32, absmax);
    TT_TRY(tt_quant_check(layout, absmax));
    struct tt_lora_init_call lent = *call;
    const struct tt_quant_source source = {.absmax = absmax,
                                           .offset = tt_quant_offset(layout, absmax),
                                           .dtype = TT_F32,
                                           .read = read_weight,
                                           .context = &lent};
    TT_TRY(tt_quant_encode(layout, &source, 0, layout->bytes, segment));
    tt_quant_decode(layout, segment, 0, layout->count, decoded_OI, TT_F32);
    return TT_OK;
}

tt_status tt_lora_init_loftq(const struct tt_lora_init_call *call)
{
    int64_t count = call->out * call->in;
    tt_status status = TT_OK;
    float *absmax = tt_calloc((size_t)call->quant->blocks, sizeof *absmax);
    void *segment = tt_alloc_aligned(call->quant->bytes);
    float *decoded_OI = tt_alloc_aligned((size_t)count * sizeof *decoded_OI);
    double *rest_OI = tt_lora_init_double(call);
    if (absmax == NULL || segment == NULL || decoded_OI == NULL || rest_OI == NULL) TT_GO(TT_ERR_MEMORY);
    TT_GO(quantize(call, absmax, segment, decoded_OI));
    for (int64_t i = 0; i < count; i++) rest_OI[i] -= (double)decoded_OI[i];
    TT_GO(tt_factor_top(rest_OI, call->out, call->in, call->r, 1.0, call->a_RI, call->b_OR));
out:
    tt_free(absmax);
    tt_free(segment);
    tt_free(decoded_OI);
    tt_free(rest_OI);
    return status;
}
