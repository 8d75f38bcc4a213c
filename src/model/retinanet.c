#include "model/retinanet.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/family.h"
#include "nn/detector_head.h"
#include "nn/pyramid.h"
#include "nn/resnet.h"

enum { EXPANSION = 4, STAGES = TT_RETINANET_STAGES, PATH_BYTES = 96, NAME_BYTES = PATH_BYTES + 32 };

struct tt_retinanet_config tt_retinanet_config_default(int64_t class_count)
{
    return (struct tt_retinanet_config){.class_count = class_count,
                                        .width = 64,
                                        .pyramid = 256,
                                        .blocks = {3, 4, 6, 3},
                                        .trainable_stages = 3,
                                        .norm_eps = 1e-5};
}

tt_status tt_retinanet_facts(const struct tt_retinanet_config *config, struct tt_model_facts *facts)
{
    bool ok = config->class_count >= 2 && config->class_count <= 100000 && config->width >= 1 &&
              config->width <= 1024 && config->pyramid >= 1 && config->pyramid <= 4096 &&
              config->trainable_stages >= 0 && config->trainable_stages <= STAGES + 1 &&
              config->norm_eps >= 0 && config->head_groups >= 0 &&
              (config->head_groups == 0 || config->pyramid % config->head_groups == 0);
    for (int i = 0; i < STAGES; i++)
        ok &= config->blocks[i] >= 1 && config->blocks[i] <= TT_RESNET_BLOCKS_MAX;
    if (!ok)
        return tt_fail(
            TT_ERR_USAGE,
            "a RetinaNet of %lld classes, width %lld, with %d trainable stages, %lld channels of the "
            "pyramid in %lld groups is not supported",
            (long long)config->class_count, (long long)config->width, config->trainable_stages,
            (long long)config->pyramid, (long long)config->head_groups);
    /* The stages of the backbone, the pyramid and the heads are blocks. */
    *facts = (struct tt_model_facts){.family = &tt_family_retinanet,
                                     .dtype = TT_F32,
                                     .num_hidden_layers = STAGES,
                                     .reads_images = true,
                                     .initializer_range = 0.01,
                                     .bos_token_id = -1};
    (void)snprintf(facts->model_type, sizeof facts->model_type, "retinanet");
    (void)snprintf(facts->architecture, sizeof facts->architecture, "RetinaNet");
    memcpy(facts->own, config, sizeof *config);
    return TT_OK;
}

static tt_status parse(const struct tt_json *json, struct tt_model_facts *facts)
{
    (void)json, (void)facts;
    return tt_fail(TT_ERR_UNSUPPORTED,
                   "a detector has no config.json: its weights are a .pth or safetensors file");
}

/* Kaiming normal, fan out, for relu. */
static double kaiming(int64_t out, int64_t kernel)
{
    return sqrt(2.0 / (double)(out * kernel * kernel));
}

static void build_backbone_conv(struct tt_builder *builder, const struct tt_retinanet_config *config,
                                const char *path, const char *norm, const struct tt_conv_spec *shape,
                                struct tt_conv *conv)
{
    struct tt_conv_spec spec = *shape;
    spec.path = path;
    spec.norm = norm;
    spec.norm_eps = config->norm_eps;
    spec.batch_norm = config->batch_norm;
    spec.init = TT_INIT_NORMAL;
    spec.init_scale = kaiming(spec.out, spec.kernel);
    tt_build_conv(builder, &spec, conv);
}

static void build_bottleneck(struct tt_builder *builder, const struct tt_retinanet_config *config,
                             const char *path, int64_t in, int64_t width, int64_t stride, bool frozen,
                             struct tt_bottleneck *block)
{
    char conv[NAME_BYTES], norm[NAME_BYTES];
    const struct tt_conv_spec shapes[3] = {
        {.in = in, .out = width, .kernel = 1, .stride = 1, .relu = true, .frozen = frozen},
        {.in = width,
         .out = width,
         .kernel = 3,
         .stride = stride,
         .padding = 1,
         .relu = true,
         .frozen = frozen},
        {.in = width, .out = EXPANSION * width, .kernel = 1, .stride = 1, .relu = true, .frozen = frozen},
    };
    const struct tt_conv_spec downsample = {
        .in = in, .out = EXPANSION * width, .kernel = 1, .stride = stride, .frozen = frozen};
    for (int i = 0; i < 3; i++) {
        (void)snprintf(conv, sizeof conv, "%s.conv%d", path, i + 1);
        (void)snprintf(norm, sizeof norm, "%s.bn%d", path, i + 1);
        build_backbone_conv(builder, config, conv, norm, &shapes[i], &block->conv[i]);
    }
    if (stride == 1 && in == EXPANSION * width) return;
    (void)snprintf(conv, sizeof conv, "%s.downsample.0", path);
    (void)snprintf(norm, sizeof norm, "%s.downsample.1", path);
    build_backbone_conv(builder, config, conv, norm, &downsample, &block->downsample);
}

static int64_t stage_channels(const struct tt_retinanet_config *config, int stage)
{
    return EXPANSION * config->width << stage;
}

/* Stage 0 .. 3 is layer1 .. layer4, with level 2 .. 5. From level 3 on features are read by the pyramid. */
static void build_stage(struct tt_builder *builder, const struct tt_retinanet_config *config, int stage)
{
    char path[PATH_BYTES];
    struct tt_resnet_stage *made = tt_build_memory(builder, sizeof *made);
    bool frozen = config->trainable_stages < STAGES - stage;
    int64_t in = stage == 0 ? config->width : stage_channels(config, stage - 1);
    if (made == NULL) return;
    if (stage == 0) {
        const struct tt_conv_spec stem = {.in = 3,
                                          .out = config->width,
                                          .kernel = 7,
                                          .stride = 2,
                                          .padding = 3,
                                          .relu = true,
                                          .frozen = config->trainable_stages < STAGES + 1};
        build_backbone_conv(builder, config, "backbone.body.conv1", "backbone.body.bn1", &stem, &made->stem);
    }
    made->block_count = (int)config->blocks[stage];
    for (int i = 0; i < made->block_count; i++) {
        (void)snprintf(path, sizeof path, "backbone.body.layer%d.%d", stage + 1, i);
        build_bottleneck(builder, config, path, i == 0 ? in : stage_channels(config, stage),
                         config->width << stage, i == 0 && stage > 0 ? 2 : 1, frozen, &made->blocks[i]);
    }
    for (int s = stage < 2 ? stage - 1 : 1; stage > 0 && s < stage; s++)
        made->in.items[made->in.count++] = (struct tt_feature){s + 2, stage_channels(config, s)};
    made->passed = stage > 1 ? made->in.count : 0;
    for (int i = 0; i < made->passed; i++) made->out.items[made->out.count++] = made->in.items[i];
    made->out.items[made->out.count++] = (struct tt_feature){stage + 2, stage_channels(config, stage)};
    (void)snprintf(path, sizeof path, "backbone.body.layer%d", stage + 1);
    tt_build_block(builder, &tt_resnet_stage_ops, path, made);
}

/* torch's default for these: kaiming_uniform(a = 1), which is uniform within sqrt(3 / fan in). */
static void build_pyramid_conv(struct tt_builder *builder, const char *path, int64_t in, int64_t out,
                               int64_t kernel, int64_t stride, struct tt_conv *conv)
{
    const struct tt_conv_spec spec = {.path = path,
                                      .in = in,
                                      .out = out,
                                      .kernel = kernel,
                                      .stride = stride,
                                      .padding = kernel / 2,
                                      .bias = true,
                                      .init = TT_INIT_UNIFORM,
                                      .init_scale = sqrt(3.0 / (double)(in * kernel * kernel))};
    tt_build_conv(builder, &spec, conv);
}

static void build_pyramid(struct tt_builder *builder, const struct tt_retinanet_config *config)
{
    char path[PATH_BYTES];
    struct tt_pyramid *made = tt_build_memory(builder, sizeof *made);
    int64_t out = config->pyramid;
    if (made == NULL) return;
    for (int i = 0; i < TT_PYRAMID_INPUTS; i++) {
        made->in.items[made->in.count++] = (struct tt_feature){i + 3, stage_channels(config, i + 1)};
        (void)snprintf(path, sizeof path, "backbone.fpn.inner_blocks.%d.0", i);
        build_pyramid_conv(builder, path, stage_channels(config, i + 1), out, 1, 1, &made->inner[i]);
    }
    for (int i = 0; i < TT_PYRAMID_INPUTS; i++) {
        (void)snprintf(path, sizeof path, "backbone.fpn.layer_blocks.%d.0", i);
        build_pyramid_conv(builder, path, out, out, 3, 1, &made->layer[i]);
    }
    made->p6_of_c5 = config->head_groups > 0;
    build_pyramid_conv(builder, "backbone.fpn.extra_blocks.p6",
                       made->p6_of_c5 ? stage_channels(config, STAGES - 1) : out, out, 3, 2, &made->p6);
    build_pyramid_conv(builder, "backbone.fpn.extra_blocks.p7", out, out, 3, 2, &made->p7);
    for (int i = 0; i < TT_PYRAMID_LEVELS; i++)
        made->out.items[made->out.count++] = (struct tt_feature){i + 3, out};
    tt_build_block(builder, &tt_pyramid_ops, "backbone.fpn", made);
}

/* `bias`: of the last convolution of a model without weights. */
static void build_tower(struct tt_builder *builder, const struct tt_retinanet_config *config,
                        const char *head, const char *last, int64_t out, double bias, struct tt_tower *tower)
{
    char path[PATH_BYTES], norm[PATH_BYTES];
    struct tt_conv_spec spec = {.path = path,
                                .norm = config->head_groups > 0 ? norm : NULL,
                                .norm_eps = 1e-5,
                                .groups = config->head_groups,
                                .in = config->pyramid,
                                .out = config->pyramid,
                                .kernel = 3,
                                .stride = 1,
                                .padding = 1,
                                .bias = config->head_groups == 0,
                                .relu = true,
                                .init = TT_INIT_NORMAL,
                                .init_scale = 0.01};
    for (int i = 0; i < TT_TOWER_CONVS; i++) {
        (void)snprintf(path, sizeof path, "head.%s.conv.%d.0", head, i);
        (void)snprintf(norm, sizeof norm, "head.%s.conv.%d.1", head, i);
        tt_build_conv(builder, &spec, &tower->convs[i]);
    }
    (void)snprintf(path, sizeof path, "head.%s.%s", head, last);
    spec.norm = NULL;
    spec.groups = 0;
    spec.bias = true;
    spec.out = out;
    spec.relu = false;
    spec.bias_init = bias;
    tt_build_conv(builder, &spec, &tower->last);
}

static void build_heads(struct tt_builder *builder, const struct tt_retinanet_config *config)
{
    struct tt_detector_head *made = tt_build_memory(builder, sizeof *made);
    if (made == NULL) return;
    *made = (struct tt_detector_head){.class_count = config->class_count,
                                      .alpha = 0.25f,
                                      .gamma = 2.0f,
                                      .low = 0.4f,
                                      .high = 0.5f,
                                      .box_loss = config->head_groups > 0 ? TT_BOX_GIOU : TT_BOX_L1};
    for (int i = 0; i < TT_PYRAMID_LEVELS; i++)
        made->in.items[made->in.count++] = (struct tt_feature){i + 3, config->pyramid};
    /* A prior probability of 0.01 for every class. */
    build_tower(builder, config, "classification_head", "cls_logits", TT_ANCHORS_EACH * config->class_count,
                -log(0.99 / 0.01), &made->classes);
    build_tower(builder, config, "regression_head", "bbox_reg", TT_ANCHORS_EACH * 4, 0.0, &made->boxes);
    tt_build_block(builder, &tt_detector_head_ops, "head", made);
}

static void build(const struct tt_model_facts *facts, struct tt_builder *builder)
{
    const struct tt_retinanet_config *config = TT_FAMILY_OWN_CONST(facts, struct tt_retinanet_config);
    for (int stage = 0; stage < STAGES; stage++) build_stage(builder, config, stage);
    build_pyramid(builder, config);
    build_heads(builder, config);
}

const struct tt_model_family tt_family_retinanet = {
    .model_type = "retinanet",
    .architecture = "RetinaNet",
    .parse = parse,
    .build = build,
};
