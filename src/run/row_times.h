/* Where the time went since the last log row, on every rank: the phases of the steps, and between them saves and
 * evaluations. Rank 0 adds the figures to its row of metrics.jsonl; every other rank writes them into
 * output_dir/ranks/rank-N.jsonl. */
#ifndef TT_RUN_ROW_TIMES_H
#define TT_RUN_ROW_TIMES_H

#include "backend/profile.h"
#include "engine/phases.h"
#include "engine/rank.h"
#include "run/journal.h"

enum { TT_ROW_TIMES_MAX = 48 + TT_SPAN_COUNT };

/* The parts of the wall time of a run; what is left is the time of log rows and other work between steps. */
enum tt_stretch { TT_STRETCH_STEP, TT_STRETCH_SAVE, TT_STRETCH_EVALUATE, TT_STRETCH_COUNT };

struct tt_row_times {
    struct tt_record_file *file; /* NULL on rank 0 */
    int rank, ranks;
    double phases[TT_PHASE_COUNT];
    double stretches[TT_STRETCH_COUNT], totals[TT_STRETCH_COUNT];
    const char *unit;    /* "tokens" or "images" */
    double tokens;       /* of all ranks, or images */
    double begun, start; /* tt_clock_seconds at the last row, and at the start */
    double flops;        /* of all ranks, at the last row */
    int64_t steps;
    char memory_names[TT_PURPOSE_COUNT][32]; /* of the fields */
    bool profiles;                           /* with the time by op, and the device's sensors */
    struct tt_op_time ops[TT_SPAN_COUNT];    /* at the last row */
    char op_names[TT_SPAN_COUNT][48];
    double joules; /* at the last row */
};

const char *tt_row_times_purpose(enum tt_purpose purpose); /* "weights", of weights_bytes */

/* Creates the file of a rank. A file that cannot be created is a warning. */
void tt_row_times_init(struct tt_row_times *times, const struct tt_objective *objective, int rank, int ranks,
                       const char *output_dir, double flops);
void tt_row_times_deinit(struct tt_row_times *times);
void tt_row_times_step(struct tt_row_times *times, const struct tt_phases *phases, double seconds,
                       double tokens);
/* Rows have the time by op from now on: the device profiles. */
void tt_row_times_profile(struct tt_row_times *times, struct tt_device *device);
/* The time since `start` was spent on `stretch`. */
void tt_row_times_stretch(struct tt_row_times *times, enum tt_stretch stretch, double start);
/* Takes the figures since the last row; means of a step. `flops`: of all ranks so far. Returns their number. */
int tt_row_times_take(struct tt_row_times *times, struct tt_device *device, double flops,
                      struct tt_log_field fields[TT_ROW_TIMES_MAX]);
/* The same as a row of this rank's own file. */
void tt_row_times_write(struct tt_row_times *times, struct tt_device *device, double flops, int64_t step);
/* The sums of the whole run. Returns their number. */
int tt_row_times_totals(const struct tt_row_times *times, double end,
                        struct tt_log_field fields[TT_ROW_TIMES_MAX]);

#endif
