/* DoRA against plain loops in fp64, by PEFT's formula with a constant norm: a group whose second linear has no adapter,
 * with biases and a residual, with and without dropout, over weights in fp32, NF4, int8 and FP8; the values with which
 * magnitudes begin; passes with adapters off; a recomputation without outputs. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>
#include "base/alloc.h"
#include "nn/adapter_kind.h"
#include "support/dropout_mask.h"
#include "support/tuning.h"

enum { T = 5, IN = 96, MEMBERS = 3, OUT_MAX = 40, OUT = 40 + 24 + 32, R = 2 };
static const int64_t outs[MEMBERS] = {40, 24, 32};
enum part { WEIGHT, LORA_A, LORA_B, VECTOR, BIAS, PARTS };

struct fixture {
    struct tt_device *device;
    struct tt_stream *stream;
    struct tt_workspace *workspace;
    struct tt_pass pass;
    struct tt_linear linears[MEMBERS];
    struct tt_linear_group group;
    tt_param params[MEMBERS][PARTS];
    float values[MEMBERS][PARTS][OUT_MAX * IN], grads[MEMBERS][PARTS][OUT_MAX * IN];
    void *segments[MEMBERS];
    int64_t keys[T];
    float x[T * IN], dy[T * OUT], y[T * OUT], dx[T * IN], residual[T * OUT];
};

static tt_status give(void *context, int64_t first, int64_t count, void *to)
{
    memcpy(to, (const float *)context + first, (size_t)count * sizeof(float));
    return TT_OK;
}

static void quantize(struct fixture *fixture, int i, struct tt_quant_format format)
{
    float *weights = fixture->values[i][WEIGHT], absmax[4096];
    tt_param *param = &fixture->params[i][WEIGHT];
    struct tt_quant_layout *layout = &param->quant;
    assert_int_equal(tt_quant_layout_make(format, outs[i], IN, layout), TT_OK);
    tt_quant_absmax(layout, 0, layout->blocks, weights, TT_F32, absmax);
    struct tt_quant_source source = {.absmax = absmax,
                                     .offset = tt_quant_mean(absmax, layout->blocks),
                                     .dtype = TT_F32,
                                     .read = give,
                                     .context = weights};
    fixture->segments[i] = tt_alloc_aligned(layout->bytes);
    assert_int_equal(tt_quant_encode(layout, &source, 0, layout->bytes, fixture->segments[i]), TT_OK);
    tt_quant_decode(layout, fixture->segments[i], 0, layout->count, weights, TT_F32);
    param->value = tt_tensor_1d(fixture->segments[i], TT_U8, (int64_t)layout->bytes);
}

static tt_param *make_param(struct fixture *fixture, int i, enum part part, int64_t rows, int64_t columns)
{
    static const char *const names[MEMBERS][PARTS] = {
        {"w0", "a0", "b0", "m0", "c0"}, {"w1", "a1", "b1", "m1", "c1"}, {"w2", "a2", "b2", "m2", "c2"}};
    tt_param *param = &fixture->params[i][part];
    float *value = fixture->values[i][part], *grad = fixture->grads[i][part];
    *param = (tt_param){.name = names[i][part],
                        .rank = columns > 0 ? 2 : 1,
                        .dims = {rows, columns},
                        .stored_dtype = TT_F32,
                        .trainable = part != WEIGHT && part != BIAS};
    int64_t count = rows * (columns > 0 ? columns : 1);
    for (int64_t e = 0; e < count; e++) {
        value[e] = (float)tt_rng_normal(tt_rng_derive(tt_rng_make(5), param->name), (uint64_t)e);
        if (part == VECTOR) value[e] = 8 + value[e];
        grad[e] = 0.25f; /* gradients are added to */
    }
    param->value =
        columns > 0 ? tt_tensor_2d(value, TT_F32, rows, columns) : tt_tensor_1d(value, TT_F32, rows);
    param->grad = columns > 0 ? tt_tensor_2d(grad, TT_F32, rows, columns) : tt_tensor_1d(grad, TT_F32, rows);
    return param;
}

static struct fixture *make(struct tt_quant_format format, double dropout)
{
    struct fixture *fixture = tt_calloc(1, sizeof *fixture);
    assert_non_null(fixture);
    assert_int_equal(
        tt_device_open(&(struct tt_device_config){.kind = "cpu", .threads = 1, .tuning = test_tuning()},
                       &fixture->device),
        TT_OK);
    assert_int_equal(tt_stream_create(fixture->device, &fixture->stream), TT_OK);
    assert_int_equal(tt_workspace_create(fixture->device, 2 << 20, &fixture->workspace), TT_OK);
    fixture->pass =
        (struct tt_pass){.lent = {.stream = fixture->stream, .workspace = fixture->workspace},
                         .in = {.compute_dtype = TT_F32, .training = true, .dropout_rng = tt_rng_make(9)}};
    fixture->group = (struct tt_linear_group){fixture->linears, MEMBERS, &tt_adapter_dora};
    for (int i = 0; i < MEMBERS; i++) {
        struct tt_linear *linear = &fixture->linears[i];
        *linear = (struct tt_linear){.in = IN, .out = outs[i]};
        linear->weight = make_param(fixture, i, WEIGHT, outs[i], IN);
        if (format.type != TT_QUANT_NONE) quantize(fixture, i, format);
        if (i == 0) linear->bias = make_param(fixture, i, BIAS, outs[i], 0);
        if (i == 1) continue;
        linear->r = R;
        linear->scaling = 0.5f + (float)i;
        linear->dropout = dropout;
        linear->lora_A = make_param(fixture, i, LORA_A, R, IN);
        linear->lora_B = make_param(fixture, i, LORA_B, outs[i], R);
        linear->vector = make_param(fixture, i, VECTOR, outs[i], 0);
    }
    for (int i = 0; i < T; i++) fixture->keys[i] = ((int64_t)(i * 5) << 24) | i;
    for (uint64_t i = 0; i < T * IN; i++) fixture->x[i] = (float)tt_rng_normal(tt_rng_make(2), i);
    for (uint64_t i = 0; i < T * OUT; i++) fixture->dy[i] = (float)tt_rng_normal(tt_rng_make(3), i);
    for (uint64_t i = 0; i < T * OUT; i++) fixture->residual[i] = (float)tt_rng_normal(tt_rng_make(4), i);
    return fixture;
}

static void destroy(struct fixture *fixture)
{
    for (int i = 0; i < MEMBERS; i++) tt_free(fixture->segments[i]);
    tt_workspace_destroy(fixture->workspace);
    tt_stream_destroy(fixture->stream);
    tt_device_close(fixture->device);
    tt_free(fixture);
}

static double factor(const struct tt_linear *linear, const struct fixture *fixture, int t, int64_t k)
{
    if (linear->dropout <= 0) return 1;
    struct tt_rng rng = tt_rng_derive(fixture->pass.in.dropout_rng, linear->lora_A->name);
    return test_dropout_keeps(rng, fixture->keys[t], k, linear->dropout)
               ? 1 / (1 - test_dropout_rate(linear->dropout))
               : 0;
}

/* s B A of one row */
static double low(const struct fixture *fixture, int i, int64_t o, int64_t k)
{
    double sum = 0;
    if (fixture->linears[i].r == 0) return 0;
    for (int r = 0; r < R; r++)
        sum += (double)fixture->values[i][LORA_B][o * R + r] * (double)fixture->values[i][LORA_A][r * IN + k];
    return sum * (double)fixture->linears[i].scaling;
}

static double norm_of(const struct fixture *fixture, int i, int64_t o)
{
    double squares = 0;
    for (int64_t k = 0; k < IN; k++) {
        double w = (double)fixture->values[i][WEIGHT][o * IN + k] + low(fixture, i, o, k);
        squares += w * w;
    }
    return sqrt(squares);
}

struct oracle {
    double y[T * OUT], dx[T * IN], grads[MEMBERS][PARTS][OUT_MAX * IN];
};

/* y[t, o] of a linear and what follows from its gradient. */
static void add_output(const struct fixture *fixture, int i, int t, int64_t o, int64_t column,
                       struct oracle *oracle)
{
    const struct tt_linear *linear = &fixture->linears[i];
    bool adapted = linear->r > 0;
    double dy = (double)fixture->dy[t * OUT + column], plain = 0, u = 0, h[R] = {0};
    double norm = adapted ? norm_of(fixture, i, o) : 1,
           g = adapted ? (double)fixture->values[i][VECTOR][o] / norm : 1;
    for (int64_t k = 0; k < IN; k++) {
        double x = (double)fixture->x[t * IN + k], keep = factor(linear, fixture, t, k), d = x * keep;
        double w = (double)fixture->values[i][WEIGHT][o * IN + k], both = w + low(fixture, i, o, k);
        plain += (x - d) * w;
        u += d * both;
        oracle->dx[t * IN + k] += dy * ((1 - keep) * w + keep * g * both);
        for (int r = 0; adapted && r < R; r++) {
            double a = (double)fixture->values[i][LORA_A][r * IN + k],
                   b = (double)fixture->values[i][LORA_B][o * R + r];
            h[r] += (double)linear->scaling * d * a;
            oracle->grads[i][LORA_A][r * IN + k] += dy * g * (double)linear->scaling * b * d;
        }
    }
    oracle->y[t * OUT + column] = plain + g * u + (i == 0 ? (double)fixture->values[0][BIAS][o] : 0);
    if (!adapted) return;
    for (int r = 0; r < R; r++) oracle->grads[i][LORA_B][o * R + r] += dy * g * h[r];
    oracle->grads[i][VECTOR][o] += dy * u / norm;
}

static struct oracle *compute(const struct fixture *fixture)
{
    struct oracle *oracle = tt_calloc(1, sizeof *oracle);
    assert_non_null(oracle);
    for (int t = 0; t < T; t++) {
        int64_t column = 0;
        for (int i = 0; i < MEMBERS; i++)
            for (int64_t o = 0; o < outs[i]; o++, column++) add_output(fixture, i, t, o, column, oracle);
    }
    return oracle;
}

static void compare(const char *what, const float *got, const double *want, double more, int64_t count)
{
    double largest = 0;
    for (int64_t i = 0; i < count; i++) largest = fmax(largest, fabs(want[i] + more));
    for (int64_t i = 0; i < count; i++)
        if (!(fabs((double)got[i] - want[i] - more) <= 2e-5 * largest))
            fail_msg("%s[%lld] is %.9g, should be %.9g", what, (long long)i, (double)got[i], want[i] + more);
}

static struct tt_linear_call call_of(struct fixture *fixture, tt_tensor h_TR)
{
    return (struct tt_linear_call){.group = &fixture->group,
                                   .pass = &fixture->pass,
                                   .row_keys_T = tt_tensor_1d(fixture->keys, TT_I64, T),
                                   .x_TI = tt_tensor_2d(fixture->x, TT_F32, T, IN),
                                   .h_TR = h_TR};
}

static void backward(struct fixture *fixture, const struct tt_linear_call *call)
{
    tt_tensor dh_TR, dy_TO = tt_tensor_2d(fixture->dy, TT_F32, T, OUT);
    assert_int_equal(tt_linear_push_h(&fixture->group, &fixture->pass, T, &dh_TR), TT_OK);
    assert_int_equal(tt_linear_backward_input(call, dy_TO, dh_TR, tt_tensor_2d(fixture->dx, TT_F32, T, IN)),
                     TT_OK);
    assert_int_equal(tt_linear_backward_params(call, dy_TO, dh_TR), TT_OK);
}

static void check_gradients(const struct fixture *fixture, const struct oracle *oracle)
{
    compare("dx", fixture->dx, oracle->dx, 0, T * IN);
    for (int i = 0; i < MEMBERS; i += 2) {
        compare("dA", fixture->grads[i][LORA_A], oracle->grads[i][LORA_A], 0.25, R * IN);
        compare("dB", fixture->grads[i][LORA_B], oracle->grads[i][LORA_B], 0.25, outs[i] * R);
        compare("dm", fixture->grads[i][VECTOR], oracle->grads[i][VECTOR], 0.25, outs[i]);
    }
}

static const struct {
    enum tt_quant_type type;
    bool nested;
    double dropout;
} cases[] = {
    {TT_QUANT_NONE, false, 0},  {TT_QUANT_NONE, false, 0.3}, {TT_QUANT_NF4, true, 0},
    {TT_QUANT_NF4, false, 0.3}, {TT_QUANT_INT8, false, 0},   {TT_QUANT_INT8, false, 0.1},
    {TT_QUANT_FP8, false, 0.2}, {TT_QUANT_FP8, false, 0},
};

static struct tt_quant_format format_of(size_t c)
{
    return cases[c].type == TT_QUANT_NONE ? (struct tt_quant_format){0}
                                          : tt_quant_format_make(cases[c].type, cases[c].nested);
}

static void both_directions(void **state)
{
    (void)state;
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
        for (int again = 0; again < 2; again++) { /* the recomputation of a block asks for no output */
            struct fixture *fixture = make(format_of(c), cases[c].dropout);
            struct oracle *oracle = compute(fixture);
            tt_tensor h_TR, y_TO = tt_tensor_2d(fixture->y, TT_F32, T, OUT);
            assert_int_equal(tt_linear_push_h(&fixture->group, &fixture->pass, T, &h_TR), TT_OK);
            struct tt_linear_call call = call_of(fixture, h_TR);
            assert_int_equal(tt_linear_forward(&call, again > 0 ? (tt_tensor){0} : y_TO), TT_OK);
            if (again == 0) compare("y", fixture->y, oracle->y, 0, T * OUT);
            backward(fixture, &call);
            check_gradients(fixture, oracle);
            tt_free(oracle);
            destroy(fixture);
        }
}

/* A group of one with a residual, and one whose input trains nothing. */
static void residuals(void **state)
{
    (void)state;
    for (int c = 0; c < 2; c++) {
        struct fixture *fixture = make(format_of(0), c > 0 ? 0.3 : 0);
        fixture->group.count = 1;
        struct oracle *oracle = compute(fixture);
        tt_tensor h_TR,
            y_TO = tt_tensor_cols(tt_tensor_2d(fixture->y, TT_F32, T, OUT), 0, outs[0]),
            residual_TO = tt_tensor_cols(tt_tensor_2d(fixture->residual, TT_F32, T, OUT), 0, outs[0]);
        assert_int_equal(tt_linear_push_h(&fixture->group, &fixture->pass, T, &h_TR), TT_OK);
        struct tt_linear_call call = call_of(fixture, h_TR);
        assert_int_equal(tt_linear_forward_add(&call, residual_TO, y_TO), TT_OK);
        for (int t = 0; t < T; t++) {
            for (int64_t o = 0; o < outs[0]; o++)
                oracle->y[t * OUT + o] += (double)fixture->residual[t * OUT + o];
            compare("y", fixture->y + t * OUT, oracle->y + t * OUT, 0, outs[0]);
        }
        tt_free(oracle);
        destroy(fixture);
    }
}

static void magnitudes_begin_as_norms(void **state)
{
    (void)state;
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        struct fixture *fixture = make(format_of(c), cases[c].dropout);
        float norms[OUT_MAX];
        double want[OUT_MAX];
        assert_int_equal(
            tt_adapter_dora.begin(&fixture->linears[0], &fixture->pass, tt_tensor_1d(norms, TT_F32, outs[0])),
            TT_OK);
        for (int64_t o = 0; o < outs[0]; o++) want[o] = norm_of(fixture, 0, o);
        compare("m", norms, want, 0, outs[0]);
        destroy(fixture);
    }
}

/* The reference of a preference loss: the base alone. */
static void adapters_off(void **state)
{
    (void)state;
    struct fixture *fixture = make(format_of(0), 0);
    tt_tensor h_TR, y_TO = tt_tensor_2d(fixture->y, TT_F32, T, OUT);
    fixture->pass.in.adapters_off = true;
    assert_int_equal(tt_linear_push_h(&fixture->group, &fixture->pass, T, &h_TR), TT_OK);
    struct tt_linear_call call = call_of(fixture, h_TR);
    assert_int_equal(tt_linear_forward(&call, y_TO), TT_OK);
    for (int i = 0; i < MEMBERS; i++) fixture->linears[i].r = 0;
    struct oracle *oracle = compute(fixture);
    compare("y", fixture->y, oracle->y, 0, T * OUT);
    tt_free(oracle);
    destroy(fixture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_directions),
        cmocka_unit_test(residuals),
        cmocka_unit_test(magnitudes_begin_as_norms),
        cmocka_unit_test(adapters_off),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
