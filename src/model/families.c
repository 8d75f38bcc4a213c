/* The list of families, by itself (family.h). */
#include "model/family.h"

static const struct tt_model_family *const families[] = {
#define FAMILY(name) &tt_family_##name,
#include "model/families.def"
#undef FAMILY
};

const struct tt_model_family *tt_model_family_at(size_t index)
{
    return index < sizeof families / sizeof families[0] ? families[index] : NULL;
}
