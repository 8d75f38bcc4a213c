#include "detect/order.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/integer.h"
#include "base/rng.h"
#include "detect/batch.h"
#include "image/resize.h"

/* Groups of width / height, with borders at 2^-1, 2^(-2/3) ... 2^1. */
enum { BORDERS = 7, GROUPS = BORDERS + 1 };

/* Images of all ranks in one micro step. */
struct micro {
    int64_t first, count; /* in `images` */
    int64_t height, width;
};

struct tt_detect_order {
    const struct tt_detect_dataset *dataset;
    struct tt_detect_order_config config;
    int64_t epoch;
    int64_t *images; /* in the order in which they are used */
    struct micro *micros;
    int64_t micro_count;
};

static int64_t micro_images(const struct tt_detect_order_config *config)
{
    return config->batch_size * config->world_size;
}

static int group_of(const struct tt_detect_record *record)
{
    double ratio = (double)record->file.width / record->file.height;
    int group = 0;
    while (group < BORDERS && ratio >= exp2(-1 + group / 3.0)) group++; /* as bisect.bisect_right */
    return group;
}

static bool is_grouped(const struct tt_detect_order_config *config)
{
    return config->train && config->group_by_aspect;
}

/* ---- Placement ---- */

struct tt_detect_placement tt_detect_place(const struct tt_detect_record *record, int64_t index,
                                           const struct tt_detect_order_config *config, int64_t epoch)
{
    const struct tt_detect_view *view = &config->view;
    struct tt_rng rng = tt_rng_derive(tt_rng_make(config->seed), "detection view");
    rng = tt_rng_derive_index(tt_rng_derive_index(rng, (uint64_t)epoch), (uint64_t)index);
    struct tt_detect_placement place = {.flipped = config->train && tt_rng_uniform(rng, 0) < view->flip};
    if (view->fixed_height > 0) {
        place.height = view->fixed_height;
        place.width = view->fixed_width;
        return place;
    }
    int choice = view->min_size_count - 1;
    if (config->train) choice = (int)tt_rng_below(rng, 1, (uint64_t)view->min_size_count);
    tt_image_resized_size(record->file.height, record->file.width, view->min_sizes[choice], view->max_size,
                          &place.height, &place.width);
    return place;
}

/* ---- Order ---- */

/* The images of an epoch in the order in which they are drawn. */
static int64_t drawn(const struct tt_detect_order *order, int64_t position)
{
    int64_t count = tt_detect_dataset_count(order->dataset);
    if (!order->config.train) return position;
    struct tt_rng rng = tt_rng_derive(tt_rng_make(order->config.seed), "detection order");
    rng = tt_rng_derive_index(rng, (uint64_t)order->epoch);
    return (int64_t)tt_rng_permute(rng, (uint64_t)position, (uint64_t)count);
}

/* A micro step for each group as soon as it is full; the rests at the end follow, group by group. */
static tt_status order_by_group(struct tt_detect_order *order)
{
    int64_t count = tt_detect_dataset_count(order->dataset), most = micro_images(&order->config), used = 0;
    int64_t waiting[GROUPS] = {0};
    int64_t *groups = tt_calloc((size_t)(most * GROUPS), sizeof *groups);
    if (groups == NULL) return TT_ERR_MEMORY;
    for (int64_t i = 0; i < count; i++) {
        int64_t image = drawn(order, i);
        int group = group_of(tt_detect_dataset_record(order->dataset, image));
        groups[group * most + waiting[group]++] = image;
        if (waiting[group] < most) continue;
        memcpy(order->images + used, groups + group * most, (size_t)most * sizeof *groups);
        used += most;
        waiting[group] = 0;
    }
    for (int group = 0; group < GROUPS; group++) {
        memcpy(order->images + used, groups + group * most, (size_t)waiting[group] * sizeof *groups);
        used += waiting[group];
    }
    tt_free(groups);
    return TT_OK;
}

/* The canvas of images[first .. first + count - 1]. */
static void find_canvas(const struct tt_detect_order *order, int64_t first, int64_t count, int64_t *height,
                        int64_t *width)
{
    *height = *width = 0;
    for (int64_t i = first; i < first + count; i++) {
        const struct tt_detect_record *record = tt_detect_dataset_record(order->dataset, order->images[i]);
        struct tt_detect_placement place =
            tt_detect_place(record, order->images[i], &order->config, order->epoch);
        *height = tt_larger(*height, place.height);
        *width = tt_larger(*width, place.width);
    }
    *height = (int64_t)tt_align_up((size_t)*height, TT_DETECT_CANVAS_MULTIPLE);
    *width = (int64_t)tt_align_up((size_t)*width, TT_DETECT_CANVAS_MULTIPLE);
}

static void place_micros(struct tt_detect_order *order)
{
    int64_t count = tt_detect_dataset_count(order->dataset), most = micro_images(&order->config);
    for (int64_t m = 0; m < order->micro_count; m++) {
        struct micro *micro = &order->micros[m];
        *micro = (struct micro){.first = m * most, .count = tt_smaller(most, count - m * most)};
        find_canvas(order, micro->first, micro->count, &micro->height, &micro->width);
    }
}

static tt_status check_config(const struct tt_detect_order_config *config)
{
    const struct tt_detect_view *view = &config->view;
    bool fixed = view->fixed_height > 0 && view->fixed_width > 0;
    bool sized =
        view->min_size_count >= 1 && view->min_size_count <= TT_DETECT_MIN_SIZES_MAX && view->max_size > 0;
    for (int i = 0; sized && i < view->min_size_count; i++) sized = view->min_sizes[i] > 0;
    if (config->batch_size < 1 || config->world_size < 1 || config->accumulation < 1 || (!fixed && !sized))
        return tt_fail(TT_ERR_INTERNAL, "an order of images without a batch size or an image size");
    return TT_OK;
}

tt_status tt_detect_order_create(const struct tt_detect_dataset *dataset,
                                 const struct tt_detect_order_config *config, int64_t epoch,
                                 struct tt_detect_order **out)
{
    TT_TRY(check_config(config));
    struct tt_detect_order *order = tt_calloc(1, sizeof *order);
    if (order == NULL) return TT_ERR_MEMORY;
    tt_status status = TT_OK;
    int64_t count = tt_detect_dataset_count(dataset), most = micro_images(config);
    *order = (struct tt_detect_order){.dataset = dataset, .config = *config, .epoch = epoch};
    order->micro_count = (count + most - 1) / most;
    order->images = tt_calloc((size_t)count + 1, sizeof *order->images);
    order->micros = tt_calloc((size_t)order->micro_count + 1, sizeof *order->micros);
    if (order->images == NULL || order->micros == NULL) TT_GO(TT_ERR_MEMORY);
    if (is_grouped(config))
        TT_GO(order_by_group(order));
    else
        for (int64_t i = 0; i < count; i++) order->images[i] = drawn(order, i);
    place_micros(order);
    *out = order;
    return TT_OK;
out:
    tt_detect_order_destroy(order);
    return status;
}

void tt_detect_order_destroy(struct tt_detect_order *order)
{
    if (order == NULL) return;
    tt_free(order->images);
    tt_free(order->micros);
    tt_free(order);
}

int64_t tt_detect_order_steps(const struct tt_detect_order *order)
{
    return (order->micro_count + order->config.accumulation - 1) / order->config.accumulation;
}

struct tt_detect_step_facts tt_detect_order_step(const struct tt_detect_order *order, int64_t step)
{
    struct tt_detect_step_facts facts = {0};
    int64_t first = step * order->config.accumulation;
    for (int64_t m = first; m < order->micro_count && m < first + order->config.accumulation; m++) {
        facts.micro_count++;
        facts.images += order->micros[m].count;
        facts.pixels += order->micros[m].count * order->micros[m].height * order->micros[m].width;
    }
    return facts;
}

struct tt_detect_share tt_detect_order_share(const struct tt_detect_order *order, int64_t step, int64_t micro,
                                             int rank)
{
    const struct micro *whole = &order->micros[step * order->config.accumulation + micro];
    int64_t world = order->config.world_size;
    int64_t from = whole->count * rank / world, to = whole->count * (rank + 1) / world;
    struct tt_detect_share share = {to - from, order->images + whole->first + from, whole->height,
                                    whole->width};
    if (order->config.own_canvas && share.count > 0)
        find_canvas(order, whole->first + from, share.count, &share.height, &share.width);
    return share;
}

/* ---- Limits ---- */

/* The largest size that a draw can give an image. */
static void largest_place(const struct tt_detect_record *record, const struct tt_detect_order_config *config,
                          int32_t *height, int32_t *width)
{
    const struct tt_detect_view *view = &config->view;
    *height = view->fixed_height;
    *width = view->fixed_width;
    if (view->fixed_height > 0) return;
    for (int i = config->train ? 0 : view->min_size_count - 1; i < view->min_size_count; i++) {
        int32_t h, w;
        tt_image_resized_size(record->file.height, record->file.width, view->min_sizes[i], view->max_size, &h,
                              &w);
        *height = h > *height ? h : *height;
        *width = w > *width ? w : *width;
    }
}

void tt_detect_order_limits(const struct tt_detect_dataset *dataset,
                            const struct tt_detect_order_config *config, struct tt_detect_limits *out)
{
    int64_t count = tt_detect_dataset_count(dataset), boxes = 0;
    *out = (struct tt_detect_limits){.images = tt_smaller(config->batch_size, count)};
    /* The mixed micro steps at the end of an epoch may join any two images. */
    for (int64_t i = 0; i < count; i++) {
        int32_t height, width;
        const struct tt_detect_record *record = tt_detect_dataset_record(dataset, i);
        largest_place(record, config, &height, &width);
        out->height = tt_larger(out->height, height);
        out->width = tt_larger(out->width, width);
        boxes = tt_larger(boxes, record->box_count);
    }
    out->height = (int64_t)tt_align_up((size_t)out->height, TT_DETECT_CANVAS_MULTIPLE);
    out->width = (int64_t)tt_align_up((size_t)out->width, TT_DETECT_CANVAS_MULTIPLE);
    out->boxes = boxes * out->images;
    out->pixels = out->height * out->width;
}
