/* The attention plans of one device: made at first use, kept in memory and on disk. */
#ifndef TT_BACKEND_CUDA_ATTENTION_CUDNN_PLANS_H
#define TT_BACKEND_CUDA_ATTENTION_CUDNN_PLANS_H

#include "backend/cuda/cudnn/graph.h"

/* Everything that a plan depends on. All members are int64_t, so that two shapes can be compared as bytes. */
struct tt_cudnn_shape {
    int64_t heads, kv_heads, head_dim;
    int64_t sequences, tokens; /* rounded up; dense: the number of sequences, and the tokens of each */
    /* Row strides in elements; do has o's. Those of dq, its fp32 sums, dk and dv are 0 in a forward pass. dq and
     * the sums have q's stride unless dense. */
    int64_t q, k, v, o, dq, sums, dk, dv;
    /* 0 or 1: backward pass; lse is stored; there is a window; all sequences have the same length. */
    int64_t backward, stats, window, dense;
};

/* Ids of the real tensors in both graphs. dq, do, delta and the sums of dq use the offsets of q, o, lse and q. */
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

/* cudnn_graph.c: adds the operations of one pass; errors stay in the graph. */
void tt_cudnn_attention_graph(struct tt_cudnn_graph *graph, const struct tt_cudnn_shape *shape);

struct tt_cudnn_plans {
    const struct tt_cudnn *cudnn;
    char device[160]; /* part of the name of a stored plan */
    size_t workspace_limit;
    struct tt_cudnn_entry *entries;
    size_t count, capacity;
};

/* Sequences: rounded up to a power of two, at least 32. Tokens: to a power of two, at least 1024, and above
 * 32768 to a multiple of 32768. */
int64_t tt_cudnn_round_sequences(int64_t count);
int64_t tt_cudnn_round_tokens(int64_t count);

/* Returns a plan for `shape` or one with more room; NULL, with the reason in `why`, when there is none. The
 * plans own the result until deinit. `made_sequences` gets the number of sequences of the plan. */
const struct tt_cudnn_plan *tt_cudnn_plans_find(struct tt_cudnn_plans *plans,
                                                const struct tt_cudnn_shape *shape, int64_t *made_sequences,
                                                char *why, size_t why_bytes);
void tt_cudnn_plans_deinit(struct tt_cudnn_plans *plans);

#endif
