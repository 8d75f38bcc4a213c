/* The op table of the plan device: the checked entries have done all there is to do. */
#ifndef TT_BACKEND_PLAN_PLAN_OPS_H
#define TT_BACKEND_PLAN_PLAN_OPS_H

#include "backend/device_impl.h"

extern const struct tt_op_table tt_plan_op_table;

#endif
