#include "backend/ops/sample.h"

#include <math.h>
#include <omp.h>
#include <string.h>

#include "backend/cpu/parallel.h"

/* Tokens are counted by the upper bits of their distance; those of one such bin, where a border falls, by the rest. */
enum {
    FINE_BITS = 13,
    FINE = 1 << FINE_BITS,
    COARSE = (TT_SAMPLE_DISTANCE_MAX >> FINE_BITS) + 1,
};

struct row {
    const float *logits;
    int64_t vocab;
    float top, steps_per_logit;
    uint64_t sums[COARSE];
    uint32_t counts[COARSE];
    uint32_t fine[FINE]; /* of bin `fine_bin` */
    int fine_bin;        /* -1: none */
};
_Static_assert(sizeof(struct row) <= TT_CPU_SCRATCH_BYTES, "a row fits into the scratch of a thread");

/* Where a border falls: after `before` of weight, among the tokens of `distance`. */
struct border {
    int32_t distance;
    uint64_t before, weight; /* weight: of one token there */
};

static void penalize(float *logits, int64_t vocab, double penalty, const uint32_t *seen)
{
    for (int64_t word = 0; word < tt_sample_seen_words(vocab); word++) {
        for (uint32_t bits = seen[word]; bits != 0; bits &= bits - 1) {
            int64_t id = word * 32 + __builtin_ctz(bits);
            if (id < vocab) logits[id] = tt_sample_penalized(logits[id], penalty);
        }
    }
}

static void forbid(float *logits, int64_t vocab, const uint32_t *mask)
{
    for (int64_t word = 0; word < tt_sample_seen_words(vocab); word++) {
        for (uint32_t bits = ~mask[word]; bits != 0; bits &= bits - 1) {
            int64_t id = word * 32 + __builtin_ctz(bits);
            if (id < vocab) logits[id] = -INFINITY;
        }
    }
}

static int64_t argmax(const float *logits, int64_t vocab)
{
    int64_t best = 0;
    float largest = -INFINITY;
    for (int64_t v = 0; v < vocab; v++) {
        if (!(logits[v] > largest)) continue;
        largest = logits[v];
        best = v;
    }
    return best;
}

static void count_coarse(struct row *row)
{
    memset(row->sums, 0, sizeof row->sums);
    memset(row->counts, 0, sizeof row->counts);
    row->fine_bin = -1;
    for (int64_t v = 0; v < row->vocab; v++) {
        int32_t distance = tt_sample_distance(row->logits[v], row->top, row->steps_per_logit);
        if (distance < 0) continue;
        row->sums[distance >> FINE_BITS] += tt_sample_weight(distance);
        row->counts[distance >> FINE_BITS]++;
    }
}

static void count_fine(struct row *row, int bin)
{
    if (row->fine_bin == bin) return;
    row->fine_bin = bin;
    memset(row->fine, 0, sizeof row->fine);
    for (int64_t v = 0; v < row->vocab; v++) {
        int32_t distance = tt_sample_distance(row->logits[v], row->top, row->steps_per_logit);
        if (distance >= 0 && distance >> FINE_BITS == bin) row->fine[distance & (FINE - 1)]++;
    }
}

/* The tokens in which the `place`-th unit of weight lies, which is below the sum of all. */
static struct border find_place(struct row *row, uint64_t place)
{
    uint64_t before = 0;
    int bin = 0, fine = 0;
    while (before + row->sums[bin] <= place) before += row->sums[bin++];
    count_fine(row, bin);
    for (;; fine++) {
        int32_t distance = bin << FINE_BITS | fine;
        uint64_t weight = tt_sample_weight(distance);
        if (before + row->fine[fine] * weight > place) return (struct border){distance, before, weight};
        before += row->fine[fine] * weight;
    }
}

/* The sum of the weights of the first `count` tokens. */
static uint64_t sum_of_first(struct row *row, uint32_t count)
{
    uint64_t sum = 0;
    int bin = 0;
    for (; bin < COARSE && row->counts[bin] <= count; bin++) {
        sum += row->sums[bin];
        count -= row->counts[bin];
    }
    if (bin == COARSE || count == 0) return sum;
    count_fine(row, bin);
    for (int fine = 0; count > 0; fine++) {
        uint32_t here = row->fine[fine] < count ? row->fine[fine] : count;
        sum += here * tt_sample_weight(bin << FINE_BITS | fine);
        count -= here;
    }
    return sum;
}

/* The sum of the weights of all tokens up to `distance_max`. */
static uint64_t sum_up_to(struct row *row, int32_t distance_max)
{
    uint64_t sum = 0;
    int bin = distance_max >> FINE_BITS;
    for (int i = 0; i < bin; i++) sum += row->sums[i];
    count_fine(row, bin);
    for (int fine = 0; fine <= (distance_max & (FINE - 1)); fine++)
        sum += row->fine[fine] * tt_sample_weight(bin << FINE_BITS | fine);
    return sum;
}

/* The weight that the rules leave: each leaves the first tokens, up to its own border. */
static uint64_t sum_kept(struct row *row, const struct tt_sample_rule *rule)
{
    uint64_t sum = 0;
    if (rule->top_k > 0) {
        sum = sum_of_first(row, (uint32_t)rule->top_k);
    } else {
        for (int bin = 0; bin < COARSE; bin++) sum += row->sums[bin];
    }
    if (rule->top_p < 1) {
        uint64_t least = tt_sample_least(rule->top_p, sum);
        struct border border = find_place(row, least - 1);
        sum = border.before + ((least - border.before + border.weight - 1) / border.weight) * border.weight;
    }
    if (rule->distance_max < TT_SAMPLE_DISTANCE_MAX) {
        uint64_t likely = sum_up_to(row, rule->distance_max);
        if (likely < sum) sum = likely;
    }
    return sum;
}

static int32_t draw(struct row *row, const struct tt_sample_rule *rule)
{
    count_coarse(row);
    uint64_t place = tt_sample_place(rule->uniform, sum_kept(row, rule));
    struct border border = find_place(row, place);
    uint64_t skipped = (place - border.before) / border.weight;
    for (int64_t v = 0;; v++) {
        if (tt_sample_distance(row->logits[v], row->top, row->steps_per_logit) != border.distance) continue;
        if (skipped-- == 0) return (int32_t)v;
    }
}

static int32_t choose(float *logits, int64_t vocab, const struct tt_sample_rule *rule, uint32_t *seen,
                      const uint32_t *mask, struct row *row)
{
    if (mask != NULL) forbid(logits, vocab, mask);
    if (seen != NULL) penalize(logits, vocab, rule->penalty, seen);
    int32_t id = (int32_t)argmax(logits, vocab);
    if (rule->draws && isfinite(logits[id])) {
        row->logits = logits;
        row->vocab = vocab;
        row->top = logits[id];
        row->steps_per_logit = rule->steps_per_logit;
        id = draw(row, rule);
    }
    if (seen != NULL) seen[id / 32] |= UINT32_C(1) << id % 32;
    return id;
}

tt_status tt_cpu_sample(struct tt_stream *stream, const struct tt_sample_args *args)
{
    int64_t rows = args->logits_NV.dims[0], vocab = args->logits_NV.dims[1];
    const struct tt_sample_rule *rules = args->rules_N.data;
    int32_t *ids = args->ids_N.data;
    bool any_seen = !tt_tensor_is_empty(args->seen_SW), any_mask = !tt_tensor_is_empty(args->masks_SW);
    int threads = tt_cpu_threads(stream, rows * vocab * 4);
    if (threads > rows) threads = rows > 0 ? (int)rows : 1;
#pragma omp parallel for num_threads(threads) schedule(dynamic)
    for (int64_t n = 0; n < rows; n++) {
        struct row *row = tt_cpu_scratch(stream, omp_get_thread_num());
        uint32_t *seen = NULL;
        const uint32_t *mask = NULL;
        if (any_mask && rules[n].mask > 0)
            mask = (const uint32_t *)args->masks_SW.data + (rules[n].mask - 1) * args->masks_SW.strides[0];
        if (any_seen && rules[n].seen_row >= 0)
            seen = (uint32_t *)args->seen_SW.data + rules[n].seen_row * args->seen_SW.strides[0];
        ids[n] = choose((float *)args->logits_NV.data + n * args->logits_NV.strides[0], vocab, &rules[n],
                        seen, mask, row);
    }
    return TT_OK;
}
