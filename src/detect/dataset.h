/* Images with boxes: a local folder of images beside annotations of Open Images (CSV) or COCO (JSON), or tables that
 * have both (Parquet, Arrow).
 *
 * A data set lists its images by id, with their sizes, and their boxes; pixels are read by the loader. Ids of Open
 * Images are texts: images are numbered from 1 in the order of their names. Omitted images and boxes are counted. */
#ifndef TT_DETECT_DATASET_H
#define TT_DETECT_DATASET_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "vision/image_file.h"

enum tt_detect_split { TT_DETECT_TRAIN, TT_DETECT_VALIDATION };
/* Labels of COCO: the raw category ids, which published weights have, or 1 .. K in the order of the ids. */
enum tt_detect_labels { TT_DETECT_LABELS_SORTED, TT_DETECT_LABELS_RAW };

/* How tables write boxes: left, top, width, height (COCO); left, top, right, bottom; centre, width, height. */
enum tt_box_format { TT_BOX_XYWH, TT_BOX_XYXY, TT_BOX_CXCYWH };

struct tt_detect_class {
    const char *name; /* "Tortoise"; NULL: no class has this label */
    const char *key;  /* Open Images: "/m/011k07"; COCO: the id as text */
    int64_t id;       /* of the annotations: COCO's category_id; Open Images: the label */
};

struct tt_detect_box {
    int64_t id;        /* of the annotation, from 1 */
    double x, y, w, h; /* in pixels of the original image, as annotated */
    double area;       /* COCO's field; else w * h */
    int32_t label;     /* 1 .. class_count - 1 */
    bool crowd;        /* COCO's iscrowd, Open Images' IsGroupOf: not trained on, ignored in evaluation */
};

struct tt_detect_record {
    int64_t id;
    const char *name; /* Open Images' ImageID; COCO: file_name */
    struct tt_image_file file;
    int64_t first_box, box_count;
};

/* Why rows and images were left out. */
struct tt_detect_report {
    int64_t images, boxes;     /* of the data set */
    int64_t images_absent;     /* annotated, without a file: first_absent is the first of them */
    int64_t rows_absent;       /* boxes of these */
    int64_t images_empty;      /* training: without a box of more than a pixel, left out */
    int64_t images_background; /* training: without a box, kept (keep_empty) */
    int64_t images_corrupt;    /* first_corrupt says why the first one cannot be read */
    int64_t images_over;       /* above max_images */
    int64_t boxes_empty;       /* without width or height */
    int64_t boxes_outside;     /* nothing of them is within the image */
    int64_t boxes_unknown;     /* of a class that the list of classes lacks: first_unknown */
    char first_absent[160], first_corrupt[400], first_unknown[160];
};

struct tt_pixel_cache;
struct tt_detect_dataset;

struct tt_detect_dataset_config {
    const char *image_dir;
    /* also searched for annotations; NULL: none */
    const char *cache_dir;
    /* a file; NULL: found by the usual names in cache_dir, the parent of image_dir, and image_dir */
    const char *annotations;
    /* Open Images' class descriptions; NULL: found like the annotations, or none */
    const char *classes;
    /* Parquet and Arrow files with images and boxes, instead of annotations; image_dir may then be NULL, else it has
     * the images that they only name. Borrowed until the data set is loaded. */
    const char *const *tables;
    size_t table_count;
    bool tables_of_split; /* they are those of the split alone: validation_share does not apply */
    enum tt_box_format box_format;
    /* Open Images' image-level labels that people verified, for its mean average precision; NULL: found like the
     * annotations, or none */
    const char *image_labels;
    const char *class_hierarchy; /* Open Images' JSON (detect/hierarchy.h); NULL: none */
    enum tt_detect_split split;
    enum tt_detect_labels labels; /* not of tables */
    /* of the images, by a sum of their names, where the annotations have no splits; 0: all images for either */
    double validation_share;
    int64_t max_images; /* the first by id; 0: all */
    /* above 0: all images of the folder, without annotations; so many classes with their numbers as names */
    int64_t unannotated_classes;
    /* leave out the images that train nothing: without a box of more than a pixel */
    bool train;
    /* of these keep the images without any annotated box: all of them is background. Open Images' files name none. */
    bool keep_empty;
    /* decode every image once, and leave out those that fail; else a failure is an error */
    bool skip_corrupt;
    struct tt_pixel_cache *cache;               /* keeps the decoded images; borrowed; NULL: none */
    const struct tt_detect_dataset *classes_of; /* its classes instead of the file's: of the training data */
    int64_t max_pixels;                         /* of an image; 0: TT_IMAGE_PIXELS_MAX */
    int threads;
};

/* The list of classes that a training stored beside its weights, by which labels are those of the training; an empty
 * path where there is none. `weights_path` may be NULL. */
struct tt_path;
TT_MUST_USE tt_status tt_detect_classes_beside(const char *weights_path, struct tt_path *path);

TT_MUST_USE tt_status tt_detect_dataset_load(const struct tt_detect_dataset_config *config,
                                             struct tt_detect_dataset **out);
void tt_detect_dataset_destroy(struct tt_detect_dataset *dataset); /* takes NULL */

int64_t tt_detect_dataset_count(const struct tt_detect_dataset *dataset);
const struct tt_detect_record *tt_detect_dataset_record(const struct tt_detect_dataset *dataset,
                                                        int64_t index);
const struct tt_detect_box *tt_detect_dataset_boxes(const struct tt_detect_dataset *dataset, int64_t index);
/* The columns of the classifier, with column 0, which has no class: the largest label + 1. */
int64_t tt_detect_dataset_class_count(const struct tt_detect_dataset *dataset);
const struct tt_detect_class *tt_detect_dataset_class(const struct tt_detect_dataset *dataset, int64_t label);
/* Classes that people verified in images, in *count; NULL: no file has any. */
struct tt_map_label;
const struct tt_map_label *tt_detect_dataset_verified(const struct tt_detect_dataset *dataset,
                                                      int64_t *count);
/* NULL: none. */
const struct tt_hierarchy *tt_detect_dataset_hierarchy(const struct tt_detect_dataset *dataset);
const struct tt_detect_report *tt_detect_dataset_report(const struct tt_detect_dataset *dataset);

#endif
