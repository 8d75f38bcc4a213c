#include "infer/sampling.h"

#include <math.h>
#include <stdlib.h>

struct tt_generate_options tt_generate_options_of(const struct tt_generate_config *config, int64_t seed)
{
    return (struct tt_generate_options){
        .max_new_tokens = config->max_new_tokens,
        .sample = config->do_sample == 1,
        .temperature = config->temperature > 0 ? config->temperature : 1.0,
        .top_k = config->top_k,
        .top_p = config->top_p,
        .seed = (uint64_t)seed,
        .ignore_eos = config->ignore_eos,
    };
}

static int32_t argmax(const float *logits, int64_t vocab)
{
    int64_t best = 0;
    for (int64_t v = 1; v < vocab; v++)
        if (logits[v] > logits[best]) best = v;
    return (int32_t)best;
}

/* Descending by logit; on a tie the lower index comes first, so that the order is the same on all machines. */
static int compare_candidates(const void *a, const void *b, void *context)
{
    const float *logits = context;
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    if (logits[x] != logits[y]) return logits[x] > logits[y] ? -1 : 1;
    return x < y ? -1 : x > y;
}

/* Returns the number of candidates that remain after top_k and then top_p, as with transformers' logits warpers: top_p
 * keeps the shortest prefix of the sorted probabilities whose sum reaches top_p. */
static int64_t keep_candidates(const float *logits, int64_t vocab, const struct tt_generate_options *options,
                               double *weights_total, const int32_t *order)
{
    int64_t count = options->top_k > 0 && options->top_k < vocab ? options->top_k : vocab;
    double top = logits[order[0]], total = 0.0;
    for (int64_t i = 0; i < count; i++) total += exp((logits[order[i]] - top) / options->temperature);
    double sum = 0.0;
    int64_t kept = 0;
    while (kept < count && (kept == 0 || sum < options->top_p * total))
        sum += exp((logits[order[kept++]] - top) / options->temperature);
    *weights_total = sum;
    return kept;
}

int32_t tt_sample_token(float *logits, int64_t vocab, const struct tt_generate_options *options,
                        struct tt_rng rng, uint64_t counter, int32_t *order)
{
    if (!options->sample) return argmax(logits, vocab);
    for (int64_t v = 0; v < vocab; v++) order[v] = (int32_t)v;
    qsort_r(order, (size_t)vocab, sizeof *order, compare_candidates, logits);
    double total;
    int64_t kept = keep_candidates(logits, vocab, options, &total, order);
    double draw = tt_rng_uniform(rng, counter) * total, sum = 0.0, top = logits[order[0]];
    for (int64_t i = 0; i < kept; i++) {
        sum += exp((logits[order[i]] - top) / options->temperature);
        if (draw < sum) return order[i];
    }
    return order[kept - 1];
}
