/* What a file of annotations says of the images that are there, before it becomes a data set. Internal to
 * src/detect. */
#ifndef TT_DETECT_ANNOTATIONS_H
#define TT_DETECT_ANNOTATIONS_H

#include "base/arena.h"
#include "base/name_index.h"
#include "detect/dataset.h"

#define TT_NOTED_NO_ID INT64_MIN

struct tt_noted_image {
    const char *name, *path; /* path NULL: the image has no file */
    int64_t id;              /* TT_NOTED_NO_ID: the annotations have none */
    int32_t height, width;   /* 0: unknown */
    bool noted;              /* the annotations name it */
};

struct tt_noted_box {
    size_t image;
    bool fractions; /* x, y, w, h are parts of the image */
    struct tt_detect_box box;
};

/* A zeroed struct is empty; all texts are in the arena. */
struct tt_annotations {
    struct tt_arena arena;
    struct tt_noted_image *images;
    size_t image_count, image_capacity;
    struct tt_name_index by_name;
    struct tt_noted_box *boxes;
    size_t box_count, box_capacity;
    struct tt_detect_class *classes; /* [class_count]; 0 has no name */
    size_t class_count, class_capacity;
    struct tt_name_index by_key; /* labels by the classes' keys, or by their ids as text */
    bool classes_fixed;          /* by a list: boxes of other classes are left out */
    struct tt_detect_report report;
};

void tt_annotations_deinit(struct tt_annotations *notes);
/* Adds an image unless one of this name is there; *image is its index. `path` may be NULL. */
TT_MUST_USE tt_status tt_annotations_add_image(struct tt_annotations *notes, const char *name,
                                               const char *path, size_t *image);
TT_MUST_USE tt_status tt_annotations_add_box(struct tt_annotations *notes, const struct tt_noted_box *box);
/* The label of a key, which is added unless classes are fixed; -1: left out, and counted. */
TT_MUST_USE tt_status tt_annotations_label(struct tt_annotations *notes, const char *key, int32_t *label);
/* Sets class `label`. */
TT_MUST_USE tt_status tt_annotations_set_class(struct tt_annotations *notes, int64_t label, const char *key,
                                               const char *name, int64_t id);

/* Adds the images of a folder by their names without ending. A missing folder is empty. */
TT_MUST_USE tt_status tt_annotations_list_folder(struct tt_annotations *notes, const char *folder);

/* Open Images: the rows of images that are there (storage.googleapis.com/openimages/web/download_v7.html). `share` and
 * `keep_share`: without splits in the files the images whose name's sum falls into the first `share` are those of the
 * validation; keep_share says which of the two parts is read. share 0: all. */
TT_MUST_USE tt_status tt_open_images_read(struct tt_annotations *notes, const char *path, double share,
                                          bool keep_share);
/* Class descriptions: "/m/011k07,Tortoise", with a header or without; labels are 1, 2 ... in the order of the file. */
TT_MUST_USE tt_status tt_open_images_read_classes(struct tt_annotations *notes, const char *path);
/* COCO's instances. Images are looked for in `image_dir` and its folders of splits. Labels: enum tt_detect_labels. */
TT_MUST_USE tt_status tt_coco_read(struct tt_annotations *notes, const char *path, const char *image_dir,
                                   const char *split, enum tt_detect_labels labels, double share,
                                   bool keep_share);
/* Whether the sum of a name falls into the first `share`. */
bool tt_annotations_in_share(const char *name, double share);

#endif
