/* Halves with a mixture of experts. */
#include <string.h>

#include "backend/ops/gemm_scaled.h"
#include "base/number.h"
#include "model/builder_impl.h"

/* A parameter of all experts, as a module for rules by name. */
static const struct tt_module *list_parameter(struct tt_builder *builder,
                                              const struct tt_experts_names *names, const char *name)
{
    char path[256];
    (void)tt_snprintf(path, sizeof path, "%s.%s", names->experts, name);
    struct tt_module *module = tt_builder_module(builder, path, TT_MODULE_PARAMETER);
    if (module == NULL) return NULL;
    module->transposed = names->transposed;
    module->of_experts = true;
    return module;
}

/* The same parameter of the first layer that has it. */
static const struct tt_module *first_like(const struct tt_builder *builder, const struct tt_module *parameter)
{
    const struct tt_module *module = builder->model->modules.items;
    while (module != parameter &&
           (module->kind != TT_MODULE_PARAMETER || strcmp(module->name, parameter->name) != 0))
        module++;
    return module;
}

/* Rows of gate and up that are in turn are found in files by one name for all layers (model/adapter_sources.c), which
 * tells whether down has an adapter beside them. */
static void refuse_mixed(struct tt_builder *builder, const struct tt_module *gate_up,
                         const struct tt_module *down)
{
    if (builder->listing || builder->status != TT_OK || !gate_up->adapted) return;
    const struct tt_module *first = first_like(builder, down);
    if (first->adapted == down->adapted) return;
    builder->status =
        tt_fail(TT_ERR_UNSUPPORTED,
                "target_parameters adapts one of '%s' and '%s' and not the other, and in models of this "
                "type, whose rows of gate and up are in turn, layers are adapted alike",
                first->path, down->path);
    tt_hint("name the parameters without the number of a layer");
}

/* PEFT wraps the module of the experts once for each of its parameters, in their order: the adapter of the last one is
 * the module's, that of one before it is its base layer's. `behind`: the parameter behind this one; NULL: none. */
static void build_adapter(struct tt_builder *builder, const struct tt_module *experts,
                          const struct tt_module *parameter, const struct tt_module *behind,
                          struct tt_expert_linear *linear)
{
    if (builder->listing || builder->status != TT_OK || !parameter->adapted) return;
    bool inner = behind != NULL && behind->adapted;
    linear->adapters = tt_builder_adapters(builder);
    linear->r = parameter->r * linear->adapters;
    linear->scaling = parameter->scaling;
    linear->lora_A = tt_builder_lora(builder, experts, inner ? "base_layer.lora_A.weight" : "lora_A.weight",
                                     linear->experts * linear->r, linear->in, TT_REACH_ALWAYS);
    linear->lora_B = tt_builder_lora(builder, experts, inner ? "base_layer.lora_B.weight" : "lora_B.weight",
                                     linear->out, linear->r * linear->experts, TT_REACH_ALWAYS);
    tt_builder_lora_init(builder, linear->r, linear->lora_A, linear->lora_B);
}

/* PEFT trains such a bias of the base beside the adapter, and saves it with it. */
static void check_bias(struct tt_builder *builder, const struct tt_module *module)
{
    const struct tt_lora_config *lora = &builder->model->options.lora;
    bool trains = lora->bias == TT_LORA_BIAS_ALL ||
                  (lora->bias == TT_LORA_BIAS_LORA_ONLY && tt_module_is_adapted_linear(module));
    if (!lora->enabled || !trains || builder->status != TT_OK) return;
    builder->status = tt_fail(TT_ERR_UNSUPPORTED,
                              "bias %s: '%s' has a bias, and training it beside an adapter is not supported",
                              lora->bias == TT_LORA_BIAS_ALL ? "all" : "lora_only", module->path);
    tt_hint(lora->from_adapter
                ? "in Python, PeftModel.from_pretrained(base, folder).merge_and_unload() makes one model of "
                  "base and adapter, whose folder trimtab reads"
                : "leave bias out, or train all weights (use_peft false)");
}

/* FP8 with a scale a row that the settings ask for is multiplied as it is, where the sides of an expert's matrix are
 * those of such products. One that the folder stores is decoded: its products are those of the decoded folder. */
static void multiply_coded(const struct tt_builder *builder, const struct tt_module *parameter,
                           struct tt_expert_linear *linear)
{
    const struct tt_base_quant *quant = &builder->model->options.quant;
    const tt_param *weight = linear->weight;
    if (weight == NULL || builder->status != TT_OK || !parameter->quantized) return;
    const struct tt_quant_format *format = &weight->quant.format;
    if (!tt_quant_multiplies(format->type) || format->block != 0 || quant->products == TT_FP8_NONE) return;
    if (!tt_gemm_scaled_takes(linear->out, linear->in)) return;
    linear->forward = TT_PRODUCT_CODED;
    if (quant->trains && quant->products != TT_FP8_FORWARD) linear->backward = TT_PRODUCT_TRANSPOSED;
}

/* A linear of every expert: parameters of the module of all experts. transformers' Trainer lets no bias decay. */
static void build_linear(struct tt_builder *builder, const struct tt_module *module,
                         const struct tt_module *parameter, const char *name, const char *bias,
                         const struct tt_expert_linear *shape, struct tt_expert_linear *linear)
{
    *linear = *shape;
    if (builder->listing) return;
    linear->weight = tt_builder_param(builder, module, name, 3,
                                      (int64_t[]){shape->experts, shape->out, shape->in}, TT_INIT_NORMAL);
    if (linear->weight != NULL) linear->weight->weight_decay = TT_DECAY_FULL;
    tt_builder_quantize(builder, parameter, linear->weight);
    multiply_coded(builder, parameter, linear);
    if (bias == NULL || builder->status != TT_OK) return;
    check_bias(builder, module);
    linear->bias =
        tt_builder_param(builder, module, bias, 2, (int64_t[]){shape->experts, shape->out}, TT_INIT_ZERO);
    if (linear->bias != NULL) linear->bias->weight_decay = TT_DECAY_NONE;
}

static void build_shared(struct tt_builder *builder, const struct tt_experts_spec *spec,
                         struct tt_shared_expert *shared)
{
    const struct tt_experts_names *names = spec->names;
    int64_t dim = builder->model->facts.hidden_size;
    bool bypassed = spec->shared_bypassed;
    const struct tt_linear_spec gate_up[] = {
        {.path = names->shared_gate,
         .out = spec->shared_ffn,
         .bias = spec->shared_bias,
         .bypassed = bypassed},
        {.path = names->shared_up, .out = spec->shared_ffn, .bias = spec->shared_bias, .bypassed = bypassed},
        {.path = names->shared_gate_up,
         .out = 2 * spec->shared_ffn,
         .bias = spec->shared_bias,
         .bypassed = bypassed}};
    const struct tt_linear_spec down = {
        .path = names->shared_down, .out = dim, .bias = spec->shared_bias, .bypassed = bypassed};
    const struct tt_linear_spec gate = {.path = names->shared_output_gate, .out = 1, .plain = true};
    shared->activation = spec->activation;
    tt_build_module(builder, names->shared);
    tt_build_linears(builder, gate_up, 3, dim, &shared->gate_up);
    tt_build_linears(builder, &down, 1, spec->shared_ffn, &shared->down);
    tt_build_module(builder, names->shared_activation);
    tt_build_linears(builder, &gate, 1, dim, &shared->gate);
}

/* The half that is being built is the second of two, whose sum is normed. */
static void build_joint_norm(struct tt_builder *builder, const struct tt_experts_spec *spec)
{
    struct tt_norm *joint = builder->listing ? NULL : tt_builder_take(builder, sizeof *joint);
    struct tt_norm made = {0};
    const struct tt_norm_spec norm = {
        .path = spec->names->joint_norm, .eps = spec->norm_eps, .offset = spec->norm_offset};
    tt_build_norm(builder, &norm, builder->model->facts.hidden_size, TT_REACH_ALWAYS, &made);
    if (joint == NULL) return;
    *joint = made;
    builder->current.halves[builder->current.count - 1].joint_norm = joint;
}

/* A number of each expert that does not train. */
static tt_param *build_frozen(struct tt_builder *builder, const struct tt_experts_spec *spec,
                              const char *name, enum tt_init_kind init)
{
    const struct tt_module layer = {.path = builder->layer_path};
    if (builder->listing || builder->status != TT_OK || name == NULL) return NULL;
    tt_param *param = tt_builder_param(builder, &layer, name, 1, &spec->count, init);
    if (param != NULL) param->trainable = false;
    return param;
}

/* The norms behind the mixture and of the router. The weight of the latter decays: transformers' Trainer knows norms by
 * their class. */
static void build_other_norms(struct tt_builder *builder, const struct tt_experts_spec *spec,
                              struct tt_experts *experts)
{
    const struct tt_experts_names *names = spec->names;
    int64_t dim = builder->model->facts.hidden_size;
    const struct tt_norm_spec post_norm = {
        .path = names->post_norm, .eps = spec->norm_eps, .offset = spec->norm_offset};
    tt_build_norm(builder, &post_norm, dim, TT_REACH_ALWAYS, &experts->post_norm);
    if (names->joint_norm != NULL) build_joint_norm(builder, spec);
    if (names->router_norm == NULL) return;
    tt_build_module(builder, names->router_norm);
    const struct tt_module *module = tt_builder_module(builder, names->router_module, TT_MODULE_OTHER);
    experts->router_norm = (struct tt_norm){.eps = spec->norm_eps};
    if (builder->listing || builder->status != TT_OK) return;
    tt_param *weight = tt_builder_param(builder, module, names->router_weight, 1, &dim, TT_INIT_ONE);
    if (weight != NULL) weight->weight_decay = TT_DECAY_FULL;
    experts->router_norm.weight = weight;
}

void tt_build_experts(struct tt_builder *builder, const struct tt_experts_spec *spec)
{
    const struct tt_experts_names *names = spec->names;
    int64_t dim = builder->model->facts.hidden_size;
    struct tt_experts *experts =
        tt_builder_half(builder, &tt_experts_half, spec->residual_scale, sizeof *experts);
    if (experts == NULL) return;
    if (!builder->listing) builder->current.halves[builder->current.count - 1].beside = spec->beside;
    *experts = (struct tt_experts){.rule = spec->rule,
                                   .router_scale = (float)spec->router_scale,
                                   .wide_logits = spec->wide_logits,
                                   .slots = spec->slots,
                                   .activation = spec->activation};
    const struct tt_norm_spec norm = {
        .path = names->norm, .eps = spec->norm_eps, .offset = spec->norm_offset};
    const struct tt_linear_spec router = {.path = names->router,
                                          .out = spec->count,
                                          .bias = spec->bias,
                                          .plain = true,
                                          .router = !spec->router_adapts};
    tt_build_module(builder, names->module);
    tt_build_norm(builder, &norm, dim, TT_REACH_ALWAYS, &experts->norm);
    tt_build_linears(builder, &router, 1, dim, &experts->router);
    build_other_norms(builder, spec, experts);
    experts->choice_bias = build_frozen(builder, spec, names->choice_bias, TT_INIT_ZERO);
    experts->scale = build_frozen(builder, spec, names->weights_scale, TT_INIT_ONE);
    const struct tt_module *module = tt_builder_module(builder, names->experts, TT_MODULE_OTHER);
    const struct tt_module *gate_up = list_parameter(builder, names, names->gate_up);
    const struct tt_module *down = list_parameter(builder, names, names->down);
    if (names->activation != NULL) tt_build_module(builder, names->activation);
    if (builder->status != TT_OK) return;
    build_linear(builder, module, gate_up, names->gate_up, spec->bias ? names->gate_up_bias : NULL,
                 &(struct tt_expert_linear){.experts = spec->count,
                                            .slots = spec->slots,
                                            .in = dim,
                                            .out = spec->plain ? spec->ffn : 2 * spec->ffn},
                 &experts->gate_up);
    build_linear(
        builder, module, down, names->down, spec->bias ? names->down_bias : NULL,
        &(struct tt_expert_linear){.experts = spec->count, .slots = spec->slots, .in = spec->ffn, .out = dim},
        &experts->down);
    if (names->in_turn) refuse_mixed(builder, gate_up, down);
    build_adapter(builder, module, gate_up, down, &experts->gate_up);
    build_adapter(builder, module, down, NULL, &experts->down);
    if (spec->shared_ffn > 0) build_shared(builder, spec, &experts->shared);
}
