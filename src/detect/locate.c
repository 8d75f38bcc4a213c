#include "detect/locate.h"

#include <string.h>

static const char *const split_folders[2][2] = {{"train", "train2017"}, {"validation", "val2017"}};

/* Listed in the order in which they are looked for. */
static const char *const split_names[2][12] = {
    {"oidv6-train-annotations-bbox.csv", "train-annotations-bbox.csv", "train/labels/detections.csv",
     "labels/train.json", "train/labels.json", "annotations/instances_train2017.json",
     "instances_train2017.json", "train.json", NULL},
    {"validation-annotations-bbox.csv", "val-annotations-bbox.csv", "validation/labels/detections.csv",
     "val/labels/detections.csv", "labels/validation.json", "labels/val.json", "validation/labels.json",
     "annotations/instances_val2017.json", "instances_val2017.json", "validation.json", "val.json", NULL},
};
static const char *const whole_names[] = {"annotations-bbox.csv",
                                          "labels/detections.csv",
                                          "annotations.csv",
                                          "labels.json",
                                          "labels/labels.json",
                                          "annotations.json",
                                          NULL};
static const char *const class_names[] = {"class-descriptions-boxable.csv",
                                          "oidv7-class-descriptions-boxable.csv",
                                          "metadata/classes.csv",
                                          "train/metadata/classes.csv",
                                          "validation/metadata/classes.csv",
                                          "classes.csv",
                                          NULL};

static const char *const label_names[2][7] = {
    {"train-annotations-human-imagelabels-boxable.csv", "oidv7-train-annotations-human-imagelabels.csv",
     "train/labels/classifications.csv", NULL},
    {"validation-annotations-human-imagelabels-boxable.csv", "val-annotations-human-imagelabels-boxable.csv",
     "oidv7-val-annotations-human-imagelabels.csv", "validation/labels/classifications.csv",
     "val/labels/classifications.csv", "labels/classifications.csv", NULL},
};

const char *tt_detect_split_folder(enum tt_detect_split split, int which)
{
    return split_folders[split == TT_DETECT_VALIDATION][which];
}

/* The cache folder, the parent of the image folder, and the image folder. */
struct roots {
    struct tt_path parent;
    const char *paths[3];
};

static tt_status find_roots(const struct tt_detect_dataset_config *config, struct roots *roots)
{
    TT_TRY(tt_path_set(&roots->parent, config->image_dir, ".."));
    roots->paths[0] = config->cache_dir;
    roots->paths[1] = roots->parent.text;
    roots->paths[2] = config->image_dir;
    return TT_OK;
}

static tt_status find_first(const struct roots *roots, const char *const *names, struct tt_path *path)
{
    for (size_t r = 0; r < 3; r++) {
        for (size_t n = 0; roots->paths[r] != NULL && names[n] != NULL; n++) {
            TT_TRY(tt_path_set(path, roots->paths[r], names[n]));
            if (tt_path_exists(path->text) && !tt_path_is_dir(path->text)) return TT_OK;
        }
    }
    path->text[0] = '\0';
    return TT_OK;
}

static tt_status fail_not_found(const struct tt_detect_dataset_config *config, const struct roots *roots)
{
    bool validation = config->split == TT_DETECT_VALIDATION;
    tt_fail(TT_ERR_DATA,
            "no annotations for '%s': neither %s nor the other usual names are in '%s', '%s' or '%s'",
            config->image_dir, split_names[validation][0],
            config->cache_dir != NULL ? config->cache_dir : roots->parent.text, roots->parent.text,
            config->image_dir);
    tt_hint("Open Images' boxes are CSV files such as train-annotations-bbox.csv, COCO's are JSON; Parquet "
            "and Arrow files with images are given as dataset_name");
    return TT_ERR_DATA;
}

/* A file of the split; else one of all images, or the other split's, of which a share of the images is the validation.
 */
static tt_status find_annotations(const struct tt_detect_dataset_config *config, const struct roots *roots,
                                  struct tt_detect_files *files)
{
    bool validation = config->split == TT_DETECT_VALIDATION;
    struct tt_path *path = &files->annotations, other;
    TT_TRY(find_first(roots, split_names[validation], path));
    TT_TRY(find_first(roots, split_names[!validation], &other));
    files->split = path->text[0] != '\0' && other.text[0] != '\0';
    if (path->text[0] == '\0') TT_TRY(find_first(roots, whole_names, path));
    if (path->text[0] == '\0' && validation) *path = other;
    return path->text[0] != '\0' ? TT_OK : fail_not_found(config, roots);
}

tt_status tt_detect_classes_beside(const char *weights_path, struct tt_path *path)
{
    path->text[0] = '\0';
    if (weights_path == NULL) return TT_OK;
    struct tt_path folder;
    TT_TRY(tt_path_set(&folder, "", weights_path));
    folder.text[strlen(folder.text) - strlen(tt_path_basename(weights_path))] = '\0';
    TT_TRY(tt_path_set(path, folder.text, "classes.csv"));
    if (!tt_path_exists(path->text)) path->text[0] = '\0';
    return TT_OK;
}

tt_status tt_detect_locate(const struct tt_detect_dataset_config *config, struct tt_detect_files *files)
{
    struct roots roots;
    *files = (struct tt_detect_files){.split = true};
    if (!tt_path_is_dir(config->image_dir)) {
        tt_fail(TT_ERR_DATA, "the image folder '%s' is not there", config->image_dir);
        return TT_ERR_DATA;
    }
    TT_TRY(find_roots(config, &roots));
    if (config->annotations == NULL)
        TT_TRY(find_annotations(config, &roots, files));
    else
        TT_TRY(tt_path_set(&files->annotations, "", config->annotations));
    files->coco = tt_ends_with(files->annotations.text, ".json");
    if (config->image_labels != NULL)
        TT_TRY(tt_path_set(&files->labels, "", config->image_labels));
    else if (!files->coco && !config->train)
        TT_TRY(find_first(&roots, label_names[config->split == TT_DETECT_VALIDATION], &files->labels));
    if (config->classes != NULL) return tt_path_set(&files->classes, "", config->classes);
    return files->coco ? TT_OK : find_first(&roots, class_names, &files->classes);
}
