/* Problems of the scan: inputs, the recurrence row by row and its derivative as oracle (ops/scan.h; no chunks), and the
 * calls of the op on all rows, on one sequence, or on some rows with states. */
#ifndef TT_TESTS_OPS_SCAN_PROBLEM_H
#define TT_TESTS_OPS_SCAN_PROBLEM_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend/ops/scan.h"
#include "ops/harness.h"
#include "ops/isa.h"

enum { SCAN_SEQUENCES_MAX = 10 };

struct scan_case {
    enum tt_scan_rule rule;
    int64_t lengths[SCAN_SEQUENCES_MAX]; /* up to the last that is not 0 */
    int64_t key_heads, heads, width, value_width, gap;
    tt_dtype dtype;
    double size, rate; /* of a; a_log */
};

enum { Q, K, V, A, B, ALOG, BIAS, SKIP, DO, O, DQ, DK, DV, DA, DB, DALOG, DBIAS, DSKIP, SCAN_LINES };
static const char *const scan_names[SCAN_LINES] = {"q",       "k",    "v",  "a",      "b",        "a_log",
                                                   "dt_bias", "skip", "do", "o",      "dq",       "dk",
                                                   "dv",      "da",   "db", "da_log", "ddt_bias", "dskip"};

struct scan_problem {
    const struct scan_case *row;
    struct scan_case own;
    int64_t rows, sequences;
    int32_t cu[SCAN_SEQUENCES_MAX + 1];
    struct test_tensor cu_tensor;
    struct test_tensor tensors[SCAN_LINES], first[SCAN_LINES];
    double *exact[SCAN_LINES], *simple[SCAN_LINES];
};

static const double scan_dt_min = 0.05, scan_dt_max = 2.5;

/* Whether the rule has this input or result. */
static inline bool scan_has(const struct scan_case *row, int line)
{
    bool delta = row->rule == TT_SCAN_DELTA;
    return line == B || line == DB ? delta : line == SKIP || line == DSKIP ? !delta : true;
}

static inline void make_scan_problem(struct scan_problem *p, const struct scan_case *row)
{
    memset(p, 0, sizeof *p);
    p->own = *row;
    p->row = &p->own;
    for (int i = 0; i < SCAN_SEQUENCES_MAX; i++)
        if (row->lengths[i] > 0) p->sequences = i + 1;
    for (int64_t b = 0; b < p->sequences; b++) p->cu[b + 1] = p->cu[b] + (int32_t)row->lengths[b];
    p->rows = p->cu[p->sequences];
    p->cu_tensor = test_tensor_make(TT_I32, p->sequences + 1, TEST_UNUSED, TEST_UNUSED, 0);
    memcpy(p->cu_tensor.view.data, p->cu, (size_t)(p->sequences + 1) * sizeof *p->cu);
    for (int i = 0; i < SCAN_LINES; i++) {
        bool keys = i == Q || i == K || i == DQ || i == DK, values = i == V || i == DO || i == O || i == DV;
        bool of_rows = i == A || i == B || i == DA || i == DB, sums = i >= DALOG;
        double scale = i == A ? row->size : i == ALOG ? 0.3 : i == BIAS ? 0.5 : 1;
        uint64_t seed = (uint64_t)i + 1;
        if (keys)
            p->tensors[i] =
                test_tensor_random(row->dtype, p->rows, row->key_heads, row->width, row->gap, seed, scale);
        else if (values)
            p->tensors[i] =
                test_tensor_random(row->dtype, p->rows, row->heads, row->value_width, row->gap, seed, scale);
        else if (of_rows)
            p->tensors[i] =
                test_tensor_random(row->dtype, p->rows, row->heads, TEST_UNUSED, row->gap, seed, scale);
        else
            p->tensors[i] = test_tensor_random(sums        ? TT_F32
                                               : i == BIAS ? row->dtype
                                                           : TT_F32,
                                               row->heads, TEST_UNUSED, TEST_UNUSED, 0, seed, scale);
        if (i >= O && i < DALOG) test_tensor_poison(&p->tensors[i]);
    }
    double *rates = test_tensor_values(&p->tensors[ALOG]);
    for (int64_t h = 0; h < row->heads; h++) rates[h] += row->rate;
    test_tensor_set(&p->tensors[ALOG], rates);
    free(rates);
    for (int i = 0; i < SCAN_LINES; i++) {
        p->exact[i] = test_tensor_values(&p->tensors[i]);
        p->simple[i] = test_tensor_values(&p->tensors[i]);
    }
}

static inline void set_scan_values(struct scan_problem *p, int line, const double *values)
{
    int64_t count = tt_tensor_count(p->tensors[line].view);
    test_tensor_set(&p->tensors[line], values);
    memcpy(p->exact[line], values, (size_t)count * sizeof *values);
    memcpy(p->simple[line], values, (size_t)count * sizeof *values);
}

static inline void free_scan_problem(struct scan_problem *p)
{
    test_array_free(p->tensors, SCAN_LINES);
    test_array_free(p->first, SCAN_LINES);
    test_free_values(p->exact, SCAN_LINES);
    test_free_values(p->simple, SCAN_LINES);
    test_tensor_free(&p->cu_tensor);
}

static inline double scan_scale(const struct scan_case *row)
{
    return row->rule == TT_SCAN_DELTA ? 1 / sqrt((double)row->width) : 1;
}

static inline double scan_eps(const struct scan_case *row)
{
    return row->rule == TT_SCAN_DELTA ? 1e-6 : 0;
}

/* One value head: the recurrence forward, then backward. `real` is the type of the arithmetic. States have E x W
 * numbers, that before row t, decayed, at `decayed` + t E W. dq and dk, of the normed rows, are added to those of the
 * key head. */
#define DEFINE_SCAN_REFERENCE(name, real)                                                                    \
    static inline void name##_forward(const struct scan_problem *p, double *const v[SCAN_LINES], int64_t h,  \
                                      const real *q, const real *k, const real *decay, const real *share,    \
                                      real *decayed, real *fresh)                                            \
    {                                                                                                        \
        const struct scan_case *row = p->row;                                                                \
        int64_t E = row->width, W = row->value_width, H = row->heads;                                        \
        bool delta = row->rule == TT_SCAN_DELTA;                                                             \
        real *state = calloc((size_t)(E * W), sizeof *state);                                                \
        for (int64_t b = 0; b < p->sequences; b++) {                                                         \
            memset(state, 0, (size_t)(E * W) * sizeof *state);                                               \
            for (int64_t t = p->cu[b]; t < p->cu[b + 1]; t++) {                                              \
                for (int64_t i = 0; i < E * W; i++) decayed[t * E * W + i] = state[i] *= decay[t];           \
                for (int64_t w = 0; w < W; w++) {                                                            \
                    real seen = 0, out = 0, value = (real)v[V][(t * H + h) * W + w];                         \
                    for (int64_t e = 0; e < E && delta; e++) seen += state[e * W + w] * k[t * E + e];        \
                    fresh[t * W + w] = share[t] * (value - seen);                                            \
                    for (int64_t e = 0; e < E; e++) state[e * W + w] += k[t * E + e] * fresh[t * W + w];     \
                    for (int64_t e = 0; e < E; e++) out += state[e * W + w] * q[t * E + e];                  \
                    if (!delta) out += (real)v[SKIP][h] * value;                                             \
                    v[O][(t * H + h) * W + w] = (double)out;                                                 \
                }                                                                                            \
            }                                                                                                \
        }                                                                                                    \
        free(state);                                                                                         \
    }                                                                                                        \
    static inline void name##_backward(const struct scan_problem *p, double *const v[SCAN_LINES], int64_t h, \
                                       const real *q, const real *k, const real *decay, const real *share,   \
                                       const real *decayed, const real *fresh, real *dq, real *dk, real *dg, \
                                       real *dshare)                                                         \
    {                                                                                                        \
        const struct scan_case *row = p->row;                                                                \
        int64_t E = row->width, W = row->value_width, H = row->heads;                                        \
        bool delta = row->rule == TT_SCAN_DELTA;                                                             \
        real *ds = calloc((size_t)(E * W), sizeof *ds);                                                      \
        for (int64_t b = 0; b < p->sequences; b++) {                                                         \
            memset(ds, 0, (size_t)(E * W) * sizeof *ds);                                                     \
            for (int64_t t = p->cu[b + 1] - 1; t >= p->cu[b]; t--) {                                         \
                const real *before = decayed + t * E * W;                                                    \
                dshare[t] = dg[t] = 0;                                                                       \
                for (int64_t w = 0; w < W; w++) {                                                            \
                    real g = (real)v[DO][(t * H + h) * W + w], value = (real)v[V][(t * H + h) * W + w];      \
                    real u = fresh[t * W + w], du = 0, seen = 0;                                             \
                    for (int64_t e = 0; e < E; e++) {                                                        \
                        dq[t * E + e] += (before[e * W + w] + k[t * E + e] * u) * g;                         \
                        ds[e * W + w] += q[t * E + e] * g;                                                   \
                        dk[t * E + e] += ds[e * W + w] * u;                                                  \
                        du += ds[e * W + w] * k[t * E + e];                                                  \
                        if (delta) seen += before[e * W + w] * k[t * E + e];                                 \
                    }                                                                                        \
                    dshare[t] += du * (value - seen);                                                        \
                    real dvalue = share[t] * du;                                                             \
                    for (int64_t e = 0; e < E && delta; e++) {                                               \
                        dk[t * E + e] -= before[e * W + w] * dvalue;                                         \
                        ds[e * W + w] -= k[t * E + e] * dvalue;                                              \
                    }                                                                                        \
                    if (!delta) {                                                                            \
                        v[DSKIP][h] += (double)(g * value);                                                  \
                        dvalue += (real)v[SKIP][h] * g;                                                      \
                    }                                                                                        \
                    v[DV][(t * H + h) * W + w] = (double)dvalue;                                             \
                }                                                                                            \
                for (int64_t i = 0; i < E * W; i++) {                                                        \
                    dg[t] += ds[i] * before[i];                                                              \
                    ds[i] *= decay[t];                                                                       \
                }                                                                                            \
            }                                                                                                \
        }                                                                                                    \
        free(ds);                                                                                            \
    }                                                                                                        \
    /* Rows of a key head divided by the root of their squares, or the gradient of that. */                  \
    static inline void name##_norm(const struct scan_case *row, const double *x, int64_t t, int64_t j,       \
                                   double factor, const real *gradient, real *to, double *dx)                \
    {                                                                                                        \
        int64_t E = row->width;                                                                              \
        const double *from = x + (t * row->key_heads + j) * E;                                               \
        real squares = (real)scan_eps(row), along = 0;                                                       \
        for (int64_t e = 0; e < E; e++) squares += (real)from[e] * (real)from[e];                            \
        real root = scan_eps(row) > 0 ? 1 / (real)sqrt((double)squares) : 1;                                 \
        if (gradient == NULL) {                                                                              \
            for (int64_t e = 0; e < E; e++) to[t * E + e] = (real)from[e] * root * (real)factor;             \
            return;                                                                                          \
        }                                                                                                    \
        for (int64_t e = 0; e < E; e++) along += gradient[t * E + e] * (real)factor * (real)from[e] * root;  \
        if (scan_eps(row) == 0) along = 0;                                                                   \
        for (int64_t e = 0; e < E; e++)                                                                      \
            dx[(t * row->key_heads + j) * E + e] =                                                           \
                (double)(root * (gradient[t * E + e] * (real)factor - (real)from[e] * root * along));        \
    }                                                                                                        \
    static inline void name(const struct scan_problem *p, double *const v[SCAN_LINES])                       \
    {                                                                                                        \
        const struct scan_case *row = p->row;                                                                \
        int64_t E = row->width, W = row->value_width, H = row->heads, T = p->rows,                           \
                group = H / row->key_heads;                                                                  \
        bool delta = row->rule == TT_SCAN_DELTA;                                                             \
        real *rows = calloc((size_t)(4 * T * E + T * W + 4 * T + T * E * W + 1), sizeof *rows);              \
        real *q = rows, *k = q + T * E, *dq = k + T * E, *dk = dq + T * E, *fresh = dk + T * E;              \
        real *decay = fresh + T * W, *share = decay + T, *dg = share + T, *dshare = dg + T,                  \
             *decayed = dshare + T;                                                                          \
        for (int64_t h = 0; h < H; h++) {                                                                    \
            int64_t j = h / group;                                                                           \
            real rate = (real)exp(v[ALOG][h]);                                                               \
            if (h % group == 0) memset(dq, 0, (size_t)(2 * T * E) * sizeof *dq);                             \
            for (int64_t t = 0; t < T; t++) {                                                                \
                name##_norm(row, v[Q], t, j, scan_scale(row), NULL, q, NULL);                                \
                name##_norm(row, v[K], t, j, 1, NULL, k, NULL);                                              \
                double x = v[A][t * H + h] + v[BIAS][h], dt = x > 0 ? x + log1p(exp(-x)) : log1p(exp(x));    \
                if (!delta) dt = fmin(fmax(dt, scan_dt_min), scan_dt_max);                                   \
                share[t] = (real)(delta ? 1 / (1 + exp(-v[B][t * H + h])) : dt);                             \
                decay[t] = (real)exp(-(double)rate * dt);                                                    \
            }                                                                                                \
            name##_forward(p, v, h, q, k, decay, share, decayed, fresh);                                     \
            name##_backward(p, v, h, q, k, decay, share, decayed, fresh, dq, dk, dg, dshare);                \
            for (int64_t t = 0; t < T; t++) {                                                                \
                double x = v[A][t * H + h] + v[BIAS][h], dt = x > 0 ? x + log1p(exp(-x)) : log1p(exp(x));    \
                double ddt = -(double)rate * (double)dg[t],                                                  \
                       inside = fmin(fmax(dt, scan_dt_min), scan_dt_max);                                    \
                if (delta) v[DB][t * H + h] = (double)dshare[t] * (double)share[t] * (1 - (double)share[t]); \
                if (!delta) ddt = dt == inside ? ddt + (double)dshare[t] : 0;                                \
                double da = ddt / (1 + exp(-x));                                                             \
                v[DA][t * H + h] = da;                                                                       \
                v[DBIAS][h] += da;                                                                           \
                v[DALOG][h] -= (double)dg[t] * (double)rate * (delta ? dt : inside);                         \
                if ((h + 1) % group != 0) continue;                                                          \
                name##_norm(row, v[Q], t, j, scan_scale(row), dq, NULL, v[DQ]);                              \
                name##_norm(row, v[K], t, j, 1, dk, NULL, v[DK]);                                            \
            }                                                                                                \
        }                                                                                                    \
        free(rows);                                                                                          \
    }

DEFINE_SCAN_REFERENCE(scan_oracle, double)
DEFINE_SCAN_REFERENCE(scan_plain, float)

static inline void round_scan_results(struct scan_problem *p)
{
    for (int i = O; i < SCAN_LINES; i++) {
        int64_t count = tt_tensor_count(p->tensors[i].view);
        for (int64_t j = 0; j < count; j++)
            p->simple[i][j] = (double)test_round((float)p->simple[i][j], p->tensors[i].view.dtype);
    }
}

/* Chunks add in another order than rows one by one, and sum decays before they are powers: 1e-5 of the largest element
 * is the bar (the recurrence in floats against chunks in floats: 8e-7, and 2.5e-6 with strong decay). Sums over rows,
 * whose terms have both signs, are compared with the size of these; in bf16 with a unit of each term of one head, as
 * tensor cores take numbers of that type. */
static inline void check_scan_result(struct scan_problem *p, int line, struct test_tensor got, int threads)
{
    test_tensor_check_gaps(scan_names[line], &got);
    if (threads == 1) {
        double *values = test_tensor_values(&got), largest = 0;
        int64_t count = tt_tensor_count(got.view);
        for (int64_t i = 0; i < count; i++) largest = fmax(largest, fabs(p->exact[line][i]));
        for (int64_t i = 0; line >= DALOG && i < p->rows * p->row->heads; i++)
            largest += fabs(p->exact[DA][i]);
        double bar = line >= DALOG && p->row->dtype == TT_BF16 ? 0x1p-8 / (double)p->row->heads : 1e-5;
        test_close_allowing(scan_names[line], values, p->exact[line], p->simple[line], count, got.view.dtype,
                            line == O ? 2 : 3, 1e-5, bar * largest + 1e-9);
        free(values);
    } else {
        test_tensor_equal(scan_names[line], &got, &p->first[line]);
    }
    test_tensor_free(&p->first[line]);
    p->first[line] = got;
}

static inline tt_tensor scan_view(const struct scan_problem *p, const struct test_tensor *t, int line)
{
    return scan_has(p->row, line) ? t[line].view : (tt_tensor){0};
}

static inline struct tt_scan_forward_args scan_args(const struct scan_problem *p, const struct test_tensor *t)
{
    return (struct tt_scan_forward_args){
        .rule = p->row->rule,
        .sequences = {.cu = p->cu, .device_cu = p->cu_tensor.view, .count = p->sequences},
        .q_TKE = t[Q].view,
        .k_TKE = t[K].view,
        .v_THW = t[V].view,
        .a_TH = t[A].view,
        .b_TH = scan_view(p, t, B),
        .a_log_H = t[ALOG].view,
        .dt_bias_H = t[BIAS].view,
        .skip_H = scan_view(p, t, SKIP),
        .dt_min = scan_dt_min,
        .dt_max = scan_dt_max,
        .scale = scan_scale(p->row),
        .norm_eps = scan_eps(p->row),
        .o_THW = t[O].view,
    };
}

static inline struct tt_scan_backward_args scan_gradients(const struct scan_problem *p,
                                                          const struct test_tensor *t,
                                                          const struct tt_scan_forward_args *forward)
{
    return (struct tt_scan_backward_args){
        .forward = *forward,
        .do_THW = t[DO].view,
        .dq_TKE = t[DQ].view,
        .dk_TKE = t[DK].view,
        .dv_THW = t[DV].view,
        .da_TH = t[DA].view,
        .db_TH = scan_view(p, t, DB),
        .da_log_H = t[DALOG].view,
        .ddt_bias_H = t[DBIAS].view,
        .dskip_H = scan_view(p, t, DSKIP),
    };
}

/* Runs with scratch and borders that are the device's. */
static inline void run_scan_args(struct test_device *device, struct tt_scan_forward_args *forward,
                                 struct tt_scan_backward_args *backward)
{
    struct test_tensor cu =
        test_tensor_make(TT_I32, forward->sequences.count + 1, TEST_UNUSED, TEST_UNUSED, 0);
    memcpy(cu.view.data, forward->sequences.cu, (size_t)(forward->sequences.count + 1) * sizeof(int32_t));
    TEST_TO_DEVICE(device, &cu);
    forward->sequences.device_cu = cu.view;
    size_t bytes = tt_scan_forward_scratch(device->device, forward), more = 0;
    if (backward != NULL) {
        backward->forward = *forward;
        more = tt_scan_backward_scratch(device->device, backward);
    }
    struct tt_buffer *buffer = NULL;
    size_t most = bytes > more ? bytes : more;
    if (most > 0) test_ok(tt_buffer_create(device->device, most, TT_PURPOSE_SCRATCH, &buffer));
    void *memory = buffer != NULL ? tt_buffer_data(buffer) : NULL;
    forward->scratch = tt_tensor_1d(memory, TT_U8, (int64_t)bytes);
    test_ok(tt_scan_forward(device->stream, forward));
    if (backward != NULL) {
        backward->scratch = tt_tensor_1d(memory, TT_U8, (int64_t)more);
        test_ok(tt_scan_backward(device->stream, backward));
    }
    test_ok(tt_stream_synchronize(device->stream));
    tt_buffer_destroy(buffer);
    test_tensor_free(&cu);
}

/* Forward and backward over all rows. */
static inline void run_scan(struct test_device *device, const struct scan_problem *p,
                            const struct test_tensor *t)
{
    struct tt_scan_forward_args forward = scan_args(p, t);
    struct tt_scan_backward_args backward = scan_gradients(p, t, &forward);
    run_scan_args(device, &forward, &backward);
}

static inline void cut_rows(struct tt_scan_forward_args *args, int64_t first, int64_t count)
{
    tt_tensor *const rows[] = {&args->q_TKE, &args->k_TKE, &args->v_THW,
                               &args->a_TH,  &args->b_TH,  &args->o_THW};
    for (int i = 0; i < 6; i++)
        if (!tt_tensor_is_empty(*rows[i])) *rows[i] = tt_tensor_rows(*rows[i], first, count);
}

/* Forward and backward over one sequence alone. */
static inline void run_scan_part(struct test_device *device, const struct scan_problem *p,
                                 const struct test_tensor *t, int64_t sequence)
{
    int64_t first = p->cu[sequence], count = p->cu[sequence + 1] - first;
    const int32_t cu[2] = {0, (int32_t)count};
    struct tt_scan_forward_args forward = scan_args(p, t);
    struct tt_scan_backward_args backward = scan_gradients(p, t, &forward);
    cut_rows(&forward, first, count);
    forward.sequences = (struct tt_sequences){.cu = cu, .count = 1};
    tt_tensor *const rows[] = {&backward.do_THW, &backward.dq_TKE, &backward.dk_TKE,
                               &backward.dv_THW, &backward.da_TH,  &backward.db_TH};
    for (int i = 0; i < 6; i++)
        if (!tt_tensor_is_empty(*rows[i])) *rows[i] = tt_tensor_rows(*rows[i], first, count);
    run_scan_args(device, &forward, &backward);
}

/* `places`: i32 [2, count]: from, then to. */
static inline struct tt_states scan_states(const struct scan_problem *p, const struct test_tensor *pool,
                                           const struct test_tensor *places, int64_t count)
{
    const struct scan_case *row = p->row;
    tt_tensor view = pool->view;
    struct tt_states states = {.pool = view};
    const int64_t dims[] = {view.dims[0], row->heads, row->width, row->value_width};
    states.pool.rank = 4;
    for (int d = 3; d >= 0; d--) {
        states.pool.dims[d] = dims[d];
        states.pool.strides[d] = d == 3 ? 1 : states.pool.strides[d + 1] * dims[d + 1];
    }
    states.from_B = tt_tensor_1d(places->view.data, TT_I32, count);
    states.to_B = tt_tensor_1d((char *)places->view.data + places->view.strides[0] * 4, TT_I32, count);
    return states;
}

/* Forward over some rows as one sequence, with states. */
static inline void run_scan_rows(struct test_device *device, const struct scan_problem *p,
                                 const struct test_tensor *t, int64_t first, int64_t count,
                                 const struct test_tensor *pool, const struct test_tensor *places)
{
    const int32_t cu[2] = {0, (int32_t)count};
    struct tt_scan_forward_args forward = scan_args(p, t);
    cut_rows(&forward, first, count);
    forward.sequences = (struct tt_sequences){.cu = cu, .count = 1};
    forward.states = scan_states(p, pool, places, 1);
    run_scan_args(device, &forward, NULL);
}

/* Forward over all sequences with states. */
static inline void run_scan_states(struct test_device *device, const struct scan_problem *p,
                                   const struct test_tensor *t, const struct test_tensor *pool,
                                   const struct test_tensor *places)
{
    struct tt_scan_forward_args forward = scan_args(p, t);
    forward.states = scan_states(p, pool, places, p->sequences);
    run_scan_args(device, &forward, NULL);
}

#endif
