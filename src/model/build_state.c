/* Halves of layers with a state. */
#include "model/builder_impl.h"

/* Values that transformers draws for a model without weights: A_log is the logarithm of a uniform number up to 16, here
 * of their mean. */
static const double a_log_init = 2.0794415416798357;

/* A parameter of the half itself. */
static tt_param *own_param(struct tt_builder *builder, const struct tt_module *module, const char *suffix,
                           int64_t count, enum tt_init_kind init, enum tt_decay decay)
{
    tt_param *param = tt_builder_param(builder, module, suffix, 1, &count, init);
    if (param == NULL) return NULL;
    if (init == TT_INIT_CONSTANT) param->init_scale = a_log_init;
    param->weight_decay = decay; /* transformers' Trainer leaves out what is called norm or bias */
    return param;
}

/* The weight and the bias of a convolution of `columns`. */
static void build_conv(struct tt_builder *builder, const struct tt_module *module, int64_t columns,
                       int64_t kernel, tt_param **weight, tt_param **bias)
{
    *weight = tt_builder_param(builder, module, "weight", 3, (int64_t[]){columns, 1, kernel}, TT_INIT_NORMAL);
    if (*weight != NULL) (*weight)->weight_decay = TT_DECAY_FULL;
    if (bias != NULL) *bias = own_param(builder, module, "bias", columns, TT_INIT_ZERO, TT_DECAY_NONE);
}

/* The linears of the stream, in the order of their columns. */
static void build_linears(struct tt_builder *builder, const struct tt_recurrence_spec *spec,
                          struct tt_recurrence *recurrence)
{
    const struct tt_recurrence_names *names = spec->names;
    int64_t dim = builder->model->facts.hidden_size, columns = tt_recurrence_columns(recurrence);
    int64_t values = recurrence->heads * recurrence->value_dim, heads = recurrence->heads;
    bool delta = spec->rule == TT_SCAN_DELTA;
    int64_t alone = !delta ? values + columns + heads : names->gate == NULL ? columns + values : columns;
    struct tt_linear_spec in[] = {
        {.path = names->in, .out = alone, .bias = spec->linear_bias},
        {.path = names->gate, .out = values, .bias = spec->linear_bias},
    };
    struct tt_linear_spec rates[] = {
        {.path = names->rates, .out = 2 * heads, .plain = true},
        {.path = names->rate_b, .out = heads, .plain = true},
        {.path = names->rate_a, .out = heads, .plain = true},
    };
    recurrence->gate_column = delta ? columns : 0;
    recurrence->conv_column = delta ? 0 : values;
    recurrence->rate_column = values + columns;
    tt_build_linears(builder, in, 2, dim, &recurrence->in);
    if (delta) tt_build_linears(builder, rates, 3, dim, &recurrence->rates);
}

void tt_build_recurrence(struct tt_builder *builder, const struct tt_recurrence_spec *spec)
{
    const struct tt_model_facts *model = &builder->model->facts;
    const struct tt_kv_states *state = &model->layers[builder->layer].state;
    const struct tt_recurrence_names *names = spec->names;
    struct tt_recurrence *recurrence =
        tt_builder_half(builder, &tt_recurrence_half, spec->residual_scale, sizeof *recurrence);
    if (recurrence == NULL) return;
    int64_t values = state->heads * state->columns;
    *recurrence = (struct tt_recurrence){
        .rule = spec->rule,
        .heads = state->heads,
        .key_heads = spec->key_heads,
        .key_dim = state->rows,
        .value_dim = state->columns,
        .dt_min = spec->dt_min,
        .dt_max = spec->dt_max,
        .gate_eps = spec->gate_eps,
        .gate_groups = spec->gate_by_head ? state->heads : spec->key_heads,
        .gate_first = !spec->gate_by_head,
        .layer = tt_model_cache_layer(model, builder->layer),
    };
    const struct tt_norm_spec norm = {
        .path = names->norm, .eps = spec->norm_eps, .offset = spec->norm_offset};
    const struct tt_module *module = tt_builder_module(builder, names->module, TT_MODULE_OTHER);
    tt_build_norm(builder, &norm, model->hidden_size, TT_REACH_ALWAYS, &recurrence->norm);
    const struct tt_module *conv = tt_builder_module(builder, names->conv, TT_MODULE_OTHER);
    tt_build_module(builder, names->activation);
    const struct tt_module *gate_norm = tt_builder_module(builder, names->gate_norm, TT_MODULE_NORM);
    build_linears(builder, spec, recurrence);
    const struct tt_linear_spec out = {.path = names->out,
                                       .out = model->hidden_size,
                                       .bias = spec->linear_bias,
                                       .bypassed = spec->out_bypassed};
    tt_build_linears(builder, &out, 1, values, &recurrence->out);
    if (builder->listing) return;
    build_conv(builder, conv, tt_recurrence_columns(recurrence), state->conv_rows + 1,
               &recurrence->conv_weight, spec->conv_bias ? &recurrence->conv_bias : NULL);
    recurrence->dt_bias = own_param(builder, module, "dt_bias", state->heads, TT_INIT_ONE, TT_DECAY_NONE);
    recurrence->a_log = own_param(builder, module, "A_log", state->heads, TT_INIT_CONSTANT, TT_DECAY_FULL);
    if (spec->rule == TT_SCAN_MAMBA2)
        recurrence->skip = own_param(builder, module, "D", state->heads, TT_INIT_ONE, TT_DECAY_FULL);
    recurrence->gate_weight =
        own_param(builder, gate_norm, "weight", spec->gate_by_head ? state->columns : values, TT_INIT_ONE,
                  TT_DECAY_NONE);
}

void tt_build_short_conv(struct tt_builder *builder, const struct tt_short_conv_spec *spec)
{
    const struct tt_model_facts *model = &builder->model->facts;
    int64_t dim = model->hidden_size;
    struct tt_short_conv *conv = tt_builder_half(builder, &tt_short_conv_half, 0, sizeof *conv);
    if (conv == NULL) return;
    *conv = (struct tt_short_conv){.columns = dim, .layer = tt_model_cache_layer(model, builder->layer)};
    tt_build_module(builder, spec->module);
    tt_build_norm(builder, &(struct tt_norm_spec){.path = spec->norm, .eps = spec->norm_eps}, dim,
                  TT_REACH_ALWAYS, &conv->norm);
    const struct tt_module *module = tt_builder_module(builder, spec->conv, TT_MODULE_OTHER);
    tt_build_linear(builder, spec->in, dim, 3 * dim, spec->bias, &conv->in);
    tt_build_linear(builder, spec->out, dim, dim, spec->bias, &conv->out);
    if (!builder->listing)
        build_conv(builder, module, dim, model->layers[builder->layer].state.conv_rows + 1, &conv->weight,
                   spec->bias ? &conv->bias : NULL);
}
