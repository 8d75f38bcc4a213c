/* Names of linears that are parameters since transformers 5: PEFT translates target_modules of model types whose
 * experts were a module each (convert_peft_config_for_transformers of 0.21, in
 * peft/utils/transformers_weight_conversion.py).
 *
 * - An entry that is the older name of an expert's linear, or ends with it behind a point, becomes the parameter that
 *   holds these linears now: gate and up "gate_up_proj", down "down_proj", and "gate" the router's "gate.weight". It
 *   adapts no module of that name, such as the linear of an MLP or of an expert that every token has.
 * - gate and up are named together or not at all. The rank and the alpha of gate_up_proj are then twice the run's,
 *   behind the keys of rank_pattern and alpha_pattern.
 * - "all-linear" is the last names of all linears, and all of these. */
#ifndef TT_MODEL_LORA_CONVERT_H
#define TT_MODEL_LORA_CONVERT_H

#include "model/module.h"

/* Older names of the linears of an expert. */
struct tt_older_experts {
    const char *gate, *up, *down;
};

/* Translates *lora in place, with texts in `arena`; nothing where it names none of these linears, or by an
 * expression. */
TT_MUST_USE tt_status tt_lora_convert(const struct tt_older_experts *older,
                                      const struct tt_module_list *modules, struct tt_arena *arena,
                                      struct tt_lora_config *lora);

#endif
