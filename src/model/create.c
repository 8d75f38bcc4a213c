/* Builds a model from its facts: the family lists the modules, the rules by name choose among them, the family builds
 * the blocks. */
#include <string.h>

#include "base/alloc.h"
#include "model/builder_impl.h"
#include "model/family.h"
#include "model/lora.h"
#include "model/lora_convert.h"
#include "model/lora_init.h"
#include "model/quantization.h"
#include "model/trained_tokens.h"

static tt_status list_modules(struct tt_builder *builder, const struct tt_model_family *family)
{
    struct tt_model *model = builder->model;
    struct tt_module_list *list = &model->modules;
    struct tt_module *grown;
    builder->listing = true;
    list->text = tt_model_text_path(&model->facts);
    family->build(&model->facts, builder);
    builder->listing = false;
    grown = list->items;
    list->items = tt_builder_take(builder, list->count * sizeof *grown);
    if (list->items != NULL) memcpy(list->items, grown, list->count * sizeof *grown);
    tt_free(grown);
    for (size_t i = 0; i < list->count && builder->status == TT_OK; i++)
        builder->status = tt_name_index_add(&model->module_index, list->items[i].path, i);
    return builder->status;
}

static tt_status refuse_saved(const struct tt_module *module)
{
    tt_status status =
        tt_fail(TT_ERR_UNSUPPORTED, "several adapters at a time, and one of them has modules_to_save ('%s')",
                module->path);
    tt_hint("use that adapter alone, or merge it into the base model first (trimtab merge)");
    return status;
}

/* PEFT refuses them too; and the names of their tensors depend on the set (model/build_experts.c). */
static tt_status refuse_parameter(const struct tt_module *module)
{
    tt_status status =
        tt_fail(TT_ERR_UNSUPPORTED, "several adapters at a time, and '%s' is adapted by some of them only",
                module->path);
    tt_hint("adapters that are used together need the same target_parameters");
    return status;
}

static tt_status refuse_kind(const char *setting)
{
    tt_status status =
        tt_fail(TT_ERR_UNSUPPORTED, "several adapters at a time, and one of them has %s", setting);
    tt_hint("use that adapter alone, or merge it into the base model first (trimtab merge)");
    return status;
}

/* Adds the modules and the larger ranks of an adapter beside the first one. */
static tt_status add_adapter(struct tt_model *model, struct tt_lora_config *lora,
                             const struct tt_model_family *family, struct tt_module *scratch)
{
    struct tt_module_list *list = &model->modules, other = *list;
    for (size_t i = 0; i < list->count; i++) {
        scratch[i] = list->items[i];
        scratch[i].adapted = scratch[i].saved = false;
        if (list->items[i].saved) return refuse_saved(&list->items[i]);
    }
    other.items = scratch;
    if (family->older_experts != NULL)
        TT_TRY(tt_lora_convert(family->older_experts, list, &model->arena, lora));
    TT_TRY(tt_lora_apply(lora, family->default_target_modules, &other));
    for (size_t i = 0; i < list->count; i++) {
        struct tt_module *module = &list->items[i];
        if (scratch[i].saved) return refuse_saved(&scratch[i]);
        if (module->kind == TT_MODULE_PARAMETER && module->adapted != scratch[i].adapted)
            return refuse_parameter(module);
        if (!scratch[i].adapted) continue;
        if (!module->adapted)
            *module = scratch[i];
        else if (module->r < scratch[i].r)
            module->r = scratch[i].r;
    }
    return TT_OK;
}

static tt_status add_adapters(struct tt_model *model, const struct tt_model_family *family)
{
    tt_status status = TT_OK;
    struct tt_model_options *options = &model->options;
    if (options->more_lora_count == 0) return TT_OK;
    bool alone = options->lora.use_dora, tokens = options->lora.trainable_token_indices != NULL;
    for (size_t i = 0; i < options->more_lora_count; i++) {
        const struct tt_lora_config *more = &options->more_lora[i];
        alone |= more->use_dora;
        tokens |= more->trainable_token_indices != NULL;
        if (more->bias != TT_LORA_BIAS_NONE) options->lora.bias = TT_LORA_BIAS_ALL;
    }
    if (alone || tokens) return refuse_kind(alone ? "use_dora" : "trainable_token_indices");
    struct tt_module *scratch = tt_calloc(model->modules.count, sizeof *scratch);
    if (scratch == NULL) return TT_ERR_MEMORY;
    for (size_t i = 0; i < options->more_lora_count && status == TT_OK; i++) {
        struct tt_lora_config lora = options->more_lora[i];
        status = add_adapter(model, &lora, family, scratch);
    }
    options->more_lora = NULL;
    tt_free(scratch);
    return status;
}

/* PEFT's ensure_weight_tying (LoraModel._add_modules_to_save_to_tie, 0.21): what trains one of the two trains both. */
static tt_status tie_saved(struct tt_model *model)
{
    const struct tt_module_list *list = &model->modules;
    struct tt_module *table = NULL, *head = NULL;
    for (size_t i = 0; i < list->count; i++) {
        if (table == NULL && list->items[i].kind == TT_MODULE_EMBEDDING) table = &list->items[i];
        if (list->items[i].kind == TT_MODULE_HEAD) head = &list->items[i];
    }
    bool ties = model->options.lora.ensure_weight_tying && model->facts.tie_word_embeddings;
    if (!ties || table == NULL || head == NULL) return TT_OK;
    if (head->adapted) {
        tt_status status =
            tt_fail(TT_ERR_UNSUPPORTED,
                    "ensure_weight_tying: target_modules adapts '%s', so the embeddings would need "
                    "the same adapter",
                    head->path);
        tt_hint("leave ensure_weight_tying out, or train the table as a whole: modules_to_save %s",
                tt_module_last_name(table));
        return status;
    }
    table->saved = head->saved = table->saved || head->saved;
    return TT_OK;
}

static tt_status apply_rules(struct tt_model *model, const struct tt_model_family *family)
{
    if (model->options.lora.enabled) {
        if (model->options.train_base)
            return tt_fail(TT_ERR_USAGE,
                           "LoRA and training of all base weights exclude each other: set one of them");
        if (family->older_experts != NULL)
            TT_TRY(
                tt_lora_convert(family->older_experts, &model->modules, &model->arena, &model->options.lora));
        TT_TRY(tt_lora_apply(&model->options.lora, family->default_target_modules, &model->modules));
        TT_TRY(add_adapters(model, family));
        TT_TRY(tie_saved(model));
        TT_TRY(tt_trained_tokens_apply(model));
    }
    return tt_quantization_apply(&model->options, model->facts.stored_quant != TT_QUANT_NONE,
                                 &model->modules);
}

static tt_status build_blocks(struct tt_builder *builder, const struct tt_model_family *family)
{
    struct tt_model *model = builder->model;
    int64_t count = model->modules.layer_count > 0 ? model->modules.layer_count + 2 : TT_MODEL_LAYERS_MAX;
    model->blocks = tt_builder_take(builder, (size_t)count * sizeof *model->blocks);
    if (model->blocks != NULL) family->build(&model->facts, builder);
    for (size_t i = 0; i < model->param_count && builder->status == TT_OK; i++)
        builder->status = tt_name_index_add(&model->param_index, model->params[i]->name, i);
    if (builder->status != TT_OK) return builder->status;
    if (model->options.lora.enabled && model->facts.tie_word_embeddings && model->options.random_init &&
        !builder->shares_head) {
        return tt_fail(TT_ERR_USAGE,
                       "modules_to_save of tied embeddings needs the weights of a model, not random ones");
    }
    return TT_OK;
}

static void count_params(struct tt_model *model)
{
    for (size_t i = 0; i < model->param_count; i++) {
        const tt_param *param = model->params[i];
        int64_t count = tt_param_count(param);
        const char *source = tt_model_source_name(model, param);
        if (source != NULL && !tt_model_repeats_table(model, param)) model->base_param_count += count;
        if (param->adapter && !param->bias) model->adapter_param_count += count;
        if (param->trainable) model->trainable_param_count += count;
    }
}

static void set_places(struct tt_model *model)
{
    tt_param *head = model->head_name != NULL ? tt_model_find_param(model, model->head_name) : NULL;
    tt_param *table =
        model->embedding_name != NULL ? tt_model_find_param(model, model->embedding_name) : NULL;
    if (head != NULL) head->place = TT_PLACE_HEAD;
    if (table != NULL) table->place = TT_PLACE_EMBEDDING;
}

static tt_status assign_units(struct tt_builder *builder)
{
    struct tt_model *model = builder->model;
    bool tied = builder->shares_head;
    model->unit_of_block =
        tt_builder_take(builder, (size_t)model->block_count * sizeof *model->unit_of_block);
    if (model->unit_of_block == NULL) return builder->status;
    for (int i = 0; i < model->block_count; i++) model->unit_of_block[i] = i;
    if (tied)
        model->unit_of_block[tt_model_block_of(model, TT_ROLE_OUTPUT)] =
            tt_model_block_of(model, TT_ROLE_INPUT);
    model->unit_count = model->block_count - (tied ? 1 : 0);
    return TT_OK;
}

/* Copies the texts of the options, because the model outlives their source. */
static tt_status keep_strings(struct tt_model *model)
{
    struct tt_lora_config *lora = &model->options.lora;
    const char **texts[] = {&lora->target_modules,
                            &lora->target_parameters,
                            &lora->exclude_modules,
                            &lora->modules_to_save,
                            &lora->layers_to_transform,
                            &lora->layers_pattern,
                            &lora->rank_pattern,
                            &lora->alpha_pattern,
                            &lora->trainable_token_indices,
                            &lora->init_weights,
                            &lora->loftq_config,
                            &model->options.quant.skip_modules,
                            &model->options.quant.plain_modules};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        if (*texts[i] == NULL) continue;
        *texts[i] = tt_arena_strdup(&model->arena, *texts[i]);
        if (*texts[i] == NULL) return TT_ERR_MEMORY;
    }
    return TT_OK;
}

tt_status tt_model_create(const struct tt_model_facts *facts, const struct tt_model_options *options,
                          struct tt_model **out)
{
    tt_status status = TT_OK;
    struct tt_builder builder = {.model = tt_calloc(1, sizeof *builder.model)};
    struct tt_model *model = builder.model;
    const struct tt_model_family *family = facts->family;
    if (model == NULL) return TT_ERR_MEMORY;
    model->facts = *facts;
    model->facts.stored_plain = NULL; /* lent: the options have it */
    model->options = *options;
    TT_GO(keep_strings(model));
    TT_GO(list_modules(&builder, family));
    TT_GO(apply_rules(model, family));
    TT_GO(build_blocks(&builder, family));
    TT_GO(assign_units(&builder));
    count_params(model);
    set_places(model);
    TT_GO(tt_lora_init_check(model));
    *out = model;
    model = NULL;
out:
    tt_free(builder.block_params);
    tt_model_destroy(model);
    return status;
}
