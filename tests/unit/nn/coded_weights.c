/* Linears over quantized weights, forward and backward, against fp64 loops over the dequantized numbers: one
 * matrix, a stacked group, a group of which one member is not quantized, in the order of the host and in that
 * of GPUs. Dropout is off: tests/unit/nn/linear.c has it. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>
#include "backend/device_impl.h"
#include "base/alloc.h"
#include "nn/linear.h"
#include "support/tuning.h"

enum { T = 5, IN = 96, MEMBERS = 3, R = 2 };
static const int64_t outs[MEMBERS] = {40, 24, 32};

struct fixture {
    struct tt_device *device;
    struct tt_stream *stream;
    struct tt_workspace *workspace;
    struct tt_pass pass;
    struct tt_linear linears[MEMBERS];
    struct tt_linear_group group;
    tt_param params[MEMBERS][3];
    float weights[MEMBERS][64 * IN]; /* what the product sees */
    void *segments[MEMBERS];
    float low[MEMBERS][2][64 * R + R * IN], grads[MEMBERS][2][64 * R + R * IN];
    float x[T * IN], dy[T * 128], y[T * 128], dx[T * IN], h[T * 8], dh[T * 8], residual[T * 128];
    int64_t out;
};

static tt_status give(void *context, int64_t first, int64_t count, void *to)
{
    memcpy(to, (const float *)context + first, (size_t)count * sizeof(float));
    return TT_OK;
}

static void make_weight(struct fixture *fixture, int i, struct tt_quant_format format)
{
    float *weights = fixture->weights[i];
    tt_param *param = &fixture->params[i][0];
    int64_t count = outs[i] * IN;
    *param = (tt_param){.name = "w", .rank = 2, .dims = {outs[i], IN}, .stored_dtype = TT_F32};
    for (int64_t e = 0; e < count; e++)
        weights[e] = (float)tt_rng_normal(tt_rng_make(50 + (uint64_t)i), (uint64_t)e);
    fixture->group.linears[i].weight = param;
    param->value = tt_tensor_2d(weights, TT_F32, outs[i], IN);
    if (format.type == TT_QUANT_NONE) return;
    float absmax[4096];
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

static void make_lora(struct fixture *fixture, int i)
{
    struct tt_linear *linear = &fixture->group.linears[i];
    linear->r = R;
    linear->scaling = 0.5f + (float)i;
    for (int which = 0; which < 2; which++) {
        tt_param *param = &fixture->params[i][1 + which];
        int64_t rows = which == 0 ? R : outs[i], cols = which == 0 ? IN : R;
        *param = (tt_param){.name = "a", .rank = 2, .dims = {rows, cols}, .trainable = true};
        for (int64_t e = 0; e < rows * cols; e++)
            fixture->low[i][which][e] =
                (float)tt_rng_normal(tt_rng_make(70 + 2 * (uint64_t)i + (uint64_t)which), (uint64_t)e);
        param->value = tt_tensor_2d(fixture->low[i][which], TT_F32, rows, cols);
        param->grad = tt_tensor_2d(fixture->grads[i][which], TT_F32, rows, cols);
    }
    linear->lora_A = &fixture->params[i][1];
    linear->lora_B = &fixture->params[i][2];
}

static struct fixture *make(int members, struct tt_quant_format format, int plain_member, int without_lora)
{
    struct fixture *fixture = tt_calloc(1, sizeof *fixture);
    assert_non_null(fixture);
    assert_int_equal(
        tt_device_open(&(struct tt_device_config){.kind = "cpu", .threads = 1, .tuning = test_tuning()},
                       &fixture->device),
        TT_OK);
    assert_int_equal(tt_stream_create(fixture->device, &fixture->stream), TT_OK);
    assert_int_equal(tt_workspace_create(fixture->device, 1 << 20, &fixture->workspace), TT_OK);
    fixture->pass = (struct tt_pass){.lent = {.stream = fixture->stream, .workspace = fixture->workspace},
                                     .in = {.compute_dtype = TT_F32, .training = true}};
    fixture->group = (struct tt_linear_group){.linears = fixture->linears, .count = members};
    for (int i = 0; i < members; i++) {
        fixture->group.linears[i] = (struct tt_linear){.in = IN, .out = outs[i]};
        make_weight(fixture, i, i == plain_member ? (struct tt_quant_format){0} : format);
        if (i != without_lora) make_lora(fixture, i);
        fixture->out += outs[i];
    }
    for (uint64_t i = 0; i < T * IN; i++) fixture->x[i] = (float)tt_rng_normal(tt_rng_make(2), i);
    for (uint64_t i = 0; i < T * 128; i++) fixture->dy[i] = (float)tt_rng_normal(tt_rng_make(3), i);
    for (uint64_t i = 0; i < T * 128; i++) fixture->residual[i] = (float)tt_rng_normal(tt_rng_make(4), i);
    memset(fixture->y, 0xff, sizeof fixture->y);
    memset(fixture->dx, 0xff, sizeof fixture->dx);
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

struct expected {
    double y[T * 128], dx[T * IN], da[MEMBERS][R * IN], db[MEMBERS][64 * R];
};

static void oracle(const struct fixture *fixture, bool residual, struct expected *expected)
{
    int64_t first = 0, width = fixture->out;
    memset(expected, 0, sizeof *expected);
    for (int i = 0; i < fixture->group.count; i++) {
        const struct tt_linear *linear = &fixture->group.linears[i];
        const float *w = fixture->weights[i], *a = fixture->low[i][0], *b = fixture->low[i][1];
        double s = linear->scaling;
        for (int t = 0; t < T; t++) {
            const float *x = fixture->x + t * IN, *dy = fixture->dy + t * width + first;
            double h[R] = {0}, dh[R] = {0};
            for (int64_t r = 0; r < linear->r; r++) {
                for (int d = 0; d < IN; d++) h[r] += (double)x[d] * (double)a[r * IN + d];
                for (int64_t o = 0; o < linear->out; o++) dh[r] += s * (double)dy[o] * (double)b[o * R + r];
            }
            for (int64_t o = 0; o < linear->out; o++) {
                double sum = residual ? (double)fixture->residual[t * width + first + o] : 0;
                for (int d = 0; d < IN; d++) {
                    sum += (double)x[d] * (double)w[o * IN + d];
                    expected->dx[t * IN + d] += (double)dy[o] * (double)w[o * IN + d];
                }
                for (int64_t r = 0; r < linear->r; r++) {
                    sum += s * h[r] * (double)b[o * R + r];
                    expected->db[i][o * R + r] += s * (double)dy[o] * h[r];
                }
                expected->y[t * width + first + o] = sum;
            }
            for (int64_t r = 0; r < linear->r; r++) {
                for (int d = 0; d < IN; d++) {
                    expected->dx[t * IN + d] += dh[r] * (double)a[r * IN + d];
                    expected->da[i][r * IN + d] += dh[r] * (double)x[d];
                }
            }
        }
        first += linear->out;
    }
}

static void assert_close(const char *what, const float *got, const double *wanted, int64_t count)
{
    double error = 0, size = 0;
    for (int64_t i = 0; i < count; i++) {
        error += ((double)got[i] - wanted[i]) * ((double)got[i] - wanted[i]);
        size += wanted[i] * wanted[i];
    }
    if (!(sqrt(error) <= 1e-6 * sqrt(size))) fail_msg("%s is off by %.2e", what, sqrt(error / size));
}

/* The device table's word for it decides the order (nn/linear.c). */
static void run(struct fixture *fixture, bool as_gpu)
{
    struct expected *expected = tt_calloc(1, sizeof *expected);
    const struct tt_linear_group *group = &fixture->group;
    int64_t width = fixture->out, r = tt_linear_group_r(group);
    tt_tensor x = tt_tensor_2d(fixture->x, TT_F32, T, IN), dx = tt_tensor_2d(fixture->dx, TT_F32, T, IN);
    tt_tensor y = tt_tensor_2d(fixture->y, TT_F32, T, width),
              dy = tt_tensor_2d(fixture->dy, TT_F32, T, width);
    tt_tensor h = tt_tensor_2d(fixture->h, TT_F32, T, r), dh = tt_tensor_2d(fixture->dh, TT_F32, T, r);
    struct tt_linear_call call = {.group = group, .pass = &fixture->pass, .x_TI = x, .h_TR = h};
    fixture->device->is_host = !as_gpu;
    assert_int_equal(tt_linear_forward(&call, y), TT_OK);
    assert_int_equal(tt_linear_backward_input(&call, dy, dh, dx), TT_OK);
    assert_int_equal(tt_linear_backward_params(&call, dy, dh), TT_OK);
    assert_int_equal(tt_workspace_mark(fixture->workspace), 0);
    oracle(fixture, false, expected);
    assert_close("y", fixture->y, expected->y, T * width);
    assert_close("dx", fixture->dx, expected->dx, T * IN);
    for (int i = 0; i < group->count; i++) {
        if (group->linears[i].r == 0) continue;
        assert_close("dA", fixture->grads[i][0], expected->da[i], R * IN);
        assert_close("dB", fixture->grads[i][1], expected->db[i], outs[i] * R);
    }
    if (group->count == 1) {
        tt_tensor residual = tt_tensor_2d(fixture->residual, TT_F32, T, width);
        assert_int_equal(tt_linear_forward_add(&call, residual, y), TT_OK);
        oracle(fixture, true, expected);
        assert_close("y with a residual", fixture->y, expected->y, T * width);
    }
    fixture->device->is_host = true;
    tt_free(expected);
}

static void products(void **state)
{
    (void)state;
    const struct tt_quant_format formats[] = {
        tt_quant_format_make(TT_QUANT_NF4, false), tt_quant_format_make(TT_QUANT_NF4, true),
        tt_quant_format_make(TT_QUANT_FP4, false), tt_quant_format_make(TT_QUANT_INT8, false)};
    const struct {
        int members, plain, without_lora;
    } cases[] = {{1, -1, -1}, {3, -1, -1}, {3, 0, -1}, {3, 1, -1}, {3, 2, 1}, {3, -1, 1}, {2, -1, 0}};
    for (size_t f = 0; f < sizeof formats / sizeof *formats; f++) {
        for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
            for (int as_gpu = 0; as_gpu < 2; as_gpu++) {
                struct fixture *fixture =
                    make(cases[c].members, formats[f], cases[c].plain, cases[c].without_lora);
                run(fixture, as_gpu != 0);
                destroy(fixture);
            }
        }
    }
}

/* An address far from all others, for a device that only plans. */
static void *at(int place)
{
    return (void *)((uintptr_t)(place + 1) << 36);
}

/* Scratch of a forward pass over matrices with `rows` rows of 8192 weights, in bf16. */
static size_t scratch_of(const int64_t rows[MEMBERS])
{
    struct tt_device *device;
    struct tt_stream *stream;
    struct tt_workspace *workspace;
    const struct tt_device_config plan = {.kind = "plan", .threads = 1};
    const int64_t in = 8192;
    assert_int_equal(tt_device_open(&plan, &device), TT_OK);
    assert_int_equal(tt_stream_create(device, &stream), TT_OK);
    assert_int_equal(tt_workspace_create(device, 0, &workspace), TT_OK);
    struct tt_pass pass = {.lent = {.stream = stream, .workspace = workspace},
                           .in = {.compute_dtype = TT_BF16}};
    tt_param params[MEMBERS];
    struct tt_linear linears[MEMBERS] = {0};
    struct tt_linear_group group = {.linears = linears, .count = MEMBERS};
    for (int i = 0; i < MEMBERS; i++) {
        params[i] = (tt_param){.name = "w", .rank = 2, .dims = {rows[i], in}};
        assert_int_equal(
            tt_quant_layout_make(tt_quant_format_make(TT_QUANT_NF4, true), rows[i], in, &params[i].quant),
            TT_OK);
        params[i].value = tt_tensor_1d(at(i), TT_U8, (int64_t)params[i].quant.bytes);
        group.linears[i] = (struct tt_linear){.weight = &params[i], .in = in, .out = rows[i]};
    }
    struct tt_linear_call call = {
        .group = &group, .pass = &pass, .x_TI = tt_tensor_2d(at(4), TT_BF16, T, in)};
    tt_tensor y = tt_tensor_2d(at(5), TT_BF16, T, tt_linear_group_out(&group));
    if (tt_linear_forward(&call, y) != TT_OK) fail_msg("%s", tt_error_last()->message);
    size_t peak = tt_workspace_peak(workspace);
    assert_int_equal(tt_workspace_mark(workspace), 0);
    tt_workspace_destroy(workspace);
    tt_stream_destroy(stream);
    tt_device_close(device);
    return peak;
}

/* A group larger than the scratch comes in parts, and a matrix larger than it still comes. */
static void parts(void **state)
{
    (void)state;
    const size_t mib = 1 << 20;
    assert_int_equal(scratch_of((const int64_t[MEMBERS]){4096, 4096, 4096}), 192 * mib);  /* all at once */
    assert_int_equal(scratch_of((const int64_t[MEMBERS]){8192, 8192, 8192}), 256 * mib);  /* two, then one */
    assert_int_equal(scratch_of((const int64_t[MEMBERS]){8192, 8192, 32768}), 512 * mib); /* one is larger */
}

/* Parts that do not fill the scratch are a fault of the caller. */
static void wrong_scratch(void **state)
{
    (void)state;
    struct fixture *fixture = make(1, tt_quant_format_make(TT_QUANT_NF4, false), -1, 0);
    float w[40 * IN];
    struct tt_matrix matrix = {.parts = {{&fixture->params[0][0].quant, fixture->params[0][0].value}},
                               .count = 1,
                               .scratch = tt_tensor_2d(w, TT_F32, 39, IN)};
    assert_int_not_equal(tt_matrix_decode(fixture->stream, &matrix), TT_OK);
    matrix.scratch = tt_tensor_2d(w, TT_F32, 40, IN);
    assert_int_equal(tt_matrix_decode(fixture->stream, &matrix), TT_OK);
    assert_ptr_equal(matrix.dense.data, w);
    assert_int_equal(matrix.count, 0);
    assert_memory_equal(w, fixture->weights[0], sizeof w);
    destroy(fixture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products),
        cmocka_unit_test(parts),
        cmocka_unit_test(wrong_scratch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
