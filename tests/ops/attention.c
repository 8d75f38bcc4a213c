#include "backend/ops/attention.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ops/harness.h"

enum { SEQUENCES_MAX = 6 };

struct attention_case {
    int64_t heads, kv_heads, head_dim, window, gap;
    tt_dtype dtype;
    double size;                           /* deviation of q and k: large ones make sharp softmaxes */
    int32_t lengths[SEQUENCES_MAX + 1][2]; /* queries, keys; ends with {-1, -1} */
};

/* clang-format off */
static const struct attention_case cases[] = {
    /* shapes of models */
    {4, 4, 64, 0, 0, TT_F32, 1, {{130, 130}, {-1, -1}}},
    {4, 4, 64, 0, 0, TT_BF16, 1, {{130, 130}, {-1, -1}}},
    {8, 2, 128, 0, 0, TT_F32, 1, {{70, 70}, {65, 65}, {-1, -1}}},
    {8, 2, 128, 0, 8, TT_BF16, 1, {{70, 70}, {65, 65}, {-1, -1}}},
    {14, 2, 64, 0, 5, TT_F32, 1, {{33, 33}, {1, 1}, {0, 0}, {64, 64}, {-1, -1}}},
    {14, 2, 64, 0, 5, TT_BF16, 1, {{33, 33}, {1, 1}, {0, 0}, {64, 64}, {-1, -1}}},
    {4, 2, 256, 0, 0, TT_F32, 1, {{90, 90}, {-1, -1}}},
    {4, 2, 256, 0, 3, TT_BF16, 1, {{90, 90}, {-1, -1}}},
    /* head dimensions that fill no vector */
    {2, 1, 16, 0, 0, TT_F32, 1, {{50, 50}, {-1, -1}}},
    {2, 1, 24, 0, 1, TT_F32, 1, {{50, 50}, {-1, -1}}},
    {2, 2, 80, 0, 1, TT_BF16, 1, {{97, 97}, {-1, -1}}},
    {2, 1, 20, 0, 7, TT_BF16, 1, {{31, 31}, {-1, -1}}},
    {1, 1, 1, 0, 0, TT_F32, 1, {{9, 9}, {-1, -1}}},
    {3, 1, 130, 0, 1, TT_F32, 1, {{40, 40}, {-1, -1}}},
    {3, 3, 7, 0, 0, TT_F32, 1, {{65, 65}, {2, 2}, {-1, -1}}},
    /* nothing to do */
    {2, 1, 32, 0, 0, TT_F32, 1, {{-1, -1}}},
    {2, 1, 32, 0, 0, TT_F32, 1, {{0, 0}, {0, 0}, {-1, -1}}},
    {2, 1, 32, 0, 0, TT_BF16, 1, {{0, 5}, {3, 3}, {0, 0}, {-1, -1}}},
    {2, 2, 32, 0, 0, TT_F32, 1, {{1, 1}, {1, 1}, {1, 1}, {-1, -1}}},
    /* windows: one key, less than a block, across blocks, longer than the sequence */
    {2, 1, 32, 1, 0, TT_F32, 1, {{70, 70}, {-1, -1}}},
    {2, 1, 64, 10, 0, TT_F32, 1, {{150, 150}, {20, 20}, {-1, -1}}},
    {6, 2, 64, 100, 0, TT_BF16, 1, {{250, 250}, {-1, -1}}},
    {2, 2, 128, 64, 0, TT_F32, 1, {{200, 200}, {-1, -1}}},
    {2, 2, 16, 1000, 0, TT_F32, 1, {{40, 40}, {-1, -1}}},
    /* more keys than queries: decoding and chunks of a prompt */
    {4, 2, 64, 0, 0, TT_F32, 1, {{1, 300}, {-1, -1}}},
    {7, 1, 128, 0, 0, TT_BF16, 1, {{1, 70}, {1, 1}, {5, 66}, {-1, -1}}},
    {2, 1, 32, 50, 0, TT_F32, 1, {{3, 200}, {40, 41}, {-1, -1}}},
    /* scores of hundreds */
    {2, 1, 64, 0, 0, TT_F32, 8, {{100, 100}, {-1, -1}}},
    {2, 1, 64, 0, 0, TT_BF16, 8, {{100, 100}, {-1, -1}}},
    /* several key chunks and row blocks */
    {2, 1, 16, 0, 0, TT_F32, 1, {{700, 700}, {-1, -1}}},
    {1, 1, 144, 0, 0, TT_F32, 1, {{300, 300}, {-1, -1}}},
    /* sums of dk and dv that do not fit into the scratch of a thread */
    {1, 1, 128, 0, 0, TT_F32, 1, {{600, 600}, {-1, -1}}},
    {2, 1, 256, 0, 0, TT_BF16, 1, {{270, 270}, {-1, -1}}},
};
/* clang-format on */

enum { Q, K, V, DO, O, LSE, DQ, DK, DV, TENSORS };

struct problem {
    const struct attention_case *row;
    int64_t sequences, rows_q, rows_k;
    int32_t cu_q[SEQUENCES_MAX + 1], cu_k[SEQUENCES_MAX + 1];
    double scale;
    struct test_tensor tensors[TENSORS];
    struct test_tensor device_cu[2]; /* of queries, of keys */
};

static void make_problem(struct problem *p, const struct attention_case *row)
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
    for (int i = 0; i < 2; i++) {
        p->device_cu[i] = test_tensor_make(TT_I32, p->sequences + 1, TEST_UNUSED, TEST_UNUSED, 0);
        memcpy(p->device_cu[i].view.data, i == 0 ? p->cu_q : p->cu_k, (size_t)(p->sequences + 1) * 4);
    }
}

static void free_problem(struct problem *p)
{
    for (int i = 0; i < TENSORS; i++) test_tensor_free(&p->tensors[i]);
    for (int i = 0; i < 2; i++) test_tensor_free(&p->device_cu[i]);
}

static struct tt_attention_forward_args forward_args(const struct problem *p)
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
        .o_THE = p->tensors[O].view,
        .lse_HT = p->tensors[LSE].view,
    };
}

/* The memory that the backward pass asks for, poisoned; empty where it asks for none. */
static struct test_tensor make_scratch(const struct test_device *device, const struct problem *p)
{
    const struct attention_case *row = p->row;
    tt_tensor q = p->tensors[Q].view, dq = p->tensors[DQ].view, dk = p->tensors[DK].view;
    size_t bytes = tt_attention_backward_scratch(
        device->device, p->rows_q > p->rows_k ? p->rows_q : p->rows_k, row->heads, row->kv_heads,
        row->head_dim, q.strides[0], dq.strides[0], dk.strides[0]);
    if (bytes == 0) return (struct test_tensor){0};
    struct test_tensor scratch = {.view = tt_tensor_1d(NULL, TT_U8, (int64_t)bytes), .memory_bytes = bytes};
    scratch.memory = malloc(bytes);
    assert_non_null(scratch.memory);
    memset(scratch.memory, 0xFF, bytes);
    scratch.view.data = scratch.memory;
    return scratch;
}

static void run_op(const struct test_device *device, struct problem *p)
{
    struct test_tensor scratch = make_scratch(device, p);
    test_array_to_device(device, p->tensors, TENSORS);
    test_array_to_device(device, p->device_cu, 2);
    TEST_TO_DEVICE(device, &scratch);
    struct tt_attention_backward_args args = {
        .scratch = scratch.view,
        .forward = forward_args(p),
        .do_THE = p->tensors[DO].view,
        .dq_THE = p->tensors[DQ].view,
        .dk_TKE = p->tensors[DK].view,
        .dv_TKE = p->tensors[DV].view,
    };
    test_ok(tt_attention_forward(device->stream, &args.forward));
    test_ok(tt_attention_backward(device->stream, &args));
    test_array_to_host(device, p->tensors, TENSORS);
    test_array_to_host(device, p->device_cu, 2);
    TEST_TO_HOST(device, &scratch);
    test_tensor_free(&scratch);
}

/* The reference in type `real`, from the definition: all scores of a row at once. o is rounded to `stored`
 * before the backward pass reads it again, as the op's is. */
#define DEFINE_REFERENCE(name, real, real_exp, real_log)                                                     \
    static void name(const struct problem *p, const double *const in[4], double *const out[TENSORS],         \
                     tt_dtype stored)                                                                        \
    {                                                                                                        \
        int64_t H = p->row->heads, KV = p->row->kv_heads, E = p->row->head_dim;                              \
        real *weights = calloc((size_t)(p->rows_k + 1), sizeof *weights);                                    \
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
                        if (weights[j] > most) most = weights[j];                                            \
                    }                                                                                        \
                    for (int64_t j = begin; j < end; j++) sum += real_exp(weights[j] - most);                \
                    real lse = most + real_log(sum);                                                         \
                    out[LSE][h * p->rows_q + i] = (double)lse;                                               \
                    for (int64_t j = begin; j < end; j++) weights[j] = real_exp(weights[j] - lse);           \
                    real o[256] = {0};                                                                       \
                    for (int64_t j = begin; j < end; j++)                                                    \
                        for (int64_t e = 0; e < E; e++)                                                      \
                            o[e] += weights[j] * (real)in[V][(j * KV + kv) * E + e];                         \
                    for (int64_t e = 0; e < E; e++) {                                                        \
                        if (stored != TT_F64) o[e] = (real)test_round((float)o[e], stored);                  \
                        out[O][(i * H + h) * E + e] = (double)o[e];                                          \
                        delta += o[e] * (real)d_out[e];                                                      \
                    }                                                                                        \
                    real dq[256] = {0};                                                                      \
                    for (int64_t j = begin; j < end; j++) {                                                  \
                        real dp = 0;                                                                         \
                        int64_t at = (j * KV + kv) * E;                                                      \
                        for (int64_t e = 0; e < E; e++) dp += (real)d_out[e] * (real)in[V][at + e];          \
                        real ds = weights[j] * (dp - delta) * (real)p->scale;                                \
                        for (int64_t e = 0; e < E; e++) {                                                    \
                            dq[e] += ds * (real)in[K][at + e];                                               \
                            dk[at + e] += ds * (real)q[e];                                                   \
                            dv[at + e] += weights[j] * (real)d_out[e];                                       \
                        }                                                                                    \
                    }                                                                                        \
                    for (int64_t e = 0; e < E; e++) out[DQ][(i * H + h) * E + e] = (double)dq[e];            \
                }                                                                                            \
        for (int64_t i = 0; i < p->rows_k * KV * E; i++) {                                                   \
            out[DK][i] = (double)dk[i];                                                                      \
            out[DV][i] = (double)dv[i];                                                                      \
        }                                                                                                    \
        free(weights);                                                                                       \
        free(dk);                                                                                            \
        free(dv);                                                                                            \
    }

DEFINE_REFERENCE(oracle, double, exp, log)
DEFINE_REFERENCE(plain, float, expf, logf)

static const char *const names[TENSORS] = {"q", "k", "v", "do", "o", "lse", "dq", "dk", "dv"};

static void check_case(const char *isa, int threads, const void *row)
{
    struct test_device device;
    setenv("TRIMTAB_CPU_ISA", isa, 1);
    test_device_open(&device, test_device_kind(), threads);
    struct problem p;
    make_problem(&p, row);
    double *in[4], *exact[TENSORS] = {0}, *simple[TENSORS] = {0};
    for (int i = 0; i < 4; i++) in[i] = test_tensor_values(&p.tensors[i]);
    for (int i = O; i < TENSORS; i++) {
        exact[i] = test_doubles(tt_tensor_count(p.tensors[i].view) + 1);
        simple[i] = test_doubles(tt_tensor_count(p.tensors[i].view) + 1);
    }
    oracle(&p, (const double *const *)in, exact, TT_F64);
    plain(&p, (const double *const *)in, simple, p.row->dtype);
    run_op(&device, &p);
    for (int i = O; i < TENSORS; i++) {
        int64_t count = tt_tensor_count(p.tensors[i].view);
        tt_dtype dtype = i == LSE ? TT_F32 : p.row->dtype;
        for (int64_t j = 0; j < count; j++) simple[i][j] = (double)test_round((float)simple[i][j], dtype);
        double *got = test_tensor_values(&p.tensors[i]);
        /* What a GPU's forward pass leaves in lse is between it and its backward pass. */
        if (i != LSE || test_on_cpu())
            test_close(names[i], got, exact[i], simple[i], count, dtype, i >= DQ ? 3 : 2);
        free(got);
        free(exact[i]);
        free(simple[i]);
    }
    for (int i = 0; i < TENSORS; i++) test_tensor_check_gaps(names[i], &p.tensors[i]);
    for (int i = 0; i < 4; i++) free(in[i]);
    free_problem(&p);
    test_device_close(&device);
    unsetenv("TRIMTAB_CPU_ISA");
}

static void check_best(const void *row)
{
    check_case("", 2, row);
}

static void check_avx2(const void *row)
{
    check_case("avx2", 1, row);
}

static void check_portable(const void *row)
{
    check_case("portable", 1, row);
}

static void close_to_the_oracle(void **state)
{
    (void)state;
    TEST_CASES("best", cases, check_best);
    if (!test_on_cpu()) return;
    TEST_CASES("portable", cases, check_portable);
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f")) TEST_CASES("avx2", cases, check_avx2);
#endif
}

/* clang-format off */
static const struct attention_case gpu_cases[] = {
    {32, 8, 128, 0, 0, TT_BF16, 1, {{1300, 1300}, {37, 37}, {1030, 1030}, {1, 1}, {0, 0}, {600, 600}, {-1, -1}}},
    {32, 8, 128, 0, 2048, TT_BF16, 1, {{1024, 1024}, {700, 700}, {-1, -1}}}, /* queries of a fused q, k, v */
    {28, 4, 128, 0, 0, TT_BF16, 1, {{999, 999}, {-1, -1}}},
    {2, 2, 128, 0, 0, TT_BF16, 1, {{3001, 3001}, {-1, -1}}},
    {14, 2, 64, 0, 0, TT_BF16, 1, {{1111, 1111}, {64, 64}, {128, 128}, {2048, 2048}, {-1, -1}}},
    {32, 8, 64, 0, 0, TT_BF16, 1, {{2000, 2000}, {48, 48}, {-1, -1}}},
    {16, 8, 256, 0, 0, TT_BF16, 1, {{1025, 1025}, {255, 255}, {-1, -1}}},
    {8, 8, 96, 0, 0, TT_BF16, 1, {{777, 777}, {-1, -1}}},
    {32, 8, 128, 500, 0, TT_BF16, 1, {{1500, 1500}, {400, 400}, {-1, -1}}},
    {32, 8, 128, 0, 0, TT_BF16, 1, {{1, 1500}, {1, 300}, {9, 1025}, {-1, -1}}},
};
/* clang-format on */

/* Sequence b as the query heads of key head `kv` see it, out of [rows, heads, E] values. */
static double *slice_of(const struct problem *p, int tensor, const double *values, int64_t b, int64_t kv)
{
    bool keys = tensor == K || tensor == V || tensor == DK || tensor == DV;
    int64_t group = p->row->heads / p->row->kv_heads, E = p->row->head_dim;
    const int32_t *cu = keys ? p->cu_k : p->cu_q;
    int64_t heads = keys ? p->row->kv_heads : p->row->heads, first = keys ? kv : kv * group;
    int64_t taken = keys ? 1 : group, rows = cu[b + 1] - cu[b];
    double *slice = test_doubles(rows * taken * E);
    for (int64_t i = 0; i < rows; i++)
        memcpy(slice + i * taken * E, values + ((cu[b] + i) * heads + first) * E,
               (size_t)(taken * E) * sizeof *slice);
    return slice;
}

static void check_slice(const struct problem *p, double *const values[TENSORS], int64_t b, int64_t kv)
{
    struct attention_case row = *p->row;
    row.heads /= row.kv_heads;
    row.kv_heads = 1;
    memcpy(row.lengths[0], p->row->lengths[b], sizeof row.lengths[0]);
    row.lengths[1][0] = -1;
    struct problem part = {
        .row = &row, .sequences = 1, .rows_q = row.lengths[0][0], .rows_k = row.lengths[0][1]};
    part.cu_q[1] = row.lengths[0][0], part.cu_k[1] = row.lengths[0][1];
    part.scale = p->scale;
    double *in[4], *exact[TENSORS] = {0}, *simple[TENSORS] = {0};
    for (int i = 0; i < 4; i++) in[i] = slice_of(p, i, values[i], b, kv);
    int64_t count_q = part.rows_q * row.heads * row.head_dim, count_k = part.rows_k * row.head_dim;
    for (int i = O; i < TENSORS; i++) {
        exact[i] = test_doubles(count_q + count_k);
        simple[i] = test_doubles(count_q + count_k);
    }
#pragma omp parallel sections
    {
#pragma omp section
        oracle(&part, (const double *const *)in, exact, TT_F64);
#pragma omp section
        plain(&part, (const double *const *)in, simple, row.dtype);
    }
    for (int i = O; i < TENSORS; i++) {
        int64_t count = i == DK || i == DV ? count_k : count_q;
        if (i == LSE) continue;
        double *got = slice_of(p, i, values[i], b, kv);
        for (int64_t j = 0; j < count; j++) simple[i][j] = (double)test_round((float)simple[i][j], row.dtype);
        test_close(names[i], got, exact[i], simple[i], count, row.dtype, i >= DQ ? 3 : 2);
        free(got);
    }
    for (int i = 0; i < 4; i++) free(in[i]);
    for (int i = O; i < TENSORS; i++) free(exact[i]), free(simple[i]);
}

/* The oracle would take minutes for all of it: the first sequence with the last key head, the last with the
 * first. */
static void check_parts(const void *row)
{
    struct test_device device;
    struct problem p;
    test_device_open(&device, test_device_kind(), 1);
    make_problem(&p, row);
    run_op(&device, &p);
    double *values[TENSORS];
    for (int i = 0; i < TENSORS; i++) {
        values[i] = test_tensor_values(&p.tensors[i]);
        test_tensor_check_gaps(names[i], &p.tensors[i]);
        for (int64_t j = 0; i >= O && j < tt_tensor_count(p.tensors[i].view); j++)
            if (i != LSE && !isfinite(values[i][j]))
                fail_msg("%s: element %lld is no number", names[i], (long long)j);
    }
    check_slice(&p, values, 0, p.row->kv_heads - 1);
    check_slice(&p, values, p.sequences - 1, 0);
    for (int i = 0; i < TENSORS; i++) free(values[i]);
    free_problem(&p);
    test_device_close(&device);
}

static void sizes_of_real_models(void **state)
{
    (void)state;
    TEST_SIZES_ONLY();
    TEST_CASES("attention", gpu_cases, check_parts);
}

/* Thread counts for which the backward pass takes its fused and its split form, with more and fewer threads
 * than tasks. */
static void check_threads(const void *row)
{
    struct problem one, many;
    struct test_device device;
    make_problem(&one, row);
    test_device_open(&device, "cpu", 1);
    run_op(&device, &one);
    test_device_close(&device);
    static const int counts[] = {2, 3, 4, 7, 16};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        make_problem(&many, row);
        test_device_open(&device, "cpu", counts[i]);
        run_op(&device, &many);
        test_device_close(&device);
        for (int t = O; t < TENSORS; t++) test_tensor_equal(names[t], &one.tensors[t], &many.tensors[t]);
        free_problem(&many);
    }
    free_problem(&one);
}

static void same_bits_on_any_number_of_threads(void **state)
{
    (void)state;
    TEST_CPU_ONLY();
    TEST_CASES("threads", cases, check_threads);
}

/* A sequence gives the same bits whatever lies beside it. */
static void same_bits_in_any_company(void **state)
{
    (void)state;
    TEST_CPU_ONLY();
    const struct attention_case alone_case = {6, 2, 48, 0, 0, TT_BF16, 1, {{77, 77}, {-1, -1}}};
    const struct attention_case packed_case = {6, 2,       48, 0,
                                               0, TT_BF16, 1,  {{19, 19}, {77, 77}, {35, 35}, {-1, -1}}};
    struct problem alone, packed;
    struct test_device device;
    make_problem(&alone, &alone_case);
    make_problem(&packed, &packed_case);
    for (int i = 0; i < 4; i++) {
        tt_tensor to = tt_tensor_rows(packed.tensors[i].view, 19, 77);
        memcpy(to.data, alone.tensors[i].view.data, tt_tensor_bytes(to));
    }
    test_device_open(&device, "cpu", 2);
    run_op(&device, &alone);
    run_op(&device, &packed);
    for (int i = O; i < TENSORS; i++) {
        if (i == LSE) continue;
        tt_tensor part = tt_tensor_rows(packed.tensors[i].view, 19, 77);
        assert_memory_equal(part.data, alone.tensors[i].view.data, tt_tensor_bytes(part));
    }
    test_device_close(&device);
    free_problem(&alone);
    free_problem(&packed);
}

struct difference {
    const struct problem *p;
    double *in[4], *out[TENSORS];
    int64_t o_count;
};

static double weighted_output(void *context)
{
    struct difference *d = context;
    oracle(d->p, (const double *const *)d->in, d->out, TT_F64);
    double sum = 0;
    for (int64_t i = 0; i < d->o_count; i++) sum += d->out[O][i] * d->in[DO][i];
    return sum;
}

/* The oracle's own gradient, which the op is held against above. */
static void check_gradient(const void *row)
{
    struct problem p;
    make_problem(&p, row);
    struct difference d = {.p = &p, .o_count = tt_tensor_count(p.tensors[O].view)};
    for (int i = 0; i < 4; i++) d.in[i] = test_tensor_values(&p.tensors[i]);
    for (int i = O; i < TENSORS; i++) d.out[i] = test_doubles(tt_tensor_count(p.tensors[i].view));
    weighted_output(&d);
    for (int i = 0; i < 3; i++) {
        int64_t count = tt_tensor_count(p.tensors[i].view);
        double *gradient = test_doubles(count);
        weighted_output(&d); /* at the unmoved inputs */
        memcpy(gradient, d.out[DQ + i], (size_t)count * sizeof *gradient);
        test_gradient(names[DQ + i], weighted_output, &d, d.in[i], gradient, count);
        free(gradient);
    }
    for (int i = 0; i < 4; i++) free(d.in[i]);
    for (int i = O; i < TENSORS; i++) free(d.out[i]);
    free_problem(&p);
}

static void oracle_agrees_with_finite_differences(void **state)
{
    (void)state;
    static const struct attention_case small[] = {
        {4, 2, 6, 0, 0, TT_F32, 1, {{5, 5}, {1, 1}, {3, 3}, {-1, -1}}},
        {3, 1, 4, 2, 0, TT_F32, 1, {{7, 7}, {-1, -1}}},
        {2, 2, 8, 0, 0, TT_F32, 1, {{2, 6}, {-1, -1}}},
    };
    TEST_CASES("small", small, check_gradient);
}

/* Without lse, and with q, k, v as columns of one fused matrix. */
static void fused_columns_without_lse(void **state)
{
    (void)state;
    const struct attention_case row = {4, 2, 32, 0, 0, TT_BF16, 1, {{45, 45}, {-1, -1}}};
    struct problem p;
    make_problem(&p, &row);
    struct test_tensor fused = test_tensor_make(TT_BF16, 45, 8 * 32, TEST_UNUSED, 0);
    struct test_tensor o = test_tensor_make(TT_BF16, 45, 4, 32, 0);
    int64_t at = 0;
    for (int i = 0; i < 3; i++) {
        tt_tensor from = p.tensors[i].view, columns = tt_tensor_cols(fused.view, at, from.dims[1] * 32);
        at += from.dims[1] * 32;
        for (int64_t t = 0; t < 45; t++)
            memcpy((uint16_t *)columns.data + t * columns.strides[0],
                   (uint16_t *)from.data + t * from.strides[0], (size_t)from.dims[1] * 64);
    }
    struct test_device device;
    test_device_open(&device, test_device_kind(), 2);
    test_array_to_device(&device, p.tensors, TENSORS);
    test_array_to_device(&device, p.device_cu, 2);
    TEST_TO_DEVICE(&device, &fused, &o);
    struct tt_attention_forward_args args = forward_args(&p), fused_args = args;
    fused_args.q_THE = tt_tensor_heads(tt_tensor_cols(fused.view, 0, 128), 4);
    fused_args.k_TKE = tt_tensor_heads(tt_tensor_cols(fused.view, 128, 64), 2);
    fused_args.v_TKE = tt_tensor_heads(tt_tensor_cols(fused.view, 192, 64), 2);
    fused_args.o_THE = o.view;
    fused_args.lse_HT = (tt_tensor){0};
    test_ok(tt_attention_forward(device.stream, &args));
    test_ok(tt_attention_forward(device.stream, &fused_args));
    test_array_to_host(&device, p.tensors, TENSORS);
    test_array_to_host(&device, p.device_cu, 2);
    TEST_TO_HOST(&device, &fused, &o);
    test_tensor_equal("o", &p.tensors[O], &o);
    test_tensor_check_gaps("o", &o);
    test_device_close(&device);
    test_tensor_free(&fused);
    test_tensor_free(&o);
    free_problem(&p);
}

static void a_nan_is_not_hidden(void **state)
{
    (void)state;
    const struct attention_case row = {1, 1, 16, 0, 0, TT_F32, 1, {{70, 70}, {-1, -1}}};
    struct problem p;
    make_problem(&p, &row);
    ((float *)p.tensors[K].view.data)[10 * 16] = NAN;
    struct test_device device;
    test_device_open(&device, test_device_kind(), 1);
    run_op(&device, &p);
    const float *o = p.tensors[O].view.data;
    for (int t = 0; t < 70; t++) assert_true(t < 10 ? isfinite(o[t * 16]) : isnan(o[t * 16]));
    test_device_close(&device);
    free_problem(&p);
}

int main(void)
{
    int missing = test_device_missing();
    if (missing != 0) return missing;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(oracle_agrees_with_finite_differences),
        cmocka_unit_test(close_to_the_oracle),
        cmocka_unit_test(sizes_of_real_models),
        cmocka_unit_test(same_bits_on_any_number_of_threads),
        cmocka_unit_test(same_bits_in_any_company),
        cmocka_unit_test(fused_columns_without_lse),
        cmocka_unit_test(a_nan_is_not_hidden),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
