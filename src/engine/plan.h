/* The memory plan: the rank itself runs one training step and one evaluation pass on the plan device, which checks
 * every op, counts every byte and every microsecond, and computes nothing. The real rank then allocates the counted
 * memory.
 *
 * The plan also chooses what each block keeps for its backward (enum tt_level). Blocks are alike, so the
 * choice is a place on a path: all keep everything; the first k blocks only what is not cheap, then all; the
 * first k only their input, then all; the first k not even that on the device, then all. Along it bytes fall
 * and time rises, so the fastest choice that fits is found by bisection, every try a whole run on the plan
 * device. The first blocks go first because their backward comes last: when a block runs again, what the
 * others kept is gone already. Where some inputs have to wait on the host, all wait that can for nothing.
 */
#ifndef TT_ENGINE_PLAN_H
#define TT_ENGINE_PLAN_H

#include "engine/rank.h"

enum { TT_PLAN_ADVICE_BYTES = 240, TT_PLAN_RANKS_MAX = 4096 };

/* Over how many ranks a run goes, and over how many machines with as many on each. */
struct tt_plan_ranks {
    int count, machines;
};

struct tt_plan {
    struct tt_plan_ranks ranks;
    enum tt_level levels[TT_MODEL_LAYERS_MAX + 2]; /* what each block keeps; [block_count] */
    int block_count;
    struct tt_memory_use memory; /* buffers of one rank: peak by purpose, on the device and on the host */
    size_t workspace_bytes;      /* of the activations: kept results, scratch, chunks of logits */
    size_t kept_bytes;           /* of the workspace: results that forward keeps for backward */
    /* In the rest, in turn: the scratch of attention's backward, a chunk of logits. */
    size_t attention_bytes, logits_bytes;
    size_t limit_bytes; /* of one rank on its device; 0: no limit */
    bool fits;
    double step_seconds; /* estimate of one optimizer step; 0 without training */
    int64_t step_tokens; /* at most, of a rank in that step */
    /* when it does not fit: settings that fit, with their memory; empty: none of those tried */
    char advice[TT_PLAN_ADVICE_BYTES];
    bool may_quantize; /* the base is frozen and not yet in 4 or 8 bits */
    bool is_host;      /* the device's memory is the host's */
    char device[96];   /* the planned device: "h200", "cpu" */
};

/* `rank` is what the real rank will be made from; device, communicators, levels and workspace size in it are
 * replaced. A device of kind "plan" stands for its chip (stands_for). The limit is device.memory_limit, else
 * what a GPU has; cpus have none. On cpus without a limit TT_RECOMPUTE_AUTO computes every block again: their
 * memory is shared with others. `eval_limits` may be all 0; `micro_steps` make one optimizer step. A plan
 * that does not fit is no error (`fits`), so that it can be shown; see tt_plan_check. Fails as the real rank
 * would (TT_ERR_UNSUPPORTED for an op that is not supported). */
TT_MUST_USE tt_status tt_plan_make(const struct tt_rank_config *rank, struct tt_plan_ranks ranks,
                                   int64_t micro_steps, const struct tt_batch_limits *train_limits,
                                   const struct tt_batch_limits *eval_limits, struct tt_plan *plan);
/* TT_ERR_MEMORY, with the advice as hint, when it does not fit. */
TT_MUST_USE tt_status tt_plan_check(const struct tt_plan *plan);

/* Rows of the table: the purposes that are not empty, with the workspace as what is kept and what is not. */
struct tt_plan_row {
    const char *key;  /* "weights_shard" */
    const char *name; /* "weights shard" */
    size_t bytes;
};
enum { TT_PLAN_ROWS_MAX = TT_PURPOSE_COUNT + 1 };
int tt_plan_rows(const struct tt_plan *plan, struct tt_plan_row rows[TT_PLAN_ROWS_MAX]); /* how many */

/* "recompute none", or "recompute block in 12 of 48 layers, cheap in 36"; returns `text`. */
const char *tt_plan_recompute_text(const struct tt_plan *plan, char *text, size_t text_bytes);
/* step_seconds for display; 0 on processors, which differ too much for an estimate. */
double tt_plan_estimate(const struct tt_plan *plan);
/* The table of bytes by purpose, and the estimated time of a step. */
TT_MUST_USE tt_status tt_plan_format(const struct tt_plan *plan, struct tt_str *text);
/* After a run: planned and measured, side by side. */
TT_MUST_USE tt_status tt_plan_compare(const struct tt_plan *plan, struct tt_device *device,
                                      struct tt_str *text);

#endif
