/* A model family: the meaning of its config.json beyond the keys common to all families. One file and one line in
 * families.def each; all families share the decoder (model/decoder.c). */
#ifndef TT_MODEL_FAMILY_H
#define TT_MODEL_FAMILY_H

#include "model/model.h"

struct tt_model_family {
    const char *model_type;
    const char *architecture;
    int64_t default_kv_heads; /* when the key is missing; 0: as many as heads, which null always means */
    int64_t default_head_dim; /* when the key is missing; 0: hidden_size / num_attention_heads */
    int64_t default_max_position;
    /* PEFT's TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING, a JSON list */
    const char *default_target_modules;
    /* Called after the shared keys were parsed and checked; sets biases, norms, windows. */
    tt_status (*configure)(const struct tt_json *json, struct tt_model_config *config);
};

#define FAMILY(name) extern const struct tt_model_family tt_family_##name;
#include "model/families.def"
#undef FAMILY

const struct tt_model_family *tt_model_family_find(const char *model_type); /* NULL when not supported */

/* For configure(): the layers with the sliding window by Qwen's keys: use_sliding_window, sliding_window,
 * max_window_layers (layers from that index on), or layer_types if present. */
TT_MUST_USE tt_status tt_model_config_qwen_windows(const struct tt_json *json,
                                                   struct tt_model_config *config);

#endif
