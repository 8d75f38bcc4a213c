#include "backend/ops/conv1d.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ops/isa.h"

enum { SEQUENCES_MAX = 8 };

struct conv1d_case {
    int64_t lengths[SEQUENCES_MAX], columns, taps, gap;
    tt_dtype dtype, weight_dtype;
    bool bias, silu, in_gate, out_gate, dw;
};

static const struct conv1d_case cases[] = {
    {{1}, 1, 1, 0, TT_F32, TT_F32, false, false, false, false, true},
    {{9}, 8, 4, 0, TT_F32, TT_F32, false, true, false, false, true},
    {{1, 2, 3, 4, 5, 0, 1}, 33, 4, 3, TT_F32, TT_F32, true, true, false, false, true},
    {{1, 2, 3, 4, 5, 0, 1}, 16, 3, 0, TT_F32, TT_BF16, false, false, true, true, true},
    {{127, 2, 130},
     300,
     4,
     0,
     TT_F32,
     TT_F32,
     true,
     true,
     false,
     false,
     true}, /* borders beside those of blocks */
    {{127, 2, 130}, 300, 4, 5, TT_F32, TT_F32, true, true, true, true, false},
    {{300, 1}, 64, 4, 0, TT_BF16, TT_BF16, true, true, false, false, true},
    {{140}, 70, 3, 2, TT_BF16, TT_BF16, false, false, true, true, true},
    {{150}, 20, 7, 0, TT_F32, TT_F32, false, true, true, false, false},
    {{150}, 20, 8, 0, TT_BF16, TT_F32, true, true, false, true, true},
    {{0}, 16, 4, 0, TT_F32, TT_F32, true, true, false, false, true},
};

/* A row of Qwen3.5-9B, and one of LFM2. */
static const struct conv1d_case gpu_cases[] = {
    {{1000, 48}, 8192, 4, 0, TT_BF16, TT_BF16, false, true, false, false, true},
    {{700}, 2048, 3, 4096, TT_BF16, TT_BF16, false, false, true, true, true},
};

enum { X, IN, OUT, W, BIAS, DY, Y, DX, DIN, DOUT, DW, DBIAS, LINES };
static const char *const names[LINES] = {"x", "in_gate", "out_gate", "w",         "bias", "dy",
                                         "y", "dx",      "din_gate", "dout_gate", "dw",   "dbias"};

struct problem {
    const struct conv1d_case *row;
    int64_t rows, sequences;
    int32_t cu[SEQUENCES_MAX + 1];
    struct test_tensor tensors[LINES], first[LINES];
    double *exact[LINES], *simple[LINES];
};

static bool has(const struct conv1d_case *row, int line)
{
    if (line == IN || line == DIN) return row->in_gate;
    if (line == OUT || line == DOUT) return row->out_gate;
    if (line == BIAS) return row->bias;
    if (line == DBIAS) return row->bias && row->dw;
    return line != DW || row->dw;
}

/* `real` is the type of the arithmetic. */
#define DEFINE_REFERENCE(name, real)                                                                         \
    static void name(const struct problem *p, double *const v[LINES])                                        \
    {                                                                                                        \
        const struct conv1d_case *row = p->row;                                                              \
        int64_t C = row->columns, J = row->taps;                                                             \
        for (int64_t i = 0; i < p->rows * C; i++) v[DX][i] = v[DIN][i] = 0;                                  \
        for (int64_t b = 0; b < p->sequences; b++)                                                           \
            for (int64_t t = p->cu[b]; t < p->cu[b + 1]; t++)                                                \
                for (int64_t c = 0; c < C; c++) {                                                            \
                    real z = row->bias ? (real)v[BIAS][c] : 0;                                               \
                    for (int64_t j = 0; j < J; j++) {                                                        \
                        int64_t at = (t - J + 1 + j) * C + c;                                                \
                        if (t - J + 1 + j < p->cu[b]) continue;                                              \
                        z +=                                                                                 \
                            (real)v[W][c * J + j] * ((real)v[X][at] * (row->in_gate ? (real)v[IN][at] : 1)); \
                    }                                                                                        \
                    real share = 1 / (1 + (real)exp(-(double)z)), act = row->silu ? z * share : z;           \
                    real slope = row->silu ? share * (1 + z * (1 - share)) : 1, dy = (real)v[DY][t * C + c]; \
                    real gate = row->out_gate ? (real)v[OUT][t * C + c] : 1, dz = dy * gate * slope;         \
                    v[Y][t * C + c] = (double)(act * gate);                                                  \
                    v[DOUT][t * C + c] = (double)(dy * act);                                                 \
                    v[DBIAS][c] = (double)((real)v[DBIAS][c] + dz);                                          \
                    for (int64_t j = 0; j < J; j++) {                                                        \
                        int64_t at = (t - J + 1 + j) * C + c;                                                \
                        if (t - J + 1 + j < p->cu[b]) continue;                                              \
                        real du = dz * (real)v[W][c * J + j], in = row->in_gate ? (real)v[IN][at] : 1;       \
                        v[DX][at] = (double)((real)v[DX][at] + du * in);                                     \
                        v[DIN][at] = (double)((real)v[DIN][at] + du * (real)v[X][at]);                       \
                        v[DW][c * J + j] = (double)((real)v[DW][c * J + j] + dz * ((real)v[X][at] * in));    \
                    }                                                                                        \
                }                                                                                            \
    }

DEFINE_REFERENCE(oracle, double)
DEFINE_REFERENCE(plain, float)

static void make_problem(struct problem *p, const struct conv1d_case *row)
{
    memset(p, 0, sizeof *p);
    p->row = row;
    p->sequences = 1;
    for (int i = 0; i < SEQUENCES_MAX; i++)
        if (row->lengths[i] > 0) p->sequences = i + 1;
    for (int64_t b = 0; b < p->sequences; b++) p->cu[b + 1] = p->cu[b] + (int32_t)row->lengths[b];
    p->rows = p->cu[p->sequences];
    for (int i = 0; i < LINES; i++) {
        bool weight = i == W || i == BIAS, sum = i == DW || i == DBIAS;
        tt_dtype dtype = weight ? row->weight_dtype : sum ? TT_F32 : row->dtype;
        int64_t rows = weight || sum ? row->columns : p->rows,
                columns = i == W || i == DW ? row->taps : row->columns;
        p->tensors[i] = i == BIAS || i == DBIAS
                            ? test_tensor_random(dtype, rows, TEST_UNUSED, TEST_UNUSED, 0, (uint64_t)i + 1, 1)
                            : test_tensor_random(dtype, rows, columns, TEST_UNUSED,
                                                 weight || sum ? 0 : row->gap, (uint64_t)i + 1, 1);
        if (i >= Y && i < DW) test_tensor_poison(&p->tensors[i]);
        p->exact[i] = test_tensor_values(&p->tensors[i]);
        p->simple[i] = test_tensor_values(&p->tensors[i]);
    }
}

static void free_problem(struct problem *p)
{
    test_array_free(p->tensors, LINES);
    test_array_free(p->first, LINES);
    test_free_values(p->exact, LINES);
    test_free_values(p->simple, LINES);
}

static tt_tensor view(const struct problem *p, const struct test_tensor *t, int line)
{
    return has(p->row, line) ? t[line].view : (tt_tensor){0};
}

/* Rows first .. of the problem; `states` may be NULL, then backward runs too. */
static void run_op(struct test_device *device, const struct problem *p, const struct test_tensor *t,
                   const struct tt_sequences *sequences, int64_t first, const struct tt_states *states)
{
    struct test_tensor cu = test_tensor_make(TT_I32, sequences->count + 1, TEST_UNUSED, TEST_UNUSED, 0);
    int64_t count = sequences->cu[sequences->count];
    memcpy(cu.view.data, sequences->cu, (size_t)(sequences->count + 1) * sizeof(int32_t));
    TEST_TO_DEVICE(device, &cu);
    struct tt_conv1d_backward_args args = {.forward = {.sequences = *sequences,
                                                       .x_TC = view(p, t, X),
                                                       .in_gate_TC = view(p, t, IN),
                                                       .out_gate_TC = view(p, t, OUT),
                                                       .w_CJ = t[W].view,
                                                       .bias_C = view(p, t, BIAS),
                                                       .silu = p->row->silu,
                                                       .y_TC = view(p, t, Y)},
                                           .dy_TC = view(p, t, DY),
                                           .dx_TC = view(p, t, DX),
                                           .din_gate_TC = view(p, t, DIN),
                                           .dout_gate_TC = view(p, t, DOUT),
                                           .dw_CJ = view(p, t, DW),
                                           .dbias_C = view(p, t, DBIAS)};
    tt_tensor *const rows[] = {&args.forward.x_TC,
                               &args.forward.in_gate_TC,
                               &args.forward.out_gate_TC,
                               &args.forward.y_TC,
                               &args.dy_TC,
                               &args.dx_TC,
                               &args.din_gate_TC,
                               &args.dout_gate_TC};
    for (int i = 0; i < 8; i++)
        if (!tt_tensor_is_empty(*rows[i])) *rows[i] = tt_tensor_rows(*rows[i], first, count);
    args.forward.sequences.device_cu = cu.view;
    if (states != NULL) args.forward.states = *states;
    test_ok(tt_conv1d_forward(device->stream, &args.forward));
    if (states == NULL) test_ok(tt_conv1d_backward(device->stream, &args));
    test_ok(tt_stream_synchronize(device->stream));
    test_tensor_free(&cu);
}

static void run_all(struct test_device *device, const struct problem *p, const struct test_tensor *t)
{
    const struct tt_sequences all = {.cu = p->cu, .count = p->sequences};
    run_op(device, p, t, &all, 0, NULL);
}

static void check_run(struct test_device *device, int threads, void *context)
{
    struct problem *p = context;
    struct test_tensor tensors[LINES];
    for (int i = 0; i < LINES; i++) tensors[i] = test_tensor_copy(&p->tensors[i]);
    test_array_to_device(device, tensors, LINES);
    run_all(device, p, tensors);
    test_array_to_host(device, tensors, LINES);
    for (int i = 0; i < LINES; i++) {
        if (i >= Y && has(p->row, i))
            test_check_result(names[i], tensors[i], threads, p->exact[i], p->simple[i], i >= DX ? 3 : 2,
                              &p->first[i]);
        else
            test_check_untouched(names[i], &tensors[i], &p->tensors[i]);
    }
}

static void check_case(const void *row)
{
    struct problem p;
    make_problem(&p, row);
    oracle(&p, p.exact);
    plain(&p, p.simple);
    for (int i = Y; i < LINES; i++) {
        int64_t count = tt_tensor_count(p.tensors[i].view);
        for (int64_t j = 0; j < count; j++)
            p.simple[i][j] = (double)test_round((float)p.simple[i][j], p.tensors[i].view.dtype);
    }
    test_on_each_isa(check_run, &p);
    free_problem(&p);
}

static void close_to_the_oracle(void **state)
{
    (void)state;
    TEST_CASES("conv1d", cases, check_case);
}

static void sizes_of_real_models(void **state)
{
    (void)state;
    TEST_SIZES_ONLY();
    TEST_CASES("conv1d", gpu_cases, check_case);
}

static double weighted_output(void *context)
{
    struct problem *p = context;
    oracle(p, p->exact);
    double sum = 0;
    for (int64_t i = 0; i < p->rows * p->row->columns; i++) sum += p->exact[Y][i] * p->exact[DY][i];
    return sum;
}

static void oracle_agrees_with_finite_differences(void **state)
{
    (void)state;
    TEST_CPU_ONLY();
    const struct conv1d_case row = {{3, 1, 5}, 2, 4, 0, TT_F32, TT_F32, true, true, true, true, true};
    struct problem p;
    make_problem(&p, &row);
    static const int pairs[][2] = {{DX, X}, {DIN, IN}, {DOUT, OUT}, {DW, W}, {DBIAS, BIAS}};
    for (int i = 0; i < 5; i++) {
        int64_t count = tt_tensor_count(p.tensors[pairs[i][1]].view);
        memset(p.exact[DW], 0, 8 * sizeof(double));
        memset(p.exact[DBIAS], 0, 2 * sizeof(double));
        weighted_output(&p);
        double *gradient = test_doubles(count);
        memcpy(gradient, p.exact[pairs[i][0]], (size_t)count * sizeof *gradient);
        test_gradient(names[pairs[i][0]], weighted_output, &p, p.exact[pairs[i][1]], gradient, count);
        free(gradient);
    }
    free_problem(&p);
}

/* Rows of a packed call have the bits that each sequence has alone. */
static void packed_is_each_alone(void **state)
{
    (void)state;
    const struct conv1d_case row = {
        {70, 1, 2, 130, 3}, 40, 4, 3, TT_F32, TT_F32, true, true, true, true, false};
    struct problem p;
    struct test_device device;
    make_problem(&p, &row);
    test_device_open(&device, test_device_kind(), 2);
    struct test_tensor packed[LINES], alone[LINES];
    for (int i = 0; i < LINES; i++) {
        packed[i] = test_tensor_copy(&p.tensors[i]);
        alone[i] = test_tensor_copy(&p.tensors[i]);
    }
    test_array_to_device(&device, packed, LINES);
    test_array_to_device(&device, alone, LINES);
    run_all(&device, &p, packed);
    for (int64_t b = 0; b < p.sequences; b++) {
        const int32_t cu[2] = {0, (int32_t)row.lengths[b]};
        run_op(&device, &p, alone, &(struct tt_sequences){.cu = cu, .count = 1}, p.cu[b], NULL);
    }
    test_array_to_host(&device, packed, LINES);
    test_array_to_host(&device, alone, LINES);
    for (int i = Y; i < DW; i++) test_tensor_equal(names[i], &alone[i], &packed[i]);
    test_device_close(&device);
    test_array_free(packed, LINES);
    test_array_free(alone, LINES);
    free_problem(&p);
}

/* A sequence in parts of any length has the bits of the whole one. Its state is in the place of the one before, or in
 * another. */
static void states_continue_a_sequence(void **state)
{
    (void)state;
    static const struct conv1d_case rows[] = {
        {{40}, 20, 4, 0, TT_F32, TT_F32, true, true, false, false, false},
        {{40}, 20, 3, 2, TT_BF16, TT_BF16, false, false, true, true, false},
        {{40}, 20, 1, 0, TT_F32, TT_F32, true, true, false, false, false},
    };
    static const int64_t lengths[][3] = {{1, 1, 1}, {2, 1, 5}, {0, 3, 4}, {39, 1, 1}};
    for (int r = 0; r < 3; r++)
        for (int l = 0; l < 4; l++) {
            struct problem p;
            struct test_device device;
            make_problem(&p, &rows[r]);
            test_device_open(&device, test_device_kind(), 2);
            struct test_tensor whole[LINES], parts[LINES];
            for (int i = 0; i < LINES; i++) {
                whole[i] = test_tensor_copy(&p.tensors[i]);
                parts[i] = test_tensor_copy(&p.tensors[i]);
            }
            struct test_tensor pool = test_tensor_random(TT_F32, 3, rows[r].taps - 1, 20, 0, 9, 1);
            test_array_to_device(&device, whole, LINES);
            test_array_to_device(&device, parts, LINES);
            TEST_TO_DEVICE(&device, &pool);
            run_all(&device, &p, whole);
            int64_t at = 0;
            for (int i = 0; at < p.rows; i++) {
                int64_t length = lengths[l][i % 3] < p.rows - at ? lengths[l][i % 3] : p.rows - at;
                const int32_t cu[2] = {0, (int32_t)length};
                struct test_tensor from = test_tensor_make(TT_I32, 1, TEST_UNUSED, TEST_UNUSED, 0);
                struct test_tensor to = test_tensor_make(TT_I32, 1, TEST_UNUSED, TEST_UNUSED, 0);
                test_tensor_set(&from, (const double[]){i == 0 ? -1 : (double)(i / 2 % 3)});
                test_tensor_set(&to, (const double[]){(double)((i + 1) / 2 % 3)});
                TEST_TO_DEVICE(&device, &from, &to);
                run_op(&device, &p, parts, &(struct tt_sequences){.cu = cu, .count = 1}, at,
                       &(struct tt_states){.pool = pool.view, .from_B = from.view, .to_B = to.view});
                TEST_TO_HOST(&device, &from, &to);
                test_tensor_free(&from);
                test_tensor_free(&to);
                at += length;
            }
            test_array_to_host(&device, whole, LINES);
            test_array_to_host(&device, parts, LINES);
            TEST_TO_HOST(&device, &pool);
            test_tensor_equal("y", &parts[Y], &whole[Y]);
            test_tensor_check_gaps("pool", &pool);
            test_device_close(&device);
            test_array_free(whole, LINES);
            test_array_free(parts, LINES);
            test_tensor_free(&pool);
            free_problem(&p);
        }
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
    struct test_device device;
    static float memory[8][256];
    static const int32_t cu[] = {0, 2, 4};
    test_device_open(&device, "cpu", 1);
    tt_tensor x = tt_tensor_2d(memory[0], TT_F32, 4, 16), gate = tt_tensor_2d(memory[1], TT_F32, 4, 16);
    struct tt_conv1d_forward_args good = {.sequences = {.cu = cu, .count = 2},
                                          .x_TC = x,
                                          .w_CJ = tt_tensor_2d(memory[2], TT_F32, 16, 4),
                                          .y_TC = tt_tensor_2d(memory[3], TT_F32, 4, 16)};
    test_ok(tt_conv1d_forward(device.stream, &good));
    REFUSE(tt_conv1d_forward, good, args.w_CJ = tt_tensor_2d(memory[2], TT_F32, 16, 9),
           "a kernel of 9 columns is not in 1..8");
    REFUSE(tt_conv1d_forward, good, args.w_CJ = tt_tensor_2d(memory[2], TT_F32, 15, 4), "conv1d_forward: w");
    REFUSE(tt_conv1d_forward, good, args.bias_C = tt_tensor_1d(memory[4], TT_F32, 15),
           "conv1d_forward: bias");
    REFUSE(tt_conv1d_forward, good, args.y_TC = x, "overlap in memory");
    REFUSE(tt_conv1d_forward, good, args.states.pool = tt_tensor_3d(memory[4], TT_F32, 2, 2, 16),
           "conv1d_forward: states");
    REFUSE(tt_conv1d_forward, good, args.states.pool = tt_tensor_3d(memory[4], TT_F32, 2, 3, 16),
           "conv1d_forward: from");
    struct tt_conv1d_backward_args backward = {
        .forward = good, .dy_TC = good.y_TC, .dx_TC = tt_tensor_2d(memory[4], TT_F32, 4, 16)};
    test_ok(tt_conv1d_backward(device.stream, &backward));
    REFUSE(tt_conv1d_backward, backward, args.forward.in_gate_TC = gate,
           "din_gate is given without its gate, or the gate without it");
    REFUSE(tt_conv1d_backward, backward, args.dx_TC = args.dy_TC, "overlap in memory");
    REFUSE(tt_conv1d_backward, backward, args.forward.states.pool = gate,
           "conv1d_backward: states have no gradient");
    test_device_close(&device);
}

int main(void)
{
    int missing = test_device_missing();
    if (missing != 0) return missing;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(oracle_agrees_with_finite_differences),
        cmocka_unit_test(close_to_the_oracle),
        cmocka_unit_test(sizes_of_real_models),
        cmocka_unit_test(packed_is_each_alone),
        cmocka_unit_test(states_continue_a_sequence),
        cmocka_unit_test(hostile_arguments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
