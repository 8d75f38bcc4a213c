#include "infer/logprobs.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "base/alloc.h"

/* Blocks are short: beside a likely token the terms of unlikely ones would be lost in a sum of floats. */
enum { LANES = 4, BLOCK = 128 };
typedef float lanes __attribute__((vector_size(4 * LANES)));
typedef int32_t ints __attribute__((vector_size(4 * LANES)));

/* Keeps the likeliest in order, for one of them; the values are logits until all are seen. */
static void insert(struct tt_token_logprobs *out, int top, int32_t id, float logit)
{
    int at = out->count < top ? out->count : top - 1;
    for (; at > 0 && logit > out->logprobs[at - 1]; at--) {
        out->logprobs[at] = out->logprobs[at - 1];
        out->ids[at] = out->ids[at - 1];
    }
    out->logprobs[at] = logit;
    out->ids[at] = id;
    if (out->count < top) out->count++;
}

/* e^x of x <= 0, to 2e-7 of the value; about 1e-38 below -87. x = n ln 2 + r with |r| <= ln(2) / 2 and n rounded by an
 * addition that leaves it in the low bits of the sum; the series of e^r to its seventh power is times 2^n. */
static inline lanes exp_lanes(lanes x)
{
    const float rounder = 0x1.8p23f, ln2_high = 0x1.62e4p-1f, ln2_low = 0x1.7f7d1cp-20f;
    lanes least = (lanes){0} - 87.0f;
    ints below = x < least;
    x = (lanes)(((ints)least & below) | ((ints)x & ~below));
    lanes sum = x * 0x1.715476p0f + rounder, n = sum - rounder;
    lanes r = x - n * ln2_high - n * ln2_low;
    lanes series = r * (1.0f / 5040) + 1.0f / 720;
    series = series * r + 1.0f / 120;
    series = series * r + 1.0f / 24;
    series = series * r + 1.0f / 6;
    series = series * r + 0.5f;
    series = series * r + 1.0f;
    series = series * r + 1.0f;
    return (lanes)((ints)series + ((ints)sum << 23));
}

static inline lanes load(const float *from)
{
    lanes x;
    memcpy(&x, from, sizeof x);
    return x;
}

static inline lanes larger(lanes a, lanes b)
{
    ints above = a > b;
    return (lanes)(((ints)a & above) | ((ints)b & ~above));
}

static float largest_of(const float *logits, int64_t vocab)
{
    float largest = -INFINITY;
    lanes a = (lanes){0} + largest, b = a, c = a, d = a;
    int64_t v = 0;
    for (; v + 4 * LANES <= vocab; v += 4 * LANES) {
        a = larger(load(logits + v), a);
        b = larger(load(logits + v + LANES), b);
        c = larger(load(logits + v + 2 * LANES), c);
        d = larger(load(logits + v + 3 * LANES), d);
    }
    a = larger(larger(a, b), larger(c, d));
    for (int l = 0; l < LANES; l++) largest = a[l] > largest ? a[l] : largest;
    for (; v < vocab; v++) largest = logits[v] > largest ? logits[v] : largest;
    return largest;
}

/* The `top` likeliest. Few tokens of a long row are among the likeliest so far: most lanes are passed over at once. */
static void select_top(const float *logits, int64_t vocab, int top, struct tt_token_logprobs *out)
{
    for (int64_t v = 0; v < vocab;) {
        bool full = out->count == top;
        if (full && v + LANES <= vocab) {
            ints above = load(logits + v) > (lanes){0} + out->logprobs[top - 1];
            int64_t any[2];
            memcpy(any, &above, sizeof any);
            if ((any[0] | any[1]) == 0) {
                v += LANES;
                continue;
            }
        }
        if (!full || logits[v] > out->logprobs[top - 1]) insert(out, top, (int32_t)v, logits[v]);
        v++;
    }
}

/* The sum of e^(logit - largest): blocks in float, their sums in double. */
static double sum_exp(const float *logits, int64_t vocab, float largest)
{
    double sum = 0;
    for (int64_t block = 0; block < vocab; block += BLOCK) {
        int64_t end = block + BLOCK < vocab ? block + BLOCK : vocab, v = block;
        lanes sums = {0};
        for (; v + LANES <= end; v += LANES) sums += exp_lanes(load(logits + v) - largest);
        for (int l = 0; l < LANES; l++) sum += (double)sums[l];
        for (; v < end; v++) sum += exp((double)logits[v] - (double)largest);
    }
    return sum;
}

void tt_token_logprobs_make(const float *logits, int64_t vocab, int32_t token, int top,
                            struct tt_token_logprobs *out)
{
    float largest = largest_of(logits, vocab);
    double whole = (double)largest + log(sum_exp(logits, vocab, largest));
    *out = (struct tt_token_logprobs){.count = 0};
    if (top > 0) select_top(logits, vocab, top, out);
    for (int32_t i = 0; i < out->count; i++) out->logprobs[i] = (float)((double)out->logprobs[i] - whole);
    out->logprob = (float)((double)logits[token] - whole);
}

int32_t tt_token_rank(const float *logits, int64_t vocab, int32_t token)
{
    int32_t above = 0;
    float logit = logits[token];
    for (int64_t v = 0; v < vocab; v++) above += logits[v] > logit;
    return above + 1;
}

tt_status tt_logprob_list_append(struct tt_logprob_list *list, const struct tt_token_logprobs *value)
{
    TT_TRY(tt_grow(&list->data, list->count, &list->capacity));
    list->data[list->count++] = *value;
    return TT_OK;
}

tt_status tt_logprob_list_reserve(struct tt_logprob_list *list, size_t count)
{
    return tt_reserve(&list->data, count, &list->capacity);
}

void tt_logprob_list_deinit(struct tt_logprob_list *list)
{
    tt_free(list->data);
    *list = (struct tt_logprob_list){0};
}
