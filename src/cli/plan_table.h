/* Plans of several runs as one table: every combination of the values of some settings is a row. */
#ifndef TT_CLI_PLAN_TABLE_H
#define TT_CLI_PLAN_TABLE_H

#include "engine/plan.h"

/* Makes the plan of a run whose flags also have `flags` [count]. */
typedef tt_status (*tt_plan_of_flags)(void *context, int count, char *const *flags, struct tt_plan *plan);

/* `axes`: "device=h200,h100 ranks=2,4". Appends the table, which is at most `columns` wide. */
TT_MUST_USE tt_status tt_plan_table(const char *axes, tt_plan_of_flags plan_of, void *context, int columns,
                                    struct tt_str *text);

#endif
