#include "detect/coco_map.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/integer.h"

enum { THRESHOLDS = 10, RECALLS = 101, AREAS = 4, DETECTIONS_MAX = 100 };

/* These forms have the bits of numpy's linspace(0.5, 0.95, 10) and linspace(0, 1, 101). */
static double threshold_at(int i)
{
    return 0.5 + i * ((0.95 - 0.5) / 9);
}

static double recall_at(int i)
{
    return i * 0.01;
}

/* All, small, medium, large; both ends are inside. */
static const double areas[AREAS][2] = {{0, 1e10}, {0, 1024}, {1024, 9216}, {9216, 1e10}};

/* Sums of numbers that exist. */
struct mean {
    double sum;
    int64_t count;
};

static double mean_of(struct mean mean)
{
    return mean.count > 0 ? mean.sum / (double)mean.count : -1;
}

static void add(struct mean *to, struct mean part)
{
    to->sum += part.sum;
    to->count += part.count;
}

/* The fate of a detection for an area and a threshold. */
enum { MATCHED = 1, IGNORED = 2 };

/* One class: the detections of all its images. */
struct scored {
    double score;
    int32_t place; /* among the detections of its image */
    uint8_t fate[AREAS][THRESHOLDS];
};

struct work {
    const struct tt_map_input *input;
    int64_t *truths, *detections; /* indices by (label, image, order), (label, image, score, order) */
    double *ious;                 /* [detections of an image, truths of an image] */
    bool *taken, *ignored;        /* of the truths of an image */
    int64_t *by_ignored;
    struct scored *scored; /* of the class */
    int64_t *by_score;
    double *precision, *recall;
    int64_t scored_count, positives[AREAS];
    int64_t truth_at, detection_at; /* how far the indices are read */
    struct mean ap[AREAS], ap_50, ap_75, ar[AREAS], ar_1, ar_10;
};

/* ---- Order. qsort is not stable: indices decide last. ---- */

struct keyed {
    int64_t image, index;
    double score;
    int32_t label;
};

static int compare_keyed(const void *a, const void *b)
{
    const struct keyed *x = a, *y = b;
    if (x->label != y->label) return x->label < y->label ? -1 : 1;
    if (x->image != y->image) return x->image < y->image ? -1 : 1;
    if (x->score != y->score) return x->score > y->score ? -1 : 1;
    return (x->index > y->index) - (x->index < y->index);
}

static int64_t *sorted(struct keyed *keys, int64_t count)
{
    int64_t *indices = tt_calloc((size_t)count + 1, sizeof *indices);
    qsort(keys, (size_t)count, sizeof *keys, compare_keyed);
    for (int64_t i = 0; indices != NULL && i < count; i++) indices[i] = keys[i].index;
    return indices;
}

static tt_status sort_input(struct work *work)
{
    const struct tt_map_input *input = work->input;
    int64_t most = tt_larger(input->truth_count, input->detection_count);
    struct keyed *keys = tt_calloc((size_t)most + 1, sizeof *keys);
    if (keys == NULL) return TT_ERR_MEMORY;
    for (int64_t i = 0; i < input->truth_count; i++)
        keys[i] = (struct keyed){input->truths[i].image, i, 0, input->truths[i].label};
    work->truths = sorted(keys, input->truth_count);
    for (int64_t i = 0; i < input->detection_count; i++) {
        const struct tt_map_detection *detection = &input->detections[i];
        keys[i] = (struct keyed){detection->image, i, detection->score, detection->label};
    }
    work->detections = sorted(keys, input->detection_count);
    tt_free(keys);
    return work->truths != NULL && work->detections != NULL ? TT_OK : TT_ERR_MEMORY;
}

/* ---- One image ---- */

/* The truths and the best detections of one class in one image. */
struct scene {
    const int64_t *truths, *detections;
    int64_t truth_count, detection_count;
};

static const struct tt_map_truth *truth_of(const struct work *work, const struct scene *scene, int64_t i)
{
    return &work->input->truths[scene->truths[i]];
}

static const struct tt_map_detection *detection_of(const struct work *work, const struct scene *scene,
                                                   int64_t i)
{
    return &work->input->detections[scene->detections[i]];
}

static double smaller(double a, double b)
{
    return a < b ? a : b;
}

static double larger(double a, double b)
{
    return a > b ? a : b;
}

/* Intersection over union; of a crowd, over the detection. */
static double overlap(const struct tt_map_detection *d, const struct tt_map_truth *g)
{
    double w = smaller(d->w + d->x, g->w + g->x) - larger(d->x, g->x);
    if (w <= 0) return 0;
    double h = smaller(d->h + d->y, g->h + g->y) - larger(d->y, g->y);
    if (h <= 0) return 0;
    double both = w * h, area = d->w * d->h;
    return both / (g->crowd ? area : area + g->w * g->h - both);
}

static bool is_outside(double area, int range)
{
    return area < areas[range][0] || area > areas[range][1];
}

/* Ignored truths come last, in their order else. */
static int64_t order_truths(struct work *work, const struct scene *scene, int range)
{
    int64_t count = 0, positives;
    for (int64_t g = 0; g < scene->truth_count; g++) {
        const struct tt_map_truth *truth = truth_of(work, scene, g);
        work->ignored[g] = truth->crowd || is_outside(truth->area, range);
        if (!work->ignored[g]) work->by_ignored[count++] = g;
    }
    positives = count;
    for (int64_t g = 0; g < scene->truth_count; g++)
        if (work->ignored[g]) work->by_ignored[count++] = g;
    return positives;
}

/* The truth that detection `d` gets at a threshold; -1: none. The later of two equally good ones is taken. */
static int64_t find_match(const struct work *work, const struct scene *scene, int64_t d, double threshold)
{
    double best = smaller(threshold, 1 - 1e-10);
    int64_t match = -1;
    for (int64_t i = 0; i < scene->truth_count; i++) {
        int64_t g = work->by_ignored[i];
        if (work->taken[g] && !truth_of(work, scene, g)->crowd) continue;
        if (match >= 0 && !work->ignored[match] && work->ignored[g]) break;
        double iou = work->ious[d * scene->truth_count + g];
        if (iou < best) continue;
        best = iou;
        match = g;
    }
    return match;
}

static void match_range(struct work *work, const struct scene *scene, int range, struct scored *scored)
{
    work->positives[range] += order_truths(work, scene, range);
    for (int t = 0; t < THRESHOLDS; t++) {
        memset(work->taken, 0, (size_t)scene->truth_count * sizeof *work->taken);
        for (int64_t d = 0; d < scene->detection_count; d++) {
            const struct tt_map_detection *detection = detection_of(work, scene, d);
            int64_t match = find_match(work, scene, d, threshold_at(t));
            uint8_t fate = match >= 0 ? MATCHED : 0;
            if (match >= 0) work->taken[match] = true;
            if (match >= 0 ? work->ignored[match] : is_outside(detection->w * detection->h, range))
                fate |= IGNORED;
            scored[d].fate[range][t] = fate;
        }
    }
}

static void match_scene(struct work *work, const struct scene *scene)
{
    struct scored *scored = work->scored + work->scored_count;
    for (int64_t d = 0; d < scene->detection_count; d++) {
        const struct tt_map_detection *detection = detection_of(work, scene, d);
        scored[d].score = detection->score;
        scored[d].place = (int32_t)d;
        for (int64_t g = 0; g < scene->truth_count; g++)
            work->ious[d * scene->truth_count + g] = overlap(detection, truth_of(work, scene, g));
    }
    for (int range = 0; range < AREAS; range++) match_range(work, scene, range, scored);
    work->scored_count += scene->detection_count;
}

/* ---- One class ---- */

static int64_t count_truths(const struct work *work, int64_t from, int32_t label, int64_t image)
{
    const struct tt_map_input *input = work->input;
    int64_t count = 0;
    while (from + count < input->truth_count) {
        const struct tt_map_truth *truth = &input->truths[work->truths[from + count]];
        if (truth->label != label || truth->image != image) break;
        count++;
    }
    return count;
}

static int64_t count_detections(const struct work *work, int64_t from, int32_t label, int64_t image)
{
    const struct tt_map_input *input = work->input;
    int64_t count = 0;
    while (from + count < input->detection_count) {
        const struct tt_map_detection *detection = &input->detections[work->detections[from + count]];
        if (detection->label != label || detection->image != image) break;
        count++;
    }
    return count;
}

/* The next image of a class that has truths or detections; false: there is none. */
static bool next_image(const struct work *work, int32_t label, int64_t *image)
{
    const struct tt_map_input *input = work->input;
    bool found = false;
    if (work->truth_at < input->truth_count) {
        const struct tt_map_truth *truth = &input->truths[work->truths[work->truth_at]];
        found = truth->label == label;
        if (found) *image = truth->image;
    }
    if (work->detection_at < input->detection_count) {
        const struct tt_map_detection *detection = &input->detections[work->detections[work->detection_at]];
        if (detection->label == label && (!found || detection->image < *image)) {
            *image = detection->image;
            found = true;
        }
    }
    return found;
}

static void match_class(struct work *work, int32_t label)
{
    int64_t image = 0;
    work->scored_count = 0;
    memset(work->positives, 0, sizeof work->positives);
    while (next_image(work, label, &image)) {
        int64_t truths = count_truths(work, work->truth_at, label, image);
        int64_t detections = count_detections(work, work->detection_at, label, image);
        const struct scene scene = {work->truths + work->truth_at, work->detections + work->detection_at,
                                    truths, tt_smaller(detections, DETECTIONS_MAX)};
        match_scene(work, &scene);
        work->truth_at += truths;
        work->detection_at += detections;
    }
}

/* Detections of a class by falling score, those of equal score in the order of the images: a merge sort. */
static void sort_by_score(struct work *work, int64_t *spare)
{
    int64_t count = work->scored_count, *from = work->by_score, *to = spare;
    for (int64_t i = 0; i < count; i++) from[i] = i;
    for (int64_t width = 1; width < count; width *= 2) {
        for (int64_t start = 0; start < count; start += 2 * width) {
            int64_t a = start, middle = tt_smaller(start + width, count), b = middle;
            int64_t end = tt_smaller(start + 2 * width, count);
            for (int64_t i = start; i < end; i++) {
                bool left =
                    b == end || (a < middle && work->scored[from[a]].score >= work->scored[from[b]].score);
                to[i] = left ? from[a++] : from[b++];
            }
        }
        int64_t *swap = from;
        from = to;
        to = swap;
    }
    if (from != work->by_score) memcpy(work->by_score, from, (size_t)count * sizeof *from);
}

/* Recall and, with `precision_sum`, the sum of the precision at 101 recalls, of the first `most` detections an
 * image. */
static double rate(struct work *work, int range, int t, int32_t most, double *precision_sum)
{
    double right = 0, wrong = 0;
    int64_t count = 0;
    for (int64_t i = 0; i < work->scored_count; i++) {
        const struct scored *scored = &work->scored[work->by_score[i]];
        uint8_t fate = scored->fate[range][t];
        if (scored->place >= most) continue;
        if ((fate & IGNORED) == 0) *((fate & MATCHED) != 0 ? &right : &wrong) += 1;
        work->recall[count] = right / (double)work->positives[range];
        work->precision[count++] = right / (wrong + right + 0x1p-52);
    }
    if (precision_sum == NULL || count == 0) return count > 0 ? work->recall[count - 1] : 0;
    for (int64_t i = count - 1; i > 0; i--)
        if (work->precision[i] > work->precision[i - 1]) work->precision[i - 1] = work->precision[i];
    int64_t at = 0;
    for (int r = 0; r < RECALLS; r++) {
        while (at < count && work->recall[at] < recall_at(r)) at++;
        if (at == count) break;
        *precision_sum += work->precision[at];
    }
    return work->recall[count - 1];
}

static void rate_class(struct work *work, struct mean *class_ap, struct mean *class_ar)
{
    *class_ap = *class_ar = (struct mean){0};
    for (int range = 0; range < AREAS; range++) {
        struct mean ap = {0}, ar = {0};
        if (work->positives[range] == 0) continue;
        for (int t = 0; t < THRESHOLDS; t++) {
            struct mean one = {0, RECALLS};
            ar.sum += rate(work, range, t, DETECTIONS_MAX, &one.sum);
            ar.count++;
            add(&ap, one);
            if (range == 0 && t == 0) add(&work->ap_50, one);
            if (range == 0 && t == 5) add(&work->ap_75, one);
            if (range != 0) continue;
            add(&work->ar_1, (struct mean){rate(work, 0, t, 1, NULL), 1});
            add(&work->ar_10, (struct mean){rate(work, 0, t, 10, NULL), 1});
        }
        add(&work->ap[range], ap);
        add(&work->ar[range], ar);
        if (range == 0) *class_ap = ap;
        if (range == 0) *class_ar = ar;
    }
}

/* ---- All ---- */

static tt_status allocate(struct work *work)
{
    size_t truths = (size_t)work->input->truth_count + 1,
           detections = (size_t)work->input->detection_count + 1;
    int64_t most = 0; /* truths of an image */
    for (int64_t i = 0, count; i < work->input->truth_count; i += count) {
        const struct tt_map_truth *truth = &work->input->truths[work->truths[i]];
        count = count_truths(work, i, truth->label, truth->image);
        most = tt_larger(most, count);
    }
    work->ious = tt_calloc((size_t)most * DETECTIONS_MAX + 1, sizeof *work->ious);
    work->taken = tt_calloc(truths, sizeof *work->taken);
    work->ignored = tt_calloc(truths, sizeof *work->ignored);
    work->by_ignored = tt_calloc(truths, sizeof *work->by_ignored);
    work->scored = tt_calloc(detections, sizeof *work->scored);
    work->by_score = tt_calloc(2 * detections, sizeof *work->by_score);
    work->precision = tt_calloc(detections, sizeof *work->precision);
    work->recall = tt_calloc(detections, sizeof *work->recall);
    bool all = work->ious != NULL && work->taken != NULL && work->ignored != NULL &&
               work->by_ignored != NULL && work->scored != NULL && work->by_score != NULL &&
               work->precision != NULL && work->recall != NULL;
    return all ? TT_OK : TT_ERR_MEMORY;
}

static void work_free(struct work *work)
{
    tt_free(work->truths);
    tt_free(work->detections);
    tt_free(work->ious);
    tt_free(work->taken);
    tt_free(work->ignored);
    tt_free(work->by_ignored);
    tt_free(work->scored);
    tt_free(work->by_score);
    tt_free(work->precision);
    tt_free(work->recall);
}

static tt_status check_labels(const struct tt_map_input *input)
{
    for (int64_t i = 0; i < input->truth_count; i++)
        if (input->truths[i].label < 0 || input->truths[i].label >= input->class_count)
            return tt_fail(TT_ERR_INTERNAL, "truth %lld has the label %d", (long long)i,
                           input->truths[i].label);
    for (int64_t i = 0; i < input->detection_count; i++)
        if (input->detections[i].label < 0 || input->detections[i].label >= input->class_count)
            return tt_fail(TT_ERR_INTERNAL, "detection %lld has the label %d", (long long)i,
                           input->detections[i].label);
    for (int64_t i = 0; i < input->detection_count; i++)
        if (isnan(input->detections[i].score))
            return tt_fail(TT_ERR_DATA, "detection %lld has a score that is no number", (long long)i);
    return TT_OK;
}

tt_status tt_coco_map_compute(const struct tt_map_input *input, struct tt_coco_map *out, double *class_map,
                              double *class_mar_100)
{
    struct work work = {.input = input};
    tt_status status = TT_OK;
    TT_TRY(check_labels(input));
    TT_GO(sort_input(&work));
    TT_GO(allocate(&work));
    for (int64_t k = 0; k < input->class_count; k++) {
        struct mean ap, ar;
        match_class(&work, (int32_t)k);
        sort_by_score(&work, work.by_score + input->detection_count + 1);
        rate_class(&work, &ap, &ar);
        if (class_map != NULL) class_map[k] = mean_of(ap);
        if (class_mar_100 != NULL) class_mar_100[k] = mean_of(ar);
    }
    *out = (struct tt_coco_map){
        .map = mean_of(work.ap[0]),
        .map_50 = mean_of(work.ap_50),
        .map_75 = mean_of(work.ap_75),
        .map_small = mean_of(work.ap[1]),
        .map_medium = mean_of(work.ap[2]),
        .map_large = mean_of(work.ap[3]),
        .mar_1 = mean_of(work.ar_1),
        .mar_10 = mean_of(work.ar_10),
        .mar_100 = mean_of(work.ar[0]),
        .mar_small = mean_of(work.ar[1]),
        .mar_medium = mean_of(work.ar[2]),
        .mar_large = mean_of(work.ar[3]),
    };
out:
    work_free(&work);
    return status;
}
