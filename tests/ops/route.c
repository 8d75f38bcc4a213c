/* backend/ops/route.h against the definition in fp64, whose gradients are checked by finite differences. */
#include "backend/ops/route.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ops/isa.h"

struct route_case {
    int64_t tokens, experts, slots;
    tt_dtype dtype;
    struct tt_route_rule rule;
    bool bias, scale, load;
};

static const struct route_case cases[] = {
    /* Qwen3-MoE, with and without norm_topk_prob; Mixtral's sizes */
    {70, 16, 4, TT_F32, {.score = TT_ROUTE_SOFTMAX, .normalizes = true}, false, false, true},
    {70, 128, 8, TT_BF16, {.score = TT_ROUTE_SOFTMAX, .normalizes = true}, false, false, true},
    {33, 8, 2, TT_F32, {.score = TT_ROUTE_SOFTMAX}, false, false, false},
    /* gpt-oss, Granite */
    {40, 32, 4, TT_F32, {.score = TT_ROUTE_CHOSEN}, false, false, true},
    {40, 32, 4, TT_BF16, {.score = TT_ROUTE_CHOSEN}, false, false, false},
    /* DeepSeek V3 with groups, GLM-4.5 without, MiniMax-M2 */
    {50,
     32,
     6,
     TT_F32,
     {.score = TT_ROUTE_SIGMOID,
      .groups = 8,
      .kept_groups = 4,
      .normalizes = true,
      .epsilon = 1e-20f,
      .factor = 2.5f},
     true,
     false,
     false},
    {50,
     24,
     5,
     TT_BF16,
     {.score = TT_ROUTE_SIGMOID, .normalizes = true, .epsilon = 1e-6f},
     true,
     false,
     true},
    /* Mistral 4's groups, Gemma 4's factors */
    {20,
     12,
     3,
     TT_F32,
     {.score = TT_ROUTE_SOFTMAX, .groups = 4, .kept_groups = 2, .normalizes = true},
     false,
     false,
     false},
    {20, 16, 4, TT_F32, {.score = TT_ROUTE_SOFTMAX, .normalizes = true}, false, true, true},
    /* Llama 4; the gate of a shared expert; all experts; no tokens */
    {30, 16, 1, TT_F32, {.score = TT_ROUTE_SIGMOID}, false, false, false},
    {30, 1, 1, TT_BF16, {.score = TT_ROUTE_SIGMOID}, false, false, false},
    {9, 4, 4, TT_F32, {.score = TT_ROUTE_SOFTMAX, .normalizes = true}, false, false, true},
    {0, 4, 2, TT_F32, {.score = TT_ROUTE_SOFTMAX}, false, false, true},
};

static const struct route_case gpu_cases[] = {
    {4096, 128, 8, TT_BF16, {.score = TT_ROUTE_SOFTMAX, .normalizes = true}, false, false, true},
    {1000,
     256,
     8,
     TT_F32,
     {.score = TT_ROUTE_SIGMOID, .groups = 8, .kept_groups = 4, .normalizes = true, .epsilon = 1e-20f},
     true,
     false,
     false},
    {5000, 512, 10, TT_BF16, {.score = TT_ROUTE_SOFTMAX, .normalizes = true}, false, false, true},
};

enum { LOGITS, BIAS, SCALE, DWEIGHTS, DLOAD, IDS, WEIGHTS, LOAD, DLOGITS, LINES };
static const char *const names[LINES] = {"logits", "bias",    "scale", "dweights", "dload",
                                         "ids",    "weights", "load",  "dlogits"};

struct problem {
    const struct route_case *row;
    struct test_tensor tensors[LINES], first[LINES];
    double *exact[LINES], *simple[LINES];
};

/* From the definition, with the choice that `in[IDS]` has. */
#define DEFINE_REFERENCE(name, real, real_exp)                                                               \
    static void name(const struct problem *p, double *const v[LINES])                                        \
    {                                                                                                        \
        const struct route_case *row = p->row;                                                               \
        int64_t X = row->experts, S = row->slots;                                                            \
        real q[TT_ROUTE_EXPERTS_MAX], s[TT_ROUTE_EXPERTS_MAX], d[TT_ROUTE_EXPERTS_MAX];                      \
        memset(v[LOAD], 0, (size_t)(2 * X) * sizeof(double));                                                \
        for (int64_t t = 0; t < row->tokens; t++) {                                                          \
            const double *l = v[LOGITS] + t * X, *dw = v[DWEIGHTS] + t * S, *ids = v[IDS] + t * S;           \
            double *w = v[WEIGHTS] + t * S, *dl = v[DLOGITS] + t * X;                                        \
            real sum = 0, chosen = 0, most = (real)l[0], dot = 0, among = 0;                                 \
            real factor = row->rule.factor == 0 ? 1 : (real)row->rule.factor;                                \
            for (int64_t e = 0; e < X; e++) most = (real)l[e] > most ? (real)l[e] : most;                    \
            for (int64_t e = 0; e < X; e++) sum += q[e] = real_exp((real)l[e] - most);                       \
            for (int64_t i = 0; i < S; i++) among += q[(int64_t)ids[i]];                                     \
            for (int64_t e = 0; e < X; e++) {                                                                \
                q[e] /= sum;                                                                                 \
                v[LOAD][X + e] += (double)q[e];                                                              \
                s[e] = row->rule.score == TT_ROUTE_SIGMOID  ? 1 / (1 + real_exp(-(real)l[e]))                \
                       : row->rule.score == TT_ROUTE_CHOSEN ? q[e] * sum / among                             \
                                                            : q[e];                                          \
                d[e] = 0;                                                                                    \
            }                                                                                                \
            for (int64_t i = 0; i < S; i++) chosen += s[(int64_t)ids[i]];                                    \
            real divisor = row->rule.normalizes ? chosen + (real)row->rule.epsilon : 1;                      \
            for (int64_t i = 0; i < S; i++) {                                                                \
                int64_t e = (int64_t)ids[i];                                                                 \
                real by = factor * (row->scale ? (real)v[SCALE][e] : 1);                                     \
                w[i] = (double)(s[e] / divisor * by);                                                        \
                d[e] = (real)dw[i] * by / divisor;                                                           \
                if (row->rule.normalizes) dot += (real)dw[i] * by * s[e] / (divisor * divisor);              \
            }                                                                                                \
            for (int64_t i = 0; i < S; i++) d[(int64_t)ids[i]] -= dot;                                       \
            dot = 0;                                                                                         \
            bool soft = row->rule.score != TT_ROUTE_SIGMOID;                                                 \
            for (int64_t i = 0; i < S; i++) dot += soft ? d[(int64_t)ids[i]] * s[(int64_t)ids[i]] : 0;       \
            real all = 0;                                                                                    \
            for (int64_t e = 0; e < X; e++) all += row->load ? (real)v[DLOAD][e] * q[e] : 0;                 \
            for (int64_t e = 0; e < X; e++) {                                                                \
                bool is_chosen = row->rule.score == TT_ROUTE_SOFTMAX;                                        \
                int64_t larger = 0;                                                                          \
                for (int64_t i = 0; i < S; i++) is_chosen = is_chosen || ids[i] == (double)e;                \
                for (int64_t j = 0; j < X; j++) larger += l[j] > l[e] || (l[j] == l[e] && j < e);            \
                if (larger < S) v[LOAD][e] += 1;                                                             \
                real through = !is_chosen ? 0 : soft ? s[e] * (d[e] - dot) : s[e] * (1 - s[e]) * d[e];       \
                if (row->load) through += q[e] * ((real)v[DLOAD][e] - all);                                  \
                dl[e] = (double)through;                                                                     \
            }                                                                                                \
        }                                                                                                    \
    }

DEFINE_REFERENCE(oracle, double, exp)
DEFINE_REFERENCE(plain, float, expf)

static void make_problem(struct problem *p, const struct route_case *row)
{
    int64_t T = row->tokens, X = row->experts, S = row->slots;
    memset(p, 0, sizeof *p);
    p->row = row;
    for (int i = 0; i < LINES; i++) {
        bool slots = i == DWEIGHTS || i == IDS || i == WEIGHTS, logits = i == LOGITS || i == DLOGITS;
        tt_dtype dtype = logits ? row->dtype : i == IDS ? TT_I32 : TT_F32;
        int64_t rows = slots || logits ? T : i == LOAD ? 2 : X, columns = slots ? S : X;
        if (i == IDS || i == LOAD)
            p->tensors[i] = test_tensor_make(dtype, rows, columns, TEST_UNUSED, 0);
        else if (i == BIAS || i == SCALE || i == DLOAD)
            p->tensors[i] =
                test_tensor_random(dtype, rows, TEST_UNUSED, TEST_UNUSED, 0, (uint64_t)i + 1, 0.1);
        else
            p->tensors[i] = test_tensor_random(dtype, rows, columns, TEST_UNUSED, 0, (uint64_t)i + 1, 1);
        if (i >= IDS && i != LOAD) test_tensor_poison(&p->tensors[i]);
        p->exact[i] =
            i == IDS || i == LOAD ? test_doubles(rows * columns) : test_tensor_values(&p->tensors[i]);
        p->simple[i] = test_doubles(rows * columns);
        if (i < IDS)
            memcpy(p->simple[i], p->exact[i], (size_t)tt_tensor_count(p->tensors[i].view) * sizeof(double));
    }
}

static void free_problem(struct problem *p)
{
    test_array_free(p->tensors, LINES);
    test_array_free(p->first, LINES);
    test_free_values(p->exact, LINES);
    test_free_values(p->simple, LINES);
}

static double value_of(const struct problem *p, int64_t t, int64_t e)
{
    const struct route_case *row = p->row;
    const double *l = p->exact[LOGITS] + t * row->experts;
    double most = l[0], sum = 0, bias = row->bias ? p->exact[BIAS][e] : 0;
    if (row->rule.score == TT_ROUTE_CHOSEN) return l[e] + bias;
    if (row->rule.score == TT_ROUTE_SIGMOID) return 1 / (1 + exp(-l[e])) + bias;
    for (int64_t i = 0; i < row->experts; i++) most = fmax(most, l[i]);
    for (int64_t i = 0; i < row->experts; i++) sum += exp(l[i] - most);
    return exp(l[e] - most) / sum + bias;
}

/* The sum of the two best values of a group. */
static double group_value(const struct problem *p, int64_t t, int64_t group)
{
    int64_t each = p->row->experts / p->row->rule.groups;
    double best = -HUGE_VAL, second = -HUGE_VAL;
    for (int64_t e = group * each; e < (group + 1) * each; e++) {
        double value = value_of(p, t, e);
        if (value > best)
            second = best, best = value;
        else if (value > second)
            second = value;
    }
    return best + second;
}

/* Whether an expert is in a group that is kept; the groups of random values have no ties. */
static bool is_kept(const struct problem *p, int64_t t, int64_t e)
{
    const struct tt_route_rule *rule = &p->row->rule;
    if (rule->groups == 0) return true;
    int64_t group = e / (p->row->experts / rule->groups), better = 0;
    for (int64_t g = 0; g < rule->groups; g++) better += group_value(p, t, g) > group_value(p, t, group);
    return better < rule->kept_groups;
}

/* The choice is right up to what fp32 cannot tell apart, and in order. */
static void check_choice(const struct problem *p, int64_t t, const double *ids)
{
    int64_t X = p->row->experts, S = p->row->slots;
    for (int64_t i = 0; i < S; i++) {
        int64_t e = (int64_t)ids[i];
        assert_true(e >= 0 && e < X && is_kept(p, t, e));
        for (int64_t j = 0; j < i; j++) assert_int_not_equal(e, (int64_t)ids[j]);
        double value = value_of(p, t, e);
        if (i > 0) assert_true(value_of(p, t, (int64_t)ids[i - 1]) >= value - 1e-6);
    }
    double least = value_of(p, t, (int64_t)ids[S - 1]);
    for (int64_t e = 0; e < X; e++) {
        bool chosen = false;
        for (int64_t i = 0; i < S; i++) chosen = chosen || (int64_t)ids[i] == e;
        if (!chosen && is_kept(p, t, e) && value_of(p, t, e) > least + 1e-6)
            fail_msg("token %lld: expert %lld is better than the chosen %lld", (long long)t, (long long)e,
                     (long long)ids[S - 1]);
    }
}

static tt_tensor if_has(bool has, const struct test_tensor *tensor)
{
    return has ? tensor->view : (tt_tensor){0};
}

static void run_op(struct test_device *device, const struct route_case *row, struct test_tensor *t)
{
    struct tt_route_forward_args forward = {.rule = row->rule,
                                            .logits_TX = t[LOGITS].view,
                                            .bias_X = if_has(row->bias, &t[BIAS]),
                                            .scale_X = if_has(row->scale, &t[SCALE]),
                                            .ids_TS = t[IDS].view,
                                            .weights_TS = t[WEIGHTS].view,
                                            .load_2X = if_has(row->load, &t[LOAD])};
    struct tt_route_backward_args backward = {.rule = row->rule,
                                              .logits_TX = t[LOGITS].view,
                                              .scale_X = forward.scale_X,
                                              .ids_TS = t[IDS].view,
                                              .dweights_TS = t[DWEIGHTS].view,
                                              .dload_X = if_has(row->load, &t[DLOAD]),
                                              .dlogits_TX = t[DLOGITS].view};
    test_ok(tt_route_forward(device->stream, &forward));
    test_ok(tt_route_backward(device->stream, &backward));
}

static void check_run(struct test_device *device, int threads, void *context)
{
    struct problem *p = context;
    struct test_tensor t[LINES];
    for (int i = 0; i < LINES; i++) t[i] = test_tensor_copy(&p->tensors[i]);
    test_array_to_device(device, t, LINES);
    run_op(device, p->row, t);
    test_array_to_host(device, t, LINES);
    if (threads == 1) {
        double *ids = test_tensor_values(&t[IDS]);
        size_t bytes = (size_t)tt_tensor_count(t[IDS].view) * sizeof *ids;
        for (int64_t i = 0; i < p->row->tokens; i++) check_choice(p, i, ids + i * p->row->slots);
        memcpy(p->exact[IDS], ids, bytes);
        memcpy(p->simple[IDS], ids, bytes);
        free(ids);
        oracle(p, p->exact);
        plain(p, p->simple);
        for (int64_t i = 0; i < tt_tensor_count(t[DLOGITS].view); i++)
            p->simple[DLOGITS][i] = (double)test_round((float)p->simple[DLOGITS][i], p->row->dtype);
    }
    for (int i = 0; i < LINES; i++) {
        if (i < IDS || (i == LOAD && !p->row->load))
            test_check_untouched(names[i], &t[i], &p->tensors[i]);
        else
            test_check_result(names[i], t[i], threads, p->exact[i], p->simple[i], 4, &p->first[i]);
    }
}

static void check_case(const void *row)
{
    struct problem p;
    make_problem(&p, row);
    test_on_each_isa(check_run, &p);
    free_problem(&p);
}

static void close_to_the_oracle(void **state)
{
    (void)state;
    TEST_CASES("route", cases, check_case);
}

static void sizes_of_real_models(void **state)
{
    (void)state;
    TEST_SIZES_ONLY();
    TEST_CASES("route", gpu_cases, check_case);
}

static double weighted(void *context)
{
    struct problem *p = context;
    double sum = 0;
    oracle(p, p->exact);
    for (int64_t i = 0; i < p->row->tokens * p->row->slots; i++)
        sum += p->exact[WEIGHTS][i] * p->exact[DWEIGHTS][i];
    for (int64_t e = 0; e < p->row->experts && p->row->load; e++)
        sum += p->exact[LOAD][p->row->experts + e] * p->exact[DLOAD][e];
    return sum;
}

static void oracle_agrees_with_finite_differences(void **state)
{
    (void)state;
    TEST_CPU_ONLY();
    static const enum tt_route_score scores[] = {TT_ROUTE_SOFTMAX, TT_ROUTE_CHOSEN, TT_ROUTE_SIGMOID};
    for (int i = 0; i < 6; i++) {
        const struct route_case row = {
            5,
            6,
            3,
            TT_F32,
            {.score = scores[i / 2], .normalizes = i % 2 == 1, .epsilon = 0.01f, .factor = 2},
            false,
            true,
            true};
        struct problem p;
        make_problem(&p, &row);
        for (int64_t s = 0; s < 15; s++) p.exact[IDS][s] = (double)((s % 3 * 2 + s / 3) % 6);
        weighted(&p);
        double *gradient = test_doubles(30);
        memcpy(gradient, p.exact[DLOGITS], 30 * sizeof *gradient);
        test_gradient("dlogits", weighted, &p, p.exact[LOGITS], gradient, 30);
        free(gradient);
        free_problem(&p);
    }
}

/* Equal values: the lower index. */
static void ties_go_to_the_lower_index(void **state)
{
    (void)state;
    const struct route_case row = {
        2, 6, 3, TT_F32, {.score = TT_ROUTE_SOFTMAX, .groups = 3, .kept_groups = 2}, false, false, false};
    struct problem p;
    struct test_device device;
    make_problem(&p, &row);
    test_tensor_set(&p.tensors[LOGITS], (const double[]){1, 1, 1, 1, 1, 1, 0, 2, 2, 0, 0, 2});
    test_device_open(&device, test_device_kind(), 1);
    test_array_to_device(&device, p.tensors, LINES);
    run_op(&device, &row, p.tensors);
    test_array_to_host(&device, p.tensors, LINES);
    const int32_t *ids = p.tensors[IDS].view.data;
    assert_memory_equal(ids, ((const int32_t[]){0, 1, 2, 1, 2, 0}), 6 * sizeof *ids);
    test_device_close(&device);
    free_problem(&p);
}

/* The scores and the weights of the reference in bf16: rounded, and near those that are not. */
static void rounded_like_the_reference(void **state)
{
    (void)state;
    const struct route_case row = {
        40,
        16,
        4,
        TT_BF16,
        {.score = TT_ROUTE_SOFTMAX, .normalizes = true, .rounds_scores = true, .rounds_weights = true},
        false,
        false,
        false};
    struct problem p;
    struct test_device device;
    make_problem(&p, &row);
    test_device_open(&device, test_device_kind(), 2);
    test_array_to_device(&device, p.tensors, LINES);
    run_op(&device, &row, p.tensors);
    test_array_to_host(&device, p.tensors, LINES);
    free(p.exact[IDS]);
    p.exact[IDS] = test_tensor_values(&p.tensors[IDS]);
    oracle(&p, p.exact);
    double *weights = test_tensor_values(&p.tensors[WEIGHTS]);
    for (int64_t i = 0; i < row.tokens * row.slots; i++) {
        assert_true(weights[i] == (double)test_round((float)weights[i], TT_BF16));
        assert_true(fabs(weights[i] - p.exact[WEIGHTS][i]) <= 0.02 * p.exact[WEIGHTS][i]);
    }
    free(weights);
    test_device_close(&device);
    free_problem(&p);
}

/* X sum f P and its gradient, by the definition. */
static void balance_is_the_definition(void **state)
{
    (void)state;
    struct test_device device;
    struct test_tensor load = test_tensor_make(TT_F32, 2, 4, TEST_UNUSED, 0),
                       dload = test_tensor_make(TT_F32, 4, TEST_UNUSED, TEST_UNUSED, 0),
                       loss = test_tensor_make(TT_F64, 1, TEST_UNUSED, TEST_UNUSED, 0);
    test_tensor_set(&load, (const double[]){10, 4, 6, 0, 3.5, 2.5, 2, 2});
    test_tensor_set(&loss, (const double[]){1});
    test_device_open(&device, test_device_kind(), 1);
    TEST_TO_DEVICE(&device, &load, &dload, &loss);
    struct tt_route_balance_args args = {.load_2X = load.view,
                                         .slots = 2,
                                         .scale = 0.5f,
                                         .dload_X = dload.view,
                                         .loss_scale = 0.25f,
                                         .loss = loss.view};
    test_ok(tt_route_balance(device.stream, &args));
    TEST_TO_HOST(&device, &load, &dload, &loss);
    double expected = 1 + 0.25 * 4 * (10 * 3.5 + 4 * 2.5 + 6 * 2) / 100;
    assert_true(fabs(*(const double *)loss.view.data - expected) < 1e-12);
    for (int e = 0; e < 4; e++)
        assert_true(fabsf(((const float *)dload.view.data)[e] -
                          0.5f * 4 * ((const float *)load.view.data)[e] / 100) < 1e-7f);
    test_device_close(&device);
    test_tensor_free(&load), test_tensor_free(&dload), test_tensor_free(&loss);
}

#define REFUSE(op, good, change, message)                                                                    \
    do {                                                                                                     \
        __typeof__(good) args = good;                                                                        \
        change;                                                                                              \
        test_refused(op(device.stream, &args), TT_ERR_INTERNAL, message);                                    \
    } while (0)

static void hostile_arguments(void **state)
{
    (void)state;
    TEST_CPU_ONLY();
    static float memory[4][64];
    static float load[8];
    struct test_device device;
    test_device_open(&device, "cpu", 1);
    struct tt_route_forward_args good = {.logits_TX = tt_tensor_2d(memory[0], TT_F32, 2, 4),
                                         .ids_TS = tt_tensor_2d(memory[1], TT_I32, 2, 2),
                                         .weights_TS = tt_tensor_2d(memory[2], TT_F32, 2, 2)};
    test_ok(tt_route_forward(device.stream, &good));
    REFUSE(tt_route_forward, good, args.ids_TS = tt_tensor_2d(memory[1], TT_I32, 2, 5),
           "5 of 4 experts cannot be chosen");
    REFUSE(tt_route_forward, good, args.ids_TS = tt_tensor_2d(memory[1], TT_I32, 3, 2),
           "ids are of 3 tokens, logits of 2");
    REFUSE(tt_route_forward, good, args.rule.groups = 3, "4 experts are not in 3 groups of two or more");
    REFUSE(tt_route_forward, good, (args.rule.groups = 2, args.rule.kept_groups = 3),
           "3 of 2 groups cannot be kept");
    REFUSE(tt_route_forward, good,
           (args.rule.groups = 2, args.rule.kept_groups = 1,
            args.ids_TS = tt_tensor_2d(memory[1], TT_I32, 2, 3)),
           "3 experts are not in 1 groups of 2");
    REFUSE(tt_route_forward, good, args.logits_TX = tt_tensor_2d(memory[0], TT_F32, 2, 1025),
           "1025 experts are not in 1..1024");
    REFUSE(tt_route_forward, good, args.weights_TS = tt_tensor_2d(memory[0], TT_F32, 2, 2),
           "overlap in memory");
    struct tt_route_balance_args balance = {.load_2X = tt_tensor_2d(load, TT_F32, 2, 4),
                                            .slots = 0,
                                            .dload_X = tt_tensor_1d(memory[3], TT_F32, 4)};
    test_refused(tt_route_balance(device.stream, &balance), TT_ERR_INTERNAL, "0 slots of a token");
    test_device_close(&device);
}

int main(void)
{
    int missing = test_device_missing();
    if (missing != 0) return missing;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(oracle_agrees_with_finite_differences),
        cmocka_unit_test(close_to_the_oracle),
        cmocka_unit_test(sizes_of_real_models),
        cmocka_unit_test(ties_go_to_the_lower_index),
        cmocka_unit_test(rounded_like_the_reference),
        cmocka_unit_test(balance_is_the_definition),
        cmocka_unit_test(hostile_arguments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
