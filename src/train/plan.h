/* The memory plan: the rank itself runs one training step and one evaluation pass on the plan device, which
 * checks every op and counts every byte and computes nothing. What it counts is then what the real rank
 * allocates. */
#ifndef TT_TRAIN_PLAN_H
#define TT_TRAIN_PLAN_H

#include "train/rank.h"

struct tt_plan {
    enum tt_level levels[TT_MODEL_LAYERS_MAX + 2]; /* what each block keeps; [block_count] */
    int block_count;
    struct tt_memory_use memory; /* device buffers of one rank */
    size_t workspace_bytes;      /* part of it: kept results, scratch, chunks of logits */
};

/* `rank` is what the real rank will be made from; device, communicators and workspace size in it are
 * replaced. `eval_limits` may be all 0. Fails as the real rank would (TT_ERR_UNSUPPORTED for an op that is
 * not served). */
TT_MUST_USE tt_status tt_plan_make(const struct tt_rank_config *rank, int shard_ranks,
                                   const struct tt_batch_limits *train_limits,
                                   const struct tt_batch_limits *eval_limits, struct tt_plan *plan);
/* TT_ERR_MEMORY, with what would help, when the plan is larger than `limit` bytes (0: no limit). */
TT_MUST_USE tt_status tt_plan_check(const struct tt_plan *plan, const struct tt_rank_config *rank,
                                    size_t limit);
/* "recompute: 30 blocks cheap, 18 blocks whole" and the like; returns `text`. */
const char *tt_plan_recompute_text(const struct tt_plan *plan, char *text, size_t text_bytes);
/* The table of bytes per purpose, a few lines. */
TT_MUST_USE tt_status tt_plan_format(const struct tt_plan *plan, int ranks, struct tt_str *text);

#endif
