/* First values of adapters, by what defines them. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/lapack.h"
#include "model/factors.h"
#include "model/lora_init.h"
#include "support/must.h"

enum { MOST = 96, R = 6 };
static float w[MOST * MOST], a[R * MOST], b[MOST * R];
static double rest[MOST * MOST];

/* A matrix whose singular values fall. */
static struct tt_lora_init_call make_call(int64_t out, int64_t in, double scaling)
{
    struct tt_rng rng = tt_rng_derive(tt_rng_make(5), "weights");
    memset(w, 0, sizeof w);
    for (int64_t k = 0; k < 24; k++) {
        double by = pow(0.8, (double)k);
        for (int64_t o = 0; o < out; o++)
            for (int64_t i = 0; i < in; i++)
                w[o * in + i] += (float)(by * tt_rng_normal(rng, (uint64_t)(k * 1000 + o)) *
                                         tt_rng_normal(rng, (uint64_t)(k * 1000 + 500 + i)));
    }
    return (struct tt_lora_init_call){.out = out,
                                      .in = in,
                                      .r = R,
                                      .scaling = scaling,
                                      .weight_OI = w,
                                      .rng = tt_rng_derive(rng, "own"),
                                      .a_RI = a,
                                      .b_OR = b};
}

static double squares(const double *values, int64_t count)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++) sum += values[i] * values[i];
    return sum;
}

/* rest = from - scaling B A; returns the squares of scaling B A. */
static double take_out(const struct tt_lora_init_call *call, double scaling, const double *from)
{
    double all = 0;
    for (int64_t o = 0; o < call->out; o++)
        for (int64_t i = 0; i < call->in; i++) {
            double sum = 0;
            for (int64_t k = 0; k < R; k++) sum += (double)b[o * R + k] * (double)a[k * call->in + i];
            all += scaling * sum * scaling * sum;
            rest[o * call->in + i] = from[o * call->in + i] - scaling * sum;
        }
    return all;
}

static const int64_t shapes[][2] = {{40, 96}, {96, 40}, {64, 64}, {R, 50}, {50, R}};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static bool has_lapack(void)
{
    const struct tt_lapack *lapack;
    return tt_lapack_open(&lapack) == TT_OK;
}

static void names_are_those_of_peft(void **state)
{
    static const char *const good[] = {"true",  "True",           "gaussian", "orthogonal",
                                       "pissa", "pissa_niter_16", "OLoRA",    "loftq"};
    static const char *const bad[] = {
        "false", "eva", "pissa_niter_", "pissa_niter_x", "pissa_niter_0", "pissa_niter_4x", ""};
    const struct tt_lora_init *kind;
    int64_t number;
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        test_must(tt_lora_init_find(good[i], &kind, &number));
    test_must(tt_lora_init_find("pissa_niter_16", &kind, &number));
    assert_int_equal(number, 16);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(tt_lora_init_find(bad[i], &kind, &number), TT_ERR_USAGE);
        assert_non_null(
            strstr(tt_error_last()->message, "which is none of: true, gaussian, orthogonal, pissa"));
    }
}

static void orthogonal_values_have_no_product(void **state)
{
    static const double nothing[MOST * MOST];
    struct tt_lora_init_call call = make_call(96, 80, 2);
    double sizes[2] = {0};
    (void)state;
    test_must(tt_lora_init_orthogonal(&call));
    assert_true(take_out(&call, 1, nothing) < 1e-12);
    for (int i = 0; i < R * 80; i++) sizes[0] += (double)a[i] * (double)a[i] / (R * 80);
    for (int i = 0; i < 96 * R; i++) sizes[1] += (double)b[i] * (double)b[i] / (96 * R);
    /* a row of Q has length 1: the mean square is half of 1 / 100 */
    for (int i = 0; i < 2; i++) assert_true(fabs(sizes[i] - 0.005) < 0.0015);
}

/* A truncated decomposition leaves what is orthogonal to it, and the most it can take is what it takes. */
static void pissa_takes_the_most(void **state)
{
    static double whole[MOST * MOST];
    (void)state;
    if (!has_lapack()) skip();
    for (int s = 0; s < SHAPES; s++) {
        double taken[2];
        struct tt_lora_init_call call = make_call(shapes[s][0], shapes[s][1], 2);
        int64_t count = call.out * call.in;
        for (int64_t i = 0; i < count; i++) whole[i] = (double)w[i];
        for (call.number = 0; call.number < 2; call.number++) {
            struct tt_lora_init_call own = call;
            if (own.number > 0) own.number = 30;
            test_must(tt_lora_init_pissa(&own));
            taken[call.number] = take_out(&call, 2, whole);
            double left = squares(rest, count), all = squares(whole, count);
            assert_true(fabs(taken[call.number] + left - all) < 1e-5 * all);
            /* A and B have the same squares */
            double of_a = 0, of_b = 0;
            for (int64_t i = 0; i < R * call.in; i++) of_a += (double)a[i] * (double)a[i];
            for (int64_t i = 0; i < call.out * R; i++) of_b += (double)b[i] * (double)b[i];
            assert_true(fabs(of_a - of_b) < 1e-5 * of_a);
        }
        assert_true(fabs(taken[0] - taken[1]) < 1e-4 * taken[0]);
    }
}

/* W = Q R: what is left of the first columns with a scaling of 1 is nothing. */
static void olora_is_a_part_of_qr(void **state)
{
    static double whole[MOST * MOST];
    (void)state;
    for (int s = 0; s < SHAPES; s++) {
        struct tt_lora_init_call call = make_call(shapes[s][0], shapes[s][1], 1);
        for (int64_t i = 0; i < call.out * call.in; i++) whole[i] = (double)w[i];
        test_must(tt_lora_init_olora(&call));
        (void)take_out(&call, 1, whole);
        for (int64_t o = 0; o < call.out; o++)
            for (int64_t i = 0; i < R; i++) assert_true(fabs(rest[o * call.in + i]) < 1e-4);
        for (int64_t k = 0; k < R; k++)
            for (int64_t l = 0; l < R; l++) {
                double sum = 0;
                for (int64_t o = 0; o < call.out; o++) sum += (double)b[o * R + k] * (double)b[o * R + l];
                assert_true(fabs(sum - (k == l)) < 1e-5);
            }
    }
}

static tt_status read_w(void *context, int64_t first, int64_t count, void *to)
{
    (void)context;
    memcpy(to, w + first, (size_t)count * sizeof *w);
    return TT_OK;
}

static void loftq_takes_from_the_rounding(void **state)
{
    static double error[MOST * MOST];
    static float decoded[MOST * MOST], absmax[MOST * MOST];
    static unsigned char segment[8 * MOST * MOST];
    static const enum tt_quant_type types[] = {TT_QUANT_NF4, TT_QUANT_INT8};
    (void)state;
    if (!has_lapack()) skip();
    for (int t = 0; t < 2; t++) {
        struct tt_quant_layout layout;
        struct tt_lora_init_call call = make_call(48, 96, 3);
        int64_t count = call.out * call.in;
        test_must(tt_quant_layout_make(tt_quant_format_make(types[t], false), call.out, call.in, &layout));
        call.quant = &layout;
        test_must(tt_lora_init_loftq(&call));
        assert_true(layout.bytes <= sizeof segment);
        tt_quant_absmax(&layout, 0, layout.blocks, w, TT_F32, absmax);
        const struct tt_quant_source source = {.absmax = absmax, .dtype = TT_F32, .read = read_w};
        test_must(tt_quant_encode(&layout, &source, 0, layout.bytes, segment));
        tt_quant_decode(&layout, segment, 0, count, decoded, TT_F32);
        for (int64_t i = 0; i < count; i++) error[i] = (double)w[i] - (double)decoded[i];
        double all = squares(error, count), taken = take_out(&call, 1, error), left = squares(rest, count);
        if (!(fabs(taken + left - all) < 1e-4 * all && taken > 0.125 * all))
            fail_msg("%d: %g of %g is taken, %g is left", t, taken, all, left);
    }
}

/* Columns that are those before them are replaced. */
static void orthonormal_columns_have_no_gaps(void **state)
{
    enum { ROWS = 7, COLUMNS = 7 };
    double q[ROWS * COLUMNS] = {0};
    (void)state;
    for (int c = 0; c < 4; c++)
        for (int i = 0; i < ROWS; i++) q[c * ROWS + i] = c % 2 == 0 ? 1.0 : (double)i; /* two of them twice */
    tt_factor_orthonormalize(q, ROWS, COLUMNS);
    for (int c = 0; c < COLUMNS; c++)
        for (int d = 0; d < COLUMNS; d++) {
            double sum = 0;
            for (int i = 0; i < ROWS; i++) sum += q[c * ROWS + i] * q[d * ROWS + i];
            assert_true(fabs(sum - (c == d)) < 1e-12);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_those_of_peft),       cmocka_unit_test(orthogonal_values_have_no_product),
        cmocka_unit_test(pissa_takes_the_most),          cmocka_unit_test(olora_is_a_part_of_qr),
        cmocka_unit_test(loftq_takes_from_the_rounding), cmocka_unit_test(orthonormal_columns_have_no_gaps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
