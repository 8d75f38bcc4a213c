/* The attention plans of one device: made when first asked for, kept in memory and on disk. */
#ifndef TT_BACKEND_CUDA_CUDNN_PLANS_H
#define TT_BACKEND_CUDA_CUDNN_PLANS_H

#include "backend/cuda/cudnn_graph.h"

/* All that a plan depends on. Only int64_t, so that two are compared as bytes. */
struct tt_cudnn_shape {
    int64_t heads, kv_heads, head_dim;
    int64_t sequences, tokens; /* rounded up; dense: how many sequences there are, of how many tokens each */
    /* Row strides in elements; do has o's. Of dq, its fp32 sums, dk, dv: 0 in a forward pass. dq and sums
       have q's unless dense. */
    int64_t q, k, v, o, dq, sums, dk, dv;
    /* Yes or no: direction; whether lse is wanted; whether there is a window; whether all sequences have the
       same length. */
    int64_t backward, stats, window, dense;
};

/* Ids of the real tensors in both graphs. The offsets of dq, do, delta and of the sums of dq are those of q,
 * o, lse, q. */
enum tt_cudnn_id {
    TT_ID_Q = 1,
    TT_ID_K,
    TT_ID_V,
    TT_ID_O,
    TT_ID_LSE,
    TT_ID_LENGTHS_Q,
    TT_ID_LENGTHS_K,
    TT_ID_SCALE,
    TT_ID_MASKED,
    TT_ID_WINDOW,
    TT_ID_ONE,
    TT_ID_DO,
    TT_ID_DQ,
    TT_ID_DK,
    TT_ID_DV,
    TT_ID_DELTA,
    TT_ID_SUMS,
    TT_ID_FULL_K,
    TT_ID_FULL_V,
    TT_ID_OFFSETS_Q,
    TT_ID_OFFSETS_K,
    TT_ID_OFFSETS_V,
    TT_ID_OFFSETS_O,
    TT_ID_OFFSETS_LSE,
    TT_ID_OFFSETS_DK,
    TT_ID_OFFSETS_DV,
    TT_ID_COUNT
};

/* cudnn_attention_graph.c: the operations of one pass; errors stay in the graph. */
void tt_cudnn_attention_graph(struct tt_cudnn_graph *graph, const struct tt_cudnn_shape *shape);

struct tt_cudnn_plans {
    const struct tt_cudnn *cudnn;
    char device[160]; /* part of the name of a stored plan */
    size_t workspace_limit;
    struct tt_cudnn_entry *entries;
    size_t count, capacity;
};

/* A power of two from 32 on; from 1024 on, above 32768 in steps of that. */
int64_t tt_cudnn_round_sequences(int64_t count);
int64_t tt_cudnn_round_tokens(int64_t count);

/* A plan for `shape`, or one with more room; NULL with the reason in `why` when there is none. Lent until
 * deinit. `made_sequences` gets how many sequences the plan is for. */
const struct tt_cudnn_plan *tt_cudnn_plans_find(struct tt_cudnn_plans *plans,
                                                const struct tt_cudnn_shape *shape, int64_t *made_sequences,
                                                char *why, size_t why_bytes);
void tt_cudnn_plans_deinit(struct tt_cudnn_plans *plans);

#endif
