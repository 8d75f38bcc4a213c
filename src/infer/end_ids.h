/* The ids that end an answer. */
#ifndef TT_INFER_END_IDS_H
#define TT_INFER_END_IDS_H

#include "job/inputs.h"
#include "text/tokenizer.h"

/* Appends those of config.json, of the tokenizer and of generation_config.json, each once. */
TT_MUST_USE tt_status tt_end_ids_find(const struct tt_inputs *inputs, struct tt_ids *ids);
bool tt_end_ids_contain(const struct tt_ids *ids, int32_t id);

#endif
