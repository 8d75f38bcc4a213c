#include "model/factors.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/lapack.h"

static const double one = 1, zero = 0;

static double *new_doubles(int64_t count)
{
    return tt_alloc_aligned((size_t)count * sizeof(double));
}

/* ---- Orthonormal columns ---- */

static double dot(const double *a, const double *b, int64_t count)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++) sum += a[i] * b[i];
    return sum;
}

/* Takes the earlier columns out of one, twice, because the first time leaves a part by rounding. */
static void take_out(double *q_RO, int64_t rows, int64_t column)
{
    double *own = q_RO + column * rows;
    for (int turn = 0; turn < 2; turn++)
        for (int64_t k = 0; k < column; k++) {
            const double *other = q_RO + k * rows;
            double along = dot(own, other, rows);
            for (int64_t i = 0; i < rows; i++) own[i] -= along * other[i];
        }
}

void tt_factor_orthonormalize(double *q_RO, int64_t rows, int64_t r)
{
    /* of a column's length: rounding leaves so much of one without a part of its own */
    const double least = 1e-13;
    int64_t unit = 0;
    for (int64_t column = 0; column < r; column++) {
        double *own = q_RO + column * rows, before = sqrt(dot(own, own, rows));
        take_out(q_RO, rows, column);
        double length = sqrt(dot(own, own, rows));
        while (!(length > least * before) && unit < rows) {
            memset(own, 0, (size_t)rows * sizeof *own);
            own[unit++] = before = 1;
            take_out(q_RO, rows, column);
            length = sqrt(dot(own, own, rows));
            /* some unit vector has more than the mean */
            if (length * length * (double)rows < 0.5) length = 0;
        }
        for (int64_t i = 0; i < rows && length > 0; i++) own[i] /= length;
    }
}

/* ---- Eigenvectors ---- */

/* The largest r eigenvalues of g [n, n], of which the upper triangle is set, and their vectors z [n, r], ascending. */
static tt_status largest_of(const struct tt_lapack *lapack, double *g_NN, int n, int r, double *w_N,
                            double *z_NR)
{
    int from = n - r + 1, found = 0, info = 0, work_count = -1, index_count = -1, asked_index;
    double asked;
    int *support = tt_calloc(2 * (size_t)n, sizeof *support), *index = NULL;
    double *work = NULL;
    tt_status status = TT_OK;
    if (support == NULL) return TT_ERR_MEMORY;
    lapack->syevr("V", "I", "U", &n, g_NN, &n, &zero, &zero, &from, &n, &zero, &found, w_N, z_NR, &n, support,
                  &asked, &work_count, &asked_index, &index_count, &info, 1, 1, 1);
    work_count = (int)asked;
    index_count = asked_index;
    work = new_doubles(work_count);
    index = tt_calloc((size_t)index_count, sizeof *index);
    if (work == NULL || index == NULL) TT_GO(TT_ERR_MEMORY);
    lapack->syevr("V", "I", "U", &n, g_NN, &n, &zero, &zero, &from, &n, &zero, &found, w_N, z_NR, &n, support,
                  work, &work_count, index, &index_count, &info, 1, 1, 1);
    if (info != 0 || found != r)
        status = tt_fail(TT_ERR_DATA,
                         "the weight has no decomposition: LAPACK's dsyevr ends with %d; it may have "
                         "numbers that are not finite",
                         info);
out:
    tt_free(work);
    tt_free(index);
    tt_free(support);
    return status;
}

/* Vector k of the smaller side, of eigenvalue s^2, and W' of it, which is s times that of the other side. */
struct pairs {
    const double *z_NR, *p_MR, *w_N;
    int64_t n, m, r;
};

/* The vectors of both sides, the largest first, as A or B: `by_rows` has a row for each vector. */
static void put(const struct pairs *pairs, bool smaller, bool by_rows, double scaling, float *to)
{
    int64_t count = smaller ? pairs->n : pairs->m, r = pairs->r;
    for (int64_t k = 0; k < r; k++) {
        double squared = pairs->w_N[r - 1 - k], s = squared > 0 ? sqrt(squared) : 0;
        double by = smaller ? sqrt(s / scaling) : s > 0 ? 1 / sqrt(s * scaling) : 0;
        const double *vector = (smaller ? pairs->z_NR : pairs->p_MR) + (r - 1 - k) * count;
        for (int64_t i = 0; i < count; i++) to[by_rows ? k * count + i : i * r + k] = (float)(by * vector[i]);
    }
}

tt_status tt_factor_top(const double *w_OI, int64_t out, int64_t in, int64_t r, double scaling, float *a_RI,
                        float *b_OR)
{
    const struct tt_lapack *lapack;
    bool wide = out <= in; /* rows are fewer */
    int rows = (int)out, columns = (int)in, rank = (int)r, n = wide ? rows : columns,
        m = wide ? columns : rows;
    tt_status status = TT_OK;
    TT_TRY(tt_lapack_open(&lapack));
    double *g_NN = new_doubles((int64_t)n * n), *w_N = new_doubles(n);
    double *z_NR = new_doubles((int64_t)n * r), *p_MR = new_doubles((int64_t)m * r);
    if (g_NN == NULL || w_N == NULL || z_NR == NULL || p_MR == NULL) TT_GO(TT_ERR_MEMORY);
    /* by columns, W is [in, out] */
    lapack->syrk("U", wide ? "T" : "N", &n, &m, &one, w_OI, &columns, &zero, g_NN, &n, 1, 1);
    TT_GO(largest_of(lapack, g_NN, n, rank, w_N, z_NR));
    lapack->gemm(wide ? "N" : "T", "N", &m, &rank, &n, &one, w_OI, &columns, z_NR, &n, &zero, p_MR, &m, 1, 1);
    const struct pairs pairs = {.z_NR = z_NR, .p_MR = p_MR, .w_N = w_N, .n = n, .m = m, .r = r};
    put(&pairs, !wide, true, scaling, a_RI);
    put(&pairs, wide, false, scaling, b_OR);
out:
    tt_free(g_NN);
    tt_free(w_N);
    tt_free(z_NR);
    tt_free(p_MR);
    return status;
}

/* ---- A random space ---- */

/* B = Q X, the vectors of the projection X back in the space of all outputs. */
static void put_back(const double *q_RO, int64_t out, int64_t r, const float *x_RR, float *b_OR)
{
    for (int64_t o = 0; o < out; o++)
        for (int64_t k = 0; k < r; k++) {
            double sum = 0;
            for (int64_t j = 0; j < r; j++) sum += q_RO[j * out + o] * (double)x_RR[j * r + k];
            b_OR[o * r + k] = (float)sum;
        }
}

tt_status tt_factor_random(const double *w_OI, int64_t out, int64_t in, int64_t r, int64_t steps,
                           struct tt_rng rng, double scaling, float *a_RI, float *b_OR)
{
    const struct tt_lapack *lapack;
    int rows = (int)out, columns = (int)in, rank = (int)r;
    tt_status status = TT_OK;
    TT_TRY(tt_lapack_open(&lapack));
    double *q_RO = new_doubles(out * r), *x_RI = new_doubles(in * r);
    float *x_RR = tt_alloc_aligned((size_t)(r * r) * sizeof *x_RR);
    if (q_RO == NULL || x_RI == NULL || x_RR == NULL) TT_GO(TT_ERR_MEMORY);
    for (int64_t i = 0; i < in * r; i++) x_RI[i] = tt_rng_normal(rng, (uint64_t)i);
    for (int64_t step = 0; step <= steps; step++) {
        lapack->gemm("T", "N", &rows, &rank, &columns, &one, w_OI, &columns, x_RI, &columns, &zero, q_RO,
                     &rows, 1, 1);
        tt_factor_orthonormalize(q_RO, out, r);
        lapack->gemm("N", "N", &columns, &rank, &rows, &one, w_OI, &columns, q_RO, &rows, &zero, x_RI,
                     &columns, 1, 1);
        if (step < steps) tt_factor_orthonormalize(x_RI, in, r);
    }
    /* x_RI is Q' W, by rows [r, in] */
    TT_GO(tt_factor_top(x_RI, r, in, r, scaling, a_RI, x_RR));
    put_back(q_RO, out, r, x_RR, b_OR);
out:
    tt_free(q_RO);
    tt_free(x_RI);
    tt_free(x_RR);
    return status;
}
