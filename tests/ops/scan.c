#include "backend/ops/scan.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/safetensors.h"
#include "ops/isa.h"
#include "ops/scan_problem.h"

static const struct scan_case cases[] = {
    /* rule, lengths, K, H, E, W, gap, type, size of a, a_log */
    {TT_SCAN_DELTA, {1}, 1, 1, 1, 1, 0, TT_F32, 1, 0},
    {TT_SCAN_DELTA, {5}, 1, 2, 8, 8, 0, TT_F32, 1, 0},
    {TT_SCAN_DELTA, {63}, 2, 4, 16, 16, 0, TT_F32, 1, 0},
    {TT_SCAN_DELTA, {64}, 1, 1, 32, 16, 3, TT_F32, 1, 0},
    {TT_SCAN_DELTA, {65}, 1, 1, 16, 32, 0, TT_F32, 1, 0},
    {TT_SCAN_DELTA, {1, 64, 1, 65, 2, 63, 130, 0, 17}, 2, 2, 24, 40, 5, TT_F32, 1, 0},
    {TT_SCAN_DELTA, {200, 7}, 2, 6, 13, 21, 2, TT_F32, 1, 0},
    {TT_SCAN_DELTA,
     {150},
     1,
     12,
     16,
     16,
     0,
     TT_F32,
     1,
     0}, /* a key head's value heads in two runs of lanes */
    {TT_SCAN_DELTA, {140}, 3, 9, 16, 16, 0, TT_F32, 1, 0},
    {TT_SCAN_DELTA, {130, 3, 70}, 2, 4, 128, 128, 0, TT_BF16, 1, 0},
    {TT_SCAN_DELTA, {96, 33}, 2, 2, 64, 48, 8, TT_BF16, 1, 0},
    {TT_SCAN_DELTA, {80}, 1, 1, 256, 128, 0, TT_F32, 1, 0}, /* more memory than a thread's scratch */
    {TT_SCAN_DELTA, {130}, 1, 2, 32, 32, 0, TT_F32, 1, -6}, /* hardly any decay */
    {TT_SCAN_DELTA, {130}, 1, 2, 32, 32, 0, TT_F32, 4, 3},  /* decays of exp(-80) a row beside others of 1 */
    {TT_SCAN_MAMBA2, {1}, 1, 1, 1, 1, 0, TT_F32, 1, 0},
    {TT_SCAN_MAMBA2, {65, 1, 64, 2, 63, 0, 17}, 1, 4, 24, 16, 5, TT_F32, 1, 0},
    {TT_SCAN_MAMBA2, {150, 100}, 1, 12, 16, 8, 0, TT_F32, 1, 0},
    {TT_SCAN_MAMBA2, {130, 70}, 2, 4, 128, 64, 0, TT_BF16, 1, 0},
    {TT_SCAN_MAMBA2, {130}, 2, 2, 13, 21, 3, TT_F32, 4, 3},
};

/* The sizes of published models: a row of Qwen3.5-0.8B, and one of Granite 4 with one group of B and C. */
static const struct scan_case gpu_cases[] = {
    {TT_SCAN_DELTA, {1000, 24}, 16, 16, 128, 128, 0, TT_BF16, 1, 0},
    {TT_SCAN_DELTA, {333}, 16, 32, 128, 128, 0, TT_BF16, 1, 0},
    {TT_SCAN_MAMBA2, {500, 300}, 1, 48, 128, 64, 0, TT_BF16, 1, 0},
    {TT_SCAN_DELTA, {1, 64, 5, 65, 4, 0, 200}, 2, 6, 128, 64, 8, TT_BF16, 1, -3},
    {TT_SCAN_DELTA, {500, 129}, 1, 2, 128, 128, 0, TT_BF16, 4, 3},
    {TT_SCAN_MAMBA2, {300, 1, 64}, 2, 4, 128, 128, 8, TT_BF16, 4, 1},
};

static void check_run(struct test_device *device, int threads, void *context)
{
    struct scan_problem *p = context;
    struct test_tensor tensors[SCAN_LINES];
    for (int i = 0; i < SCAN_LINES; i++) tensors[i] = test_tensor_copy(&p->tensors[i]);
    test_array_to_device(device, tensors, SCAN_LINES);
    run_scan(device, p, tensors);
    test_array_to_host(device, tensors, SCAN_LINES);
    for (int i = 0; i < SCAN_LINES; i++) {
        if (i < O || !scan_has(p->row, i)) {
            test_check_untouched(scan_names[i], &tensors[i], &p->tensors[i]);
            continue;
        }
        check_scan_result(p, i, tensors[i], threads);
    }
}

static void check_case(const void *row)
{
    struct scan_problem p;
    make_scan_problem(&p, row);
    scan_oracle(&p, p.exact);
    scan_plain(&p, p.simple);
    round_scan_results(&p);
    test_on_each_isa(check_run, &p);
    free_scan_problem(&p);
}

static void close_to_the_oracle(void **state)
{
    (void)state;
    TEST_CASES("scan", cases, check_case);
}

static void sizes_of_real_models(void **state)
{
    (void)state;
    TEST_SIZES_ONLY();
    TEST_CASES("scan", gpu_cases, check_case);
}

/* Replaces the values of an input, or of what a result must be, by those of the golden. */
static void read_golden(struct tt_safetensors *file, struct scan_problem *p, int line)
{
    char key[64];
    (void)snprintf(key, sizeof key, "%s.%s", p->row->rule == TT_SCAN_DELTA ? "delta" : "mamba2",
                   scan_names[line]);
    const struct tt_safetensors_entry *entry = tt_safetensors_find(file, key);
    assert_non_null(entry);
    int64_t count = tt_tensor_count(p->tensors[line].view);
    float *values = calloc((size_t)count, sizeof *values);
    double *doubles = test_doubles(count);
    test_ok(tt_safetensors_read(file, entry, 0, count, values, TT_F32));
    for (int64_t i = 0; i < count; i++) doubles[i] = (double)values[i];
    if (line < O)
        set_scan_values(p, line, doubles);
    else
        memcpy(p->exact[line], doubles, (size_t)count * sizeof *doubles);
    free(values);
    free(doubles);
}

/* What torch's autograd says in fp64 (tests/golden/scan/make_scan.py). */
static void close_to_torch(void **state)
{
    (void)state;
    static const struct scan_case rows[] = {
        {TT_SCAN_DELTA, {66, 1, 5}, 1, 2, 8, 8, 0, TT_F32, 1, 0},
        {TT_SCAN_MAMBA2, {66, 1, 5}, 1, 2, 8, 8, 0, TT_F32, 1, 0},
    };
    struct tt_safetensors *file = NULL;
    test_ok(tt_safetensors_open(TT_TEST_ROOT "/golden/scan/scan.safetensors", &file));
    for (int r = 0; r < 2; r++) {
        struct scan_problem p;
        make_scan_problem(&p, &rows[r]);
        for (int i = 0; i < O; i++)
            if (scan_has(&rows[r], i)) read_golden(file, &p, i);
        for (int i = DALOG; i < SCAN_LINES; i++) set_scan_values(&p, i, (const double[]){0, 0});
        scan_plain(&p, p.simple);
        for (int i = O; i < SCAN_LINES; i++)
            if (scan_has(&rows[r], i)) read_golden(file, &p, i);
        test_on_each_isa(check_run, &p);
        free_scan_problem(&p);
    }
    tt_safetensors_close(file);
}

static double weighted_output(void *context)
{
    struct scan_problem *p = context;
    scan_oracle(p, p->exact);
    double sum = 0;
    int64_t count = tt_tensor_count(p->tensors[O].view);
    for (int64_t i = 0; i < count; i++) sum += p->exact[O][i] * p->exact[DO][i];
    return sum;
}

static void oracle_agrees_with_finite_differences(void **state)
{
    (void)state;
    TEST_CPU_ONLY();
    static const struct scan_case rows[] = {
        {TT_SCAN_DELTA, {4, 1, 3}, 1, 2, 3, 4, 0, TT_F32, 1, 0},
        {TT_SCAN_MAMBA2, {4, 1, 3}, 1, 2, 3, 4, 0, TT_F32, 1, 0},
    };
    for (int r = 0; r < 2; r++) {
        struct scan_problem p;
        make_scan_problem(&p, &rows[r]);
        static const int pairs[][2] = {{DQ, Q}, {DK, K},       {DV, V},       {DA, A},
                                       {DB, B}, {DALOG, ALOG}, {DBIAS, BIAS}, {DSKIP, SKIP}};
        for (int i = 0; i < 8; i++) {
            if (!scan_has(&rows[r], pairs[i][0])) continue;
            int64_t count = tt_tensor_count(p.tensors[pairs[i][1]].view);
            memset(p.exact[DALOG], 0, sizeof(double) * 2);
            memset(p.exact[DBIAS], 0, sizeof(double) * 2);
            memset(p.exact[DSKIP], 0, sizeof(double) * 2);
            weighted_output(&p);
            double *gradient = test_doubles(count);
            memcpy(gradient, p.exact[pairs[i][0]], (size_t)count * sizeof *gradient);
            test_gradient(scan_names[pairs[i][0]], weighted_output, &p, p.exact[pairs[i][1]], gradient,
                          count);
            free(gradient);
        }
        free_scan_problem(&p);
    }
}

/* Rows of a packed call have the bits that each sequence has alone. */
static void packed_is_each_alone(void **state)
{
    (void)state;
    static const struct scan_case rows[] = {
        {TT_SCAN_DELTA, {70, 1, 64, 3, 129}, 1, 2, 16, 24, 0, TT_F32, 1, 0},
        {TT_SCAN_MAMBA2, {70, 1, 64, 3, 129}, 1, 2, 16, 24, 0, TT_BF16, 1, 0},
        {TT_SCAN_DELTA, {70, 1, 64, 3, 129}, 1, 2, 128, 128, 0, TT_BF16, 1, 0},
        {TT_SCAN_MAMBA2, {70, 1, 64, 3, 129}, 1, 2, 128, 64, 0, TT_BF16, 1, 0},
    };
    for (int r = 0; r < 4; r++) {
        struct scan_problem p;
        struct test_device device;
        make_scan_problem(&p, &rows[r]);
        test_device_open(&device, test_device_kind(), 2);
        struct test_tensor packed[SCAN_LINES], alone[SCAN_LINES];
        for (int i = 0; i < SCAN_LINES; i++) {
            packed[i] = test_tensor_copy(&p.tensors[i]);
            alone[i] = test_tensor_copy(&p.tensors[i]);
        }
        test_array_to_device(&device, packed, SCAN_LINES);
        test_array_to_device(&device, alone, SCAN_LINES);
        run_scan(&device, &p, packed);
        for (int64_t b = 0; b < p.sequences; b++) run_scan_part(&device, &p, alone, b);
        test_array_to_host(&device, packed, SCAN_LINES);
        test_array_to_host(&device, alone, SCAN_LINES);
        for (int i = O; i <= DB; i++)
            if (scan_has(&rows[r], i)) test_tensor_equal(scan_names[i], &alone[i], &packed[i]);
        test_device_close(&device);
        test_array_free(packed, SCAN_LINES);
        test_array_free(alone, SCAN_LINES);
        free_scan_problem(&p);
    }
}

/* A sequence in parts of any length, each from the last state of the one before, is the whole sequence; so are single
 * rows, which are processed without chunks. States are taken from and written to other places of the pool. */
static void states_continue_a_sequence(void **state)
{
    (void)state;
    static const struct scan_case rows[] = {
        {TT_SCAN_DELTA, {150}, 1, 2, 16, 24, 0, TT_F32, 1, 0},
        {TT_SCAN_DELTA, {70}, 2, 2, 13, 9, 4, TT_F32, 1, 0},
        {TT_SCAN_MAMBA2, {150}, 1, 2, 24, 16, 0, TT_F32, 1, 0},
        {TT_SCAN_DELTA, {150}, 1, 2, 96, 128, 0, TT_F32, 1, 0}, /* single rows by whole vectors */
        {TT_SCAN_MAMBA2, {150}, 1, 2, 128, 64, 0, TT_F32, 1, 0},
    };
    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
        struct scan_problem p;
        make_scan_problem(&p, &rows[r]);
        scan_oracle(&p, p.exact);
        scan_plain(&p, p.simple);
        for (int parts = 0; parts < 5; parts++) {
            static const int64_t lengths[][4] = {
                {1, 1, 1, 1}, {3, 64, 1, 5}, {64, 64, 64, 64}, {63, 65, 2, 4}, {149, 1, 9, 9}};
            struct test_device device;
            test_device_open(&device, test_device_kind(), 2);
            struct test_tensor tensors[SCAN_LINES];
            for (int i = 0; i < SCAN_LINES; i++) tensors[i] = test_tensor_copy(&p.tensors[i]);
            struct test_tensor pool =
                test_tensor_random(TT_F32, 3, rows[r].heads * rows[r].width, rows[r].value_width, 0, 77, 1);
            struct test_tensor places = test_tensor_make(TT_I32, 2, 2, TEST_UNUSED, 0);
            test_array_to_device(&device, tensors, SCAN_LINES);
            TEST_TO_DEVICE(&device, &pool);
            int64_t at = 0;
            for (int64_t i = 0; at < p.rows; i++) {
                int64_t length = lengths[parts][i % 4] < p.rows - at ? lengths[parts][i % 4] : p.rows - at;
                test_tensor_set(&places,
                                (const double[]){i == 0 ? -1 : (double)(i % 3), 0, (double)((i + 1) % 3), 0});
                struct test_tensor sent = test_tensor_copy(&places);
                TEST_TO_DEVICE(&device, &sent);
                run_scan_rows(&device, &p, tensors, at, length, &pool, &sent);
                TEST_TO_HOST(&device, &sent);
                test_tensor_free(&sent);
                at += length;
            }
            test_array_to_host(&device, tensors, SCAN_LINES);
            TEST_TO_HOST(&device, &pool);
            double *values = test_tensor_values(&tensors[O]);
            test_close_allowing("o in parts", values, p.exact[O], p.simple[O],
                                tt_tensor_count(tensors[O].view), TT_F32, 2, 3e-6, 1e-6);
            free(values);
            test_tensor_check_gaps("o in parts", &tensors[O]);
            test_tensor_check_gaps("pool", &pool);
            test_device_close(&device);
            test_array_free(tensors, SCAN_LINES);
            test_tensor_free(&pool);
            test_tensor_free(&places);
        }
        free_scan_problem(&p);
    }
}

/* Several sequences in one call: one from zeros, one that drops its last state, and an empty one, which copies. */
static void check_several_sequences(const struct scan_case *row)
{
    const int64_t lines = row->heads * row->width, size = lines * row->value_width;
    struct scan_problem p;
    struct test_device device;
    make_scan_problem(&p, row);
    test_device_open(&device, test_device_kind(), 3);
    struct test_tensor together[SCAN_LINES], apart[SCAN_LINES];
    for (int i = 0; i < SCAN_LINES; i++) {
        together[i] = test_tensor_copy(&p.tensors[i]);
        apart[i] = test_tensor_copy(&p.tensors[i]);
    }
    struct test_tensor pool = test_tensor_random(TT_F32, 6, lines, row->value_width, 0, 5, 1),
                       other = test_tensor_copy(&pool);
    static const double from[] = {-1, 0, 1, 2}, to[] = {3, -1, 4, 2};
    struct test_tensor places = test_tensor_make(TT_I32, 2, 4, TEST_UNUSED, 0);
    double both[8];
    memcpy(both, from, sizeof from);
    memcpy(both + 4, to, sizeof to);
    test_tensor_set(&places, both);
    struct test_tensor one[4];
    for (int b = 0; b < 4; b++) {
        one[b] = test_tensor_make(TT_I32, 2, 2, TEST_UNUSED, 0);
        test_tensor_set(&one[b], (const double[]){from[b], 0, to[b], 0});
    }
    test_array_to_device(&device, together, SCAN_LINES);
    test_array_to_device(&device, apart, SCAN_LINES);
    test_array_to_device(&device, one, 4);
    TEST_TO_DEVICE(&device, &pool, &other, &places);
    run_scan_states(&device, &p, together, &pool, &places);
    for (int b = 0; b < 4; b++)
        run_scan_rows(&device, &p, apart, p.cu[b], p.cu[b + 1] - p.cu[b], &other, &one[b]);
    test_array_to_host(&device, together, SCAN_LINES);
    test_array_to_host(&device, apart, SCAN_LINES);
    test_array_to_host(&device, one, 4);
    TEST_TO_HOST(&device, &pool, &other, &places);
    test_tensor_equal("o", &apart[O], &together[O]);
    test_tensor_equal("states", &other, &pool);
    const float *states = pool.view.data;
    assert_memory_equal(states + 4 * size, states + size,
                        (size_t)size * sizeof *states); /* the empty sequence's */
    test_device_close(&device);
    test_array_free(together, SCAN_LINES);
    test_array_free(apart, SCAN_LINES);
    test_array_free(one, 4);
    test_tensor_free(&pool);
    test_tensor_free(&other);
    test_tensor_free(&places);
    free_scan_problem(&p);
}

static void states_of_several_sequences(void **state)
{
    (void)state;
    static const struct scan_case small = {TT_SCAN_DELTA, {70, 2, 0, 1}, 1, 2, 16, 24, 0, TT_F32, 1, 0},
                                  whole = {TT_SCAN_DELTA, {70, 2, 0, 1}, 1, 2, 64, 128, 0, TT_F32, 1, 0};
    check_several_sequences(&small);
    check_several_sequences(&whole);
}

/* Decays far below what a float holds, and rates without any: all results are finite, and what can be seen is right. */
static void extreme_decays(void **state)
{
    (void)state;
    static const struct {
        struct scan_case row;
        double a;
    } extremes[] = {
        {{TT_SCAN_DELTA, {130}, 1, 1, 16, 16, 0, TT_F32, 1, 5}, 100},  /* g about -15,000 a row */
        {{TT_SCAN_DELTA, {130}, 1, 1, 16, 16, 0, TT_F32, 1, 80}, 1e6}, /* g beyond floats */
        {{TT_SCAN_DELTA, {130}, 1, 1, 16, 16, 0, TT_F32, 1, 5}, -1e4}, /* g of 0 */
        {{TT_SCAN_MAMBA2, {130}, 1, 1, 16, 16, 0, TT_F32, 1, 5}, 100},
        {{TT_SCAN_MAMBA2, {130}, 1, 1, 16, 16, 0, TT_F32, 1, 5}, -1e4},
    };
    for (int r = 0; r < 5; r++) {
        struct scan_problem p;
        make_scan_problem(&p, &extremes[r].row);
        double a[130];
        for (int t = 0; t < 130; t++) a[t] = t % 3 == 0 ? extremes[r].a : -extremes[r].a;
        if (extremes[r].a < 0)
            for (int t = 0; t < 130; t++) a[t] = extremes[r].a;
        set_scan_values(&p, A, a);
        scan_oracle(&p, p.exact);
        scan_plain(&p, p.simple);
        for (int i = O; i < SCAN_LINES; i++) {
            int64_t count = tt_tensor_count(p.tensors[i].view);
            for (int64_t j = 0; scan_has(p.row, i) && j < count; j++) assert_true(isfinite(p.exact[i][j]));
        }
        test_case_set("extreme decays", (size_t)r);
        test_on_each_isa(check_run, &p);
        test_case_set(NULL, 0);
        free_scan_problem(&p);
    }
}

/* The device that only counts: the bytes of the scratch and the products of the passes. */
static void plan_counts(void **state)
{
    (void)state;
    TEST_CPU_ONLY();
    struct scan_problem p;
    make_scan_problem(&p, &(const struct scan_case){TT_SCAN_DELTA, {129}, 2, 4, 16, 32, 0, TT_F32, 1, 0});
    struct test_device plan;
    test_device_open(&plan, "plan", 1);
    struct tt_scan_forward_args args = scan_args(&p, p.tensors);
    struct tt_scan_backward_args backward = {.forward = args};
    /* Four lanes: two states in tiles of 32 x 32, dq and dk of 129 rows of 16, three values a row. */
    size_t lane = (2 * 32 * 32 + 2 * 129 * 16 + 3 * 129 + 15) / 16 * 16, bytes = 4 * lane * sizeof(float);
    assert_int_equal(tt_scan_backward_scratch(plan.device, &backward), (bytes + 255) / 256 * 256);
    assert_int_equal(tt_scan_forward_scratch(plan.device, &args), 0);
    double rows = 129 * 4;
    assert_true(tt_scan_forward_flops(&args) == rows * (6 * 16 * 32 + 2 * 64 * (16 + 32)));
    assert_true(tt_scan_backward_flops(&args) ==
                rows * (18 * 16 * 32 + 64 * (2 * (16 + 32) + 3 * 16 + 4 * 32 + 2 * 16)));
    test_ok(tt_scan_forward(plan.stream, &args));
    test_device_close(&plan);
    free_scan_problem(&p);
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
    struct scan_problem p;
    struct test_device device;
    make_scan_problem(&p, &(const struct scan_case){TT_SCAN_DELTA, {5, 3}, 2, 4, 16, 32, 0, TT_F32, 1, 0});
    test_device_open(&device, "cpu", 1);
    struct tt_scan_forward_args good = scan_args(&p, p.tensors);
    static const int32_t begins[] = {1, 5, 8}, falls[] = {0, 9, 8}, short_of[] = {0, 5, 7};
    REFUSE(tt_scan_forward, good, args.sequences.count = -1, "scan_forward: -1 sequences");
    REFUSE(tt_scan_forward, good, args.sequences.cu = NULL, "scan_forward: cu is not given");
    REFUSE(tt_scan_forward, good, args.sequences.cu = begins, "cu begins with 1 instead of 0");
    REFUSE(tt_scan_forward, good, args.sequences.cu = falls, "cu falls from 9 to 8 at sequence 1");
    REFUSE(tt_scan_forward, good, args.sequences.cu = short_of, "cu covers 7 of 8 rows");
    REFUSE(tt_scan_forward, good,
           (args.q_TKE.dims[1] = 3, args.q_TKE.strides[1] = 10, args.q_TKE.dims[2] = 10),
           "4 value heads are no multiple of 3 key heads");
    REFUSE(tt_scan_forward, good, args.q_TKE.dims[2] = 0, "a state of 0 x 32: a side is in 1..256");
    REFUSE(tt_scan_forward, good, args.k_TKE = args.v_THW,
           "but must have the shape of q, which is F32[8, 2, 16]");
    REFUSE(tt_scan_forward, good, args.norm_eps = -1, "scan_forward: norm_eps -1 is negative");
    REFUSE(tt_scan_forward, good, args.skip_H = args.a_log_H, "the delta rule has no skip");
    REFUSE(tt_scan_forward, good, args.b_TH = (tt_tensor){0}, "scan_forward: b");
    REFUSE(tt_scan_forward, good, args.rule = (enum tt_scan_rule)7, "there is no rule 7");
    REFUSE(tt_scan_forward, good, args.rule = TT_SCAN_MAMBA2, "scan_forward: Mamba-2 has no b");
    REFUSE(tt_scan_forward, good, args.o_THW = args.v_THW, "overlap in memory");
    REFUSE(tt_scan_forward, good, (args.rule = TT_SCAN_MAMBA2, args.b_TH = (tt_tensor){0}, args.dt_max = 0),
           "scan_forward: dt from 0.05 to 0");
    struct tt_scan_backward_args backward = scan_gradients(&p, p.tensors, &good);
    REFUSE(tt_scan_backward, backward, args.forward.states.pool = args.forward.v_THW,
           "states have no gradient");
    REFUSE(tt_scan_backward, backward, args.dskip_H = args.da_log_H, "dskip is given without skip");
    REFUSE(tt_scan_backward, backward, args.dq_TKE = args.dk_TKE, "overlap in memory");
    REFUSE(tt_scan_backward, backward, args.scratch = (tt_tensor){0}, "scan_backward: scratch");
    REFUSE(tt_scan_backward, backward,
           (args.forward.rule = TT_SCAN_MAMBA2, args.forward.b_TH = (tt_tensor){0}),
           "scan_backward: Mamba-2 has no db");
    test_device_close(&device);
    free_scan_problem(&p);
}

int main(void)
{
    int missing = test_device_missing();
    if (missing != 0) return missing;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(oracle_agrees_with_finite_differences),
        cmocka_unit_test(close_to_the_oracle),
        cmocka_unit_test(close_to_torch),
        cmocka_unit_test(sizes_of_real_models),
        cmocka_unit_test(packed_is_each_alone),
        cmocka_unit_test(states_continue_a_sequence),
        cmocka_unit_test(states_of_several_sequences),
        cmocka_unit_test(extreme_decays),
        cmocka_unit_test(plan_counts),
        cmocka_unit_test(hostile_arguments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
