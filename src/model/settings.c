#include "model/settings.h"

#include <math.h>
#include <stddef.h>

#include "model/model.h"

#define FIELD(member) .offset = offsetof(struct tt_lora_config, member)

/* One row is one paragraph. */
/* clang-format off */

static const char *const other_init =
    "PiSSA, OLoRA, EVA, CorDA, LoftQ and the like change the base weights or need a data "
    "pass; use true (PEFT's default) or gaussian";

/* Keys and meaning: PEFT's LoraConfig; lora_* spellings and defaults: TRL's ModelConfig. */
const struct tt_setting tt_lora_settings[] = {
    {.name = "lora_r", .aliases = "r", .type = TT_SETTING_INT, FIELD(r), .default_text = "16", .minimum = 1,
     .maximum = 65536, .help = "Rank of the adapters."},
    {.name = "lora_alpha", .aliases = "alpha", .type = TT_SETTING_DOUBLE, FIELD(alpha), .default_text = "32",
     .help = "Scaling: the adapter's output is multiplied by alpha / r."},
    {.name = "lora_dropout", .type = TT_SETTING_DOUBLE, FIELD(dropout), .default_text = "0.05", .minimum = 0,
     .maximum = 0.999, .help = "Dropout on the adapter's input."},
    {.name = "lora_target_modules", .aliases = "target_modules", .type = TT_SETTING_JSON,
     FIELD(target_modules),
     .help = "Names of the linears to adapt, one regular expression for their whole path, or all-linear. "
             "Not given: q_proj and v_proj."},
    {.name = "exclude_modules", .aliases = "lora_exclude_modules", .type = TT_SETTING_JSON,
     FIELD(exclude_modules),
     .help = "Names or expression of modules that are never adapted; overrides lora_target_modules."},
    {.name = "lora_modules_to_save", .aliases = "modules_to_save", .type = TT_SETTING_JSON,
     FIELD(modules_to_save),
     .help = "Modules that train in full and are saved with the adapter (embed_tokens, lm_head)."},
    {.name = "layers_to_transform", .type = TT_SETTING_JSON, FIELD(layers_to_transform),
     .help = "Indices of the layers to adapt; not given: all."},
    {.name = "layers_pattern", .type = TT_SETTING_JSON, FIELD(layers_pattern),
     .help = "Name of the list of layers in the module path."},
    {.name = "rank_pattern", .type = TT_SETTING_JSON, FIELD(rank_pattern),
     .help = "Ranks that differ from lora_r, by module name or expression: {\"q_proj\": 32}."},
    {.name = "alpha_pattern", .type = TT_SETTING_JSON, FIELD(alpha_pattern),
     .help = "Alphas that differ from lora_alpha, by module name or expression."},
    {.name = "use_rslora", .type = TT_SETTING_BOOL, FIELD(use_rslora), .default_text = "false",
     .help = "Scale by alpha / sqrt(r) instead of alpha / r."},
    {.name = "init_lora_weights", .type = TT_SETTING_BOOL, FIELD(gaussian_init), .default_text = "true",
     .choices = "true gaussian", .only_reason = other_init,
     .help = "true: A is Kaiming-uniform and B zero; gaussian: A is normal with deviation 1 / r."},

    TT_SETTING_ONLY("bias", STRING, "none", "none", "training biases beside an adapter is not supported"),
    TT_SETTING_ONLY("lora_task_type", STRING, "CAUSAL_LM", "null CAUSAL_LM",
                    "only causal language models are supported"),
    TT_SETTING_ONLY("task_type", STRING, NULL, "null CAUSAL_LM",
                    "only causal language models are supported"),
    TT_SETTING_ONLY("peft_type", STRING, "LORA", "LORA", "only LoRA adapters are supported"),
    TT_SETTING_ONLY("fan_in_fan_out", BOOL, "false", "false",
                    "it is for Conv1D weights (GPT-2), which no supported family has"),
    TT_SETTING_ONLY("use_dora", BOOL, "false", "false", "DoRA is not supported; use_rslora is"),
    TT_SETTING_ONLY("lora_bias", BOOL, "false", "false", "a bias on lora_B is not supported"),
    TT_SETTING_ONLY("lora_target_parameters", JSON, NULL, "null []", "name modules with lora_target_modules"),
    TT_SETTING_ONLY("target_parameters", JSON, NULL, "null []", "name modules with lora_target_modules"),
    TT_SETTING_ONLY("trainable_token_indices", JSON, NULL, "null [] {}",
                    "train whole embeddings with lora_modules_to_save embed_tokens"),
    TT_SETTING_ONLY("layer_replication", JSON, NULL, "null []", "layers are not replicated"),
    TT_SETTING_ONLY("ensure_weight_tying", BOOL, "false", "false",
                    "the model's config.json decides which weights are tied"),
    TT_SETTING_ONLY("alora_invocation_tokens", JSON, NULL, "null []", "activated LoRA is not supported"),
    TT_SETTING_ONLY("use_qalora", BOOL, "false", "false", "QA-LoRA is not supported"),
    TT_SETTING_ONLY("use_bdlora", JSON, NULL, "null false", "block-diagonal LoRA is not supported"),
    TT_SETTING_ONLY("loftq_config", JSON, NULL, "null {}", "LoftQ initialisation is not supported"),
    TT_SETTING_ONLY("eva_config", JSON, NULL, "null {}", "EVA initialisation is not supported"),
    TT_SETTING_ONLY("corda_config", JSON, NULL, "null {}", "CorDA initialisation is not supported"),
    TT_SETTING_ONLY("lora_ga_config", JSON, NULL, "null {}", "LoRA-GA initialisation is not supported"),
    TT_SETTING_ONLY("velora_config", JSON, NULL, "null {}", "VeLoRA is not supported"),
    TT_SETTING_ONLY("monteclora_config", JSON, NULL, "null {}", "MonteCLoRA is not supported"),
    TT_SETTING_ONLY("kasa_config", JSON, NULL, "null {}", "KaSA is not supported"),
    TT_SETTING_ONLY("arrow_config", JSON, NULL, "null {}", "Arrow routing is not supported"),
    TT_SETTING_ONLY("megatron_config", JSON, NULL, "null {}", "Megatron models are not supported"),

    TT_SETTING_UNNEEDED("megatron_core", "it names a Python module of Megatron"),
    TT_SETTING_UNNEEDED("qalora_group_size", "it belongs to use_qalora"),
    TT_SETTING_UNNEEDED("inference_mode", "training and inference are separate commands"),
    TT_SETTING_UNNEEDED("auto_mapping", "it helps Python find a model class"),
    TT_SETTING_UNNEEDED("base_model_name_or_path", "model_name_or_path names the base model"),
    TT_SETTING_UNNEEDED("revision", "models are read from a folder"),
    TT_SETTING_UNNEEDED("runtime_config", "it changes the execution of PEFT, not its results"),
    TT_SETTING_UNNEEDED("peft_version", "it records the release that wrote a file"),
    TT_SETTING_UNNEEDED("autocast_adapter_dtype", "adapters always train in float32"),
    {.name = NULL},
};
