/* Modules, parameters and blocks, of which all parts of a model consist. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "backend/ops/gemm_fused.h"
#include "backend/ops/gemm_scaled.h"
#include "base/alloc.h"
#include "base/ascii.h"
#include "base/number.h"
#include "model/builder_impl.h"
#include "nn/adapter_kind.h"

void *tt_builder_take(struct tt_builder *builder, size_t bytes)
{
    void *memory = builder->status == TT_OK ? tt_arena_alloc(&builder->model->arena, bytes) : NULL;
    if (memory == NULL && builder->status == TT_OK) builder->status = TT_ERR_MEMORY;
    return memory;
}

/* The list grows outside the arena; tt_model_create moves it there. */
static struct tt_module *list_module(struct tt_builder *builder, const char *path, enum tt_module_kind kind)
{
    struct tt_model *model = builder->model;
    struct tt_module_list *list = &model->modules;
    const char *layer = builder->layer_path;
    size_t below = layer != NULL && *path != '\0' ? strlen(layer) + 1 : 0;
    if (tt_grow(&list->items, list->count, &builder->module_capacity) != 0) {
        builder->status = TT_ERR_MEMORY;
        return NULL;
    }
    struct tt_module *module = &list->items[list->count];
    *module = (struct tt_module){.kind = kind, .layer = layer != NULL ? builder->layer : -1};
    if (layer == NULL)
        module->path = tt_arena_strdup(&model->arena, path);
    else if (*path == '\0')
        module->path = layer;
    else
        module->path = tt_arena_printf(&model->arena, "%s.%s", layer, path);
    if (module->path == NULL) {
        builder->status = TT_ERR_MEMORY;
        return NULL;
    }
    module->name = layer != NULL && *path == '\0' ? "" : module->path + below;
    list->count++;
    return module;
}

struct tt_module *tt_builder_module(struct tt_builder *builder, const char *path, enum tt_module_kind kind)
{
    const struct tt_module_list *list = &builder->model->modules;
    if (builder->status != TT_OK) return NULL;
    if (builder->listing) return list_module(builder, path, kind);
    struct tt_module *module = &list->items[builder->next_module];
    if (builder->next_module == list->count || strcmp(module->name, path) != 0) {
        builder->status =
            tt_fail(TT_ERR_INTERNAL, "the second run of a build has module '%s', not the first", path);
        return NULL;
    }
    builder->next_module++;
    return module;
}

void tt_build_module(struct tt_builder *builder, const char *path)
{
    (void)tt_builder_module(builder, path, TT_MODULE_OTHER);
}

void tt_builder_use_param(struct tt_builder *builder, tt_param *param)
{
    if (builder->status != TT_OK) return;
    if (tt_grow(&builder->block_params, builder->block_param_count, &builder->block_param_capacity) != 0) {
        builder->status = TT_ERR_MEMORY;
        return;
    }
    builder->block_params[builder->block_param_count++] = param;
}

static tt_param *new_param(struct tt_builder *builder, const struct tt_module *module, const char *suffix,
                           int rank, const int64_t *dims)
{
    struct tt_model *model = builder->model;
    tt_param *param = tt_builder_take(builder, sizeof *param);
    if (param == NULL) return NULL;
    param->name = tt_arena_printf(&model->arena, "%s.%s", module->path, suffix);
    if (param->name == NULL || tt_grow(&model->params, model->param_count, &builder->param_capacity) != 0) {
        builder->status = TT_ERR_MEMORY;
        return NULL;
    }
    param->rank = rank;
    for (int d = 0; d < rank; d++) param->dims[d] = dims[d];
    param->lr_scale = 1.0;
    model->params[model->param_count++] = param;
    tt_builder_use_param(builder, param);
    return builder->status == TT_OK ? param : NULL;
}

/* PEFT's `bias`: a bias of the base that trains beside the adapter and is saved with it, where the linear is adapted
 * under the name that it has inside PEFT's module. */
static void train_bias(struct tt_builder *builder, const struct tt_module *module, tt_param *param)
{
    const struct tt_lora_config *lora = &builder->model->options.lora;
    bool trains = lora->bias == TT_LORA_BIAS_ALL || (lora->bias == TT_LORA_BIAS_LORA_ONLY && module->adapted);
    if (!lora->enabled || !trains || param->trainable) return;
    if (builder->model->options.more_lora_count > 0 && builder->status == TT_OK) {
        builder->status = tt_fail(TT_ERR_UNSUPPORTED,
                                  "several adapters at a time, and one of them trains '%s'", param->name);
        tt_hint("use that adapter alone, or merge it into the base model first (trimtab merge)");
        return;
    }
    param->trainable = param->adapter = param->bias = true;
    if (!module->adapted) return;
    param->adapter_name = tt_arena_printf(&builder->model->arena, "%s.base_layer.bias", module->path);
    if (param->adapter_name == NULL) builder->status = TT_ERR_MEMORY;
}

tt_param *tt_builder_param(struct tt_builder *builder, const struct tt_module *module, const char *suffix,
                           int rank, const int64_t *dims, enum tt_init_kind random_init)
{
    const struct tt_model_options *options = &builder->model->options;
    tt_param *param = module != NULL ? new_param(builder, module, suffix, rank, dims) : NULL;
    if (param == NULL) return NULL;
    param->trainable = options->train_base || module->saved;
    param->adapter = module->saved;
    if (rank == 1 && strcmp(suffix, "bias") == 0) train_bias(builder, module, param);
    /* Trainable parameters have a fp32 master; frozen vectors cost little in fp32; frozen matrices are stored in the
     * compute type. */
    param->stored_dtype = param->trainable || rank == 1 ? TT_F32 : options->compute_dtype;
    param->weight_decay = rank == 2 ? TT_DECAY_FULL : TT_DECAY_NONE;
    param->init = options->random_init ? random_init : TT_INIT_FILE;
    param->init_scale = builder->model->facts.initializer_range;
    return param;
}

void tt_build_norm(struct tt_builder *builder, const struct tt_norm_spec *spec, int64_t dim,
                   enum tt_param_reach reach, struct tt_norm *norm)
{
    *norm =
        (struct tt_norm){.eps = spec->eps, .offset = spec->offset ? 1.0f : 0.0f, .centers = spec->centers};
    if (spec->bare) {
        norm->bare = true;
        norm->offset = 1.0f;
        if (spec->path != NULL) tt_build_module(builder, spec->path);
        return;
    }
    if (spec->path == NULL) return;
    struct tt_module *module = tt_builder_module(builder, spec->path, TT_MODULE_NORM);
    if (module != NULL) module->offset = spec->offset;
    if (builder->listing) return;
    norm->weight =
        tt_builder_param(builder, module, "weight", 1, &dim, spec->offset ? TT_INIT_ZERO : TT_INIT_ONE);
    if (norm->weight != NULL) norm->weight->reach = reach;
}

tt_param *tt_builder_lora(struct tt_builder *builder, const struct tt_module *module, const char *suffix,
                          int64_t rows, int64_t columns, enum tt_param_reach reach)
{
    tt_param *param = new_param(builder, module, suffix, 2, (int64_t[]){rows, columns});
    if (param == NULL) return NULL;
    param->trainable = param->adapter = true;
    param->weight_decay = TT_DECAY_FULL;
    param->stored_dtype = TT_F32;
    param->reach = reach;
    return param;
}

/* The kind of adapter that the settings choose; NULL: LoRA. */
static const struct tt_adapter_kind *adapter_kind(const struct tt_lora_config *lora)
{
#define KIND(name, setting)                                                                                  \
    if (lora->setting) return &tt_adapter_##name;
#include "nn/adapter_kinds.def"
#undef KIND
    (void)lora;
    return NULL;
}

/* The parameter [out] that the kind has beside A and B: exact, because small changes of large values count. */
static void build_vector(struct tt_builder *builder, const struct tt_module *module,
                         const struct tt_adapter_kind *kind, struct tt_linear *linear)
{
    if (kind == NULL || kind->vector == NULL || builder->status != TT_OK) return;
    tt_param *param = new_param(builder, module, kind->vector, 1, &linear->out);
    if (param == NULL) return;
    param->trainable = param->adapter = param->exact = true;
    param->weight_decay = TT_DECAY_FULL;
    param->stored_dtype = TT_F32;
    param->reach = linear->lora_B->reach;
    param->init = TT_INIT_DERIVED;
    linear->vector = param;
    linear->kind = kind;
}

/* A gradient reaches rows of an embedding only where their tokens are in the data. */
void tt_builder_token_rows(struct tt_builder *builder, const struct tt_module *module, tt_param *table,
                           struct tt_token_rows *rows)
{
    *rows = (struct tt_token_rows){0};
    if (builder->status != TT_OK || module->tokens == NULL) return;
    int64_t dims[] = {module->token_count, table->dims[1]};
    tt_param *values = new_param(builder, module, &TT_MODEL_TOKEN_ROWS[1], 2, dims);
    tt_param *tokens = new_param(builder, module, "token_adapter.token_indices", 1, dims);
    if (builder->status != TT_OK) return;
    values->trainable = values->adapter = true;
    values->weight_decay = TT_DECAY_FULL;
    values->stored_dtype = TT_F32;
    values->place = TT_PLACE_EMBEDDING;
    values->reach = module->kind == TT_MODULE_HEAD || builder->model->facts.tie_word_embeddings
                        ? TT_REACH_ALWAYS
                        : TT_REACH_TOKENS;
    values->init = TT_INIT_ROWS;
    values->rows_of = table;
    tokens->stored_dtype = TT_I32;
    tokens->init = TT_INIT_TOKENS;
    values->tokens = tokens->tokens = module->tokens;
    *rows = (struct tt_token_rows){.rows = values, .tokens = tokens};
}

/* PEFT: A is kaiming_uniform(a = sqrt(5)), which is uniform within 1 / sqrt(in), or normal with deviation 1 / r; B is
 * 0. */
void tt_builder_lora_init(struct tt_builder *builder, int64_t r, tt_param *lora_A, tt_param *lora_B)
{
    const char *init = builder->model->options.lora.init_weights;
    bool gaussian = init != NULL && tt_ascii_same(init, "gaussian");
    if (builder->status != TT_OK) return;
    lora_A->init = gaussian ? TT_INIT_NORMAL : TT_INIT_UNIFORM;
    lora_A->init_scale = gaussian ? 1.0 / (double)r : 1.0 / sqrt((double)lora_A->dims[1]);
    lora_B->init = TT_INIT_ZERO;
}

/* That of the options, or in which the folder has experts. */
static struct tt_quant_format format_of(const struct tt_builder *builder, const struct tt_module *module)
{
    const struct tt_base_quant *quant = &builder->model->options.quant;
    struct tt_quant_format format = {.type = TT_QUANT_NONE};
    if (!module->quantized && tt_module_is_of_experts(module)) return builder->model->facts.stored_experts;
    if (module->quantized) format = tt_quant_format_make(quant->type, quant->nested);
    if (module->quantized && quant->blocks && module->kind == TT_MODULE_LINEAR) format.block = TT_FP8_BLOCK;
    return format;
}

void tt_builder_quantize(struct tt_builder *builder, const struct tt_module *module, tt_param *weight)
{
    struct tt_quant_format format = format_of(builder, module);
    if (weight == NULL || format.type == TT_QUANT_NONE || weight->trainable || builder->status != TT_OK)
        return;
    int64_t rows = weight->rank == 3 ? weight->dims[0] * weight->dims[1] : weight->dims[0];
    weight->stored_dtype = TT_U8;
    builder->status = tt_quant_layout_make(format, rows, weight->dims[weight->rank - 1], &weight->quant);
}

/* Another format whose decoded weights are quantized to FP8 for each product. */
static void recode(struct tt_builder *builder, struct tt_linear *linear)
{
    const struct tt_base_quant *quant = &builder->model->options.quant;
    const struct tt_quant_format fp8 = tt_quant_format_make(tt_quant_multiplied(), false);
    const int64_t *dims = linear->weight->dims;
    if (builder->status != TT_OK || !tt_gemm_scaled_takes(dims[0], dims[1])) return;
    linear->forward = TT_PRODUCT_RECODED;
    if (quant->trains && quant->products == TT_FP8_SINGLE) linear->backward = TT_PRODUCT_TRANSPOSED;
    builder->status = tt_quant_layout_make(fp8, dims[0], dims[1], &linear->recoded_layout);
    if (builder->status == TT_OK)
        builder->status = tt_quant_layout_make(fp8, dims[1], dims[0], &linear->transposed_layout);
}

/* FP8 that is multiplied as it is: training adds the transposed copy. Blocks are decoded, and read a rounded x. */
static void multiply_coded(struct tt_builder *builder, const struct tt_module *module,
                           struct tt_linear *linear)
{
    const struct tt_base_quant *quant = &builder->model->options.quant;
    tt_param *weight = linear->weight;
    if (weight != NULL && tt_param_is_quantized(weight) && quant->recodes) recode(builder, linear);
    if (weight == NULL || !tt_quant_multiplies(weight->quant.format.type)) return;
    if (quant->products == TT_FP8_NONE) return;
    if (weight->quant.format.block != 0) {
        linear->forward = quant->powers ? TT_PRODUCT_ROUNDED_X_BY_POWERS : TT_PRODUCT_ROUNDED_X;
        return;
    }
    if (!tt_gemm_scaled_takes(weight->dims[0], weight->dims[1])) return;
    linear->forward = TT_PRODUCT_CODED;
    if (!quant->trains || quant->products == TT_FP8_FORWARD || builder->status != TT_OK) return;
    if (quant->products == TT_FP8_SINGLE) {
        linear->backward = TT_PRODUCT_TRANSPOSED;
        builder->status = tt_quant_layout_make(weight->quant.format, weight->dims[1], weight->dims[0],
                                               &linear->transposed_layout);
        return;
    }
    tt_param *transposed =
        new_param(builder, module, "weight.transposed", 2, (int64_t[]){weight->dims[1], weight->dims[0]});
    if (transposed == NULL) return;
    transposed->stored_dtype = TT_U8;
    transposed->init = weight->init;
    transposed->init_scale = weight->init_scale;
    transposed->transposed_of = weight;
    if (module->kind != TT_MODULE_HEAD) { /* whose gradients are computed in forward (nn/head.h) */
        transposed->use = TT_USE_BACKWARD;
        weight->use = TT_USE_FORWARD;
    }
    builder->status = tt_quant_layout_make(weight->quant.format, transposed->dims[0], transposed->dims[1],
                                           &transposed->quant);
    linear->transposed = transposed;
    linear->backward = TT_PRODUCT_CODED;
}

int64_t tt_builder_adapters(const struct tt_builder *builder)
{
    int64_t places = builder->model->options.adapter_places;
    return places > 1 ? places : 1;
}

struct members {
    const struct tt_module *modules[TT_LOW_RANK_PARTS];
    const struct tt_linear_spec *specs[TT_LOW_RANK_PARTS];
    int count;
};

static void make_weights(struct tt_builder *builder, const struct members *members, int64_t in,
                         tt_param *tied, struct tt_linear_group *group)
{
    for (int i = 0; i < members->count && builder->status == TT_OK; i++) {
        struct tt_linear *linear = &group->linears[i];
        const struct tt_module *module = members->modules[i];
        *linear = (struct tt_linear){.in = in, .out = members->specs[i]->out, .weight = tied};
        if (tied != NULL) {
            tt_builder_use_param(builder, tied);
        } else {
            linear->weight =
                tt_builder_param(builder, module, "weight", 2, (int64_t[]){linear->out, in}, TT_INIT_NORMAL);
            if (linear->weight != NULL) linear->weight->reach = members->specs[i]->reach;
            tt_builder_quantize(builder, module, linear->weight);
            multiply_coded(builder, module, linear);
        }
        if (!module->adapted) continue;
        linear->adapters = tt_builder_adapters(builder);
        linear->r = module->r * linear->adapters;
        linear->scaling = module->scaling;
        linear->dropout = builder->model->options.lora.dropout;
    }
}

/* Weights first, then biases, then all A and all B, so that each kind is contiguous. */
static void make_group(struct tt_builder *builder, const struct members *members, int64_t in, tt_param *tied,
                       struct tt_linear_group *group)
{
    group->count = members->count;
    group->linears = tt_builder_take(builder, (size_t)members->count * sizeof *group->linears);
    if (group->linears == NULL) return;
    make_weights(builder, members, in, tied, group);
    for (int i = 0; i < members->count; i++) {
        const struct tt_linear_spec *spec = members->specs[i];
        if (!spec->bias) continue;
        tt_param *bias = tt_builder_param(builder, members->modules[i], "bias", 1, &spec->out, TT_INIT_ZERO);
        if (bias != NULL) bias->reach = spec->bias_reach;
        group->linears[i].bias = bias;
    }
    for (int i = 0; i < members->count; i++) {
        struct tt_linear *linear = &group->linears[i];
        if (linear->r > 0)
            linear->lora_A = tt_builder_lora(builder, members->modules[i], "lora_A.weight", linear->r, in,
                                             members->specs[i]->reach);
    }
    for (int i = 0; i < members->count; i++) {
        struct tt_linear *linear = &group->linears[i];
        if (linear->r == 0) continue;
        linear->lora_B = tt_builder_lora(builder, members->modules[i], "lora_B.weight", linear->out,
                                         linear->r, members->specs[i]->reach);
        tt_builder_lora_init(builder, linear->r, linear->lora_A, linear->lora_B);
    }
    const struct tt_adapter_kind *kind = adapter_kind(&builder->model->options.lora);
    if (tt_linear_group_r(group) > 0) group->kind = kind;
    for (int i = 0; i < members->count; i++)
        if (group->linears[i].r > 0) build_vector(builder, members->modules[i], kind, &group->linears[i]);
}

/* A router as its linear is built: adapted where rules have chosen its parameter. */
static struct tt_module *adapted_router(struct tt_builder *builder, struct tt_module *router,
                                        const char *path)
{
    char name[256];
    (void)tt_snprintf(name, sizeof name, "%s.weight", path);
    const struct tt_module *weight = tt_builder_module(builder, name, TT_MODULE_PARAMETER);
    struct tt_module *adapted = builder->listing ? NULL : tt_builder_take(builder, sizeof *adapted);
    if (adapted == NULL) return router;
    *adapted = *router;
    adapted->adapted = weight->adapted;
    adapted->r = weight->r;
    adapted->scaling = weight->scaling;
    return adapted;
}

void tt_build_linears(struct tt_builder *builder, const struct tt_linear_spec *specs, int count, int64_t in,
                      struct tt_linear_group *group)
{
    struct members members = {0};
    for (int i = 0; i < count; i++) {
        if (specs[i].path == NULL) continue;
        if (members.count == TT_LOW_RANK_PARTS) {
            builder->status =
                tt_fail(TT_ERR_INTERNAL, "a product has adapters of more than %d linears", TT_LOW_RANK_PARTS);
            return;
        }
        struct tt_module *module =
            tt_builder_module(builder, specs[i].path, specs[i].router ? TT_MODULE_OTHER : TT_MODULE_LINEAR);
        if (module != NULL) module->plain = specs[i].plain || specs[i].router;
        if (module != NULL) module->bypassed = specs[i].bypassed;
        if (module != NULL && specs[i].router) module = adapted_router(builder, module, specs[i].path);
        members.specs[members.count] = &specs[i];
        members.modules[members.count++] = module;
    }
    *group = (struct tt_linear_group){0};
    if (!builder->listing && builder->status == TT_OK) make_group(builder, &members, in, NULL, group);
}

void tt_build_linear(struct tt_builder *builder, const char *path, int64_t in, int64_t out, bool bias,
                     struct tt_linear_group *group)
{
    tt_build_linears(builder, &(struct tt_linear_spec){.path = path, .out = out, .bias = bias}, 1, in, group);
}

void tt_builder_head_linear(struct tt_builder *builder, const struct tt_module *module, int64_t in,
                            int64_t out, tt_param *tied, struct tt_linear_group *group)
{
    struct tt_linear_spec spec = {.out = out};
    struct members members = {.modules = {module}, .specs = {&spec}, .count = 1};
    *group = (struct tt_linear_group){0};
    if (!builder->listing && builder->status == TT_OK) make_group(builder, &members, in, tied, group);
}

const struct tt_side *tt_build_side(struct tt_builder *builder, int64_t columns, bool cached)
{
    struct tt_model *model = builder->model;
    if (builder->listing) return NULL;
    struct tt_side *side = tt_builder_take(builder, sizeof *side);
    if (side == NULL) return NULL;
    *side = (struct tt_side){.index = (int)model->side_count, .columns = columns, .cached = cached};
    for (size_t i = 0; i < model->param_count; i++) side->trains |= model->params[i]->trainable;
    if (tt_grow(&model->sides, model->side_count, &builder->side_capacity) != 0) {
        builder->status = TT_ERR_MEMORY;
        return NULL;
    }
    model->sides[model->side_count++] = side;
    return side;
}

void tt_build_column(struct tt_builder *builder, const char *name, enum tt_per per)
{
    if (builder->listing || builder->status != TT_OK) return;
    for (int c = 0; c < builder->column_count; c++)
        if (strcmp(builder->columns[c].name, name) == 0 && builder->columns[c].per == per) return;
    if (builder->column_count == TT_DEVICE_COLUMNS_MAX) {
        builder->status =
            tt_fail(TT_ERR_INTERNAL, "a block reads more than %d columns", TT_DEVICE_COLUMNS_MAX);
        return;
    }
    const char *copy = tt_arena_strdup(&builder->model->arena, name);
    if (copy == NULL) builder->status = TT_ERR_MEMORY;
    if (copy != NULL) builder->columns[builder->column_count++] = (struct tt_column_name){copy, per};
}

/* The columns that were named since the last block. */
static void give_columns(struct tt_builder *builder, struct tt_block *block)
{
    size_t bytes = (size_t)builder->column_count * sizeof *builder->columns;
    struct tt_column_name *columns = bytes > 0 ? tt_builder_take(builder, bytes) : NULL;
    if (columns == NULL) return;
    memcpy(columns, builder->columns, bytes);
    block->columns = columns;
    block->column_count = builder->column_count;
    builder->column_count = 0;
}

void tt_builder_block(struct tt_builder *builder, const struct tt_block_ops *ops, const char *name,
                      void *impl)
{
    struct tt_model *model = builder->model;
    tt_param **params = tt_builder_take(builder, builder->block_param_count * sizeof(tt_param *));
    if (params == NULL) return;
    struct tt_block *block = &model->blocks[model->block_count];
    *block = (struct tt_block){.ops = ops, .index = model->block_count, .params = params, .impl = impl};
    if (ops->output == NULL) block->width = model->facts.hidden_size;
    (void)snprintf(block->name, sizeof block->name, "%s", name);
    memcpy(params, builder->block_params, builder->block_param_count * sizeof(tt_param *));
    block->param_count = builder->block_param_count;
    for (size_t i = 0; i < block->param_count; i++) block->trains = block->trains || params[i]->trainable;
    give_columns(builder, block);
    model->block_count++;
    builder->block_param_count = 0;
}
