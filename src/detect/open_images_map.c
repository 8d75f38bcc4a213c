#include "detect/open_images_map.h"

#include <math.h>
#include <stdlib.h>

#include "base/alloc.h"

/* IoU of a detection with a box, and the part of a detection inside a group, that count as found. */
#define FOUND 0.5

/* A detection's place in the order in which it is judged: by class and falling score. */
struct ranked {
    int64_t index;
    int32_t label;
    double score;
};

/* A truth by class and image. */
struct grouped {
    int64_t image, index;
    int32_t label;
};

struct judging {
    const struct tt_map_input *input;
    struct ranked *ranked;
    struct grouped *grouped, *verified;
    int64_t verified_count;
    bool *found; /* [truths] */
    double *precision, *recall;
};

static int compare_ranked(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;
    if (x->label != y->label) return x->label < y->label ? -1 : 1;
    if (x->score != y->score) return x->score > y->score ? -1 : 1;
    return (x->index > y->index) - (x->index < y->index);
}

static int compare_grouped(const void *a, const void *b)
{
    const struct grouped *x = a, *y = b;
    if (x->label != y->label) return x->label < y->label ? -1 : 1;
    if (x->image != y->image) return x->image < y->image ? -1 : 1;
    return (x->index > y->index) - (x->index < y->index);
}

/* The first element that is not before (label, image). */
static int64_t lower_bound(const struct grouped *grouped, int64_t count, int32_t label, int64_t image)
{
    const struct grouped key = {image, -1, label};
    int64_t low = 0, high = count;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (compare_grouped(&grouped[middle], &key) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool has(const struct grouped *grouped, int64_t count, int32_t label, int64_t image)
{
    int64_t at = lower_bound(grouped, count, label, image);
    return at < count && grouped[at].label == label && grouped[at].image == image;
}

/* The area of the intersection. */
static double common(const struct tt_map_detection *d, const struct tt_map_truth *g)
{
    double w = fmin(d->x + d->w, g->x + g->w) - fmax(d->x, g->x);
    double h = fmin(d->y + d->h, g->y + g->h) - fmax(d->y, g->y);
    return w > 0 && h > 0 ? w * h : 0;
}

enum verdict { RIGHT, WRONG, IGNORED };

/* The box first; else the group, which one detection may find. */
static enum verdict judge(struct judging *judging, const struct tt_map_detection *detection)
{
    const struct tt_map_input *input = judging->input;
    int64_t best = -1, group = -1;
    double best_iou = 0, best_inside = 0, area = detection->w * detection->h;
    int64_t at = lower_bound(judging->grouped, input->truth_count, detection->label, detection->image);
    bool checked = judging->verified == NULL ||
                   has(judging->verified, judging->verified_count, detection->label, detection->image);
    for (; at < input->truth_count; at++) {
        const struct grouped *entry = &judging->grouped[at];
        if (entry->label != detection->label || entry->image != detection->image) break;
        const struct tt_map_truth *truth = &input->truths[entry->index];
        double both = common(detection, truth);
        checked = true;
        if (truth->crowd) {
            double inside = both > 0 ? both / area : 0;
            if (inside > best_inside) {
                best_inside = inside;
                group = entry->index;
            }
            continue;
        }
        double iou = both > 0 ? both / (area + truth->w * truth->h - both) : 0;
        if (iou > best_iou) {
            best_iou = iou;
            best = entry->index;
        }
    }
    if (!checked) return IGNORED;
    if (best >= 0 && best_iou >= FOUND && !judging->found[best]) {
        judging->found[best] = true;
        return RIGHT;
    }
    if (group < 0 || best_inside < FOUND) return WRONG;
    if (judging->found[group]) return IGNORED;
    judging->found[group] = true;
    return RIGHT;
}

/* The area under the curve whose precision never rises with recall. */
static double area_under(struct judging *judging, int64_t count)
{
    double area = 0, before = 0;
    for (int64_t i = count - 1; i > 0; i--)
        judging->precision[i - 1] = fmax(judging->precision[i - 1], judging->precision[i]);
    for (int64_t i = 0; i < count; i++) {
        area += (judging->recall[i] - before) * judging->precision[i];
        before = judging->recall[i];
    }
    return area;
}

/* Judges the detections of a class from *at on. */
static double rate(struct judging *judging, int32_t label, int64_t *at)
{
    const struct tt_map_input *input = judging->input;
    int64_t first = lower_bound(judging->grouped, input->truth_count, label, INT64_MIN);
    int64_t truths = lower_bound(judging->grouped, input->truth_count, label + 1, INT64_MIN) - first;
    int64_t right = 0, wrong = 0, count = 0;
    for (; *at < input->detection_count && judging->ranked[*at].label == label; ++*at) {
        enum verdict verdict = judge(judging, &input->detections[judging->ranked[*at].index]);
        if (verdict == IGNORED || truths == 0) continue;
        right += verdict == RIGHT;
        wrong += verdict == WRONG;
        judging->precision[count] = (double)right / (double)(right + wrong);
        judging->recall[count++] = (double)right / (double)truths;
    }
    return truths == 0 ? -1 : area_under(judging, count);
}

static tt_status prepare(struct judging *judging, const struct tt_map_label *verified, int64_t verified_count)
{
    const struct tt_map_input *input = judging->input;
    size_t truths = (size_t)input->truth_count + 1, detections = (size_t)input->detection_count + 1;
    judging->ranked = tt_calloc(detections, sizeof *judging->ranked);
    judging->grouped = tt_calloc(truths, sizeof *judging->grouped);
    judging->found = tt_calloc(truths, sizeof *judging->found);
    judging->precision = tt_calloc(detections, sizeof *judging->precision);
    judging->recall = tt_calloc(detections, sizeof *judging->recall);
    if (verified != NULL)
        judging->verified = tt_calloc((size_t)verified_count + 1, sizeof *judging->verified);
    if (judging->ranked == NULL || judging->grouped == NULL || judging->found == NULL ||
        judging->precision == NULL || judging->recall == NULL ||
        (verified != NULL && judging->verified == NULL))
        return TT_ERR_MEMORY;
    for (int64_t i = 0; i < input->detection_count; i++) {
        const struct tt_map_detection *detection = &input->detections[i];
        if (isnan(detection->score))
            return tt_fail(TT_ERR_DATA, "detection %lld has a score that is no number", (long long)i);
        judging->ranked[i] = (struct ranked){i, detection->label, detection->score};
    }
    for (int64_t i = 0; i < input->truth_count; i++)
        judging->grouped[i] = (struct grouped){input->truths[i].image, i, input->truths[i].label};
    for (int64_t i = 0; verified != NULL && i < verified_count; i++)
        judging->verified[i] = (struct grouped){verified[i].image, i, verified[i].label};
    judging->verified_count = verified_count;
    qsort(judging->ranked, detections - 1, sizeof *judging->ranked, compare_ranked);
    qsort(judging->grouped, truths - 1, sizeof *judging->grouped, compare_grouped);
    if (verified != NULL)
        qsort(judging->verified, (size_t)verified_count, sizeof *judging->verified, compare_grouped);
    return TT_OK;
}

tt_status tt_open_images_map_compute(const struct tt_map_input *input, const struct tt_map_label *verified,
                                     int64_t verified_count, double *map, double *class_ap)
{
    struct judging judging = {.input = input};
    tt_status status = prepare(&judging, verified, verified_count);
    double sum = 0;
    int64_t classes = 0, at = 0;
    for (int64_t k = 0; status == TT_OK && k < input->class_count; k++) {
        double ap = rate(&judging, (int32_t)k, &at);
        if (class_ap != NULL) class_ap[k] = ap;
        if (ap < 0) continue;
        sum += ap;
        classes++;
    }
    if (status == TT_OK) *map = classes > 0 ? sum / (double)classes : -1;
    tt_free(judging.ranked);
    tt_free(judging.grouped);
    tt_free(judging.verified);
    tt_free(judging.found);
    tt_free(judging.precision);
    tt_free(judging.recall);
    return status;
}
