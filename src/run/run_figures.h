/* The figures of a run, read from its folder: metrics.jsonl, and ranks/rank-N.jsonl. A run that was killed, still runs
 * or was made on another machine reads as well: a line that is not a whole row is counted and left out. */
#ifndef TT_RUN_RUN_FIGURES_H
#define TT_RUN_RUN_FIGURES_H

#include "base/json.h"

/* One figure over the steps. */
struct tt_series {
    double *steps, *values;
    size_t count, capacity;
};

enum tt_figure {
    TT_FIGURE_LOSS,
    TT_FIGURE_EVAL_LOSS,
    TT_FIGURE_LEARNING_RATE,
    TT_FIGURE_GRAD_NORM,
    TT_FIGURE_TOKENS,
    TT_FIGURE_TFLOPS,
    TT_FIGURE_COUNT
};
const char *tt_figure_title(enum tt_figure figure); /* "loss" */

/* Sums over the rows with times, for shares; seconds of all steps. */
enum tt_share {
    TT_SHARE_DATA,
    TT_SHARE_GATHER,
    TT_SHARE_FORWARD,
    TT_SHARE_BACKWARD,
    TT_SHARE_REDUCE,
    TT_SHARE_QUEUE,
    TT_SHARE_DEVICE,
    TT_SHARE_RANKS,
    TT_SHARE_OPTIMIZER,
    TT_SHARE_SAVE_WAIT,
    TT_SHARE_STEP, /* the whole step: the sum of all above */
    TT_SHARE_SAVE_STALL,
    TT_SHARE_EVALUATE,
    TT_SHARE_WALL,
    TT_SHARE_COUNT
};
const char *tt_share_key(enum tt_share share); /* "data_seconds" */

struct tt_rank_figures {
    int rank;
    double step_seconds, rank_wait_seconds; /* sums */
};

struct tt_run_figures {
    char *folder;
    struct tt_series series[TT_FIGURE_COUNT];
    double shares[TT_SHARE_COUNT];
    double steps;               /* that the shares are sums of */
    double mfu, device_bytes;   /* of the last row that has them; 0: none */
    struct tt_json_value *last; /* the last row with times; NULL: none */
    struct tt_rank_figures *ranks;
    size_t rank_count;
    size_t saves, broken; /* saves: complete ones; broken: lines that were left out */
    bool ended;           /* the run wrote its last row */
};

/* Fails if the folder has no metrics.jsonl. `figures` is empty after an error. */
TT_MUST_USE tt_status tt_run_figures_read(const char *folder, struct tt_run_figures *figures);
void tt_run_figures_deinit(struct tt_run_figures *figures); /* of a zeroed struct too */

#endif
