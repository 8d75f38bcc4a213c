#include "model/settings.h"

#include <stddef.h>

#include "model/model.h"

#define FIELD(member) .offset = offsetof(struct tt_lora_config, member)

/* One row is one paragraph. */
/* clang-format off */

/* Keys and meaning: PEFT's LoraConfig; lora_* spellings and defaults: TRL's ModelConfig. */
const struct tt_setting tt_lora_settings[] = {
    {.name = "lora_r", .aliases = "r", .type = TT_SETTING_INT, FIELD(r), .default_text = "16", .minimum = 1,
     .maximum = 65536, .changes = TT_CHANGES_RESULT, .of = "language", .needs = "use_peft",
     .help = "Rank of the adapters."},
    {.name = "lora_alpha", .aliases = "alpha", .type = TT_SETTING_DOUBLE, FIELD(alpha), .default_text = "32",
     .changes = TT_CHANGES_RESULT, .of = "language", .needs = "use_peft",
     .help = "Scaling: the adapter's output is multiplied by alpha / r."},
    {.name = "lora_dropout", .type = TT_SETTING_DOUBLE, FIELD(dropout), .default_text = "0.05", .minimum = 0,
     .maximum = 0.999, .changes = TT_CHANGES_RESULT, .of = "language", .needs = "use_peft",
     .help = "Dropout on the adapter's input."},
    {.name = "lora_target_modules", .aliases = "target_modules", .type = TT_SETTING_JSON,
     FIELD(target_modules), .changes = TT_CHANGES_RESULT, .of = "language", .needs = "use_peft",
     .help = "Names of the linears to adapt, one regular expression for their whole path, or all-linear. "
             "Not given: q_proj and v_proj."},
    {.name = "target_parameters", .aliases = "lora_target_parameters", .type = TT_SETTING_JSON,
     FIELD(target_parameters), .changes = TT_CHANGES_RESULT_IF_SET, .of = "language", .needs = "use_peft",
     .help = "Parameters of experts to adapt, by the ends of their names: mlp.experts.gate_up_proj, "
             "mlp.experts.down_proj; with lora_dropout 0."},
    {.name = "exclude_modules", .aliases = "lora_exclude_modules", .type = TT_SETTING_JSON,
     FIELD(exclude_modules), .changes = TT_CHANGES_RESULT, .of = "language", .needs = "use_peft",
     .help = "Names or expression of modules that are never adapted; overrides lora_target_modules."},
    {.name = "lora_modules_to_save", .aliases = "modules_to_save", .type = TT_SETTING_JSON,
     FIELD(modules_to_save), .changes = TT_CHANGES_RESULT, .of = "language", .needs = "use_peft",
     .help = "Modules that train in full and are saved with the adapter (embed_tokens, lm_head)."},
    {.name = "layers_to_transform", .type = TT_SETTING_JSON, FIELD(layers_to_transform),
     .changes = TT_CHANGES_RESULT, .of = "language", .needs = "use_peft",
     .help = "Indices of the layers to adapt; not given: all."},
    {.name = "layers_pattern", .type = TT_SETTING_JSON, FIELD(layers_pattern),
     .changes = TT_CHANGES_RESULT, .of = "language", .needs = "use_peft+layers_to_transform",
     .help = "Name of the list of layers in the module path."},
    {.name = "rank_pattern", .type = TT_SETTING_JSON, FIELD(rank_pattern),
     .changes = TT_CHANGES_RESULT, .of = "language", .needs = "use_peft",
     .help = "Ranks that differ from lora_r, by module name or expression: {\"q_proj\": 32}."},
    {.name = "alpha_pattern", .type = TT_SETTING_JSON, FIELD(alpha_pattern),
     .changes = TT_CHANGES_RESULT, .of = "language", .needs = "use_peft",
     .help = "Alphas that differ from lora_alpha, by module name or expression."},
    {.name = "use_rslora", .type = TT_SETTING_BOOL, FIELD(use_rslora), .default_text = "false",
     .changes = TT_CHANGES_RESULT, .of = "language", .needs = "use_peft",
     .help = "Scale by alpha / sqrt(r) instead of alpha / r."},
    {.name = "use_dora", .type = TT_SETTING_BOOL, FIELD(use_dora), .default_text = "false",
     .changes = TT_CHANGES_RESULT_IF_SET, .of = "language", .needs = "use_peft",
     .help = "DoRA: the magnitude of each adapted weight's rows trains apart from their direction."},
    {.name = "trainable_token_indices", .type = TT_SETTING_JSON, FIELD(trainable_token_indices),
     .changes = TT_CHANGES_RESULT_IF_SET, .of = "language", .needs = "use_peft",
     .help = "Ids of tokens whose rows of the embeddings train apart from the table, or an object of such lists by "
             "module: {\"embed_tokens\": [5], \"lm_head\": [5]}."},
    {.name = "save_embedding_layers", .type = TT_SETTING_CHOICE, FIELD(save_embedding_layers), .default_text = "auto",
     .choices = "auto true false", .changes = TT_CHANGES_OTHER, .of = "language", .needs = "use_peft",
     .help = "Whether embeddings and head of the base are saved beside the adapter; auto: where new tokens changed "
             "their number of rows, as PEFT does."},
    {.name = "ensure_weight_tying", .type = TT_SETTING_BOOL, FIELD(ensure_weight_tying), .default_text = "false",
     .changes = TT_CHANGES_RESULT_IF_SET, .of = "language", .needs = "use_peft+lora_modules_to_save",
     .help = "Where embeddings and head are one table, lora_modules_to_save with one of them trains that table for "
             "both; false: a copy of the one, apart from the other."},
    {.name = "bias", .type = TT_SETTING_CHOICE, FIELD(bias), .default_text = "none", .choices = "none all lora_only",
     .changes = TT_CHANGES_RESULT_IF_SET, .of = "language", .needs = "use_peft",
     .help = "Biases of the base that train beside the adapter and are saved with it: all, or lora_only, those of "
             "adapted linears."},
    {.name = "init_lora_weights", .type = TT_SETTING_STRING, FIELD(init_weights), .default_text = "true",
     .changes = TT_CHANGES_OTHER, .of = "language", .needs = "use_peft",
     .help = "First values of A and B. true: A is Kaiming-uniform and B zero; gaussian: A is normal with deviation "
             "1 / r; orthogonal: both are other than zero, B A is zero; pissa, pissa_niter_N, olora: of the weight, "
             "and what is left of it is the base; loftq: of what quantization takes from the weight."},
    {.name = "loftq_config", .type = TT_SETTING_JSON, FIELD(loftq_config), .changes = TT_CHANGES_OTHER,
     .of = "language", .needs = "use_peft+init_lora_weights=loftq",
     .help = "Of init_lora_weights loftq: {\"loftq_bits\": 4, \"loftq_iter\": 1}, where the bits are those of "
             "load_in_4bit or load_in_8bit."},
    {.name = NULL},
};
