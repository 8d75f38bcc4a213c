/* axolotl's keys and defaults.
 *
 * Sources: axolotl src/axolotl/utils/schemas/{config,training,peft}.py (keys, defaults),
 * src/axolotl/core/builders/{base,causal,rl}.py (what the trainer gets), src/axolotl/utils/config/__init__.py (evals
 * and saves per epoch). */
#include <stdio.h>
#include <string.h>

#include "base/number.h"
#include "config/value.h"
#include "recipe/axolotl.h"

static double number_of(const struct tt_recipe *recipe, const char *key, double absent)
{
    double value;
    const char *text = tt_recipe_text(recipe, key);
    return text != NULL && tt_value_parse_double(text, &value) ? value : absent;
}

static tt_status read_nothing(struct tt_recipe *recipe, const struct tt_yaml_node *node)
{
    (void)recipe, (void)node; /* read together with another key */
    return TT_OK;
}

static tt_status read_adapter(struct tt_recipe *recipe, const struct tt_yaml_node *node)
{
    const char *text = node->text != NULL ? node->text : "";
    if (tt_recipe_is_one(text, "lora qlora")) return tt_recipe_put(recipe, node, "use_peft", "true");
    return tt_recipe_lack(recipe, node, "adapter: lora or qlora, or no adapter for all weights");
}

/* Its 4 bits are NF4 with scales in 8 bits. */
static tt_status read_load_in_4bit(struct tt_recipe *recipe, const struct tt_yaml_node *node)
{
    TT_TRY(tt_recipe_put(recipe, node, "load_in_4bit", node->text));
    if (!tt_recipe_is_true(recipe, "load_in_4bit")) return TT_OK;
    TT_TRY(tt_recipe_suppose(recipe, "bnb_4bit_quant_type", "nf4"));
    return tt_recipe_suppose(recipe, "bnb_4bit_use_double_quant", "true");
}

/* lora_target_linear adds all linears to the modules that have names. */
static tt_status read_target_modules(struct tt_recipe *recipe, const struct tt_yaml_node *node)
{
    static const char *const linears = "q_proj k_proj v_proj o_proj gate_proj up_proj down_proj";
    bool all = tt_recipe_is_true(recipe, "lora_target_linear");
    if (!all) return tt_recipe_put_node(recipe, node, "lora_target_modules");
    for (const struct tt_yaml_node *item = node->first; item != NULL; item = item->next)
        if (item->text == NULL || !tt_recipe_is_one(item->text, linears))
            return tt_recipe_lack(
                recipe, node,
                "lora_target_modules: all-linear adapts no other module than linears; name all "
                "modules without lora_target_linear");
    return TT_OK;
}

static tt_status read_checkpointing(struct tt_recipe *recipe, const struct tt_yaml_node *node)
{
    const char *text = node->text != NULL ? node->text : "";
    if (tt_recipe_is_one(text, "offload offload_disk unsloth"))
        return tt_recipe_put(recipe, node, "recompute", "offload");
    return tt_recipe_put(recipe, node, "gradient_checkpointing", text);
}

/* Steps as a share of the run: 1 / (times a epoch * epochs). One a run is once an epoch. */
static tt_status read_per_epoch(struct tt_recipe *recipe, const struct tt_yaml_node *node,
                                const char *strategy, const char *steps)
{
    char text[40];
    double times = 0;
    if (node->text == NULL || !tt_value_parse_double(node->text, &times) || times < 0)
        return tt_recipe_lack(recipe, node, "%s: epoch, or steps with %s", strategy, steps);
    if (times == 0) return TT_OK;
    double share = 1 / (times * number_of(recipe, "num_epochs", 1));
    if (share >= 1) return tt_recipe_put(recipe, node, strategy, "epoch");
    TT_TRY(tt_recipe_put(recipe, node, strategy, "steps"));
    return tt_recipe_put(recipe, node, steps, tt_value_format_double(share, text, sizeof text));
}

static bool evaluates(const struct tt_recipe *recipe)
{
    const struct tt_yaml_node *test = tt_yaml_find(recipe->root, "test_datasets");
    return number_of(recipe, "val_set_size", 0) > 0 || (test != NULL && !tt_yaml_is_null(test));
}

static tt_status read_evals(struct tt_recipe *recipe, const struct tt_yaml_node *node)
{
    if (!evaluates(recipe)) return TT_OK;
    return read_per_epoch(recipe, node, "eval_strategy", "eval_steps");
}

static tt_status read_saves(struct tt_recipe *recipe, const struct tt_yaml_node *node)
{
    return read_per_epoch(recipe, node, "save_strategy", "save_steps");
}

/* axolotl asks for truth: a 0 leaves the default. */
static bool is_zero(const struct tt_yaml_node *node)
{
    double value;
    return node->text != NULL && tt_value_parse_double(node->text, &value) && value == 0;
}

static tt_status read_eval_steps(struct tt_recipe *recipe, const struct tt_yaml_node *node)
{
    if (!evaluates(recipe) || is_zero(node)) return TT_OK;
    TT_TRY(tt_recipe_put(recipe, node, "eval_strategy", "steps"));
    return tt_recipe_put(recipe, node, "eval_steps", node->text);
}

static tt_status read_save_limit(struct tt_recipe *recipe, const struct tt_yaml_node *node)
{
    return is_zero(node) ? TT_OK : tt_recipe_put(recipe, node, "save_total_limit", node->text);
}

/* axolotl's Muon (axolotl-contribs-mit, muon/axolotl_.py) scales by sqrt(rows / columns). */
static tt_status read_optimizer(struct tt_recipe *recipe, const struct tt_yaml_node *node)
{
    TT_TRY(tt_recipe_put(recipe, node, "optim", node->text));
    if (node->text == NULL || strcmp(node->text, "muon") != 0) return TT_OK;
    TT_TRY(tt_recipe_suppose(recipe, "adjust_lr_fn", "spectral_unclamped"));
    return tt_recipe_note(recipe, node,
                          "the constants of the iteration are torch's, not axolotl's five triples, and "
                          "embeddings decay too");
}

static tt_status read_save_steps(struct tt_recipe *recipe, const struct tt_yaml_node *node)
{
    if (is_zero(node)) return TT_OK;
    TT_TRY(tt_recipe_put(recipe, node, "save_strategy", "steps"));
    return tt_recipe_put(recipe, node, "save_steps", node->text);
}

static tt_status read_val_set_size(struct tt_recipe *recipe, const struct tt_yaml_node *node)
{
    return evaluates(recipe) ? tt_recipe_put(recipe, node, "eval_split_size", node->text) : TT_OK;
}

static tt_status read_eval_packing(struct tt_recipe *recipe, const struct tt_yaml_node *node)
{
    return evaluates(recipe) ? tt_recipe_put(recipe, node, "eval_packing", node->text) : TT_OK;
}

static tt_status read_eval_generate(struct tt_recipe *recipe, const struct tt_yaml_node *node)
{
    return number_of(recipe, "eval_table_size", 0) > 0
               ? tt_recipe_put(recipe, node, "eval_generate_tokens", node->text)
               : TT_OK;
}

/* The program's own batch_size is that of a step. */
static tt_status read_batch_size(struct tt_recipe *recipe, const struct tt_yaml_node *node)
{
    char text[32];
    double micro = number_of(recipe, "micro_batch_size", 1), all = number_of(recipe, "batch_size", 0);
    if (tt_recipe_text(recipe, "gradient_accumulation_steps") != NULL) return TT_OK;
    (void)snprintf(text, sizeof text, "%d", (int)(all / micro));
    return tt_recipe_put(recipe, node, "gradient_accumulation_steps", text);
}

static tt_status read_rl(struct tt_recipe *recipe, const struct tt_yaml_node *node)
{
    const char *text = node->text != NULL ? node->text : "";
    if (tt_recipe_is_one(text, "orpo kto")) return tt_recipe_put(recipe, node, "objective", text);
    if (strcmp(text, "simpo") == 0) {
        TT_TRY(tt_recipe_put(recipe, node, "objective", "cpo"));
        return tt_recipe_put(recipe, node, "loss_type", text);
    }
    if (!tt_recipe_is_one(text, "dpo ipo"))
        return tt_recipe_lack(recipe, node, "objective: dpo, orpo, cpo, kto or sft");
    TT_TRY(tt_recipe_put(recipe, node, "objective", "dpo"));
    return tt_recipe_put(recipe, node, "loss_type", strcmp(text, "ipo") == 0 ? "ipo" : "sigmoid");
}

/* TRL's beta, where rl_beta does not say it. */
static tt_status read_orpo_alpha(struct tt_recipe *recipe, const struct tt_yaml_node *node)
{
    return tt_recipe_text(recipe, "rl_beta") != NULL ? TT_OK
                                                     : tt_recipe_put(recipe, node, "beta", node->text);
}

static tt_status read_special_tokens(struct tt_recipe *recipe, const struct tt_yaml_node *node)
{
    for (const struct tt_yaml_node *token = node->first; token != NULL; token = token->next) {
        if (tt_yaml_is_null(token)) continue;
        if (strcmp(token->key, "eos_token") == 0)
            TT_TRY(tt_recipe_put(recipe, token, "eos_token", token->text));
        else if (strcmp(token->key, "pad_token") == 0)
            TT_TRY(tt_recipe_note(recipe, token, "without effect: batches never hold padding"));
        else if (tt_recipe_is_one(token->key, "bos_token unk_token"))
            TT_TRY(tt_recipe_note(recipe, token, "the tokenizer's own is used: it must be %s", token->text));
        else if (strcmp(token->key, "additional_special_tokens") == 0)
            TT_TRY(tt_recipe_put_node(recipe, token, "add_special_tokens"));
        else
            TT_TRY(tt_recipe_lack(recipe, token, "add_special_tokens adds tokens without a name"));
    }
    return TT_OK;
}

/* A factor of the peak below which the cosine does not fall. */
static tt_status read_min_lr(struct tt_recipe *recipe, const struct tt_yaml_node *node)
{
    char text[100];
    const char *schedule = tt_recipe_text(recipe, "lr_scheduler");
    if (schedule != NULL && strcmp(schedule, "cosine") != 0)
        return tt_recipe_lack(recipe, node, "lr_scheduler_type: cosine_with_min_lr");
    (void)snprintf(text, sizeof text, "{\"min_lr_rate\": %.40s}", node->text != NULL ? node->text : "");
    TT_TRY(tt_recipe_put(recipe, node, "lr_scheduler_type", "cosine_with_min_lr"));
    return tt_recipe_put(recipe, node, "lr_scheduler_kwargs", text);
}

static tt_status read_scheduler(struct tt_recipe *recipe, const struct tt_yaml_node *node)
{
    if (tt_recipe_is_one(node->text != NULL ? node->text : "", "one_cycle rex"))
        return tt_recipe_lack(recipe, node, "lr_scheduler_type: cosine, or another that the manual lists");
    if (tt_recipe_text(recipe, "cosine_min_lr_ratio") != NULL) return TT_OK;
    return tt_recipe_put(recipe, node, "lr_scheduler_type", node->text);
}

/* One step of warm-up is two. */
static tt_status read_warmup_steps(struct tt_recipe *recipe, const struct tt_yaml_node *node)
{
    bool one = node->text != NULL && strcmp(node->text, "1") == 0;
    return tt_recipe_put(recipe, node, "warmup_steps", one ? "2" : node->text);
}

static tt_status read_wandb(struct tt_recipe *recipe, const struct tt_yaml_node *node)
{
    TT_TRY(tt_recipe_put(recipe, node, "report_to", "wandb"));
    return tt_recipe_note(recipe, node, "set the variable WANDB_PROJECT=%s", node->text);
}

static tt_status read_variable(struct tt_recipe *recipe, const struct tt_yaml_node *node)
{
    return tt_recipe_note(recipe, node, "wandb reads it from its variable");
}

/* Plugins that only fuse computations. */
static tt_status read_plugins(struct tt_recipe *recipe, const struct tt_yaml_node *node)
{
    for (const struct tt_yaml_node *item = node->first; item != NULL; item = item->next)
        if (item->text == NULL ||
            (strstr(item->text, ".liger.") == NULL && strstr(item->text, ".cut_cross_entropy.") == NULL))
            return tt_recipe_lack(recipe, node, "remove %s", item->text != NULL ? item->text : "it");
    return tt_recipe_note(recipe, node, "without effect: loss and norms are always fused");
}

/* 3 % of the steps, and at most 100 of them. */
static tt_status suppose_warmup(struct tt_recipe *recipe)
{
    char text[32];
    double steps = 0.03 * number_of(recipe, "max_steps", 0);
    if (tt_recipe_text(recipe, "warmup_steps") != NULL || tt_recipe_text(recipe, "warmup_ratio") != NULL)
        return TT_OK;
    if (steps <= 0) return tt_recipe_suppose(recipe, "warmup_ratio", "0.03");
    (void)snprintf(text, sizeof text, "%d", steps < 100 ? (int)steps : 100);
    return tt_recipe_suppose(recipe, "warmup_steps", text);
}

static tt_status finish(struct tt_recipe *recipe)
{
    bool dpo = tt_recipe_text(recipe, "rl") != NULL;
    const char *optim = tt_recipe_text(recipe, "optimizer");
    if (tt_recipe_text(recipe, "adapter") == NULL) TT_TRY(tt_recipe_suppose(recipe, "use_peft", "false"));
    if (tt_recipe_text(recipe, "micro_batch_size") != NULL)
        TT_TRY(tt_recipe_suppose(recipe, "per_device_eval_batch_size",
                                 tt_recipe_text(recipe, "micro_batch_size")));
    if (!dpo) TT_TRY(tt_recipe_suppose(recipe, "assistant_only_loss", "true"));
    if (evaluates(recipe)) TT_TRY(tt_recipe_suppose(recipe, "eval_strategy", "epoch"));
    TT_TRY(suppose_warmup(recipe));
    if (tt_recipe_is_one(optim != NULL ? optim : "", "muon")) {
        TT_TRY(tt_recipe_suppose(recipe, "adam_beta1", "0.9"));
        TT_TRY(tt_recipe_suppose(recipe, "adam_beta2", "0.95"));
    }
    if (tt_recipe_text(recipe, "adapter") != NULL) TT_TRY(tt_recipe_suppose(recipe, "lora_dropout", "0"));
    return TT_OK;
}

static const struct tt_recipe_key keys[] = {
    {"adapter", read_adapter},
    {"load_in_4bit", read_load_in_4bit},
    {"lora_target_modules", read_target_modules},
    {"gradient_checkpointing", read_checkpointing},
    {"evals_per_epoch", read_evals},
    {"saves_per_epoch", read_saves},
    {"eval_steps", read_eval_steps},
    {"save_steps", read_save_steps},
    {"save_total_limit", read_save_limit},
    {"optimizer", read_optimizer},
    {"val_set_size", read_val_set_size},
    {"eval_sample_packing", read_eval_packing},
    {"eval_max_new_tokens", read_eval_generate},
    {"eval_table_max_new_tokens", read_eval_generate},
    {"batch_size", read_batch_size},
    {"rl", read_rl},
    {"orpo_alpha", read_orpo_alpha},
    {"special_tokens", read_special_tokens},
    {"cosine_min_lr_ratio", read_min_lr},
    {"lr_scheduler", read_scheduler},
    {"warmup_steps", read_warmup_steps},
    {"wandb_project", read_wandb},
    {"wandb_entity", read_variable},
    {"wandb_log_model", read_variable},
    {"wandb_mode", read_variable},
    {"wandb_run_id", read_variable},
    {"plugins", read_plugins},
    {"deepspeed", tt_recipe_read_deepspeed},
    {"datasets", tt_axolotl_read_datasets},
    {"test_datasets", tt_axolotl_read_test_datasets},
    {"chat_template", read_nothing},
    {"chat_template_jinja", read_nothing},
    {"train_on_inputs", read_nothing},
    {NULL, NULL},
};

/* The schemas' defaults; rows longer than sequence_len are dropped (utils/data, drop_long_seq). */
static const struct tt_recipe_default defaults[] = {
    {"max_length", "512"},
    {"over_length", "drop"},
    {"per_device_train_batch_size", "1"},
    {"num_train_epochs", "1"},
    {"lr_scheduler_type", "cosine"},
    {"save_strategy", "epoch"},
    {"save_total_limit", "4"},
    {NULL, NULL},
};

const struct tt_recipe_format tt_recipe_axolotl = {
    .name = "axolotl", .program = "axolotl", .keys = keys, .defaults = defaults, .finish = finish};
