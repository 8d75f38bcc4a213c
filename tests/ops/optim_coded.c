/* Moments of 8 bits: against the header's formula in double, and against bitsandbytes' kernels step by step
 * (tests/golden/optim/make_coded.py). Codes are equal but where the exact value is within two units in the last place
 * of a border between codes: those are counted, and are the neighbour's. Lion with fp32 moments. */
#include "backend/ops/optim.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/safetensors.h"
#include "ops/isa.h"
#include "tensor/quant.h"

enum { PARAM, GRAD, CODES1, ABSMAX1, CODES2, ABSMAX2, LINES, BLOCK = TT_MOMENT_BLOCK };

static const char *const names[LINES] = {"param", "grad", "codes1", "absmax1", "codes2", "absmax2"};

struct coded_case {
    bool lion;
    int64_t count, step;
    double lr, beta1, beta2, eps, weight_decay, grad_scale;
};

static const struct coded_case cases[] = {
    {false, 4096, 1, 1e-3, 0.9, 0.999, 1e-8, 0.01, 1},  {false, 70001, 7, 1e-3, 0.9, 0.999, 1e-8, 0, 0.5},
    {false, 255, 3, 1e-2, 0.8, 0.95, 1e-6, 0.1, 1},     {false, 1, 1, 1e-3, 0.9, 0.999, 1e-8, 0, 1},
    {false, 0, 1, 1e-3, 0.9, 0.999, 1e-8, 0, 1},        {true, 4096, 1, 1e-4, 0.9, 0.99, 0, 0.01, 1},
    {true, 70001, 4, 1e-4, 0.95, 0.98, 0, 0.1, 0.25},   {true, 257, 4, 1e-4, 0.9, 0.999, 0, 0, 1},
    {false, 150001, 90, 1e-4, 0.9, 0.95, 1e-8, 0.1, 1},
};

static int64_t blocks_of(int64_t count)
{
    return (count + BLOCK - 1) / BLOCK;
}

static const float *map_of(int moment)
{
    return moment == 0 ? tt_quant_nested_map() : tt_quant_unsigned_map();
}

/* The moments after an update in double, and the size of their terms: what their fp32 rounding is relative to. */
static void make_moments(const struct coded_case *c, struct test_tensor *const t, int64_t i, double x[2],
                         double terms[2])
{
    float rest1 = 1.0f - (float)c->beta1, rest2 = 1.0f - (float)c->beta2;
    double g = (double)(((float *)t[GRAD].view.data)[i] * (float)c->grad_scale);
    for (int k = 0; k < (c->lion ? 1 : 2); k++) {
        uint8_t code = ((uint8_t *)t[CODES1 + 2 * k].view.data)[i];
        float old = map_of(k)[code] * ((float *)t[ABSMAX1 + 2 * k].view.data)[i / BLOCK];
        double beta = (double)(float)(k == 0 && !c->lion ? c->beta1 : c->beta2);
        double kept = (double)old * beta;
        double added = k == 1 ? (double)rest2 * g * g : (double)(c->lion ? rest2 : rest1) * g;
        x[k] = kept + added;
        terms[k] = fmax(fabs(kept), fabs(added));
    }
}

static double make_param(const struct coded_case *c, struct test_tensor *const t, int64_t i,
                         const double x[2])
{
    double p = (double)((float *)t[PARAM].view.data)[i];
    if (c->lion) {
        float old =
            map_of(0)[((uint8_t *)t[CODES1].view.data)[i]] * ((float *)t[ABSMAX1].view.data)[i / BLOCK];
        double g = (double)(((float *)t[GRAD].view.data)[i] * (float)c->grad_scale);
        double ahead = (double)old * (double)(float)c->beta1 + (double)(1.0f - (float)c->beta1) * g;
        return p * (1 - c->lr * c->weight_decay) - c->lr * ((ahead > 0) - (ahead < 0));
    }
    double root = sqrt(1 - pow(c->beta2, (double)c->step));
    double size = c->lr * root / (1 - pow(c->beta1, (double)c->step));
    return (p - size * x[0] / (sqrt(x[1]) + c->eps * root)) * (1 - c->lr * c->weight_decay);
}

static double border(const float *map, int code)
{
    return (double)((map[code] + map[code + 1]) * 0.5f);
}

static int code_of(const float *map, double x, double absmax, bool signs)
{
    if (absmax == 0) return signs ? TT_MOMENT_ZERO_SIGNED : TT_MOMENT_ZERO;
    double scaled = x / absmax;
    int code = 0;
    for (int step = TT_QUANT_NESTED_MAP / 2; step > 0; step /= 2)
        if (scaled > border(map, code + step - 1)) code += step;
    if (signs && !signbit(map[code]) != !signbit(x)) code += x > 0 ? 1 : -1;
    return code;
}

struct differences {
    int64_t codes, differing;
};

/* `got` against the codes of the exact moment `k`. */
static void check_codes(const struct coded_case *c, struct test_tensor *const before,
                        const struct test_tensor *got, int k, struct differences *found)
{
    const uint8_t *codes = got[CODES1 + 2 * k].view.data;
    const float *absmax = got[ABSMAX1 + 2 * k].view.data, *map = map_of(k);
    for (int64_t b = 0; b < blocks_of(c->count); b++) {
        double exact[BLOCK][2], terms[BLOCK][2], largest = 0;
        int n = (int)(c->count - b * BLOCK < BLOCK ? c->count - b * BLOCK : BLOCK);
        for (int i = 0; i < n; i++) {
            make_moments(c, before, b * BLOCK + i, exact[i], terms[i]);
            largest = fmax(largest, fabs(exact[i][k]));
        }
        assert_true(fabs((double)absmax[b] - largest) <= 4e-7 * largest);
        for (int i = 0; i < n; i++) {
            int wanted = code_of(map, exact[i][k], largest, k == 0), code = codes[b * BLOCK + i];
            found->codes++;
            if (code == wanted) continue;
            found->differing++;
            int low = code < wanted ? code : wanted;
            double room = 2 * 0x1p-23 * fmax(terms[i][k], fabs(exact[i][k])) / largest;
            double away = fabs(exact[i][k] / largest - border(map, low));
            if (abs(code - wanted) != 1 || away > room)
                fail_msg("%s, element %lld: code %d, wanted %d, %g from the border", names[CODES1 + 2 * k],
                         (long long)(b * BLOCK + i), code, wanted, away);
        }
    }
}

static void run_op(struct test_device *device, const struct coded_case *c, struct test_tensor *t)
{
    struct tt_coded_moment first = {t[CODES1].view, t[ABSMAX1].view},
                           second = {t[CODES2].view, t[ABSMAX2].view};
    struct tt_lion8_args lion = {.param = t[PARAM].view,
                                 .grad = t[GRAD].view,
                                 .m = first,
                                 .lr = c->lr,
                                 .beta1 = c->beta1,
                                 .beta2 = c->beta2,
                                 .weight_decay = c->weight_decay,
                                 .grad_scale = (float)c->grad_scale};
    struct tt_adamw8_args adamw = {.param = t[PARAM].view,
                                   .grad = t[GRAD].view,
                                   .m = first,
                                   .v = second,
                                   .lr = c->lr,
                                   .beta1 = c->beta1,
                                   .beta2 = c->beta2,
                                   .eps = c->eps,
                                   .weight_decay = c->weight_decay,
                                   .grad_scale = (float)c->grad_scale,
                                   .step = c->step};
    test_ok(c->lion ? tt_lion8(device->stream, &lion) : tt_adamw8(device->stream, &adamw));
}

/* `correction`: the relative error of the bias corrections. */
static void check_params(const struct coded_case *c, struct test_tensor *const before,
                         const struct test_tensor *got, double correction)
{
    const float *was = before[PARAM].view.data, *is = got[PARAM].view.data;
    for (int64_t i = 0; i < c->count; i++) {
        double x[2], terms[2];
        make_moments(c, before, i, x, terms);
        double wanted = make_param(c, before, i, x), moved = fabs(wanted - (double)was[i]);
        /* The rounding of the terms, and of the parameter, twice. */
        double cancelled = terms[0] / fmax(fabs(x[0]), 1e-30);
        double room = (1e-6 * fmax(cancelled, 1) + correction) * moved + 2.5e-7 * fabs(wanted);
        if (c->lion && cancelled > 1e5) room += 2 * c->lr;
        if (fabs((double)is[i] - wanted) > room)
            fail_msg("param, element %lld: %.9g, wanted %.9g", (long long)i, (double)is[i], wanted);
    }
}

struct problem {
    const struct coded_case *row;
    struct test_tensor tensors[LINES], first[LINES];
};

static void check_run(struct test_device *device, int threads, void *context)
{
    struct problem *p = context;
    struct test_tensor t[LINES];
    for (int i = 0; i < LINES; i++) t[i] = test_tensor_copy(&p->tensors[i]);
    test_array_to_device(device, t, LINES);
    run_op(device, p->row, t);
    test_array_to_host(device, t, LINES);
    test_array_check_gaps(names, t, LINES);
    if (threads == 1) {
        struct differences found = {0};
        check_params(p->row, p->tensors, t, 0);
        for (int k = 0; k < (p->row->lion ? 1 : 2); k++) check_codes(p->row, p->tensors, t, k, &found);
        assert_true((double)found.differing <= 1e-4 * (double)found.codes);
    }
    for (int i = 0; i < LINES; i++) {
        if (threads > 1) test_tensor_equal(names[i], &t[i], &p->first[i]);
        test_tensor_free(&p->first[i]);
        p->first[i] = t[i];
    }
}

static struct test_tensor make_codes(int64_t count, uint64_t seed)
{
    struct test_tensor codes = test_tensor_make(TT_U8, count, TEST_UNUSED, TEST_UNUSED, 0);
    uint8_t *data = codes.view.data;
    for (int64_t i = 0; i < count; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        data[i] = (uint8_t)(seed >> 56);
    }
    return codes;
}

/* Sizes of blocks are above 0, but for one. */
static struct test_tensor make_sizes(int64_t count, double size)
{
    struct test_tensor sizes =
        test_tensor_random(TT_F32, blocks_of(count), TEST_UNUSED, TEST_UNUSED, 0, 5, size);
    float *data = sizes.view.data;
    for (int64_t b = 0; b < blocks_of(count); b++) data[b] = b == 1 ? 0.0f : fabsf(data[b]);
    return sizes;
}

static void check_case(const void *row)
{
    struct problem p = {.row = row};
    int64_t count = p.row->count;
    p.tensors[PARAM] = test_tensor_random(TT_F32, count, TEST_UNUSED, TEST_UNUSED, 0, 1, 1);
    p.tensors[GRAD] = test_tensor_random(TT_F32, count, TEST_UNUSED, TEST_UNUSED, 0, 2, 1e-3);
    p.tensors[CODES1] = make_codes(count, 3);
    p.tensors[ABSMAX1] = make_sizes(count, 1e-3);
    p.tensors[CODES2] = make_codes(count, 4);
    p.tensors[ABSMAX2] = make_sizes(count, 1e-6);
    /* The second block: no gradient and no moments. */
    for (int64_t i = BLOCK; i < 2 * BLOCK && i < count; i++) ((float *)p.tensors[GRAD].view.data)[i] = 0.0f;
    test_on_each_isa(check_run, &p);
    test_array_free(p.tensors, LINES);
    test_array_free(p.first, LINES);
}

static void codes_follow_the_formula(void **state)
{
    (void)state;
    TEST_CASES("coded", cases, check_case);
}

static void run_alone(struct test_device *device, int threads, void *context)
{
    struct problem *p = context;
    struct test_tensor t[LINES];
    (void)threads;
    for (int i = 0; i < LINES; i++) t[i] = test_tensor_copy(&p->tensors[i]);
    test_array_to_device(device, t, LINES);
    run_op(device, p->row, t);
    test_array_to_host(device, t, LINES);
    test_array_check_gaps(names, t, LINES);
    assert_true(isinf(((float *)t[ABSMAX2].view.data)[0]));
    test_array_free(t, LINES);
}

/* The square of a gradient is beyond fp32: quotients are NaN, and no read leaves the tables. */
static void infinite_moments_stay_in_the_tables(void **state)
{
    (void)state;
    static const struct coded_case row = {false, 512, 1, 1e-3, 0.9, 0.999, 1e-8, 0, 1};
    struct problem p = {.row = &row};
    p.tensors[PARAM] = test_tensor_random(TT_F32, row.count, TEST_UNUSED, TEST_UNUSED, 0, 1, 1);
    p.tensors[GRAD] = test_tensor_random(TT_F32, row.count, TEST_UNUSED, TEST_UNUSED, 0, 2, 1e25);
    p.tensors[CODES1] = make_codes(row.count, 3);
    p.tensors[ABSMAX1] = make_sizes(row.count, 1e-3);
    p.tensors[CODES2] = make_codes(row.count, 4);
    p.tensors[ABSMAX2] = make_sizes(row.count, 1e-6);
    test_on_each_isa(run_alone, &p);
    test_array_free(p.tensors, LINES);
}

/* ---- bitsandbytes, step by step ---- */

/* The library computes 1 - beta^step in fp32, whose units are large beside a small difference; the header's corrections
 * are rounded once. */
static double library_correction(const struct coded_case *c)
{
    return c->lion ? 0 : 0x1p-23 / (1 - pow(c->beta2, (double)c->step));
}

static struct test_tensor read_golden(struct tt_safetensors *file, const char *rule, int step,
                                      const char *name)
{
    char key[64];
    if (step == 0)
        (void)snprintf(key, sizeof key, "%s.start", rule);
    else
        (void)snprintf(key, sizeof key, "%s.%d.%s", rule, step, name);
    const struct tt_safetensors_entry *entry = tt_safetensors_find(file, key);
    assert_non_null(entry);
    struct test_tensor tensor = test_tensor_make(entry->dtype, entry->dims[0], TEST_UNUSED, TEST_UNUSED, 0);
    test_ok(tt_safetensors_read(file, entry, 0, entry->dims[0], tensor.view.data, entry->dtype));
    return tensor;
}

static void check_golden_run(struct test_device *device, int threads, void *context)
{
    const struct coded_case *row = context;
    const char *rule = row->lion ? "lion8" : "adamw8";
    struct tt_safetensors *file = NULL;
    struct differences found = {0};
    test_ok(tt_safetensors_open(TT_TEST_ROOT "/golden/optim/coded.safetensors", &file));
    for (int step = 1; step <= 3 && threads == 1; step++) {
        struct coded_case c = *row;
        struct test_tensor before[LINES], got[LINES], wanted[LINES];
        c.step = step;
        for (int i = 0; i < LINES; i++) {
            int from = c.lion && i >= CODES2 ? i - 2 : i;
            wanted[i] = read_golden(file, rule, step, names[from]);
            before[i] = i == GRAD ? test_tensor_copy(&wanted[i])
                        : step == 1 && i >= CODES1
                            ? test_tensor_make(wanted[i].view.dtype, wanted[i].view.dims[0], TEST_UNUSED,
                                               TEST_UNUSED, 0)
                            : read_golden(file, rule, step - 1, names[from]);
            got[i] = test_tensor_copy(&before[i]);
        }
        c.count = before[PARAM].view.dims[0];
        test_array_to_device(device, got, LINES);
        run_op(device, &c, got);
        test_array_to_host(device, got, LINES);
        check_params(&c, before, got, 0);
        check_params(&c, before, wanted, library_correction(&c));
        for (int k = 0; k < (c.lion ? 1 : 2); k++) {
            struct differences of_wanted = {0};
            const uint8_t *a = got[CODES1 + 2 * k].view.data, *b = wanted[CODES1 + 2 * k].view.data;
            struct differences own = {0};
            check_codes(&c, before, got, k, &own);
            check_codes(&c, before, wanted, k, &of_wanted);
            for (int64_t i = 0; i < c.count; i++, found.codes++) {
                found.differing += a[i] != b[i];
                assert_true(abs(a[i] - b[i]) <= 1);
            }
        }
        test_array_free(before, LINES);
        test_array_free(got, LINES);
        test_array_free(wanted, LINES);
    }
    tt_safetensors_close(file);
    if (threads == 1)
        print_message("%s: %lld of %lld codes are the neighbour's\n", rule, (long long)found.differing,
                      (long long)found.codes);
    assert_true((double)found.differing <= 1e-4 * (double)found.codes);
}

static void steps_follow_the_kernels_of_bitsandbytes(void **state)
{
    (void)state;
    struct coded_case adamw = {
        .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.01, .grad_scale = 0.5};
    test_on_each_isa(check_golden_run, &adamw);
    adamw.lion = true;
    test_on_each_isa(check_golden_run, &adamw);
}

/* ---- Lion with fp32 moments ---- */

struct lion_problem {
    struct test_tensor tensors[3], first[3];
    double *exact[3], *simple[3];
    struct tt_lion_args args;
};

#define DEFINE_LION(name, real)                                                                              \
    static void name(const struct tt_lion_args *a, int64_t count, double *const value[3])                    \
    {                                                                                                        \
        for (int64_t i = 0; i < count; i++) {                                                                \
            real p = (real)value[0][i], g = (real)value[1][i] * (real)a->grad_scale, m = (real)value[2][i];  \
            real ahead = (real)a->beta1 * m + (real)(1 - a->beta1) * g;                                      \
            p = p * (real)(1 - a->lr * a->weight_decay) - (real)a->lr * (real)((ahead > 0) - (ahead < 0));   \
            value[0][i] = (double)p;                                                                         \
            value[2][i] = (double)((real)a->beta2 * m + (real)(1 - a->beta2) * g);                           \
        }                                                                                                    \
    }

DEFINE_LION(lion_oracle, double)
DEFINE_LION(lion_plain, float)

static void check_lion_run(struct test_device *device, int threads, void *context)
{
    struct lion_problem *p = context;
    static const char *const lines[] = {"param", "grad", "m"};
    struct test_tensor t[3];
    for (int i = 0; i < 3; i++) t[i] = test_tensor_copy(&p->tensors[i]);
    test_array_to_device(device, t, 3);
    struct tt_lion_args args = p->args;
    args.param = t[0].view, args.grad = t[1].view, args.m = t[2].view;
    test_ok(tt_lion(device->stream, &args));
    test_array_to_host(device, t, 3);
    for (int i = 0; i < 3; i++)
        test_check_result(lines[i], t[i], threads, p->exact[i], p->simple[i], 2, &p->first[i]);
}

static void lion_follows_the_formula(void **state)
{
    (void)state;
    static const int64_t counts[] = {0, 7, 40001};
    for (int c = 0; c < 3; c++) {
        struct lion_problem p = {
            .args = {.lr = 1e-4, .beta1 = 0.9, .beta2 = 0.99, .weight_decay = 0.1, .grad_scale = 0.5f}};
        for (int i = 0; i < 3; i++) {
            p.tensors[i] = test_tensor_random(TT_F32, counts[c], TEST_UNUSED, TEST_UNUSED, 0, (uint64_t)i + 1,
                                              i == 0 ? 1 : 1e-3);
            p.exact[i] = test_tensor_values(&p.tensors[i]);
            p.simple[i] = test_tensor_values(&p.tensors[i]);
        }
        lion_oracle(&p.args, counts[c], p.exact);
        lion_plain(&p.args, counts[c], p.simple);
        test_on_each_isa(check_lion_run, &p);
        test_array_free(p.tensors, 3);
        test_array_free(p.first, 3);
        test_free_values(p.exact, 3);
        test_free_values(p.simple, 3);
    }
}

static const struct coded_case gpu_cases[] = {{false, 3000001, 9, 1e-3, 0.9, 0.999, 1e-8, 0.01, 1},
                                              {true, 3000001, 9, 1e-4, 0.9, 0.99, 0, 0.01, 1}};

static void sizes_of_real_models(void **state)
{
    (void)state;
    TEST_SIZES_ONLY();
    TEST_CASES("coded", gpu_cases, check_case);
}

int main(void)
{
    int missing = test_device_missing();
    if (missing != 0) return missing;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(codes_follow_the_formula),
        cmocka_unit_test(infinite_moments_stay_in_the_tables),
        cmocka_unit_test(steps_follow_the_kernels_of_bitsandbytes),
        cmocka_unit_test(lion_follows_the_formula),
        cmocka_unit_test(sizes_of_real_models),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
