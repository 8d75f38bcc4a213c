/* Groups of linears with LoRA against plain loops in fp64: weights that lie together and apart, strided
 * outputs, dropout, members without LoRA, and no wish for dx; in the order of the host and in that of GPUs.
 * What is done together with a product (rotation, SwiGLU and its gradient) against the same done after it. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>
#include "backend/device_impl.h"
#include "backend/ops/attention.h"
#include "backend/ops/swiglu.h"
#include "base/alloc.h"
#include "nn/linear.h"
#include "support/dropout_mask.h"
#include "support/tuning.h"

enum { T = 6, IN = 10, MEMBERS = 3 };
static const int64_t outs[MEMBERS] = {7, 4, 5}, ranks[MEMBERS] = {3, 0, 2};
enum { OUT = 16, R = 5 };

struct fixture {
    struct tt_device *device;
    struct tt_stream *stream;
    struct tt_workspace *workspace;
    struct tt_pass pass;
    struct tt_linear linears[MEMBERS];
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
        tt_device_open(&(struct tt_device_config){.kind = "cpu", .threads = 1, .tuning = test_tuning()},
                       &fixture->device),
        TT_OK);
    assert_int_equal(tt_stream_create(fixture->device, &fixture->stream), TT_OK);
    assert_int_equal(tt_workspace_create(fixture->device, 1 << 16, &fixture->workspace), TT_OK);
    fixture->pass = (struct tt_pass){
        .lent = {.stream = fixture->stream, .workspace = fixture->workspace},
        .in = {.compute_dtype = TT_F32, .training = true, .dropout_rng = tt_rng_make(9)},
    };
    struct tt_linear_group *group = &fixture->group;
    *group = (struct tt_linear_group){.linears = fixture->linears, .count = MEMBERS};
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

/* The whole group over x, with h of `r` columns. */
static struct tt_linear_call call_of(struct fixture *fixture, int64_t r)
{
    return (struct tt_linear_call){.group = &fixture->group,
                                   .pass = &fixture->pass,
                                   .row_keys_T = tt_tensor_1d(fixture->keys, TT_I64, T),
                                   .x_TI = tt_tensor_2d(fixture->x, TT_F32, T, IN),
                                   .h_TR = tt_tensor_2d(fixture->h, TT_F32, T, r)};
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
    if (linear->dropout <= 0) return 1;
    struct tt_rng rng = tt_rng_derive(fixture->pass.in.dropout_rng, linear->lora_A->name);
    bool kept = test_dropout_keeps(rng, fixture->keys[t], d, linear->dropout);
    return kept ? 1 / (1 - test_dropout_rate(linear->dropout)) : 0;
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
    float before[4096];
    memcpy(before, fixture->grads, sizeof before);
    struct tt_linear_call call = call_of(fixture, R);
    tt_tensor y = tt_tensor_2d(fixture->y, TT_F32, T, OUT), dy = tt_tensor_2d(fixture->dy, TT_F32, T, OUT);
    tt_tensor dx = tt_tensor_2d(fixture->dx, TT_F32, T, IN), dh = tt_tensor_2d(fixture->dh, TT_F32, T, R);
    for (int i = 0; i < T * OUT; i++) fixture->y[i] = NAN; /* overwritten, never read */
    for (int i = 0; i < T * IN; i++) fixture->dx[i] = NAN;
    assert_int_equal(tt_linear_forward(&call, y), TT_OK);
    compare(fixture->y, expected->y, T * OUT, "y");
    assert_int_equal(tt_linear_backward_input(&call, dy, dh, (tt_tensor){0}), TT_OK);
    float without_dx[T * R];
    memcpy(without_dx, fixture->dh, sizeof without_dx);
    memcpy(fixture->grads, before, sizeof before); /* both calls add to those of B */
    assert_int_equal(tt_linear_backward_input(&call, dy, dh, dx), TT_OK);
    assert_memory_equal(without_dx, fixture->dh, sizeof without_dx);
    compare(fixture->dx, expected->dx, T * IN, "dx");
    assert_int_equal(tt_linear_backward_params(&call, dy, dh), TT_OK);
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
        struct tt_linear_call call = call_of(both[i], R);
        both[i]->pass.in.training = false;
        assert_int_equal(tt_linear_forward(&call, tt_tensor_2d(both[i]->y, TT_F32, T, OUT)), TT_OK);
    }
    assert_memory_equal(with->y, without->y, sizeof with->y);
    destroy(with);
    destroy(without);
}

/* Only what trains gets a gradient, and then x is asked for only when it is needed. */
static void check_frozen(double dropout)
{
    struct fixture *fixture = make(false, true, dropout);
    for (int i = 0; i < MEMBERS; i++) {
        fixture->params[i][0].trainable = fixture->params[i][1].trainable = fixture->params[i][3].trainable =
            false;
        fixture->params[i][0].grad = fixture->params[i][1].grad = fixture->params[i][3].grad = (tt_tensor){0};
    }
    assert_true(tt_linear_group_trains(&fixture->group));
    assert_false(tt_linear_group_needs_x(&fixture->group));
    struct tt_linear_call call = call_of(fixture, R);
    tt_tensor dy = tt_tensor_2d(fixture->dy, TT_F32, T, OUT), dh = tt_tensor_2d(fixture->dh, TT_F32, T, R);
    call.x_TI = (tt_tensor){0};
    for (int i = 0; i < T * R; i++) fixture->h[i] = 1;
    float *b = fixture->params[0][2].grad.data;
    assert_int_equal(tt_linear_backward_input(&call, dy, dh, (tt_tensor){0}), TT_OK);
    assert_int_equal(tt_linear_backward_params(&call, dy, dh), TT_OK);
    assert_true(b[0] != 0.25f);
    assert_true(fixture->grads[0] == 0.25f); /* the first weight's */
    destroy(fixture);
}

static void frozen_gets_no_gradient(void **state)
{
    (void)state;
    check_frozen(0);
    check_frozen(0.4);
}

/* The one A that trains gets what it gets beside others that train too. */
static void one_of_several_trains(void **state)
{
    (void)state;
    enum { TRAINS = 2 };
    struct fixture *all = make(true, false, 0.4), *one = make(true, false, 0.4);
    struct fixture *const both[] = {all, one};
    for (int i = 0; i < MEMBERS; i++)
        if (i != TRAINS) one->params[i][1].trainable = false;
    for (int i = 0; i < 2; i++) {
        struct fixture *fixture = both[i];
        struct tt_linear_call call = call_of(fixture, R);
        tt_tensor dy = tt_tensor_2d(fixture->dy, TT_F32, T, OUT),
                  dh = tt_tensor_2d(fixture->dh, TT_F32, T, R);
        for (int k = 0; k < T * R; k++) fixture->h[k] = 1;
        assert_int_equal(tt_linear_backward_input(&call, dy, dh, (tt_tensor){0}), TT_OK);
        assert_int_equal(tt_linear_backward_params(&call, dy, dh), TT_OK);
    }
    for (int i = 0; i < MEMBERS; i++) {
        tt_tensor grad = all->params[i][1].grad;
        if (tt_tensor_is_empty(grad)) continue;
        bool same = memcmp(grad.data, one->params[i][1].grad.data, tt_tensor_bytes(grad)) == 0;
        assert_true(same == (i == TRAINS));
    }
    destroy(one);
    destroy(all);
}

/* How a group may be: each bit one of these. */
enum { APART = 1, UNBIASED = 2, DROPPED = 4, HOST = 8, WAYS = 16 };

static struct fixture *make_way(int way)
{
    struct fixture *fixture = make((way & APART) != 0, false, (way & DROPPED) != 0 ? 0.4 : 0);
    fixture->device->is_host = (way & HOST) != 0;
    if ((way & UNBIASED) != 0) fixture->group.linears[2].bias = NULL;
    return fixture;
}

static void destroy_way(struct fixture *fixture)
{
    assert_int_equal(tt_workspace_mark(fixture->workspace), 0);
    destroy(fixture);
}

/* Also where weights that do not lie together, or a bias, come between the product and the rotation. */
static void rotated_is_forward_and_rope(void **state)
{
    (void)state;
    enum { COLUMNS = 12, HEAD = 4, PLACES = 3 };
    int32_t positions[T] = {0, 2, 1, 1, 0, 2};
    float cos_PE[PLACES * HEAD / 2], sin_PE[PLACES * HEAD / 2], expected[T * OUT];
    for (int i = 0; i < PLACES * HEAD / 2; i++) {
        cos_PE[i] = cosf(0.3f * (float)i);
        sin_PE[i] = sinf(0.3f * (float)i);
    }
    struct tt_rotation rotation = {.columns = COLUMNS,
                                   .head_dim = HEAD,
                                   .positions_T = tt_tensor_1d(positions, TT_I32, T),
                                   .cos_PE = tt_tensor_2d(cos_PE, TT_F32, PLACES, HEAD / 2),
                                   .sin_PE = tt_tensor_2d(sin_PE, TT_F32, PLACES, HEAD / 2)};
    for (int way = 0; way < WAYS; way++) {
        struct fixture *f = make_way(way);
        struct tt_linear_call call = call_of(f, R);
        tt_tensor y = tt_tensor_2d(f->y, TT_F32, T, OUT);
        struct tt_rope_args rope = {.x_THE = tt_tensor_heads(tt_tensor_cols(y, 0, COLUMNS), COLUMNS / HEAD),
                                    .positions_T = rotation.positions_T,
                                    .cos_PE = rotation.cos_PE,
                                    .sin_PE = rotation.sin_PE};
        assert_int_equal(tt_linear_forward(&call, y), TT_OK);
        assert_int_equal(tt_rope(f->stream, &rope), TT_OK);
        memcpy(expected, f->y, sizeof expected);
        assert_int_equal(tt_linear_forward_rotated(&call, &rotation, y), TT_OK);
        assert_memory_equal(f->y, expected, sizeof expected);
        destroy_way(f);
    }
}

/* A group of two members of 4: the last rows of the first, which lie before the second's. */
static void make_pair(struct fixture *fixture, bool biased)
{
    enum { EACH = 4 };
    struct tt_linear *first = &fixture->group.linears[0], *second = &fixture->group.linears[1];
    float *rows = first->weight->value.data;
    fixture->group.count = 2;
    first->weight->value = tt_tensor_2d(rows + (first->out - EACH) * IN, TT_F32, EACH, IN);
    first->lora_B->value = tt_tensor_2d(first->lora_B->value.data, TT_F32, EACH, first->r);
    first->weight->dims[0] = first->lora_B->dims[0] = first->out = EACH;
    if (biased) second->bias = new_param(fixture, 1, 3, EACH, 0, false);
}

static void swiglu_is_forward_and_swiglu(void **state)
{
    (void)state;
    enum { F = 4 };
    float both[T * 2 * F], act[T * F];
    for (int way = 0; way < WAYS; way++) {
        struct fixture *f = make_way(way);
        make_pair(f, (way & UNBIASED) == 0);
        struct tt_linear_call call = call_of(f, 3);
        tt_tensor gate_up = tt_tensor_2d(f->y, TT_F32, T, 2 * F);
        tt_tensor gate = tt_tensor_cols(gate_up, 0, F), apart = tt_tensor_2d(f->dy, TT_F32, T, F);
        struct tt_linear_swiglu kept = {.gate_up_TF2 = gate_up, .act_TF = apart, .keep = true},
                                forgotten = {.gate_up_TF2 = gate_up, .act_TF = gate};
        struct tt_swiglu_forward_args swiglu = {
            .gate_TF = gate, .up_TF = tt_tensor_cols(gate_up, F, F), .h_TF = apart};
        assert_int_equal(tt_linear_forward(&call, gate_up), TT_OK);
        assert_int_equal(tt_swiglu_forward(f->stream, &swiglu), TT_OK);
        memcpy(both, f->y, sizeof both);
        memcpy(act, f->dy, sizeof act);
        for (int i = 0; i < T * F; i++) f->dy[i] = NAN;
        assert_int_equal(tt_linear_forward_swiglu(&call, &kept), TT_OK);
        assert_memory_equal(f->y, both, sizeof both);
        assert_memory_equal(f->dy, act, sizeof act);
        assert_int_equal(tt_linear_forward_swiglu(&call, &forgotten), TT_OK);
        for (int t = 0; t < T; t++) assert_memory_equal(f->y + t * 2 * F, act + t * F, F * sizeof *act);
        destroy_way(f);
    }
}

static void swiglu_backward_is_input_and_swiglu(void **state)
{
    (void)state;
    float both[T * 2 * IN], before[T * 2 * IN], act[T * IN], dh_expected[T * 3];
    for (uint64_t i = 0; i < T * 2 * IN; i++) before[i] = noise(tt_rng_make(4), i);
    for (int way = 0; way < WAYS; way++) {
        struct fixture *f = make_way(way);
        f->group.count = 1;
        int64_t out = f->group.linears[0].out;
        struct tt_linear_call call = call_of(f, 3);
        tt_tensor dy = tt_tensor_2d(f->dy, TT_F32, T, out);
        tt_tensor dh = tt_tensor_2d(f->dh, TT_F32, T, 3), dact = tt_tensor_2d(f->dx, TT_F32, T, IN);
        tt_tensor gate_up = tt_tensor_2d(both, TT_F32, T, 2 * IN), gate = tt_tensor_cols(gate_up, 0, IN),
                  up = tt_tensor_cols(gate_up, IN, IN);
        struct tt_swiglu_backward_args swiglu = {
            .dh_TF = dact, .gate_TF = gate, .up_TF = up, .dgate_TF = gate, .dup_TF = up, .h_TF = dact};
        float expected[T * 2 * IN];
        memcpy(both, before, sizeof both);
        assert_int_equal(tt_linear_backward_input(&call, dy, dh, dact), TT_OK);
        assert_int_equal(tt_swiglu_backward(f->stream, &swiglu), TT_OK);
        memcpy(expected, both, sizeof both);
        memcpy(act, f->dx, sizeof act);
        memcpy(dh_expected, f->dh, sizeof dh_expected);
        for (int wants_act = 0; wants_act < 2; wants_act++) {
            memcpy(both, before, sizeof both);
            for (int i = 0; i < T * 3; i++) f->dh[i] = NAN;
            struct tt_linear_swiglu fused = {.gate_up_TF2 = gate_up, .act_TF = dact, .keep = wants_act != 0};
            assert_int_equal(tt_linear_backward_swiglu(&call, dy, dh, &fused), TT_OK);
            assert_memory_equal(both, expected, sizeof both);
            assert_memory_equal(f->dh, dh_expected, sizeof dh_expected);
        }
        assert_memory_equal(f->dx, act, sizeof act);
        destroy_way(f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(groups_are_their_members),
        cmocka_unit_test(no_dropout_outside_training),
        cmocka_unit_test(one_of_several_trains),
        cmocka_unit_test(frozen_gets_no_gradient),
        cmocka_unit_test(rotated_is_forward_and_rope),
        cmocka_unit_test(swiglu_is_forward_and_swiglu),
        cmocka_unit_test(swiglu_backward_is_input_and_swiglu),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
