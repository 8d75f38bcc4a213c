/* Shared by OLMo 2 and 3. */
#ifndef TT_MODEL_OLMO2_H
#define TT_MODEL_OLMO2_H

#include "model/dense.h"

/* Everything but windows; rotation 0 by `rules` (NULL: one for all layers). */
TT_MUST_USE tt_status tt_olmo2_parse(const struct tt_json *json, const struct tt_rope_rules *rules,
                                     struct tt_model_facts *facts);
const char *tt_olmo2_cannot(const struct tt_model_facts *facts);

#endif
