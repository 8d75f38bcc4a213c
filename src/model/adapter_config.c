#include "model/adapter_config.h"

#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "base/file.h"
#include "base/log.h"
#include "io/model_folder.h"
#include "io/text_part.h"

static const char key_prefix[] = "base_model.model.";

char *tt_adapter_key(const char *param_name)
{
    size_t bytes = sizeof key_prefix + strlen(param_name);
    char *key = tt_calloc(bytes, 1);
    if (key == NULL) return NULL;
    memcpy(key, key_prefix, sizeof key_prefix - 1);
    memcpy(key + sizeof key_prefix - 1, param_name, strlen(param_name));
    return key;
}

bool tt_adapter_key_path(const char *key, const char **path)
{
    bool begins = strncmp(key, key_prefix, sizeof key_prefix - 1) == 0;
    *path = begins ? key + sizeof key_prefix - 1 : key;
    return begins;
}

static const char *name_in_class(const void *context, const char *key, struct tt_arena *arena)
{
    const char *path;
    if (!tt_adapter_key_path(key, &path)) return key;
    const struct tt_model_facts *facts = context;
    const char *name = facts->part != NULL ? tt_text_part_adapted_name(facts->part, path, arena)
                                           : tt_part_renamed(facts->sources.renames, path, arena);
    if (name == path) return key;
    return name != NULL ? tt_arena_printf(arena, "%s%s", key_prefix, name) : NULL;
}

tt_status tt_adapter_open_for(const char *folder, const struct tt_model_facts *facts,
                              const struct tt_lora_config *lora, struct tt_safetensors **out)
{
    TT_TRY(tt_adapter_weights_open(folder, out));
    if (facts->part != NULL || facts->sources.renames != NULL)
        TT_TRY(tt_safetensors_rename(*out, name_in_class, facts));
    TT_TRY(tt_adapter_show_experts(facts, out));
    return tt_adapter_join(facts, lora, out);
}

/* Keys that must have their default, which is nothing: absent, null, false, "", [] or {}; and the reason. */
static const struct {
    const char *key, *reason;
} must_be_default[] = {
    {"lora_bias", "a bias of B has no place in a merged linear that has none"},
    {"use_bdlora", "block-diagonal LoRA has matrices of other shapes"},
    {"megatron_config", "it is for modules of Megatron, which no model folder has"},
    {"layer_replication", "the model would have layers several times that its folder has once"},
    {"monteclora_config", "MonteCLoRA draws samples of its matrices"},
    {"velora_config", "VeLoRA has a projection beside its matrices"},
    {"kasa_config", "KaSA takes the smallest singular values out of the base weights"},
    {"arrow_config", "Arrow chooses among several adapters for each token"},
    {"alora_invocation_tokens", "activated LoRA adapts only the tokens from an invocation on"},
};

/* Keys parsed below, or without effect on results. */
static const char *const known_keys[] = {
    "peft_type",
    "r",
    "lora_alpha",
    "lora_dropout",
    "use_rslora",
    "use_dora",
    "init_lora_weights",
    "target_modules",
    "target_parameters",
    "exclude_modules",
    "modules_to_save",
    "layers_to_transform",
    "layers_pattern",
    "rank_pattern",
    "alpha_pattern",
    "auto_mapping",
    "base_model_name_or_path",
    "bias",
    "ensure_weight_tying",
    /* read with the init_lora_weights of their names alone, which are of the values that A and B begin with */
    "eva_config",
    "loftq_config",
    "corda_config",
    "lora_ga_config",
    "fan_in_fan_out", /* PEFT turns it off for linears, which all modules here are */
    "inference_mode",
    "megatron_core",
    "peft_version",
    "use_qalora", /* PEFT has it for bases in GPTQ alone */
    "qalora_group_size",
    "revision",
    "runtime_config",
    "task_type",
    "trainable_token_indices",
};

static bool is_nothing(const struct tt_json_value *value)
{
    if (tt_json_is_null(value) || tt_json_is_false(value)) return true;
    if (tt_json_is_string(value)) return tt_json_span(value).bytes == 0;
    return (tt_json_is_list(value) && tt_json_count(value) == 0) ||
           (tt_json_is_object(value) && tt_json_count(value) == 0);
}

static tt_status check_key(const struct tt_json *json, const char *key, const struct tt_json_value *value)
{
    for (size_t i = 0; i < sizeof known_keys / sizeof known_keys[0]; i++) {
        if (strcmp(key, known_keys[i]) == 0) return TT_OK;
    }
    for (size_t i = 0; i < sizeof must_be_default / sizeof must_be_default[0]; i++) {
        if (strcmp(key, must_be_default[i].key) != 0) continue;
        if (is_nothing(value)) return TT_OK;
        tt_fail(TT_ERR_UNSUPPORTED, "%s: '%s' is not at its default: %s", json->origin, key,
                must_be_default[i].reason);
        tt_hint("in Python, PeftModel.from_pretrained(base, folder).merge_and_unload() makes one model of "
                "base and "
                "adapter, whose folder trimtab reads");
        return TT_ERR_UNSUPPORTED;
    }
    if (!is_nothing(value)) tt_warn("%s: the key '%s' is unknown and was ignored", json->origin, key);
    return TT_OK;
}

const char *const tt_lora_bias_words[] = {"none", "all", "lora_only"};

static tt_status read_bias(const struct tt_json *json, struct tt_lora_config *lora)
{
    const char *text = tt_lora_bias_words[TT_LORA_BIAS_NONE];
    TT_TRY(tt_json_opt_string(json, json->root, "bias", &text));
    for (int i = 0; i < 3; i++) {
        if (strcmp(text, tt_lora_bias_words[i]) != 0) continue;
        lora->bias = (enum tt_lora_bias)i;
        return TT_OK;
    }
    return tt_fail(TT_ERR_DATA, "%s: bias is '%.40s', not none, all or lora_only", json->origin, text);
}

static tt_status read_task(const struct tt_json *json, struct tt_lora_config *lora)
{
    const struct tt_json_value *value = tt_json_get(json->root, "task_type");
    const char *name = tt_json_text(value);
    if (value == NULL || is_nothing(value)) return TT_OK;
    lora->classifies = name != NULL && strcmp(name, "SEQ_CLS") == 0;
    if (lora->classifies || (name != NULL && strcmp(name, "CAUSAL_LM") == 0)) return TT_OK;
    return tt_fail(TT_ERR_UNSUPPORTED,
                   "%s: task_type is '%.40s', and only CAUSAL_LM and SEQ_CLS are supported", json->origin,
                   name != NULL ? name : "(not a name)");
}

/* Values of init_lora_weights; NULL: the base weights are as they were, so that the adapter is a plain one. */
static const struct {
    const char *name, *reason;
} inits[] = {
    {"gaussian", NULL},
    {"eva", NULL},
    {"orthogonal", NULL},
    {"mica", NULL},
    {"pissa", "it takes the largest singular values out of the base weights"},
    {"olora", "it takes a part of a QR decomposition out of the base weights"},
    {"corda", "it takes directions of given inputs out of the base weights"},
    {"lora_ga", "it takes directions of a gradient out of the base weights"},
    {"loftq", "it quantizes the base weights in its own way"},
};

static bool begins(const char *name, const char *with)
{
    return strncmp(name, with, strlen(with)) == 0;
}

static tt_status read_init(const struct tt_json *json, struct tt_lora_config *lora)
{
    const struct tt_json_value *value = tt_json_get(json->root, "init_lora_weights");
    const char *name = tt_json_text(value), *reason = "it is none of PEFT's";
    if (value == NULL || tt_json_is_null(value) || tt_json_is_bool(value)) return TT_OK;
    for (size_t i = 0; name != NULL && i < sizeof inits / sizeof *inits; i++) {
        bool same = strcmp(name, inits[i].name) == 0 ||
                    (strcmp(inits[i].name, "pissa") == 0 && begins(name, "pissa_niter_"));
        if (!same) continue;
        if (strcmp(name, "gaussian") == 0) lora->init_weights = inits[i].name;
        if (inits[i].reason == NULL) return TT_OK;
        reason = inits[i].reason;
    }
    tt_status status = tt_fail(TT_ERR_UNSUPPORTED, "%s: init_lora_weights is '%.40s': %s", json->origin,
                               name != NULL ? name : "(not a name)", reason);
    tt_hint("PEFT's save_pretrained(path_initial_model_for_weight_conversion=...) writes it as a plain LoRA "
            "adapter");
    return status;
}

/* A string stays as it is, anything else becomes JSON text; null and empty values are "not given". */
static tt_status read_text(const struct tt_json *json, const char *key, struct tt_arena *arena,
                           const char **out)
{
    const struct tt_json_value *value = tt_json_get(json->root, key);
    struct tt_str text = {0};
    *out = NULL;
    if (value == NULL || is_nothing(value)) return TT_OK;
    tt_status status = TT_OK;
    if (tt_json_is_string(value)) {
        status = tt_str_append_text(&text, tt_json_text(value));
    } else {
        status = tt_json_write(value, 0, false, &text);
    }
    if (status == TT_OK) {
        *out = tt_arena_strdup(arena, tt_str_text(&text));
        if (*out == NULL) status = TT_ERR_MEMORY;
    }
    tt_str_deinit(&text);
    return status;
}

/* An empty list of modules beside parameters is not the family's default. */
static tt_status read_parameters(const struct tt_json *json, struct tt_arena *arena,
                                 struct tt_lora_config *lora)
{
    const struct tt_json_value *modules = tt_json_get(json->root, "target_modules");
    const char *version = "";
    int major, minor;
    TT_TRY(read_text(json, "target_parameters", arena, &lora->target_parameters));
    if (lora->target_parameters == NULL) return TT_OK;
    if (lora->target_modules == NULL && tt_json_is_list(modules)) lora->target_modules = "[]";
    const struct tt_json_value *written = tt_json_get(json->root, "peft_version");
    if (tt_json_is_string(written)) version = tt_json_text(written);
    lora->swapped = sscanf(version, "%d.%d", &major, &minor) == 2 && major == 0 && minor < 19;
    return TT_OK;
}

tt_status tt_adapter_config_parse(const struct tt_json *json, struct tt_arena *arena,
                                  struct tt_lora_config *out)
{
    struct tt_lora_config lora = {
        .enabled = true, .from_adapter = true, .r = 8, .alpha = 8}; /* PEFT's defaults */
    const char *type = NULL, *key;
    const struct tt_json_value *value;
    if (!tt_json_is_object(json->root)) return tt_fail(TT_ERR_DATA, "%s is not a JSON object", json->origin);
    TT_TRY(tt_json_string(json, json->root, "peft_type", &type));
    if (strcmp(type, "LORA") != 0) {
        return tt_fail(TT_ERR_UNSUPPORTED, "%s: adapters of peft_type '%s' are not supported, only LORA",
                       json->origin, type);
    }
    for (size_t member = 0; tt_json_next_member(json->root, &member, &key, &value);)
        TT_TRY(check_key(json, key, value));
    TT_TRY(tt_json_opt_int(json, json->root, "r", &lora.r));
    TT_TRY(tt_json_opt_double(json, json->root, "lora_alpha", &lora.alpha));
    TT_TRY(tt_json_opt_double(json, json->root, "lora_dropout", &lora.dropout));
    TT_TRY(tt_json_opt_bool(json, json->root, "use_rslora", &lora.use_rslora));
    TT_TRY(tt_json_opt_bool(json, json->root, "use_dora", &lora.use_dora));
    TT_TRY(tt_json_opt_bool(json, json->root, "ensure_weight_tying", &lora.ensure_weight_tying));
    TT_TRY(read_bias(json, &lora));
    TT_TRY(read_task(json, &lora));
    TT_TRY(read_init(json, &lora));
    TT_TRY(read_text(json, "target_modules", arena, &lora.target_modules));
    TT_TRY(read_parameters(json, arena, &lora));
    TT_TRY(read_text(json, "exclude_modules", arena, &lora.exclude_modules));
    TT_TRY(read_text(json, "modules_to_save", arena, &lora.modules_to_save));
    TT_TRY(read_text(json, "layers_to_transform", arena, &lora.layers_to_transform));
    TT_TRY(read_text(json, "layers_pattern", arena, &lora.layers_pattern));
    TT_TRY(read_text(json, "rank_pattern", arena, &lora.rank_pattern));
    TT_TRY(read_text(json, "alpha_pattern", arena, &lora.alpha_pattern));
    TT_TRY(read_text(json, "trainable_token_indices", arena, &lora.trainable_token_indices));
    *out = lora;
    return TT_OK;
}

tt_status tt_adapter_config_check(const struct tt_lora_config *lora, const struct tt_model_facts *facts)
{
    tt_status status = TT_OK;
    if (lora->classifies && facts->label_count == 0) {
        status =
            tt_fail(TT_ERR_USAGE, "the adapter is one of a model with scores (task_type SEQ_CLS), and this "
                                  "needs one of a language model");
        tt_hint("objectives reward and classification take it, and trimtab merge makes a model with scores "
                "of it");
    } else if (!lora->classifies && facts->new_scores) {
        status = tt_fail(TT_ERR_USAGE,
                         "the adapter is one of a language model, and this needs one of a model with "
                         "scores (task_type SEQ_CLS)");
        tt_hint("merge it into its model first (trimtab merge), and begin with the result");
    }
    return status;
}

tt_status tt_adapter_config_read(const char *folder, struct tt_arena *arena, struct tt_lora_config *lora)
{
    tt_status status = TT_OK;
    struct tt_json json = {0};
    struct tt_path path;
    TT_TRY(tt_path_set(&path, folder, "adapter_config.json"));
    if (!tt_path_exists(path.text)) {
        struct tt_path model;
        TT_TRY(tt_path_set(&model, folder, "config.json"));
        tt_fail(TT_ERR_DATA, "'%s' is not an adapter: it has no adapter_config.json", folder);
        tt_hint(tt_path_exists(model.text)
                    ? "the folder contains a model: name it as model_name_or_path"
                    : "a PEFT folder holds adapter_config.json and adapter_model.safetensors");
        return TT_ERR_DATA;
    }
    TT_GO(tt_json_read(path.text, (size_t)16 << 20, &json));
    TT_GO(tt_adapter_config_parse(&json, arena, lora));
out:
    tt_json_deinit(&json);
    return status;
}
