/* backend/ops/ready_heads.h: the results of norms, rotations and copies one after the other, whose tests are their
 * own. */
#include "backend/ops/ready_heads.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend/ops/attention.h"
#include "backend/ops/embedding.h"
#include "backend/ops/rmsnorm.h"
#include "ops/isa.h"

struct ready_case {
    int64_t tokens, heads, kv_heads, width, rotated; /* rotated 0: no rotation */
    tt_dtype dtype;
    bool norms, weights, pairs, gated; /* gated: other columns stand between the heads of q */
};

static const struct ready_case cases[] = {
    {1, 4, 2, 16, 16, TT_F32, true, true, false, false},
    {5, 8, 2, 32, 32, TT_BF16, true, true, false, false},
    {9, 3, 1, 24, 8, TT_F32, true, false, true, false},
    {64, 6, 6, 64, 64, TT_BF16, false, false, false, false},
    {7, 2, 2, 48, 0, TT_BF16, true, true, false, false},
    {3, 2, 1, 20, 20, TT_F32, false, false, true, true},
    {70, 4, 2, 128, 64, TT_BF16, true, true, false, true},
    {2, 2, 1, 320, 320, TT_F32, true, true, false, false},
    {33, 32, 4, 128, 128, TT_BF16, true, true, false, false},
};

enum { POSITIONS = 50, Q, K, V, K_CACHE, V_CACHE, RESULTS };
static const char *const names[RESULTS] = {
    [Q] = "q", [K] = "k", [V] = "v", [K_CACHE] = "cache of k", [V_CACHE] = "cache of v"};

struct problem {
    const struct ready_case *row;
    struct test_tensor qkv, k_cache, v_cache, positions, rows, cos, sin, q_weight, k_weight;
};

struct operands {
    struct test_tensor qkv, k_cache, v_cache;
    tt_tensor views[RESULTS];
};

static int64_t rows_of_cache(const struct ready_case *row)
{
    return 2 * row->tokens + 3;
}

static void make_problem(struct problem *p, const struct ready_case *row)
{
    int64_t none = TEST_UNUSED, t = row->tokens, half = row->rotated > 0 ? row->rotated / 2 : 1;
    int64_t q_columns = row->heads * row->width * (row->gated ? 2 : 1), kv = row->kv_heads * row->width;
    p->row = row;
    p->qkv = test_tensor_random(row->dtype, t, q_columns + 2 * kv, none, 0, 1, 1);
    p->k_cache = test_tensor_random(row->dtype, rows_of_cache(row), kv, none, 0, 2, 1);
    p->v_cache = test_tensor_random(row->dtype, rows_of_cache(row), kv, none, 0, 3, 1);
    p->positions = test_tensor_make(TT_I32, t, none, none, 0);
    p->rows = test_tensor_make(TT_I32, t, none, none, 0);
    test_tensor_random_index(&p->positions, 4, POSITIONS);
    for (int64_t i = 0; i < t; i++) ((int32_t *)p->rows.view.data)[i] = (int32_t)(2 * i + i % 2);
    p->cos = test_tensor_random(TT_F32, POSITIONS, half, none, 0, 5, 1);
    p->sin = test_tensor_random(TT_F32, POSITIONS, half, none, 0, 6, 1);
    p->q_weight = test_tensor_random(row->dtype, row->width, none, none, 0, 7, 1);
    p->k_weight = test_tensor_random(TT_F32, row->width, none, none, 0, 8, 1);
}

static tt_tensor heads_of(tt_tensor x_TC, int64_t first, int64_t heads, int64_t width, int64_t apart)
{
    tt_tensor cols = tt_tensor_heads(tt_tensor_cols(x_TC, first, heads * apart), heads);
    cols.dims[2] = width;
    return cols;
}

static void open_operands(struct test_device *device, const struct problem *p, struct operands *o)
{
    const struct ready_case *row = p->row;
    int64_t apart = row->width * (row->gated ? 2 : 1), first = row->heads * apart;
    *o = (struct operands){
        test_tensor_copy(&p->qkv), test_tensor_copy(&p->k_cache), test_tensor_copy(&p->v_cache), {{0}}};
    TEST_TO_DEVICE(device, &o->qkv, &o->k_cache, &o->v_cache);
    o->views[Q] = heads_of(o->qkv.view, 0, row->heads, row->width, apart);
    o->views[K] = heads_of(o->qkv.view, first, row->kv_heads, row->width, row->width);
    o->views[V] =
        heads_of(o->qkv.view, first + row->kv_heads * row->width, row->kv_heads, row->width, row->width);
}

static struct tt_head_norm norm_of(const struct problem *p, tt_tensor weight)
{
    return (struct tt_head_norm){
        .is = p->row->norms, .weight_E = p->row->weights ? weight : (tt_tensor){0}, .offset = 1, .eps = 1e-5};
}

struct tables {
    struct test_tensor positions, rows, cos, sin, q_weight, k_weight;
};

static void run_at_once(struct test_device *device, const struct problem *p, const struct tables *t,
                        struct operands *o)
{
    const tt_tensor none = {0};
    bool turns = p->row->rotated > 0;
    struct tt_ready_heads_args args = {.q_THE = o->views[Q],
                                       .k_TKE = o->views[K],
                                       .v_TKE = o->views[V],
                                       .q_norm = norm_of(p, t->q_weight.view),
                                       .k_norm = norm_of(p, t->k_weight.view),
                                       .positions_T = turns ? t->positions.view : none,
                                       .cos_PE = turns ? t->cos.view : none,
                                       .sin_PE = turns ? t->sin.view : none,
                                       .pairs = p->row->pairs,
                                       .rows_T = t->rows.view,
                                       .k_cache_RC = o->k_cache.view,
                                       .v_cache_RC = o->v_cache.view};
    test_ok(tt_ready_heads(device->stream, &args));
}

static void ready_one(struct test_device *device, const struct problem *p, const struct tables *t,
                      tt_tensor x_THE, tt_tensor weight)
{
    const struct ready_case *row = p->row;
    struct tt_rmsnorm_forward_args norm = {.x_ND = x_THE,
                                           .weight_D = row->weights ? weight : (tt_tensor){0},
                                           .offset = 1,
                                           .eps = 1e-5,
                                           .y_ND = x_THE};
    if (row->norms) test_ok(tt_rmsnorm_forward(device->stream, &norm));
    if (row->rotated == 0) return;
    x_THE.dims[2] = row->rotated;
    struct tt_rope_args rope = {.x_THE = x_THE,
                                .positions_T = t->positions.view,
                                .cos_PE = t->cos.view,
                                .sin_PE = t->sin.view,
                                .pairs = row->pairs};
    test_ok(tt_rope(device->stream, &rope));
}

static void store_one_tensor(struct test_device *device, const struct tables *t, tt_tensor x_TKE,
                             tt_tensor cache)
{
    x_TKE.rank = 2;
    x_TKE.dims[1] *= x_TKE.dims[2];
    x_TKE.strides[1] = 1;
    struct tt_scatter_rows_args args = {.x_ND = x_TKE, .rows_N = t->rows.view, .y_TD = cache, .keep = true};
    test_ok(tt_scatter_rows(device->stream, &args));
}

static void expect_close(const char *name, const struct test_tensor *got, const struct test_tensor *wanted,
                         bool exact)
{
    double *a = test_tensor_values(got), *b = test_tensor_values(wanted);
    int64_t count = tt_tensor_count(got->view), equal = 0;
    double least = got->view.dtype == TT_BF16 ? 0x1p-7 : 4e-6;
    for (int64_t i = 0; i < count; i++) {
        equal += memcmp(&a[i], &b[i], sizeof *a) == 0;
        if (!(fabs(a[i] - b[i]) <= (exact ? 0 : least * (fabs(b[i]) + 0.2))))
            fail_msg("%s: element %lld is %.9g, not %.9g", name, (long long)i, a[i], b[i]);
    }
    if (equal < count * 9 / 10 && got->view.dtype == TT_BF16)
        fail_msg("%s: %lld of %lld elements are the same", name, (long long)equal, (long long)count);
    free(a), free(b);
}

static void check_run(struct test_device *device, int threads, void *context)
{
    const struct problem *p = context;
    struct operands one, other, again;
    struct tables t = {test_tensor_copy(&p->positions), test_tensor_copy(&p->rows),
                       test_tensor_copy(&p->cos),       test_tensor_copy(&p->sin),
                       test_tensor_copy(&p->q_weight),  test_tensor_copy(&p->k_weight)};
    (void)threads;
    TEST_TO_DEVICE(device, &t.positions, &t.rows, &t.cos, &t.sin, &t.q_weight, &t.k_weight);
    open_operands(device, p, &one);
    open_operands(device, p, &other);
    open_operands(device, p, &again);
    run_at_once(device, p, &t, &one);
    run_at_once(device, p, &t, &again);
    ready_one(device, p, &t, other.views[Q], t.q_weight.view);
    ready_one(device, p, &t, other.views[K], t.k_weight.view);
    store_one_tensor(device, &t, other.views[K], other.k_cache.view);
    store_one_tensor(device, &t, other.views[V], other.v_cache.view);
    struct operands *all[] = {&one, &other, &again};
    for (int i = 0; i < 3; i++) TEST_TO_HOST(device, &all[i]->qkv, &all[i]->k_cache, &all[i]->v_cache);
    bool exact = strcmp(test_device_kind(), "cpu") == 0;
    expect_close("q, k and v", &one.qkv, &other.qkv, exact);
    expect_close(names[K_CACHE], &one.k_cache, &other.k_cache, exact);
    expect_close(names[V_CACHE], &one.v_cache, &other.v_cache, true);
    test_tensor_equal("q, k and v again", &again.qkv, &one.qkv);
    TEST_TO_HOST(device, &t.positions, &t.rows, &t.cos, &t.sin, &t.q_weight, &t.k_weight);
    for (int i = 0; i < 3; i++) {
        test_tensor_free(&all[i]->qkv);
        test_tensor_free(&all[i]->k_cache);
        test_tensor_free(&all[i]->v_cache);
    }
    struct test_tensor *of_tables[] = {&t.positions, &t.rows, &t.cos, &t.sin, &t.q_weight, &t.k_weight};
    for (int i = 0; i < 6; i++) test_tensor_free(of_tables[i]);
}

static void check_case(const void *row)
{
    struct problem p;
    make_problem(&p, row);
    test_on_each_isa(check_run, &p);
    struct test_tensor *all[] = {&p.qkv, &p.k_cache, &p.v_cache,  &p.positions, &p.rows,
                                 &p.cos, &p.sin,     &p.q_weight, &p.k_weight};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) test_tensor_free(all[i]);
}

static void as_one_after_the_other(void **state)
{
    (void)state;
    TEST_CASES("ready_heads", cases, check_case);
}

#define REFUSE(change, message)                                                                              \
    do {                                                                                                     \
        struct tt_ready_heads_args args = good;                                                              \
        change;                                                                                              \
        test_refused(tt_ready_heads(device.stream, &args), TT_ERR_INTERNAL, message);                        \
    } while (0)

static void hostile_arguments(void **state)
{
    static float memory[6][256];
    static int32_t places[2][3] = {{0, 1, 2}, {0, 2, 4}};
    struct test_device device;
    (void)state;
    TEST_CPU_ONLY();
    test_device_open(&device, "cpu", 1);
    const struct tt_ready_heads_args good = {
        .q_THE = tt_tensor_heads(tt_tensor_2d(memory[0], TT_F32, 3, 16), 2),
        .k_TKE = tt_tensor_heads(tt_tensor_2d(memory[1], TT_F32, 3, 8), 1),
        .v_TKE = tt_tensor_heads(tt_tensor_2d(memory[2], TT_F32, 3, 8), 1),
        .positions_T = tt_tensor_1d(places[0], TT_I32, 3),
        .cos_PE = tt_tensor_2d(memory[3], TT_F32, 4, 4),
        .sin_PE = tt_tensor_2d(memory[3], TT_F32, 4, 4),
        .rows_T = tt_tensor_1d(places[1], TT_I32, 3),
        .k_cache_RC = tt_tensor_2d(memory[4], TT_F32, 5, 8),
        .v_cache_RC = tt_tensor_2d(memory[5], TT_F32, 5, 8)};
    test_ok(tt_ready_heads(device.stream, &good));
    REFUSE(args.k_TKE = tt_tensor_heads(tt_tensor_2d(memory[1], TT_F32, 2, 8), 1), "ready_heads: k");
    REFUSE(args.cos_PE = tt_tensor_2d(memory[3], TT_F32, 4, 5), "5 angles for heads of 8");
    REFUSE(args.sin_PE = tt_tensor_2d(memory[3], TT_F32, 3, 4), "sin");
    REFUSE(args.rows_T.dims[0] = 2, "rows");
    REFUSE(args.k_cache_RC = tt_tensor_2d(memory[4], TT_F32, 5, 7), "cache of k");
    REFUSE(args.v_cache_RC.data = memory[2], "overlap in memory");
    REFUSE((args.q_norm.is = true, args.q_norm.weight_E = tt_tensor_1d(memory[3], TT_F32, 7)), "weight of q");
    REFUSE((args.k_norm.is = true, args.k_norm.weight_E = tt_tensor_1d(memory[3], TT_F32, 9)), "weight of k");
    test_device_close(&device);
}

int main(void)
{
    int missing = test_device_missing();
    if (missing != 0) return missing;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_one_after_the_other),
        cmocka_unit_test(hostile_arguments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
