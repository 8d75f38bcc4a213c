/* LLaMA-Factory's keys and defaults.
 *
 * Sources: LLaMA-Factory src/llamafactory/hparams/{data,finetuning,model}_args.py (keys, defaults), parser.py;
 * transformers' TrainingArguments for the rest. */
#include <stdio.h>
#include <string.h>

#include "config/value.h"
#include "recipe/llama_factory.h"

static tt_status read_nothing(struct tt_recipe *recipe, const struct tt_yaml_node *node)
{
    (void)recipe, (void)node; /* read together with another key */
    return TT_OK;
}

static bool is_dpo(const struct tt_recipe *recipe)
{
    const char *stage = tt_recipe_text(recipe, "stage");
    return stage != NULL && strcmp(stage, "dpo") == 0;
}

/* Keys of preferences have no effect in another stage. */
static tt_status read_preference(struct tt_recipe *recipe, const struct tt_yaml_node *node)
{
    const struct tt_foreign_key *row = tt_foreign_find(recipe->format->program, node->key);
    if (!is_dpo(recipe)) return tt_recipe_note(recipe, node, "without effect: stage is not dpo");
    if (row->kind == TT_FOREIGN_NAMED) return tt_recipe_put_node(recipe, node, row->setting);
    if (node->text != NULL && strcmp(node->text, "orpo") == 0)
        return tt_recipe_put(recipe, node, "objective", node->text);
    if (node->text != NULL && strcmp(node->text, "simpo") == 0) {
        TT_TRY(tt_recipe_put(recipe, node, "objective", "cpo"));
        TT_TRY(tt_recipe_put(recipe, node, "loss_type", node->text));
        return tt_recipe_put(recipe, node, "cpo_alpha", "0");
    }
    if (node->text == NULL || !tt_recipe_is_one(node->text, "sigmoid hinge ipo"))
        return tt_recipe_lack(recipe, node, "%s", row->what);
    return tt_recipe_put(recipe, node, row->setting, node->text);
}

static tt_status read_smoothing(struct tt_recipe *recipe, const struct tt_yaml_node *node)
{
    double value;
    if (!is_dpo(recipe) || (node->text != NULL && tt_value_parse_double(node->text, &value) && value == 0))
        return TT_OK;
    return tt_recipe_lack(recipe, node, "label_smoothing, with loss_type: robust");
}

static tt_status read_bits(struct tt_recipe *recipe, const struct tt_yaml_node *node)
{
    const char *text = node->text != NULL ? node->text : "";
    if (strcmp(text, "8") == 0) return tt_recipe_put(recipe, node, "load_in_8bit", "true");
    if (strcmp(text, "4") != 0)
        return tt_recipe_lack(recipe, node, "load_in_4bit: true, or load_in_8bit: true");
    TT_TRY(tt_recipe_put(recipe, node, "load_in_4bit", "true"));
    if (tt_recipe_text(recipe, "quantization_type") == NULL)
        TT_TRY(tt_recipe_suppose(recipe, "bnb_4bit_quant_type", "nf4"));
    return tt_recipe_text(recipe, "double_quantization") != NULL
               ? TT_OK
               : tt_recipe_suppose(recipe, "bnb_4bit_use_double_quant", "true");
}

/* Templates that are the models' own, whose tokenizers have them. */
static const char own_templates[] = "default qwen qwen2 qwen3 qwen3_nothink mistral mistral_small phi "
                                    "phi_small phi4 gemma2 gemma3 smollm smollm2 "
                                    "llama3.1 llama3.2 deepseek3 deepseekr1";

static tt_status read_template(struct tt_recipe *recipe, const struct tt_yaml_node *node)
{
    const char *text = node->text != NULL ? node->text : "";
    if (tt_recipe_is_one(text, "llama3 chatml gemma"))
        return tt_recipe_put(recipe, node, "chat_template", text);
    if (tt_recipe_is_one(text, own_templates))
        return tt_recipe_note(recipe, node, "the model's own template is used: it must be that of %s", text);
    return tt_recipe_lack(
        recipe, node, "remove it where the model's own template is that one; else give chat_template_path");
}

/* Packs of samples that attend to each other are its default. */
static tt_status read_packing(struct tt_recipe *recipe, const struct tt_yaml_node *node)
{
    TT_TRY(tt_recipe_put(recipe, node, "packing", node->text));
    if (!tt_recipe_is_true(recipe, "packing") || tt_recipe_is_true(recipe, "neat_packing")) return TT_OK;
    return tt_recipe_note(recipe, node,
                          "samples of a pack do not attend to each other, as with neat_packing");
}

/* It counts the rows of each data set before any are held out. */
static tt_status read_max_samples(struct tt_recipe *recipe, const struct tt_yaml_node *node)
{
    const char *names = tt_recipe_text(recipe, "dataset");
    const char *interleaves = tt_recipe_text(recipe, "eval_dataset");
    bool several = names == NULL || strchr(names, ',') != NULL;
    TT_TRY(tt_recipe_put(recipe, node, several ? "max_source_samples" : "max_train_samples", node->text));
    return interleaves != NULL ? tt_recipe_put(recipe, node, "max_eval_samples", node->text) : TT_OK;
}

static tt_status read_muon(struct tt_recipe *recipe, const struct tt_yaml_node *node)
{
    if (!tt_recipe_is_true(recipe, "use_muon")) return TT_OK;
    TT_TRY(tt_recipe_put(recipe, node, "optim", "muon"));
    return tt_recipe_put(recipe, node, "adjust_lr_fn", "match_rms_adamw");
}

static tt_status read_swanlab(struct tt_recipe *recipe, const struct tt_yaml_node *node)
{
    return tt_recipe_is_true(recipe, "use_swanlab") ? tt_recipe_put(recipe, node, "report_to", "swanlab")
                                                    : TT_OK;
}

/* Rows of val_size are held out whether there are evaluations or not. */
static tt_status finish(struct tt_recipe *recipe)
{
    char alpha[32];
    int64_t rank = 8;
    double held_out = 0;
    const char *text = tt_recipe_text(recipe, "lora_rank"), *type = tt_recipe_text(recipe, "finetuning_type");
    if (text != NULL && !tt_value_parse_int(text, &rank)) rank = 8;
    (void)snprintf(alpha, sizeof alpha, "%lld", (long long)(2 * rank));
    if (type == NULL || strcmp(type, "lora") == 0) {
        TT_TRY(tt_recipe_suppose(recipe, "lora_r", "8"));
        TT_TRY(tt_recipe_suppose(recipe, "lora_alpha", alpha));
        TT_TRY(tt_recipe_suppose(recipe, "lora_dropout", "0"));
        TT_TRY(tt_recipe_suppose(recipe, "lora_target_modules", "all-linear"));
    }
    if (tt_recipe_text(recipe, "add_tokens") != NULL || tt_recipe_text(recipe, "add_special_tokens") != NULL)
        TT_TRY(tt_recipe_suppose(recipe, "resize_to_multiple_of", "64"));
    text = tt_recipe_text(recipe, "val_size");
    if (text != NULL && tt_value_parse_double(text, &held_out) && held_out > 0)
        TT_TRY(tt_recipe_suppose(recipe, "eval_strategy", "epoch"));
    if (!is_dpo(recipe)) TT_TRY(tt_recipe_suppose(recipe, "assistant_only_loss", "true"));
    return TT_OK;
}

static const struct tt_recipe_key keys[] = {
    {"dataset", tt_llama_factory_read_dataset},
    {"eval_dataset", tt_llama_factory_read_eval},
    {"dataset_dir", read_nothing},
    {"pref_beta", read_preference},
    {"pref_loss", read_preference},
    {"dpo_label_smoothing", read_smoothing},
    {"quantization_bit", read_bits},
    {"template", read_template},
    {"packing", read_packing},
    {"max_samples", read_max_samples},
    {"use_muon", read_muon},
    {"use_swanlab", read_swanlab},
    {"deepspeed", tt_recipe_read_deepspeed},
    {NULL, NULL},
};

static const struct tt_recipe_default defaults[] = {
    {"max_length", "2048"},
    {"learning_rate", "5e-5"},
    {NULL, NULL},
};

const struct tt_recipe_format tt_recipe_llama_factory = {.name = "llama-factory",
                                                         .program = "LLaMA-Factory",
                                                         .keys = keys,
                                                         .defaults = defaults,
                                                         .finish = finish};
