/* Halves with a mixture of experts. */
#include "model/builder_impl.h"

/* A linear of every expert: parameters of the module of all experts. transformers' Trainer lets no bias decay. */
static void build_linear(struct tt_builder *builder, const struct tt_module *module, const char *name,
                         const char *bias, const struct tt_expert_linear *shape,
                         struct tt_expert_linear *linear)
{
    *linear = *shape;
    if (builder->listing) return;
    linear->weight = tt_builder_param(builder, module, name, 3,
                                      (int64_t[]){shape->experts, shape->out, shape->in}, TT_INIT_NORMAL);
    if (linear->weight != NULL) linear->weight->weight_decay = TT_DECAY_FULL;
    if (bias == NULL) return;
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
    const struct tt_linear_spec gate = {.path = names->shared_output_gate, .out = 1, .router = true};
    shared->activation = spec->activation;
    tt_build_module(builder, names->shared);
    tt_build_linears(builder, gate_up, 3, dim, &shared->gate_up);
    tt_build_linears(builder, &down, 1, spec->shared_ffn, &shared->down);
    tt_build_module(builder, names->shared_activation);
    tt_build_linears(builder, &gate, 1, dim, &shared->gate);
}

/* A buffer of transformers' module: frozen. */
static tt_param *build_choice_bias(struct tt_builder *builder, const struct tt_experts_spec *spec)
{
    const struct tt_module layer = {.path = builder->layer_path};
    if (builder->listing || builder->status != TT_OK || spec->names->choice_bias == NULL) return NULL;
    tt_param *bias =
        tt_builder_param(builder, &layer, spec->names->choice_bias, 1, &spec->count, TT_INIT_ZERO);
    if (bias != NULL) bias->trainable = false;
    return bias;
}

void tt_build_experts(struct tt_builder *builder, const struct tt_experts_spec *spec)
{
    const struct tt_experts_names *names = spec->names;
    int64_t dim = builder->model->facts.hidden_size;
    struct tt_experts *experts =
        tt_builder_half(builder, &tt_experts_half, spec->residual_scale, sizeof *experts);
    if (experts == NULL) return;
    *experts = (struct tt_experts){.rule = spec->rule,
                                   .wide_logits = spec->wide_logits,
                                   .slots = spec->slots,
                                   .activation = spec->activation};
    const struct tt_norm_spec norm = {
        .path = names->norm, .eps = spec->norm_eps, .offset = spec->norm_offset};
    const struct tt_linear_spec router = {
        .path = names->router, .out = spec->count, .bias = spec->bias, .router = true};
    tt_build_module(builder, names->module);
    tt_build_norm(builder, &norm, dim, TT_REACH_ALWAYS, &experts->norm);
    tt_build_linears(builder, &router, 1, dim, &experts->router);
    experts->choice_bias = build_choice_bias(builder, spec);
    const struct tt_module *module = tt_builder_module(builder, names->experts, TT_MODULE_OTHER);
    if (names->activation != NULL) tt_build_module(builder, names->activation);
    build_linear(builder, module, names->gate_up, spec->bias ? names->gate_up_bias : NULL,
                 &(struct tt_expert_linear){
                     .experts = spec->count, .in = dim, .out = spec->plain ? spec->ffn : 2 * spec->ffn},
                 &experts->gate_up);
    build_linear(builder, module, names->down, spec->bias ? names->down_bias : NULL,
                 &(struct tt_expert_linear){.experts = spec->count, .in = spec->ffn, .out = dim},
                 &experts->down);
    if (spec->shared_ffn > 0) build_shared(builder, spec, &experts->shared);
}
