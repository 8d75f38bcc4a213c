#include "detect/results.h"

#include "base/alloc.h"
#include "base/file.h"
#include "base/number.h"
#include "detect/open_images_map.h"

static tt_status add_number(struct tt_str *text, const char *before, double value)
{
    char number[TT_DOUBLE_TEXT_BYTES];
    TT_TRY(tt_str_append_text(text, before));
    return tt_str_append_text(text, tt_format_double(value, number, sizeof number));
}

tt_status tt_coco_results_add(struct tt_coco_results *results, const struct tt_detect_dataset *dataset,
                              int64_t image_id, const struct tt_detection_list *list)
{
    struct tt_str *text = &results->text;
    for (int64_t i = 0; i < list->count; i++) {
        const struct tt_detection *found = &list->items[i];
        const struct tt_detect_class *class = tt_detect_dataset_class(dataset, found->label);
        long long category = class->name != NULL ? (long long)class->id : found->label;
        TT_TRY(tt_str_printf(text, "%s{\"image_id\": %lld, \"category_id\": %lld",
                             results->count > 0 ? ",\n" : "[", (long long)image_id, category));
        TT_TRY(add_number(text, ", \"bbox\": [", found->x1));
        TT_TRY(add_number(text, ", ", found->y1));
        TT_TRY(add_number(text, ", ", found->x2 - found->x1));
        TT_TRY(add_number(text, ", ", found->y2 - found->y1));
        TT_TRY(add_number(text, "], \"score\": ", found->score));
        TT_TRY(tt_str_append_char(text, '}'));
        results->count++;
    }
    return TT_OK;
}

tt_status tt_coco_results_write(struct tt_coco_results *results, const char *path)
{
    TT_TRY(tt_str_append_text(&results->text, results->count > 0 ? "]\n" : "[]\n"));
    return tt_file_write_atomic(path, results->text.data, results->text.bytes);
}

void tt_coco_results_deinit(struct tt_coco_results *results)
{
    tt_str_deinit(&results->text);
    *results = (struct tt_coco_results){0};
}

void tt_map_detections_of(int64_t image_id, const struct tt_detection_list *list, struct tt_map_detection *to)
{
    for (int64_t i = 0; i < list->count; i++) {
        const struct tt_detection *found = &list->items[i];
        to[i] = (struct tt_map_detection){image_id,    found->label,          found->x1,
                                          found->y1,   found->x2 - found->x1, found->y2 - found->y1,
                                          found->score};
    }
}

tt_status tt_map_truths_of(const struct tt_detect_dataset *dataset, struct tt_map_truth **truths,
                           int64_t *count)
{
    int64_t images = tt_detect_dataset_count(dataset), used = 0;
    struct tt_map_truth *out = tt_calloc((size_t)tt_detect_dataset_report(dataset)->boxes + 1, sizeof *out);
    if (out == NULL) return TT_ERR_MEMORY;
    for (int64_t i = 0; i < images; i++) {
        const struct tt_detect_record *record = tt_detect_dataset_record(dataset, i);
        const struct tt_detect_box *boxes = tt_detect_dataset_boxes(dataset, i);
        for (int64_t b = 0; b < record->box_count; b++)
            out[used++] = (struct tt_map_truth){record->id, boxes[b].label, boxes[b].crowd, boxes[b].x,
                                                boxes[b].y, boxes[b].w,     boxes[b].h,     boxes[b].area};
    }
    *truths = out;
    *count = used;
    return TT_OK;
}

/* Measures the classes, with those that a hierarchy adds. */
static tt_status measure_open_images(const struct tt_detect_dataset *dataset,
                                     const struct tt_map_input *input, double *map)
{
    const struct tt_hierarchy *hierarchy = tt_detect_dataset_hierarchy(dataset);
    int64_t verified_count = 0, more_count = 0;
    const struct tt_map_label *verified = tt_detect_dataset_verified(dataset, &verified_count);
    if (hierarchy == NULL) return tt_open_images_map_compute(input, verified, verified_count, map, NULL);
    struct tt_map_input expanded = *input;
    struct tt_map_truth *truths = NULL;
    struct tt_map_label *labels = NULL;
    tt_status status = TT_OK;
    TT_GO(tt_hierarchy_expand_truths(hierarchy, input->truths, input->truth_count, &truths,
                                     &expanded.truth_count));
    if (verified != NULL)
        TT_GO(tt_hierarchy_expand_labels(hierarchy, verified, verified_count, &labels, &more_count));
    expanded.truths = truths;
    status = tt_open_images_map_compute(&expanded, labels, more_count, map, NULL);
out:
    tt_free(truths);
    tt_free(labels);
    return status;
}

tt_status tt_detect_measure(const struct tt_detect_dataset *dataset, const struct tt_map_detection *found,
                            int64_t count, struct tt_detect_figures *figures)
{
    struct tt_map_truth *truths = NULL;
    int64_t truth_count = 0;
    TT_TRY(tt_map_truths_of(dataset, &truths, &truth_count));
    const struct tt_map_input input = {truths, truth_count, found, count,
                                       tt_detect_dataset_class_count(dataset)};
    tt_status status = tt_coco_map_compute(&input, &figures->coco, NULL, NULL);
    if (status == TT_OK) status = measure_open_images(dataset, &input, &figures->open_images_map_50);
    tt_free(truths);
    return status;
}
