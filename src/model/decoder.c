/* Builds a decoder-only model from its configuration: blocks, parameters in their order in memory, and LoRA as selected
 * by model/lora.c. Tensor names: Hugging Face's. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "model/family.h"
#include "model/lora.h"
#include "model/quantization.h"
#include "nn/decoder_layer.h"
#include "nn/embedding_block.h"
#include "nn/head.h"

enum { BLOCK_PARAMS_MAX = 40 };

/* The first failure stays in `status`; later calls do nothing. */
struct builder {
    struct tt_model *model;
    struct tt_module_list modules;
    tt_param *block_params[BLOCK_PARAMS_MAX]; /* of the current block */
    size_t block_param_count;
    size_t param_capacity;
    tt_status status;
};

static void *take(struct builder *builder, size_t bytes)
{
    void *memory = builder->status == TT_OK ? tt_arena_alloc(&builder->model->arena, bytes) : NULL;
    if (memory == NULL) builder->status = TT_ERR_MEMORY;
    return memory;
}

static void use_param(struct builder *builder, tt_param *param)
{
    if (param == NULL) return;
    if (builder->block_param_count == BLOCK_PARAMS_MAX) {
        builder->status = tt_fail(TT_ERR_INTERNAL, "a block has more than %d parameters", BLOCK_PARAMS_MAX);
        return;
    }
    builder->block_params[builder->block_param_count++] = param;
}

static tt_param *new_param(struct builder *builder, const struct tt_module *module, const char *suffix,
                           int rank, int64_t d0, int64_t d1)
{
    struct tt_model *model = builder->model;
    tt_param *param = take(builder, sizeof *param);
    if (param == NULL) return NULL;
    param->name = tt_arena_printf(&model->arena, "%s.%s", module->path, suffix);
    if (param->name == NULL) {
        builder->status = TT_ERR_MEMORY;
        return NULL;
    }
    param->rank = rank;
    param->dims[0] = d0;
    if (rank == 2) param->dims[1] = d1;
    if (tt_grow((void **)&model->params, model->param_count, &builder->param_capacity,
                sizeof *model->params) != 0) {
        builder->status = TT_ERR_MEMORY;
        return NULL;
    }
    model->params[model->param_count++] = param;
    use_param(builder, param);
    return param;
}

/* A parameter of the base model: frozen, trained with everything, or trained as a copy (modules_to_save). */
static tt_param *base_param(struct builder *builder, const struct tt_module *module, const char *suffix,
                            int rank, int64_t d0, int64_t d1, enum tt_init_kind random_init)
{
    const struct tt_model_options *options = &builder->model->options;
    tt_param *param = new_param(builder, module, suffix, rank, d0, d1);
    if (param == NULL) return NULL;
    param->trainable = options->train_base || module->saved;
    param->adapter = module->saved;
    /* Trainable parameters have a fp32 master; frozen vectors cost little in fp32; frozen matrices are stored in the
     * compute type. */
    param->stored_dtype = param->trainable || rank == 1 ? TT_F32 : options->compute_dtype;
    param->weight_decay = rank == 2;
    param->init = options->random_init ? random_init : TT_INIT_FILE;
    param->init_scale = builder->model->config.initializer_range;
    return param;
}

static tt_param *norm_weight(struct builder *builder, const struct tt_module *module, int64_t dim)
{
    return base_param(builder, module, "weight", 1, dim, 0, TT_INIT_ONE);
}

static tt_param *lora_param(struct builder *builder, const struct tt_module *module, const char *suffix,
                            int64_t d0, int64_t d1)
{
    tt_param *param = new_param(builder, module, suffix, 2, d0, d1);
    if (param == NULL) return NULL;
    param->trainable = param->adapter = param->weight_decay = true;
    param->stored_dtype = TT_F32;
    return param;
}

/* PEFT: A is kaiming_uniform(a = sqrt(5)), which is uniform within 1 / sqrt(in), or normal with deviation 1 /
 * r; B is 0. */
static void set_lora_init(struct builder *builder, struct tt_linear *linear)
{
    bool gaussian = builder->model->options.lora.gaussian_init;
    linear->lora_A->init = gaussian ? TT_INIT_NORMAL : TT_INIT_UNIFORM;
    linear->lora_A->init_scale = gaussian ? 1.0 / (double)linear->r : 1.0 / sqrt((double)linear->in);
    linear->lora_B->init = TT_INIT_ZERO;
}

struct linear_shape {
    const struct tt_module *module;
    int64_t out;
};

/* Frozen, and in the format of the options: a segment of bytes instead of a matrix. */
static void quantize(struct builder *builder, const struct tt_module *module, tt_param *weight)
{
    const struct tt_base_quant *quant = &builder->model->options.quant;
    if (builder->status != TT_OK || !module->quantized || weight->trainable) return;
    weight->stored_dtype = TT_U8;
    builder->status = tt_quant_layout_make(tt_quant_format_make(quant->type, quant->nested), weight->dims[0],
                                           weight->dims[1], &weight->quant);
}

/* Linears with the same input: weights first, then biases, then all A and all B, so that each kind is contiguous.
 * `tied_weight` (or NULL) replaces the only weight. */
static void make_group(struct builder *builder, const struct linear_shape *shapes, int count, int64_t in,
                       bool bias, tt_param *tied_weight, struct tt_linear_group *group)
{
    group->count = count;
    for (int i = 0; i < count; i++) {
        struct tt_linear *linear = &group->linears[i];
        const struct tt_module *module = shapes[i].module;
        *linear = (struct tt_linear){.in = in, .out = shapes[i].out};
        linear->weight = tied_weight;
        if (tied_weight != NULL) use_param(builder, tied_weight);
        if (tied_weight == NULL) {
            linear->weight = base_param(builder, module, "weight", 2, linear->out, in, TT_INIT_NORMAL);
            quantize(builder, module, linear->weight);
        }
        if (!module->adapted) continue;
        linear->r = module->r;
        linear->scaling = module->scaling;
        linear->dropout = builder->model->options.lora.dropout;
    }
    for (int i = 0; i < count && bias; i++) {
        group->linears[i].bias =
            base_param(builder, shapes[i].module, "bias", 1, shapes[i].out, 0, TT_INIT_ZERO);
    }
    for (int i = 0; i < count; i++) {
        struct tt_linear *linear = &group->linears[i];
        if (linear->r > 0)
            linear->lora_A = lora_param(builder, shapes[i].module, "lora_A.weight", linear->r, in);
    }
    for (int i = 0; i < count; i++) {
        struct tt_linear *linear = &group->linears[i];
        if (linear->r == 0) continue;
        linear->lora_B = lora_param(builder, shapes[i].module, "lora_B.weight", linear->out, linear->r);
        if (builder->status == TT_OK) set_lora_init(builder, linear);
    }
}

static void finish_block(struct builder *builder, const struct tt_block_ops *ops, const char *name,
                         void *impl)
{
    struct tt_model *model = builder->model;
    tt_param **params = take(builder, builder->block_param_count * sizeof *params);
    if (params == NULL) return;
    struct tt_block *block = &model->blocks[model->block_count];
    *block = (struct tt_block){.ops = ops, .index = model->block_count, .params = params, .impl = impl};
    (void)snprintf(block->name, sizeof block->name, "%s", name);
    memcpy(params, builder->block_params, builder->block_param_count * sizeof *params);
    block->param_count = builder->block_param_count;
    for (size_t i = 0; i < block->param_count; i++) block->trains = block->trains || params[i]->trainable;
    model->block_count++;
    builder->block_param_count = 0;
}

static tt_param *make_embedding(struct builder *builder)
{
    const struct tt_model_config *config = &builder->model->config;
    const struct tt_module *module = &builder->modules.items[TT_MODULE_EMBED_TOKENS];
    struct tt_embedding_block *embedding = take(builder, sizeof *embedding);
    if (embedding == NULL) return NULL;
    embedding->table =
        base_param(builder, module, "weight", 2, config->vocab_size, config->hidden_size, TT_INIT_NORMAL);
    finish_block(builder, &tt_embedding_block_ops, module->path, embedding);
    return embedding->table;
}

static void make_attention(struct builder *builder, int64_t index, struct tt_self_attention *attention)
{
    const struct tt_model_config *config = &builder->model->config;
    int64_t dim = config->hidden_size, head_dim = config->head_dim;
    int64_t q_out = config->num_attention_heads * head_dim, k_out = config->num_key_value_heads * head_dim;
    const struct tt_module *first = tt_module_of_layer(&builder->modules, index, 0);
    struct linear_shape qkv[] = {
        {first + TT_MODULE_Q, q_out}, {first + TT_MODULE_K, k_out}, {first + TT_MODULE_V, k_out}};
    struct linear_shape o = {first + TT_MODULE_O, dim};
    *attention = (struct tt_self_attention){
        .heads = config->num_attention_heads,
        .kv_heads = config->num_key_value_heads,
        .head_dim = head_dim,
        .window = config->window_layers[index] ? config->sliding_window : 0,
        .scale = 1.0 / sqrt((double)head_dim),
        .layer = (int)index,
    };
    attention->norm =
        (struct tt_norm){norm_weight(builder, first + TT_MODULE_INPUT_NORM, dim), config->rms_norm_eps};
    make_group(builder, qkv, 3, dim, config->attention_bias, NULL, &attention->qkv);
    if (config->qk_norm) {
        attention->q_norm =
            (struct tt_norm){norm_weight(builder, first + TT_MODULE_Q_NORM, head_dim), config->rms_norm_eps};
        attention->k_norm =
            (struct tt_norm){norm_weight(builder, first + TT_MODULE_K_NORM, head_dim), config->rms_norm_eps};
    }
    make_group(builder, &o, 1, q_out, config->attention_output_bias, NULL, &attention->o);
}

static void make_mlp(struct builder *builder, int64_t index, struct tt_mlp *mlp)
{
    const struct tt_model_config *config = &builder->model->config;
    int64_t dim = config->hidden_size, ffn = config->intermediate_size;
    const struct tt_module *first = tt_module_of_layer(&builder->modules, index, 0);
    struct linear_shape gate_up[] = {{first + TT_MODULE_GATE, ffn}, {first + TT_MODULE_UP, ffn}};
    struct linear_shape down = {first + TT_MODULE_DOWN, dim};
    mlp->norm =
        (struct tt_norm){norm_weight(builder, first + TT_MODULE_POST_NORM, dim), config->rms_norm_eps};
    make_group(builder, gate_up, 2, dim, config->mlp_bias, NULL, &mlp->gate_up);
    make_group(builder, &down, 1, ffn, config->mlp_bias, NULL, &mlp->down);
}

static void make_layer(struct builder *builder, int64_t index)
{
    struct tt_decoder_layer *layer = take(builder, sizeof *layer);
    if (layer == NULL) return;
    make_attention(builder, index, &layer->attention);
    make_mlp(builder, index, &layer->mlp);
    finish_block(builder, &tt_decoder_layer_ops, tt_module_of_layer(&builder->modules, index, 0)->path,
                 layer);
}

/* Embedding and head share one parameter unless modules_to_save trains a copy of one: PEFT then separates them. */
static bool shares_head(const struct builder *builder)
{
    const struct tt_module *items = builder->modules.items;
    return builder->model->config.tie_word_embeddings && !items[TT_MODULE_EMBED_TOKENS].saved &&
           !items[TT_MODULE_LM_HEAD].saved;
}

static void make_head(struct builder *builder, tt_param *embedding)
{
    const struct tt_model_config *config = &builder->model->config;
    const struct tt_module *items = builder->modules.items;
    struct linear_shape shape = {&items[TT_MODULE_LM_HEAD], config->vocab_size};
    struct tt_head *head = take(builder, sizeof *head);
    if (head == NULL) return;
    head->norm = (struct tt_norm){norm_weight(builder, &items[TT_MODULE_FINAL_NORM], config->hidden_size),
                                  config->rms_norm_eps};
    make_group(builder, &shape, 1, config->hidden_size, false, shares_head(builder) ? embedding : NULL,
               &head->lm_head);
    finish_block(builder, &tt_head_ops, "lm_head", head);
}

static tt_status apply_lora(struct builder *builder)
{
    struct tt_model *model = builder->model;
    if (!model->options.lora.enabled) return TT_OK;
    if (model->options.train_base) {
        return tt_fail(TT_ERR_USAGE, "LoRA and training of all base weights exclude each other");
    }
    const struct tt_model_family *family = tt_model_family_find(model->config.model_type);
    if (family == NULL) return tt_fail(TT_ERR_INTERNAL, "no family '%s'", model->config.model_type);
    TT_TRY(tt_lora_apply(&model->options.lora, family->default_target_modules, &builder->modules));
    if (model->config.tie_word_embeddings && model->options.random_init && !shares_head(builder)) {
        return tt_fail(TT_ERR_USAGE,
                       "modules_to_save of tied embeddings needs the weights of a model, not random ones");
    }
    return TT_OK;
}

static void count_params(struct builder *builder)
{
    struct tt_model *model = builder->model;
    for (size_t i = 0; i < model->param_count; i++) {
        const tt_param *param = model->params[i];
        int64_t count = tt_param_count(param);
        bool lora = tt_model_source_name(model, param) == NULL;
        bool original_is_embedding = !lora && strcmp(param->name, tt_model_source_name(model, param)) != 0;
        if (!lora && !original_is_embedding) model->base_param_count += count;
        if (param->adapter) model->adapter_param_count += count;
        if (param->trainable) model->trainable_param_count += count;
    }
}

static void assign_units(struct builder *builder)
{
    struct tt_model *model = builder->model;
    bool tied = shares_head(builder);
    model->unit_of_block = take(builder, (size_t)model->block_count * sizeof *model->unit_of_block);
    if (model->unit_of_block == NULL) return;
    for (int i = 0; i < model->block_count; i++) model->unit_of_block[i] = i;
    if (tied) model->unit_of_block[model->block_count - 1] = 0;
    model->unit_count = model->block_count - (tied ? 1 : 0);
}

/* Copies the texts of the options, because the model outlives their source. */
static void keep_strings(struct builder *builder)
{
    struct tt_lora_config *lora = &builder->model->options.lora;
    const char **texts[] = {&lora->target_modules,  &lora->exclude_modules,
                            &lora->modules_to_save, &lora->layers_to_transform,
                            &lora->layers_pattern,  &lora->rank_pattern,
                            &lora->alpha_pattern,   &builder->model->options.quant.skip_modules};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        if (*texts[i] == NULL) continue;
        *texts[i] = tt_arena_strdup(&builder->model->arena, *texts[i]);
        if (*texts[i] == NULL) builder->status = TT_ERR_MEMORY;
    }
}

tt_status tt_model_create(const struct tt_model_config *config, const struct tt_model_options *options,
                          struct tt_model **out)
{
    tt_status status = TT_OK;
    struct builder builder = {.model = tt_calloc(1, sizeof *builder.model)};
    struct tt_model *model = builder.model;
    if (model == NULL) return TT_ERR_MEMORY;
    model->config = *config;
    model->options = *options;
    keep_strings(&builder);
    TT_GO(builder.status);
    TT_GO(tt_module_list_make(config, &model->arena, &builder.modules));
    TT_GO(apply_lora(&builder));
    TT_GO(tt_quantization_apply(&model->options, config->stored_quant != TT_QUANT_NONE, &builder.modules));
    model->blocks = take(&builder, (size_t)(config->num_hidden_layers + 2) * sizeof *model->blocks);
    tt_param *embedding = make_embedding(&builder);
    for (int64_t i = 0; i < config->num_hidden_layers; i++) make_layer(&builder, i);
    make_head(&builder, embedding);
    TT_GO(builder.status);
    assign_units(&builder);
    TT_GO(builder.status);
    count_params(&builder);
    *out = model;
    model = NULL;
out:
    tt_model_destroy(model);
    return status;
}
