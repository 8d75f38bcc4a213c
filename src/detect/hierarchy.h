/* Classes above and below each other, as Open Images' bbox_labels_600_hierarchy.json has them:
 * {"LabelName": "/m/0bl9f", "Subcategory": [{"LabelName": ..., "Subcategory": [...]}]}. The root is no class; one class
 * may be at several places. */
#ifndef TT_DETECT_HIERARCHY_H
#define TT_DETECT_HIERARCHY_H

#include "base/error.h"
#include "base/name_index.h"
#include "detect/coco_map.h"

/* Labels above (or below) label k: labels[first[k]] .. labels[first[k + 1] - 1], ascending. */
struct tt_class_relation {
    int64_t *first; /* [class_count + 1] */
    int32_t *labels;
};

/* A zeroed struct is empty. */
struct tt_hierarchy {
    int64_t class_count; /* 0: none is known */
    struct tt_class_relation above, below;
};

/* Labels are found by their keys; nodes of other classes connect those around them. */
TT_MUST_USE tt_status tt_hierarchy_read(const char *path, const struct tt_name_index *by_key,
                                        int64_t class_count, struct tt_hierarchy *hierarchy);
void tt_hierarchy_deinit(struct tt_hierarchy *hierarchy);

/* A class that people checked in an image: it is there, or it is not. */
struct tt_map_label {
    int64_t image;
    int32_t label;
    bool there;
};

/* Adds a copy of each box for every class above its own. Owned memory in *expanded. */
TT_MUST_USE tt_status tt_hierarchy_expand_truths(const struct tt_hierarchy *hierarchy,
                                                 const struct tt_map_truth *truths, int64_t count,
                                                 struct tt_map_truth **expanded, int64_t *expanded_count);
/* A present class implies the classes above it; an absent one excludes the classes below it. */
TT_MUST_USE tt_status tt_hierarchy_expand_labels(const struct tt_hierarchy *hierarchy,
                                                 const struct tt_map_label *labels, int64_t count,
                                                 struct tt_map_label **expanded, int64_t *expanded_count);

#endif
