#include "detect/dataset.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "detect/annotations.h"
#include "detect/hierarchy.h"
#include "detect/locate.h"
#include "vision/image_files.h"

struct tt_detect_dataset {
    struct tt_annotations notes; /* owns the texts and the classes */
    struct tt_detect_record *records;
    int64_t count;
    struct tt_detect_box *boxes;
    int64_t class_count;
    bool has_labels;               /* there is a file of them */
    struct tt_map_label *verified; /* [verified_count] */
    int64_t verified_count;
    struct tt_hierarchy hierarchy;
};

/* ---- Reading ---- */

static tt_status copy_classes(struct tt_annotations *notes, const struct tt_detect_dataset *from)
{
    for (int64_t label = 1; label < from->class_count; label++) {
        const struct tt_detect_class *class = &from->notes.classes[label];
        if (class->name == NULL) continue;
        TT_TRY(tt_annotations_set_class(notes, label, class->key, class->name, class->id));
        TT_TRY(tt_name_index_add(&notes->by_key, notes->classes[label].key, (size_t)label));
    }
    notes->classes_fixed = true;
    return TT_OK;
}

static tt_status list_images(struct tt_annotations *notes, const struct tt_detect_dataset_config *config)
{
    const char *const splits[] = {"", "data", tt_detect_split_folder(config->split, 0),
                                  tt_detect_split_folder(config->split, 1)};
    struct tt_path folder, data;
    TT_TRY(tt_annotations_list_folder(notes, config->image_dir));
    for (size_t i = 1; i < sizeof splits / sizeof splits[0]; i++) {
        TT_TRY(tt_path_set(&folder, config->image_dir, splits[i]));
        TT_TRY(tt_annotations_list_folder(notes, folder.text));
        TT_TRY(tt_path_set(&data, folder.text, "data"));
        TT_TRY(tt_annotations_list_folder(notes, data.text));
    }
    if (notes->image_count > 0) return TT_OK;
    tt_fail(TT_ERR_DATA, "'%s' has no images", config->image_dir);
    tt_hint("images are NAME.jpg, NAME.jpeg or NAME.png in it, in its folder of the split, or in data below "
            "these");
    return TT_ERR_DATA;
}

/* Classes that have numbers for names. */
static tt_status number_classes(struct tt_annotations *notes, int64_t count)
{
    for (int64_t label = 1; label < count; label++) {
        char name[24];
        (void)snprintf(name, sizeof name, "%lld", (long long)label);
        TT_TRY(tt_annotations_set_class(notes, label, name, name, label));
    }
    return TT_OK;
}

/* All images. */
static tt_status read_folder(struct tt_annotations *notes, const struct tt_detect_dataset_config *config)
{
    if (!tt_path_is_dir(config->image_dir))
        return tt_fail(TT_ERR_DATA, "the image folder '%s' is not there", config->image_dir);
    TT_TRY(list_images(notes, config));
    for (size_t i = 0; i < notes->image_count; i++) notes->images[i].noted = true;
    return number_classes(notes, config->unannotated_classes);
}

/* A list of classes is that of the weights: data that is only evaluated gets their labels. */
static tt_status read_tables(struct tt_annotations *notes, const struct tt_detect_dataset_config *config)
{
    double share = config->tables_of_split || config->unannotated_classes > 0 ? 0 : config->validation_share;
    const struct tt_tables_config tables = {.paths = config->tables,
                                            .count = config->table_count,
                                            .image_dir = config->image_dir,
                                            .split = tt_detect_split_folder(config->split, 0),
                                            .box_format = config->box_format,
                                            .share = share,
                                            .keep_share = config->split == TT_DETECT_VALIDATION,
                                            .images_only = config->unannotated_classes > 0};
    if (config->unannotated_classes > 0) TT_TRY(number_classes(notes, config->unannotated_classes));
    if (config->classes_of != NULL)
        TT_TRY(copy_classes(notes, config->classes_of));
    else if (config->classes != NULL && !config->train && config->unannotated_classes == 0)
        TT_TRY(tt_open_images_read_classes(notes, config->classes));
    return tt_tables_read(notes, &tables);
}

static tt_status read_annotations(struct tt_detect_dataset *dataset,
                                  const struct tt_detect_dataset_config *config)
{
    struct tt_annotations *notes = &dataset->notes;
    struct tt_detect_files files;
    if (config->table_count > 0 && config->image_labels != NULL)
        return tt_fail(TT_ERR_USAGE, "image_labels are of Open Images' files, and '%s' is a table",
                       config->tables[0]);
    if (config->table_count > 0) return read_tables(notes, config);
    if (config->unannotated_classes > 0) return read_folder(notes, config);
    TT_TRY(tt_detect_locate(config, &files));
    bool validation = config->split == TT_DETECT_VALIDATION;
    double share = files.split ? 0 : config->validation_share;
    if (config->classes_of != NULL) TT_TRY(copy_classes(notes, config->classes_of));
    const char *folder = tt_detect_split_folder(config->split, 0);
    if (files.coco && config->image_labels != NULL)
        return tt_fail(TT_ERR_USAGE, "image_labels are of Open Images, and '%s' is COCO's",
                       files.annotations.text);
    if (files.coco)
        return tt_coco_read(notes, files.annotations.text, config->image_dir, folder, config->labels, share,
                            validation);
    TT_TRY(list_images(notes, config));
    bool list_classes = config->classes_of == NULL && files.classes.text[0] != '\0';
    if (list_classes) TT_TRY(tt_open_images_read_classes(notes, files.classes.text));
    TT_TRY(tt_open_images_read(notes, files.annotations.text, share, validation));
    dataset->has_labels = files.labels.text[0] != '\0';
    return dataset->has_labels ? tt_open_images_read_labels(notes, files.labels.text) : TT_OK;
}

/* ---- From notes to records ---- */

struct making {
    struct tt_detect_dataset *dataset;
    const struct tt_detect_dataset_config *config;
    struct tt_checked_image *images; /* [image_count] of the notes */
    size_t *order;                   /* images in the order of the records */
    size_t order_count;
    int64_t *first, *count; /* boxes of each image, in `sorted` */
    size_t *sorted;
};

/* The files of the images that the annotations name; those that cannot be read are reported, with skip_corrupt. */
static tt_status check_files(struct making *making)
{
    const struct tt_detect_dataset_config *config = making->config;
    struct tt_annotations *notes = &making->dataset->notes;
    struct tt_image_files_report report;
    const struct tt_image_files_config files = {.cache_dir = config->cache_dir,
                                                .skip_corrupt = config->skip_corrupt,
                                                .cache = config->cache,
                                                .max_pixels = config->max_pixels,
                                                .threads = config->threads};
    making->images = tt_calloc(notes->image_count + 1, sizeof *making->images);
    if (making->images == NULL) return TT_ERR_MEMORY;
    for (size_t i = 0; i < notes->image_count; i++) {
        const struct tt_noted_image *noted = &notes->images[i];
        if (!noted->noted) continue;
        making->images[i].file = (struct tt_image_file){.path = noted->path,
                                                        .data = noted->data,
                                                        .bytes = noted->data_bytes,
                                                        .time = noted->data_time,
                                                        .height = noted->height,
                                                        .width = noted->width};
    }
    TT_TRY(tt_image_files_check(&files, making->images, notes->image_count, &report));
    notes->report.images_corrupt += report.corrupt;
    memcpy(notes->report.first_corrupt, report.first_corrupt, sizeof report.first_corrupt);
    return TT_OK;
}

struct ranked {
    const struct tt_noted_image *image;
    size_t index;
};

static int compare_ranked(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;
    if (x->image->id != y->image->id) return x->image->id < y->image->id ? -1 : 1;
    return strcmp(x->image->name, y->image->name);
}

/* Images in order of their ids; those of Open Images, which have none yet, in order of their names. */
static tt_status order_images(struct making *making)
{
    const struct tt_annotations *notes = &making->dataset->notes;
    struct ranked *ranked = tt_calloc(notes->image_count + 1, sizeof *ranked);
    making->order = tt_calloc(notes->image_count + 1, sizeof *making->order);
    bool all = ranked != NULL && making->order != NULL;
    size_t count = 0;
    for (size_t i = 0; all && i < notes->image_count; i++) {
        const struct tt_noted_image *image = &notes->images[i];
        if (image->path == NULL || !image->noted || making->images[i].corrupt) continue;
        ranked[count++] = (struct ranked){image, i};
    }
    if (all && count > 0) qsort(ranked, count, sizeof *ranked, compare_ranked);
    for (size_t i = 0; all && i < count; i++) making->order[i] = ranked[i].index;
    making->order_count = count;
    tt_free(ranked);
    return all ? TT_OK : TT_ERR_MEMORY;
}

/* A counting sort: boxes of an image stay in the order of the file. */
static tt_status group_boxes(struct making *making)
{
    const struct tt_annotations *notes = &making->dataset->notes;
    making->first = tt_calloc(notes->image_count + 1, sizeof *making->first);
    making->count = tt_calloc(notes->image_count + 1, sizeof *making->count);
    making->sorted = tt_calloc(notes->box_count + 1, sizeof *making->sorted);
    if (making->first == NULL || making->count == NULL || making->sorted == NULL) return TT_ERR_MEMORY;
    for (size_t b = 0; b < notes->box_count; b++) making->first[notes->boxes[b].image + 1]++;
    for (size_t i = 1; i <= notes->image_count; i++) making->first[i] += making->first[i - 1];
    for (size_t b = 0; b < notes->box_count; b++) {
        size_t image = notes->boxes[b].image;
        making->sorted[making->first[image] + making->count[image]++] = b;
    }
    return TT_OK;
}

/* The box in pixels. Returns false for one that is left out, and counts it. */
static bool place_box(const struct tt_noted_box *noted, const struct tt_image_file *file,
                      struct tt_detect_report *report, struct tt_detect_box *box)
{
    *box = noted->box;
    if (noted->fractions) {
        box->x *= file->width;
        box->w *= file->width;
        box->y *= file->height;
        box->h *= file->height;
        box->area = box->w * box->h;
    }
    double w = fmin(box->x + box->w, file->width) - fmax(box->x, 0);
    double h = fmin(box->y + box->h, file->height) - fmax(box->y, 0);
    bool empty = !(box->w > 0 && box->h > 0), outside = !(w > 0 && h > 0);
    report->boxes_empty += empty;
    report->boxes_outside += !empty && outside;
    return !empty && !outside;
}

/* Adds the boxes of an image behind those of `record`; *trains: one of them is larger than a pixel and no crowd. */
static int64_t add_boxes(struct making *making, size_t image, struct tt_detect_record *record,
                         int64_t next_id, bool *trains)
{
    struct tt_detect_dataset *dataset = making->dataset;
    int64_t count = 0;
    *trains = false;
    for (int64_t i = 0; i < making->count[image]; i++) {
        struct tt_detect_box *box = &dataset->boxes[record->first_box + count];
        const struct tt_noted_box *noted = &dataset->notes.boxes[making->sorted[making->first[image] + i]];
        if (!place_box(noted, &making->images[image].file, &dataset->notes.report, box)) continue;
        if (noted->fractions) box->id = next_id + count;
        if (!box->crowd && box->w > 1 && box->h > 1) *trains = true;
        count++;
    }
    return count;
}

static tt_status make_records(struct making *making)
{
    struct tt_detect_dataset *dataset = making->dataset;
    struct tt_annotations *notes = &dataset->notes;
    int64_t boxes = 0, most = making->config->max_images;
    dataset->records = tt_calloc(making->order_count + 1, sizeof *dataset->records);
    dataset->boxes = tt_calloc(notes->box_count + 1, sizeof *dataset->boxes);
    if (dataset->records == NULL || dataset->boxes == NULL) return TT_ERR_MEMORY;
    for (size_t i = 0; i < making->order_count; i++) {
        size_t image = making->order[i];
        const struct tt_noted_image *noted = &notes->images[image];
        struct tt_detect_record *record = &dataset->records[dataset->count];
        bool trains;
        if (most > 0 && dataset->count == most) {
            notes->report.images_over = (int64_t)(making->order_count - i);
            break;
        }
        *record = (struct tt_detect_record){.id = noted->id != TT_NOTED_NO_ID ? noted->id : (int64_t)i + 1,
                                            .name = noted->name,
                                            .file = making->images[image].file,
                                            .first_box = boxes};
        record->box_count = add_boxes(making, image, record, boxes + 1, &trains);
        bool background = making->config->keep_empty && making->count[image] == 0 && !noted->lost_box;
        if (making->config->train && !trains && !background) {
            notes->report.images_empty++;
            continue;
        }
        notes->report.images_background += making->config->train && !trains;
        boxes += record->box_count;
        dataset->count++;
    }
    notes->report.images = dataset->count;
    notes->report.boxes = boxes;
    return TT_OK;
}

/* Labels of images that have become records. */
static tt_status make_labels(struct making *making)
{
    struct tt_detect_dataset *dataset = making->dataset;
    const struct tt_annotations *notes = &dataset->notes;
    struct tt_name_index names = {0};
    tt_status status = TT_OK;
    if (!dataset->has_labels) return TT_OK;
    dataset->verified = tt_calloc(notes->label_count + 1, sizeof *dataset->verified);
    if (dataset->verified == NULL) return TT_ERR_MEMORY;
    for (int64_t i = 0; i < dataset->count; i++)
        TT_GO(tt_name_index_add(&names, dataset->records[i].name, (size_t)i));
    for (size_t i = 0; i < notes->label_count; i++) {
        const struct tt_noted_label *noted = &notes->labels[i];
        size_t record;
        if (tt_name_index_find(&names, notes->images[noted->image].name, &record))
            dataset->verified[dataset->verified_count++] =
                (struct tt_map_label){dataset->records[record].id, noted->label, noted->there};
    }
out:
    tt_name_index_deinit(&names);
    return status;
}

static tt_status make(struct tt_detect_dataset *dataset, const struct tt_detect_dataset_config *config)
{
    struct making making = {.dataset = dataset, .config = config};
    tt_status status = TT_OK;
    TT_GO(check_files(&making));
    TT_GO(order_images(&making));
    TT_GO(group_boxes(&making));
    TT_GO(make_records(&making));
    TT_GO(make_labels(&making));
    dataset->class_count = (int64_t)dataset->notes.class_count;
    if (config->class_hierarchy != NULL)
        TT_GO(tt_hierarchy_read(config->class_hierarchy, &dataset->notes.by_key, dataset->class_count,
                                &dataset->hierarchy));
out:
    tt_free(making.images);
    tt_free(making.order);
    tt_free(making.first);
    tt_free(making.count);
    tt_free(making.sorted);
    return status;
}

/* The name of the data set in messages. */
static const char *name_of(const struct tt_detect_dataset_config *config)
{
    return config->table_count > 0 ? config->tables[0] : config->image_dir;
}

static tt_status fail_nothing(const struct tt_detect_dataset *dataset,
                              const struct tt_detect_dataset_config *config)
{
    const struct tt_detect_report *report = &dataset->notes.report;
    tt_fail(TT_ERR_DATA, "no image of '%s' has annotations that can be used", name_of(config));
    if (report->images_corrupt > 0)
        tt_hint("%lld images are corrupt; the first: %s", (long long)report->images_corrupt,
                report->first_corrupt);
    else if (report->images_absent > 0)
        tt_hint("the annotations are of %lld images that are not there, the first '%s'",
                (long long)report->images_absent, report->first_absent);
    else if (report->boxes_unknown > 0)
        tt_hint("all boxes are of classes that the list of classes lacks, the first '%s'",
                report->first_unknown);
    else if (report->boxes_outside > 0)
        tt_hint("%lld boxes are outside their image: bbox_format, or annotations of other images",
                (long long)report->boxes_outside);
    else if (report->boxes_empty > 0)
        tt_hint("%lld boxes have no width or height: bbox_format may be another",
                (long long)report->boxes_empty);
    else if (report->images_empty > 0)
        tt_hint("no box of %lld training images is larger than a pixel", (long long)report->images_empty);
    return TT_ERR_DATA;
}

tt_status tt_detect_dataset_load(const struct tt_detect_dataset_config *config,
                                 struct tt_detect_dataset **out)
{
    struct tt_detect_dataset *dataset = tt_calloc(1, sizeof *dataset);
    if (dataset == NULL) return TT_ERR_MEMORY;
    tt_status status = read_annotations(dataset, config);
    if (status == TT_OK) status = make(dataset, config);
    if (status == TT_OK && dataset->count == 0) status = fail_nothing(dataset, config);
    if (status == TT_OK) {
        *out = dataset;
        return TT_OK;
    }
    tt_while("reading the %s images of '%s'", config->split == TT_DETECT_TRAIN ? "training" : "validation",
             name_of(config));
    tt_detect_dataset_destroy(dataset);
    return status;
}

void tt_detect_dataset_destroy(struct tt_detect_dataset *dataset)
{
    if (dataset == NULL) return;
    tt_annotations_deinit(&dataset->notes);
    tt_free(dataset->records);
    tt_free(dataset->boxes);
    tt_free(dataset->verified);
    tt_hierarchy_deinit(&dataset->hierarchy);
    tt_free(dataset);
}

int64_t tt_detect_dataset_count(const struct tt_detect_dataset *dataset)
{
    return dataset->count;
}

const struct tt_detect_record *tt_detect_dataset_record(const struct tt_detect_dataset *dataset,
                                                        int64_t index)
{
    return &dataset->records[index];
}

const struct tt_detect_box *tt_detect_dataset_boxes(const struct tt_detect_dataset *dataset, int64_t index)
{
    return dataset->boxes + dataset->records[index].first_box;
}

int64_t tt_detect_dataset_class_count(const struct tt_detect_dataset *dataset)
{
    return dataset->class_count;
}

const struct tt_detect_class *tt_detect_dataset_class(const struct tt_detect_dataset *dataset, int64_t label)
{
    return &dataset->notes.classes[label];
}

const struct tt_detect_report *tt_detect_dataset_report(const struct tt_detect_dataset *dataset)
{
    return &dataset->notes.report;
}

const struct tt_map_label *tt_detect_dataset_verified(const struct tt_detect_dataset *dataset, int64_t *count)
{
    *count = dataset->verified_count;
    return dataset->verified;
}

const struct tt_hierarchy *tt_detect_dataset_hierarchy(const struct tt_detect_dataset *dataset)
{
    return dataset->hierarchy.class_count > 0 ? &dataset->hierarchy : NULL;
}
