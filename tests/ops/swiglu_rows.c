/* SwiGLU that writes its rows in FP8 too: the values are those of SwiGLU alone, codes and scales those of quantizing
 * them, bit for bit; a device that does not store the values writes the same codes. Gate and up kept in FP8 are those
 * of quantizing them, and backward reads what tt_dequantize makes of them. */
#include <stdlib.h>
#include <string.h>

#include "backend/ops/gemm_scaled.h"
#include "backend/ops/quant.h"
#include "backend/ops/swiglu.h"
#include "ops/coded_rows.h"
#include "ops/isa.h"

struct rows_case {
    int64_t rows, width, gap;
    tt_dtype dtype;
    enum tt_activation activation;
};

static const struct rows_case cases[] = {
    {9, 64, 0, TT_F32, TT_ACTIVATION_SILU},        {9, 64, 0, TT_BF16, TT_ACTIVATION_SILU},
    {7, 333, 5, TT_BF16, TT_ACTIVATION_SILU},      {7, 333, 5, TT_F32, TT_ACTIVATION_GELU},
    {5, 1, 0, TT_BF16, TT_ACTIVATION_SILU},        {1, 7, 1, TT_BF16, TT_ACTIVATION_GELU_TANH},
    {11, 1000, 1000, TT_BF16, TT_ACTIVATION_SILU}, {8, 4104, 8, TT_BF16, TT_ACTIVATION_GELU},
    {5, 5000, 0, TT_F32, TT_ACTIVATION_SILU},      {0, 16, 0, TT_BF16, TT_ACTIVATION_SILU},
    {5, 40000, 0, TT_BF16, TT_ACTIVATION_SILU},    {14, 96, 4, TT_BF16, TT_ACTIVATION_GELU_TANH},
};

static const struct rows_case gpu_cases[] = {
    {515, 14336, 0, TT_BF16, TT_ACTIVATION_SILU},      {130, 14336, 14336, TT_BF16, TT_ACTIVATION_SILU},
    {70, 28672, 0, TT_BF16, TT_ACTIVATION_SILU},       {40, 32768, 0, TT_BF16, TT_ACTIVATION_SILU},
    {1501, 8192, 8, TT_BF16, TT_ACTIVATION_GELU_TANH}, {70000, 32, 0, TT_BF16, TT_ACTIVATION_SILU},
};

/* A gate of 4 beside every outlier of up and of dh: SwiGLU does not make it small. */
static void open_gates(const struct test_tensor *gate)
{
    int64_t rows = gate->view.dims[0], cols = gate->view.dims[1];
    double *values = test_tensor_values(gate);
    for (int64_t r = 5; r < rows; r += 8) values[r * cols + cols / 2] = 4;
    test_tensor_set(gate, values);
    free(values);
}

/* Results are h (forward), or dgate | dup and h (backward). APART: of two passes. LONE: of a pass that stores codes
 * alone. */
enum { DH, GATE, UP, RESULT_APART, H_APART, RESULT, H, CODES, SCALE, LONE_CODES, LONE_SCALE, TENSORS };

static const char *const names[TENSORS] = {"dh", "gate",  "up",    "result apart", "h apart",    "result",
                                           "h",  "codes", "scale", "codes alone",  "scale alone"};

static void make_tensors(const struct rows_case *row, int halves, struct test_tensor *t)
{
    for (int i = 0; i < TENSORS; i++) {
        bool wide = i == RESULT_APART || i == RESULT || i == CODES || i == LONE_CODES;
        bool is_scale = i == SCALE || i == LONE_SCALE;
        tt_dtype dtype = is_scale ? TT_F32 : i == CODES || i == LONE_CODES ? TT_F8_E4M3 : row->dtype;
        int64_t width = row->width * (wide ? halves : 1);
        if (i <= UP)
            t[i] = test_tensor_random(dtype, row->rows, width, TEST_UNUSED, row->gap, (uint64_t)i + 1, 1);
        else
            t[i] = test_tensor_make(dtype, row->rows, is_scale ? TEST_UNUSED : width, TEST_UNUSED,
                                    dtype == row->dtype && !is_scale ? row->gap : 0);
        if (i == GATE)
            open_gates(&t[i]);
        else if (i <= UP)
            fill_operand_rows(&t[i]);
        else
            test_tensor_poison(&t[i]);
    }
}

static void run_forward(struct test_device *device, const struct rows_case *row, const struct test_tensor *t,
                        bool lone)
{
    struct tt_swiglu_forward_args pass = {.activation = row->activation,
                                          .gate_TF = t[GATE].view,
                                          .up_TF = t[UP].view,
                                          .h_TF = t[RESULT_APART].view};
    test_ok(tt_swiglu_forward(device->stream, &pass));
    pass.h_TF = t[RESULT].view;
    struct tt_swiglu_rows_args rows = {.pass = pass, .codes_TF = t[CODES].view, .scale_T = t[SCALE].view};
    test_ok(tt_swiglu_rows(device->stream, &rows));
    struct tt_swiglu_rows_args only = {
        .pass = pass, .codes_TF = t[LONE_CODES].view, .scale_T = t[LONE_SCALE].view};
    only.pass.h_TF = (tt_tensor){0};
    if (lone) test_ok(tt_swiglu_rows(device->stream, &only));
}

static void run_backward(struct test_device *device, const struct rows_case *row, const struct test_tensor *t,
                         bool lone)
{
    int64_t width = row->width;
    struct tt_swiglu_backward_args pass = {.activation = row->activation,
                                           .dh_TF = t[DH].view,
                                           .gate_TF = t[GATE].view,
                                           .up_TF = t[UP].view,
                                           .dgate_TF = tt_tensor_cols(t[RESULT_APART].view, 0, width),
                                           .dup_TF = tt_tensor_cols(t[RESULT_APART].view, width, width),
                                           .h_TF = t[H_APART].view};
    test_ok(tt_swiglu_backward(device->stream, &pass));
    pass.dgate_TF = tt_tensor_cols(t[RESULT].view, 0, width);
    pass.dup_TF = tt_tensor_cols(t[RESULT].view, width, width);
    pass.h_TF = t[H].view;
    struct tt_swiglu_rows_backward_args rows = {
        .pass = pass, .codes_T2F = t[CODES].view, .scale_T = t[SCALE].view};
    test_ok(tt_swiglu_rows_backward(device->stream, &rows));
    struct tt_swiglu_rows_backward_args only = {
        .pass = pass, .codes_T2F = t[LONE_CODES].view, .scale_T = t[LONE_SCALE].view};
    only.pass.dgate_TF = only.pass.dup_TF = only.pass.h_TF = (tt_tensor){0};
    if (lone) test_ok(tt_swiglu_rows_backward(device->stream, &only));
}

struct direction {
    const struct rows_case *row;
    bool backward;
};

static void run(struct test_device *device, int threads, void *context)
{
    const struct direction *direction = context;
    const struct rows_case *row = direction->row;
    bool backward = direction->backward,
         lone = row->gap % 8 == 0 && tt_swiglu_rows_in_one_pass(device->device, row->width, row->dtype);
    struct test_tensor t[TENSORS];
    (void)threads;
    make_tensors(row, backward ? 2 : 1, t);
    test_array_to_device(device, t, TENSORS);
    (backward ? run_backward : run_forward)(device, row, t, lone);
    test_array_to_host(device, t, TENSORS);
    expect_equal("values", &t[RESULT], &t[RESULT_APART]);
    if (backward) expect_equal("h", &t[H], &t[H_APART]);
    double *values = test_tensor_values(&t[RESULT]);
    expect_rows("with values", values, &t[CODES], &t[SCALE]);
    if (lone) expect_rows("without values", values, &t[LONE_CODES], &t[LONE_SCALE]);
    free(values);
    test_array_check_gaps(names, t, TENSORS);
    test_array_free(t, TENSORS);
}

static void check_case(const void *row)
{
    for (int backward = 0; backward < 2; backward++) {
        struct direction direction = {row, backward != 0};
        test_on_each_isa(run, &direction);
    }
}

static void rows_are_those_of_two_passes(void **state)
{
    (void)state;
    TEST_CASES("swiglu_rows", cases, check_case);
    if (test_sizes_wanted()) TEST_CASES("swiglu_rows", gpu_cases, check_case);
}

/* Gate and up in FP8, of a forward pass; then what they stand for. */
struct coded_inputs {
    struct tt_quant_layout layout;
    struct test_tensor gate, up;
    struct tt_swiglu_coded coded;
};

/* The memory of a coded matrix as tensors of codes and scales; on the host. */
static void expect_coded(const char *what, const struct test_tensor *x, const struct tt_quant_layout *layout,
                         const struct test_tensor *packed)
{
    const struct tt_coded coded = {layout, packed->view};
    const struct test_tensor codes = {.view = tt_coded_codes(&coded)},
                             scale = {.view = tt_coded_scales(&coded)};
    double *values = test_tensor_values(x);
    expect_rows(what, values, &codes, &scale);
    free(values);
}

static void keep_in_forward(struct test_device *device, const struct rows_case *row, struct test_tensor *t,
                            struct coded_inputs *in, bool lone)
{
    struct tt_swiglu_rows_args args = {
        .pass = {.activation = row->activation,
                 .gate_TF = t[GATE].view,
                 .up_TF = t[UP].view,
                 .h_TF = t[H].view},
        .codes_TF = tt_tensor_2d(t[CODES].view.data, TT_F8_E4M3, row->rows, row->width),
        .scale_T = t[SCALE].view};
    in->coded = (struct tt_swiglu_coded){{&in->layout, in->gate.view}, {&in->layout, in->up.view}};
    args.kept = in->coded;
    if (lone) args.pass.h_TF = (tt_tensor){0};
    test_ok(tt_swiglu_rows(device->stream, &args));
}

static void decode(struct test_device *device, const struct tt_coded *coded, tt_tensor to)
{
    struct tt_dequantize_args args = {.layout = *coded->layout, .packed = coded->packed, .y_NK = to};
    test_ok(tt_dequantize(device->stream, &args));
}

/* t[GATE] and t[UP] become what was kept; the gradients from them, then from the codes. */
static void read_in_backward(struct test_device *device, const struct rows_case *row, struct test_tensor *t,
                             const struct coded_inputs *in, bool lone)
{
    int64_t width = row->width;
    decode(device, &in->coded.gate_TF, t[GATE].view);
    decode(device, &in->coded.up_TF, t[UP].view);
    run_backward(device, row, t, false);
    struct tt_swiglu_rows_backward_args args = {
        .pass = {.activation = row->activation,
                 .dh_TF = t[DH].view,
                 .dgate_TF = tt_tensor_cols(t[RESULT].view, 0, width),
                 .dup_TF = tt_tensor_cols(t[RESULT].view, width, width),
                 .h_TF = t[DH].view}, /* in its place */
        .codes_T2F = t[LONE_CODES].view,
        .scale_T = t[LONE_SCALE].view,
        .coded = in->coded};
    if (lone) args.pass.dgate_TF = args.pass.dup_TF = (tt_tensor){0};
    test_ok(tt_swiglu_rows_backward(device->stream, &args));
}

static void run_coded(struct test_device *device, int threads, void *context)
{
    const struct direction *direction = context;
    const struct rows_case *row = direction->row;
    bool lone = direction->backward && row->gap % 8 == 0 &&
                tt_swiglu_rows_in_one_pass(device->device, row->width, row->dtype);
    struct coded_inputs in;
    struct test_tensor t[TENSORS];
    (void)threads;
    if (row->rows == 0) return;
    make_tensors(row, 2, t);
    test_ok(
        tt_quant_layout_make(tt_quant_format_make(TT_QUANT_FP8, false), row->rows, row->width, &in.layout));
    in.gate = test_tensor_make(TT_U8, (int64_t)in.layout.bytes, TEST_UNUSED, TEST_UNUSED, 0);
    in.up = test_tensor_make(TT_U8, (int64_t)in.layout.bytes, TEST_UNUSED, TEST_UNUSED, 0);
    struct test_tensor gate = test_tensor_copy(&t[GATE]), up = test_tensor_copy(&t[UP]);
    test_array_to_device(device, t, TENSORS);
    TEST_TO_DEVICE(device, &in.gate, &in.up);
    keep_in_forward(device, row, t, &in, lone);
    read_in_backward(device, row, t, &in, lone);
    test_array_to_host(device, t, TENSORS);
    TEST_TO_HOST(device, &in.gate, &in.up);
    expect_coded("gate", &gate, &in.layout, &in.gate);
    expect_coded("up", &up, &in.layout, &in.up);
    if (!lone) expect_equal("values", &t[RESULT], &t[RESULT_APART]);
    expect_equal("h", &t[DH], &t[H_APART]);
    double *values = test_tensor_values(&t[RESULT_APART]);
    expect_rows("gradients of what was kept", values, &t[LONE_CODES], &t[LONE_SCALE]);
    free(values);
    test_tensor_check_gaps("gate in fp8", &in.gate);
    test_tensor_check_gaps("up in fp8", &in.up);
    test_array_check_gaps(names, t, TENSORS);
    test_array_free(t, TENSORS);
    test_tensor_free(&in.gate), test_tensor_free(&in.up);
    test_tensor_free(&gate), test_tensor_free(&up);
}

static void check_coded_case(const void *row)
{
    for (int lone = 0; lone < 2; lone++) {
        struct direction direction = {row, lone != 0};
        test_on_each_isa(run_coded, &direction);
    }
}

static void gate_and_up_may_be_kept_in_fp8(void **state)
{
    (void)state;
    TEST_CASES("swiglu_rows, gate and up in fp8", cases, check_coded_case);
    if (test_sizes_wanted()) TEST_CASES("swiglu_rows, gate and up in fp8", gpu_cases, check_coded_case);
}

/* Gradients in the place of gate and up, h in that of dh, as a backward pass calls it. */
static void gradients_may_replace_their_inputs(void **state)
{
    enum { ROWS = 9, WIDTH = 72 };
    const struct rows_case row = {ROWS, WIDTH, 0, TT_BF16, TT_ACTIVATION_SILU};
    struct test_tensor t[TENSORS], both = test_tensor_make(TT_BF16, ROWS, 2 * WIDTH, TEST_UNUSED, 0);
    struct test_device device;
    (void)state;
    make_tensors(&row, 2, t);
    for (int64_t r = 0; r < ROWS; r++) {
        uint16_t *to = (uint16_t *)both.view.data + r * 2 * WIDTH;
        memcpy(to, (const uint16_t *)t[GATE].view.data + r * WIDTH, WIDTH * 2);
        memcpy(to + WIDTH, (const uint16_t *)t[UP].view.data + r * WIDTH, WIDTH * 2);
    }
    test_device_open(&device, test_device_kind(), 2);
    test_array_to_device(&device, t, TENSORS);
    TEST_TO_DEVICE(&device, &both);
    run_backward(&device, &row, t, false);
    tt_tensor gate = tt_tensor_cols(both.view, 0, WIDTH), up = tt_tensor_cols(both.view, WIDTH, WIDTH);
    struct tt_swiglu_rows_backward_args args = {.pass = {.dh_TF = t[DH].view,
                                                         .gate_TF = gate,
                                                         .up_TF = up,
                                                         .dgate_TF = gate,
                                                         .dup_TF = up,
                                                         .h_TF = t[DH].view},
                                                .codes_T2F = t[LONE_CODES].view,
                                                .scale_T = t[LONE_SCALE].view};
    test_ok(tt_swiglu_rows_backward(device.stream, &args));
    test_array_to_host(&device, t, TENSORS);
    TEST_TO_HOST(&device, &both);
    expect_equal("gradients", &both, &t[RESULT]);
    expect_equal("h", &t[DH], &t[H]);
    double *values = test_tensor_values(&both);
    expect_rows("in place", values, &t[LONE_CODES], &t[LONE_SCALE]);
    free(values);
    test_device_close(&device);
    test_array_free(t, TENSORS);
    test_tensor_free(&both);
}

static void wrong_arguments_are_refused(void **state)
{
    const struct rows_case row = {4, 32, 0, TT_BF16, TT_ACTIVATION_SILU};
    struct test_tensor t[TENSORS];
    struct test_device device;
    (void)state;
    TEST_CPU_ONLY();
    make_tensors(&row, 2, t);
    test_device_open(&device, "cpu", 1);
    struct tt_swiglu_rows_args forward = {
        .pass = {.gate_TF = t[GATE].view, .up_TF = t[UP].view, .h_TF = t[H].view},
        .codes_TF = t[CODES].view,
        .scale_T = t[SCALE].view};
    test_refused(tt_swiglu_rows(device.stream, &forward), TT_ERR_INTERNAL, "codes");
    forward.codes_TF = tt_tensor_2d(t[CODES].view.data, TT_F8_E4M3, 4, 32);
    test_ok(tt_swiglu_rows(device.stream, &forward));
    forward.scale_T.dims[0] = 3;
    test_refused(tt_swiglu_rows(device.stream, &forward), TT_ERR_INTERNAL, "scale");
    forward.scale_T = t[SCALE].view;
    forward.pass.h_TF = (tt_tensor){0}; /* cpus make two passes */
    test_refused(tt_swiglu_rows(device.stream, &forward), TT_ERR_INTERNAL, "h");
    struct tt_swiglu_rows_backward_args backward = {.pass = {.dh_TF = t[DH].view,
                                                             .gate_TF = t[GATE].view,
                                                             .up_TF = t[UP].view,
                                                             .dgate_TF = t[H].view,
                                                             .dup_TF = t[H_APART].view},
                                                    .codes_T2F = t[CODES].view,
                                                    .scale_T = t[SCALE].view};
    test_refused(tt_swiglu_rows_backward(device.stream, &backward), TT_ERR_INTERNAL, "halves");
    backward.pass.dgate_TF = backward.pass.dup_TF = (tt_tensor){0};
    test_refused(tt_swiglu_rows_backward(device.stream, &backward), TT_ERR_INTERNAL, "dgate");
    struct tt_quant_layout layout;
    unsigned char memory[64] = {0};
    test_ok(tt_quant_layout_make(tt_quant_format_make(TT_QUANT_FP8, false), row.rows, 24, &layout));
    backward.coded.gate_TF = (struct tt_coded){&layout, tt_tensor_1d(memory, TT_U8, (int64_t)layout.bytes)};
    backward.pass.dgate_TF = tt_tensor_cols(t[RESULT].view, 0, 32);
    backward.pass.dup_TF = tt_tensor_cols(t[RESULT].view, 32, 32);
    test_refused(tt_swiglu_rows_backward(device.stream, &backward), TT_ERR_INTERNAL,
                 "codes of gate are [4, 24]");
    test_device_close(&device);
    test_array_free(t, TENSORS);
}

int main(void)
{
    int missing = test_device_missing();
    if (missing != 0) return missing;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_those_of_two_passes),
        cmocka_unit_test(gate_and_up_may_be_kept_in_fp8),
        cmocka_unit_test(gradients_may_replace_their_inputs),
        cmocka_unit_test(wrong_arguments_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
