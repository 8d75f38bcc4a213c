/* The weights of a RetinaNet in a file of torch.save or safetensors, with torchvision's names of today or those before
 * version 0.13; or of a ResNet alone, as torchvision publishes it for ImageNet. The architecture follows from the
 * shapes. */
#ifndef TT_MODEL_DETECTOR_WEIGHTS_H
#define TT_MODEL_DETECTOR_WEIGHTS_H

#include "io/model_folder.h"
#include "model/retinanet.h"

struct tt_detector_weights {
    struct tt_model_folder *folder; /* the tensors under torchvision's names of today; owned */
    struct tt_retinanet_config shape;
    bool backbone_alone;   /* a ResNet: class_count, pyramid and head_groups of `shape` are the default's */
    bool replaces_classes; /* the last convolution of the classifier is left out */
};

/* `norm_eps`: of the frozen norms; below 0: 0 for torchvision's COCO_V1 weights, known by their sum, else 1e-5.
 * `class_count`: columns of the classifier that are wanted, by `fit`; one that does not fit is left out and begins
 * anew; 0: as many as the file has, which a ResNet has not. TT_ERR_DATA for other files. A zeroed struct
 * is empty. */
enum tt_classifier_fit {
    TT_CLASSIFIER_EXACT,
    TT_CLASSIFIER_OR_MORE,
    TT_CLASSIFIER_ANEW, /* its classes are others: it never fits */
};
TT_MUST_USE tt_status tt_detector_weights_open(const char *path, double norm_eps, int64_t class_count,
                                               enum tt_classifier_fit fit,
                                               struct tt_detector_weights *weights);
void tt_detector_weights_close(struct tt_detector_weights *weights);
/* TT_ERR_DATA unless the file has every tensor of the model that it should have, in its shape. */
TT_MUST_USE tt_status tt_detector_weights_check(const struct tt_detector_weights *weights,
                                                const struct tt_model *model);

#endif
