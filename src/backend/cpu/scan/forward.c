/* The forward pass of a scan: sequences in chunks, or row by row where they are short. */
#ifndef TT_VECTOR_LANES

#include <math.h>
#include <omp.h>

#include "backend/cpu/parallel.h"
#include "backend/cpu/scan/scan.h"
#include "base/alloc.h"

/* The floats that a task needs: rows of three kinds, five matrices of rows by rows, and a state. */
static int64_t task_floats(const struct scan_head *head)
{
    return TT_SCAN_CHUNK * (4 * head->stride + 4 * head->value_stride) + 5 * TT_SCAN_CHUNK * TT_SCAN_CHUNK +
           head->stride * head->value_stride;
}

#define TT_VECTOR_SOURCE "backend/cpu/scan/forward.c"
#include "backend/cpu/vector_math_passes.h"

static const float *state_from(const struct tt_scan_forward_args *args, int64_t sequence, int64_t head)
{
    const struct tt_states *states = &args->states;
    if (tt_tensor_is_empty(states->pool)) return NULL;
    int64_t from = ((const int32_t *)states->from_B.data)[sequence];
    if (from < 0) return NULL;
    return (const float *)states->pool.data + from * states->pool.strides[0] + head * states->pool.strides[1];
}

static float *state_to(const struct tt_scan_forward_args *args, int64_t sequence, int64_t head)
{
    const struct tt_states *states = &args->states;
    if (tt_tensor_is_empty(states->pool)) return NULL;
    int64_t to = ((const int32_t *)states->to_B.data)[sequence];
    if (to < 0) return NULL;
    return (float *)states->pool.data + to * states->pool.strides[0] + head * states->pool.strides[1];
}

/* One task per sequence and value head. */
tt_status tt_cpu_scan_forward(struct tt_stream *stream, const struct tt_scan_forward_args *args)
{
    void (*forward_task)(const struct scan_head *, int64_t, int64_t, const float *, float *, float *) =
        TT_BEST(stream, forward_task);
    int64_t heads = args->v_THW.dims[1], tasks = args->sequences.count * heads;
    if (tasks == 0) return TT_OK;
    struct scan_head any = tt_scan_head_at(args, 0);
    int64_t floats = task_floats(&any);
    int threads = tt_cpu_threads(stream, args->v_THW.dims[0] * heads * any.width * any.value_width);
    float *memory = NULL;
    if (floats > TT_CPU_SCRATCH_BYTES / (int64_t)sizeof(float)) {
        memory = tt_alloc_aligned((size_t)(threads * floats) * sizeof *memory);
        if (memory == NULL) return TT_ERR_MEMORY;
    }
#pragma omp parallel for num_threads(threads) schedule(dynamic, 1)
    for (int64_t task = 0; task < tasks; task++) {
        int thread = omp_get_thread_num();
        int64_t sequence = task / heads;
        struct scan_head head = tt_scan_head_at(args, task % heads);
        forward_task(&head, args->sequences.cu[sequence], args->sequences.cu[sequence + 1],
                     state_from(args, sequence, head.head), state_to(args, sequence, head.head),
                     memory != NULL ? memory + thread * floats : tt_cpu_scratch(stream, thread));
    }
    tt_free(memory);
    return TT_OK;
}

#else

#include "backend/cpu/scan/kernels.h"

/* A state [E][W] in the layout of scratch; NULL: zeros. */
static void TT_PASS(copy_state)(float *to, const float *from, const struct scan_head *head)
{
    memset(to, 0, (size_t)(head->stride * head->value_stride) * sizeof *to);
    for (int64_t e = 0; from != NULL && e < head->width; e++)
        memcpy(to + e * head->value_stride, from + e * head->value_width,
               (size_t)head->value_width * sizeof *to);
}
#define copy_state TT_PASS(copy_state)

/* Columns first .. first + left (at most a block of them) of the state, one row of the sequence: decays it, adds the
 * row, and reads o. The state is read twice, and stays in the first-level cache between. */
TT_INLINE void TT_PASS(step_columns)(const struct scan_chunk *chunk, const float *q, const float *k,
                                     const float *v, const float *from, float *to, float *o, int64_t first,
                                     int64_t left, const int vectors)
{
    const struct scan_head *head = chunk->head;
    const int64_t row = head->value_stride;
    float all = chunk->rates.all;
    vf fresh[4], out[4];
    (void)left;
#pragma GCC unroll 4
    for (int i = 0; i < vectors; i++) fresh[i] = out[i] = vsplat(0);
    if (head->args->rule == TT_SCAN_DELTA)
        for (int64_t e = 0; e < head->width; e++)
#pragma GCC unroll 4
            for (int i = 0; i < vectors; i++)
                fresh[i] = vmultiply_add(vsplat(k[e]),
                                         vload(from, e * row + first + i * TT_VECTOR_LANES, false), fresh[i]);
#pragma GCC unroll 4
    for (int i = 0; i < vectors; i++)
        fresh[i] = (vload(v, first + i * TT_VECTOR_LANES, false) - fresh[i] * all) * chunk->rates.share[0];
    for (int64_t e = 0; e < head->width; e++)
#pragma GCC unroll 4
        for (int i = 0; i < vectors; i++) {
            int64_t at = e * row + first + i * TT_VECTOR_LANES;
            vf state = vmultiply_add(vsplat(k[e]), fresh[i], vload(from, at, false) * all);
            vstore(to, at, false, state);
            out[i] = vmultiply_add(vsplat(q[e]), state, out[i]);
        }
#pragma GCC unroll 4
    for (int i = 0; i < vectors; i++) vstore(o, first + i * TT_VECTOR_LANES, false, out[i]);
}

/* o += skip v */
static void TT_PASS(add_skip)(float *o, const float *v, const struct scan_chunk *chunk)
{
    float skip = (float)chunk->head->skip;
    for (int64_t e = 0; e < chunk->padded * chunk->head->value_stride && skip != 0; e += TT_VECTOR_LANES)
        vstore(o, e, false, vmultiply_add(vload(v, e, false), vsplat(skip), vload(o, e, false)));
}
#define add_skip TT_PASS(add_skip)

/* A few rows one by one, from the state in `from`, in the layout of scratch, to `to`. */
static void TT_PASS(step_rows)(const struct scan_head *head, int64_t first, int64_t end, const float *from,
                               float *to, float *memory)
{
    float *q = memory, *k = q + SCAN_LINE * head->stride, *v = k + SCAN_LINE * head->stride;
    float *o = v + SCAN_LINE * head->value_stride;
    const int64_t block = 4 * TT_VECTOR_LANES;
    for (; first < end; first++, from = to) {
        struct scan_chunk chunk = scan_chunk_at(head, first, first + 1);
        tt_scan_read_rates(&chunk);
        load_queries(q, &chunk);
        load_keys(k, &chunk);
        load_head(v, head->value_stride, &head->args->v_THW, &chunk, head->head);
        for (int64_t w = 0; w < head->value_stride; w += block) {
            int64_t left = head->value_stride - w;
            if (left >= block)
                TT_PASS(step_columns)(&chunk, q, k, v, from, to, o, w, block, 4);
            else
                for (; w < head->value_stride; w += TT_VECTOR_LANES)
                    TT_PASS(step_columns)(&chunk, q, k, v, from, to, o, w, TT_VECTOR_LANES, 1);
        }
        memset(o + head->value_stride, 0, (size_t)((SCAN_LINE - 1) * head->value_stride) * sizeof *o);
        add_skip(o, v, &chunk);
        store_head(&head->args->o_THW, &chunk, head->head, o, head->value_stride);
    }
}

struct TT_PASS(forward_memory) {
    struct scan_matrices at;
    float *q, *faded, *o, *p, *state;
};

static void TT_PASS(forward_chunk)(const struct TT_PASS(forward_memory) * m, struct scan_chunk *chunk,
                                   const float *state, bool last)
{
    const struct scan_head *head = chunk->head;
    const struct scan_matrices *at = &m->at;
    int64_t rows = chunk->padded, wide = head->value_stride;
    tt_scan_read_rates(chunk);
    load_queries(m->q, chunk);
    load_keys(at->k, chunk);
    load_head(at->v, wide, &head->args->v_THW, chunk, head->head);
    turn(at->k_turned, C, at->k, head->stride, rows, head->stride);
    make_decays(at->gamma, chunk);
    make_fresh(at, chunk, state);
    times_to_triangle(m->p, m->q, head->stride, at->k_turned, rows, head->stride);
    mask(m->p, at->gamma, rows);
    if (state != NULL) {
        times(m->o, wide, m->q, head->stride, 1, state, wide, rows, head->width, wide, false);
        for (int64_t i = 0; i < rows; i++) scale_row(m->o + i * wide, wide, chunk->rates.grow[i]);
    }
    triangle_times(m->o, wide, m->p, at->fresh, wide, rows, wide, state != NULL);
    add_skip(m->o, at->v, chunk);
    store_head(&head->args->o_THW, chunk, head->head, m->o, wide);
    if (!last) advance(m->state, state, at, m->faded, chunk);
}

/* The rows first .. end of one value head. `from` NULL: zeros; `to` NULL: the last state is dropped. */
static void TT_PASS(forward_task)(const struct scan_head *head, int64_t first, int64_t end, const float *from,
                                  float *to, float *memory)
{
    struct TT_PASS(forward_memory) m = {0};
    int64_t keys = C * head->stride, values = C * head->value_stride;
    m.q = memory, m.at.k = m.q + keys, m.at.k_turned = m.at.k + keys, m.faded = m.at.k_turned + keys;
    m.at.v = m.faded + keys, m.at.seen = m.at.v + values, m.at.shared = m.at.seen;
    m.at.fresh = m.at.seen + values, m.o = m.at.fresh + values, m.at.gamma = m.o + values;
    m.at.kk = m.at.gamma + C * C, m.at.m = m.at.kk + C * C, m.p = m.at.m + C * C, m.state = m.p + C * C;
    const float *state = NULL;
    if (from != NULL || end - first <= TT_SCAN_ROWS_MAX) {
        copy_state(m.state, from, head);
        state = m.state;
    }
    if (end - first <= TT_SCAN_ROWS_MAX) {
        TT_PASS(step_rows)(head, first, end, m.state, m.state, memory);
    } else {
        for (; first < end; first += TT_SCAN_CHUNK, state = m.state) {
            struct scan_chunk chunk = scan_chunk_at(head, first, end);
            TT_PASS(forward_chunk)(&m, &chunk, state, to == NULL && first + chunk.rows == end);
        }
    }
    for (int64_t e = 0; to != NULL && e < head->width; e++)
        memcpy(to + e * head->value_width, m.state + e * head->value_stride,
               (size_t)head->value_width * sizeof *to);
}

#endif
