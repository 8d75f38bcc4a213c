/* The annotations of existing images, as a file has them, before they become a data set. Internal to
 * src/detect. */
#ifndef TT_DETECT_ANNOTATIONS_H
#define TT_DETECT_ANNOTATIONS_H

#include "base/arena.h"
#include "base/file.h"
#include "base/name_index.h"
#include "detect/dataset.h"

#define TT_NOTED_NO_ID INT64_MIN

struct tt_noted_image {
    const char *name, *path; /* path NULL: the image has no file */
    int64_t id;              /* TT_NOTED_NO_ID: the annotations have none */
    int32_t height, width;   /* 0: unknown */
    bool noted;              /* the annotations name it */
    bool lost_box;           /* a box of it was left out */
    const uint8_t *data; /* of an image within a table: its file's bytes, in one of the maps; NULL: at path */
    bool in_table;
    int64_t data_bytes, data_time; /* the time is that of the table, in nanoseconds */
    uint64_t data_at;              /* while tables are read: its place in the unpacked rows */
};

struct tt_noted_box {
    size_t image;
    bool fractions; /* x, y, w, h are parts of the image */
    struct tt_detect_box box;
};

/* A class that people checked in an image. */
struct tt_noted_label {
    size_t image;
    int32_t label;
    bool there;
};

/* A zeroed struct is empty; all texts are in the arena. */
struct tt_annotations {
    struct tt_arena arena;
    struct tt_noted_image *images;
    size_t image_count, image_capacity;
    struct tt_name_index by_name;
    struct tt_noted_box *boxes;
    size_t box_count, box_capacity;
    struct tt_noted_label *labels;
    size_t label_count, label_capacity;
    struct tt_detect_class *classes; /* [class_count]; 0 has no name */
    size_t class_count, class_capacity;
    struct tt_name_index by_key; /* labels by the classes' keys, or by their ids as text */
    bool classes_fixed;          /* by a list: boxes of other classes are left out */
    struct tt_file_map *maps;    /* the maps that hold the data of images */
    size_t map_count, map_capacity;
    struct tt_detect_report report;
};

void tt_annotations_deinit(struct tt_annotations *notes);
/* Adds an image unless one of this name is there; *image is its index. `path` may be NULL. */
TT_MUST_USE tt_status tt_annotations_add_image(struct tt_annotations *notes, const char *name,
                                               const char *path, size_t *image);
/* The same without looking for the name, which others may have. */
TT_MUST_USE tt_status tt_annotations_append_image(struct tt_annotations *notes, const char *name,
                                                  const char *path, size_t *image);
/* The first of DIR/NAME, DIR/SPLIT/NAME, DIR/SPLIT/data/NAME and DIR/data/NAME that is there. A name may have folders
 * of its own, but does not leave the folder. */
TT_MUST_USE tt_status tt_annotations_find_file(const char *image_dir, const char *split, const char *name,
                                               struct tt_path *path, bool *found);
/* A box of label -1 is left out, and its image remembers that. */
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
/* Image-level labels that people verified: ImageID, LabelName, Confidence (1: there, 0: not there), of the images and
 * classes that are known. */
TT_MUST_USE tt_status tt_open_images_read_labels(struct tt_annotations *notes, const char *path);
/* Class descriptions: "/m/011k07,Tortoise", with a header or without; labels are 1, 2 ... in the order of the file. */
TT_MUST_USE tt_status tt_open_images_read_classes(struct tt_annotations *notes, const char *path);
/* COCO's instances. Images are looked for in `image_dir` and its folders of splits. Labels: enum tt_detect_labels. */
TT_MUST_USE tt_status tt_coco_read(struct tt_annotations *notes, const char *path, const char *image_dir,
                                   const char *split, enum tt_detect_labels labels, double share,
                                   bool keep_share);
struct tt_tables_config {
    const char *const *paths; /* [count]: Parquet and Arrow files */
    size_t count;
    const char *image_dir; /* of images that a table only names; NULL: the table's folder */
    const char *split;     /* its folder's name, where images are looked for */
    enum tt_box_format box_format;
    double share;
    bool keep_share;
    bool images_only; /* objects are not looked at */
};
/* Images and boxes of tables, as Hugging Face's datasets has them: `image` with the bytes of a file or its path,
 * `objects` with `bbox` and `category` (also category_id, categories, label, labels), as lists or a list of structs;
 * `image_id`, and `area` and `iscrowd` of the objects where they are there. Classes: the names in the file's metadata;
 * else the list of `notes`; else the values that are there, in order. */
TT_MUST_USE tt_status tt_tables_read(struct tt_annotations *notes, const struct tt_tables_config *config);
/* Whether the sum of a name falls into the first `share`. */
bool tt_annotations_in_share(const char *name, double share);

#endif
