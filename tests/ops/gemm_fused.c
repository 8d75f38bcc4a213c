#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend/ops/gemm_fused.h"
#include "ops/gemm_fused_cases.h"
#include "ops/isa.h"

/* With TRIMTAB_GEMM_FUSED=require only cases of real sizes run, and one kernel has to take them, but for
 * heads that are no power of two and gradients of so few columns that there would be tiles for half of the
 * GPU. */
enum { ODD_HEAD = 40, FEW_COLUMNS = 1024 };

static bool fusing_is_required(void)
{
    const char *wish = getenv("TRIMTAB_GEMM_FUSED");
    return wish != NULL && strcmp(wish, "require") == 0;
}

/* Whether there is a result to look at. */
static bool computed(tt_status status, bool composed)
{
    bool refused = composed && fusing_is_required();
    if (refused)
        test_refused(status, TT_ERR_DEVICE, "is not for the fused kernel");
    else
        test_ok(status);
    return !refused;
}

/* Tiles of 128 and 256 that are whole and that are not, k that ends within a step, ranks on both sides of a
 * step. */
static const struct lora_case lora_gpu_cases[] = {
    {2048, 2048, 1024, H, T_, NONE, 0, ALL(16, 2048), 0, 0},
    {2048, 2048, 1024, H, N_, NONE, 0, ALL(8, 2048), 0, 0},
    {1999, 2040, 1096, H, T_, APART, 8, ALL(16, 2040), 0, 0},
    {1999, 2040, 1096, H, N_, IN_PLACE, 8, ALL(48, 2040), 0, 0},
    {2048, 2048, 2048, H, T_, NONE, 0, QKV(8, 1024, 512), 0, 0},
    {2048, 2048, 1032, H, T_, NONE, 8, {{16, 32}, {0, 1536}, {1024, 512}, 2}, 0, 0},
    {2048, 2048, 1024, H, T_, APART, 0, ALL(64, 2048), 0, 0},
    {2048, 2048, 1024, H, T_, NONE, 0, QKV(72, 1024, 512), 0, 0},
    {2048, 2048, 1024, H, N_, NONE, 0, ALL(200, 2048), 0, 0},
    {4000, 6144, 4096, H, T_, NONE, 0, QKV(16, 4096, 1024), 5120, 128},
    {1999, 2048, 1096, H, T_, NONE, 8, QKV(8, 1024, 512), 1536, 64},
    {2048, 2048, 1024, H, T_, NONE, 0, NO_LOW, 2048, 256},
    {2048, 2040, 1024, H, T_, NONE, 0, ALL(16, 2040), 1920, ODD_HEAD},
    {8192, 4096, 6144, H, N_, NONE, 0, ALL(48, 4096), 0, 0},
};
enum { ROW_STEP = 61 }; /* of rows whose values the oracle knows, in cases of real sizes */

/* What a case multiplies: everything in one array, so that it goes to the device at once. */
enum { X, W, OUT, ADDEND, HIDDEN, B0, POSITIONS = B0 + TT_LOW_RANK_PARTS, COS, SIN, TENSORS };
enum { PLACES = 50 }; /* rows of the tables of a rotation */

struct problem {
    struct test_tensor t[TENSORS];
    int64_t m, n, k, step;
    bool trans;
    struct low_case low;
};

static int64_t sum_of_ranks(const struct low_case *low)
{
    int64_t r = 0;
    for (int i = 0; i < low->count; i++) r += low->r[i];
    return r;
}

static struct test_tensor weight(tt_dtype dtype, bool trans, int64_t n, int64_t k, uint64_t seed)
{
    return test_tensor_random(dtype, trans ? n : k, trans ? k : n, TEST_UNUSED, 0, seed, 1 / sqrt((double)k));
}

static void make_rotation(struct problem *p, int64_t head_dim)
{
    int64_t half = head_dim > 0 ? head_dim / 2 : 4;
    p->t[POSITIONS] = test_tensor_make(TT_I32, p->m, TEST_UNUSED, TEST_UNUSED, 0);
    test_tensor_random_index(&p->t[POSITIONS], 10, PLACES);
    p->t[COS] = test_tensor_random(TT_F32, PLACES, half, TEST_UNUSED, 0, 11, 1);
    p->t[SIN] = test_tensor_random(TT_F32, PLACES, half, TEST_UNUSED, 0, 12, 1);
}

static struct problem make_problem(int64_t m, int64_t n, int64_t k, tt_dtype dtype, bool trans, int64_t gap,
                                   const struct low_case *low, int64_t head_dim, int64_t step)
{
    struct problem p = {.m = m, .n = n, .k = k, .step = step, .trans = trans, .low = *low};
    int64_t r = sum_of_ranks(low);
    p.t[X] = test_tensor_random(dtype, m, k, TEST_UNUSED, gap, 1, 1);
    p.t[W] = weight(dtype, trans, n, k, 2);
    p.t[OUT] = test_tensor_random(dtype, m, n, TEST_UNUSED, gap, 3, 1);
    p.t[ADDEND] = test_tensor_random(dtype, m, n, TEST_UNUSED, gap, 4, 1);
    p.t[HIDDEN] = test_tensor_random(dtype, m, r > 0 ? r : 8, TEST_UNUSED, 0, 5, 0.5);
    for (int i = 0; i < TT_LOW_RANK_PARTS; i++) {
        bool given = i < low->count;
        p.t[B0 + i] =
            weight(dtype, trans, given ? low->columns[i] : 1, given ? low->r[i] : 1, 6 + (uint64_t)i);
    }
    make_rotation(&p, head_dim);
    return p;
}

static void free_problem(struct problem *p)
{
    test_array_free(p->t, TENSORS);
}

static struct tt_low_rank low_rank_of(const struct problem *p)
{
    struct tt_low_rank low = {.h_MR = p->t[HIDDEN].view, .count = p->low.count};
    int64_t first_h = 0;
    for (int i = 0; i < p->low.count; i++) {
        low.parts[i].b = p->t[B0 + i].view;
        low.parts[i].first_h = first_h;
        low.parts[i].first_y = p->low.first[i];
        first_h += p->low.r[i];
    }
    return low;
}

static double weight_at(const double *w, bool trans, int64_t columns, int64_t depth, int64_t column,
                        int64_t at)
{
    return trans ? w[column * depth + at] : w[at * columns + column];
}

/* x op(w) + low rank of rows 0, step, 2 step, ... in fp64 and as float sums; returns how many rows. */
static int64_t multiply(const struct problem *p, double *exact, float *sums)
{
    double *x = test_tensor_values(&p->t[X]), *w = test_tensor_values(&p->t[W]),
           *h = test_tensor_values(&p->t[HIDDEN]), *b[TT_LOW_RANK_PARTS];
    int64_t known = 0, r_all = p->t[HIDDEN].view.dims[1];
    for (int i = 0; i < TT_LOW_RANK_PARTS; i++) b[i] = test_tensor_values(&p->t[B0 + i]);
    for (int64_t row = 0; row < p->m; row += p->step, known++) {
#pragma omp parallel for if (TEST_IS_LARGE(p->n * p->k))
        for (int64_t j = 0; j < p->n; j++) {
            double sum = 0;
            float plain = 0;
            for (int64_t i = 0; i < p->k; i++) {
                double y = weight_at(w, p->trans, p->n, p->k, j, i), z = x[row * p->k + i];
                sum += z * y;
                plain += (float)z * (float)y;
            }
            int64_t first_h = 0;
            for (int part = 0; part < p->low.count; part++) {
                int64_t r = p->low.r[part], column = j - p->low.first[part];
                for (int64_t i = 0; i < r && column >= 0 && column < p->low.columns[part]; i++) {
                    double y = weight_at(b[part], p->trans, p->low.columns[part], r, column, i),
                           z = h[row * r_all + first_h + i];
                    sum += z * y;
                    plain += (float)z * (float)y;
                }
                first_h += r;
            }
            exact[known * p->n + j] = sum;
            sums[known * p->n + j] = plain;
        }
    }
    for (int i = 0; i < TT_LOW_RANK_PARTS; i++) free(b[i]);
    free(x);
    free(w);
    free(h);
    return known;
}

/* The known rows of a matrix of n columns, one after the other. */
static double *known_rows(const struct test_tensor *tensor, int64_t known, int64_t step)
{
    double *values = test_tensor_values(tensor);
    size_t row = (size_t)tensor->view.dims[1];
    for (int64_t i = 0; i < known; i++)
        memmove(values + (size_t)i * row, values + (size_t)(i * step) * row, row * sizeof *values);
    return values;
}

/* One rounding to bf16 for each product that is added to another: the wide one, up to three narrow ones, the
 * addend. */
static double roundings(const struct low_case *low, bool adds)
{
    return 2 + low->count + adds;
}

/* Rotates the known rows of both in place: exactly, and as plain code does with what is stored. */
static void rotate(const struct problem *p, const struct lora_case *test, int64_t known, double *exact,
                   double *plain)
{
    int64_t half = test->head_dim / 2;
    double *at = test_tensor_values(&p->t[POSITIONS]), *cos_PE = test_tensor_values(&p->t[COS]),
           *sin_PE = test_tensor_values(&p->t[SIN]);
    for (int64_t row = 0; row < known; row++) {
        for (int64_t j = 0; j < test->rotated; j++) {
            if (j % test->head_dim >= half) continue;
            int64_t place = (int64_t)at[row * p->step] * half + j % test->head_dim, low = row * p->n + j,
                    high = low + half;
            double c = cos_PE[place], s = sin_PE[place], a = exact[low], b = exact[high];
            float c_f = (float)c, s_f = (float)s, a_f = (float)plain[low], b_f = (float)plain[high];
            exact[low] = a * c - b * s;
            exact[high] = b * c + a * s;
            plain[low] = test_round(a_f * c_f - b_f * s_f, test->dtype);
            plain[high] = test_round(b_f * c_f + a_f * s_f, test->dtype);
        }
    }
    free(at);
    free(cos_PE);
    free(sin_PE);
}

static int64_t row_step = 1;

static bool run_lora(struct problem *p, const struct lora_case *test, struct test_tensor *out, int threads)
{
    struct test_device device;
    test_device_open(&device, test_device_kind(), threads);
    test_array_to_device(&device, p->t, TENSORS);
    if (out != &p->t[OUT]) TEST_TO_DEVICE(&device, out);
    struct tt_gemm_lora_args args = {.x_MK = p->t[X].view,
                                     .w.dense = p->t[W].view,
                                     .trans_w = test->trans,
                                     .low = low_rank_of(p),
                                     .y_MN = out->view};
    if (test->addend != NONE) args.addend_MN = test->addend == IN_PLACE ? out->view : p->t[ADDEND].view;
    if (test->rotated > 0)
        args.rotation = (struct tt_rotation){.columns = test->rotated,
                                             .head_dim = test->head_dim,
                                             .positions_T = p->t[POSITIONS].view,
                                             .cos_PE = p->t[COS].view,
                                             .sin_PE = p->t[SIN].view};
    bool done = computed(tt_gemm_lora(device.stream, &args), test->head_dim == ODD_HEAD);
    test_array_to_host(&device, p->t, TENSORS);
    if (out != &p->t[OUT]) TEST_TO_HOST(&device, out);
    test_device_close(&device);
    return done;
}

/* Instruction set and kind of product of a run; NULL: the device's own choice. */
struct way {
    const char *isa, *variant;
};
/* Those that a case is run with: the oracle takes longer than all of them. */
enum { WAYS_MAX = 8 };
static struct {
    struct way list[WAYS_MAX];
    size_t count;
} tried = {.count = 1};

static void choose(const char *variable, const char *value)
{
    if (value != NULL)
        setenv(variable, value, 1);
    else
        unsetenv(variable);
}

static void check_way(struct problem *p, const struct lora_case *test, const struct way *way,
                      const double *exact, const double *plain, int64_t known)
{
    struct test_tensor out = test_tensor_copy(&p->t[OUT]), again = test_tensor_copy(&out);
    if (test_on_cpu()) choose("TRIMTAB_CPU_ISA", way->isa), choose("TRIMTAB_CPU_GEMM", way->variant);
    bool done = run_lora(p, test, &out, 2);
    if (test_on_cpu()) {
        (void)run_lora(p, test, &again, 5);
        test_tensor_equal("2 and 5 threads", &out, &again);
        choose("TRIMTAB_CPU_ISA", NULL), choose("TRIMTAB_CPU_GEMM", NULL);
    }
    double *got = known_rows(&out, known, row_step);
    double relative = test->dtype == TT_F32 ? 0x1p-24 * sqrt((double)test->k) : 0;
    if (done)
        test_close_allowing(way->isa != NULL ? way->isa : "y", got, exact, plain, known * test->n,
                            test->dtype, roundings(&test->low, test->addend != NONE) + (test->rotated > 0),
                            relative, 0);
    test_tensor_check_gaps("y", &out);
    free(got);
    test_tensor_free(&again);
    test_tensor_free(&out);
}

static void check_lora(const void *row)
{
    const struct lora_case *test = row;
    struct problem p = make_problem(test->m, test->n, test->k, test->dtype, test->trans, test->gap,
                                    &test->low, test->head_dim, row_step);
    int64_t count = test->m * test->n;
    double *exact = test_doubles(count), *plain = test_doubles(count);
    float *sums = malloc((size_t)count * sizeof *sums);
    assert_non_null(sums);
    int64_t known = multiply(&p, exact, sums);
    const struct test_tensor *addend = &p.t[test->addend == IN_PLACE ? OUT : ADDEND];
    double *before = known_rows(addend, known, row_step);
    for (int64_t i = 0; i < known * test->n; i++) {
        if (test->addend != NONE) exact[i] += before[i];
        plain[i] = test_round(sums[i] + (test->addend != NONE ? (float)before[i] : 0), test->dtype);
    }
    rotate(&p, test, known, exact, plain);
    if (test->addend != IN_PLACE) test_tensor_poison(&p.t[OUT]);
    for (size_t i = 0; i < tried.count; i++) check_way(&p, test, &tried.list[i], exact, plain, known);
    for (int i = 0; i < TENSORS; i++) test_tensor_check_gaps("tensor", &p.t[i]);
    free(before);
    free(sums);
    free(exact);
    free(plain);
    free_problem(&p);
}

/* All instruction sets that the processor has. */
static void try_isas(void)
{
    static const char *const isas[] = {"portable", "avx2", "avx512", "avx512_bf16", "amx"};
    tried.count = 0;
    for (size_t i = 0; i < sizeof isas / sizeof isas[0]; i++)
        if (test_isa_is_here(isas[i])) tried.list[tried.count++].isa = isas[i];
    unsetenv("TRIMTAB_CPU_ISA");
}

static void lora_is_close_to_the_oracle(void **state)
{
    (void)state;
    if (test_on_cpu()) {
        try_isas();
        row_step = ROW_STEP;
        TEST_CASES("gemm_lora", long_cases, check_lora);
        row_step = 1;
        /* Pairs also where they are not the faster way. */
        if (test_isa_is_here("avx512_bf16")) tried.list[tried.count++] = (struct way){"avx512_bf16", "pairs"};
        unsetenv("TRIMTAB_CPU_ISA");
        tried.list[tried.count++] = (struct way){NULL, NULL};
    }
    TEST_CASES("gemm_lora", lora_cases, check_lora);
    tried.list[0] = (struct way){NULL, NULL}, tried.count = 1;
}

static void lora_of_real_sizes(void **state)
{
    (void)state;
    TEST_SIZES_ONLY();
    row_step = ROW_STEP;
    TEST_CASES("gemm_lora", lora_gpu_cases, check_lora);
    row_step = 1;
}

struct swiglu_case {
    int64_t m, f, k;
    tt_dtype dtype;
    int64_t gap;
    int64_t r_gate, r_up, r_down;
    bool keep; /* forward: gate and up; backward: act is wanted */
};

static const struct swiglu_case swiglu_cases[] = {
    {1, 1, 1, F, 0, 0, 0, 0, true},    {7, 24, 9, F, 3, 4, 4, 4, true},    {7, 24, 9, F, 0, 0, 4, 0, false},
    {19, 40, 70, H, 8, 8, 8, 8, true}, {3, 40, 576, H, 0, 0, 0, 0, false}, {33, 48, 64, H, 0, 8, 0, 16, true},
};

static const struct swiglu_case swiglu_gpu_cases[] = {
    {2048, 1024, 1024, H, 0, 0, 0, 0, true},    {1990, 1000, 1096, H, 8, 16, 16, 16, true},
    {2048, 1024, 1024, H, 0, 8, 0, 8, false},   {2048, 1024, 1024, H, 8, 0, 8, 0, true},
    {2048, 1024, 2048, H, 0, 40, 48, 72, true}, {2048, 2048, 2048, H, 0, 16, 16, 16, true},
    {1990, 2040, 1032, H, 8, 0, 0, 16, false},  {2048, 2048, 1024, H, 8, 8, 0, 72, false},
    {2048, 2048, 1024, H, 0, 0, 8, 0, true},    {4096, 14336, 4096, H, 0, 16, 16, 16, true},
};

static double silu(double x)
{
    return x / (1 + exp(-x));
}

static void check_swiglu_forward(const struct swiglu_case *test)
{
    struct low_case low = {0};
    int64_t f = test->f, n = 2 * f, r[2] = {test->r_gate, test->r_up};
    for (int i = 0; i < 2; i++) {
        if (r[i] == 0) continue;
        low.r[low.count] = r[i];
        low.first[low.count] = i * f;
        low.columns[low.count++] = f;
    }
    struct problem p = make_problem(test->m, n, test->k, test->dtype, true, test->gap, &low, 0, row_step);
    struct test_tensor act = test_tensor_make(test->dtype, test->m, f, TEST_UNUSED, test->gap);
    double *exact = test_doubles(test->m * n), *plain = test_doubles(test->m * n);
    double *exact_act = test_doubles(test->m * f), *plain_act = test_doubles(test->m * f);
    float *sums = malloc((size_t)(test->m * n) * sizeof *sums);
    assert_non_null(sums);
    int64_t known = multiply(&p, exact, sums);
    for (int64_t i = 0; i < known * n; i++) plain[i] = test_round(sums[i], test->dtype);
    for (int64_t i = 0; i < known * f; i++) {
        int64_t at = i / f * n + i % f;
        float gate = (float)plain[at], up = (float)plain[at + f];
        exact_act[i] = silu(exact[at]) * exact[at + f];
        plain_act[i] = test_round(gate / (1 + expf(-gate)) * up, test->dtype);
    }
    test_tensor_poison(&p.t[OUT]);
    test_tensor_poison(&act);
    struct test_device device;
    test_device_open(&device, test_device_kind(), 2);
    test_array_to_device(&device, p.t, TENSORS);
    TEST_TO_DEVICE(&device, &act);
    struct tt_gemm_swiglu_args args = {.x_MK = p.t[X].view,
                                       .w_2FK.dense = p.t[W].view,
                                       .low = low_rank_of(&p),
                                       .gate_up_M2F = p.t[OUT].view,
                                       .keep = test->keep,
                                       .act_MF = test->keep ? act.view : tt_tensor_cols(p.t[OUT].view, 0, f)};
    test_ok(tt_gemm_swiglu(device.stream, &args));
    test_array_to_host(&device, p.t, TENSORS);
    TEST_TO_HOST(&device, &act);
    test_device_close(&device);
    double factor = roundings(&low, false);
    double *got_act = known_rows(&act, known, row_step), *both = known_rows(&p.t[OUT], known, row_step);
    double relative = test->dtype == TT_F32 ? 0x1p-23 * sqrt((double)test->k) : 0;
    if (test->keep)
        test_close_allowing("gate and up", both, exact, plain, known * n, test->dtype, factor, relative, 0);
    else
        for (int64_t i = 0; i < known * f; i++) got_act[i] = both[i / f * n + i % f];
    test_close_allowing("act", got_act, exact_act, plain_act, known * f, test->dtype, factor, relative, 1e-7);
    test_tensor_check_gaps("gate and up", &p.t[OUT]);
    test_tensor_check_gaps("act", &act);
    free(got_act);
    free(both);
    free(sums);
    free(exact);
    free(plain);
    free(exact_act);
    free(plain_act);
    test_tensor_free(&act);
    free_problem(&p);
}

/* Gradients from dact as it would be stored: in fp64, and in floats. */
struct gradients {
    double *exact, *plain, *exact_act, *plain_act; /* [known, 2f], [known, f] */
};

static void differentiate(const struct problem *p, int64_t known, const double *both, const double *exact,
                          const float *sums, tt_dtype dtype, const struct gradients *g)
{
    int64_t f = p->n;
    for (int64_t i = 0; i < known * f; i++) {
        int64_t at = i / f * 2 * f + i % f;
        double gate = both[at], up = both[at + f], s = 1 / (1 + exp(-gate));
        float gate_f = (float)gate, up_f = (float)up, s_f = 1 / (1 + expf(-gate_f)),
              dact_f = test_round(sums[i], dtype);
        g->exact[at] = exact[i] * up * s * (1 + gate * (1 - s));
        g->exact[at + f] = exact[i] * gate * s;
        g->plain[at] = test_round(dact_f * up_f * s_f * (1 + gate_f * (1 - s_f)), dtype);
        g->plain[at + f] = test_round(dact_f * gate_f * s_f, dtype);
        g->exact_act[i] = gate * s * up;
        g->plain_act[i] = test_round(gate_f * s_f * up_f, dtype);
    }
}

static void check_swiglu_backward(const struct swiglu_case *test)
{
    int64_t f = test->f;
    struct low_case low = {{test->r_down}, {0}, {f}, test->r_down > 0};
    struct problem p = make_problem(test->m, f, test->k, test->dtype, false, test->gap, &low, 0, row_step);
    struct test_tensor both = test_tensor_random(test->dtype, test->m, 2 * f, TEST_UNUSED, test->gap, 9, 1);
    double *exact = test_doubles(test->m * f);
    float *sums = malloc((size_t)(test->m * f) * sizeof *sums);
    assert_non_null(sums);
    struct gradients g = {test_doubles(test->m * 2 * f), test_doubles(test->m * 2 * f),
                          test_doubles(test->m * f), test_doubles(test->m * f)};
    int64_t known = multiply(&p, exact, sums);
    double *values = known_rows(&both, known, row_step);
    differentiate(&p, known, values, exact, sums, test->dtype, &g);
    test_tensor_poison(&p.t[OUT]);
    struct test_device device;
    test_device_open(&device, test_device_kind(), 2);
    test_array_to_device(&device, p.t, TENSORS);
    TEST_TO_DEVICE(&device, &both);
    struct tt_gemm_swiglu_backward_args args = {.dy_MK = p.t[X].view,
                                                .w_KF.dense = p.t[W].view,
                                                .low = low_rank_of(&p),
                                                .gate_up_M2F = both.view,
                                                .dact_MF = p.t[OUT].view,
                                                .wants_act = test->keep};
    bool done = computed(tt_gemm_swiglu_backward(device.stream, &args), f <= FEW_COLUMNS);
    test_array_to_host(&device, p.t, TENSORS);
    TEST_TO_HOST(&device, &both);
    test_device_close(&device);
    double *got = known_rows(&both, known, row_step), *got_act = known_rows(&p.t[OUT], known, row_step);
    double relative = test->dtype == TT_F32 ? 0x1p-23 * sqrt((double)test->k) : 0;
    if (done)
        test_close_allowing("dgate and dup", got, g.exact, g.plain, known * 2 * f, test->dtype,
                            1 + roundings(&low, false), relative, 0);
    if (done && test->keep) test_close("act", got_act, g.exact_act, g.plain_act, known * f, test->dtype, 2);
    test_tensor_check_gaps("gate and up", &both);
    test_tensor_check_gaps("dact", &p.t[OUT]);
    free(got);
    free(got_act);
    free(values);
    free(exact);
    free(sums);
    free(g.exact);
    free(g.plain);
    free(g.exact_act);
    free(g.plain_act);
    test_tensor_free(&both);
    free_problem(&p);
}

static void check_swiglu(const void *row)
{
    check_swiglu_forward(row);
    check_swiglu_backward(row);
}

static void swiglu_is_close_to_the_oracle(void **state)
{
    (void)state;
    TEST_CASES("gemm_swiglu", swiglu_cases, check_swiglu);
}

static void swiglu_of_real_sizes(void **state)
{
    (void)state;
    TEST_SIZES_ONLY();
    row_step = ROW_STEP;
    TEST_CASES("gemm_swiglu", swiglu_gpu_cases, check_swiglu);
    row_step = 1;
}

static void what_does_not_fit_is_refused(void **state)
{
    (void)state;
    struct low_case low = {{4}, {0}, {12}, 1};
    struct problem p = make_problem(3, 12, 8, F, true, 0, &low, 0, 1);
    struct test_device device;
    test_device_open(&device, test_device_kind(), 1);
    test_array_to_device(&device, p.t, TENSORS);
    struct tt_gemm_lora_args args = {.x_MK = p.t[X].view,
                                     .w.dense = p.t[W].view,
                                     .trans_w = true,
                                     .low = low_rank_of(&p),
                                     .y_MN = p.t[OUT].view};
    struct tt_gemm_lora_args wrong = args;
    wrong.low.parts[0].first_h = 1;
    test_refused(tt_gemm_lora(device.stream, &wrong), TT_ERR_INTERNAL, "columns 1 to 5 of h, which has 4");
    wrong = args;
    wrong.low.parts[0].first_y = 4;
    test_refused(tt_gemm_lora(device.stream, &wrong), TT_ERR_INTERNAL, "columns 4 to 16 of 12");
    wrong = args;
    wrong.low.parts[1] = wrong.low.parts[0];
    wrong.low.parts[1].b.dims[0] = 6;
    wrong.low.parts[1].first_y = 6;
    wrong.low.count = 2;
    test_refused(tt_gemm_lora(device.stream, &wrong), TT_ERR_INTERNAL, "some columns of the one before it");
    wrong = args;
    wrong.trans_w = false;
    test_refused(tt_gemm_lora(device.stream, &wrong), TT_ERR_INTERNAL, "x has 8 columns, w is for 12");
    wrong = args;
    wrong.addend_MN = tt_tensor_2d(args.y_MN.data, F, 3, 8);
    test_refused(tt_gemm_lora(device.stream, &wrong), TT_ERR_INTERNAL, "must have the shape of y");
    wrong = args;
    wrong.rotation = (struct tt_rotation){.columns = 10, .head_dim = 8};
    test_refused(tt_gemm_lora(device.stream, &wrong), TT_ERR_INTERNAL, "10 of 12 columns are heads of 8");
    test_ok(tt_gemm_lora(device.stream, &args));
    test_array_to_host(&device, p.t, TENSORS);
    test_device_close(&device);
    free_problem(&p);
}

/* act in place of gate is for those who read gate no more; in place of up it is for nobody. */
static void act_must_not_cover_what_is_read(void **state)
{
    (void)state;
    struct low_case low = {0};
    struct problem p = make_problem(3, 12, 8, F, true, 0, &low, 0, 1);
    struct test_device device;
    test_device_open(&device, test_device_kind(), 1);
    test_array_to_device(&device, p.t, TENSORS);
    tt_tensor both = p.t[OUT].view;
    struct tt_gemm_swiglu_args args = {.x_MK = p.t[X].view,
                                       .w_2FK.dense = p.t[W].view,
                                       .gate_up_M2F = both,
                                       .keep = true,
                                       .act_MF = tt_tensor_cols(both, 0, 6)};
    test_refused(tt_gemm_swiglu(device.stream, &args), TT_ERR_INTERNAL, "overlap in memory");
    args.keep = false;
    test_ok(tt_gemm_swiglu(device.stream, &args));
    args.act_MF = tt_tensor_cols(both, 6, 6);
    test_refused(tt_gemm_swiglu(device.stream, &args), TT_ERR_INTERNAL, "overlap in memory");
    test_array_to_host(&device, p.t, TENSORS);
    test_device_close(&device);
    free_problem(&p);
}

int main(void)
{
    int missing = test_device_missing();
    if (missing != 0) return missing;
    const struct CMUnitTest large[] = {
        cmocka_unit_test(lora_of_real_sizes),
        cmocka_unit_test(swiglu_of_real_sizes),
    };
    if (fusing_is_required()) return cmocka_run_group_tests(large, NULL, NULL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lora_is_close_to_the_oracle),  cmocka_unit_test(swiglu_is_close_to_the_oracle),
        cmocka_unit_test(what_does_not_fit_is_refused), cmocka_unit_test(act_must_not_cover_what_is_read),
        cmocka_unit_test(lora_of_real_sizes),           cmocka_unit_test(swiglu_of_real_sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
