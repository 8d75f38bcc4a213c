/* The settings of a detection (job/detect_settings.c), as a struct. */
#ifndef TT_JOB_DETECT_SPEC_H
#define TT_JOB_DETECT_SPEC_H

#include <stddef.h>
#include <stdint.h>

#include "detect/dataset.h"

/* Norms of a detector's trained stages. */
enum tt_norms { TT_NORMS_AUTO, TT_NORMS_FROZEN, TT_NORMS_BATCH };
/* torchvision's detectors: that of the weights, else the first. */
enum tt_architecture { TT_ARCHITECTURE_AUTO, TT_ARCHITECTURE_RETINANET, TT_ARCHITECTURE_RETINANET_V2 };

/* Detection: images with boxes, the network, and what becomes of an image before it enters the network. */
struct tt_detect_spec {
    enum tt_architecture architecture;
    const char *weights_path; /* NULL: from random weights */
    const char *local_image_dir, *cache_dir, *annotations, *eval_annotations, *class_descriptions;
    const char *image_labels, *class_hierarchy;
    enum tt_detect_labels category_labels;
    enum tt_box_format bbox_format; /* of tables */
    double validation_share;
    int64_t max_train, max_val; /* images; 0: all */
    int64_t image_size, max_image_size;
    double hflip;
    bool multiscale, group_by_aspect;
    int64_t num_workers; /* threads of a rank */
    size_t cache_size, max_image_pixels;
    bool skip_corrupt_images, keep_empty_images;
    int64_t trainable_layers;
    enum tt_norms norm;
    double frozen_bn_eps;
    /* of a network without weights; blocks 0: ResNet-50's */
    int64_t backbone_width, pyramid_width, backbone_blocks;
    double score_threshold;
    int64_t eval_pictures; /* of an evaluation; 0: none */
    double picture_score;  /* of the found boxes in them, at least */
};

#endif
