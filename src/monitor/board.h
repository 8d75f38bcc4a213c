/* The dashboard's view of runs as JSON: curves of few points however many rows a run has, shares of the time,
 * memory, ranks, saves, generations, pictures, settings. Numbers that JSON cannot express are null. */
#ifndef TT_MONITOR_BOARD_H
#define TT_MONITOR_BOARD_H

#include "monitor/run_figures.h"

enum { TT_BOARD_POINTS = 500 }; /* columns of a curve; each has at most two points */

/* Indices of the points that stand for a series: the first and the last, and the least and the largest of each column,
 * in order. Returns their number, at most 2 * columns + 2. */
size_t tt_board_thin(const struct tt_series *series, size_t columns, size_t *indices);

enum tt_board_use {
    TT_BOARD_LIVE,   /* served by the training itself */
    TT_BOARD_SERVED, /* served from folders */
    TT_BOARD_ALONE,  /* in a page that has no server: with the pictures of the last evaluation */
};

/* {"version": .., "live": .., "now": .., "runs": [..]}; it contains no "<", so that it may stand in a page. */
TT_MUST_USE tt_status tt_board_write(const struct tt_run_figures *runs, size_t count, enum tt_board_use use,
                                     struct tt_str *text);

#endif
