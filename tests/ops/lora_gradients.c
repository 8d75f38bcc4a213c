#include "backend/ops/lora_gradients.h"

#include <stdlib.h>

#include "ops/harness.h"

/* Adapters of ranks r, over n columns of dy each, beside each other in dy and h. Columns of h begin at `first`. */
struct gradients_case {
    int64_t m;
    tt_dtype dtype, db;
    int64_t n[TT_LOW_RANK_PARTS], r[TT_LOW_RANK_PARTS];
    int64_t first, gap;
    bool frozen; /* the last one's B */
};

#define F TT_F32
#define H TT_BF16

static const struct gradients_case cases[] = {
    {5, F, F, {7}, {4}, 0, 0, false},
    {9, F, F, {33, 5, 8}, {2, 3, 4}, 1, 2, true},
    {1, H, F, {64}, {8}, 0, 0, false},
    {17, H, F, {64}, {16}, 0, 0, false},
    {70, H, F, {64, 72, 8}, {16, 16, 16}, 8, 8, false},
    {33, H, F, {136}, {24}, 0, 0, false},
    {100, H, F, {1100, 1024}, {8, 8}, 0, 0, false}, /* several blocks of columns, and one */
    {300, H, F, {96, 96, 96}, {32, 32, 32}, 0, 8, false},
    /* one thing each that the kernel does not have: types, ranks, places and distances that 16 bytes cannot have */
    {17, H, H, {64}, {8}, 0, 0, false},
    {17, H, F, {64, 64}, {8, 16}, 0, 0, false},
    {17, H, F, {64}, {12}, 0, 0, false},
    {17, H, F, {64}, {40}, 0, 0, false},
    {17, H, F, {60, 64}, {8, 8}, 0, 0, false},
    {17, H, F, {64}, {8}, 4, 0, false},
    {17, H, F, {64}, {8}, 0, 1, false},
    {17, H, F, {64, 64}, {8, 8}, 0, 0, true},
    {0, H, F, {64}, {8}, 0, 0, false},
};

/* Column slices, token slices, and passes over parts of the tokens. */
static const struct gradients_case gpu_cases[] = {
    {8192, H, F, {4096, 1024, 1024}, {16, 16, 16}, 0, 0, false},
    {1999, H, F, {4096}, {16}, 8, 8, false},
    {2048, H, F, {2048, 256, 256}, {8, 8, 8}, 0, 0, false},
    {1000, H, F, {4096}, {32}, 0, 0, false},
    {777, H, F, {576, 192, 192}, {24, 24, 24}, 0, 0, false},
    {2500, H, F, {14336, 14336}, {32, 32}, 0, 0, false},
    {10007, H, F, {8192}, {16}, 0, 0, false},
};

enum { DY, HIDDEN, DH, B0, DB0 = B0 + TT_LOW_RANK_PARTS, TENSORS = DB0 + TT_LOW_RANK_PARTS };

struct problem {
    const struct gradients_case *row;
    struct test_tensor t[TENSORS];
    struct tt_lora_gradients_args args;
    struct test_device device;
};

static void make_problem(struct problem *p, const struct gradients_case *row)
{
    *p = (struct problem){.row = row};
    int64_t outputs = 0, ranks = row->first;
    for (int i = 0; i < TT_LOW_RANK_PARTS; i++) {
        int64_t n = row->n[i] > 0 ? row->n[i] : 1, r = row->n[i] > 0 ? row->r[i] : 1;
        p->t[B0 + i] = test_tensor_random(row->dtype, n, r, TEST_UNUSED, 0, 10 + (uint64_t)i, 0.5);
        p->t[DB0 + i] = test_tensor_random(row->db, n, r, TEST_UNUSED, 0, 20 + (uint64_t)i, 1);
        if (row->n[i] == 0) continue;
        p->args.part[p->args.count++] =
            (struct tt_lora_gradients_part){.first_y = outputs, .first_h = ranks, .scaling = 0.5f + (float)i};
        outputs += n;
        ranks += r;
    }
    p->t[DY] = test_tensor_random(row->dtype, row->m, outputs, TEST_UNUSED, row->gap, 1, 1);
    p->t[HIDDEN] = test_tensor_random(row->dtype, row->m, ranks, TEST_UNUSED, row->gap, 2, 0.5);
    p->t[DH] = test_tensor_random(row->dtype, row->m, ranks, TEST_UNUSED, row->gap, 3, 1);
}

static void to_device(struct problem *p)
{
    test_device_open(&p->device, test_device_kind(), 2);
    test_array_to_device(&p->device, p->t, TENSORS);
    p->args.dy_MN = p->t[DY].view, p->args.h_MR = p->t[HIDDEN].view, p->args.dh_MR = p->t[DH].view;
    for (int i = 0; i < p->args.count; i++) {
        p->args.part[i].b_NR = p->t[B0 + i].view;
        if (!p->row->frozen || i + 1 < p->args.count) p->args.part[i].db_NR = p->t[DB0 + i].view;
    }
}

static void end_problem(struct problem *p)
{
    test_array_to_host(&p->device, p->t, TENSORS);
    test_device_close(&p->device);
    for (int i = 0; i < TENSORS; i++) {
        test_tensor_check_gaps("tensor", &p->t[i]);
        test_tensor_free(&p->t[i]);
    }
}

/* In fp64, and as plain code has it, which adds up in fp32. */
struct sums {
    double *exact, *plain;
};

static struct sums make_sums(int64_t count)
{
    return (struct sums){test_doubles(count), test_doubles(count)};
}

static void compare_and_free(const char *what, const struct test_tensor *tensor, struct sums *want,
                             int64_t count, double factor)
{
    double *got = test_tensor_values(tensor);
    tt_dtype dtype = tensor->view.dtype;
    /* 1e-6 of the largest: an order of fp32 additions that is not plain code's; sums are that large at most. */
    test_close_allowing(what, got, want->exact, want->plain, count, dtype, factor, dtype == TT_F32 ? 1e-6 : 0,
                        0);
    free(got);
    free(want->exact);
    free(want->plain);
}

static struct sums expect_dh(const struct problem *p)
{
    int64_t m = p->row->m, outputs = p->t[DY].view.dims[1], ranks = p->t[DH].view.dims[1];
    struct sums want = {test_tensor_values(&p->t[DH]),
                        test_tensor_values(&p->t[DH])}; /* other columns stay */
    double *dy = test_tensor_values(&p->t[DY]);
    for (int part = 0; part < p->args.count; part++) {
        const struct tt_lora_gradients_part *args = &p->args.part[part];
        double *b = test_tensor_values(&p->t[B0 + part]);
        int64_t n = p->row->n[part], r = p->row->r[part];
#pragma omp parallel for if (TEST_IS_LARGE(m * n))
        for (int64_t t = 0; t < m; t++)
            for (int64_t i = 0; i < r; i++) {
                double sum = 0;
                float plain = 0;
                for (int64_t d = 0; d < n; d++) {
                    double value = dy[t * outputs + args->first_y + d];
                    sum += value * b[d * r + i];
                    plain += (float)value * (float)b[d * r + i];
                }
                want.exact[t * ranks + args->first_h + i] = args->scaling * sum;
                want.plain[t * ranks + args->first_h + i] = test_round(args->scaling * plain, p->row->dtype);
            }
        free(b);
    }
    free(dy);
    return want;
}

static struct sums expect_db(const struct problem *p, int part)
{
    const struct tt_lora_gradients_part *args = &p->args.part[part];
    int64_t m = p->row->m, outputs = p->t[DY].view.dims[1], ranks = p->t[DH].view.dims[1];
    int64_t n = p->row->n[part], r = p->row->r[part];
    struct sums want = make_sums(n * r);
    double *dy = test_tensor_values(&p->t[DY]), *h = test_tensor_values(&p->t[HIDDEN]),
           *before = test_tensor_values(&p->t[DB0 + part]);
    bool frozen = p->row->frozen && part + 1 == p->args.count;
#pragma omp parallel for if (TEST_IS_LARGE(m * n))
    for (int64_t d = 0; d < n; d++)
        for (int64_t i = 0; i < r; i++) {
            double sum = 0;
            float plain = 0;
            for (int64_t t = 0; t < m && !frozen; t++) {
                double value = dy[t * outputs + args->first_y + d], with = h[t * ranks + args->first_h + i];
                sum += value * with;
                plain += (float)value * (float)with;
            }
            want.exact[d * r + i] = before[d * r + i] + sum;
            want.plain[d * r + i] = test_round((float)before[d * r + i] + plain, p->row->db);
        }
    free(dy);
    free(h);
    free(before);
    return want;
}

static void check_case(const void *row)
{
    struct problem p;
    make_problem(&p, row);
    int64_t m = p.row->m, ranks = p.t[DH].view.dims[1];
    struct sums dh = expect_dh(&p), db[TT_LOW_RANK_PARTS];
    for (int i = 0; i < p.args.count; i++) db[i] = expect_db(&p, i);
    to_device(&p);
    test_ok(tt_lora_gradients(p.device.stream, &p.args));
    test_array_to_host(&p.device, p.t, TENSORS);
    test_device_close(&p.device);
    compare_and_free("dh", &p.t[DH], &dh, m * ranks, 3);
    for (int i = 0; i < p.args.count; i++)
        compare_and_free("db", &p.t[DB0 + i], &db[i], p.row->n[i] * p.row->r[i], 3);
    for (int i = 0; i < TENSORS; i++) {
        test_tensor_check_gaps("tensor", &p.t[i]);
        test_tensor_free(&p.t[i]);
    }
}

static void gradients_are_close_to_the_oracle(void **state)
{
    (void)state;
    TEST_CASES("lora_gradients", cases, check_case);
}

static void sizes_of_real_models(void **state)
{
    (void)state;
    TEST_SIZES_ONLY();
    TEST_CASES("lora_gradients", gpu_cases, check_case);
}

/* Sums of many thread blocks are added in a fixed order. */
static void twice_the_same_bits(void **state)
{
    (void)state;
    TEST_SIZES_ONLY();
    static const struct gradients_case row = {3000, H, F, {4096, 1024, 1024}, {16, 16, 16}, 0, 0, false};
    struct problem p[2];
    for (int i = 0; i < 2; i++) {
        make_problem(&p[i], &row);
        to_device(&p[i]);
        test_ok(tt_lora_gradients(p[i].device.stream, &p[i].args));
        test_array_to_host(&p[i].device, p[i].t, TENSORS);
        test_device_close(&p[i].device);
    }
    for (int i = 0; i < TENSORS; i++) test_tensor_equal("tensor", &p[0].t[i], &p[1].t[i]);
    for (int i = 0; i < TENSORS; i++) {
        test_tensor_free(&p[0].t[i]);
        test_tensor_free(&p[1].t[i]);
    }
}

static void what_does_not_fit_is_refused(void **state)
{
    (void)state;
    static const struct gradients_case row = {17, H, F, {64, 64}, {8, 8}, 0, 0, false};
    struct problem p;
    make_problem(&p, &row);
    to_device(&p);
    struct tt_lora_gradients_args wrong = p.args;
    wrong.part[1].first_y = 72;
    test_refused(tt_lora_gradients(p.device.stream, &wrong), TT_ERR_INTERNAL,
                 "part 1 has columns 72 to 136 of dy, which has 128");
    wrong = p.args;
    wrong.part[0].first_h = 9;
    test_refused(tt_lora_gradients(p.device.stream, &wrong), TT_ERR_INTERNAL,
                 "part 0 has columns 9 to 17 of dh, which has 16");
    wrong = p.args;
    wrong.part[1].db_NR.dims[0] = 63;
    test_refused(tt_lora_gradients(p.device.stream, &wrong), TT_ERR_INTERNAL, "db");
    wrong = p.args;
    wrong.h_MR = wrong.dh_MR;
    test_refused(tt_lora_gradients(p.device.stream, &wrong), TT_ERR_INTERNAL, "overlap in memory");
    wrong = p.args;
    wrong.count = TT_LOW_RANK_PARTS + 1;
    test_refused(tt_lora_gradients(p.device.stream, &wrong), TT_ERR_INTERNAL, "4 adapters");
    end_problem(&p);
}

int main(void)
{
    int missing = test_device_missing();
    if (missing != 0) return missing;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_are_close_to_the_oracle),
        cmocka_unit_test(what_does_not_fit_is_refused),
        cmocka_unit_test(sizes_of_real_models),
        cmocka_unit_test(twice_the_same_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
