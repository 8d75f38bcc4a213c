#include "detect/detections.h"

#include <math.h>
#include <stdlib.h>

#include "base/alloc.h"

/* ln(1000 / 16), the most that a box may grow (torchvision, models/detection/_utils.py). */
#define GROWTH_MAX 4.135166556742356f

/* A score of an anchor and a class: index = anchor * classes + class, within a level. */
struct candidate {
    float score;
    int64_t index;
};

struct making {
    const struct tt_detections_config *config;
    const struct tt_anchor_grid *grid;
    const struct tt_detect_image *image;
    struct candidate *heap; /* the best of a level so far, the worst of them first */
    int64_t heap_count;
    struct tt_detection *boxes; /* of all levels, in pixels of the resized image */
    int64_t box_count;
    struct candidate *order; /* of `boxes`, by score */
    bool *removed;
};

struct tt_detections_config tt_detections_default(int64_t class_count)
{
    return (struct tt_detections_config){.class_count = class_count,
                                         .score_threshold = 0.05f,
                                         .level_count_max = 1000,
                                         .nms_threshold = 0.5f,
                                         .count_max = 300};
}

void tt_detection_list_deinit(struct tt_detection_list *list)
{
    tt_free(list->items);
    *list = (struct tt_detection_list){0};
}

static float value_at(const void *values, tt_dtype dtype, int64_t index)
{
    if (dtype == TT_F32) return ((const float *)values)[index];
    uint16_t bits = ((const uint16_t *)values)[index];
    return dtype == TT_BF16 ? tt_bf16_to_f32(bits) : tt_f16_to_f32(bits);
}

/* ---- The best of a level ---- */

/* Order of detections: by score, of equal ones the first. */
static bool is_better(struct candidate a, struct candidate b)
{
    return a.score != b.score ? a.score > b.score : a.index < b.index;
}

static int compare_candidates(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    return is_better(*x, *y) ? -1 : is_better(*y, *x);
}

/* Moves the element at `at` down to its place: a parent is worse than its children. */
static void sift(struct candidate *heap, int64_t count, int64_t at)
{
    for (int64_t child; (child = 2 * at + 1) < count; at = child) {
        if (child + 1 < count && is_better(heap[child], heap[child + 1])) child++;
        if (!is_better(heap[at], heap[child])) return;
        struct candidate swap = heap[at];
        heap[at] = heap[child];
        heap[child] = swap;
    }
}

static void keep_candidate(struct making *making, struct candidate candidate)
{
    struct candidate *heap = making->heap;
    if (making->heap_count < making->config->level_count_max) {
        int64_t at = making->heap_count++;
        for (; at > 0 && is_better(heap[(at - 1) / 2], candidate); at = (at - 1) / 2)
            heap[at] = heap[(at - 1) / 2];
        heap[at] = candidate;
    } else if (is_better(candidate, heap[0])) {
        heap[0] = candidate;
        sift(heap, making->heap_count, 0);
    }
}

static void find_best(struct making *making, const struct tt_anchor_level *level,
                      const struct tt_detect_outputs *outputs)
{
    int64_t places = level->height * level->width, columns = TT_ANCHORS_A_PLACE * making->config->class_count;
    float threshold = making->config->score_threshold;
    /* Most logits are far below; the margin is for the rounding of the score. */
    float logit = threshold > 0 ? logf(threshold / (1 - threshold)) - 0.001f : -INFINITY;
    making->heap_count = 0;
    for (int64_t place = 0; place < places; place++) {
        for (int64_t column = 0; column < columns; column++) {
            float x = value_at(outputs->logits, outputs->dtype, place * outputs->logits_stride + column);
            if (!(x > logit)) continue;
            float score = 1 / (1 + expf(-x));
            if (score > threshold)
                keep_candidate(making, (struct candidate){score, place * columns + column});
        }
    }
    qsort(making->heap, (size_t)making->heap_count, sizeof *making->heap, compare_candidates);
}

/* ---- Boxes ---- */

static float clip(float value, int32_t most)
{
    return fminf(fmaxf(value, 0), (float)most);
}

static void decode(const float anchor[4], const float delta[4], const struct tt_detect_image *image,
                   struct tt_detection *out)
{
    float w = anchor[2] - anchor[0], h = anchor[3] - anchor[1];
    float x = anchor[0] + 0.5f * w, y = anchor[1] + 0.5f * h;
    float centre_x = delta[0] * w + x, centre_y = delta[1] * h + y;
    float half_w = 0.5f * (expf(fminf(delta[2], GROWTH_MAX)) * w);
    float half_h = 0.5f * (expf(fminf(delta[3], GROWTH_MAX)) * h);
    out->x1 = clip(centre_x - half_w, image->width);
    out->y1 = clip(centre_y - half_h, image->height);
    out->x2 = clip(centre_x + half_w, image->width);
    out->y2 = clip(centre_y + half_h, image->height);
}

static void add_level(struct making *making, const struct tt_anchor_level *level,
                      const struct tt_detect_outputs *outputs)
{
    find_best(making, level, outputs);
    for (int64_t i = 0; i < making->heap_count; i++) {
        int64_t anchor = making->heap[i].index / making->config->class_count;
        int64_t first =
            anchor / TT_ANCHORS_A_PLACE * outputs->deltas_stride + anchor % TT_ANCHORS_A_PLACE * 4;
        float box[4], delta[4];
        struct tt_detection *out = &making->boxes[making->box_count];
        for (int j = 0; j < 4; j++) delta[j] = value_at(outputs->deltas, outputs->dtype, first + j);
        tt_anchor_at(level, anchor, box);
        decode(box, delta, making->image, out);
        out->score = making->heap[i].score;
        out->label = (int32_t)(making->heap[i].index % making->config->class_count);
        making->order[making->box_count] = (struct candidate){out->score, making->box_count};
        making->box_count++;
    }
}

static float overlap(const struct tt_detection *a, const struct tt_detection *b)
{
    float w = fminf(a->x2, b->x2) - fmaxf(a->x1, b->x1), h = fminf(a->y2, b->y2) - fmaxf(a->y1, b->y1);
    float both = fmaxf(w, 0) * fmaxf(h, 0);
    float area_a = (a->x2 - a->x1) * (a->y2 - a->y1), area_b = (b->x2 - b->x1) * (b->y2 - b->y1);
    return both / (area_a + area_b - both);
}

static tt_status suppress(struct making *making, struct tt_detection_list *list)
{
    const struct tt_detect_image *image = making->image;
    float ratio_x = (float)image->original_width / (float)image->width;
    float ratio_y = (float)image->original_height / (float)image->height;
    list->count = 0;
    qsort(making->order, (size_t)making->box_count, sizeof *making->order, compare_candidates);
    for (int64_t i = 0; i < making->box_count && list->count < making->config->count_max; i++) {
        const struct tt_detection *best = &making->boxes[making->order[i].index];
        if (making->removed[i]) continue;
        for (int64_t j = i + 1; j < making->box_count; j++) {
            const struct tt_detection *other = &making->boxes[making->order[j].index];
            if (other->label == best->label && overlap(best, other) > making->config->nms_threshold)
                making->removed[j] = true;
        }
        TT_TRY(tt_grow(&list->items, (size_t)list->count, &list->capacity));
        struct tt_detection *out = &list->items[list->count++];
        *out = *best;
        out->x1 *= ratio_x;
        out->x2 *= ratio_x;
        out->y1 *= ratio_y;
        out->y2 *= ratio_y;
    }
    return TT_OK;
}

static tt_status check(const struct tt_detections_config *config,
                       const struct tt_detect_outputs outputs[TT_ANCHOR_LEVELS])
{
    bool good = config->class_count > 0 && config->level_count_max > 0 && config->count_max > 0;
    for (int i = 0; i < TT_ANCHOR_LEVELS; i++) {
        tt_dtype dtype = outputs[i].dtype;
        good = good && (dtype == TT_F32 || dtype == TT_BF16 || dtype == TT_F16) &&
               outputs[i].logits_stride >= TT_ANCHORS_A_PLACE * config->class_count &&
               outputs[i].deltas_stride >= TT_ANCHORS_A_PLACE * 4;
    }
    return good ? TT_OK
                : tt_fail(TT_ERR_INTERNAL, "detections of outputs with wrong types, strides or limits");
}

tt_status tt_detections_make(const struct tt_detections_config *config, const struct tt_anchor_grid *grid,
                             const struct tt_detect_outputs outputs[TT_ANCHOR_LEVELS],
                             const struct tt_detect_image *image, struct tt_detection_list *list)
{
    TT_TRY(check(config, outputs));
    struct making making = {.config = config, .grid = grid, .image = image};
    size_t most = (size_t)config->level_count_max, all = most * TT_ANCHOR_LEVELS;
    making.heap = tt_calloc(most, sizeof *making.heap);
    making.boxes = tt_calloc(all, sizeof *making.boxes);
    making.order = tt_calloc(all, sizeof *making.order);
    making.removed = tt_calloc(all, sizeof *making.removed);
    tt_status status = TT_ERR_MEMORY;
    if (making.heap != NULL && making.boxes != NULL && making.order != NULL && making.removed != NULL) {
        for (int i = 0; i < TT_ANCHOR_LEVELS; i++) add_level(&making, &grid->levels[i], &outputs[i]);
        status = suppress(&making, list);
    }
    tt_free(making.heap);
    tt_free(making.boxes);
    tt_free(making.order);
    tt_free(making.removed);
    return status;
}
