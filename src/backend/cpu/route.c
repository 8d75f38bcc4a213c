/* The choice of experts. Threads share the tokens; sums over tokens are those of one thread. */
#include <math.h>
#include <string.h>

#include "backend/cpu/parallel.h"

enum { EXPERTS_MAX = TT_ROUTE_EXPERTS_MAX, SLOTS_MAX = TT_ROUTE_SLOTS_MAX };

static float rounded(float x, bool to_bf16)
{
    return to_bf16 ? tt_bf16_to_f32(tt_f32_to_bf16(x)) : x;
}

static void load_row(tt_tensor x_TX, int64_t t, float *row)
{
    int64_t count = x_TX.dims[1];
    for (int64_t e = 0; e < count; e++)
        row[e] = x_TX.dtype == TT_BF16 ? tt_bf16_to_f32(((const uint16_t *)x_TX.data)[t * count + e])
                                       : ((const float *)x_TX.data)[t * count + e];
}

static void softmax(float *x, int64_t count)
{
    float most = x[0], sum = 0;
    for (int64_t e = 1; e < count; e++) most = x[e] > most ? x[e] : most;
    for (int64_t e = 0; e < count; e++) sum += x[e] = expf(x[e] - most);
    for (int64_t e = 0; e < count; e++) x[e] /= sum;
}

static void scores_of(const struct tt_route_rule *rule, const float *logits, int64_t experts, bool bf16,
                      float *scores)
{
    memcpy(scores, logits, (size_t)experts * sizeof *scores);
    if (rule->score == TT_ROUTE_CHOSEN) return;
    if (rule->score == TT_ROUTE_SOFTMAX)
        softmax(scores, experts);
    else
        for (int64_t e = 0; e < experts; e++) scores[e] = 1.0f / (1.0f + expf(-scores[e]));
    for (int64_t e = 0; e < experts && rule->rounds_scores; e++) scores[e] = rounded(scores[e], bf16);
}

/* The `count` largest of x that are not `out`, of equal ones the first; those become `out`. */
static void choose(const float *x, int64_t size, int64_t count, bool *out, int32_t *chosen)
{
    for (int64_t s = 0; s < count; s++) {
        int64_t best = -1;
        for (int64_t e = 0; e < size; e++)
            if (!out[e] && (best < 0 || x[e] > x[best])) best = e;
        out[best] = true;
        chosen[s] = (int32_t)best;
    }
}

/* Experts outside the kept groups become `out`. */
static void keep_groups(const struct tt_route_rule *rule, const float *values, int64_t experts, bool *out)
{
    float best_two[TT_ROUTE_GROUPS_MAX];
    bool kept[TT_ROUTE_GROUPS_MAX] = {false};
    int32_t order[TT_ROUTE_GROUPS_MAX];
    int64_t each = experts / rule->groups;
    for (int g = 0; g < rule->groups; g++) {
        bool seen[EXPERTS_MAX] = {false};
        int32_t two[2];
        choose(values + g * each, each, 2, seen, two);
        best_two[g] = values[g * each + two[0]] + values[g * each + two[1]];
    }
    choose(best_two, rule->groups, rule->kept_groups, kept, order);
    for (int64_t e = 0; e < experts; e++) out[e] = !kept[e / each];
}

/* The weights of chosen experts before the factors, and the sum that they were divided by. */
static float weights_of(const struct tt_route_rule *rule, const float *scores, const int32_t *ids,
                        int64_t slots, float *weights)
{
    float sum = 0;
    for (int64_t s = 0; s < slots; s++) weights[s] = scores[ids[s]];
    if (rule->score == TT_ROUTE_CHOSEN) softmax(weights, slots);
    if (!rule->normalizes) return 1;
    for (int64_t s = 0; s < slots; s++) sum += weights[s];
    sum += rule->epsilon;
    for (int64_t s = 0; s < slots; s++) weights[s] /= sum;
    return sum;
}

static float factor_of(const struct tt_route_rule *rule, tt_tensor scale_X, int32_t expert)
{
    float factor = rule->factor == 0 ? 1 : rule->factor;
    return tt_tensor_is_empty(scale_X) ? factor : factor * ((const float *)scale_X.data)[expert];
}

static void route_token(const struct tt_route_forward_args *args, int64_t t)
{
    const struct tt_route_rule *rule = &args->rule;
    int64_t experts = args->logits_TX.dims[1], slots = args->ids_TS.dims[1];
    float logits[EXPERTS_MAX], scores[EXPERTS_MAX], values[EXPERTS_MAX];
    bool out[EXPERTS_MAX] = {false}, bf16 = args->logits_TX.dtype == TT_BF16;
    int32_t *ids = (int32_t *)args->ids_TS.data + t * slots;
    float *weights = (float *)args->weights_TS.data + t * slots;
    load_row(args->logits_TX, t, logits);
    scores_of(rule, logits, experts, bf16, scores);
    for (int64_t e = 0; e < experts; e++)
        values[e] =
            scores[e] + (tt_tensor_is_empty(args->bias_X) ? 0 : ((const float *)args->bias_X.data)[e]);
    if (rule->groups > 0) keep_groups(rule, values, experts, out);
    choose(values, experts, slots, out, ids);
    (void)weights_of(rule, scores, ids, slots, weights);
    for (int64_t s = 0; s < slots; s++)
        weights[s] =
            rounded(weights[s] * factor_of(rule, args->scale_X, ids[s]), rule->rounds_weights && bf16);
}

static void add_load(const struct tt_route_forward_args *args)
{
    int64_t experts = args->logits_TX.dims[1], slots = args->ids_TS.dims[1];
    float *load = args->load_2X.data, p[EXPERTS_MAX];
    double counts[EXPERTS_MAX] = {0}, sums[EXPERTS_MAX] = {0};
    int32_t ids[SLOTS_MAX];
    for (int64_t t = 0; t < args->logits_TX.dims[0]; t++) {
        bool out[EXPERTS_MAX] = {false};
        load_row(args->logits_TX, t, p);
        choose(p, experts, slots, out, ids);
        for (int64_t s = 0; s < slots; s++) counts[ids[s]] += 1;
        softmax(p, experts);
        for (int64_t e = 0; e < experts; e++) sums[e] += (double)p[e];
    }
    for (int64_t e = 0; e < experts; e++) load[e] += (float)counts[e];
    for (int64_t e = 0; e < experts; e++) load[experts + e] += (float)sums[e];
}

tt_status tt_cpu_route_forward(struct tt_stream *stream, const struct tt_route_forward_args *args)
{
    int64_t tokens = args->logits_TX.dims[0];
    int threads = tt_cpu_threads(stream, tokens * args->logits_TX.dims[1] * (args->ids_TS.dims[1] + 4));
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t t = 0; t < tokens; t++) route_token(args, t);
    if (!tt_tensor_is_empty(args->load_2X)) add_load(args);
    return TT_OK;
}

/* dx of softmax: x is p, d its gradient, which becomes that of the logits. */
static void softmax_back(const float *p, float *d, int64_t count)
{
    float dot = 0;
    for (int64_t e = 0; e < count; e++) dot += p[e] * d[e];
    for (int64_t e = 0; e < count; e++) d[e] = p[e] * (d[e] - dot);
}

/* The gradients of the chosen scores, in place of those of the weights. */
static void weights_back(const struct tt_route_backward_args *args, const float *scores, const int32_t *ids,
                         float *d)
{
    const struct tt_route_rule *rule = &args->rule;
    int64_t slots = args->ids_TS.dims[1];
    float weights[SLOTS_MAX], dot = 0, sum = weights_of(rule, scores, ids, slots, weights);
    for (int64_t s = 0; s < slots; s++) d[s] *= factor_of(rule, args->scale_X, ids[s]);
    if (rule->normalizes) {
        for (int64_t s = 0; s < slots; s++) dot += d[s] * weights[s];
        for (int64_t s = 0; s < slots; s++) d[s] = (d[s] - dot) / sum;
    }
    if (rule->score != TT_ROUTE_CHOSEN) return;
    struct tt_route_rule plain = {.score = TT_ROUTE_CHOSEN};
    (void)weights_of(&plain, scores, ids, slots, weights);
    softmax_back(weights, d, slots);
}

static void add_dload(const struct tt_route_backward_args *args, const float *logits, float *dlogits)
{
    int64_t experts = args->logits_TX.dims[1];
    float p[EXPERTS_MAX], d[EXPERTS_MAX];
    memcpy(p, logits, (size_t)experts * sizeof *p);
    memcpy(d, args->dload_X.data, (size_t)experts * sizeof *d);
    softmax(p, experts);
    softmax_back(p, d, experts);
    for (int64_t e = 0; e < experts; e++) dlogits[e] += d[e];
}

static void route_token_back(const struct tt_route_backward_args *args, int64_t t)
{
    const struct tt_route_rule *rule = &args->rule;
    int64_t experts = args->logits_TX.dims[1], slots = args->ids_TS.dims[1];
    float logits[EXPERTS_MAX], scores[EXPERTS_MAX], d[EXPERTS_MAX] = {0}, chosen[SLOTS_MAX];
    const int32_t *ids = (const int32_t *)args->ids_TS.data + t * slots;
    bool bf16 = args->logits_TX.dtype == TT_BF16;
    load_row(args->logits_TX, t, logits);
    scores_of(rule, logits, experts, bf16, scores);
    memcpy(chosen, (const float *)args->dweights_TS.data + t * slots, (size_t)slots * sizeof *chosen);
    weights_back(args, scores, ids, chosen);
    for (int64_t s = 0; s < slots; s++) d[ids[s]] = chosen[s];
    if (rule->score == TT_ROUTE_SOFTMAX) softmax_back(scores, d, experts);
    for (int64_t e = 0; e < experts && rule->score == TT_ROUTE_SIGMOID; e++)
        d[e] *= scores[e] * (1 - scores[e]);
    if (!tt_tensor_is_empty(args->dload_X)) add_dload(args, logits, d);
    for (int64_t e = 0; e < experts; e++) {
        if (bf16)
            ((uint16_t *)args->dlogits_TX.data)[t * experts + e] = tt_f32_to_bf16(d[e]);
        else
            ((float *)args->dlogits_TX.data)[t * experts + e] = d[e];
    }
}

tt_status tt_cpu_route_backward(struct tt_stream *stream, const struct tt_route_backward_args *args)
{
    int64_t tokens = args->logits_TX.dims[0];
    int threads = tt_cpu_threads(stream, tokens * args->logits_TX.dims[1] * 8);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t t = 0; t < tokens; t++) route_token_back(args, t);
    return TT_OK;
}

tt_status tt_cpu_route_balance(struct tt_stream *stream, const struct tt_route_balance_args *args)
{
    int64_t experts = args->dload_X.dims[0];
    const float *counts = args->load_2X.data, *sums = counts + experts;
    double rows = 0, loss = 0;
    (void)stream;
    for (int64_t e = 0; e < experts; e++) rows += (double)counts[e] / (double)args->slots;
    double factor = rows > 0 ? (double)experts / (rows * rows) : 0;
    for (int64_t e = 0; e < experts; e++) {
        loss += factor * (double)counts[e] * (double)sums[e];
        ((float *)args->dload_X.data)[e] = (float)((double)args->scale * factor * (double)counts[e]);
    }
    if (!tt_tensor_is_empty(args->loss)) *(double *)args->loss.data += (double)args->loss_scale * loss;
    return TT_OK;
}
