#include "backend/ops/latent_heads.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ops/isa.h"

struct latent_case {
    int64_t tokens, heads, plain, rotated, value, gap;
    tt_dtype dtype;
    bool pairs;
    double temperature;
};

static const struct latent_case cases[] = {
    {5, 2, 8, 8, 8, 0, TT_F32, true, 0},       {70, 3, 16, 8, 24, 5, TT_BF16, true, 0.1},
    {9, 4, 12, 4, 8, 1, TT_F32, false, 0.3},   {300, 2, 6, 2, 20, 0, TT_BF16, false, 0},
    {7, 1, 0, 6, 3, 2, TT_F32, true, 0.1},     {33, 5, 64, 64, 128, 0, TT_BF16, true, 0.1},
    {12, 2, 128, 64, 128, 8, TT_F32, true, 0}, {0, 2, 8, 8, 8, 0, TT_F32, true, 0},
};

static const struct latent_case gpu_cases[] = {
    {2048, 32, 64, 64, 128, 0, TT_BF16, true, 0.1},
    {1025, 16, 128, 64, 128, 64, TT_BF16, true, 0},
    {513, 20, 192, 64, 256, 0, TT_BF16, true, 0},
};

enum { POSITIONS = 50, ORIGINAL = 4 };
enum { Q_IN, KV, SHARED, Q, K, V, LINES, COLUMNS = 3 };
static const char *const names[LINES] = {
    "q's columns", "columns of k and v", "shared columns", "q", "k", "v"};

struct problem {
    const struct latent_case *row;
    bool backward;
    struct test_tensor tensors[LINES], first[LINES], positions, cos, sin;
    double *values[LINES]; /* of the inputs, then of the results */
    double *simple[LINES];
};

static int64_t width_of(const struct latent_case *row)
{
    int64_t keys = row->plain + row->rotated;
    return keys > row->value ? keys : row->value;
}

static struct tt_latent_heads_args args_of(const struct problem *p, const struct test_tensor *t)
{
    return (struct tt_latent_heads_args){.q_TC = t[Q_IN].view,
                                         .kv_TC = t[KV].view,
                                         .shared_TR = t[SHARED].view,
                                         .positions_T = p->positions.view,
                                         .cos_PE = p->cos.view,
                                         .sin_PE = p->sin.view,
                                         .pairs = p->row->pairs,
                                         .temperature = p->row->temperature,
                                         .original_positions = ORIGINAL,
                                         .q_THW = t[Q].view,
                                         .k_THW = t[K].view,
                                         .v_THW = t[V].view,
                                         .backward = p->backward};
}

/* x, or as a plain implementation has it, in single precision. */
static double kept(double x, bool single)
{
    return single ? (double)(float)x : x;
}

struct token {
    bool single;
    double factor;
    const double *cos, *sin;
    int64_t t;
};

/* a and b turned in place */
static void turn(const struct token *token, double *a, double *b, int64_t e, double direction)
{
    bool single = token->single;
    double c = token->cos[e], s = token->sin[e] * direction;
    double low = kept(kept(*a * c, single) - kept(*b * s, single), single);
    *b = kept(kept(*b * c, single) + kept(*a * s, single), single);
    *a = low;
}

static void forward_head(const struct problem *p, double *const *x, const struct token *token, int64_t head)
{
    const struct latent_case *row = p->row;
    int64_t width = width_of(row), half = row->rotated / 2, keys = row->plain + row->rotated;
    int64_t item = token->t * row->heads + head;
    double *q = x[Q] + item * width, *k = x[K] + item * width, *v = x[V] + item * width;
    const double *q_in = x[Q_IN] + item * keys, *kv = x[KV] + item * (row->plain + row->value);
    const double *shared = x[SHARED] + token->t * row->rotated;
    for (int64_t d = 0; d < width; d++) q[d] = k[d] = v[d] = 0;
    memcpy(q, q_in, (size_t)keys * sizeof *q);
    memcpy(k, kv, (size_t)row->plain * sizeof *k);
    memcpy(k + row->plain, shared, (size_t)row->rotated * sizeof *k);
    memcpy(v, kv + row->plain, (size_t)row->value * sizeof *v);
    for (int64_t e = 0; e < half; e++) {
        int64_t low = row->plain + (row->pairs ? 2 * e : e), high = low + (row->pairs ? 1 : half);
        turn(token, &q[low], &q[high], e, 1);
        turn(token, &k[low], &k[high], e, 1);
    }
    for (int64_t d = 0; d < keys; d++) q[d] = kept(q[d] * token->factor, token->single);
}

static void backward_head(const struct problem *p, double *const *x, const struct token *token, int64_t head)
{
    const struct latent_case *row = p->row;
    int64_t width = width_of(row), half = row->rotated / 2, keys = row->plain + row->rotated;
    int64_t item = token->t * row->heads + head;
    const double *q = x[Q] + item * width, *k = x[K] + item * width, *v = x[V] + item * width;
    double *q_in = x[Q_IN] + item * keys, *kv = x[KV] + item * (row->plain + row->value);
    double *shared = x[SHARED] + token->t * row->rotated;
    for (int64_t d = 0; d < keys; d++) q_in[d] = kept(q[d] * token->factor, token->single);
    for (int64_t d = 0; d < row->plain; d++) kv[d] = k[d];
    for (int64_t d = 0; d < row->value; d++) kv[row->plain + d] = v[d];
    for (int64_t e = 0; e < half; e++) {
        int64_t low = row->pairs ? 2 * e : e, high = low + (row->pairs ? 1 : half);
        double a = k[row->plain + low], b = k[row->plain + high];
        turn(token, &q_in[row->plain + low], &q_in[row->plain + high], e, -1);
        turn(token, &a, &b, e, -1);
        shared[low] = kept(shared[low] + a, token->single);
        shared[high] = kept(shared[high] + b, token->single);
    }
}

/* The results among `x` from its inputs. */
static void compute(const struct problem *p, double *const *x, bool single)
{
    const struct latent_case *row = p->row;
    double *at = test_tensor_values(&p->positions), *cosine = test_tensor_values(&p->cos),
           *sine = test_tensor_values(&p->sin);
    if (p->backward) memset(x[SHARED], 0, (size_t)(row->tokens * row->rotated) * sizeof(double));
    for (int64_t t = 0; t < row->tokens; t++) {
        int64_t place = (int64_t)at[t] * (row->rotated / 2);
        double factor = kept(1 + row->temperature * log(1 + floor(at[t] / ORIGINAL)), single);
        const struct token token = {single, factor, cosine + place, sine + place, t};
        for (int64_t h = 0; h < row->heads; h++)
            (p->backward ? backward_head : forward_head)(p, x, &token, h);
    }
    free(at), free(cosine), free(sine);
}

static bool is_result(const struct problem *p, int line)
{
    return (line < COLUMNS) == p->backward;
}

static void check_run(struct test_device *device, int threads, void *context)
{
    struct problem *p = context;
    struct test_tensor tensors[LINES];
    for (int i = 0; i < LINES; i++) {
        tensors[i] = test_tensor_copy(&p->tensors[i]);
        if (is_result(p, i)) test_tensor_poison(&tensors[i]);
    }
    test_array_to_device(device, tensors, LINES);
    TEST_TO_DEVICE(device, &p->positions, &p->cos, &p->sin);
    struct tt_latent_heads_args args = args_of(p, tensors);
    test_ok(tt_latent_heads(device->stream, &args));
    TEST_TO_HOST(device, &p->positions, &p->cos, &p->sin);
    test_array_to_host(device, tensors, LINES);
    for (int i = 0; i < LINES; i++) {
        if (is_result(p, i))
            test_check_result(names[i], tensors[i], threads, p->values[i], p->simple[i], p->backward ? 3 : 2,
                              &p->first[i]);
        else
            test_check_untouched(names[i], &tensors[i], &p->tensors[i]);
    }
}

static void make_problem(struct problem *p, const struct latent_case *row, bool backward)
{
    int64_t keys = row->plain + row->rotated, width = width_of(row);
    int64_t columns[COLUMNS] = {row->heads * keys, row->heads * (row->plain + row->value), row->rotated};
    *p = (struct problem){.row = row, .backward = backward};
    for (int i = 0; i < LINES; i++)
        p->tensors[i] = i < COLUMNS ? test_tensor_random(row->dtype, row->tokens, columns[i], TEST_UNUSED,
                                                         row->gap, 10 + (uint64_t)i, 1)
                                    : test_tensor_random(row->dtype, row->tokens, row->heads, width, row->gap,
                                                         10 + (uint64_t)i, 1);
    p->positions = test_tensor_make(TT_I32, row->tokens, TEST_UNUSED, TEST_UNUSED, 0);
    test_tensor_random_index(&p->positions, 2, POSITIONS);
    p->cos = test_tensor_random(TT_F32, POSITIONS, row->rotated / 2, TEST_UNUSED, 3, 3, 1);
    p->sin = test_tensor_random(TT_F32, POSITIONS, row->rotated / 2, TEST_UNUSED, 3, 4, 1);
    for (int i = 0; i < LINES; i++) {
        p->values[i] = test_tensor_values(&p->tensors[i]);
        p->simple[i] = test_tensor_values(&p->tensors[i]);
    }
    compute(p, p->values, false);
    compute(p, p->simple, true);
    for (int i = 0; i < LINES; i++)
        for (int64_t j = 0; j < tt_tensor_count(p->tensors[i].view); j++)
            p->simple[i][j] = (double)test_round((float)p->simple[i][j], row->dtype);
}

static void free_problem(struct problem *p)
{
    test_array_free(p->tensors, LINES);
    test_array_free(p->first, LINES);
    test_free_values(p->values, LINES);
    test_free_values(p->simple, LINES);
    test_tensor_free(&p->positions);
    test_tensor_free(&p->cos);
    test_tensor_free(&p->sin);
}

static void check_case(const void *row)
{
    for (int backward = 0; backward < 2; backward++) {
        struct problem p;
        make_problem(&p, row, backward == 1);
        test_on_each_isa(check_run, &p);
        free_problem(&p);
    }
}

static void close_to_the_oracle(void **state)
{
    (void)state;
    TEST_CASES("latent_heads", cases, check_case);
}

static void sizes_of_real_models(void **state)
{
    (void)state;
    TEST_SIZES_ONLY();
    TEST_CASES("latent_heads", gpu_cases, check_case);
}

/* Inputs, and the weights of the results in the sum. */
struct weighted {
    struct problem *p;
    double *weights[LINES];
};

static double weighted_results(void *context)
{
    struct weighted *w = context;
    double sum = 0;
    compute(w->p, w->p->values, false);
    for (int i = COLUMNS; i < LINES; i++)
        for (int64_t j = 0; j < tt_tensor_count(w->p->tensors[i].view); j++)
            sum += w->p->values[i][j] * w->weights[i][j];
    return sum;
}

/* The backward oracle is the gradient of the forward oracle. */
static void oracle_agrees_with_finite_differences(void **state)
{
    (void)state;
    TEST_CPU_ONLY();
    for (size_t r = 0; r < 5; r++) {
        struct latent_case row = cases[r];
        struct problem forward, backward;
        row.tokens = 3;
        row.heads = 2;
        make_problem(&forward, &row, false);
        make_problem(&backward, &row, true); /* its q, k and v are the weights */
        struct weighted w = {.p = &forward};
        memcpy(w.weights, backward.values, sizeof w.weights);
        for (int i = 0; i < COLUMNS; i++)
            test_gradient(names[i], weighted_results, &w, forward.values[i], backward.values[i],
                          tt_tensor_count(forward.tensors[i].view));
        free_problem(&forward);
        free_problem(&backward);
    }
}

#define REFUSE(change, message)                                                                              \
    do {                                                                                                     \
        struct tt_latent_heads_args args = good;                                                             \
        change;                                                                                              \
        test_refused(tt_latent_heads(device.stream, &args), TT_ERR_INTERNAL, message);                       \
    } while (0)

static void hostile_arguments(void **state)
{
    (void)state;
    TEST_CPU_ONLY();
    struct test_device device;
    static float memory[9][256];
    static int32_t positions[2] = {0, 3};
    test_device_open(&device, "cpu", 1);
    struct tt_latent_heads_args good = {.q_TC = tt_tensor_2d(memory[0], TT_F32, 2, 16),
                                        .kv_TC = tt_tensor_2d(memory[1], TT_F32, 2, 16),
                                        .shared_TR = tt_tensor_2d(memory[2], TT_F32, 2, 4),
                                        .positions_T = tt_tensor_1d(positions, TT_I32, 2),
                                        .cos_PE = tt_tensor_2d(memory[3], TT_F32, 4, 2),
                                        .sin_PE = tt_tensor_2d(memory[4], TT_F32, 4, 2),
                                        .q_THW = tt_tensor_3d(memory[5], TT_F32, 2, 2, 8),
                                        .k_THW = tt_tensor_3d(memory[6], TT_F32, 2, 2, 8),
                                        .v_THW = tt_tensor_3d(memory[7], TT_F32, 2, 2, 8)};
    test_ok(tt_latent_heads(device.stream, &good));
    REFUSE(args.q_TC = tt_tensor_2d(memory[0], TT_F32, 2, 15),
           "15 columns of q and 16 of k and v for 2 heads");
    REFUSE(args.q_TC = tt_tensor_2d(memory[0], TT_F32, 3, 16), "q's columns has 3 rows for 2 tokens");
    REFUSE(args.shared_TR = tt_tensor_2d(memory[2], TT_F32, 2, 3), "3 columns of a head cannot rotate");
    REFUSE(args.q_TC = tt_tensor_2d(memory[0], TT_F32, 2, 4), "heads of q have 2 columns");
    REFUSE(args.kv_TC = tt_tensor_2d(memory[1], TT_F32, 2, 32),
           "heads of 8 columns for 8 of q and 12 of v, at most 512");
    REFUSE(args.cos_PE = tt_tensor_2d(memory[3], TT_F32, 4, 3), "cos");
    REFUSE(args.temperature = 0.1, "a temperature over 0 original positions");
    REFUSE(args.v_THW = args.k_THW, "overlap in memory");
    REFUSE(args.q_TC = tt_tensor_2d(memory[5], TT_F32, 2, 16), "overlap in memory");
    positions[1] = 4;
    REFUSE(args.pairs = true, "token 1 has position 4, the table ends at 4");
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
        cmocka_unit_test(hostile_arguments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
