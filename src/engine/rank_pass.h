/* Passes of a rank: its micro batch on the device, the objective between forward and backward, and sums of the results.
 *
 *     clear the sums -> (share) -> for each micro batch: upload -> (reference) -> executor forward -> add the loss
 *                    -> backward
 *                    -> add the squares of gradients -> read the sums
 */
#ifndef TT_ENGINE_RANK_PASS_H
#define TT_ENGINE_RANK_PASS_H

#include "engine/rank.h"

/* ---- Micro batches ---- */

/* Copies a micro batch of tokens to the device and fills `pass`: lends this rank's services, except cache and exchange,
 * and its `results`, empty. The caller sets the mode, the rng and the scale of the loss; the objective sets scales of
 * rows. */
TT_MUST_USE tt_status tt_rank_upload(struct tt_rank *rank, const struct tt_batch *batch,
                                     struct tt_pass *pass);

/* The same for tokens and attachments. Where the device is the host, the pass reads the memory of the parts, which must
 * last until its end. */
TT_MUST_USE tt_status tt_rank_upload_micro(struct tt_rank *rank, const struct tt_micro *micro,
                                           struct tt_pass *pass);
/* Attachments as large as the limits, for a plan, after tt_rank_upload. */
TT_MUST_USE tt_status tt_rank_attach_largest(struct tt_rank *rank, const struct tt_batch_limits *limits);
/* Work that attachments need before a forward pass. Call it when `pass` is complete. */
TT_MUST_USE tt_status tt_rank_prepare(struct tt_rank *rank, const struct tt_pass *pass);

/* Copies the next micro batch's parts while the queued passes run, so that its upload finds them on the device. They
 * must not change until then. */
TT_MUST_USE tt_status tt_rank_upload_ahead(struct tt_rank *rank, const struct tt_micro *micro);
/* Drops that copy: call it before micro batches are made again. */
void tt_rank_forget_ahead(struct tt_rank *rank);
/* Whether the device has room for the next micro batch beside this one. False: there is nothing to copy ahead. */
bool tt_rank_takes_ahead(const struct tt_rank *rank);

/* ---- The objective and sums ---- */

/* Sums in device memory, so that the host need not wait for each pass: sums of the objective, the sum of squares of
 * the gradients, and the loss that balances experts. All calls but the read only queue work. */
enum { TT_SUM_SQUARES = TT_OBJECTIVE_SUMS, TT_SUM_OF_BALANCE, TT_SUM_COUNT };
TT_MUST_USE tt_status tt_rank_clear_sums(struct tt_rank *rank);
/* Runs the reference's pass, if the objective has a reference. Call it after tt_rank_upload; `pass` does not change.
 * Collective. */
TT_MUST_USE tt_status tt_rank_reference(struct tt_rank *rank, const struct tt_pass *pass);
/* Gives log p of the batch's rows by the reference, in host memory until the next pass. The rank has the values that
 * the training begins with. Collective. */
TT_MUST_USE tt_status tt_rank_compute_reference(struct tt_rank *rank, const struct tt_batch *batch,
                                                const float **logp_N);
/* An objective's `share`: whether it has one, and its values are 0 now. Then a pass of its own, without dropout and
 * gradient, for each micro batch of a step, after tt_rank_upload, which does not change `pass`; then the sums over the
 * ranks. Collective. */
bool tt_rank_share_begin(struct tt_rank *rank);
TT_MUST_USE tt_status tt_rank_share(struct tt_rank *rank, const struct tt_batch *batch,
                                    const struct tt_objective_counts *counts, const struct tt_pass *pass);
TT_MUST_USE tt_status tt_rank_share_end(struct tt_rank *rank);
/* Called after a forward pass: adds to the sums of the objective, and writes the scales of rows for backward if the
 * objective has them; for these the host waits for the pass. `counts`: of the whole step. */
TT_MUST_USE tt_status tt_rank_add_loss(struct tt_rank *rank, const struct tt_batch *batch,
                                       const struct tt_objective_counts *counts, const struct tt_pass *pass);
/* The loss that balances experts, where the model has one and a gradient follows: lends its sums to the blocks of a
 * forward pass, whose inputs are set; then adds it to the sum of losses, and makes its gradient for the backward pass.
 * Collective over the data axis, also for a rank without tokens. */
TT_MUST_USE tt_status tt_rank_balance_begin(struct tt_rank *rank, struct tt_pass *pass);
TT_MUST_USE tt_status tt_rank_balance_end(struct tt_rank *rank, const struct tt_pass *pass,
                                          int64_t micro_steps);
/* Whether steps have it. */
bool tt_rank_balances(const struct tt_rank *rank);
/* Adds the sum of squares of values[count], fp32 in device memory, to the sum at TT_SUM_SQUARES. */
TT_MUST_USE tt_status tt_rank_add_squares(struct tt_rank *rank, const float *values, int64_t count);
/* Reads all sums. Waits for the device. */
TT_MUST_USE tt_status tt_rank_read_sums(struct tt_rank *rank, double sums[TT_SUM_COUNT]);
/* Adds the sums of an evaluation that follow from an objective's tallies, after those over the ranks. Collective. */
TT_MUST_USE tt_status tt_rank_finish_sums(struct tt_rank *rank, double sums[TT_SUM_COUNT]);
/* The same for one parameter: adds to the sum number `index` of as many as the model has parameters. */
TT_MUST_USE tt_status tt_rank_add_param_squares(struct tt_rank *rank, size_t index, const float *values,
                                                int64_t count);
/* Reads these sums into squares[model->param_count] and clears them. Waits for the device. */
TT_MUST_USE tt_status tt_rank_read_param_squares(struct tt_rank *rank, double *squares);

#endif
