/* LLaMA-Factory's data sets (recipe/llama_factory_data.c). */
#ifndef TT_RECIPE_LLAMA_FACTORY_H
#define TT_RECIPE_LLAMA_FACTORY_H

#include "recipe/recipe_impl.h"

/* `dataset`: names of dataset_info.json in dataset_dir, separated by commas. */
TT_MUST_USE tt_status tt_llama_factory_read_dataset(struct tt_recipe *recipe,
                                                    const struct tt_yaml_node *node);
/* `eval_dataset`: the same, one name. */
TT_MUST_USE tt_status tt_llama_factory_read_eval(struct tt_recipe *recipe, const struct tt_yaml_node *node);

#endif
