/* Groups of linears with LoRA against plain loops in fp64: weights that lie together and apart, strided
 * outputs, dropout, members without LoRA, and no wish for dx; in the order of the host and in that of GPUs.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "backend/device_impl.h"
#include "base/alloc.h"
#include "nn/linear.h"

enum { T = 6, IN = 10, MEMBERS = 3 };
static const int64_t outs[MEMBERS] = {7, 4, 5}, ranks[MEMBERS] = {3, 0, 2};
enum { OUT = 16, R = 5 };

struct fixture {
    struct tt_device *device;
    struct tt_stream *stream;
    struct tt_workspace *workspace;
    struct tt_device_batch batch;
    struct tt_step step;
    struct tt_linear_group group;
    tt_param params[MEMBERS][4];
    char names[MEMBERS][4][32];
    float values[4096], grads[4096];
    size_t used;
    int64_t keys[T];
    float x[T * IN], dy[T * OUT], y[T * OUT], dx[T * IN], h[T * R], dh[T * R];
};

static float noise(struct tt_rng rng, uint64_t index)
{
    return (float)tt_rng_normal(rng, index);
}

static tt_param *new_param(struct fixture *fixture, int member, int which, int64_t rows, int64_t columns,
                           bool apart)
{
    tt_param *param = &fixture->params[member][which];
    char *name = fixture->names[member][which];
    memcpy(name, "m0.p0", 6);
    name[1] = (char)('0' + member);
    name[4] = (char)('0' + which);
    fixture->used += apart ? 3 : 0;
    *param =
        (tt_param){.name = name, .rank = columns > 0 ? 2 : 1, .dims = {rows, columns}, .trainable = true};
    float *value = fixture->values + fixture->used, *grad = fixture->grads + fixture->used;
    int64_t count = columns > 0 ? rows * columns : rows;
    for (int64_t i = 0; i < count; i++) {
        value[i] = noise(tt_rng_derive(tt_rng_make(1), name), (uint64_t)i);
        grad[i] = 0.25f; /* gradients are added to */
    }
    param->value =
        columns > 0 ? tt_tensor_2d(value, TT_F32, rows, columns) : tt_tensor_1d(value, TT_F32, rows);
    param->grad = columns > 0 ? tt_tensor_2d(grad, TT_F32, rows, columns) : tt_tensor_1d(grad, TT_F32, rows);
    fixture->used += (size_t)count;
    return param;
}

/* `ranked`: every member has LoRA; otherwise the second has none. */
static struct fixture *make(bool apart, bool ranked, double dropout)
{
    struct fixture *fixture = tt_calloc(1, sizeof *fixture);
    assert_non_null(fixture);
    assert_int_equal(
        tt_device_open(&(struct tt_device_config){.kind = "cpu", .threads = 1}, &fixture->device), TT_OK);
    assert_int_equal(tt_stream_create(fixture->device, &fixture->stream), TT_OK);
    assert_int_equal(tt_workspace_create(fixture->device, 1 << 16, &fixture->workspace), TT_OK);
    fixture->step = (struct tt_step){.stream = fixture->stream,
                                     .workspace = fixture->workspace,
                                     .batch = &fixture->batch,
                                     .compute_dtype = TT_F32,
                                     .training = true,
                                     .dropout_rng = tt_rng_make(9)};
    struct tt_linear_group *group = &fixture->group;
    group->count = MEMBERS;
    for (int i = 0; i < MEMBERS; i++) {
        group->linears[i] =
            (struct tt_linear){.in = IN, .out = outs[i], .scaling = 0.5f + (float)i, .dropout = dropout};
        group->linears[i].r = ranked ? (i == 1 ? 1 : 2) : ranks[i];
        group->linears[i].weight = new_param(fixture, i, 0, outs[i], IN, apart);
    }
    for (int i = 0; i < MEMBERS; i++) {
        if (group->linears[i].r > 0)
            group->linears[i].lora_A = new_param(fixture, i, 1, group->linears[i].r, IN, apart);
    }
    for (int i = 0; i < MEMBERS; i++) {
        if (group->linears[i].r > 0)
            group->linears[i].lora_B = new_param(fixture, i, 2, outs[i], group->linears[i].r, apart);
    }
    group->linears[2].bias = new_param(fixture, 2, 3, outs[2], 0, apart);
    assert_int_equal(tt_linear_group_out(group), OUT);
    assert_int_equal(tt_linear_group_r(group), R);
    for (int i = 0; i < T; i++) fixture->keys[i] = ((int64_t)(i * 5) << 24) | i;
    for (uint64_t i = 0; i < T * IN; i++) fixture->x[i] = noise(tt_rng_make(2), i);
    for (uint64_t i = 0; i < T * OUT; i++) fixture->dy[i] = noise(tt_rng_make(3), i);
    return fixture;
}

static void destroy(struct fixture *fixture)
{
    tt_workspace_destroy(fixture->workspace);
    tt_stream_destroy(fixture->stream);
    tt_device_close(fixture->device);
    tt_free(fixture);
}

/* What the dropout mask of ops/elementwise.h does to an element: 0 or 1 / (1 - p). */
static double factor(const struct fixture *fixture, const struct tt_linear *linear, int t, int d)
{
    uint32_t words[4];
    if (linear->dropout <= 0) return 1;
    struct tt_rng rng = tt_rng_derive(fixture->step.dropout_rng, linear->lora_A->name);
    tt_rng_block(rng, (uint64_t)fixture->keys[t], (uint64_t)d / 4, words);
    return words[d % 4] >= linear->dropout * 4294967296.0 ? 1 / (1 - linear->dropout) : 0;
}

static double at(tt_tensor tensor, int64_t row, int64_t column)
{
    return ((const float *)tensor.data)[row * tensor.strides[0] + column];
}

struct expected {
    double y[T * OUT], dx[T * IN];
};

/* Forward, dx and the gradients of the parameters (into `grads`, laid out as fixture->grads) by their
 * formulas. */
static void oracle(const struct fixture *fixture, struct expected *expected, double *grads)
{
    int64_t first = 0;
    memset(expected, 0, sizeof *expected);
    for (int i = 0; i < MEMBERS; i++) {
        const struct tt_linear *linear = &fixture->group.linears[i];
        double *dw = grads + ((float *)linear->weight->grad.data - fixture->grads);
        for (int t = 0; t < T; t++) {
            double h[4] = {0}, dh[4] = {0};
            for (int64_t r = 0; r < linear->r; r++) {
                for (int d = 0; d < IN; d++)
                    h[r] += fixture->x[t * IN + d] * factor(fixture, linear, t, d) *
                            at(linear->lora_A->value, r, d);
                for (int64_t o = 0; o < linear->out; o++) {
                    dh[r] +=
                        linear->scaling * fixture->dy[t * OUT + first + o] * at(linear->lora_B->value, o, r);
                }
            }
            for (int64_t o = 0; o < linear->out; o++) {
                double *y = &expected->y[t * OUT + first + o], dy = fixture->dy[t * OUT + first + o];
                for (int d = 0; d < IN; d++) {
                    *y += fixture->x[t * IN + d] * at(linear->weight->value, o, d);
                    expected->dx[t * IN + d] += dy * at(linear->weight->value, o, d);
                    dw[o * IN + d] += dy * fixture->x[t * IN + d];
                }
                for (int64_t r = 0; r < linear->r; r++) {
                    *y += linear->scaling * h[r] * at(linear->lora_B->value, o, r);
                    grads[(float *)linear->lora_B->grad.data - fixture->grads + o * linear->r + r] +=
                        linear->scaling * dy * h[r];
                }
                if (linear->bias == NULL) continue;
                *y += ((float *)linear->bias->value.data)[o];
                grads[(float *)linear->bias->grad.data - fixture->grads + o] += dy;
            }
            for (int64_t r = 0; r < linear->r; r++) {
                for (int d = 0; d < IN; d++) {
                    double kept = factor(fixture, linear, t, d);
                    expected->dx[t * IN + d] += dh[r] * at(linear->lora_A->value, r, d) * kept;
                    grads[(float *)linear->lora_A->grad.data - fixture->grads + r * IN + d] +=
                        dh[r] * fixture->x[t * IN + d] * kept;
                }
            }
        }
        first += linear->out;
    }
}

static void compare(const float *ours, const double *theirs, size_t count, const char *what)
{
    for (size_t i = 0; i < count; i++) {
        if (!(fabs(ours[i] - theirs[i]) <= 2e-5 * (1 + fabs(theirs[i]))))
            fail_msg("%s[%zu]: %g, not %g", what, i, ours[i], theirs[i]);
    }
}

/* `host` false: the cpu device says that it is none, and the order of the products is that of GPUs. */
static void check(bool apart, bool ranked, double dropout, bool host)
{
    struct fixture *fixture = make(apart, ranked, dropout);
    fixture->device->is_host = host;
    struct expected *expected = tt_calloc(1, sizeof *expected);
    double *grads = tt_calloc(4096, sizeof *grads);
    assert_true(expected != NULL && grads != NULL);
    for (size_t i = 0; i < 4096; i++) grads[i] = fixture->grads[i];
    oracle(fixture, expected, grads);
    tt_tensor keys = tt_tensor_1d(fixture->keys, TT_I64, T), x = tt_tensor_2d(fixture->x, TT_F32, T, IN);
    tt_tensor y = tt_tensor_2d(fixture->y, TT_F32, T, OUT), dy = tt_tensor_2d(fixture->dy, TT_F32, T, OUT);
    tt_tensor dx = tt_tensor_2d(fixture->dx, TT_F32, T, IN), h = tt_tensor_2d(fixture->h, TT_F32, T, R);
    tt_tensor dh = tt_tensor_2d(fixture->dh, TT_F32, T, R);
    for (int i = 0; i < T * OUT; i++) fixture->y[i] = NAN; /* overwritten, never read */
    for (int i = 0; i < T * IN; i++) fixture->dx[i] = NAN;
    assert_int_equal(tt_linear_forward(&fixture->group, &fixture->step, keys, x, h, y), TT_OK);
    compare(fixture->y, expected->y, T * OUT, "y");
    assert_int_equal(tt_linear_backward_input(&fixture->group, &fixture->step, keys, dy, dh, (tt_tensor){0}),
                     TT_OK);
    float without_dx[T * R];
    memcpy(without_dx, fixture->dh, sizeof without_dx);
    assert_int_equal(tt_linear_backward_input(&fixture->group, &fixture->step, keys, dy, dh, dx), TT_OK);
    assert_memory_equal(without_dx, fixture->dh, sizeof without_dx);
    compare(fixture->dx, expected->dx, T * IN, "dx");
    assert_int_equal(tt_linear_backward_params(&fixture->group, &fixture->step, keys, x, h, dy, dh), TT_OK);
    compare(fixture->grads, grads, 4096, "grad");
    assert_int_equal(tt_workspace_mark(fixture->workspace), 0); /* all scratch popped */
    tt_free(expected);
    tt_free(grads);
    destroy(fixture);
}

static void groups_are_their_members(void **state)
{
    (void)state;
    for (int apart = 0; apart < 2; apart++) {
        for (int ranked = 0; ranked < 2; ranked++) {
            for (int host = 0; host < 2; host++) {
                check(apart, ranked, 0, host);
                check(apart, ranked, 0.4, host);
            }
        }
    }
}

/* Dropout is for training: off, it is the same as none. */
static void no_dropout_outside_training(void **state)
{
    (void)state;
    struct fixture *with = make(false, true, 0.5), *without = make(false, true, 0);
    struct fixture *both[] = {with, without};
    for (int i = 0; i < 2; i++) {
        both[i]->step.training = false;
        assert_int_equal(
            tt_linear_forward(&both[i]->group, &both[i]->step, tt_tensor_1d(both[i]->keys, TT_I64, T),
                              tt_tensor_2d(both[i]->x, TT_F32, T, IN), tt_tensor_2d(both[i]->h, TT_F32, T, R),
                              tt_tensor_2d(both[i]->y, TT_F32, T, OUT)),
            TT_OK);
    }
    assert_memory_equal(with->y, without->y, sizeof with->y);
    destroy(with);
    destroy(without);
}

/* Only what trains gets a gradient, and then x is asked for only when it is needed. */
static void frozen_gets_no_gradient(void **state)
{
    (void)state;
    struct fixture *fixture = make(false, true, 0);
    for (int i = 0; i < MEMBERS; i++) {
        fixture->params[i][0].trainable = fixture->params[i][1].trainable = fixture->params[i][3].trainable =
            false;
        fixture->params[i][0].grad = fixture->params[i][1].grad = fixture->params[i][3].grad = (tt_tensor){0};
    }
    assert_true(tt_linear_group_trains(&fixture->group));
    assert_false(tt_linear_group_needs_x(&fixture->group));
    tt_tensor keys = tt_tensor_1d(fixture->keys, TT_I64, T), dy = tt_tensor_2d(fixture->dy, TT_F32, T, OUT);
    tt_tensor h = tt_tensor_2d(fixture->h, TT_F32, T, R), dh = tt_tensor_2d(fixture->dh, TT_F32, T, R);
    for (int i = 0; i < T * R; i++) fixture->h[i] = 1;
    float *b = fixture->params[0][2].grad.data;
    assert_int_equal(tt_linear_backward_input(&fixture->group, &fixture->step, keys, dy, dh, (tt_tensor){0}),
                     TT_OK);
    assert_int_equal(
        tt_linear_backward_params(&fixture->group, &fixture->step, keys, (tt_tensor){0}, h, dy, dh), TT_OK);
    assert_true(b[0] != 0.25f);
    assert_true(fixture->grads[0] == 0.25f); /* the first weight's */
    destroy(fixture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(groups_are_their_members),
        cmocka_unit_test(no_dropout_outside_training),
        cmocka_unit_test(frozen_gets_no_gradient),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
