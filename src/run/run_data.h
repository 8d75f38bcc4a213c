/* The data of a run, rows or images: what differs between them is here. Internal to src/run. */
#ifndef TT_RUN_RUN_DATA_H
#define TT_RUN_RUN_DATA_H

#include "run/run.h"

/* Orders the data: samplers or orders of images, the limits of micro batches, the number of steps. `data_size`: ranks
 * that train on different samples. */
TT_MUST_USE tt_status tt_run_data_prepare(struct tt_run *run, int data_size);
/* Destroys what that made, so that it may be called again. */
void tt_run_data_close(struct tt_run *run);
/* A number of steps, which has no upper bound as a setting. */
int64_t tt_run_to_steps(double steps);
/* Reports the data sets. */
TT_MUST_USE tt_status tt_run_data_report(const struct tt_run *run);
bool tt_run_evaluates(const struct tt_run *run);
double tt_run_train_samples(const struct tt_run *run);

/* The limits of micro batches of images. */
struct tt_batch_limits tt_run_image_limits(const struct tt_detect_dataset *dataset,
                                           const struct tt_detect_order_config *order);
/* What a rank loads of images, in `order`. */
struct tt_detect_loader_config tt_run_loading(const struct tt_detect_inputs *inputs,
                                              const struct tt_detect_order_config *order,
                                              struct tt_rank *rank);
/* The training data of a rank. */
TT_MUST_USE tt_status tt_run_feed(const struct tt_run *run, struct tt_rank *rank, struct tt_feed *feed);
/* Evaluates after `step`. `storage` and `by_source` are those of rows; `stopped` as of tt_evaluate. Collective. */
TT_MUST_USE tt_status tt_run_evaluate(struct tt_run *run, struct tt_rank *rank, int64_t step,
                                      struct tt_batch_storage *storage, struct tt_by_source *by_source,
                                      bool *stopped, struct tt_evaluation *evaluation);

#endif
