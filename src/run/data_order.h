/* The order of a run's data, and the steps that follow from it. */
#ifndef TT_RUN_DATA_ORDER_H
#define TT_RUN_DATA_ORDER_H

#include "run/run.h"

/* Orders the data; sets the limits of micro batches and the number of steps. `data_size`: ranks that train on different
 * samples. */
TT_MUST_USE tt_status tt_run_order_data(struct tt_run *run, int data_size);
/* Drops that order, so that it may be made again. */
void tt_run_close_data(struct tt_run *run);
/* A number of steps, which has no upper bound as a setting. */
int64_t tt_run_to_steps(double steps);

#endif
