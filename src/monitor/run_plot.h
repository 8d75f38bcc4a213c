/* Drawings of one or more runs: loss, evaluation loss, learning rate, gradient norm, speed over the steps. */
#ifndef TT_MONITOR_RUN_PLOT_H
#define TT_MONITOR_RUN_PLOT_H

#include "monitor/run_figures.h"

enum tt_plot_format { TT_PLOT_SVG, TT_PLOT_PNG };

/* Appends a drawing with a panel for every figure that a run has (monitor/canvas.h). A curve has at most two points for
 * each of its columns, so the size does not grow with the number of rows. */
TT_MUST_USE tt_status tt_run_plot(const struct tt_run_figures *runs, size_t count, enum tt_plot_format format,
                                  struct tt_str *file);

#endif
