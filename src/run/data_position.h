/* Where a stream of rows stands (data/step_flow.h), as an object of training_state.json. */
#ifndef TT_RUN_DATA_POSITION_H
#define TT_RUN_DATA_POSITION_H

#include "base/json.h"
#include "data/step_flow.h"

/* Owned; NULL without memory. */
struct tt_json_value *tt_data_position_json(const struct tt_flow_state *state);
/* TT_ERR_DATA: a number is missing or none that a position has. */
TT_MUST_USE tt_status tt_data_position_read(const struct tt_json *json, const struct tt_json_value *object,
                                            struct tt_flow_state *state);

#endif
