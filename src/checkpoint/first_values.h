/* The first values of a new adapter whose kind computes them of whole matrices (model/lora_init.h): made once, by one
 * process, and kept as a PEFT folder, which every rank reads. It is PEFT's initial adapter: with it and the trained one
 * save_pretrained(path_initial_model_for_weight_conversion=...) makes a plain adapter, as each save here does by itself
 * (checkpoint/plain_adapter.h). */
#ifndef TT_CHECKPOINT_FIRST_VALUES_H
#define TT_CHECKPOINT_FIRST_VALUES_H

#include "base/thread.h"
#include "io/model_folder.h"
#include "model/model.h"

#define TT_FIRST_VALUES_FOLDER "initial_adapter" /* in output_dir */

struct tt_first_values {
    const struct tt_model *model;         /* lent, as all */
    const struct tt_model_folder *folder; /* the base's weights */
    uint64_t seed;
    int threads;
    const struct tt_cancel *cancel; /* or NULL */
    const char *base_name;          /* in adapter_config.json */
};

/* Writes adapter_model.safetensors, A and B in fp32, and adapter_config.json into `to`, which is replaced. The values
 * do not depend on the number of threads. */
TT_MUST_USE tt_status tt_first_values_write(const struct tt_first_values *first, const char *to);

#endif
