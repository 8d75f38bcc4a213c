#include "infer/logprobs.h"

#include <math.h>

#include "base/alloc.h"

/* Keeps the likeliest in order; the values are logits until all are seen. */
static void insert(struct tt_token_logprobs *out, int top, int32_t id, float logit)
{
    int at = out->count < top ? out->count : top - 1;
    if (out->count == top && !(logit > out->logprobs[at])) return;
    for (; at > 0 && logit > out->logprobs[at - 1]; at--) {
        out->logprobs[at] = out->logprobs[at - 1];
        out->ids[at] = out->ids[at - 1];
    }
    out->logprobs[at] = logit;
    out->ids[at] = id;
    if (out->count < top) out->count++;
}

void tt_token_logprobs_make(const float *logits, int64_t vocab, int32_t token, int top,
                            struct tt_token_logprobs *out)
{
    double largest = -INFINITY, sum = 0;
    *out = (struct tt_token_logprobs){.count = 0};
    for (int64_t v = 0; v < vocab; v++)
        if ((double)logits[v] > largest) largest = (double)logits[v];
    for (int64_t v = 0; v < vocab; v++) {
        sum += exp((double)logits[v] - largest);
        if (top > 0) insert(out, top, (int32_t)v, logits[v]);
    }
    double whole = largest + log(sum);
    for (int32_t i = 0; i < out->count; i++) out->logprobs[i] = (float)((double)out->logprobs[i] - whole);
    out->logprob = (float)((double)logits[token] - whole);
}

tt_status tt_logprob_list_append(struct tt_logprob_list *list, const struct tt_token_logprobs *value)
{
    TT_TRY(tt_grow(&list->data, list->count, &list->capacity, sizeof *list->data));
    list->data[list->count++] = *value;
    return TT_OK;
}

void tt_logprob_list_deinit(struct tt_logprob_list *list)
{
    tt_free(list->data);
    *list = (struct tt_logprob_list){0};
}
