#include "ops/attention_problem.h"

/* clang-format off */
static const struct attention_case cases[] = {
    /* shapes of models */
    {4, 4, 64, 0, 0, TT_F32, 1, {{130, 130}, {-1, -1}}, 0},
    {4, 4, 64, 0, 0, TT_BF16, 1, {{130, 130}, {-1, -1}}, 0},
    {8, 2, 128, 0, 0, TT_F32, 1, {{70, 70}, {65, 65}, {-1, -1}}, 0},
    {8, 2, 128, 0, 8, TT_BF16, 1, {{70, 70}, {65, 65}, {-1, -1}}, 0},
    {14, 2, 64, 0, 5, TT_F32, 1, {{33, 33}, {1, 1}, {0, 0}, {64, 64}, {-1, -1}}, 0},
    {14, 2, 64, 0, 5, TT_BF16, 1, {{33, 33}, {1, 1}, {0, 0}, {64, 64}, {-1, -1}}, 0},
    {4, 2, 256, 0, 0, TT_F32, 1, {{90, 90}, {-1, -1}}, 0},
    {4, 2, 256, 0, 3, TT_BF16, 1, {{90, 90}, {-1, -1}}, 0},
    {8, 2, 512, 0, 0, TT_F32, 1, {{70, 70}, {-1, -1}}, 0},
    {8, 2, 512, 0, 8, TT_BF16, 1, {{70, 70}, {1, 1}, {0, 0}, {67, 67}, {-1, -1}}, 0},
    {4, 1, 320, 0, 0, TT_F32, 1, {{50, 50}, {3, 3}, {-1, -1}}, 0},
    {4, 1, 320, 0, 0, TT_BF16, 1, {{130, 130}, {3, 3}, {-1, -1}}, 0},
    {2, 1, 392, 0, 24, TT_BF16, 1, {{65, 65}, {-1, -1}}, 0},
    /* head dimensions that fill no vector */
    {2, 1, 16, 0, 0, TT_F32, 1, {{50, 50}, {-1, -1}}, 0},
    {2, 1, 24, 0, 1, TT_F32, 1, {{50, 50}, {-1, -1}}, 0},
    {2, 2, 80, 0, 1, TT_BF16, 1, {{97, 97}, {-1, -1}}, 0},
    {2, 1, 20, 0, 7, TT_BF16, 1, {{31, 31}, {-1, -1}}, 0},
    {1, 1, 1, 0, 0, TT_F32, 1, {{9, 9}, {-1, -1}}, 0},
    {3, 1, 130, 0, 1, TT_F32, 1, {{40, 40}, {-1, -1}}, 0},
    {3, 3, 7, 0, 0, TT_F32, 1, {{65, 65}, {2, 2}, {-1, -1}}, 0},
    {3, 1, 509, 0, 1, TT_F32, 1, {{40, 40}, {-1, -1}}, 0},
    {2, 1, 261, 0, 3, TT_BF16, 1, {{40, 40}, {-1, -1}}, 0},
    /* nothing to do */
    {2, 1, 32, 0, 0, TT_F32, 1, {{-1, -1}}, 0},
    {2, 1, 32, 0, 0, TT_F32, 1, {{0, 0}, {0, 0}, {-1, -1}}, 0},
    {2, 1, 32, 0, 0, TT_BF16, 1, {{0, 5}, {3, 3}, {0, 0}, {-1, -1}}, 0},
    {2, 2, 32, 0, 0, TT_F32, 1, {{1, 1}, {1, 1}, {1, 1}, {-1, -1}}, 0},
    /* windows: one key, less than a block, across blocks, longer than the sequence */
    {2, 1, 32, 1, 0, TT_F32, 1, {{70, 70}, {-1, -1}}, 0},
    {2, 1, 64, 10, 0, TT_F32, 1, {{150, 150}, {20, 20}, {-1, -1}}, 0},
    {6, 2, 64, 100, 0, TT_BF16, 1, {{250, 250}, {-1, -1}}, 0},
    {2, 2, 128, 64, 0, TT_F32, 1, {{200, 200}, {-1, -1}}, 0},
    {2, 2, 16, 1000, 0, TT_F32, 1, {{40, 40}, {-1, -1}}, 0},
    {2, 1, 512, 40, 0, TT_F32, 1, {{130, 130}, {-1, -1}}, 0},
    {4, 2, 512, 70, 0, TT_BF16, 1, {{20, 20}, {200, 200}, {-1, -1}}, 0},
    /* more keys than queries: decoding and chunks of a prompt */
    {4, 2, 64, 0, 0, TT_F32, 1, {{1, 300}, {-1, -1}}, 0},
    {7, 1, 128, 0, 0, TT_BF16, 1, {{1, 70}, {1, 1}, {5, 66}, {-1, -1}}, 0},
    {2, 1, 32, 50, 0, TT_F32, 1, {{3, 200}, {40, 41}, {-1, -1}}, 0},
    {4, 2, 512, 0, 0, TT_BF16, 1, {{1, 70}, {5, 135}, {-1, -1}}, 0},
    {2, 1, 512, 30, 0, TT_BF16, 1, {{3, 200}, {70, 133}, {-1, -1}}, 0},
    /* answers behind a prompt that another sequence has (nn/attention_branches.c) */
    {8, 2, 128, 0, 0, TT_F32, 1, {{130, 130}, {67, 131}, {1, 65}, {40, 200}, {-1, -1}}, 0},
    {8, 2, 128, 0, 0, TT_BF16, 1, {{130, 130}, {67, 131}, {1, 65}, {40, 200}, {-1, -1}}, 0},
    {14, 2, 64, 50, 0, TT_BF16, 1, {{90, 90}, {30, 120}, {70, 71}, {-1, -1}}, 0},
    {4, 4, 192, 0, 0, TT_BF16, 1, {{70, 70}, {50, 100}, {-1, -1}}, 0},
    /* scores of hundreds */
    {2, 1, 64, 0, 0, TT_F32, 8, {{100, 100}, {-1, -1}}, 0},
    {2, 1, 64, 0, 0, TT_BF16, 8, {{100, 100}, {-1, -1}}, 0},
    /* several key chunks and row blocks */
    {2, 1, 16, 0, 0, TT_F32, 1, {{700, 700}, {-1, -1}}, 0},
    {1, 1, 144, 0, 0, TT_F32, 1, {{300, 300}, {-1, -1}}, 0},
    /* sums of dk and dv that do not fit into the scratch of a thread */
    {1, 1, 128, 0, 0, TT_F32, 1, {{600, 600}, {-1, -1}}, 0},
    {2, 1, 256, 0, 0, TT_BF16, 1, {{270, 270}, {-1, -1}}, 0},
    {2, 1, 512, 0, 0, TT_BF16, 1, {{200, 200}, {-1, -1}}, 0},
};

/* Capped scores: small beside the cap, of its size, and far above it; masks, groups and windows. */
static const struct attention_case capped_cases[] = {
    {2, 1, 64, 0, 0, TT_F32, 1, {{130, 130}, {-1, -1}}, 50},
    {8, 2, 32, 0, 5, TT_F32, 4, {{70, 70}, {1, 1}, {33, 33}, {-1, -1}}, 5},
    {4, 2, 64, 20, 0, TT_F32, 8, {{150, 150}, {-1, -1}}, 30},
    {4, 2, 256, 0, 0, TT_BF16, 2, {{90, 90}, {-1, -1}}, 50},
    {2, 1, 32, 0, 0, TT_F32, 2, {{3, 200}, {40, 41}, {-1, -1}}, 3},
    {1, 1, 128, 0, 0, TT_F32, 2, {{600, 600}, {-1, -1}}, 10},
    {8, 2, 128, 40, 8, TT_BF16, 4, {{70, 70}, {0, 0}, {165, 165}, {-1, -1}}, 20},
    {14, 2, 64, 0, 5, TT_BF16, 2, {{33, 33}, {1, 1}, {1, 70}, {-1, -1}}, 5},
    {4, 2, 64, 0, 8, TT_BF16, 2, {{33, 33}, {5, 170}, {-1, -1}}, 5},
    {4, 2, 512, 0, 0, TT_F32, 2, {{70, 70}, {-1, -1}}, 50},
    {4, 2, 512, 0, 8, TT_BF16, 2, {{33, 33}, {1, 1}, {5, 170}, {-1, -1}}, 5},
    {4, 1, 512, 40, 0, TT_BF16, 4, {{150, 150}, {-1, -1}}, 20},
};

/* gpt-oss: a window in every other layer; more keys than queries; odd and wide heads. */
static const struct attention_case sink_cases[] = {
    {8, 1, 64, 0, 0, TT_BF16, 1, {{70, 70}, {1, 1}, {33, 33}, {-1, -1}}, 0},
    {8, 1, 64, 20, 8, TT_BF16, 1, {{130, 130}, {5, 70}, {-1, -1}}, 0},
    {6, 2, 64, 0, 0, TT_F32, 2, {{150, 150}, {1, 1}, {-1, -1}}, 0},
    {4, 2, 20, 7, 5, TT_F32, 1, {{33, 33}, {3, 100}, {-1, -1}}, 0},
    {4, 4, 128, 1, 0, TT_F32, 1, {{40, 40}, {-1, -1}}, 0},
    {2, 1, 512, 0, 0, TT_BF16, 1, {{33, 33}, {1, 1}, {-1, -1}}, 0},
};
/* clang-format on */

static void check_case(const char *isa, int threads, const void *row)
{
    struct test_device device;
    setenv("TRIMTAB_CPU_ISA", isa, 1);
    test_device_open(&device, test_device_kind(), threads);
    struct problem p;
    make_problem(&p, row);
    double *in[4], *exact[OUTPUTS] = {0}, *simple[OUTPUTS] = {0}, terms = 0;
    for (int i = 0; i < 4; i++) in[i] = test_tensor_values(&p.tensors[i]);
    for (int i = O; i < TENSORS; i++) {
        exact[i] = test_doubles(tt_tensor_count(p.tensors[i].view) + 1);
        simple[i] = test_doubles(tt_tensor_count(p.tensors[i].view) + 1);
    }
    exact[TERMS] = &terms;
    exact[DSINKS] = test_doubles(p.row->heads);
    simple[DSINKS] = test_doubles(p.row->heads);
    oracle(&p, (const double *const *)in, exact, TT_F64);
    plain(&p, (const double *const *)in, simple, p.row->dtype);
    run_op(&device, &p);
    for (int i = O; i < TENSORS; i++) {
        int64_t count = tt_tensor_count(p.tensors[i].view);
        tt_dtype dtype = i == LSE ? TT_F32 : p.row->dtype;
        for (int64_t j = 0; j < count; j++) simple[i][j] = (double)test_round((float)simple[i][j], dtype);
        double *got = test_tensor_values(&p.tensors[i]);
        double absolute = attention_cancellation(&p, i, terms, i == DQ ? in[K] : in[Q],
                                                 tt_tensor_count(p.tensors[i == DQ ? K : Q].view));
        /* Capped cases have scores of 50 and more, wide heads scores of hundreds of terms, that cancel; plain code adds
         * them in another order. */
        bool cancels = p.row->soft_cap > 0 || p.row->head_dim > 256;
        /* Beside a sink the error of a score does not cancel with that of other keys, which may be none. */
        double relative = p.sink != NULL || (i == LSE && cancels) ? 0x1p-20 : 0;
        /* What a GPU's forward pass leaves in lse is between it and its backward pass. */
        if (i != LSE || test_on_cpu())
            test_close_allowing(names[i], got, exact[i], simple[i], count, dtype, i >= DQ ? 3 : 2, relative,
                                absolute);
        free(got);
        free(exact[i]);
        free(simple[i]);
    }
    double *dsinks = test_tensor_values(&p.sinks[1]);
    for (int64_t h = 0; h < p.row->heads; h++) dsinks[h] -= SINK_GRADIENT;
    /* sums over tokens of what the rounding of o decides */
    double rounded = p.row->dtype == TT_BF16 ? 0x1p-8 : 0x1p-20;
    test_close_allowing("dsinks", dsinks, exact[DSINKS], simple[DSINKS], p.row->heads, TT_F32, 3, rounded,
                        rounded * sqrt((double)p.rows_q));
    free(dsinks), free(exact[DSINKS]), free(simple[DSINKS]);
    test_array_check_gaps(names, p.tensors, TENSORS);
    for (int i = 0; i < 4; i++) free(in[i]);
    free_problem(&p);
    test_device_close(&device);
    unsetenv("TRIMTAB_CPU_ISA");
}

static void check_best(const void *row)
{
    check_case("", 2, row);
}

static void check_avx2(const void *row)
{
    check_case("avx2", 1, row);
}

static void check_portable(const void *row)
{
    check_case("portable", 1, row);
}

static void close_to_the_oracle(void **state)
{
    (void)state;
    TEST_CASES("best", cases, check_best);
    if (!test_on_cpu()) return;
    TEST_CASES("portable", cases, check_portable);
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f")) TEST_CASES("avx2", cases, check_avx2);
#endif
}

/* Thread counts for which the backward pass takes its fused and its split form, with more and fewer threads
 * than tasks. */
static void check_threads(const void *row)
{
    struct problem one, many;
    struct test_device device;
    make_problem(&one, row);
    test_device_open(&device, "cpu", 1);
    run_op(&device, &one);
    test_device_close(&device);
    static const int counts[] = {2, 3, 4, 7, 16};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        make_problem(&many, row);
        test_device_open(&device, "cpu", counts[i]);
        run_op(&device, &many);
        test_device_close(&device);
        for (int t = O; t < TENSORS; t++) test_tensor_equal(names[t], &one.tensors[t], &many.tensors[t]);
        test_tensor_equal("dsinks", &one.sinks[1], &many.sinks[1]);
        free_problem(&many);
    }
    free_problem(&one);
}

static void capped_scores(void **state)
{
    (void)state;
    TEST_CASES("best", capped_cases, check_best);
    if (!test_on_cpu()) return;
    TEST_CASES("portable", capped_cases, check_portable);
    TEST_CASES("threads", capped_cases, check_threads);
}

/* Sinks of the size of scores, far below and far above them; the gradient is added to what is there. */
static void sinks(void **state)
{
    static const double means[] = {1, -20, 30};
    (void)state;
    for (int i = 0; i < 3; i++) {
        sinks_mean = means[i];
        TEST_CASES("best", capped_cases, check_best);
        TEST_CASES("best", sink_cases, check_best);
        if (!test_on_cpu()) continue;
        TEST_CASES("portable", sink_cases, check_portable);
        TEST_CASES("threads", sink_cases, check_threads);
    }
    sinks_mean = 0;
}

static void same_bits_on_any_number_of_threads(void **state)
{
    (void)state;
    TEST_CPU_ONLY();
    TEST_CASES("threads", cases, check_threads);
}

/* A sequence gives the same bits whatever lies beside it. */
static void same_bits_in_any_company(void **state)
{
    (void)state;
    TEST_CPU_ONLY();
    const struct attention_case alone_case = {6, 2, 48, 0, 0, TT_BF16, 1, {{77, 77}, {-1, -1}}, 0};
    const struct attention_case packed_case = {
        6, 2, 48, 0, 0, TT_BF16, 1, {{19, 19}, {77, 77}, {35, 35}, {-1, -1}}, 0};
    struct problem alone, packed;
    struct test_device device;
    make_problem(&alone, &alone_case);
    make_problem(&packed, &packed_case);
    for (int i = 0; i < 4; i++) {
        tt_tensor to = tt_tensor_rows(packed.tensors[i].view, 19, 77);
        memcpy(to.data, alone.tensors[i].view.data, tt_tensor_bytes(to));
    }
    test_device_open(&device, "cpu", 2);
    run_op(&device, &alone);
    run_op(&device, &packed);
    for (int i = O; i < TENSORS; i++) {
        if (i == LSE) continue;
        tt_tensor part = tt_tensor_rows(packed.tensors[i].view, 19, 77);
        assert_memory_equal(part.data, alone.tensors[i].view.data, tt_tensor_bytes(part));
    }
    test_device_close(&device);
    free_problem(&alone);
    free_problem(&packed);
}

/* Heads over 256 never go to cuDNN, whose sums have no order: a repeat gives the same bits on every device. */
static void wide_heads_repeat_bit_for_bit(void **state)
{
    (void)state;
    const struct attention_case row = {8, 2, 512, 0, 0, TT_BF16, 1, {{300, 300}, {1, 1}, {90, 90}, {-1, -1}},
                                       0};
    struct problem first, second;
    struct test_device device;
    make_problem(&first, &row);
    make_problem(&second, &row);
    test_device_open(&device, test_device_kind(), 2);
    run_op(&device, &first);
    run_op(&device, &second);
    for (int i = O; i < TENSORS; i++) test_tensor_equal(names[i], &first.tensors[i], &second.tensors[i]);
    test_device_close(&device);
    free_problem(&first);
    free_problem(&second);
}

/* The sequences lie beside each other in memory, in one tile of 32, 64 or 128 rows. */
static void check_nan_stays(const void *row)
{
    struct problem p;
    struct test_device device;
    if (!test_on_cpu() && ((const struct attention_case *)row)->head_dim <= 256) return; /* may be cuDNN's */
    make_problem(&p, row);
    for (int i = Q; i <= DO; i++) {
        tt_tensor bad = tt_tensor_rows(p.tensors[i].view, 20, 20);
        for (int64_t t = 0; t < 20; t++)
            for (int64_t e = 0; e < bad.dims[1] * bad.dims[2]; e++)
                ((uint16_t *)bad.data)[t * bad.strides[0] + e] = 0x7fc0;
    }
    test_device_open(&device, test_device_kind(), 1);
    run_op(&device, &p);
    for (int i = DQ; i < TENSORS; i++) {
        double *values = test_tensor_values(&p.tensors[i]);
        int64_t width = p.tensors[i].view.dims[1] * p.tensors[i].view.dims[2];
        for (int64_t t = 0; t < 60; t++)
            if (isfinite(values[t * width]) != (t < 20 || t >= 40))
                fail_msg("%s of row %lld is %g", names[i], (long long)t, values[t * width]);
        free(values);
    }
    test_device_close(&device);
    free_problem(&p);
}

static void a_nan_stays_in_its_sequence(void **state)
{
    (void)state;
    static const struct attention_case rows[] = {
        {4, 2, 64, 0, 0, TT_BF16, 1, {{20, 20}, {20, 20}, {20, 20}, {-1, -1}}, 0},
        {4, 2, 128, 0, 0, TT_BF16, 1, {{20, 20}, {20, 20}, {20, 20}, {-1, -1}}, 0},
        {4, 2, 256, 0, 0, TT_BF16, 1, {{20, 20}, {20, 20}, {20, 20}, {-1, -1}}, 0},
        {4, 2, 512, 0, 0, TT_BF16, 1, {{20, 20}, {20, 20}, {20, 20}, {-1, -1}}, 0},
    };
    TEST_CASES("nan", rows, check_nan_stays);
}

struct difference {
    const struct problem *p;
    double *in[4], *out[OUTPUTS];
    int64_t o_count;
};

static double weighted_output(void *context)
{
    struct difference *d = context;
    oracle(d->p, (const double *const *)d->in, d->out, TT_F64);
    double sum = 0;
    for (int64_t i = 0; i < d->o_count; i++) sum += d->out[O][i] * d->in[DO][i];
    return sum;
}

/* The oracle's own gradient, which the op is held against above. */
static void check_gradient(const void *row)
{
    struct problem p;
    make_problem(&p, row);
    struct difference d = {.p = &p, .o_count = tt_tensor_count(p.tensors[O].view)};
    for (int i = 0; i < 4; i++) d.in[i] = test_tensor_values(&p.tensors[i]);
    for (int i = O; i < TENSORS; i++) d.out[i] = test_doubles(tt_tensor_count(p.tensors[i].view));
    weighted_output(&d);
    for (int i = 0; i < 3; i++) {
        int64_t count = tt_tensor_count(p.tensors[i].view);
        double *gradient = test_doubles(count);
        weighted_output(&d); /* at the unmoved inputs */
        memcpy(gradient, d.out[DQ + i], (size_t)count * sizeof *gradient);
        test_gradient(names[DQ + i], weighted_output, &d, d.in[i], gradient, count);
        free(gradient);
    }
    if (p.sink != NULL) {
        double *gradient = d.out[DSINKS] = test_doubles(p.row->heads);
        weighted_output(&d);
        d.out[DSINKS] = NULL;
        test_gradient("dsinks", weighted_output, &d, p.sink, gradient, p.row->heads);
        free(gradient);
    }
    for (int i = 0; i < 4; i++) free(d.in[i]);
    for (int i = O; i < TENSORS; i++) free(d.out[i]);
    free_problem(&p);
}

static void oracle_agrees_with_finite_differences(void **state)
{
    (void)state;
    TEST_CPU_ONLY();
    static const struct attention_case small[] = {
        {4, 2, 6, 0, 0, TT_F32, 1, {{5, 5}, {1, 1}, {3, 3}, {-1, -1}}, 0},
        {3, 1, 4, 2, 0, TT_F32, 1, {{7, 7}, {-1, -1}}, 0},
        {2, 2, 8, 0, 0, TT_F32, 1, {{2, 6}, {-1, -1}}, 0},
        {4, 2, 6, 3, 0, TT_F32, 1, {{5, 5}, {3, 3}, {-1, -1}}, 1.5},
    };
    TEST_CASES("small", small, check_gradient);
    sinks_mean = 0.5;
    TEST_CASES("small, with sinks", small, check_gradient);
    sinks_mean = 0;
}

/* Without lse, and with q, k, v as columns of one fused matrix. */
static void fused_columns_without_lse(void **state)
{
    (void)state;
    const struct attention_case row = {4, 2, 32, 0, 0, TT_BF16, 1, {{45, 45}, {-1, -1}}, 0};
    struct problem p;
    make_problem(&p, &row);
    struct test_tensor fused = test_tensor_make(TT_BF16, 45, 8 * 32, TEST_UNUSED, 0);
    struct test_tensor o = test_tensor_make(TT_BF16, 45, 4, 32, 0);
    int64_t at = 0;
    for (int i = 0; i < 3; i++) {
        tt_tensor from = p.tensors[i].view, columns = tt_tensor_cols(fused.view, at, from.dims[1] * 32);
        at += from.dims[1] * 32;
        for (int64_t t = 0; t < 45; t++)
            memcpy((uint16_t *)columns.data + t * columns.strides[0],
                   (uint16_t *)from.data + t * from.strides[0], (size_t)from.dims[1] * 64);
    }
    struct test_device device;
    test_device_open(&device, test_device_kind(), 2);
    test_array_to_device(&device, p.tensors, TENSORS);
    test_array_to_device(&device, p.device_cu, 2);
    TEST_TO_DEVICE(&device, &fused, &o);
    struct tt_attention_forward_args args = forward_args(&p), fused_args = args;
    fused_args.q_THE = tt_tensor_heads(tt_tensor_cols(fused.view, 0, 128), 4);
    fused_args.k_TKE = tt_tensor_heads(tt_tensor_cols(fused.view, 128, 64), 2);
    fused_args.v_TKE = tt_tensor_heads(tt_tensor_cols(fused.view, 192, 64), 2);
    fused_args.o_THE = o.view;
    fused_args.lse_HT = (tt_tensor){0};
    test_ok(tt_attention_forward(device.stream, &args));
    test_ok(tt_attention_forward(device.stream, &fused_args));
    test_array_to_host(&device, p.tensors, TENSORS);
    test_array_to_host(&device, p.device_cu, 2);
    TEST_TO_HOST(&device, &fused, &o);
    test_tensor_equal("o", &p.tensors[O], &o);
    test_tensor_check_gaps("o", &o);
    test_device_close(&device);
    test_tensor_free(&fused);
    test_tensor_free(&o);
    free_problem(&p);
}

/* Refused before anything is queued, so the memory may be the host's, whatever the device. */
static void backward_needs_lse(void **state)
{
    (void)state;
    const struct attention_case row = {2, 1, 16, 0, 0, TT_F32, 1, {{9, 9}, {-1, -1}}, 0};
    struct problem p;
    struct test_device device;
    make_problem(&p, &row);
    test_device_open(&device, test_device_kind(), 1);
    struct tt_attention_backward_args args = {.forward = forward_args(&p),
                                              .do_THE = p.tensors[DO].view,
                                              .dq_THE = p.tensors[DQ].view,
                                              .dk_TKE = p.tensors[DK].view,
                                              .dv_TKE = p.tensors[DV].view};
    args.dsinks_H = p.sinks[1].view;
    test_refused(tt_attention_backward(device.stream, &args), TT_ERR_INTERNAL,
                 "a gradient of sinks that are not given");
    args.forward.sinks_H = p.tensors[Q].view;
    test_refused(tt_attention_backward(device.stream, &args), TT_ERR_INTERNAL, "sinks");
    args.forward.lse_HT = args.forward.sinks_H = args.dsinks_H = (tt_tensor){0};
    test_refused(tt_attention_backward(device.stream, &args), TT_ERR_INTERNAL, "lse is not given");
    test_device_close(&device);
    free_problem(&p);
}

static void a_nan_is_not_hidden(void **state)
{
    (void)state;
    const struct attention_case row = {1, 1, 16, 0, 0, TT_F32, 1, {{70, 70}, {-1, -1}}, 0};
    struct problem p;
    make_problem(&p, &row);
    ((float *)p.tensors[K].view.data)[10 * 16] = NAN;
    struct test_device device;
    test_device_open(&device, test_device_kind(), 1);
    run_op(&device, &p);
    const float *o = p.tensors[O].view.data;
    for (int t = 0; t < 70; t++) assert_true(t < 10 ? isfinite(o[t * 16]) : isnan(o[t * 16]));
    test_device_close(&device);
    free_problem(&p);
}

int main(void)
{
    int missing = test_device_missing();
    if (missing != 0) return missing;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(oracle_agrees_with_finite_differences),
        cmocka_unit_test(close_to_the_oracle),
        cmocka_unit_test(capped_scores),
        cmocka_unit_test(sinks),
        cmocka_unit_test(same_bits_on_any_number_of_threads),
        cmocka_unit_test(same_bits_in_any_company),
        cmocka_unit_test(fused_columns_without_lse),
        cmocka_unit_test(backward_needs_lse),
        cmocka_unit_test(a_nan_is_not_hidden),
        cmocka_unit_test(a_nan_stays_in_its_sequence),
        cmocka_unit_test(wide_heads_repeat_bit_for_bit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
