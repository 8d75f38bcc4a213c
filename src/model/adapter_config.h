/* The files of a PEFT adapter folder: adapter_config.json, and the tensor names of adapter_model.safetensors. Source:
 * peft/config.py, peft/tuners/lora/config.py, peft/utils/save_and_load.py; compared with PEFT 0.21. */
#ifndef TT_MODEL_ADAPTER_CONFIG_H
#define TT_MODEL_ADAPTER_CONFIG_H

#include "base/str.h"
#include "io/safetensors.h"
#include "model/model.h"

/* Parses folder/adapter_config.json into *lora, with texts in `arena`; sets `enabled` and `from_adapter`. Unsupported
 * keys that change results must have their default (TT_ERR_UNSUPPORTED names the key); unknown keys are logged. */
TT_MUST_USE tt_status tt_adapter_config_read(const char *folder, struct tt_arena *arena,
                                             struct tt_lora_config *lora);
TT_MUST_USE tt_status tt_adapter_config_parse(const struct tt_json *json, struct tt_arena *arena,
                                              struct tt_lora_config *lora);

/* TT_ERR_USAGE: the adapter is one of a model with scores, and this is a language model, or the other way round. */
TT_MUST_USE tt_status tt_adapter_config_check(const struct tt_lora_config *lora,
                                              const struct tt_model_facts *facts);

/* Appends the adapter_config.json of the model's LoRA, as PEFT writes it (2 spaces, sorted keys, "all-linear"
 * spelled out) and readable by PEFT from 0.14 on. `base_model` is the model's folder or NULL. */
TT_MUST_USE tt_status tt_adapter_config_write(const struct tt_model *model, const char *base_model,
                                              struct tt_str *text);
/* That of the first values alone: where training changes the base, what is saved has twice the rank (lora_init.h). */
TT_MUST_USE tt_status tt_adapter_config_write_first(const struct tt_model *model, const char *base_model,
                                                    struct tt_str *text);

/* Opens the weights of an adapter folder for this model. Where the model is the text part of a folder, keys made over
 * the text model alone ("base_model.model.model.layers...") or spelled as before transformers 4.52 become those of the
 * folder's class, as the parameters have. Where an adapter's files hold parameters otherwise they are joined. */
TT_MUST_USE tt_status tt_adapter_open_for(const char *folder, const struct tt_model_facts *facts,
                                          const struct tt_lora_config *lora, struct tt_safetensors **out);

/* How an adapter's files hold what the parameters have otherwise (io/param_source.h): PEFT's modules are those of
 * transformers' class, which have the rows of a weight in the order of the files; where the family deals them anew, so
 * are the rows of B. Names are keys of the file, their memory is `arena`'s. Without rows: none differs. */
TT_MUST_USE tt_status tt_adapter_sources(const struct tt_model_facts *facts,
                                         const struct tt_lora_config *lora, struct tt_arena *arena,
                                         struct tt_param_sources *sources);

/* Shows adapters of the linears of single experts, which PEFT wrote before transformers 5, as those of all experts
 * (io/expert_adapters.h). */
TT_MUST_USE tt_status tt_adapter_show_experts(const struct tt_model_facts *facts,
                                              struct tt_safetensors **file);

/* Joins what the file of an adapter holds so, with the names of this model. */
TT_MUST_USE tt_status tt_adapter_join(const struct tt_model_facts *facts, const struct tt_lora_config *lora,
                                      struct tt_safetensors **file);

/* "model.layers.0.self_attn.q_proj.lora_A.weight" -> "base_model.model.model.layers...": returns owned
 * memory, or NULL with the error record set. */
char *tt_adapter_key(const char *param_name);
/* The part of an adapter's key behind "base_model.model."; the key itself, and false, when it does not begin so. */
bool tt_adapter_key_path(const char *key, const char **path);

#endif
