/* A detector on the CPU: a RetinaNet from a file of weights, whose shapes give its architecture, and images to
 * detections. */
#ifndef TT_INFER_DETECTOR_H
#define TT_INFER_DETECTOR_H

#include "detect/detections.h"

struct tt_detector_config {
    /* .pth or safetensors, with torchvision's names of today or those before version 0.13 */
    const char *weights_path;
    /* of the frozen norms; below 0: 0 for torchvision's COCO_V1 weights, known by their sum, else 1e-5 */
    double norm_eps;
    tt_dtype compute_dtype; /* TT_F32 or TT_BF16 */
    int threads;            /* 0: all processors */
};

struct tt_detector;
/* Tensors that are missing or of another shape are TT_ERR_DATA. */
TT_MUST_USE tt_status tt_detector_create(const struct tt_detector_config *config, struct tt_detector **out);
void tt_detector_destroy(struct tt_detector *detector);              /* takes NULL */
int64_t tt_detector_class_count(const struct tt_detector *detector); /* columns of the classifier */
/* The detections of every image of a batch, whose pixels have the compute type, in lists[image_count]. */
TT_MUST_USE tt_status tt_detector_run(struct tt_detector *detector, const struct tt_detect_batch *batch,
                                      const struct tt_detections_config *config,
                                      struct tt_detection_list *lists);
/* The detections of a pass with want_logits, in lists[image_count], host memory. */
struct tt_pass_results;
TT_MUST_USE tt_status tt_detector_decode(const struct tt_detect_batch *batch,
                                         const struct tt_pass_results *results,
                                         const struct tt_detections_config *config,
                                         struct tt_detection_list *lists);

#endif
