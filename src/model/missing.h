/* Models that no family reads: the parts that they need and that this program does not have, by the keys of their
 * configuration. Keys: those of transformers 5.24. */
#ifndef TT_MODEL_MISSING_H
#define TT_MODEL_MISSING_H

#include "base/json.h"
#include "base/str.h"

/* Appends "routed experts (num_experts), a gated delta rule (linear_num_value_heads)"; nothing where the keys name no
 * part that is missing. `config` may have a text_config. */
TT_MUST_USE tt_status tt_missing_write(const struct tt_json_value *config, struct tt_str *text);

#endif
