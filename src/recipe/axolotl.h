/* axolotl's data sets (recipe/axolotl_data.c). */
#ifndef TT_RECIPE_AXOLOTL_H
#define TT_RECIPE_AXOLOTL_H

#include "recipe/recipe_impl.h"

TT_MUST_USE tt_status tt_axolotl_read_datasets(struct tt_recipe *recipe, const struct tt_yaml_node *node);
/* The data of evaluation: one data set, of the same type. */
TT_MUST_USE tt_status tt_axolotl_read_test_datasets(struct tt_recipe *recipe,
                                                    const struct tt_yaml_node *node);

#endif
