/* Settings of object detection; names of users' training scripts and of torchvision's references. */
#include <stddef.h>

#include "job/settings.h"

#define FIELD(member) .offset = offsetof(struct tt_job_spec, member)

/* One row reads as one paragraph. */
/* clang-format off */
const struct tt_setting tt_task_detection_settings[] = {
    {.name = "weights_path", .type = TT_SETTING_STRING, FIELD(detect.weights_path),
     .path = TT_PATH_READ, .changes = TT_CHANGES_OTHER, .of = "detection",
     .help = "Weights to begin with: torchvision's retinanet_resnet50_fpn or _v2, or a ResNet-50 alone; a .pth file, "
             "which is read without executing anything in it, or safetensors. Another number of classes begins with a "
             "new classifier. Not given: random weights."},
    {.name = "architecture", .type = TT_SETTING_CHOICE, FIELD(detect.architecture), .default_text = "auto",
     .choices = "auto retinanet_resnet50_fpn retinanet_resnet50_fpn_v2", .changes = TT_CHANGES_OTHER, .of = "detection",
     .help = "Name of torchvision's network. auto: that of weights_path, and the first without the weights of a "
             "detector. v2: group norms in the heads, P6 from C5, GIoU as the loss of boxes, and norm: batch by "
             "default."},
    {.name = "local_image_dir", .type = TT_SETTING_STRING, FIELD(detect.local_image_dir), .local = true,
     .path = TT_PATH_READ, .changes = TT_CHANGES_OTHER, .of = "detection",
     .help = "Folder of the images, JPEG or PNG; also in its folders data, train and validation. Parquet and Arrow "
             "files that contain images are given as dataset_name instead."},
    {.name = "annotations", .type = TT_SETTING_STRING, FIELD(detect.annotations), .local = true,
     .path = TT_PATH_READ, .changes = TT_CHANGES_OTHER, .of = "detection",
     .help = "Boxes to train on: Open Images (.csv) or COCO (.json). Otherwise found by their usual names in "
             "cache_dir, in the folder above the images, and in theirs."},
    {.name = "eval_annotations", .type = TT_SETTING_STRING, FIELD(detect.eval_annotations), .local = true,
     .path = TT_PATH_READ, .changes = TT_CHANGES_OTHER, .of = "detection",
     .help = "The same for evaluation; not given: found, or a share of annotations (validation_share)."},
    {.name = "class_descriptions", .type = TT_SETTING_STRING, FIELD(detect.class_descriptions), .local = true,
     .path = TT_PATH_READ, .changes = TT_CHANGES_OTHER, .of = "detection",
     .help = "Open Images' classes (class-descriptions-boxable.csv); otherwise found like the annotations, or beside "
             "weights_path."},
    {.name = "image_labels", .type = TT_SETTING_STRING, FIELD(detect.image_labels), .local = true,
     .path = TT_PATH_READ, .changes = TT_CHANGES_OTHER, .of = "detection",
     .help = "Open Images' image-level labels that people verified "
             "(validation-annotations-human-imagelabels-boxable.csv), for eval_open_images_map_50; otherwise found "
             "like the annotations, or none: every class counts in every image."},
    {.name = "class_hierarchy", .type = TT_SETTING_STRING, FIELD(detect.class_hierarchy), .local = true,
     .path = TT_PATH_READ, .changes = TT_CHANGES_OTHER, .of = "detection",
     .help = "Open Images' hierarchy of classes (bbox_labels_600_hierarchy.json): in eval_open_images_map_50 boxes "
             "count for the classes above theirs too."},
    {.name = "category_labels", .type = TT_SETTING_CHOICE, FIELD(detect.category_labels), .default_text = "raw",
     .choices = "sorted raw", .changes = TT_CHANGES_OTHER, .of = "detection",
     .help = "Labels of COCO's categories: 1 to K in the order of the ids, or the raw ids, as published weights "
             "have them. Not of Parquet and Arrow files, whose labels are 1 to K."},
    {.name = "bbox_format", .type = TT_SETTING_CHOICE, FIELD(detect.bbox_format), .default_text = "xywh",
     .choices = "xywh xyxy cxcywh",
     .changes = TT_CHANGES_OTHER, .of = "detection", .needs = "dataset_name eval_dataset",
     .help = "How boxes are written in Parquet and Arrow files (dataset_name), in pixels: left, top, width, height, as "
             "COCO; left, top, right, bottom; or centre, width, height."},
    {.name = "validation_share", .type = TT_SETTING_DOUBLE, FIELD(detect.validation_share), .default_text = "0.1",
     .minimum = 0, .maximum = 0.9, .changes = TT_CHANGES_OTHER, .of = "detection", .needs = "!eval_annotations",
     .help = "Share of the images that evaluate where the annotations have no splits, chosen by their names; 0: all "
             "images do both."},
    {.name = "cache_dir", .type = TT_SETTING_STRING, FIELD(detect.cache_dir), .local = true,
     .path = TT_PATH_WRITE, .must_write = "cache_size", .changes = TT_CHANGES_OTHER, .of = "detection",
     .help = "Folder for sizes and decoded pixels of images, also searched for annotations."},
    {.name = "cache_size", .type = TT_SETTING_BYTES, FIELD(detect.cache_size), .default_text = "2GiB", .local = true,
     .changes = TT_CHANGES_OTHER, .of = "detection", .needs = "cache_dir",
     .help = "Most bytes of decoded pixels in cache_dir; 0: none."},
    {.name = "max_train", .type = TT_SETTING_INT, FIELD(detect.max_train), .default_text = "0", .maximum = 1e12,
     .changes = TT_CHANGES_OTHER, .of = "detection",
     .help = "Only so many images train, the first by id; 0: all."},
    {.name = "max_val", .type = TT_SETTING_INT, FIELD(detect.max_val), .default_text = "0", .maximum = 1e12,
     .changes = TT_CHANGES_OTHER, .of = "detection",
     .help = "The same for evaluation."},
    {.name = "image_size", .type = TT_SETTING_INT, FIELD(detect.image_size), .default_text = "800", .minimum = 32,
     .maximum = 8192, .changes = TT_CHANGES_RESULT, .of = "detection",
     .help = "Length of the shorter side of a resized image."},
    {.name = "max_image_size", .type = TT_SETTING_INT, FIELD(detect.max_image_size), .default_text = "1333",
     .minimum = 32, .maximum = 16384, .changes = TT_CHANGES_RESULT, .of = "detection",
     .help = "Most length of its longer side."},
    {.name = "hflip", .type = TT_SETTING_DOUBLE, FIELD(detect.hflip), .default_text = "0.5", .maximum = 1,
     .changes = TT_CHANGES_RESULT, .of = "detection",
     .help = "Probability that an image is mirrored in training."},
    {.name = "multiscale", .type = TT_SETTING_BOOL, FIELD(detect.multiscale), .default_text = "false",
     .changes = TT_CHANGES_RESULT, .of = "detection",
     .help = "Draw the shorter side in training: 480/800 to all of image_size, in eleven steps."},
    {.name = "group_by_aspect", .type = TT_SETTING_BOOL, FIELD(detect.group_by_aspect), .default_text = "true",
     .changes = TT_CHANGES_RESULT, .of = "detection",
     .help = "Images of like shape share a micro batch where that is possible, because all of it is as large as its "
             "largest image."},
    {.name = "num_workers", .type = TT_SETTING_INT, FIELD(detect.num_workers),
     .default_text = "1", .minimum = 0, .maximum = 64, .local = true, .changes = TT_CHANGES_OTHER, .of = "detection",
     .help = "Threads of a rank that decode and resize images; their number changes no result. 0 is 1."},
    {.name = "skip_corrupt_images", .type = TT_SETTING_BOOL, FIELD(detect.skip_corrupt_images),
     .default_text = "false", .changes = TT_CHANGES_OTHER, .of = "detection",
     .help = "Decode every image first and leave out those that are damaged, instead of stopping."},
    {.name = "keep_empty_images", .type = TT_SETTING_BOOL, FIELD(detect.keep_empty_images), .default_text = "false",
     .changes = TT_CHANGES_OTHER, .of = "detection",
     .help = "Train on images without any annotated box too, of COCO, Parquet and Arrow files: every anchor is "
             "background. Not given, they are left out, as torchvision's reference does."},
    {.name = "max_image_pixels", .type = TT_SETTING_BYTES, FIELD(detect.max_image_pixels), .default_text = "178956970",
     .changes = TT_CHANGES_OTHER, .of = "detection",
     .help = "Most pixels of an image; larger ones are refused before they are decoded."},
    {.name = "trainable_layers", .aliases = "trainable_backbone_layers", .type = TT_SETTING_INT,
     FIELD(detect.trainable_layers), .default_text = "3", .minimum = 0, .maximum = 5,
     .changes = TT_CHANGES_RESULT, .of = "detection",
     .help = "Stages of the backbone that train, from its end on. Default without weights_path: 5."},
    {.name = "norm", .type = TT_SETTING_CHOICE, FIELD(detect.norm), .default_text = "auto",
     .choices = "auto frozen batch", .changes = TT_CHANGES_OTHER, .of = "detection",
     .help = "Norms of the backbone. frozen: their statistics and factors stay; batch: batch norm over the images of "
             "all ranks (torch's SyncBatchNorm), in stages that do not train too, for training from scratch; auto: "
             "batch for retinanet_resnet50_fpn_v2, else frozen. batch needs sharding_strategy NO_SHARD."},
    {.name = "frozen_bn_eps", .type = TT_SETTING_DOUBLE, FIELD(detect.frozen_bn_eps), .default_text = "-1",
     .minimum = -1, .maximum = 1, .changes = TT_CHANGES_OTHER, .of = "detection", .needs = "!norm=batch",
     .help = "Constant of the frozen norms; -1: 0 for torchvision's COCO_V1 weights, which are known by their sum, and "
             "1e-5 for others, as torchvision itself does."},
    {.name = "backbone_width", .type = TT_SETTING_INT, FIELD(detect.backbone_width), .default_text = "64",
     .minimum = 1, .maximum = 1024, .changes = TT_CHANGES_OTHER, .of = "detection", .needs = "!weights_path",
     .help = "Channels of the first convolution of a network without weights."},
    {.name = "backbone_blocks", .type = TT_SETTING_INT, FIELD(detect.backbone_blocks), .default_text = "0",
     .maximum = 6, .changes = TT_CHANGES_OTHER, .of = "detection", .needs = "!weights_path",
     .help = "Blocks of each of its stages; 0: 3, 4, 6 and 3, as ResNet-50."},
    {.name = "pyramid_width", .type = TT_SETTING_INT, FIELD(detect.pyramid_width), .default_text = "256",
     .minimum = 1, .maximum = 4096, .changes = TT_CHANGES_OTHER, .of = "detection", .needs = "!weights_path",
     .help = "Channels of its pyramid and heads."},
    {.name = "score_threshold", .type = TT_SETTING_DOUBLE, FIELD(detect.score_threshold), .default_text = "0.05",
     .maximum = 1, .changes = TT_CHANGES_OTHER, .of = "detection",
     .help = "Detections of an evaluation have a larger score."},
    {.name = "eval_pictures", .type = TT_SETTING_INT, FIELD(detect.eval_pictures), .default_text = "4", .maximum = 64,
     .changes = TT_CHANGES_OTHER, .of = "detection", .needs = "!eval_strategy=no",
     .help = "Images of the evaluation data, the first by id, that each evaluation of a training shows with annotated "
             "and found boxes: in TensorBoard, in output_dir/pictures, on the dashboard; 0: none."},
    {.name = "picture_score", .type = TT_SETTING_DOUBLE, FIELD(detect.picture_score), .default_text = "0.5",
     .maximum = 1, .changes = TT_CHANGES_OTHER, .of = "detection", .needs = "eval_pictures",
     .help = "Least score of a found box in these pictures."},
    {.name = NULL},
};
