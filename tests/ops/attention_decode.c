/* The op attention_decode against its definition in fp64; a row's bits do not depend on the rows beside it or on the
 * largest count; wrong arguments. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend/ops/attention.h"
#include "ops/isa.h"

enum { ROWS_MAX = 6, BEFORE = 3 };

struct decode_case {
    int64_t heads, kv_heads, head_dim, window, gap;
    tt_dtype dtype;
    double size;                  /* deviation of q and k */
    int32_t counts[ROWS_MAX + 1]; /* ends with -1 */
    float soft_cap;
};

/* clang-format off */
static const struct decode_case cases[] = {
    /* shapes of models, around the borders of parts */
    {4, 4, 64, 0, 0, TT_F32, 1, {130, 128, 1, -1}, 0},
    {4, 4, 64, 0, 0, TT_BF16, 1, {130, 129, 256, -1}, 0},
    {32, 8, 128, 0, 0, TT_F32, 1, {300, 2, 127, -1}, 0},
    {32, 8, 128, 0, 0, TT_BF16, 1, {70, 300, 513, 0, -1}, 0},
    {14, 2, 64, 0, 8, TT_BF16, 1, {33, 1, 0, 640, -1}, 0},
    {14, 2, 64, 0, 8, TT_F32, 1, {33, 1, 0, 640, -1}, 0},
    {9, 3, 64, 0, 0, TT_BF16, 1, {5, 264, -1}, 0},
    {8, 8, 96, 0, 0, TT_BF16, 1, {90, 200, -1}, 0},
    {8, 2, 96, 0, 0, TT_BF16, 1, {90, 200, -1}, 0},
    {8, 2, 96, 0, 0, TT_F32, 1, {90, 200, -1}, 0},
    {4, 2, 256, 0, 0, TT_BF16, 1, {90, 258, -1}, 0},
    {4, 2, 256, 0, 0, TT_F32, 1, {90, 258, -1}, 0},
    {8, 2, 512, 0, 0, TT_BF16, 1, {90, 258, 1, -1}, 0},
    {8, 2, 512, 0, 0, TT_F32, 1, {90, 258, 1, -1}, 0},
    {3, 3, 512, 0, 0, TT_BF16, 1, {90, 258, -1}, 0},
    {4, 2, 320, 0, 0, TT_BF16, 1, {90, 258, -1}, 0},
    {4, 2, 320, 0, 1, TT_F32, 1, {90, 258, -1}, 0},
    {4, 2, 32, 0, 0, TT_BF16, 1, {90, 258, -1}, 0},
    {4, 2, 32, 0, 0, TT_F32, 1, {90, 258, -1}, 0},
    /* head dimensions and strides that fill no vector */
    {4, 2, 16, 0, 0, TT_F32, 1, {50, 260, -1}, 0},
    {2, 1, 80, 0, 0, TT_BF16, 1, {97, 150, -1}, 0},
    {2, 1, 64, 0, 3, TT_BF16, 1, {97, 150, -1}, 0},
    {3, 1, 130, 0, 1, TT_F32, 1, {40, 140, -1}, 0},
    {3, 3, 7, 0, 0, TT_BF16, 1, {65, 2, -1}, 0},
    {1, 1, 1, 0, 0, TT_F32, 1, {9, -1}, 0},
    /* nothing to do */
    {2, 1, 32, 0, 0, TT_F32, 1, {-1}, 0},
    {2, 1, 32, 0, 0, TT_F32, 1, {0, 0, -1}, 0},
    /* windows */
    {2, 1, 32, 1, 0, TT_F32, 1, {70, 1, -1}, 0},
    {4, 2, 64, 100, 0, TT_F32, 1, {300, 99, 101, -1}, 0},
    {4, 2, 128, 200, 0, TT_BF16, 1, {500, 30, -1}, 0},
    {4, 1, 512, 200, 0, TT_BF16, 1, {500, 30, -1}, 0},
    /* so many keys that parts are longer than 128 */
    {4, 2, 64, 0, 0, TT_BF16, 1, {4100, 4096, 5000, -1}, 0},
    {2, 1, 16, 0, 0, TT_F32, 1, {4200, 100, -1}, 0},
    /* scores of hundreds */
    {2, 1, 64, 0, 0, TT_F32, 8, {100, 200, -1}, 0},
    {2, 1, 64, 0, 0, TT_BF16, 8, {100, 200, -1}, 0},
    /* capped */
    {8, 4, 256, 0, 0, TT_BF16, 2, {90, 258, -1}, 50},
    {8, 4, 512, 0, 0, TT_BF16, 2, {90, 258, -1}, 50},
    {4, 2, 64, 20, 0, TT_F32, 8, {150, 300, -1}, 30},
    {8, 2, 128, 0, 8, TT_F32, 2, {33, 170, -1}, 5},
    /* groups of 1 to 17 query heads, around the borders of tiles of keys, and with several parts */
    {2, 2, 128, 0, 0, TT_BF16, 1, {1, 63, 64, 65, 1000, -1}, 0},
    {4, 2, 128, 0, 8, TT_BF16, 1, {1, 63, 64, 65, 1000, 5000, -1}, 0},
    {8, 2, 64, 0, 0, TT_BF16, 1, {1, 63, 64, 65, 1000, 5000, -1}, 0},
    {10, 2, 128, 0, 0, TT_BF16, 1, {1, 63, 64, 65, 1000, -1}, 0},
    {16, 4, 256, 0, 8, TT_BF16, 1, {1, 63, 64, 65, 1000, -1}, 0},
    {32, 4, 128, 0, 8, TT_BF16, 1, {132, 1, 15, 16, 17, 0, -1}, 0},
    {32, 4, 128, 0, 0, TT_BF16, 1, {1100, 63, 64, 65, -1}, 0},
    {18, 2, 64, 0, 0, TT_BF16, 1, {79, 80, 81, 47, 49, -1}, 0},
    {16, 1, 64, 0, 0, TT_BF16, 1, {1, 64, 0, 1000, -1}, 0},
    {16, 1, 128, 0, 0, TT_BF16, 1, {63, 65, 1000, -1}, 0},
    {32, 2, 256, 0, 0, TT_BF16, 1, {1, 130, 1000, -1}, 0},
    {17, 1, 64, 0, 0, TT_BF16, 1, {63, 65, 600, -1}, 0},
    {8, 1, 128, 0, 0, TT_BF16, 1, {511, 512, 513, 768, 769, 784, -1}, 0},
    {6, 1, 64, 0, 0, TT_BF16, 1, {8192, 8193, -1}, 0},
    {8, 1, 128, 600, 8, TT_BF16, 1, {2000, 599, 600, 601, 0, 3, -1}, 0},
    {8, 1, 64, 65, 0, TT_BF16, 1, {2000, 64, 65, 66, 1, -1}, 0},
    {8, 2, 256, 1, 0, TT_BF16, 1, {700, 64, 1, -1}, 0},
    {16, 2, 128, 0, 8, TT_BF16, 2, {33, 170, 1300, -1}, 5},
    {10, 2, 256, 100, 0, TT_BF16, 4, {33, 170, 1300, -1}, 20},
    {8, 1, 64, 0, 0, TT_BF16, 8, {2, 100, 700, -1}, 0},
    {16, 2, 128, 0, 0, TT_BF16, 8, {2, 100, 700, -1}, 0},
};
static const struct decode_case large_cases[] = {
    {32, 8, 128, 0, 0, TT_BF16, 1, {4095, 32768, 20000, -1}, 0},
    {16, 8, 256, 4096, 0, TT_BF16, 1, {8192, 5000, -1}, 50},
};
/* clang-format on */

/* The mean of the sinks of problems that are made next, whose deviation is 2; 0: there are none. */
static double sinks_mean;

struct problem {
    const struct decode_case *row;
    int64_t rows, keys, most;
    double scale;
    int32_t first[ROWS_MAX];
    struct test_tensor q, k, v, o, first_T, count_T, sinks;
    double *sink; /* NULL: none */
};

static void make_problem(struct problem *p, const struct decode_case *row)
{
    int64_t gap = row->gap;
    *p = (struct problem){.row = row, .keys = BEFORE, .scale = 1 / sqrt((double)row->head_dim)};
    for (; row->counts[p->rows] >= 0; p->rows++) {
        p->first[p->rows] = (int32_t)p->keys;
        p->keys += row->counts[p->rows] + BEFORE;
        if (row->counts[p->rows] > p->most) p->most = row->counts[p->rows];
    }
    p->q = test_tensor_random(row->dtype, p->rows, row->heads, row->head_dim, gap, 1, row->size);
    p->k = test_tensor_random(row->dtype, p->keys, row->kv_heads, row->head_dim, gap, 2, row->size);
    p->v = test_tensor_random(row->dtype, p->keys, row->kv_heads, row->head_dim, gap, 3, 1);
    p->o = test_tensor_make(row->dtype, p->rows, row->heads, row->head_dim, gap);
    p->first_T = test_tensor_make(TT_I32, p->rows, TEST_UNUSED, TEST_UNUSED, 0);
    p->count_T = test_tensor_make(TT_I32, p->rows, TEST_UNUSED, TEST_UNUSED, 0);
    p->sinks = test_tensor_random(TT_F32, row->heads, TEST_UNUSED, TEST_UNUSED, 0, 20, 2);
    for (int64_t h = 0; h < row->heads; h++) ((float *)p->sinks.view.data)[h] += (float)sinks_mean;
    if (sinks_mean != 0) p->sink = test_tensor_values(&p->sinks);
    memcpy(p->first_T.view.data, p->first, (size_t)p->rows * sizeof *p->first);
    memcpy(p->count_T.view.data, row->counts, (size_t)p->rows * sizeof *row->counts);
}

static void free_problem(struct problem *p)
{
    struct test_tensor *all[] = {&p->q, &p->k, &p->v, &p->o, &p->first_T, &p->count_T, &p->sinks};
    for (int i = 0; i < 7; i++) test_tensor_free(all[i]);
    free(p->sink);
}

/* Runs the op on rows from `row` on; `most`: max_count. */
static void run_op(const struct test_device *device, struct problem *p, int64_t row, int64_t rows,
                   int64_t most)
{
    test_tensor_poison(&p->o);
    TEST_TO_DEVICE(device, &p->q, &p->k, &p->v, &p->o, &p->first_T, &p->count_T, &p->sinks);
    struct tt_attention_decode_args args = {
        .q_THE = tt_tensor_rows(p->q.view, row, rows),
        .k_RKE = p->k.view,
        .v_RKE = p->v.view,
        .first_T = tt_tensor_rows(p->first_T.view, row, rows),
        .count_T = tt_tensor_rows(p->count_T.view, row, rows),
        .max_count = most,
        .scale = p->scale,
        .window = p->row->window,
        .soft_cap = p->row->soft_cap,
        .sinks_H = p->sink != NULL ? p->sinks.view : (tt_tensor){0},
        .o_THE = tt_tensor_rows(p->o.view, row, rows),
    };
    struct tt_buffer *scratch = NULL;
    size_t bytes = tt_attention_decode_scratch(device->device, &args);
    if (bytes > 0) {
        test_ok(tt_buffer_create(device->device, bytes, TT_PURPOSE_ACTIVATIONS, &scratch));
        args.scratch = tt_tensor_1d(tt_buffer_data(scratch), TT_U8, (int64_t)bytes);
    }
    test_ok(tt_attention_decode(device->stream, &args));
    TEST_TO_HOST(device, &p->q, &p->k, &p->v, &p->o, &p->first_T, &p->count_T, &p->sinks);
    tt_buffer_destroy(scratch);
}

#define DEFINE_REFERENCE(name, real, real_exp, real_tanh)                                                    \
    static void name(const struct problem *p, const double *q, const double *k, const double *v, double *o)  \
    {                                                                                                        \
        int64_t H = p->row->heads, KV = p->row->kv_heads, E = p->row->head_dim;                              \
        real *weights = calloc((size_t)p->most + 1, sizeof *weights), cap = (real)p->row->soft_cap;          \
        for (int64_t t = 0; t < p->rows; t++)                                                                \
            for (int64_t h = 0; h < H; h++) {                                                                \
                int64_t end = p->row->counts[t], begin = end - p->row->window;                               \
                real max = -INFINITY, sum = 0;                                                               \
                if (p->row->window == 0 || begin < 0) begin = 0;                                             \
                for (int64_t j = begin; j < end; j++) {                                                      \
                    const double *key = k + ((p->first[t] + j) * KV + h / (H / KV)) * E;                     \
                    real dot = 0;                                                                            \
                    for (int64_t e = 0; e < E; e++) dot += (real)q[(t * H + h) * E + e] * (real)key[e];      \
                    dot *= (real)p->scale;                                                                   \
                    if (cap > 0) dot = cap * real_tanh(dot / cap);                                           \
                    weights[j] = dot;                                                                        \
                    if (dot > max) max = dot;                                                                \
                }                                                                                            \
                if (p->sink != NULL && (real)p->sink[h] > max) max = (real)p->sink[h];                       \
                for (int64_t j = begin; j < end; j++) sum += weights[j] = real_exp(weights[j] - max);        \
                if (p->sink != NULL) sum += real_exp((real)p->sink[h] - max);                                \
                for (int64_t e = 0; e < E; e++) {                                                            \
                    real value = 0;                                                                          \
                    for (int64_t j = begin; j < end; j++)                                                    \
                        value += weights[j] * (real)v[((p->first[t] + j) * KV + h / (H / KV)) * E + e];      \
                    o[(t * H + h) * E + e] = (double)(end > 0 ? value / sum : 0);                            \
                }                                                                                            \
            }                                                                                                \
        free(weights);                                                                                       \
    }
DEFINE_REFERENCE(oracle, double, exp, tanh)
DEFINE_REFERENCE(plain, float, expf, tanhf)

static void check_case(const void *row)
{
    struct test_device device;
    struct problem p;
    test_device_open(&device, test_device_kind(), 2);
    make_problem(&p, row);
    int64_t count = tt_tensor_count(p.o.view);
    double *q = test_tensor_values(&p.q), *k = test_tensor_values(&p.k), *v = test_tensor_values(&p.v);
    double *exact = test_doubles(count + 1), *simple = test_doubles(count + 1);
    oracle(&p, q, k, v, exact);
    plain(&p, q, k, v, simple);
    for (int64_t i = 0; i < count; i++) simple[i] = (double)test_round((float)simple[i], p.row->dtype);
    run_op(&device, &p, 0, p.rows, p.most);
    double *got = test_tensor_values(&p.o);
    /* Scores of hundreds are sums that cancel, whose order decides about a few units in their last place. */
    double absolute = p.row->size > 1 ? 0x1p-18 * p.row->size * p.row->size * p.row->size : 0;
    /* The exponent of a sink far above all scores is large, and powers of 2 round it twice. */
    double factor = sinks_mean > 10 ? 4 : 2;
    test_close_allowing("o", got, exact, simple, count, p.row->dtype, factor, 0, absolute);
    test_tensor_check_gaps("o", &p.o);
    struct test_tensor together = test_tensor_copy(&p.o);
    for (int64_t t = 0; t < p.rows; t++) {
        run_op(&device, &p, t, 1, p.row->counts[t]);
        tt_tensor a = tt_tensor_rows(p.o.view, t, 1), b = tt_tensor_rows(together.view, t, 1);
        if (memcmp(a.data, b.data, (size_t)(a.dims[1] * a.dims[2]) * tt_dtype_bytes(a.dtype)) != 0)
            fail_msg("row %lld is another one alone", (long long)t);
    }
    free(q), free(k), free(v), free(exact), free(simple), free(got);
    test_tensor_free(&together);
    free_problem(&p);
    test_device_close(&device);
}

static void close_to_the_oracle_and_alone_as_together(void **state)
{
    (void)state;
    TEST_CASES("decode", cases, check_case);
}

/* Sinks of the size of scores, far below and far above them. */
static void sinks(void **state)
{
    static const double means[] = {1, -20, 30};
    (void)state;
    for (int i = 0; i < 3; i++) {
        sinks_mean = means[i];
        TEST_CASES("sinks", cases, check_case);
    }
    sinks_mean = 0;
}

static void sizes_of_models(void **state)
{
    (void)state;
    TEST_SIZES_ONLY();
    TEST_CASES("large", large_cases, check_case);
}

static void wrong_arguments_are_refused(void **state)
{
    struct test_device device;
    float data[4][64];
    int32_t numbers[2][2] = {{0, 1}, {1, 2}};
    (void)state;
    test_device_open(&device, "cpu", 1);
    tt_tensor tensors[4];
    for (int i = 0; i < 4; i++)
        tensors[i] = tt_tensor_heads(tt_tensor_2d(data[i], TT_F32, i == 1 || i == 2 ? 4 : 2, 16), 2);
    const struct tt_attention_decode_args right = {.q_THE = tensors[0],
                                                   .k_RKE = tensors[1],
                                                   .v_RKE = tensors[2],
                                                   .first_T = tt_tensor_1d(numbers[0], TT_I32, 2),
                                                   .count_T = tt_tensor_1d(numbers[1], TT_I32, 2),
                                                   .max_count = 2,
                                                   .scale = 1,
                                                   .o_THE = tensors[3]};
    struct tt_attention_decode_args args = right;
    memset(data, 0, sizeof data);
    test_ok(tt_attention_decode(device.stream, &args));
    args.max_count = 5;
    test_refused(tt_attention_decode(device.stream, &args), TT_ERR_INTERNAL, "max_count 5 of 4 rows");
    args.max_count = 1;
    test_refused(tt_attention_decode(device.stream, &args), TT_ERR_INTERNAL, "row 1 has keys 1, 2 of them");
    args = right;
    args.o_THE = args.q_THE;
    test_refused(tt_attention_decode(device.stream, &args), TT_ERR_INTERNAL, "o");
    args = right;
    args.count_T = tt_tensor_1d(numbers[1], TT_I32, 1);
    test_refused(tt_attention_decode(device.stream, &args), TT_ERR_INTERNAL, "count");
    args = right;
    args.window = -1;
    test_refused(tt_attention_decode(device.stream, &args), TT_ERR_INTERNAL, "window");
    test_device_close(&device);
}

int main(void)
{
    int missing = test_device_missing();
    if (missing != 0) return missing;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(close_to_the_oracle_and_alone_as_together),
        cmocka_unit_test(sinks),
        cmocka_unit_test(sizes_of_models),
        cmocka_unit_test(wrong_arguments_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
