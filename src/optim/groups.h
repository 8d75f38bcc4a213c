/* Parameter groups: the learning rate and the weight decay of each trainable parameter. The rate of a group is a factor
 * of the run's, so that the schedule is that of all.
 *
 * lr_groups         a list of {name, modules, lr}: a parameter whose name contains one of `modules` has `lr`; the first
 *                   group that names it counts, and a group that names none is an error
 * embedding_...     parameters whose names contain embed_tokens or lm_head
 * loraplus_...      LoRA+ (Hayou et al., arXiv 2402.12354) as create_loraplus_optimizer of PEFT groups it: lora_B and
 *                   all vectors have `loraplus_lr_ratio` times the rate, and vectors decay unless they are biases
 *
 * The first line that applies to a parameter decides. */
#ifndef TT_OPTIM_GROUPS_H
#define TT_OPTIM_GROUPS_H

#include <stddef.h>

#include "base/error.h"
#include "optim/config.h"
#include "tensor/param.h"

/* The embedding or the head, by its name in model folders. */
bool tt_param_is_vocabulary(const tt_param *param);
/* TT_ERR_USAGE for groups that do not parse, and for two rates of the embeddings. */
TT_MUST_USE tt_status tt_param_groups_check(const struct tt_optim_config *config);
/* Sets lr_scale and weight_decay of the trainable ones among `params`. TT_ERR_USAGE names a group without parameters.
 */
TT_MUST_USE tt_status tt_param_groups_apply(const struct tt_optim_config *config, tt_param *const *params,
                                            size_t count);

#endif
