/* RetinaNet on a residual network with a feature pyramid, as torchvision builds and stores it
 * (models/detection/retinanet.py: retinanet_resnet50_fpn and retinanet_resnet50_fpn_v2). There is no config.json: the
 * architecture follows from the settings and from the shapes of the weights. */
#ifndef TT_MODEL_RETINANET_H
#define TT_MODEL_RETINANET_H

#include "model/model.h"

enum { TT_RETINANET_STAGES = 4, TT_RETINANET_GROUPS = 32 };

struct tt_retinanet_config {
    int64_t class_count;                 /* K: columns of the classifier, the first of which has no class */
    int64_t width;                       /* channels of the stem: 64 */
    int64_t pyramid;                     /* channels of the pyramid and the heads: 256 */
    int64_t blocks[TT_RETINANET_STAGES]; /* bottlenecks of each stage: 3, 4, 6, 3 */
    int trainable_stages;                /* of layer4, layer3, layer2, layer1, stem the first so many: 3 */
    double norm_eps;                     /* 1e-5; 0 for torchvision's COCO_V1 weights */
    bool batch_norm; /* norms are batch norms, of frozen stages too; else all are frozen */
    /* The second version: the convolutions of the heads have norms of so many groups (32) instead of a bias, P6 is made
     * from C5, and boxes train by GIoU. 0: the first version. */
    int64_t head_groups;
};

/* ResNet-50: with the first numbers above. */
struct tt_retinanet_config tt_retinanet_config_default(int64_t class_count);
/* The facts of such a model; TT_ERR_USAGE for a number out of range. */
TT_MUST_USE tt_status tt_retinanet_facts(const struct tt_retinanet_config *config,
                                         struct tt_model_facts *facts);

#endif
