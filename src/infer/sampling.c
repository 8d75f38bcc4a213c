#include "infer/sampling.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

/* Candidates are taken by the upper bits of their logits: sign, exponent and 3 bits of the fraction. */
enum { BIN_BITS = 12, BINS = 1 << BIN_BITS, CANDIDATES_FIRST = 64 };

struct tt_sampling_options tt_sampling_options_of(const struct tt_generate_config *config)
{
    return (struct tt_sampling_options){
        .sample = config->do_sample == 1,
        .temperature = config->temperature,
        .top_k = config->top_k,
        .top_p = config->top_p,
        .min_p = config->min_p,
        .repetition_penalty = config->repetition_penalty,
    };
}

tt_status tt_sampling_check(const struct tt_sampling_options *sampling)
{
    if (!(sampling->temperature >= 0) || isinf(sampling->temperature))
        return tt_fail(TT_ERR_USAGE, "temperature is %g, but must be a number above 0",
                       sampling->temperature);
    if (sampling->top_k < 0)
        return tt_fail(TT_ERR_USAGE, "top_k is %lld, but must not be negative", (long long)sampling->top_k);
    if (!(sampling->top_p >= 0 && sampling->top_p <= 1))
        return tt_fail(TT_ERR_USAGE, "top_p is %g, but must be between 0 and 1", sampling->top_p);
    if (!(sampling->min_p >= 0 && sampling->min_p <= 1))
        return tt_fail(TT_ERR_USAGE, "min_p is %g, but must be between 0 and 1", sampling->min_p);
    if (!(sampling->repetition_penalty >= 0) || isinf(sampling->repetition_penalty))
        return tt_fail(TT_ERR_USAGE, "repetition_penalty is %g, but must be a number above 0",
                       sampling->repetition_penalty);
    return TT_OK;
}

tt_status tt_sampling_scratch_init(int64_t vocab, struct tt_sampling_scratch *scratch)
{
    *scratch = (struct tt_sampling_scratch){
        .vocab = vocab,
        .candidates = tt_calloc((size_t)vocab, sizeof *scratch->candidates),
        .weights = tt_calloc((size_t)vocab, sizeof *scratch->weights),
        .seen = tt_calloc((size_t)vocab / 64 + 1, sizeof *scratch->seen),
    };
    if (scratch->candidates != NULL && scratch->weights != NULL && scratch->seen != NULL) return TT_OK;
    tt_sampling_scratch_deinit(scratch);
    return TT_ERR_MEMORY;
}

void tt_sampling_scratch_deinit(struct tt_sampling_scratch *scratch)
{
    tt_free(scratch->candidates);
    tt_free(scratch->weights);
    tt_free(scratch->seen);
    *scratch = (struct tt_sampling_scratch){0};
}

static int64_t argmax(const float *logits, int64_t vocab)
{
    int64_t best = 0;
    for (int64_t v = 1; v < vocab; v++)
        if (logits[v] > logits[best]) best = v;
    return best;
}

/* Each id once, however often the past has it. */
static void penalize(float *logits, double penalty, const int32_t *past, size_t past_count, uint64_t *seen)
{
    for (size_t i = 0; i < past_count; i++) {
        int32_t id = past[i];
        if (seen[id / 64] >> (id % 64) & 1) continue;
        seen[id / 64] |= UINT64_C(1) << (id % 64);
        double logit = logits[id];
        logits[id] = (float)(logit < 0 ? logit * penalty : logit / penalty);
    }
    for (size_t i = 0; i < past_count; i++) seen[past[i] / 64] = 0;
}

/* The tokens in descending order of their logits, as far as they are needed: at first the CANDIDATES_FIRST likeliest,
 * then four times as many. Only these are sorted. */
struct descent {
    const float *logits;
    double top, temperature;
    struct tt_sampling_scratch *scratch;
    int64_t count; /* candidates so far */
    int next_bin;  /* bins above it are in the candidates */
    uint32_t bins[BINS];
};

/* Bins ascend with the logits; both zeros have one. */
static int bin_of(float logit)
{
    uint32_t bits;
    if (logit == 0) logit = 0;
    memcpy(&bits, &logit, sizeof bits);
    bits ^= (bits >> 31) != 0 ? UINT32_MAX : UINT32_C(1) << 31;
    return (int)(bits >> (32 - BIN_BITS));
}

static void begin_descent(struct descent *descent)
{
    memset(descent->bins, 0, sizeof descent->bins);
    for (int64_t v = 0; v < descent->scratch->vocab; v++) descent->bins[bin_of(descent->logits[v])]++;
    descent->count = 0;
    descent->next_bin = BINS - 1;
}

/* Descending by logit; on a tie the lower index comes first, so that the order is the same on all machines. */
static int compare_candidates(const void *a, const void *b, void *context)
{
    const float *logits = context;
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    if (logits[x] != logits[y]) return logits[x] > logits[y] ? -1 : 1;
    return x < y ? -1 : x > y;
}

static void extend(struct descent *descent)
{
    struct tt_sampling_scratch *scratch = descent->scratch;
    int64_t wanted = descent->count > 0 ? 4 * descent->count : CANDIDATES_FIRST, first = descent->count;
    int high = descent->next_bin, low = high + 1;
    for (int64_t sum = 0; low > 0 && sum < wanted; low--) sum += descent->bins[low - 1];
    for (int64_t v = 0; v < scratch->vocab; v++) {
        int bin = bin_of(descent->logits[v]);
        if (bin >= low && bin <= high) scratch->candidates[descent->count++] = (int32_t)v;
    }
    descent->next_bin = low - 1;
    qsort_r(scratch->candidates + first, (size_t)(descent->count - first), sizeof *scratch->candidates,
            compare_candidates, (void *)descent->logits);
    for (int64_t i = first; i < descent->count; i++)
        scratch->weights[i] =
            exp((descent->logits[scratch->candidates[i]] - descent->top) / descent->temperature);
}

/* exp(logit - largest logit) of candidate `index` < vocab. */
static double weight_at(struct descent *descent, int64_t index)
{
    while (index >= descent->count) extend(descent);
    return descent->scratch->weights[index];
}

/* The number of candidates that top_k, then top_p, then min_p leave, and the sum of their weights. */
static int64_t keep_candidates(struct descent *descent, const struct tt_sampling_options *sampling,
                               double *sum)
{
    int64_t vocab = descent->scratch->vocab, kept = 0;
    int64_t count = sampling->top_k > 0 && sampling->top_k < vocab ? sampling->top_k : vocab;
    double total = 0.0, top_p = sampling->top_p > 0 ? sampling->top_p : 1.0;
    if (count < vocab)
        for (int64_t i = 0; i < count; i++) total += weight_at(descent, i);
    else
        for (int64_t v = 0; v < vocab; v++)
            total += exp((descent->logits[v] - descent->top) / descent->temperature);
    *sum = total;
    if (top_p == 1.0 && sampling->min_p == 0) return count;
    *sum = 0.0;
    while (kept < count && (kept == 0 || *sum < top_p * total)) {
        double weight = weight_at(descent, kept);
        if (weight < sampling->min_p) break;
        *sum += weight;
        kept++;
    }
    return kept;
}

static int32_t draw_token(struct descent *descent, const struct tt_sampling_options *sampling, double uniform)
{
    double total, sum = 0.0;
    int64_t kept = keep_candidates(descent, sampling, &total), last = 0;
    for (int64_t i = 0; i < kept; i++) {
        double weight = weight_at(descent, i);
        if (weight == 0) break;
        sum += weight;
        last = i;
        if (uniform * total < sum) break;
    }
    return descent->scratch->candidates[last];
}

int32_t tt_sample_token(float *logits, const struct tt_sampling_options *sampling, const int32_t *past,
                        size_t past_count, double uniform, struct tt_sampling_scratch *scratch)
{
    double penalty = sampling->repetition_penalty;
    if (penalty > 0 && penalty != 1.0) penalize(logits, penalty, past, past_count, scratch->seen);
    int64_t best = argmax(logits, scratch->vocab);
    if (!sampling->sample || !isfinite(logits[best])) return (int32_t)best;
    struct descent descent = {
        .logits = logits,
        .top = logits[best],
        .temperature = sampling->temperature > 0 ? sampling->temperature : 1.0,
        .scratch = scratch,
    };
    begin_descent(&descent);
    return draw_token(&descent, sampling, uniform);
}
