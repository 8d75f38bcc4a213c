/* Tensors of a model folder or an adapter that are left unread, because they repeat what the model has from elsewhere.
 * Each kind is one row of a table, with the comparison that makes it safe: a tensor that differs from what its name
 * says is used as transformers 5 and PEFT 0.21 use it, or refused by its name.
 *
 *   the head of tied embeddings          equal to the embeddings (tt_tied_head_compare), else a head of its own
 *   rotary_emb.inv_freq                  the frequencies of config.json, which count; others: a warning
 *   k_scale, v_scale of a folder in FP8  one positive number, for servers whose cache is in FP8
 *   lm_head where the head gives scores  the scores have its place
 *   a layer behind the last one          it predicts a further token (struct tt_model_family), and nobody trains it
 *   of an adapter: copies of the base    equal to the base's tensor
 *   of an adapter: what it trained, once equal to that: the head beside a table that both share, and PEFT's
 *   more under another name              modules_to_save.weight
 */
#ifndef TT_CHECKPOINT_UNREAD_H
#define TT_CHECKPOINT_UNREAD_H

#include "checkpoint/load.h"

/* Whether a folder whose config.json ties embeddings and head has two tables that differ, as far as the share of this
 * process goes: its model is not tied then, as in transformers 5 (PreTrainedModel.tie_weights). `folder` may be NULL or
 * without weights. */
TT_MUST_USE tt_status tt_tied_head_compare(const struct tt_model_folder *folder,
                                           const struct tt_compare_share *share,
                                           const struct tt_model_facts *facts, bool *differs);
/* Writes into the facts what the weights say: `differs` of any share. Warns where it is not what config.json says. */
void tt_tied_head_settle(const struct tt_model_folder *folder, bool differs, struct tt_model_facts *facts);
/* Both for a process that is alone. */
TT_MUST_USE tt_status tt_tied_head_inspect(const struct tt_model_folder *folder,
                                           struct tt_model_facts *facts);

/* Whether tensor `name` of the folder, or tensor `key` of the adapter, may be left unread. One that differs from what
 * it should repeat is TT_ERR_DATA. */
TT_MUST_USE tt_status tt_unread_of_folder(const struct tt_model *model, const struct tt_load_source *source,
                                          const char *name, bool *unread);
TT_MUST_USE tt_status tt_unread_of_adapter(const struct tt_model *model, const struct tt_load_source *source,
                                           const char *key, bool *unread);

#endif
