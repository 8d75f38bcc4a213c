/* The tokens whose rows train apart from their table: PEFT's trainable_token_indices (utils/other.py,
 * set_additional_trainable_modules, 0.21.2).
 *
 * A list is of the embeddings, and where embeddings and head are one table of the head too. An object has a list for
 * each module, by the end of its path: embed_tokens, lm_head. With one table the list of embed_tokens is the head's
 * too, unless the head has another one.
 *
 * Stricter than PEFT: ids are ids of the model, and none is listed twice; the module is neither in modules_to_save nor
 * in target_modules. */
#ifndef TT_MODEL_TRAINED_TOKENS_H
#define TT_MODEL_TRAINED_TOKENS_H

#include "model/module.h"

/* Sets `tokens` of the modules, in memory of the model. After the rules of LoRA (model/lora.h). */
TT_MUST_USE tt_status tt_trained_tokens_apply(struct tt_model *model);

#endif
