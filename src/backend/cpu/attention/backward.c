/* The backward pass of attention, in panels of query rows. */
#ifndef TT_VECTOR_LANES

#include <assert.h>
#include <math.h>
#include <omp.h>

#include "backend/cpu/attention/attention.h"
#include "base/alloc.h"

enum { SUMS_FLOATS = 2 * 384 * 128 }; /* maximum size of the sums of dk and dv in a thread's scratch */

/* The sums of dk and dv of one key/value head for the keys [begin, end), each [end - begin][stride]. */
struct key_sums {
    float *dk, *dv;
    int64_t stride; /* E rounded up to whole vectors */
    int64_t begin, end;
};

#define TT_VECTOR_SOURCE "backend/cpu/attention/backward.c"
#include "backend/cpu/vector_math_passes.h"

typedef void backward_rows_kernel(const struct tt_attention_backward_args *, const struct attention_block *,
                                  float *, const struct key_sums *, bool);

/* One call of the op. */
struct backward {
    struct tt_stream *stream;
    const struct tt_attention_backward_args *args;
    int threads;
    int64_t kv_heads, head_dim, group, stride;
    backward_rows_kernel *rows;
    void (*store_sums)(const struct tt_attention_backward_args *, const struct attention_block *,
                       const struct key_sums *);
};

/* Computes dk and dv of the keys [begin, end) of a sequence from all rows that see them, in order. With
 * `with_dq` it also computes dq of those rows, which then must see no other keys. */
static void sum_keys(const struct backward *run, int64_t sequence, int64_t kv_head, int64_t begin,
                     int64_t end, float *sums_memory, bool with_dq)
{
    const struct tt_attention_forward_args *forward = &run->args->forward;
    float *scratch = tt_cpu_scratch(run->stream, omp_get_thread_num());
    int64_t rows = attention_block_rows(run->head_dim), floats = (end - begin) * run->stride;
    struct key_sums sums = {.dk = sums_memory != NULL ? sums_memory
                                                      : scratch + TT_CPU_SCRATCH_BYTES / 4 - SUMS_FLOATS,
                            .stride = run->stride,
                            .begin = begin,
                            .end = end};
    sums.dv = sums.dk + floats;
    memset(sums.dk, 0, (size_t)(2 * floats) * sizeof(float));
    struct attention_block block = {
        .query_row = forward->cu_q[sequence],
        .key_row = forward->cu_k[sequence],
        .length_q = forward->cu_q[sequence + 1] - forward->cu_q[sequence],
        .length_k = forward->cu_k[sequence + 1] - forward->cu_k[sequence],
        .kv_head = kv_head,
        .group = run->group,
        .window = forward->window,
    };
    int64_t row_count = block.length_q * run->group;
    for (block.first_row = 0; block.first_row < row_count; block.first_row += rows) {
        block.row_count = row_count - block.first_row < rows ? row_count - block.first_row : rows;
        if (attention_keys_of_row(&block, block.first_row + block.row_count - 1).end <= begin) continue;
        if (attention_keys_of_row(&block, block.first_row).begin >= end) break;
        run->rows(run->args, &block, scratch, &sums, with_dq);
    }
    run->store_sums(run->args, &block, &sums);
}

/* One task per sequence and key/value head. Every score is computed once; dk and dv of the whole sequence are
 * summed in fp32 over the query rows, and dq of a row is complete after its block. */
static tt_status run_fused(const struct backward *run, int64_t longest)
{
    const struct tt_attention_forward_args *forward = &run->args->forward;
    int64_t floats = 2 * longest * run->stride, tasks = forward->sequence_count * run->kv_heads;
    float *memory = NULL;
    if (floats > SUMS_FLOATS) {
        memory = tt_alloc_aligned((size_t)run->threads * (size_t)floats * sizeof *memory);
        if (memory == NULL) return TT_ERR_MEMORY;
    }
#pragma omp parallel for num_threads(run->threads) schedule(dynamic, 1)
    for (int64_t task = 0; task < tasks; task++) {
        int64_t sequence = task / run->kv_heads;
        float *mine = memory != NULL ? memory + omp_get_thread_num() * floats : NULL;
        sum_keys(run, sequence, task % run->kv_heads, 0,
                 forward->cu_k[sequence + 1] - forward->cu_k[sequence], mine, true);
    }
    tt_free(memory);
    return TT_OK;
}

/* Computes one chunk of keys. The chunks of sequence b begin at cu_k[b] / keys + b, as slots do in attention.h. */
static void sum_chunk(const struct backward *run, int64_t slot, int64_t kv_head, int64_t keys)
{
    const int32_t *cu_k = run->args->forward.cu_k;
    int64_t low = 0, high = run->args->forward.sequence_count;
    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        if (cu_k[middle] / keys + middle <= slot)
            low = middle;
        else
            high = middle;
    }
    int64_t begin = (slot - cu_k[low] / keys - low) * keys, length = cu_k[low + 1] - cu_k[low];
    if (begin >= length) return;
    sum_keys(run, low, kv_head, begin, begin + keys < length ? begin + keys : length, NULL, false);
}

/* More and smaller tasks, which compute the scores twice: first dq by blocks of rows, then dk and dv by chunks
 * of keys. Every sum has the same order as in run_fused, so the results are equal bit for bit. */
static void run_split(const struct backward *run)
{
    const struct tt_attention_forward_args *forward = &run->args->forward;
    int64_t slots = tt_attention_slots(forward), kv_heads = run->kv_heads;
#pragma omp parallel for num_threads(run->threads) schedule(dynamic, 1)
    for (int64_t task = 0; task < slots * kv_heads; task++) {
        struct attention_block block =
            tt_attention_block_at(forward, slots - 1 - task / kv_heads, task % kv_heads);
        if (block.row_count > 0)
            run->rows(run->args, &block, tt_cpu_scratch(run->stream, omp_get_thread_num()), NULL, true);
    }
    int64_t keys = SUMS_FLOATS / 2 / attention_width_max(run->head_dim);
    int64_t chunks = forward->sequence_count > 0
                         ? forward->cu_k[forward->sequence_count] / keys + forward->sequence_count
                         : 0;
#pragma omp parallel for num_threads(run->threads) schedule(dynamic, 1)
    for (int64_t task = 0; task < chunks * kv_heads; task++)
        sum_chunk(run, task / kv_heads, task % kv_heads, keys);
}

/* Estimates the time of run_fused, in units of the time that one thread needs for all tasks. Tasks go to the
 * next free thread: the time is at most an even share plus the rest of one largest task, and for equal tasks the
 * number of rounds. */
static bool fused_is_faster(const struct backward *run)
{
    const struct tt_attention_forward_args *forward = &run->args->forward;
    double total = 0, largest = 0;
    for (int64_t b = 0; b < forward->sequence_count; b++) {
        double work = (double)(forward->cu_q[b + 1] - forward->cu_q[b]) *
                      (double)(forward->cu_k[b + 1] - forward->cu_k[b]);
        total += work * (double)run->kv_heads;
        if (work > largest) largest = work;
    }
    int64_t tasks = forward->sequence_count * run->kv_heads,
            rounds = (tasks + run->threads - 1) / run->threads;
    double even = total / run->threads, dealt = even + largest * (1 - 1.0 / run->threads);
    double fused = dealt < (double)rounds * largest ? dealt : (double)rounds * largest;
    return fused <= even * 7 / 5; /* run_split computes seven products, run_fused five */
}

/* The sum over columns of do o, of a row of a head. */
static double product_of_rows(const struct tt_attention_backward_args *args, int64_t token, int64_t head)
{
    const tt_tensor *rows[] = {&args->do_THE, &args->forward.o_THE};
    float held[2][TT_ATTENTION_HEAD_DIM_MAX];
    int64_t columns = rows[0]->dims[2];
    for (int i = 0; i < 2; i++) {
        int64_t at = token * rows[i]->strides[0] + head * rows[i]->strides[1];
        const char *from = (const char *)rows[i]->data + at * (int64_t)tt_dtype_bytes(rows[i]->dtype);
        (void)tt_dtype_convert(held[i], TT_F32, from, rows[i]->dtype, (size_t)columns);
    }
    double sum = 0;
    for (int64_t e = 0; e < columns; e++) sum += (double)held[0][e] * (double)held[1][e];
    return sum;
}

/* A sink's value is 0, so the gradient of its score is p (0 - delta): a task is a head, the tokens in order. */
static void sum_sinks(const struct backward *run)
{
    const struct tt_attention_backward_args *args = run->args;
    const struct tt_attention_forward_args *forward = &args->forward;
    const float *sinks = forward->sinks_H.data, *lse = forward->lse_HT.data;
    float *dsinks = args->dsinks_H.data;
    int64_t heads = forward->q_THE.dims[1], tokens = forward->cu_q[forward->sequence_count];
#pragma omp parallel for num_threads(run->threads) schedule(static)
    for (int64_t h = 0; h < heads; h++) {
        double sum = 0;
        for (int64_t t = 0; t < tokens; t++)
            sum -= exp((double)sinks[h] - (double)lse[h * forward->lse_HT.strides[0] + t]) *
                   product_of_rows(args, t, h);
        dsinks[h] += (float)sum;
    }
}

tt_status tt_cpu_attention_backward(struct tt_stream *stream, const struct tt_attention_backward_args *args)
{
    const struct tt_attention_forward_args *forward = &args->forward;
    int64_t head_dim = forward->q_THE.dims[2], longest = 0;
    for (int64_t b = 0; b < forward->sequence_count; b++) {
        int64_t length = forward->cu_k[b + 1] - forward->cu_k[b];
        if (length > longest) longest = length;
    }
    struct backward run = {
        .stream = stream,
        .args = args,
        .threads =
            tt_cpu_threads(stream, forward->q_THE.dims[0] * forward->q_THE.dims[1] * (head_dim + longest)),
        .kv_heads = forward->k_TKE.dims[1],
        .head_dim = head_dim,
        .group = forward->q_THE.dims[1] / forward->k_TKE.dims[1],
        .stride = (head_dim + 15) / 16 * 16,
        .rows = TT_BEST(stream, backward_rows),
        .store_sums = TT_BEST(stream, store_sums),
    };
    if (!tt_tensor_is_empty(args->dsinks_H)) sum_sinks(&run);
    if (fused_is_faster(&run)) return run_fused(&run, longest);
    run_split(&run);
    return TT_OK;
}

#else

#include "backend/cpu/attention/kernels.h"

struct TT_PASS(backward_scratch) {
    float keys[ATTENTION_KEYS_FLOATS], values[ATTENTION_KEYS_FLOATS];
    /* [key][row of the block] */
    float weights[ATTENTION_KEYS_MAX * ATTENTION_ROWS_MAX],
        gradients[ATTENTION_KEYS_MAX * ATTENTION_ROWS_MAX];
    /* [row][stride] */
    float q[ATTENTION_BLOCK_FLOATS], d_out[ATTENTION_BLOCK_FLOATS];
    /* one panel after another, each [E][PANEL] */
    float q_panels[ATTENTION_BLOCK_FLOATS], d_out_panels[ATTENTION_BLOCK_FLOATS],
        dq_panels[ATTENTION_BLOCK_FLOATS];
};
static_assert(sizeof(struct TT_PASS(backward_scratch)) + SUMS_FLOATS * sizeof(float) <= TT_CPU_SCRATCH_BYTES,
              "scratch is too small");
#define backward_scratch TT_PASS(backward_scratch)

struct TT_PASS(backward_panel) {
    struct sight sight;
    int64_t first_row, count, vectors;
    float *q, *d_out; /* rows */
    float *q_panel, *d_out_panel, *dq_panel;
    float *weights, *gradients; /* the panel's columns of the block's */
    float lse[PANEL], delta[PANEL];
};
#define backward_panel TT_PASS(backward_panel)

static void TT_PASS(load_panel)(const struct tt_attention_backward_args *args,
                                const struct attention_block *block, struct backward_panel *panel,
                                int64_t stride)
{
    const struct tt_attention_forward_args *forward = &args->forward;
    int64_t head_dim = forward->q_THE.dims[2], first = panel->first_row, count = panel->count;
    look(&panel->sight, block, first, count);
    widen_rows(panel->d_out, stride, &args->do_THE, block, first, count, 1.0f);
    transpose_to_panel(panel->d_out_panel, panel->d_out, stride, count, head_dim, 1.0f);
    /* o is needed only for delta, and is stored for a moment in the memory of q and dq. The sum has the same
     * order as those of dp: where a row sees one key, delta equals dp bit for bit and the gradients of the
     * scores are 0. */
    widen_rows(panel->q, stride, &forward->o_THE, block, first, count, 1.0f);
    transpose_to_panel(panel->dq_panel, panel->q, stride, count, head_dim, 1.0f);
    for (int64_t lane = 0; lane < PANEL; lane += TT_VECTOR_LANES) {
        vf delta = vsplat(0);
        for (int64_t e = 0; e < head_dim; e++)
            delta = vmultiply_add(vload(panel->dq_panel, e * PANEL + lane, false),
                                  vload(panel->d_out_panel, e * PANEL + lane, false), delta);
        vstore(panel->delta, lane, false, delta);
    }
    const tt_tensor *lse = &forward->lse_HT;
    memset(panel->lse, 0, sizeof panel->lse);
    for (int64_t r = 0; r < count; r++) {
        int64_t row = first + r, head = block->kv_head * block->group + row % block->group;
        int64_t at = head * lse->strides[0] + block->query_row + row / block->group;
        panel->lse[r] = ((const float *)lse->data)[at];
    }
    memset(panel->dq_panel, 0, (size_t)(PANEL * head_dim) * sizeof(float));
    widen_rows(panel->q, stride, &forward->q_THE, block, first, count, 1.0f);
    transpose_to_panel(panel->q_panel, panel->q, stride, count, head_dim, (float)forward->scale);
}

/* Turns scores into p = exp(score - lse), and the gradients of p into those of the scores, p (dp - delta). With a cap,
 * score is cap t of t = tanh(score / cap), whose derivative 1 - t^2 is a factor of the gradient. */
TT_INLINE void TT_PASS(differentiate)(struct backward_panel *panel, float *weights, float *gradients,
                                      int64_t begin, int64_t keys, const bool masked, const float cap)
{
    for (int64_t lane = 0; lane < panel->vectors * TT_VECTOR_LANES; lane += TT_VECTOR_LANES) {
        vf lse = vload(panel->lse, lane, false), delta = vload(panel->delta, lane, false);
        for (int64_t j = 0; j < keys; j++) {
            int64_t at = j * ATTENTION_ROWS_MAX + lane;
            vf score = vload(weights, at, false), slope = vsplat(1);
            if (cap > 0) {
                vf t = vtanh(score / cap);
                score = cap * t;
                slope = 1.0f - t * t;
            }
            vf p = vexp2((score - lse) * LOG2_E);
            if (masked) p = vselect(sees(&panel->sight, lane, begin + j), p, vsplat(0));
            vstore(weights, at, false, p);
            vf gradient = p * (vload(gradients, at, false) - delta);
            if (cap > 0) gradient *= slope;
            vstore(gradients, at, false, gradient);
        }
    }
}

static void TT_PASS(differentiate_any)(struct backward_panel *panel, int64_t begin, int64_t keys, bool masked,
                                       float cap)
{
    if (cap > 0)
        TT_PASS(differentiate)(panel, panel->weights, panel->gradients, begin, keys, masked, cap);
    else if (masked)
        TT_PASS(differentiate)(panel, panel->weights, panel->gradients, begin, keys, true, 0);
    else
        TT_PASS(differentiate)(panel, panel->weights, panel->gradients, begin, keys, false, 0);
}

/* Processes one panel against the keys [first_key, first_key + key_count) in scratch: adds to dq, and to `sums`. */
static void TT_PASS(backward_tile)(struct backward_panel *panel, struct backward_scratch *scratch,
                                   int64_t head_dim, int64_t first_key, int64_t key_count,
                                   const struct key_sums *sums, bool with_dq, float cap)
{
    int64_t begin = panel->sight.begin > first_key ? panel->sight.begin : first_key;
    int64_t end = panel->sight.end < first_key + key_count ? panel->sight.end : first_key + key_count;
    if (begin >= end) return;
    int64_t skipped = (begin - first_key) * head_dim;
    struct product scores = {.c = panel->weights,
                             .c_row = ATTENTION_ROWS_MAX,
                             .a = scratch->keys + skipped,
                             .a_row = head_dim,
                             .a_step = 1,
                             .b = panel->q_panel,
                             .b_row = PANEL,
                             .rows = end - begin,
                             .depth = head_dim};
    multiply(&scores, panel->vectors);
    struct product weight_gradients = scores;
    weight_gradients.c = panel->gradients;
    weight_gradients.a = scratch->values + skipped;
    weight_gradients.b = panel->d_out_panel;
    multiply(&weight_gradients, panel->vectors);
    TT_PASS(differentiate_any)
    (panel, begin, end - begin, begin < panel->sight.full_begin || end > panel->sight.full_end, cap);
    if (with_dq)
        multiply_add(&(struct product){.c = panel->dq_panel,
                                       .c_row = PANEL,
                                       .a = scratch->keys + skipped,
                                       .a_row = 1,
                                       .a_step = head_dim,
                                       .b = panel->gradients,
                                       .b_row = ATTENTION_ROWS_MAX,
                                       .rows = head_dim,
                                       .depth = end - begin},
                     panel->vectors);
    if (sums == NULL) return;
    struct product dv = {.c = sums->dv + (begin - sums->begin) * sums->stride,
                         .c_row = sums->stride,
                         .a = panel->weights,
                         .a_row = ATTENTION_ROWS_MAX,
                         .a_step = 1,
                         .b = panel->d_out,
                         .b_row = sums->stride,
                         .rows = end - begin,
                         .depth = panel->count};
    multiply_add(&dv, sums->stride / TT_VECTOR_LANES);
    struct product dk = dv;
    dk.c = sums->dk + (begin - sums->begin) * sums->stride;
    dk.a = panel->gradients;
    dk.b = panel->q;
    multiply_add(&dk, sums->stride / TT_VECTOR_LANES);
}

/* Processes a block of rows against the keys of `sums` (NULL: all keys that the rows see, for dq only). Key
 * blocks begin at multiples of their size in the sequence, so run_fused and run_split use the same tiles. */
static void TT_PASS(backward_rows)(const struct tt_attention_backward_args *args,
                                   const struct attention_block *block, float *memory,
                                   const struct key_sums *sums, bool with_dq)
{
    const struct tt_attention_forward_args *forward = &args->forward;
    struct backward_scratch *scratch = (void *)memory;
    struct backward_panel panels[ATTENTION_ROWS_MAX / PANEL];
    int64_t head_dim = forward->q_THE.dims[2], stride = (head_dim + 15) / 16 * 16;
    int64_t panel_count = (block->row_count + PANEL - 1) / PANEL;
    for (int64_t i = 0; i < panel_count; i++) {
        struct backward_panel *panel = &panels[i];
        int64_t row = i * PANEL;
        panel->first_row = block->first_row + row;
        panel->count = block->row_count - row < PANEL ? block->row_count - row : PANEL;
        panel->vectors = (panel->count + TT_VECTOR_LANES - 1) / TT_VECTOR_LANES;
        panel->q = scratch->q + row * stride;
        panel->d_out = scratch->d_out + row * stride;
        panel->q_panel = scratch->q_panels + row * head_dim;
        panel->d_out_panel = scratch->d_out_panels + row * head_dim;
        panel->dq_panel = scratch->dq_panels + row * head_dim;
        panel->weights = scratch->weights + row;
        panel->gradients = scratch->gradients + row;
        TT_PASS(load_panel)(args, block, panel, stride);
    }
    int64_t begin = panels[0].sight.begin, end = panels[panel_count - 1].sight.end;
    if (sums != NULL && sums->begin > begin) begin = sums->begin;
    if (sums != NULL && sums->end < end) end = sums->end;
    int64_t keys = attention_block_keys(head_dim);
    for (int64_t key = begin / keys * keys; key < end; key += keys) {
        int64_t count = end - key < keys ? end - key : keys;
        widen_keys(scratch->keys, &forward->k_TKE, block, key, count);
        widen_keys(scratch->values, &forward->v_TKE, block, key, count);
        for (int64_t i = 0; i < panel_count; i++) TT_PASS(backward_tile)
        (&panels[i], scratch, head_dim, key, count, sums, with_dq, forward->soft_cap);
    }
    if (!with_dq) return;
    float factor[PANEL];
    for (int r = 0; r < PANEL; r++) factor[r] = (float)forward->scale;
    for (int64_t i = 0; i < panel_count; i++)
        store_panel(&args->dq_THE, block, panels[i].first_row, panels[i].count, panels[i].dq_panel, factor);
}

static void TT_PASS(store_sums)(const struct tt_attention_backward_args *args,
                                const struct attention_block *block, const struct key_sums *sums)
{
    int64_t head_dim = args->dk_TKE.dims[2];
    for (int64_t key = sums->begin; key < sums->end; key++) {
        int64_t row = (key - sums->begin) * sums->stride;
        for (int64_t e = 0; e < head_dim; e++) sums->dk[row + e] *= (float)args->forward.scale;
        store_row(&args->dk_TKE, attention_key_index(&args->dk_TKE, block, key), sums->dk + row);
        store_row(&args->dv_TKE, attention_key_index(&args->dv_TKE, block, key), sums->dv + row);
    }
}

#endif
