#include "backend/ops/gemm_dropout.h"

#include <stdlib.h>
#include <string.h>

#include "ops/harness.h"
#include "support/dropout_mask.h"

/* Adapters of ranks r beside each other in h, whose columns begin at `first`. */
struct dropout_case {
    int64_t m, k;
    tt_dtype dtype, da;
    double p[TT_DROPOUT_PARTS];
    int64_t r[TT_DROPOUT_PARTS];
    int64_t first, gap;
};

#define F TT_F32
#define H TT_BF16

static const struct dropout_case cases[] = {
    {5, 7, F, F, {0.3}, {4}, 0, 0},
    {9, 33, F, F, {0.1, 0, 0.5}, {2, 3, 4}, 1, 2},
    {1, 32, H, F, {0.05}, {8}, 0, 0},
    {13, 64, H, F, {0.1, 0.1, 0.1}, {8, 8, 8}, 8, 8},
    {17, 65, H, H, {0.2, 0.2}, {4, 8}, 0, 1},
    {33, 96, H, F, {0.05, 0.05}, {16, 16}, 0, 0},
    {40, 128, H, F, {0.5, 0, 0.5}, {8, 8, 8}, 0, 0},
    {70, 64, H, F, {0.05}, {40}, 0, 0},
    /* one thing each that 16 bytes at a time cannot have: ranks, places in h, distances of rows */
    {17, 64, H, F, {0.2, 0.2}, {4, 8}, 0, 0},
    {17, 64, H, F, {0.2, 0.2}, {16, 8}, 0, 0},
    {17, 64, H, F, {0.2}, {8}, 4, 0},
    {17, 64, H, F, {0.2}, {8}, 0, 1},
    /* all sizes of kernels, and more than one slice of the tokens */
    {40, 96, H, F, {0.1}, {16}, 0, 0},
    {40, 96, H, F, {0.1}, {32}, 0, 0},
    {40, 96, H, F, {0.1, 0.1}, {8, 8}, 0, 0},
    {300, 96, H, F, {0.1, 0.1, 0.1}, {16, 16, 16}, 0, 0},
    {300, 32, H, F, {0.1}, {64}, 0, 0},
    {0, 64, H, F, {0.1}, {8}, 0, 0},
    /* partial sums of da that a stream has no room for */
    {20, 32800, H, F, {0.1}, {64}, 0, 0},
};

/* All that go through kernels of their own: numbers of adapters and tiles of ranks, with ranks that fill no
 * tile. */
static const struct dropout_case gpu_cases[] = {
    {2000, 4096, H, F, {0.05, 0.05, 0.05}, {16, 16, 16}, 0, 0},
    {1999, 2080, H, F, {0.1, 0.1, 0.1}, {8, 8, 8}, 8, 8},
    {777, 2048, H, F, {0.05}, {8}, 0, 0},
    {2048, 1024, H, F, {0.05}, {16}, 0, 0},
    {1000, 2048, H, F, {0.1, 0.2}, {24, 24}, 0, 0},
    {1000, 2048, H, F, {0.05}, {32}, 0, 0},
    {500, 2048, H, F, {0.05, 0.05, 0.05}, {64, 64, 64}, 0, 0},
    {300, 14336, H, F, {0.05, 0.05}, {16, 16}, 0, 0},
    {4100, 1024, H, F, {0.3, 0.3}, {8, 8}, 0, 0},
    {1000, 2048, H, F, {0.05}, {56}, 0, 0},
    {1000, 2048, H, F, {0.05}, {72}, 0, 0},
};

enum { X, HIDDEN, SCRATCH, KEYS, A0, DA0 = A0 + TT_DROPOUT_PARTS, TENSORS = DA0 + TT_DROPOUT_PARTS };

struct problem {
    const struct dropout_case *row;
    struct test_tensor t[TENSORS];
    struct tt_dropout_parts parts;
    int64_t first[TT_DROPOUT_PARTS];
    double *kept[TT_DROPOUT_PARTS]; /* [m, k]: 0, or what is kept is multiplied with */
    struct test_device device;
};

static void make_part(struct problem *p, int i, int64_t first)
{
    const struct dropout_case *row = p->row;
    int64_t r = row->r[i];
    p->t[A0 + i] = test_tensor_random(row->dtype, r, row->k, TEST_UNUSED, 0, 10 + (uint64_t)i, 0.5);
    p->t[DA0 + i] = test_tensor_random(row->da, r, row->k, TEST_UNUSED, 0, 20 + (uint64_t)i, 1);
    p->first[i] = first;
    p->parts.part[i] = (struct tt_dropout_part){.first_h = first,
                                                .scaling = 0.5f + (float)i,
                                                .rng = tt_rng_derive_index(tt_rng_make(77), (uint64_t)i),
                                                .p = row->p[i]};
    p->kept[i] = test_doubles(row->m * row->k);
    const int64_t *keys = p->t[KEYS].view.data;
    double factor = 1 / (1 - test_dropout_rate(row->p[i]));
#pragma omp parallel for if (TEST_IS_LARGE(row->m * row->k))
    for (int64_t at = 0; at < row->m * row->k; at++)
        if (test_dropout_keeps(p->parts.part[i].rng, keys[at / row->k], at % row->k, row->p[i]))
            p->kept[i][at] = factor;
}

static void make_problem(struct problem *p, const struct dropout_case *row)
{
    *p = (struct problem){.row = row};
    int64_t columns = row->first;
    p->t[KEYS] = test_tensor_make(TT_I64, row->m, TEST_UNUSED, TEST_UNUSED, 0);
    for (int64_t t = 0; t < row->m; t++) /* beyond 32 bits, and negative */
        ((int64_t *)p->t[KEYS].view.data)[t] = (t % 3 - 1) * 0x123456789abcdef + t;
    for (int i = 0; i < TT_DROPOUT_PARTS && row->r[i] > 0; i++) {
        make_part(p, i, columns);
        columns += row->r[i];
        p->parts.count++;
    }
    for (int i = p->parts.count; i < TT_DROPOUT_PARTS; i++) {
        p->t[A0 + i] = test_tensor_make(row->dtype, 1, 1, TEST_UNUSED, 0);
        p->t[DA0 + i] = test_tensor_make(row->da, 1, 1, TEST_UNUSED, 0);
    }
    p->t[X] = test_tensor_random(row->dtype, row->m, row->k, TEST_UNUSED, row->gap, 1, 1);
    p->t[HIDDEN] = test_tensor_random(row->dtype, row->m, columns, TEST_UNUSED, row->gap, 2, 0.5);
    p->t[SCRATCH] = test_tensor_make(row->dtype, row->m, row->k, TEST_UNUSED, row->gap);
    test_tensor_poison(&p->t[SCRATCH]);
}

static void to_device(struct problem *p)
{
    test_device_open(&p->device, test_device_kind(), 2);
    test_array_to_device(&p->device, p->t, TENSORS);
    p->parts.row_keys_M = p->t[KEYS].view;
    for (int i = 0; i < p->parts.count; i++) {
        p->parts.part[i].a_RK = p->t[A0 + i].view;
        p->parts.part[i].da_RK = p->t[DA0 + i].view;
    }
}

static bool real_sizes;

/* The kernels write nothing of what they drop: where they have to be taken, scratch stays as it was. */
static void check_scratch(const struct problem *p)
{
    if (!real_sizes || p->row->r[0] > 64 || strcmp(test_device_kind(), "cuda") != 0) return;
    struct test_tensor poison =
        test_tensor_make(p->row->dtype, p->row->m, p->row->k, TEST_UNUSED, p->row->gap);
    test_tensor_poison(&poison);
    test_tensor_equal("scratch", &poison, &p->t[SCRATCH]);
    test_tensor_free(&poison);
}

static void end_problem(struct problem *p)
{
    check_scratch(p);
    for (int i = 0; i < TENSORS; i++) {
        test_tensor_check_gaps("tensor", &p->t[i]);
        test_tensor_free(&p->t[i]);
    }
    for (int i = 0; i < p->parts.count; i++) free(p->kept[i]);
}

/* In fp64, and as plain code has it, which stores what is dropped and adds up in fp32. */
struct sums {
    double *exact, *plain;
};

static struct sums make_sums(int64_t count)
{
    return (struct sums){test_doubles(count), test_doubles(count)};
}

static void free_sums(struct sums *sums)
{
    free(sums->exact);
    free(sums->plain);
}

static double *dropped_plain(const struct problem *p, int i, const double *x)
{
    int64_t count = p->row->m * p->row->k;
    double *out = test_doubles(count);
#pragma omp parallel for if (TEST_IS_LARGE(count))
    for (int64_t at = 0; at < count; at++)
        out[at] = test_round((float)x[at] * (float)p->kept[i][at], p->row->dtype);
    return out;
}

/* 1e-6 of the largest: an order of fp32 additions that is not plain code's; sums are that large at most. */
static void check_close(const char *what, const double *got, const struct sums *want, int64_t count,
                        tt_dtype dtype, double factor)
{
    test_close_allowing(what, got, want->exact, want->plain, count, dtype, factor, dtype == TT_F32 ? 1e-6 : 0,
                        0);
}

static void check_down(const struct dropout_case *row)
{
    struct problem p;
    make_problem(&p, row);
    double *x = test_tensor_values(&p.t[X]), *before = test_tensor_values(&p.t[HIDDEN]);
    int64_t columns = p.t[HIDDEN].view.dims[1], m = row->m, k = row->k;
    struct sums want = make_sums(m * columns);
    memcpy(want.exact, before, (size_t)(m * columns) * sizeof *before);
    memcpy(want.plain, before, (size_t)(m * columns) * sizeof *before);
    for (int part = 0; part < p.parts.count; part++) {
        double *a = test_tensor_values(&p.t[A0 + part]), *dropped = dropped_plain(&p, part, x);
        double scaling = p.parts.part[part].scaling;
#pragma omp parallel for if (TEST_IS_LARGE(m * k))
        for (int64_t t = 0; t < m; t++)
            for (int64_t i = 0; i < row->r[part]; i++) {
                double sum = 0;
                float plain = 0;
                for (int64_t d = 0; d < k; d++) {
                    sum += x[t * k + d] * p.kept[part][t * k + d] * a[i * k + d];
                    plain += (float)dropped[t * k + d] * (float)a[i * k + d];
                }
                want.exact[t * columns + p.first[part] + i] = scaling * sum;
                want.plain[t * columns + p.first[part] + i] = test_round((float)scaling * plain, row->dtype);
            }
        free(a);
        free(dropped);
    }
    to_device(&p);
    struct tt_gemm_dropout_args args = {
        .x_MK = p.t[X].view, .parts = p.parts, .h_MR = p.t[HIDDEN].view, .scratch_MK = p.t[SCRATCH].view};
    test_ok(tt_gemm_dropout(p.device.stream, &args));
    test_array_to_host(&p.device, p.t, TENSORS);
    test_device_close(&p.device);
    double *got = test_tensor_values(&p.t[HIDDEN]);
    check_close("h", got, &want, m * columns, row->dtype, 2);
    free(got);
    free(x);
    free(before);
    free_sums(&want);
    end_problem(&p);
}

static void check_weights(const struct dropout_case *row)
{
    struct problem p;
    make_problem(&p, row);
    double *x = test_tensor_values(&p.t[X]), *dh = test_tensor_values(&p.t[HIDDEN]);
    int64_t columns = p.t[HIDDEN].view.dims[1], m = row->m, k = row->k;
    struct sums want[TT_DROPOUT_PARTS];
    for (int part = 0; part < p.parts.count; part++) {
        double *before = test_tensor_values(&p.t[DA0 + part]), *dropped = dropped_plain(&p, part, x);
        want[part] = make_sums(row->r[part] * k);
#pragma omp parallel for if (TEST_IS_LARGE(m * k))
        for (int64_t d = 0; d < k; d++)
            for (int64_t i = 0; i < row->r[part]; i++) {
                double sum = before[i * k + d];
                float plain = 0;
                for (int64_t t = 0; t < m; t++) {
                    double y = dh[t * columns + p.first[part] + i];
                    sum += x[t * k + d] * p.kept[part][t * k + d] * y;
                    plain += (float)dropped[t * k + d] * (float)y;
                }
                want[part].exact[i * k + d] = sum;
                want[part].plain[i * k + d] = test_round((float)before[i * k + d] + plain, row->da);
            }
        free(before);
        free(dropped);
    }
    to_device(&p);
    struct tt_gemm_dropout_weights_args args = {
        .x_MK = p.t[X].view, .parts = p.parts, .dh_MR = p.t[HIDDEN].view, .scratch_MK = p.t[SCRATCH].view};
    test_ok(tt_gemm_dropout_weights(p.device.stream, &args));
    test_array_to_host(&p.device, p.t, TENSORS);
    test_device_close(&p.device);
    for (int part = 0; part < p.parts.count; part++) {
        double *got = test_tensor_values(&p.t[DA0 + part]);
        check_close("da", got, &want[part], row->r[part] * k, row->da, 3);
        free(got);
        free_sums(&want[part]);
    }
    free(x);
    free(dh);
    end_problem(&p);
}

static void check_input(const struct dropout_case *row)
{
    struct problem p;
    make_problem(&p, row);
    double *before = test_tensor_values(&p.t[X]), *dh = test_tensor_values(&p.t[HIDDEN]);
    int64_t columns = p.t[HIDDEN].view.dims[1], m = row->m, k = row->k;
    struct sums want = make_sums(m * k);
    memcpy(want.exact, before, (size_t)(m * k) * sizeof *before);
    memcpy(want.plain, before, (size_t)(m * k) * sizeof *before);
    for (int part = 0; part < p.parts.count; part++) {
        double *a = test_tensor_values(&p.t[A0 + part]);
#pragma omp parallel for if (TEST_IS_LARGE(m * k))
        for (int64_t t = 0; t < m; t++)
            for (int64_t d = 0; d < k; d++) {
                double sum = 0, kept = p.kept[part][t * k + d], *plain = &want.plain[t * k + d];
                for (int64_t i = 0; i < row->r[part]; i++)
                    sum += dh[t * columns + p.first[part] + i] * a[i * k + d];
                want.exact[t * k + d] += kept * sum;
                *plain =
                    test_round((float)*plain + test_round((float)sum, row->dtype) * (float)kept, row->dtype);
            }
        free(a);
    }
    to_device(&p);
    struct tt_gemm_dropout_input_args args = {
        .dh_MR = p.t[HIDDEN].view, .parts = p.parts, .dx_MK = p.t[X].view, .scratch_MK = p.t[SCRATCH].view};
    test_ok(tt_gemm_dropout_input(p.device.stream, &args));
    test_array_to_host(&p.device, p.t, TENSORS);
    test_device_close(&p.device);
    double *got = test_tensor_values(&p.t[X]);
    check_close("dx", got, &want, m * k, row->dtype, 3);
    free(got);
    free(before);
    free(dh);
    free_sums(&want);
    end_problem(&p);
}

static void check_all(const void *row)
{
    check_down(row);
    check_weights(row);
    check_input(row);
}

static void passes_are_close_to_the_oracle(void **state)
{
    (void)state;
    TEST_CASES("gemm_dropout", cases, check_all);
}

static void sizes_of_real_models(void **state)
{
    (void)state;
    TEST_SIZES_ONLY();
    real_sizes = true;
    TEST_CASES("gemm_dropout", gpu_cases, check_all);
    real_sizes = false;
}

static void what_does_not_fit_is_refused(void **state)
{
    (void)state;
    struct problem p;
    make_problem(&p, &cases[3]);
    to_device(&p);
    struct tt_gemm_dropout_args args = {
        .x_MK = p.t[X].view, .parts = p.parts, .h_MR = p.t[HIDDEN].view, .scratch_MK = p.t[SCRATCH].view};
    struct tt_gemm_dropout_args wrong = args;
    wrong.parts.part[1].first_h = 25;
    test_refused(tt_gemm_dropout(p.device.stream, &wrong), TT_ERR_INTERNAL,
                 "part 1 has columns 25 to 33 of h, which has 32");
    wrong = args;
    wrong.parts.part[2].p = 1;
    test_refused(tt_gemm_dropout(p.device.stream, &wrong), TT_ERR_INTERNAL, "p of part 2 is 1");
    wrong = args;
    wrong.scratch_MK = args.x_MK;
    test_refused(tt_gemm_dropout(p.device.stream, &wrong), TT_ERR_INTERNAL, "overlap in memory");
    wrong = args;
    wrong.parts.part[0].a_RK.dims[1] = 63;
    test_refused(tt_gemm_dropout(p.device.stream, &wrong), TT_ERR_INTERNAL,
                 "a of part 0 has 63 columns, x 64");
    struct tt_gemm_dropout_weights_args weights = {.x_MK = p.t[X].view,
                                                   .parts = p.parts,
                                                   .dh_MR = tt_tensor_cols(p.t[HIDDEN].view, 0, 24),
                                                   .scratch_MK = p.t[SCRATCH].view};
    test_refused(tt_gemm_dropout_weights(p.device.stream, &weights), TT_ERR_INTERNAL,
                 "part 2 has columns 24 to 32 of dh, which has 24");
    struct tt_gemm_dropout_input_args input = {.dh_MR = p.t[HIDDEN].view,
                                               .parts = p.parts,
                                               .dx_MK = p.t[X].view,
                                               .scratch_MK = tt_tensor_cols(p.t[SCRATCH].view, 0, 32)};
    test_refused(tt_gemm_dropout_input(p.device.stream, &input), TT_ERR_INTERNAL, "scratch");
    test_array_to_host(&p.device, p.t, TENSORS);
    test_device_close(&p.device);
    end_problem(&p);
}

int main(void)
{
    int missing = test_device_missing();
    if (missing != 0) return missing;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(passes_are_close_to_the_oracle),
        cmocka_unit_test(what_does_not_fit_is_refused),
        cmocka_unit_test(sizes_of_real_models),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
