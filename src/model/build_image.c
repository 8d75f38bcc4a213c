/* Convolutions and blocks of detectors. */
#include <stdio.h>

#include "model/builder_impl.h"

void *tt_build_memory(struct tt_builder *builder, size_t bytes)
{
    return tt_builder_take(builder, bytes);
}

/* One of the four vectors of a norm; identity in a model without weights. */
static tt_param *norm_param(struct tt_builder *builder, const struct tt_module *module, const char *suffix,
                            int64_t channels, enum tt_init_kind init)
{
    tt_param *param = tt_builder_param(builder, module, suffix, 1, &channels, init);
    if (param == NULL) return NULL;
    param->trainable = false;
    param->stored_dtype = TT_F32;
    param->reach = TT_REACH_NEVER;
    return param;
}

static void build_norm(struct tt_builder *builder, const struct tt_module *module,
                       const struct tt_conv_spec *spec, struct tt_conv *conv)
{
    static const struct {
        const char *suffix;
        enum tt_init_kind init;
    } vectors[TT_CONV_NORM_PARAMS] = {
        [TT_CONV_NORM_WEIGHT] = {"weight", TT_INIT_ONE},
        [TT_CONV_NORM_BIAS] = {"bias", TT_INIT_ZERO},
        [TT_CONV_NORM_MEAN] = {"running_mean", TT_INIT_ZERO},
        [TT_CONV_NORM_VARIANCE] = {"running_var", TT_INIT_ONE},
    };
    conv->norm_eps = spec->norm_eps;
    for (int i = 0; i < TT_CONV_NORM_PARAMS; i++)
        conv->norm[i] = norm_param(builder, module, vectors[i].suffix, spec->out, vectors[i].init);
}

static void set_trainable(tt_param *param, const struct tt_conv_spec *spec, enum tt_decay decay);

/* Statistics are no parameters of the optimizer: forward passes change them, also where weight and bias are frozen. */
static void set_batch_norm(const struct tt_conv_spec *spec, struct tt_conv *conv)
{
    conv->batch_norm = spec->batch_norm;
    if (!conv->batch_norm) return;
    for (int i = TT_CONV_NORM_WEIGHT; i <= TT_CONV_NORM_BIAS; i++) {
        set_trainable(conv->norm[i], spec, TT_DECAY_NORM);
        if (conv->norm[i] != NULL) conv->norm[i]->reach = TT_REACH_ALWAYS;
    }
}

/* Frozen parameters are stored in fp32 too, so that a save has the values of the file. */
static void set_trainable(tt_param *param, const struct tt_conv_spec *spec, enum tt_decay decay)
{
    if (param == NULL) return;
    param->trainable = !spec->frozen;
    param->stored_dtype = TT_F32;
    param->weight_decay = decay; /* torchvision's recipe decays all, biases too */
}

static void build_group_norm(struct tt_builder *builder, const struct tt_module *module,
                             const struct tt_conv_spec *spec, struct tt_conv *conv)
{
    conv->groups = spec->groups;
    conv->norm_eps = spec->norm_eps;
    conv->group_weight = tt_builder_param(builder, module, "weight", 1, &spec->out, TT_INIT_ONE);
    conv->group_bias = tt_builder_param(builder, module, "bias", 1, &spec->out, TT_INIT_ZERO);
    set_trainable(conv->group_weight, spec, TT_DECAY_NORM);
    set_trainable(conv->group_bias, spec, TT_DECAY_NORM);
}

void tt_build_conv(struct tt_builder *builder, const struct tt_conv_spec *spec, struct tt_conv *conv)
{
    const struct tt_module *module = tt_builder_module(builder, spec->path, TT_MODULE_OTHER);
    const struct tt_module *norm =
        spec->norm != NULL ? tt_builder_module(builder, spec->norm, TT_MODULE_NORM) : NULL;
    if (builder->listing || builder->status != TT_OK) return;
    *conv = (struct tt_conv){.in = spec->in,
                             .out = spec->out,
                             .kernel = spec->kernel,
                             .stride = spec->stride,
                             .padding = spec->padding,
                             .relu = spec->relu};
    conv->weight = tt_builder_param(builder, module, "weight", 4,
                                    (int64_t[]){spec->out, spec->in, spec->kernel, spec->kernel}, spec->init);
    set_trainable(conv->weight, spec, TT_DECAY_FULL);
    if (conv->weight != NULL) conv->weight->init_scale = spec->init_scale;
    if (norm != NULL && spec->groups > 0) build_group_norm(builder, norm, spec, conv);
    if (norm != NULL && spec->groups == 0) build_norm(builder, norm, spec, conv);
    if (norm != NULL && spec->groups == 0) set_batch_norm(spec, conv);
    if (!spec->bias) return;
    enum tt_init_kind bias = spec->bias_init != 0 ? TT_INIT_CONSTANT : TT_INIT_ZERO;
    conv->bias = tt_builder_param(builder, module, "bias", 1, &spec->out, bias);
    set_trainable(conv->bias, spec, TT_DECAY_FULL);
    if (conv->bias != NULL) conv->bias->init_scale = spec->bias_init;
}

void tt_build_block(struct tt_builder *builder, const struct tt_block_ops *ops, const char *name, void *impl)
{
    if (builder->listing || builder->status != TT_OK) return;
    tt_builder_block(builder, ops, name, impl);
}
