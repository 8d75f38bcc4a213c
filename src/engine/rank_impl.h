/* Private header of the files of a rank: what each of them makes for tt_rank_init, and removes again. */
#ifndef TT_ENGINE_RANK_IMPL_H
#define TT_ENGINE_RANK_IMPL_H

#include "engine/rank_pass.h"

/* rank_units.c, for tt_rank_init: creates shard context and units. For tt_rank_load: fails on every rank when some
 * split the vocabulary and others do not. */
TT_MUST_USE tt_status tt_rank_create_units(const struct tt_rank_config *config, struct tt_rank *rank);
TT_MUST_USE tt_status tt_rank_check_split(struct tt_rank *rank);
/* Whether a matrix that one block alone reads, and that can come in parts, is in a unit of several blocks. */
bool tt_rank_has_table_beside(const struct tt_model *model);
/* rank_experts.c: a number that all layers' experts are a multiple of; 0: there are none, or their weights train. */
TT_MUST_USE tt_status tt_rank_count_experts(const struct tt_model *model, int64_t *experts);
/* Lists their matrices in `found`, which has room for all parameters. */
TT_MUST_USE tt_status tt_rank_find_experts(const struct tt_model *model, const tt_param **found,
                                           size_t *count);
/* Collective. Fails unless all ranks have the same expert_parallel. */
TT_MUST_USE tt_status tt_rank_check_experts(const struct tt_rank_config *config, const struct tt_rank *rank);
/* rank_derived.c, for tt_rank_load: sets what no adapter has and follows from weights (TT_INIT_DERIVED), and
 * folds it where nothing trains. Collective. */
struct tt_load_source;
TT_MUST_USE tt_status tt_rank_derive(struct tt_rank *rank, const struct tt_load_source *source);
/* rank_tokens.c and rank_sums.c, for tt_rank_init: the buffers of a micro batch, of rotations, and of sums. */
TT_MUST_USE tt_status tt_rank_tokens_init(const struct tt_rank_config *config, struct tt_rank *rank);
void tt_rank_tokens_deinit(struct tt_rank *rank);
TT_MUST_USE tt_status tt_rank_sums_init(const struct tt_rank_config *config, struct tt_rank *rank);
/* rank_balance.c, for tt_rank_init. */
TT_MUST_USE tt_status tt_rank_balance_init(const struct tt_rank_config *config, struct tt_rank *rank);
/* rank_sums.c, for rank_balance.c: where steps add up the loss that balances experts. */
tt_tensor tt_rank_balance_sum(const struct tt_rank *rank);
/* rank_sums.c, for rank_batch.c: the sums that the objective reads, to the blocks of the pass. */
TT_MUST_USE tt_status tt_rank_lend_sums(struct tt_rank *rank);
/* rank_batch.c, for tt_rank_init and tt_rank_deinit: the memory of attachments. */
TT_MUST_USE tt_status tt_rank_attached_init(const struct tt_rank_config *config, struct tt_rank *rank);
void tt_rank_attached_deinit(struct tt_rank *rank);
/* rank_tokens.c, for rank_batch.c: the tokens of a micro batch, in rank->batch. */
TT_MUST_USE tt_status tt_rank_place_tokens(struct tt_rank *rank, const struct tt_batch *batch,
                                           struct tt_pass *pass);
/* rank_tokens.c, for rank_rows.c. Values of four bytes of the rows of the pass -> those of all rows of the micro batch,
 * in place; and scales of these -> the sums of those that the pass has as one row, in `folded_N`, or as they are. */
void tt_rank_unfold_rows(const struct tt_rank *rank, void *values_N);
const float *tt_rank_fold_scales(const struct tt_rank *rank, const float *scale_N, float *folded_N);
/* rank_reference.c, for tt_rank_init and tt_rank_deinit: memory for the reference of the objective.
 * TT_ERR_USAGE: there is none. */
TT_MUST_USE tt_status tt_rank_reference_init(const struct tt_rank_config *config, struct tt_rank *rank);
void tt_rank_reference_deinit(struct tt_rank *rank);
bool tt_rank_has_reference(const struct tt_rank *rank); /* the objective needs one */
/* Whether it is a copy of the values that train. For tt_rank_load: copies the values as they are now. */
bool tt_rank_copies_reference(const struct tt_rank *rank);
TT_MUST_USE tt_status tt_rank_keep_reference(struct tt_rank *rank);
/* rank_rows.c, for rank_reference.c: log p of the labels of a pass, [rows], in host memory. */
TT_MUST_USE tt_status tt_rank_read_logp(struct tt_rank *rank, const struct tt_pass *pass, float *logp_N);
/* rank_rows.c, for tt_rank_init: allocates `rows`. For tt_rank_add_loss: calls the objective's function. */
int64_t tt_rank_labels(const struct tt_rank *rank); /* of the scores that the objective reads; 0: none */
TT_MUST_USE tt_status tt_rank_rows_init(const struct tt_rank_config *config, struct tt_rank *rank);
TT_MUST_USE tt_status tt_rank_run_objective(struct tt_rank *rank, const struct tt_batch *batch,
                                            const struct tt_objective_counts *counts,
                                            const struct tt_pass *pass);

#endif
