/* The backward pass of a scan, chunk by chunk from the last. With the letters of ops/scan.h, X = grow and R = fade of
 * the rows, gamma the decays between rows, `all` that of the chunk, and the state S before the chunk, forward is
 *
 *     A = strictly lower(share_i <k_i, k_j> gamma_ij);  M = (I + A)^-1;  N = share (V - X (K S));  V' = M N
 *     P = lower(<q_i, k_j> gamma_ij);  O = X (Q S) + P V';  S+ = all S + (R K)^T V'        (Mamba-2: V' = share V)
 *
 * and from the gradients dO and D of O and S+ follow
 *
 *     dV' = P^T dO + R (K D);  F = lower(dO V'^T) gamma;  Y = (X dO) S^T
 *     dQ = F K + Y;  dK = F^T Q + (R V') D^T;  dS = all D + Q^T (X dO)
 *     delta: dN = M^T dV';  B = -strictly lower(dN V'^T) gamma share_i;  dV = share dN;  G = -X dV
 *            dK += (B + B^T) K + G S^T;  dS += K^T G;  dshare = <dN, V - X (K S)> + sum over j of (B kk)_ij / share_i
 *     Mamba-2: dV = share dV' + skip dO;  dshare = <dV', V>
 *
 * The gradient of the sum of g up to row i is the row's sum of F qk, less its column's, plus <Q, Y> - <K, R V' D^T>;
 * with delta also the row's sum of B kk, less its column's, plus <G, K S>; the last row's has the sum of
 * <K, R V' D^T> and all <S, D> besides. That of g sums those from its row on. */
#ifndef TT_VECTOR_LANES

#include <math.h>
#include <omp.h>

#include "backend/cpu/parallel.h"
#include "backend/cpu/scan/scan.h"
#include "base/alloc.h"

static int64_t task_floats(const struct scan_head *head)
{
    return TT_SCAN_CHUNK * (5 * head->stride + 9 * head->value_stride) + 7 * TT_SCAN_CHUNK * TT_SCAN_CHUNK +
           3 * head->stride * head->value_stride;
}

/* The memory of a lane. */
struct lane {
    float *states, *dq, *dk, *values;
};

/* One call of the op. */
struct backward {
    struct tt_stream *stream;
    const struct tt_scan_backward_args *args;
    struct tt_scan_lanes sizes;
    int64_t rows, group;
    float *carried;
};

static struct lane lane_at(const struct backward *run, int64_t lane)
{
    struct lane at = {.states = (float *)run->args->scratch.data + lane * run->sizes.lane};
    at.dq = at.states + run->sizes.states * run->sizes.state;
    at.dk = at.dq + run->sizes.gradients / 2;
    at.values = at.dk + run->sizes.gradients / 2;
    return at;
}

#define TT_VECTOR_SOURCE "backend/cpu/scan/backward.c"
#include "backend/cpu/vector_math_passes.h"

/* The gradients of value heads first .. end, in lanes. */
static tt_status run_heads(const struct backward *run, int64_t first, int64_t end)
{
    const struct tt_scan_forward_args *forward = &run->args->forward;
    void (*backward_task)(const struct tt_scan_backward_args *, const struct scan_head *, int64_t, int64_t,
                          const struct lane *, float *) = TT_BEST(run->stream, backward_task);
    struct scan_head any = tt_scan_head_at(forward, 0);
    int64_t tasks = (end - first) * forward->sequences.count, floats = task_floats(&any);
    int threads = tt_cpu_threads(run->stream, run->rows * (end - first) * any.width * any.value_width);
    float *memory = NULL;
    if (floats > TT_CPU_SCRATCH_BYTES / (int64_t)sizeof(float)) {
        memory = tt_alloc_aligned((size_t)(threads * floats) * sizeof *memory);
        if (memory == NULL) return TT_ERR_MEMORY;
    }
#pragma omp parallel for num_threads(threads) schedule(dynamic, 1)
    for (int64_t task = 0; task < tasks; task++) {
        int64_t sequence = task / (end - first), lane = task % (end - first);
        int thread = omp_get_thread_num();
        struct scan_head head = tt_scan_head_at(forward, first + lane);
        struct lane at = lane_at(run, lane);
        backward_task(run->args, &head, forward->sequences.cu[sequence], forward->sequences.cu[sequence + 1],
                      &at, memory != NULL ? memory + thread * floats : tt_cpu_scratch(run->stream, thread));
    }
    tt_free(memory);
    return TT_OK;
}

/* Sums dq and dk of the lanes over the value heads of a key head, in order. */
static void sum_heads(const struct backward *run, int64_t first, int64_t end)
{
    void (*sum_row)(const struct backward *, int64_t, int64_t, int64_t, int64_t) =
        TT_BEST(run->stream, sum_row);
    int threads = tt_cpu_threads(run->stream, run->rows * (end - first) * run->args->forward.q_TKE.dims[2]);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t row = 0; row < run->rows; row++)
        for (int64_t head = first; head < end;) {
            int64_t stop = (head / run->group + 1) * run->group;
            if (stop > end) stop = end;
            sum_row(run, row, head, stop, first);
            head = stop;
        }
}

static void add_sum(const tt_tensor *to, int64_t head, const float *values, int64_t count, double factor)
{
    if (tt_tensor_is_empty(*to)) return;
    double sum = 0;
    for (int64_t i = 0; i < count; i++) sum += (double)values[i];
    ((float *)to->data)[head] += (float)(sum * factor);
}

tt_status tt_cpu_scan_backward(struct tt_stream *stream, const struct tt_scan_backward_args *args)
{
    const struct tt_scan_forward_args *forward = &args->forward;
    struct backward run = {.stream = stream,
                           .args = args,
                           .sizes = tt_scan_lanes_of(forward),
                           .rows = forward->q_TKE.dims[0],
                           .group = forward->v_THW.dims[1] / forward->q_TKE.dims[1]};
    if (run.rows == 0) return TT_OK;
    run.carried = (float *)args->scratch.data + run.sizes.lanes * run.sizes.lane;
    int64_t heads = forward->v_THW.dims[1];
    for (int64_t first = 0, end; first < heads; first = end) {
        end = first + run.sizes.lanes;
        int64_t stop = run.group > run.sizes.lanes ? (first / run.group + 1) * run.group : heads;
        if (end > stop) end = stop;
        TT_TRY(run_heads(&run, first, end));
        sum_heads(&run, first, end);
        for (int64_t head = first; head < end; head++) {
            const float *values = lane_at(&run, head - first).values;
            add_sum(&args->ddt_bias_H, head, values, run.rows, 1);
            add_sum(&args->da_log_H, head, values + run.rows, run.rows, 1);
            add_sum(&args->dskip_H, head, values + 2 * run.rows, run.rows, 1);
        }
    }
    return TT_OK;
}

#else

#include "backend/cpu/scan/kernels.h"

/* c (+)= a^T b, with a triangle a. */
static void TT_PASS(turned_triangle_times)(float *c, int64_t c_row, const float *a, const float *b,
                                           int64_t b_row, int64_t rows, int64_t columns, bool add)
{
    for (int64_t i = 0; i < rows; i += SCAN_LINE)
        times(c + i * c_row, c_row, a + i * C + i, 1, C, b + i * b_row, b_row, SCAN_LINE, rows - i, columns,
              add);
}
#define turned_triangle_times TT_PASS(turned_triangle_times)

struct TT_PASS(backward_memory) {
    struct scan_matrices at;
    float *q, *dq, *dk;
    float *d_out, *grown, *dv, *inner_gradient, *turned; /* dO, X dO, dV', dN then G; V'^T */
    float *qk, *p, *f;
    float *state_turned, *next, *next_turned; /* S^T; D; D^T */
    double db[C];                             /* gradients of the sums of g */
    float dshare[C];
};
#define backward_memory TT_PASS(backward_memory)

static void TT_PASS(cut_memory)(struct backward_memory *m, const struct scan_head *head, float *memory)
{
    int64_t keys = C * head->stride, values = C * head->value_stride;
    int64_t state = head->stride * head->value_stride;
    float **const of_keys[] = {&m->q, &m->at.k, &m->at.k_turned, &m->dq, &m->dk};
    float **const of_values[] = {&m->at.v,  &m->at.seen, &m->at.rest, &m->at.fresh,      &m->d_out,
                                 &m->grown, &m->dv,      &m->turned,  &m->inner_gradient};
    float **const of_rows[] = {&m->at.gamma, &m->at.kk, &m->at.m, &m->qk, &m->p, &m->f};
    float **const of_states[] = {&m->state_turned, &m->next, &m->next_turned};
    for (int i = 0; i < 5; i++, memory += keys) *of_keys[i] = memory;
    for (int i = 0; i < 9; i++, memory += values) *of_values[i] = memory;
    for (int i = 0; i < 6; i++, memory += C * C) *of_rows[i] = memory;
    for (int i = 0; i < 3; i++, memory += state) *of_states[i] = memory;
    m->at.shared = m->inner_gradient;
}

/* The rows of a chunk, and what follows from them and the state before it. */
static void TT_PASS(load_chunk)(struct backward_memory *m, struct scan_chunk *chunk, const float *state)
{
    const struct scan_head *head = chunk->head;
    tt_scan_read_rates(chunk);
    load_keys(m->at.k, chunk);
    load_head(m->at.v, head->value_stride, &head->args->v_THW, chunk, head->head);
    turn(m->at.k_turned, C, m->at.k, head->stride, chunk->padded, head->stride);
    make_decays(m->at.gamma, chunk);
    make_fresh(&m->at, chunk, state);
}

/* f = the triangle of a V'^T, times gamma. */
static void TT_PASS(against_fresh)(float *f, const float *a, const struct backward_memory *m,
                                   const struct scan_chunk *chunk)
{
    int64_t wide = chunk->head->value_stride;
    times_to_triangle(f, a, wide, m->turned, chunk->padded, wide);
    mask(f, m->at.gamma, chunk->padded);
}

/* Adds the sums of the triangle a_ij b_ij by rows, less those by columns, to db. sums, unless NULL, gets those by
 * rows. In sums of db over later rows most terms cancel, so both have the digits of doubles. */
static void TT_PASS(add_decay_sums)(double *db, float *sums, const float *a, const float *b, int64_t rows)
{
    typedef double wide_lanes __attribute__((vector_size(8 * TT_VECTOR_LANES)));
    wide_lanes columns[C / TT_VECTOR_LANES] = {{0}};
    for (int64_t i = 0; i < rows; i++) {
        wide_lanes row = {0};
        for (int64_t v = 0; v < (i / SCAN_LINE * SCAN_LINE + SCAN_LINE) / TT_VECTOR_LANES; v++) {
            int64_t at = i * C + v * TT_VECTOR_LANES;
            vf part = vload(a, at, false) * vload(b, at, false);
            wide_lanes terms = __builtin_convertvector(part, wide_lanes);
            row += terms;
            columns[v] += terms;
        }
        double sum = 0;
        for (int l = 0; l < TT_VECTOR_LANES; l++) sum += row[l];
        db[i] += sum;
        if (sums != NULL) sums[i] = (float)sum;
    }
    for (int64_t j = 0; j < rows; j++) db[j] -= columns[j / TT_VECTOR_LANES][j % TT_VECTOR_LANES];
}
#define add_decay_sums TT_PASS(add_decay_sums)

/* dV', and D's part of dK and of the decays. */
static void TT_PASS(from_next)(struct backward_memory *m, const struct scan_chunk *chunk, const float *state,
                               bool has_next)
{
    const struct scan_head *head = chunk->head;
    int64_t rows = chunk->padded, wide = head->value_stride, stride = head->stride;
    if (has_next) {
        times(m->dv, wide, m->at.k, stride, 1, m->next, wide, rows, head->width, wide, false);
        for (int64_t i = 0; i < rows; i++) scale_row(m->dv + i * wide, wide, chunk->rates.fade[i]);
        turn(m->next_turned, stride, m->next, wide, stride, wide);
        times(m->dk, stride, m->at.fresh, wide, 1, m->next_turned, stride, rows, wide, stride, false);
        double faded = 0;
        for (int64_t i = 0; i < rows; i++) {
            scale_row(m->dk + i * stride, stride, chunk->rates.fade[i]);
            double part = (double)inner(m->at.k + i * stride, m->dk + i * stride, stride);
            m->db[i] -= part;
            faded += part;
        }
        m->db[rows - 1] += faded;
        if (state != NULL)
            m->db[rows - 1] += (double)chunk->rates.all * (double)inner(state, m->next, stride * wide);
    }
    turned_triangle_times(m->dv, wide, m->p, m->d_out, wide, rows, wide, has_next);
    times_to_triangle(m->f, m->d_out, wide, m->turned, rows, wide);
    mask(m->f, m->at.gamma, rows);
    turned_triangle_times(m->dk, stride, m->f, m->q, stride, rows, stride, has_next);
}

/* dQ, and what the gradient of O says of the decays. */
static void TT_PASS(of_queries)(struct backward_memory *m, const struct scan_chunk *chunk, const float *state)
{
    const struct scan_head *head = chunk->head;
    int64_t rows = chunk->padded, wide = head->value_stride, stride = head->stride;
    add_decay_sums(m->db, NULL, m->f, m->qk, rows);
    if (state != NULL) {
        for (int64_t i = 0; i < rows; i++)
            for (int64_t e = i * wide; e < (i + 1) * wide; e += TT_VECTOR_LANES)
                vstore(m->grown, e, false, vload(m->d_out, e, false) * chunk->rates.grow[i]);
        turn(m->state_turned, stride, state, wide, stride, wide);
        times(m->dq, stride, m->grown, wide, 1, m->state_turned, stride, rows, wide, stride, false);
        for (int64_t i = 0; i < rows; i++)
            m->db[i] += (double)inner(m->q + i * stride, m->dq + i * stride, stride);
    }
    triangle_times(m->dq, stride, m->f, m->at.k, stride, rows, stride, state != NULL);
}

/* dV and dshare from dV', which is overwritten; with the delta rule also dK's part of M, and G in inner_gradient. */
static void TT_PASS(of_values)(struct backward_memory *m, const struct scan_chunk *chunk, const float *state)
{
    const struct scan_head *head = chunk->head;
    const struct scan_rates *rates = &chunk->rates;
    int64_t rows = chunk->padded, wide = head->value_stride, stride = head->stride;
    bool delta = head->args->rule == TT_SCAN_DELTA;
    float *dn = delta ? m->inner_gradient : m->dv, sums[C] = {0};
    if (delta) {
        turned_triangle_times(dn, wide, m->at.m, m->dv, wide, rows, wide, false);
        TT_PASS(against_fresh)(m->f, dn, m, chunk);
        /* f becomes B / share, strictly lower, then B, then B + B^T. */
        for (int64_t i = 0; i < rows; i++)
            for (int64_t j = 0; j < C; j += TT_VECTOR_LANES)
                vstore(m->f, i * C + j, false,
                       j < i / SCAN_LINE * SCAN_LINE + SCAN_LINE ? -vload(m->f, i * C + j, false)
                                                                 : vsplat(0));
        for (int64_t i = 0; i < rows; i++) m->f[i * C + i] = 0;
        double without_share[C] = {0};
        add_decay_sums(without_share, sums, m->f, m->at.kk, rows);
        for (int64_t i = 0; i < rows; i++) scale_row(m->f + i * C, C, rates->share[i]);
        add_decay_sums(m->db, NULL, m->f, m->at.kk, rows);
        for (int64_t i = 0; i < rows; i++)
            for (int64_t j = 0; j < i; j++) m->f[j * C + i] = m->f[i * C + j];
        times(m->dk, stride, m->f, C, 1, m->at.k, stride, rows, rows, stride, true);
    }
    for (int64_t i = 0; i < rows; i++) {
        const float *rest = (delta ? m->at.rest : m->at.v) + i * wide;
        m->dshare[i] = inner(dn + i * wide, rest, wide) + sums[i];
        for (int64_t e = i * wide; e < (i + 1) * wide; e += TT_VECTOR_LANES) {
            vf dv = vload(dn, e, false) * rates->share[i];
            if (delta) vstore(dn, e, false, dv * -rates->grow[i]);
            vstore(m->dv, e, false, vmultiply_add(vload(m->d_out, e, false), vsplat((float)head->skip), dv));
        }
        if (delta && state != NULL) m->db[i] += (double)inner(dn + i * wide, m->at.seen + i * wide, wide);
    }
    if (delta && state != NULL)
        times(m->dk, stride, dn, wide, 1, m->state_turned, stride, rows, wide, stride, true);
}

/* D of the chunk before. */
static void TT_PASS(of_state)(struct backward_memory *m, const struct scan_chunk *chunk, bool has_next)
{
    const struct scan_head *head = chunk->head;
    int64_t wide = head->value_stride, count = head->stride * wide;
    for (int64_t e = 0; has_next && e < count; e += TT_VECTOR_LANES)
        vstore(m->next, e, false, vload(m->next, e, false) * chunk->rates.all);
    times(m->next, wide, m->q, 1, head->stride, m->grown, wide, head->stride, chunk->padded, wide, has_next);
    if (head->args->rule == TT_SCAN_DELTA)
        times(m->next, wide, m->at.k, 1, head->stride, m->inner_gradient, wide, head->stride, chunk->padded,
              wide, true);
}

static void TT_PASS(backward_chunk)(const struct tt_scan_backward_args *args, struct backward_memory *m,
                                    struct scan_chunk *chunk, const float *state, bool has_next,
                                    const struct lane *lane)
{
    const struct scan_head *head = chunk->head;
    int64_t rows = chunk->padded, wide = head->value_stride, count = args->forward.q_TKE.dims[0];
    TT_PASS(load_chunk)(m, chunk, state);
    load_queries(m->q, chunk);
    load_head(m->d_out, wide, &args->do_THW, chunk, head->head);
    memset(m->db, 0, sizeof m->db);
    times_to_triangle(m->qk, m->q, head->stride, m->at.k_turned, rows, head->stride);
    memcpy(m->p, m->qk, (size_t)(rows * C) * sizeof *m->p);
    mask(m->p, m->at.gamma, rows);
    turn(m->turned, C, m->at.fresh, wide, rows, wide);
    TT_PASS(from_next)(m, chunk, state, has_next);
    TT_PASS(of_queries)(m, chunk, state);
    TT_PASS(of_values)(m, chunk, state);
    if (state != NULL) TT_PASS(of_state)(m, chunk, has_next);
    store_head(&args->dv_THW, chunk, head->head, m->dv, wide);
    for (int64_t i = 0; i < chunk->rows; i++) {
        int64_t row = chunk->first + i;
        memcpy(lane->dq + row * head->width, m->dq + i * head->stride, (size_t)head->width * sizeof(float));
        memcpy(lane->dk + row * head->width, m->dk + i * head->stride, (size_t)head->width * sizeof(float));
        lane->values[2 * count + row] = inner(m->d_out + i * wide, m->at.v + i * wide, wide);
    }
    for (int64_t i = rows - 1; i > 0; i--) m->db[i - 1] += m->db[i];
    tt_scan_store_rates(args, chunk, m->db, m->dshare, lane->values, count);
}

/* The rows first .. end of one value head: the states before all chunks but the first, then the gradients. */
static void TT_PASS(backward_task)(const struct tt_scan_backward_args *args, const struct scan_head *head,
                                   int64_t first, int64_t end, const struct lane *lane, float *memory)
{
    struct backward_memory m;
    int64_t size = head->stride * head->value_stride, row = first;
    TT_PASS(cut_memory)(&m, head, memory);
    const float *state = NULL;
    for (; row + TT_SCAN_CHUNK < end; row += TT_SCAN_CHUNK) {
        struct scan_chunk chunk = scan_chunk_at(head, row, end);
        TT_PASS(load_chunk)(&m, &chunk, state);
        float *next = lane->states + tt_scan_state_at(row + TT_SCAN_CHUNK) * size;
        advance(next, state, &m.at, m.dq, &chunk);
        state = next;
    }
    for (bool has_next = false; row >= first && row < end; row -= TT_SCAN_CHUNK, has_next = true) {
        struct scan_chunk chunk = scan_chunk_at(head, row, end);
        state = row > first ? lane->states + tt_scan_state_at(row) * size : NULL;
        TT_PASS(backward_chunk)(args, &m, &chunk, state, has_next, lane);
    }
}

/* The gradient of a row before its norm: root (scale dx - n <n, scale dx>), n = x root. */
static void TT_PASS(store_gradient)(const tt_tensor *to, const tt_tensor *x, int64_t row, int64_t head,
                                    float *gradient, double eps, double scale)
{
    int64_t width = x->dims[2], at = row * x->strides[0] + head * x->strides[1];
    int64_t to_at = row * to->strides[0] + head * to->strides[1];
    bool bf16 = x->dtype == TT_BF16;
    vf squares = vsplat(0), product = vsplat(0);
    for (int64_t e = 0; eps > 0 && e < width; e += TT_VECTOR_LANES) {
        vf value = vload_part(x->data, at + e, bf16, width - e);
        squares = vmultiply_add(value, value, squares);
        product = vmultiply_add(value, vload_part(gradient, e, false, width - e), product);
    }
    double root = eps > 0 ? 1.0 / sqrt((double)vsum(squares) + eps) : 1.0;
    float factor = (float)(root * scale);
    float along = eps > 0 ? (float)((double)vsum(product) * root * root * root * scale) : 0;
    for (int64_t e = 0; e < width; e += TT_VECTOR_LANES) {
        vf value = vload_part(gradient, e, false, width - e) * factor;
        if (eps > 0) value -= vload_part(x->data, at + e, bf16, width - e) * along;
        vstore_part(to->data, to_at + e, bf16, value, width - e);
    }
}

/* One row of dq and dk of a key head, from its value heads first .. end, of which lane 0 has `base`. */
static void TT_PASS(sum_row)(const struct backward *run, int64_t row, int64_t first, int64_t end,
                             int64_t base)
{
    const struct tt_scan_forward_args *forward = &run->args->forward;
    int64_t width = forward->q_TKE.dims[2], half = run->sizes.gradients / 2;
    for (int i = 0; i < 2; i++) {
        float sum[TT_SCAN_WIDTH_MAX];
        float *carried = run->carried + i * half + row * width;
        bool begins = first % run->group == 0;
        for (int64_t head = first; head < end; head++) {
            struct lane lane = lane_at(run, head - base);
            const float *part = (i == 0 ? lane.dq : lane.dk) + row * width;
            const float *before = head > first ? sum : begins ? NULL : carried;
            for (int64_t e = 0; e < width; e += TT_VECTOR_LANES) {
                vf value = vload_part(part, e, false, width - e);
                if (before != NULL) value = vload_part(before, e, false, width - e) + value;
                vstore_part(sum, e, false, value, width - e);
            }
        }
        if (end % run->group != 0) {
            memcpy(carried, sum, (size_t)width * sizeof *sum);
            continue;
        }
        int64_t key_head = first / run->group;
        if (i == 0) TT_PASS(store_gradient)
        (&run->args->dq_TKE, &forward->q_TKE, row, key_head, sum, forward->norm_eps, forward->scale);
        else TT_PASS(store_gradient)(&run->args->dk_TKE, &forward->k_TKE, row, key_head, sum,
                                     forward->norm_eps, 1);
    }
}

#endif
