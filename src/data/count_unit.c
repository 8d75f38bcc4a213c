#include "data/count_unit.h"

#include "data/sampler.h"

const struct tt_count_unit_facts tt_count_units[TT_COUNT_UNITS] = {
#define UNIT(id, name, is_fine, smaller)                                                                     \
    {#name, "num_" #name, #name "_per_second", is_fine, smaller, offsetof(struct tt_step_facts, name)},
#include "data/count_units.def"
};

int tt_count_unit_digits(enum tt_count_unit unit, double rate)
{
    return tt_count_units[unit].is_fine && rate < 100.0 ? 1 : 0;
}

int64_t tt_step_count(const struct tt_step_facts *facts, enum tt_count_unit unit)
{
    return *(const int64_t *)(const void *)((const char *)facts + tt_count_units[unit].offset);
}
