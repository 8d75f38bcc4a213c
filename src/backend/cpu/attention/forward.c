/* The forward pass of attention, in panels of query rows. */
#ifndef TT_VECTOR_LANES

#include <assert.h>
#include <math.h>
#include <omp.h>

#include "backend/cpu/attention/attention.h"

int64_t tt_attention_slots(const struct tt_attention_forward_args *args)
{
    int64_t group = args->q_THE.dims[1] / args->k_TKE.dims[1];
    return args->cu_q[args->sequence_count] * group / attention_block_rows(args->q_THE.dims[2]) +
           args->sequence_count;
}

struct attention_block tt_attention_block_at(const struct tt_attention_forward_args *args, int64_t slot,
                                             int64_t kv_head)
{
    int64_t group = args->q_THE.dims[1] / args->k_TKE.dims[1];
    int64_t rows = attention_block_rows(args->q_THE.dims[2]);
    int64_t low = 0, high = args->sequence_count; /* the sequence is in [low, high) */
    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        if (args->cu_q[middle] * group / rows + middle <= slot)
            low = middle;
        else
            high = middle;
    }
    struct attention_block block = {
        .query_row = args->cu_q[low],
        .key_row = args->cu_k[low],
        .length_q = args->cu_q[low + 1] - args->cu_q[low],
        .length_k = args->cu_k[low + 1] - args->cu_k[low],
        .kv_head = kv_head,
        .group = group,
        .window = args->window,
        .first_row = (slot - args->cu_q[low] * group / rows - low) * rows,
    };
    int64_t left = block.length_q * group - block.first_row;
    block.row_count = left < 0 ? 0 : left < rows ? left : rows;
    return block;
}

#define TT_VECTOR_SOURCE "backend/cpu/attention/forward.c"
#include "backend/cpu/vector_math_passes.h"

/* One task per (block, key/value head). The last blocks run first: under a causal mask they are the largest. */
tt_status tt_cpu_attention_forward(struct tt_stream *stream, const struct tt_attention_forward_args *args)
{
    void (*forward_block)(const struct tt_attention_forward_args *, const struct attention_block *, float *) =
        TT_BEST(stream, forward_block);
    int64_t kv_heads = args->k_TKE.dims[1], slots = tt_attention_slots(args), tasks = slots * kv_heads;
    int threads = tt_cpu_threads(stream, args->q_THE.dims[0] * args->q_THE.dims[1] *
                                             (args->q_THE.dims[2] + args->max_length_k));
#pragma omp parallel for num_threads(threads) schedule(dynamic, 1)
    for (int64_t task = 0; task < tasks; task++) {
        struct attention_block block =
            tt_attention_block_at(args, slots - 1 - task / kv_heads, task % kv_heads);
        if (block.row_count > 0) forward_block(args, &block, tt_cpu_scratch(stream, omp_get_thread_num()));
    }
    return TT_OK;
}

#else

#include "backend/cpu/attention/kernels.h"

/* The maximum before the first key. It is finite, so that a difference of two is not NaN. */
#define LOWEST (-3.0e38f)

struct TT_PASS(forward_scratch) {
    float keys[ATTENTION_KEYS_FLOATS], values[ATTENTION_KEYS_FLOATS];
    float scores[ATTENTION_KEYS_MAX * PANEL];
    float queries[ATTENTION_BLOCK_FLOATS], outputs[ATTENTION_BLOCK_FLOATS]; /* one panel after another */
};
static_assert(sizeof(struct TT_PASS(forward_scratch)) <= TT_CPU_SCRATCH_BYTES, "scratch is too small");

struct TT_PASS(forward_panel) {
    struct sight sight;
    int64_t first_row, count, vectors;
    float *query, *output;        /* [E][PANEL]; query is multiplied by scale */
    float max[PANEL], sum[PANEL]; /* maximum of the scores, sum of exp(score - max), so far */
};
#define forward_panel TT_PASS(forward_panel)

/* Turns the scores of keys begin, begin + 1, .. into exp(score - max), and rescales sum and outputs to the new
 * maximum. The difference is formed before the factor of exp2 is applied, because it is small and exact where it
 * matters. */
TT_INLINE void TT_PASS(soften)(struct forward_panel *panel, float *scores, int64_t head_dim, int64_t begin,
                               int64_t keys, const bool masked)
{
    for (int64_t lane = 0; lane < panel->vectors * TT_VECTOR_LANES; lane += TT_VECTOR_LANES) {
        vf old = vload(panel->max, lane, false), top = old, sum = vsplat(0);
        for (int64_t j = 0; j < keys; j++) {
            vf score = vload(scores, j * PANEL + lane, false);
            if (masked) score = vselect(sees(&panel->sight, lane, begin + j), score, vsplat(LOWEST));
            top = vmax(top, score);
        }
        for (int64_t j = 0; j < keys; j++) {
            vf weight = vexp2((vload(scores, j * PANEL + lane, false) - top) * LOG2_E);
            if (masked) weight = vselect(sees(&panel->sight, lane, begin + j), weight, vsplat(0));
            vstore(scores, j * PANEL + lane, false, weight);
            sum += weight;
        }
        vf shrink = vexp2((old - top) * LOG2_E);
        vstore(panel->sum, lane, false, vload(panel->sum, lane, false) * shrink + sum);
        vstore(panel->max, lane, false, top);
        if (!vany((vi)(shrink != vsplat(1)))) continue;
        for (int64_t e = 0; e < head_dim; e++)
            vstore(panel->output, e * PANEL + lane, false,
                   vload(panel->output, e * PANEL + lane, false) * shrink);
    }
}

static void TT_PASS(cap_scores)(const struct forward_panel *panel, float *scores, int64_t keys, float cap)
{
    for (int64_t j = 0; j < keys; j++)
        for (int64_t lane = 0; lane < panel->vectors * TT_VECTOR_LANES; lane += TT_VECTOR_LANES) {
            vf score = vload(scores, j * PANEL + lane, false);
            vstore(scores, j * PANEL + lane, false, cap * vtanh(score / cap));
        }
}

/* Adds the panel's sinks to its sums, as the scores of keys without a value. */
static void TT_PASS(add_sinks)(const struct tt_attention_forward_args *args,
                               const struct attention_block *block, struct forward_panel *panel)
{
    for (int64_t r = 0; r < panel->count; r++) {
        int64_t head = block->kv_head * block->group + (panel->first_row + r) % block->group;
        float sink = ((const float *)args->sinks_H.data)[head], old = panel->max[r];
        if (sink <= old) {
            panel->sum[r] += expf(sink - old);
            continue;
        }
        float shrink = expf(old - sink);
        panel->max[r] = sink;
        panel->sum[r] = panel->sum[r] * shrink + 1;
        for (int64_t e = 0; e < args->q_THE.dims[2]; e++) panel->output[e * PANEL + r] *= shrink;
    }
}

/* Processes one panel against the keys [first_key, first_key + key_count) of the block in scratch. */
static void TT_PASS(forward_tile)(struct forward_panel *panel, struct TT_PASS(forward_scratch) * scratch,
                                  int64_t head_dim, int64_t first_key, int64_t key_count, float cap)
{
    int64_t begin = panel->sight.begin > first_key ? panel->sight.begin : first_key;
    int64_t end = panel->sight.end < first_key + key_count ? panel->sight.end : first_key + key_count;
    if (begin >= end) return;
    int64_t skipped = (begin - first_key) * head_dim;
    multiply(&(struct product){.c = scratch->scores,
                               .c_row = PANEL,
                               .a = scratch->keys + skipped,
                               .a_row = head_dim,
                               .a_step = 1,
                               .b = panel->query,
                               .b_row = PANEL,
                               .rows = end - begin,
                               .depth = head_dim},
             panel->vectors);
    if (cap > 0) TT_PASS(cap_scores)(panel, scratch->scores, end - begin, cap);
    if (begin < panel->sight.full_begin || end > panel->sight.full_end)
        TT_PASS(soften)(panel, scratch->scores, head_dim, begin, end - begin, true);
    else
        TT_PASS(soften)(panel, scratch->scores, head_dim, begin, end - begin, false);
    multiply_add(&(struct product){.c = panel->output,
                                   .c_row = PANEL,
                                   .a = scratch->values + skipped,
                                   .a_row = 1,
                                   .a_step = head_dim,
                                   .b = scratch->scores,
                                   .b_row = PANEL,
                                   .rows = head_dim,
                                   .depth = end - begin},
                 panel->vectors);
}

static void TT_PASS(store_forward)(const struct tt_attention_forward_args *args,
                                   const struct attention_block *block, struct forward_panel *panel)
{
    float factor[PANEL];
    if (!tt_tensor_is_empty(args->sinks_H)) TT_PASS(add_sinks)(args, block, panel);
    for (int64_t r = 0; r < panel->count; r++) factor[r] = 1.0f / panel->sum[r];
    store_panel(&args->o_THE, block, panel->first_row, panel->count, panel->output, factor);
    const tt_tensor *lse = &args->lse_HT;
    if (tt_tensor_is_empty(*lse)) return;
    for (int64_t r = 0; r < panel->count; r++) {
        int64_t row = panel->first_row + r, head = block->kv_head * block->group + row % block->group;
        int64_t at = head * lse->strides[0] + block->query_row + row / block->group;
        ((float *)lse->data)[at] = (float)((double)panel->max[r] + log((double)panel->sum[r]));
    }
}

/* Processes a block of rows. Every row sees at least one key: itself. */
static void TT_PASS(forward_block)(const struct tt_attention_forward_args *args,
                                   const struct attention_block *block, float *memory)
{
    struct TT_PASS(forward_scratch) *scratch = (void *)memory;
    struct forward_panel panels[ATTENTION_ROWS_MAX / PANEL];
    int64_t head_dim = args->q_THE.dims[2], panel_count = (block->row_count + PANEL - 1) / PANEL;
    for (int64_t i = 0; i < panel_count; i++) {
        struct forward_panel *panel = &panels[i];
        panel->first_row = block->first_row + i * PANEL;
        panel->count = block->row_count - i * PANEL < PANEL ? block->row_count - i * PANEL : PANEL;
        panel->vectors = (panel->count + TT_VECTOR_LANES - 1) / TT_VECTOR_LANES;
        panel->query = scratch->queries + i * PANEL * head_dim;
        panel->output = scratch->outputs + i * PANEL * head_dim;
        look(&panel->sight, block, panel->first_row, panel->count);
        widen_rows(panel->output, head_dim, &args->q_THE, block, panel->first_row, panel->count, 1.0f);
        transpose_to_panel(panel->query, panel->output, head_dim, panel->count, head_dim, (float)args->scale);
        memset(panel->output, 0, (size_t)(PANEL * head_dim) * sizeof(float));
        memset(panel->sum, 0, sizeof panel->sum);
        for (int r = 0; r < PANEL; r++) panel->max[r] = LOWEST;
    }
    int64_t keys = attention_block_keys(head_dim), end = panels[panel_count - 1].sight.end;
    for (int64_t key = panels[0].sight.begin / keys * keys; key < end; key += keys) {
        int64_t count = end - key < keys ? end - key : keys;
        widen_keys(scratch->keys, &args->k_TKE, block, key, count);
        widen_keys(scratch->values, &args->v_TKE, block, key, count);
        for (int64_t i = 0; i < panel_count; i++)
            TT_PASS(forward_tile)(&panels[i], scratch, head_dim, key, count, args->soft_cap);
    }
    for (int64_t i = 0; i < panel_count; i++) TT_PASS(store_forward)(args, block, &panels[i]);
}

#endif
