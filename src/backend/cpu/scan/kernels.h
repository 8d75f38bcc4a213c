/* Common kernels of a scan's two directions. Compiled once per instruction set, like vector_math.h. Matrices are rows
 * of floats: q, k [C][stride], v and what has its shape [C][value_stride], states [stride][value_stride], matrices of
 * rows by rows [C][C], of which a triangle holds the rows up to a row's own. Rows and columns behind the last are 0. */
#include "backend/cpu/products.h"

#define C TT_SCAN_CHUNK

/* c (+)= a b, with rows x columns of c, and of a the elements i * a_row + k * a_step. */
static void TT_PASS(times)(float *c, int64_t c_row, const float *a, int64_t a_row, int64_t a_step,
                           const float *b, int64_t b_row, int64_t rows, int64_t depth, int64_t columns,
                           bool add)
{
    const struct product p = {c, c_row, a, a_row, a_step, b, b_row, rows, depth};
    if (add)
        multiply_add(&p, columns / TT_VECTOR_LANES);
    else
        multiply(&p, columns / TT_VECTOR_LANES);
}
#define times TT_PASS(times)

/* c = the lower triangle of a b^T, from b^T [width][C]; whole blocks of rows. */
static void TT_PASS(times_to_triangle)(float *c, const float *a, int64_t a_row, const float *b_turned,
                                       int64_t rows, int64_t width)
{
    for (int64_t i = 0; i < rows; i += SCAN_LINE)
        times(c + i * C, C, a + i * a_row, a_row, 1, b_turned, C, SCAN_LINE, width, i + SCAN_LINE, false);
}
#define times_to_triangle TT_PASS(times_to_triangle)

/* c (+)= a b, with a triangle a. */
static void TT_PASS(triangle_times)(float *c, int64_t c_row, const float *a, const float *b, int64_t b_row,
                                    int64_t rows, int64_t columns, bool add)
{
    for (int64_t i = 0; i < rows; i += SCAN_LINE)
        times(c + i * c_row, c_row, a + i * C, C, 1, b, b_row, SCAN_LINE, i + SCAN_LINE, columns, add);
}
#define triangle_times TT_PASS(triangle_times)

/* to[j][i] = from[i][j]; the counts are multiples of four. */
static void TT_PASS(turn)(float *to, int64_t to_row, const float *from, int64_t from_row, int64_t rows,
                          int64_t columns)
{
    typedef float four __attribute__((vector_size(16), aligned(4), may_alias));
    typedef float held __attribute__((vector_size(16)));
    for (int64_t j = 0; j < columns; j += 4)
        for (int64_t i = 0; i < rows; i += 4) {
            const float *at = from + i * from_row + j;
            held a = *(const four *)at, b = *(const four *)(at + from_row),
                 c = *(const four *)(at + 2 * from_row), d = *(const four *)(at + 3 * from_row);
            held ab = __builtin_shufflevector(a, b, 0, 4, 1, 5),
                 ab2 = __builtin_shufflevector(a, b, 2, 6, 3, 7);
            held cd = __builtin_shufflevector(c, d, 0, 4, 1, 5),
                 cd2 = __builtin_shufflevector(c, d, 2, 6, 3, 7);
            float *out = to + j * to_row + i;
            *(four *)out = __builtin_shufflevector(ab, cd, 0, 1, 4, 5);
            *(four *)(out + to_row) = __builtin_shufflevector(ab, cd, 2, 3, 6, 7);
            *(four *)(out + 2 * to_row) = __builtin_shufflevector(ab2, cd2, 0, 1, 4, 5);
            *(four *)(out + 3 * to_row) = __builtin_shufflevector(ab2, cd2, 2, 3, 6, 7);
        }
}
#define turn TT_PASS(turn)

/* The rows of one head, widened. */
static void TT_PASS(load_head)(float *to, int64_t stride, const tt_tensor *x, const struct scan_chunk *chunk,
                               int64_t head)
{
    int64_t width = x->dims[2], whole = width / TT_VECTOR_LANES * TT_VECTOR_LANES;
    bool bf16 = x->dtype == TT_BF16;
    for (int64_t i = 0; i < chunk->rows; i++, to += stride) {
        int64_t at = (chunk->first + i) * x->strides[0] + head * x->strides[1], e = 0;
        if (bf16)
            for (; e < whole; e += TT_VECTOR_LANES) vstore(to, e, false, vload(x->data, at + e, true));
        else
            for (; e < whole; e += TT_VECTOR_LANES) vstore(to, e, false, vload(x->data, at + e, false));
        for (; e < stride; e += TT_VECTOR_LANES)
            vstore(to, e, false,
                   e < width ? vload_some(x->data, at + e, bf16,
                                          width - e < TT_VECTOR_LANES ? width - e : TT_VECTOR_LANES)
                             : vsplat(0));
    }
    memset(to, 0, (size_t)((chunk->padded - chunk->rows) * stride) * sizeof *to);
}
#define load_head TT_PASS(load_head)

/* Stores rows of one head, rounded. */
static void TT_PASS(store_head)(const tt_tensor *x, const struct scan_chunk *chunk, int64_t head,
                                const float *from, int64_t stride)
{
    int64_t width = x->dims[2];
    bool bf16 = x->dtype == TT_BF16;
    for (int64_t i = 0; i < chunk->rows; i++, from += stride) {
        int64_t at = (chunk->first + i) * x->strides[0] + head * x->strides[1];
        for (int64_t e = 0; e < width; e += TT_VECTOR_LANES)
            vstore_part(x->data, at + e, bf16, vload(from, e, false), width - e);
    }
}
#define store_head TT_PASS(store_head)

/* The inner product of two rows of `count` floats, a multiple of SCAN_LINE. */
TT_INLINE float TT_PASS(inner)(const float *a, const float *b, int64_t count)
{
    vf sum[2] = {{0}, {0}};
    for (int64_t e = 0; e < count; e += 2 * TT_VECTOR_LANES) {
        sum[0] = vmultiply_add(vload(a, e, false), vload(b, e, false), sum[0]);
        if (TT_VECTOR_LANES < SCAN_LINE || e + TT_VECTOR_LANES < count)
            sum[1] = vmultiply_add(vload(a, e + TT_VECTOR_LANES, false), vload(b, e + TT_VECTOR_LANES, false),
                                   sum[1]);
    }
    return vsum(sum[0] + sum[1]);
}
#define inner TT_PASS(inner)

TT_INLINE void TT_PASS(scale_row)(float *row, int64_t count, float factor)
{
    for (int64_t e = 0; e < count; e += TT_VECTOR_LANES) vstore(row, e, false, vload(row, e, false) * factor);
}
#define scale_row TT_PASS(scale_row)

/* Divides rows by the roots of their squares, and multiplies them by `scale`. */
static void TT_PASS(normalize_head)(float *rows, const struct scan_chunk *chunk, float *roots, double eps,
                                    double scale)
{
    int64_t stride = chunk->head->stride;
    for (int64_t i = 0; i < chunk->rows; i++) {
        float *row = rows + i * stride;
        roots[i] = eps > 0 ? (float)(1.0 / sqrt((double)inner(row, row, stride) + eps)) : 1.0f;
        if (eps > 0 || scale != 1) scale_row(row, stride, (float)((double)roots[i] * scale));
    }
}

static void TT_PASS(load_queries)(float *q, struct scan_chunk *chunk)
{
    const struct tt_scan_forward_args *args = chunk->head->args;
    load_head(q, chunk->head->stride, &args->q_TKE, chunk, chunk->head->key_head);
    TT_PASS(normalize_head)(q, chunk, chunk->q_root, args->norm_eps, args->scale);
}
#define load_queries TT_PASS(load_queries)

static void TT_PASS(load_keys)(float *k, struct scan_chunk *chunk)
{
    const struct tt_scan_forward_args *args = chunk->head->args;
    load_head(k, chunk->head->stride, &args->k_TKE, chunk, chunk->head->key_head);
    TT_PASS(normalize_head)(k, chunk, chunk->k_root, args->norm_eps, 1);
}
#define load_keys TT_PASS(load_keys)

/* exp(x) of an x <= 0, and 0 where a float would not be normal. */
TT_INLINE vf TT_PASS(decay)(vf x)
{
    return vselect((vi)(x < vsplat(-87.0f)), vsplat(0), vexp(x));
}

/* gamma[i][j] = exp(sum of g over j < t <= i) up to the row's own, then 0. The sums are differences of the sums up to
 * the rows, which are exact to twice a float's digits, and none is above 0: nothing overflows. */
static void TT_PASS(make_decays)(float *gamma, const struct scan_chunk *chunk)
{
    const struct scan_rates *rates = &chunk->rates;
    vi lanes;
    for (int i = 0; i < TT_VECTOR_LANES; i++) lanes[i] = i;
    for (int64_t i = 0; i < chunk->padded; i++)
        for (int64_t j = 0; j < i / SCAN_LINE * SCAN_LINE + SCAN_LINE; j += TT_VECTOR_LANES) {
            vf sum = (rates->high[i] - vload(rates->high, j, false)) +
                     (rates->low[i] - vload(rates->low, j, false));
            vf factor = TT_PASS(decay)(vmin(vsplat(0), sum));
            vi seen = (vi)(lanes + (int32_t)j <= vsplat_int((int32_t)i));
            vstore(gamma, i * C + j, false, vselect(seen, factor, vsplat(0)));
        }
}
#define make_decays TT_PASS(make_decays)

/* m = (I + strictly lower(share_i kk_ij gamma_ij))^-1, row by row: m_i = e_i - sum over j < i of a_ij m_j. */
static void TT_PASS(invert)(float *m, const float *kk, const float *gamma, const struct scan_chunk *chunk)
{
    for (int64_t i = 0; i < chunk->padded; i++) {
        vf row[C / TT_VECTOR_LANES];
#pragma GCC unroll 16
        for (int v = 0; v < C / TT_VECTOR_LANES; v++) row[v] = vsplat(0);
        for (int64_t j = 0; j < i; j++) {
            vf a = vsplat(-(chunk->rates.share[i] * kk[i * C + j] * gamma[i * C + j]));
#pragma GCC unroll 16
            for (int v = 0; v < C / TT_VECTOR_LANES; v++)
                row[v] = vmultiply_add(a, vload(m, j * C + v * TT_VECTOR_LANES, false), row[v]);
        }
#pragma GCC unroll 16
        for (int v = 0; v < C / TT_VECTOR_LANES; v++) vstore(m, i * C + v * TT_VECTOR_LANES, false, row[v]);
        m[i * C + i] = 1;
    }
}
#define invert TT_PASS(invert)

/* a[i][j] *= b[i][j] in the triangle. */
static void TT_PASS(mask)(float *a, const float *b, int64_t rows)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < i / SCAN_LINE * SCAN_LINE + SCAN_LINE; j += TT_VECTOR_LANES)
            vstore(a, i * C + j, false, vload(a, i * C + j, false) * vload(b, i * C + j, false));
}
#define mask TT_PASS(mask)

/* The matrices that both directions make of a chunk. */
struct TT_PASS(scan_matrices) {
    float *k, *k_turned, *v;
    float *gamma, *kk, *m;
    float *seen;   /* k S: what the state says of a row; with the delta rule */
    float *rest;   /* v - grow seen */
    float *fresh;  /* v': what a row adds to the state */
    float *shared; /* share rest; may be `seen` where nothing reads that afterwards */
};
#define scan_matrices TT_PASS(scan_matrices)

/* Makes v' of a chunk from its rows and the state before it (NULL: 0). */
static void TT_PASS(make_fresh)(const struct scan_matrices *at, struct scan_chunk *chunk, const float *state)
{
    const struct scan_head *head = chunk->head;
    const struct scan_rates *rates = &chunk->rates;
    int64_t rows = chunk->padded, wide = head->value_stride;
    bool delta = head->args->rule == TT_SCAN_DELTA;
    if (delta) {
        times_to_triangle(at->kk, at->k, head->stride, at->k_turned, rows, head->stride);
        invert(at->m, at->kk, at->gamma, chunk);
        if (state != NULL)
            times(at->seen, wide, at->k, head->stride, 1, state, wide, rows, head->width, wide, false);
    }
    float *shared = delta ? at->shared : at->fresh;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t e = i * wide; e < (i + 1) * wide; e += TT_VECTOR_LANES) {
            vf rest = vload(at->v, e, false);
            if (delta && state != NULL) rest -= vload(at->seen, e, false) * rates->grow[i];
            if (at->rest != NULL) vstore(at->rest, e, false, rest);
            vstore(shared, e, false, rest * rates->share[i]);
        }
    if (delta) triangle_times(at->fresh, wide, at->m, shared, wide, rows, wide, false);
}
#define make_fresh TT_PASS(make_fresh)

/* next = all * state + (fade k)^T v'; next may be the state. `faded` has the memory of k. */
static void TT_PASS(advance)(float *next, const float *state, const struct scan_matrices *at, float *faded,
                             const struct scan_chunk *chunk)
{
    const struct scan_head *head = chunk->head;
    int64_t wide = head->value_stride, count = head->stride * wide;
    for (int64_t i = 0; i < chunk->padded; i++)
        for (int64_t e = i * head->stride; e < (i + 1) * head->stride; e += TT_VECTOR_LANES)
            vstore(faded, e, false, vload(at->k, e, false) * chunk->rates.fade[i]);
    for (int64_t e = 0; e < count && state != NULL; e += TT_VECTOR_LANES)
        vstore(next, e, false, vload(state, e, false) * chunk->rates.all);
    times(next, wide, faded, 1, head->stride, at->fresh, wide, head->stride, chunk->padded, wide,
          state != NULL);
}
#define advance TT_PASS(advance)
