/* Attention in the sizes of real models, on GPUs: the whole op, held against an oracle of parts of it. */
#include "ops/attention_problem.h"

/* clang-format off */
static const struct attention_case gpu_cases[] = {
    {32, 8, 128, 0, 0, TT_BF16, 1, {{1300, 1300}, {37, 37}, {1030, 1030}, {1, 1}, {0, 0}, {600, 600}, {-1, -1}}, 0},
    {32, 8, 128, 0, 2048, TT_BF16, 1, {{1024, 1024}, {700, 700}, {-1, -1}}, 0}, /* queries of a fused q, k, v */
    {28, 4, 128, 0, 0, TT_BF16, 1, {{999, 999}, {-1, -1}}, 0},
    {2, 2, 128, 0, 0, TT_BF16, 1, {{3001, 3001}, {-1, -1}}, 0},
    {14, 2, 64, 0, 0, TT_BF16, 1, {{1111, 1111}, {64, 64}, {128, 128}, {2048, 2048}, {-1, -1}}, 0},
    {32, 8, 64, 0, 0, TT_BF16, 1, {{2000, 2000}, {48, 48}, {-1, -1}}, 0},
    {16, 8, 256, 0, 0, TT_BF16, 1, {{1025, 1025}, {255, 255}, {-1, -1}}, 0},
    {8, 8, 96, 0, 0, TT_BF16, 1, {{777, 777}, {-1, -1}}, 0},
    {32, 8, 128, 500, 0, TT_BF16, 1, {{1500, 1500}, {400, 400}, {-1, -1}}, 0},
    {32, 8, 128, 0, 0, TT_BF16, 1, {{1, 1500}, {1, 300}, {9, 1025}, {-1, -1}}, 0},
    {16, 8, 256, 0, 0, TT_BF16, 4, {{1025, 1025}, {255, 255}, {-1, -1}}, 50}, /* Gemma 2 9B */
    {32, 16, 128, 500, 0, TT_BF16, 4, {{1500, 1500}, {400, 400}, {-1, -1}}, 50},
    {14, 2, 64, 0, 0, TT_BF16, 3, {{1111, 1111}, {64, 64}, {-1, -1}}, 30},
    {8, 2, 512, 0, 0, TT_BF16, 1, {{700, 700}, {64, 64}, {0, 0}, {129, 129}, {-1, -1}}, 0}, /* Gemma 4, full layers */
    {8, 1, 512, 0, 8, TT_BF16, 1, {{65, 65}, {1, 1}, {513, 513}, {-1, -1}}, 0},
    {4, 4, 512, 300, 0, TT_BF16, 1, {{777, 777}, {100, 100}, {-1, -1}}, 0},
    {8, 2, 512, 0, 0, TT_BF16, 1, {{1, 700}, {1, 300}, {9, 525}, {-1, -1}}, 0},
    {6, 3, 320, 0, 0, TT_BF16, 1, {{600, 600}, {77, 77}, {-1, -1}}, 0},
    {4, 2, 512, 200, 0, TT_BF16, 4, {{600, 600}, {64, 64}, {-1, -1}}, 50},
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

/* A part of a case, taken out: the oracle would take minutes for all of it. */
struct part {
    struct attention_case row;
    struct problem p;
    double *in[4], *got[TENSORS], *exact[OUTPUTS], *simple[OUTPUTS];
};

enum { PARTS = 2 * sizeof gpu_cases / sizeof gpu_cases[0] };
static struct part parts[PARTS];

static void take_part(const struct problem *p, double *const values[TENSORS], int64_t b, int64_t kv,
                      struct part *part)
{
    struct attention_case *row = &part->row;
    *row = *p->row;
    row->heads /= row->kv_heads;
    row->kv_heads = 1;
    memcpy(row->lengths[0], p->row->lengths[b], sizeof row->lengths[0]);
    row->lengths[1][0] = -1;
    part->p = (struct problem){.row = row, .sequences = 1, .scale = p->scale};
    part->p.rows_q = part->p.cu_q[1] = row->lengths[0][0];
    part->p.rows_k = part->p.cu_k[1] = row->lengths[0][1];
    int64_t count = (part->p.rows_q * row->heads + part->p.rows_k) * row->head_dim;
    for (int i = 0; i < TENSORS; i++) {
        if (i < O) part->in[i] = slice_of(p, i, values[i], b, kv);
        if (i < O) continue;
        if (i != LSE) part->got[i] = slice_of(p, i, values[i], b, kv);
        part->exact[i] = test_doubles(count);
        part->simple[i] = test_doubles(count);
    }
}

/* Runs the case; takes out the first sequence with the last key head, and the last with the first. */
static void run_case(const void *row)
{
    struct test_device device;
    struct problem p;
    size_t number = (size_t)((const struct attention_case *)row - gpu_cases);
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
    take_part(&p, values, 0, p.row->kv_heads - 1, &parts[2 * number]);
    take_part(&p, values, p.sequences - 1, 0, &parts[2 * number + 1]);
    for (int i = 0; i < TENSORS; i++) free(values[i]);
    free_problem(&p);
    test_device_close(&device);
}

static void check_part(struct part *part)
{
    int64_t E = part->row.head_dim, count_q = part->p.rows_q * part->row.heads * E,
            count_k = part->p.rows_k * E;
    for (int i = O; i < TENSORS; i++) {
        int64_t count = i == DK || i == DV ? count_k : count_q;
        if (i == LSE) continue;
        for (int64_t j = 0; j < count; j++)
            part->simple[i][j] = (double)test_round((float)part->simple[i][j], part->row.dtype);
        /* Kernels that round probabilities and their gradients to bf16 put one element of 262,400 on the
           other side of a border of rounding than plain code, which does not: 3.1 times its largest error. */
        test_close(names[i], part->got[i], part->exact[i], part->simple[i], count, part->row.dtype,
                   i >= DQ ? 4 : 2);
    }
    for (int i = 0; i < TENSORS; i++) {
        if (i < O) free(part->in[i]);
        free(part->got[i]), free(part->exact[i]), free(part->simple[i]);
    }
}

static void check_parts(const void *row)
{
    size_t number = (size_t)((const struct attention_case *)row - gpu_cases);
    check_part(&parts[2 * number]);
    check_part(&parts[2 * number + 1]);
}

static void sizes_of_real_models(void **state)
{
    (void)state;
    TEST_SIZES_ONLY();
    TEST_CASES("running", gpu_cases, run_case);
#pragma omp parallel for schedule(dynamic)
    for (size_t i = 0; i < 2 * PARTS; i++) {
        struct part *part = &parts[i / 2];
        if (i % 2 == 0) oracle(&part->p, (const double *const *)part->in, part->exact, TT_F64);
        if (i % 2 == 1) plain(&part->p, (const double *const *)part->in, part->simple, part->row.dtype);
    }
    TEST_CASES("attention", gpu_cases, check_parts);
}

int main(void)
{
    int missing = test_device_missing();
    if (missing != 0) return missing;
    const struct CMUnitTest tests[] = {cmocka_unit_test(sizes_of_real_models)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
