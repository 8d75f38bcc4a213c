/* For the tests of attention: a problem with its tensors, a reference from the definition, the op on any
 * device.
 */
#ifndef TT_TESTS_OPS_ATTENTION_PROBLEM_H
#define TT_TESTS_OPS_ATTENTION_PROBLEM_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend/ops/attention.h"
#include "ops/harness.h"

enum { SEQUENCES_MAX = 6 };

struct attention_case {
    int64_t heads, kv_heads, head_dim, window, gap;
    tt_dtype dtype;
    double size;                           /* deviation of q and k: large ones make sharp softmaxes */
    int32_t lengths[SEQUENCES_MAX + 1][2]; /* queries, keys; ends with {-1, -1} */
    float soft_cap;                        /* 0: none */
};

/* TERMS is of the oracle alone: the largest of what cancels when it forms dS = P (dP - delta), one number. DSINKS: the
 * gradients of the sinks. */
enum { SINK_GRADIENT = 2 }; /* of what is there before the op adds to it */
enum { Q, K, V, DO, O, LSE, DQ, DK, DV, TENSORS, TERMS = TENSORS, DSINKS, OUTPUTS };

/* The mean of the sinks of problems that are made next, whose deviation is 2; 0: there are none. */
static double sinks_mean;

struct problem {
    const struct attention_case *row;
    int64_t sequences, rows_q, rows_k;
    int32_t cu_q[SEQUENCES_MAX + 1], cu_k[SEQUENCES_MAX + 1];
    double scale;
    struct test_tensor tensors[TENSORS];
    struct test_tensor device_cu[2]; /* of queries, of keys */
    struct test_tensor sinks[2];     /* f32 [H], and their gradients, to which the op adds */
    double *sink;                    /* their values; NULL: none */
};

static inline void make_problem(struct problem *p, const struct attention_case *row)
{
    memset(p, 0, sizeof *p);
    p->row = row;
    for (; row->lengths[p->sequences][0] >= 0; p->sequences++) {
        int64_t b = p->sequences;
        p->cu_q[b + 1] = p->cu_q[b] + row->lengths[b][0];
        p->cu_k[b + 1] = p->cu_k[b] + row->lengths[b][1];
    }
    p->rows_q = p->cu_q[p->sequences];
    p->rows_k = p->cu_k[p->sequences];
    p->scale = 1 / sqrt((double)row->head_dim);
    for (int i = 0; i < TENSORS; i++) {
        bool keys = i == K || i == V || i == DK || i == DV;
        double size = i == Q || i == K ? row->size : 1;
        if (i == LSE)
            p->tensors[i] =
                test_tensor_make(TT_F32, row->heads, p->rows_q, TEST_UNUSED, test_on_cpu() ? 3 : 0);
        else
            p->tensors[i] = test_tensor_random(row->dtype, keys ? p->rows_k : p->rows_q,
                                               keys ? row->kv_heads : row->heads, row->head_dim, row->gap,
                                               (uint64_t)i + 1, size);
        if (i >= O) test_tensor_poison(&p->tensors[i]);
    }
    p->sinks[0] = test_tensor_random(TT_F32, row->heads, TEST_UNUSED, TEST_UNUSED, 0, 20, 2);
    p->sinks[1] = test_tensor_make(TT_F32, row->heads, TEST_UNUSED, TEST_UNUSED, 0);
    for (int64_t h = 0; h < row->heads; h++) {
        ((float *)p->sinks[0].view.data)[h] += (float)sinks_mean;
        ((float *)p->sinks[1].view.data)[h] = SINK_GRADIENT;
    }
    if (sinks_mean != 0) p->sink = test_tensor_values(&p->sinks[0]);
    for (int i = 0; i < 2; i++) {
        p->device_cu[i] = test_tensor_make(TT_I32, p->sequences + 1, TEST_UNUSED, TEST_UNUSED, 0);
        memcpy(p->device_cu[i].view.data, i == 0 ? p->cu_q : p->cu_k, (size_t)(p->sequences + 1) * 4);
    }
}

static inline void free_problem(struct problem *p)
{
    test_array_free(p->tensors, TENSORS);
    test_array_free(p->device_cu, 2);
    test_array_free(p->sinks, 2);
    free(p->sink);
}

static inline struct tt_attention_forward_args forward_args(const struct problem *p)
{
    int64_t longest_q = 0, longest_k = 0;
    for (int64_t b = 0; b < p->sequences; b++) {
        if (p->row->lengths[b][0] > longest_q) longest_q = p->row->lengths[b][0];
        if (p->row->lengths[b][1] > longest_k) longest_k = p->row->lengths[b][1];
    }
    return (struct tt_attention_forward_args){
        .q_THE = p->tensors[Q].view,
        .k_TKE = p->tensors[K].view,
        .v_TKE = p->tensors[V].view,
        .cu_q = p->cu_q,
        .cu_k = p->cu_k,
        .device_cu_q = p->device_cu[0].view,
        .device_cu_k = p->device_cu[1].view,
        .sequence_count = p->sequences,
        .max_length_q = longest_q,
        .max_length_k = longest_k,
        .scale = p->scale,
        .window = p->row->window,
        .soft_cap = p->row->soft_cap,
        .sinks_H = p->sink != NULL ? p->sinks[0].view : (tt_tensor){0},
        .o_THE = p->tensors[O].view,
        .lse_HT = p->tensors[LSE].view,
    };
}

/* The memory that the backward pass asks for, poisoned; empty where it asks for none. */
static inline struct test_tensor make_scratch(const struct test_device *device, const struct problem *p)
{
    struct tt_attention_backward_args args = {
        .forward = {.q_THE = p->tensors[Q].view, .k_TKE = p->tensors[K].view},
        .dq_THE = p->tensors[DQ].view,
        .dk_TKE = p->tensors[DK].view,
    };
    size_t bytes = tt_attention_backward_scratch(device->device, &args);
    if (bytes == 0) return (struct test_tensor){0};
    struct test_tensor scratch = {.view = tt_tensor_1d(NULL, TT_U8, (int64_t)bytes), .memory_bytes = bytes};
    scratch.memory = malloc(bytes);
    assert_non_null(scratch.memory);
    memset(scratch.memory, 0xFF, bytes);
    scratch.view.data = scratch.memory;
    return scratch;
}

static inline void run_op(const struct test_device *device, struct problem *p)
{
    struct test_tensor scratch = make_scratch(device, p);
    test_array_to_device(device, p->tensors, TENSORS);
    test_array_to_device(device, p->device_cu, 2);
    test_array_to_device(device, p->sinks, 2);
    TEST_TO_DEVICE(device, &scratch);
    struct tt_attention_backward_args args = {
        .scratch = scratch.view,
        .forward = forward_args(p),
        .do_THE = p->tensors[DO].view,
        .dq_THE = p->tensors[DQ].view,
        .dk_TKE = p->tensors[DK].view,
        .dv_TKE = p->tensors[DV].view,
        .dsinks_H = p->sink != NULL ? p->sinks[1].view : (tt_tensor){0},
    };
    test_ok(tt_attention_forward(device->stream, &args.forward));
    test_ok(tt_attention_backward(device->stream, &args));
    test_array_to_host(device, p->tensors, TENSORS);
    test_array_to_host(device, p->device_cu, 2);
    test_array_to_host(device, p->sinks, 2);
    TEST_TO_HOST(device, &scratch);
    test_tensor_free(&scratch);
}

/* The reference in type `real`, from the definition: all scores of a row at once. o is rounded to `stored`
 * before the backward pass reads it again, as the op's is. */
#define DEFINE_REFERENCE(name, real, real_exp, real_log, real_tanh)                                          \
    static inline void name(const struct problem *p, const double *const in[4], double *const out[OUTPUTS],  \
                            tt_dtype stored)                                                                 \
    {                                                                                                        \
        int64_t H = p->row->heads, KV = p->row->kv_heads, E = p->row->head_dim;                              \
        real *weights = calloc((size_t)(p->rows_k + 1), sizeof *weights);                                    \
        real *slopes = calloc((size_t)(p->rows_k + 1), sizeof *slopes);                                      \
        real cap = (real)p->row->soft_cap;                                                                   \
        real *sinks = calloc((size_t)H, sizeof *sinks);                                                      \
        real *dk = calloc((size_t)(p->rows_k * KV * E + 1), sizeof *dk);                                     \
        real *dv = calloc((size_t)(p->rows_k * KV * E + 1), sizeof *dv);                                     \
        for (int64_t b = 0; b < p->sequences; b++)                                                           \
            for (int64_t i = p->cu_q[b]; i < p->cu_q[b + 1]; i++)                                            \
                for (int64_t h = 0; h < H; h++) {                                                            \
                    int64_t kv = h / (H / KV), end = i - p->cu_q[b + 1] + p->cu_k[b + 1] + 1;                \
                    int64_t begin = p->row->window > 0 ? end - p->row->window : 0;                           \
                    if (begin < p->cu_k[b]) begin = p->cu_k[b];                                              \
                    const double *q = in[Q] + (i * H + h) * E, *d_out = in[DO] + (i * H + h) * E;            \
                    real most = -(real)1e30, sum = 0, delta = 0;                                             \
                    for (int64_t j = begin; j < end; j++) {                                                  \
                        real score = 0;                                                                      \
                        for (int64_t e = 0; e < E; e++)                                                      \
                            score += (real)q[e] * (real)in[K][(j * KV + kv) * E + e];                        \
                        weights[j] = score * (real)p->scale;                                                 \
                        slopes[j] = 1;                                                                       \
                        if (cap > 0) {                                                                       \
                            real t = real_tanh(weights[j] / cap);                                            \
                            weights[j] = cap * t;                                                            \
                            slopes[j] = 1 - t * t;                                                           \
                        }                                                                                    \
                        if (weights[j] > most) most = weights[j];                                            \
                    }                                                                                        \
                    for (int64_t j = begin; j < end; j++) sum += real_exp(weights[j] - most);                \
                    if (p->sink != NULL && (real)p->sink[h] > most) {                                        \
                        sum *= real_exp(most - (real)p->sink[h]);                                            \
                        most = (real)p->sink[h];                                                             \
                    }                                                                                        \
                    if (p->sink != NULL) sum += real_exp((real)p->sink[h] - most);                           \
                    real lse = most + real_log(sum);                                                         \
                    out[LSE][h * p->rows_q + i] = (double)lse;                                               \
                    for (int64_t j = begin; j < end; j++) weights[j] = real_exp(weights[j] - lse);           \
                    real o[TT_ATTENTION_HEAD_DIM_MAX] = {0};                                                 \
                    for (int64_t j = begin; j < end; j++)                                                    \
                        for (int64_t e = 0; e < E; e++)                                                      \
                            o[e] += weights[j] * (real)in[V][(j * KV + kv) * E + e];                         \
                    for (int64_t e = 0; e < E; e++) {                                                        \
                        if (stored != TT_F64) o[e] = (real)test_round((float)o[e], stored);                  \
                        out[O][(i * H + h) * E + e] = (double)o[e];                                          \
                        delta += o[e] * (real)d_out[e];                                                      \
                    }                                                                                        \
                    if (p->sink != NULL) sinks[h] -= real_exp((real)p->sink[h] - lse) * delta;               \
                    real terms = 0;                                                                          \
                    real dq[TT_ATTENTION_HEAD_DIM_MAX] = {0};                                                \
                    for (int64_t j = begin; j < end; j++) {                                                  \
                        real dp = 0;                                                                         \
                        int64_t at = (j * KV + kv) * E;                                                      \
                        for (int64_t e = 0; e < E; e++) dp += (real)d_out[e] * (real)in[V][at + e];          \
                        terms += weights[j] * ((dp < 0 ? -dp : dp) + (delta < 0 ? -delta : delta));          \
                        real ds = weights[j] * (dp - delta) * slopes[j] * (real)p->scale;                    \
                        for (int64_t e = 0; e < E; e++) {                                                    \
                            dq[e] += ds * (real)in[K][at + e];                                               \
                            dk[at + e] += ds * (real)q[e];                                                   \
                            dv[at + e] += weights[j] * (real)d_out[e];                                       \
                        }                                                                                    \
                    }                                                                                        \
                    if (out[TERMS] != NULL && (double)terms > *out[TERMS]) *out[TERMS] = (double)terms;      \
                    for (int64_t e = 0; e < E; e++) out[DQ][(i * H + h) * E + e] = (double)dq[e];            \
                }                                                                                            \
        for (int64_t i = 0; i < p->rows_k * KV * E; i++) {                                                   \
            out[DK][i] = (double)dk[i];                                                                      \
            out[DV][i] = (double)dv[i];                                                                      \
        }                                                                                                    \
        for (int64_t h = 0; h < H && out[DSINKS] != NULL; h++) out[DSINKS][h] = (double)sinks[h];            \
        free(sinks);                                                                                         \
        free(weights);                                                                                       \
        free(slopes);                                                                                        \
        free(dk);                                                                                            \
        free(dv);                                                                                            \
    }

DEFINE_REFERENCE(oracle, double, exp, log, tanh)
DEFINE_REFERENCE(plain, float, expf, logf, tanhf)

static const char *const names[TENSORS] = {"q", "k", "v", "do", "o", "lse", "dq", "dk", "dv"};

/* The error that fp32 sums make where their terms cancel: dP and delta are known to about 2^-24 of their size
 * each, and what is left of their difference meets the largest key (in dQ) or query (in dK). Plain code may
 * be exact there: with one key it subtracts a sum from itself. On cpus the op does so too. */
static inline double attention_cancellation(const struct problem *p, int tensor, double terms,
                                            const double *other, int64_t count)
{
    double largest = 0;
    if (test_on_cpu() || (tensor != DQ && tensor != DK)) return 0;
    for (int64_t i = 0; i < count; i++) largest = fmax(largest, fabs(other[i]));
    return 2 * 0x1p-24 * terms * p->scale * largest;
}

#endif
