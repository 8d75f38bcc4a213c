/* backend/ops/expert_rows.h: the order of rows by its definition, sums and products of rows against fp64. */
#include "backend/ops/expert_rows.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ops/isa.h"

struct rows_case {
    int64_t tokens, slots, experts, columns, gap;
    tt_dtype dtype;
    bool unordered, no_addend, no_weights, in_place;
    /* ids are of so many experts, of which those from `first` on have rows; 0: all have */
    int64_t all, first;
    bool wide; /* y is f32 */
};

static const struct rows_case cases[] = {
    {50, 4, 8, 64, 0, TT_F32, .all = 0},
    {33, 8, 128, 33, 5, TT_BF16, .in_place = true},
    {7, 1, 1, 20, 0, TT_F32, .no_addend = true},
    {40, 1, 1, 48, 2, TT_BF16, .unordered = true},
    {40, 2, 3, 17, 0, TT_F32, .no_addend = true, .no_weights = true},
    {0, 2, 4, 16, 0, TT_F32, .all = 0},
    {50, 4, 3, 64, 0, TT_F32, .all = 8, .first = 2},
    {33, 3, 4, 40, 5, TT_BF16, .no_addend = true, .all = 16, .first = 12, .wide = true},
    {21, 2, 2, 17, 0, TT_BF16, .no_addend = true, .no_weights = true, .all = 4, .wide = true},
    {30, 1, 1, 16, 0, TT_F32, .all = 900, .first = 899}, /* none has a row */
};

static const struct rows_case gpu_cases[] = {
    {4096, 8, 128, 2048, 0, TT_BF16, .all = 0},
    {3001, 4, 32, 2880, 0, TT_BF16, .in_place = true},
    {512, 8, 1024, 16, 0, TT_BF16, .all = 0}, /* the most slots of one block */
    {513, 8, 1024, 16, 0, TT_BF16, .all = 0},
    {4096, 8, 64, 2048, 0, TT_BF16, .no_addend = true, .all = 128, .first = 64, .wide = true},
};

enum { X, Y, G, ADDEND, WEIGHTS, DWEIGHTS, IDS, PLACE, SLOT, BORDER, SPREAD, LINES };
static const char *const names[LINES] = {"x",   "y",     "g",    "addend", "weights", "dweights",
                                         "ids", "place", "slot", "border", "spread"};

struct problem {
    const struct rows_case *row;
    struct test_tensor tensors[LINES], first[LINES];
    double *exact[LINES], *simple[LINES];
};

static void make_problem(struct problem *p, const struct rows_case *row)
{
    int64_t T = row->tokens, M = T * row->slots, D = row->columns, none = TEST_UNUSED;
    memset(p, 0, sizeof *p);
    p->row = row;
    for (int i = 0; i < LINES; i++) {
        uint64_t seed = (uint64_t)i + 1;
        if (i == X || i == G || i == SPREAD)
            p->tensors[i] = test_tensor_random(row->dtype, M, D, none, row->gap, seed, 1);
        else if (i == Y || i == ADDEND)
            p->tensors[i] =
                test_tensor_random(i == Y && row->wide ? TT_F32 : row->dtype, T, D, none, row->gap, seed, 1);
        else if (i == WEIGHTS || i == DWEIGHTS)
            p->tensors[i] = test_tensor_random(TT_F32, T, row->slots, none, 0, seed, 1);
        else if (i == IDS || i == PLACE)
            p->tensors[i] = test_tensor_make(TT_I32, T, row->slots, none, 0);
        else
            p->tensors[i] = test_tensor_make(TT_I32, i == SLOT ? M : row->experts + 1, none, none, 0);
    }
    test_tensor_random_index(&p->tensors[IDS], 9, row->all > 0 ? row->all : row->experts);
    for (int i = 0; i < LINES; i++) {
        bool output = i == SPREAD || i == DWEIGHTS || i == PLACE || i == SLOT || i == BORDER;
        if (row->all > 0 && (i == SPREAD || i == DWEIGHTS)) output = false; /* parts of them stay */
        if (output || (i == Y && !row->in_place)) test_tensor_poison(&p->tensors[i]);
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

/* The order from its definition: of expert e the slots in order, behind those of the experts before. */
static void order(const struct problem *p, double *const v[LINES])
{
    int64_t M = p->row->tokens * p->row->slots, at = 0;
    v[BORDER][0] = 0;
    for (int64_t i = 0; i < M && p->row->all > 0; i++) v[PLACE][i] = v[SLOT][i] = -1;
    for (int64_t e = 0; e < p->row->experts; e++) {
        for (int64_t i = 0; i < M; i++) {
            if (v[IDS][i] != (double)(p->row->first + e)) continue;
            v[PLACE][i] = (double)at;
            v[SLOT][at++] = (double)i;
        }
        v[BORDER][e + 1] = (double)at;
    }
}

#define DEFINE_REFERENCE(name, real, stored)                                                                 \
    static void name(const struct problem *p, double *const v[LINES])                                        \
    {                                                                                                        \
        const struct rows_case *row = p->row;                                                                \
        int64_t T = row->tokens, S = row->slots, D = row->columns;                                           \
        order(p, v);                                                                                         \
        for (int64_t m = 0; m < T * S; m++) {                                                                \
            int64_t slot = row->unordered ? m : (int64_t)v[SLOT][m];                                         \
            real dot = 0;                                                                                    \
            if (slot < 0) continue;                                                                          \
            for (int64_t d = 0; d < D; d++) {                                                                \
                real g = (real)v[G][m * D + d];                                                              \
                v[SPREAD][m * D + d] = v[ADDEND][(int64_t)v[SLOT][m] / S * D + d];                           \
                dot += g * (real)v[X][m * D + d];                                                            \
                v[G][m * D + d] = stored(g * (real)v[WEIGHTS][slot]);                                        \
            }                                                                                                \
            v[DWEIGHTS][slot] = (double)dot;                                                                 \
        }                                                                                                    \
        for (int64_t t = 0; t < T; t++)                                                                      \
            for (int64_t d = 0; d < D; d++) {                                                                \
                real sum = row->no_addend ? 0 : (real)v[ADDEND][t * D + d];                                  \
                for (int64_t i = t * S; i < (t + 1) * S; i++) {                                              \
                    int64_t m = row->unordered ? i : (int64_t)v[PLACE][i];                                   \
                    if (m < 0) continue;                                                                     \
                    sum += (row->no_weights ? 1 : (real)v[WEIGHTS][i]) * (real)v[X][m * D + d];              \
                }                                                                                            \
                v[Y][t * D + d] = row->wide ? (double)sum : stored(sum);                                     \
            }                                                                                                \
    }

#define AS_IT_IS(x) ((double)(x))
#define ROUNDED(x) ((double)test_round((float)(x), row->dtype))
DEFINE_REFERENCE(oracle, double, AS_IT_IS)
DEFINE_REFERENCE(plain, float, ROUNDED)

static void run_op(struct test_device *device, const struct rows_case *row, struct test_tensor *t)
{
    const tt_tensor none = {0};
    struct tt_order_rows_args order_args = {t[IDS].view,    t[PLACE].view, t[SLOT].view,
                                            t[BORDER].view, row->all > 0,  row->first};
    struct tt_spread_rows_args spread = {
        .x_TD = t[ADDEND].view, .slot_M = t[SLOT].view, .y_MD = t[SPREAD].view};
    struct tt_combine_rows_args combine = {.x_MD = t[X].view,
                                           .weights_TS = row->no_weights ? none : t[WEIGHTS].view,
                                           .place_TS = row->unordered ? none : t[PLACE].view,
                                           .addend_TD = row->no_addend ? none : t[ADDEND].view,
                                           .y_TD = row->in_place ? t[ADDEND].view : t[Y].view};
    struct tt_weigh_rows_args weigh = {.x_MD = t[X].view,
                                       .g_MD = t[G].view,
                                       .weights_TS = t[WEIGHTS].view,
                                       .slot_M = row->unordered ? none : t[SLOT].view,
                                       .dweights_TS = t[DWEIGHTS].view};
    test_ok(tt_order_rows(device->stream, &order_args));
    test_ok(tt_spread_rows(device->stream, &spread));
    test_ok(tt_combine_rows(device->stream, &combine));
    test_ok(tt_weigh_rows(device->stream, &weigh));
}

static void check_run(struct test_device *device, int threads, void *context)
{
    struct problem *p = context;
    struct test_tensor t[LINES];
    for (int i = 0; i < LINES; i++) t[i] = test_tensor_copy(&p->tensors[i]);
    test_array_to_device(device, t, LINES);
    run_op(device, p->row, t);
    test_array_to_host(device, t, LINES);
    for (int i = 0; i < LINES; i++) {
        int line = p->row->in_place && i == ADDEND ? Y : i; /* y is there */
        bool output =
            line == Y || i == G || i == DWEIGHTS || i == PLACE || i == SLOT || i == BORDER || i == SPREAD;
        if (output && !(p->row->in_place && i == Y))
            test_check_result(names[line], t[i], threads, p->exact[line], p->simple[line], 2, &p->first[i]);
        else
            test_check_untouched(names[i], &t[i], &p->tensors[i]);
    }
}

static void check_case(const void *row)
{
    struct problem p;
    make_problem(&p, row);
    oracle(&p, p.exact);
    plain(&p, p.simple);
    test_on_each_isa(check_run, &p);
    free_problem(&p);
}

static void close_to_the_oracle(void **state)
{
    (void)state;
    TEST_CASES("expert rows", cases, check_case);
}

static void sizes_of_real_models(void **state)
{
    (void)state;
    TEST_SIZES_ONLY();
    TEST_CASES("expert rows", gpu_cases, check_case);
}

static void hostile_arguments(void **state)
{
    (void)state;
    TEST_CPU_ONLY();
    static float memory[4][64];
    static int32_t numbers[4][16] = {{0, 1, 2, 0}};
    struct test_device device;
    test_device_open(&device, "cpu", 1);
    struct tt_order_rows_args good = {.ids_TS = tt_tensor_2d(numbers[0], TT_I32, 2, 2),
                                      .place_TS = tt_tensor_2d(numbers[1], TT_I32, 2, 2),
                                      .slot_M = tt_tensor_1d(numbers[2], TT_I32, 4),
                                      .border_X1 = tt_tensor_1d(numbers[3], TT_I32, 4)};
    struct tt_order_rows_args few = good, none = good, many = good, behind = good;
    behind.first = 1;
    test_refused(tt_order_rows(device.stream, &behind), TT_ERR_INTERNAL, "the first expert is 1");
    test_ok(tt_order_rows(device.stream, &good));
    few.border_X1 = tt_tensor_1d(numbers[3], TT_I32, 3);
    test_refused(tt_order_rows(device.stream, &few), TT_ERR_INTERNAL,
                 "slot 2 has expert 2, which is outside 0..1");
    none.border_X1 = tt_tensor_1d(numbers[3], TT_I32, 1);
    test_refused(tt_order_rows(device.stream, &none), TT_ERR_INTERNAL, "border is of no expert");
    many.border_X1 = tt_tensor_1d(numbers[3], TT_I32, 1026);
    test_refused(tt_order_rows(device.stream, &many), TT_ERR_INTERNAL, "1025 experts");
    struct tt_spread_rows_args spread = {.x_TD = tt_tensor_2d(memory[0], TT_F32, 3, 4),
                                         .slot_M = good.slot_M,
                                         .y_MD = tt_tensor_2d(memory[1], TT_F32, 4, 4)};
    test_refused(tt_spread_rows(device.stream, &spread), TT_ERR_INTERNAL, "4 rows are not slots of 3 tokens");
    struct tt_spread_rows_args codes = {.x_TD = tt_tensor_2d(memory[0], TT_F8_E4M3, 2, 24),
                                        .slot_M = good.slot_M,
                                        .y_MD = tt_tensor_2d(memory[1], TT_F8_E4M3, 4, 24)};
    test_refused(tt_spread_rows(device.stream, &codes), TT_ERR_INTERNAL, "24 codes of a row");
    struct tt_combine_rows_args combine = {.x_MD = tt_tensor_2d(memory[0], TT_F32, 3, 4),
                                           .weights_TS = tt_tensor_2d(memory[2], TT_F32, 2, 2),
                                           .y_TD = tt_tensor_2d(memory[1], TT_F32, 2, 4)};
    test_refused(tt_combine_rows(device.stream, &combine), TT_ERR_INTERNAL, "x has 3 rows for 4 slots");
    struct tt_weigh_rows_args weigh = {.g_MD = tt_tensor_2d(memory[0], TT_F32, 4, 4),
                                       .weights_TS = tt_tensor_2d(memory[1], TT_F32, 2, 2),
                                       .dweights_TS = tt_tensor_2d(memory[2], TT_F32, 2, 2)};
    test_refused(tt_weigh_rows(device.stream, &weigh), TT_ERR_INTERNAL, "dweights without x");
    test_device_close(&device);
}

/* Codes go with their rows, byte for byte. */
static void run_codes(struct test_device *device, int threads, void *context)
{
    enum { TOKENS = 37, SLOTS = 3, COLUMNS = 144, ROWS = TOKENS * SLOTS };
    struct test_tensor x = test_tensor_make(TT_F8_E4M3, TOKENS, COLUMNS, TEST_UNUSED, 0),
                       y = test_tensor_make(TT_F8_E4M3, ROWS, COLUMNS, TEST_UNUSED, 0),
                       slot = test_tensor_make(TT_I32, ROWS, TEST_UNUSED, TEST_UNUSED, 0),
                       scale = test_tensor_random(TT_F32, TOKENS, TEST_UNUSED, TEST_UNUSED, 0, 1, 1),
                       y_scale = test_tensor_make(TT_F32, ROWS, TEST_UNUSED, TEST_UNUSED, 0);
    (void)threads, (void)context;
    uint8_t *from = x.view.data;
    for (int i = 0; i < TOKENS * COLUMNS; i++) from[i] = (uint8_t)(i * 167 >> 2); /* of all 256 bytes */
    for (int m = 0; m < ROWS; m++) ((int32_t *)slot.view.data)[m] = m * 58 % ROWS;
    test_tensor_poison(&y);
    TEST_TO_DEVICE(device, &x, &y, &slot, &scale, &y_scale);
    struct tt_spread_rows_args args = {x.view, slot.view, y.view, scale.view, y_scale.view};
    test_ok(tt_spread_rows(device->stream, &args));
    TEST_TO_HOST(device, &x, &y, &slot, &scale, &y_scale);
    for (int m = 0; m < ROWS; m++) {
        int token = ((const int32_t *)slot.view.data)[m] / SLOTS;
        assert_memory_equal((const uint8_t *)y.view.data + m * COLUMNS,
                            (const uint8_t *)x.view.data + token * COLUMNS, COLUMNS);
        assert_memory_equal((const float *)y_scale.view.data + m, (const float *)scale.view.data + token,
                            sizeof(float));
    }
    test_tensor_check_gaps("y", &y);
    test_tensor_free(&x), test_tensor_free(&y), test_tensor_free(&slot), test_tensor_free(&scale),
        test_tensor_free(&y_scale);
}

static void codes_are_spread(void **state)
{
    (void)state;
    test_on_each_isa(run_codes, NULL);
}

int main(void)
{
    int missing = test_device_missing();
    if (missing != 0) return missing;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(close_to_the_oracle),
        cmocka_unit_test(sizes_of_real_models),
        cmocka_unit_test(codes_are_spread),
        cmocka_unit_test(hostile_arguments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
