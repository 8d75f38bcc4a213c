/* Selection of the modules with LoRA, their ranks and scales, and of the modules trained as full copies: PEFT's rules,
 * exactly.
 *
 * - target_modules: a list: the path is an entry or ends with ".entry"; an expression: it matches the whole
 *   path; "all-linear": every linear but lm_head; NULL: the family's default.
 * - target_parameters: a list, by which the matrices of all experts of a layer are chosen by the same rule of endings;
 *   with them target_modules may be left out. Neither exclude_modules nor layers_to_transform is about them. Without
 *   dropout.
 * - exclude_modules: the same rules; it wins.
 * - modules_to_save: every module whose path ends with an entry (also inside a name: "norm" is every layer
 *   norm) trains in full; it is not adapted as well when the entry is a whole component of the path.
 * - layers_to_transform: with a list of targets, only layers of these indices (layers_pattern names the
 *   lists of layers).
 * - rank_pattern, alpha_pattern: the first key of which (.*\.)?(key) matches the whole path.
 * - scale: alpha / r, with rslora alpha / sqrt(r); r is that module's own.
 *
 * Stricter than PEFT, because such a run would not train what was intended: an entry or key that matches nothing is an
 * error (for an existing adapter, a log line); modules_to_save must exist. */
#ifndef TT_MODEL_LORA_H
#define TT_MODEL_LORA_H

#include "model/module.h"

/* Sets `adapted`, `saved`, r, alpha and scaling of the modules. `default_targets`: a JSON list. */
TT_MUST_USE tt_status tt_lora_apply(const struct tt_lora_config *config, const char *default_targets,
                                    struct tt_module_list *modules);

/* *all: target_modules is "all-linear" in any case of letters, or a list of that word alone. A list that does not parse
 * is no error here. */
TT_MUST_USE tt_status tt_lora_is_all_linear(const char *target_modules, bool *all);

#endif
