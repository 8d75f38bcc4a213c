/* The units that a run counts and times: an objective names its own (objective/objective.h), and log rows, plans and
 * profiles have their words from here. */
#ifndef TT_DATA_COUNT_UNIT_H
#define TT_DATA_COUNT_UNIT_H

#include <stdbool.h>
#include <stddef.h>

enum tt_count_unit {
#define UNIT(id, name, is_fine, smaller) TT_COUNT_##id,
#include "data/count_units.def"
    TT_COUNT_UNITS
};

struct tt_count_unit_facts {
    const char *name;                   /* "tokens" */
    const char *count_name, *rate_name; /* keys: "num_tokens", "tokens_per_second" */
    bool is_fine;                       /* rates below 100 need digits after the point */
    const char *smaller;                /* what makes a micro batch smaller, for hints: "shorter rows" */
    size_t offset;                      /* of its count in struct tt_step_facts, an int64_t */
};
extern const struct tt_count_unit_facts tt_count_units[TT_COUNT_UNITS];

/* Digits after the point of a rate. */
int tt_count_unit_digits(enum tt_count_unit unit, double rate);

#endif
