/* Private header of the files of a plan: plan.c (device, levels of the blocks), plan_path.c (the order of levels),
 * plan_experts.c (ranks that share experts), plan_attempt.c (a rank on the plan device), plan_advice.c (changes that
 * make a run fit). */
#ifndef TT_ENGINE_PLAN_IMPL_H
#define TT_ENGINE_PLAN_IMPL_H

#include "engine/plan.h"

/* A rank to run on the plan device. */
struct tt_plan_attempt {
    struct tt_rank_config rank;
    struct tt_plan_ranks ranks;
    int64_t micro_steps;
    struct tt_batch_limits train, eval;
    struct tt_plan_work *work; /* NULL, or [block_count]: to write */
    bool table_beside;         /* tt_rank_has_table_beside */
    int64_t experts;           /* frozen ones of a layer, which ranks can share; 0: none */
};

/* A block in one training pass. */
struct tt_plan_work {
    size_t kept;             /* bytes that its forward leaves in the workspace, its output included */
    double forward, seconds; /* compute: of forward; of both */
};
/* The blocks at each level that was counted: one run with all blocks there. */
struct tt_plan_counts {
    struct tt_plan_work *at[TT_LEVEL_COUNT]; /* [block_count], owned; NULL: not counted */
};
void tt_plan_counts_deinit(struct tt_plan_counts *counts);

/* The order in which blocks leave the levels of `from` for leaner ones, up to `most`. */
struct tt_plan_path {
    enum tt_level from, most;
    struct tt_plan_move {
        int block;
        enum tt_level to;
    } * moves; /* owned */
    int count;
    int recomputing; /* of these: those before the first that offloads */
};

/* plan_path.c: all blocks at `wanted`, or at what they have of it. */
void tt_plan_set_levels(enum tt_level wanted, struct tt_plan *plan);
/* Runs all blocks at `level`, and counts them there. */
TT_MUST_USE tt_status tt_plan_count_level(const struct tt_plan_attempt *attempt, enum tt_level level,
                                          struct tt_plan *plan, struct tt_plan_counts *counts);
/* Fills the path, whose `from` and `most` are set, of what `counts` has of `from`. Where blocks differ there, the other
 * levels are counted, each in a run of its own, which changes `plan`. */
TT_MUST_USE tt_status tt_plan_path_make(const struct tt_plan_attempt *attempt, struct tt_plan *plan,
                                        struct tt_plan_counts *counts, struct tt_plan_path *path);
void tt_plan_path_deinit(struct tt_plan_path *path);
/* The levels behind the first `position` moves. */
void tt_plan_path_go(const struct tt_plan_path *path, int position, struct tt_plan *plan);

/* plan_attempt.c: runs one step and one evaluation of the rank on the plan device, with the levels of `plan`, and fills
 * the members of `plan` that follow from them: memory, time, whether it fits. */
TT_MUST_USE tt_status tt_plan_run(const struct tt_plan_attempt *attempt, struct tt_plan *plan);
/* plan_experts.c: refuses an expert_parallel that the model or the sharding does not allow. */
TT_MUST_USE tt_status tt_plan_check_experts(const struct tt_plan_attempt *attempt);
/* Chooses as tt_plan_choose does, and the ranks that share experts where the setting leaves them to the plan. */
TT_MUST_USE tt_status tt_plan_choose_experts(const struct tt_plan_attempt *attempt, struct tt_plan *plan);
/* plan.c: chooses the levels of the blocks, and runs them. Splits the vocabulary only where nothing else fits, and only
 * if it fits then; with a table beside a shared matrix also where that is faster. */
TT_MUST_USE tt_status tt_plan_choose(const struct tt_plan_attempt *attempt, struct tt_plan *plan);
/* plan_advice.c: tries changes of an attempt that does not fit, each alone, then several together, and writes the
 * successful ones to plan->advice. */
TT_MUST_USE tt_status tt_plan_advise(const struct tt_plan_attempt *tight, struct tt_plan *plan);

#endif
