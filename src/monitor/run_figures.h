/* The figures of a run, read from its folder: metrics.jsonl, ranks/rank-N.jsonl, generations.jsonl, pictures.jsonl and
 * run.json. A run that was killed, still runs or was made on another machine reads as well: a line that is not a whole
 * row is counted and left out. */
#ifndef TT_MONITOR_RUN_FIGURES_H
#define TT_MONITOR_RUN_FIGURES_H

#include "monitor/rows.h"

/* One figure over the steps. */
struct tt_series {
    double *steps, *values;
    size_t count, capacity;
};

/* The least and the largest of the values from `first` to `end`, in the order of their steps: indices, equal where one
 * value is both. */
void tt_series_extremes(const struct tt_series *series, size_t first, size_t end, size_t indices[2]);

enum tt_figure {
#define FIGURE(name, key, title) TT_FIGURE_##name,
#include "monitor/figures.def"
    TT_FIGURE_COUNT
};
const char *tt_figure_key(enum tt_figure figure);   /* "loss" */
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

/* The time of one op, of a run that profiled. */
struct tt_op_figures {
    char name[48];
    double seconds; /* sum */
};

enum { TT_OP_FIGURES_MAX = 160 };

struct tt_rank_figures {
    char *name; /* of its file */
    int rank;
    double step_seconds, rank_wait_seconds; /* sums */
    double steps, step;                     /* of the sums; the last one */
    double device_bytes;
    struct tt_rows rows;
};

struct tt_run_figures {
    char *folder;
    struct tt_series series[TT_FIGURE_COUNT];
    struct tt_series share_series[TT_SHARE_COUNT]; /* seconds of a step */
    double shares[TT_SHARE_COUNT];
    double steps;              /* that the shares are sums of */
    struct tt_op_figures *ops; /* [op_count] */
    size_t op_count;
    double op_steps;            /* that their times are sums of */
    double mfu, device_bytes;   /* of the last row that has them; 0: none */
    struct tt_json_value *last; /* the last row with times; NULL: none */
    struct tt_rank_figures *ranks;
    size_t rank_count;
    size_t saves, broken;            /* saves: complete ones; broken: lines that were left out */
    bool ended;                      /* the run wrote its last row */
    struct tt_json_value *last_eval; /* the last row of an evaluation; NULL: none */
    struct tt_json_value *events;    /* rows of saves and resumes */
    struct tt_json_value *generations, *pictures;
    struct tt_json run; /* run.json; empty: there is none */
    uint64_t run_changed;
    double changed; /* of metrics.jsonl, since 1970 */
    struct tt_rows rows, generation_rows, picture_rows;
    uint64_t version; /* grows with every row read */
};

/* Reads all of a run. Fails if the folder has no metrics.jsonl. `figures` is empty after an error. */
TT_MUST_USE tt_status tt_run_figures_read(const char *folder, struct tt_run_figures *figures);
/* The same for a run that may still go on or has not begun: the folder may lack every file. */
TT_MUST_USE tt_status tt_run_figures_open(const char *folder, struct tt_run_figures *figures);
/* Reads the new rows. */
TT_MUST_USE tt_status tt_run_figures_update(struct tt_run_figures *figures);
void tt_run_figures_deinit(struct tt_run_figures *figures); /* of a zeroed struct too */

#endif
