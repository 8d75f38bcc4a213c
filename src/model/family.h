/* A model family: what its config.json means beyond the keys that all families share. One file and one line
 * in families.def each; the decoder itself is shared (model/decoder.c). */
#ifndef TT_MODEL_FAMILY_H
#define TT_MODEL_FAMILY_H

#include "model/model.h"

struct tt_model_family {
    const char *model_type;
    const char *architecture;
    int64_t default_kv_heads; /* when the key is missing; 0: as many as heads. null always means that */
    int64_t default_head_dim; /* when the key is missing; 0: hidden_size / num_attention_heads */
    int64_t default_max_position;
    /* PEFT's TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING, a JSON list */
    const char *default_target_modules;
    /* After the shared keys were read and checked: biases, norms, windows. */
    tt_status (*configure)(const struct tt_json *json, struct tt_model_config *config);
};

#define FAMILY(name) extern const struct tt_model_family tt_family_##name;
#include "model/families.def"
#undef FAMILY

const struct tt_model_family *tt_model_family_find(const char *model_type); /* NULL when not served */

/* For configure(): which layers have the sliding window by Qwen's keys: use_sliding_window, sliding_window,
 * max_window_layers (layers from that index on), or layer_types where it is given. */
TT_MUST_USE tt_status tt_model_config_qwen_windows(const struct tt_json *json,
                                                   struct tt_model_config *config);

#endif
