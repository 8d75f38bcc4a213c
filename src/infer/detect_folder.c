#include "infer/detect_folder.h"

#include <stdio.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "detect/drawing.h"
#include "detect/loader.h"
#include "detect/results.h"

struct run {
    const struct tt_detect_folder_config *config;
    const struct tt_cancel *cancel;
    struct tt_detector *detector;
    struct tt_detect_dataset *dataset;
    struct tt_pixel_cache *cache;
    struct tt_detect_loader *loader;
    struct tt_detections_config limits;
    struct tt_detection_list list;
    struct tt_coco_results results;
    struct tt_map_detection *found;
    size_t found_count, found_capacity;
    struct tt_detect_summary *summary;
};

static tt_status open_run(struct run *run)
{
    const struct tt_detect_folder_config *config = run->config;
    struct tt_detect_dataset_config data = config->data;
    struct tt_path beside;
    TT_TRY(tt_detect_classes_beside(config->detector.weights_path, &beside));
    if (data.classes == NULL && beside.text[0] != '\0') data.classes = beside.text;
    TT_TRY(tt_detector_create(&config->detector, &run->detector));
    run->limits = tt_detections_default(tt_detector_class_count(run->detector));
    run->limits.score_threshold = (float)config->score_threshold;
    if (config->cache_bytes > 0 && data.cache_dir != NULL)
        TT_TRY(tt_pixel_cache_open(data.cache_dir, config->cache_bytes, &run->cache));
    data.cache = run->cache;
    data.unannotated_classes = config->evaluate ? 0 : run->limits.class_count;
    TT_TRY(tt_detect_dataset_load(&data, &run->dataset));
    int64_t classes = tt_detect_dataset_class_count(run->dataset);
    if (classes > run->limits.class_count) {
        tt_fail(TT_ERR_DATA, "the annotations have %lld classes, the weights '%s' %lld",
                (long long)classes - 1, config->detector.weights_path,
                (long long)run->limits.class_count - 1);
        tt_hint("weights of other classes cannot be compared with these annotations; category_labels raw is "
                "COCO's own "
                "numbering");
        return TT_ERR_DATA;
    }
    const struct tt_detect_loader_config loading = {
        .dataset = run->dataset,
        .order = {.view = {.min_size_count = 1,
                           .min_sizes = {(int32_t)config->min_size},
                           .max_size = (int32_t)config->max_size},
                  .batch_size = 1,
                  .world_size = 1,
                  .accumulation = 1},
        .workers = (int)config->workers,
        .ahead = 2,
        .pixel_dtype = config->detector.compute_dtype,
        .max_pixels = data.max_pixels,
        .cache = run->cache};
    return tt_detect_loader_create(&loading, 0, &run->loader);
}

static tt_status keep_found(struct run *run, int64_t image_id)
{
    int64_t count = run->list.count;
    while (run->found_capacity < run->found_count + (size_t)count) {
        size_t full = run->found_capacity;
        TT_TRY(tt_grow(&run->found, full, &run->found_capacity));
    }
    tt_map_detections_of(image_id, &run->list, run->found + run->found_count);
    run->found_count += (size_t)count;
    return TT_OK;
}

static tt_status draw(struct run *run, int64_t index)
{
    const struct tt_detect_folder_config *config = run->config;
    const struct tt_detect_record *record = tt_detect_dataset_record(run->dataset, index);
    struct tt_image image = {0}, picture = {0};
    struct tt_path path;
    char name[200];
    if (config->picture_dir == NULL || index >= config->picture_count) return TT_OK;
    /* Names of COCO have an ending, and may have folders. */
    (void)snprintf(name, sizeof name, "%lld-%.150s.jpg", (long long)record->id,
                   tt_path_basename(record->name));
    TT_TRY(tt_path_set(&path, config->picture_dir, name));
    tt_status status = tt_pixel_cache_read(run->cache, &record->file, config->data.max_pixels, &image);
    double scale = 1;
    if (status == TT_OK && (image.height > TT_JPEG_SIDE_MAX || image.width > TT_JPEG_SIDE_MAX)) {
        double side = image.height > image.width ? image.height : image.width;
        status = tt_image_shrink(&image, TT_JPEG_SIDE_MAX, &picture);
        scale = TT_JPEG_SIDE_MAX / side;
        tt_warn("'%s' has %d x %d pixels, a JPEG file at most %d on a side: its picture is smaller",
                record->file.path, image.width, image.height, TT_JPEG_SIDE_MAX);
        tt_image_deinit(&image);
        image = picture;
    }
    if (status == TT_OK) {
        const struct tt_box_style style = {.scale = scale, .min_score = config->picture_score};
        (void)tt_detections_draw(&image, run->dataset, &run->list, &style);
        status = tt_image_write(path.text, &image);
    }
    tt_image_deinit(&image);
    if (status == TT_OK) run->summary->pictures++;
    return status;
}

static tt_status detect(struct run *run, int64_t index)
{
    const struct tt_detect_batch *batch;
    if (run->cancel != NULL && atomic_load_explicit(&run->cancel->requests, memory_order_relaxed) > 0)
        return tt_fail(TT_ERR_CANCELLED, "stopped on request after %lld images", (long long)index);
    TT_TRY(tt_detect_loader_next(run->loader, &batch));
    double start = tt_clock_seconds();
    TT_TRY(tt_detector_run(run->detector, batch, &run->limits, &run->list));
    run->summary->seconds += tt_clock_seconds() - start;
    run->summary->detections += run->list.count;
    int64_t id = batch->images[0].id;
    /* Labels that the annotations lack are of no class there. */
    int64_t kept = 0, classes = tt_detect_dataset_class_count(run->dataset);
    for (int64_t i = 0; i < run->list.count; i++)
        if (run->list.items[i].label < classes) run->list.items[kept++] = run->list.items[i];
    run->list.count = kept;
    if (run->config->results_path != NULL)
        TT_TRY(tt_coco_results_add(&run->results, run->dataset, id, &run->list));
    TT_TRY(keep_found(run, id));
    return draw(run, index);
}

static tt_status run_all(struct run *run)
{
    const struct tt_detect_folder_config *config = run->config;
    TT_TRY(open_run(run));
    if (config->picture_dir != NULL) TT_TRY(tt_dir_create(config->picture_dir));
    int64_t count = tt_detect_dataset_count(run->dataset);
    for (int64_t i = 0; i < count; i++) {
        TT_TRY(detect(run, i));
        if ((i + 1) % 100 == 0) tt_info("%lld of %lld images", (long long)i + 1, (long long)count);
    }
    run->summary->data = *tt_detect_dataset_report(run->dataset);
    if (config->results_path != NULL) TT_TRY(tt_coco_results_write(&run->results, config->results_path));
    if (!config->evaluate) return TT_OK;
    return tt_detect_measure(run->dataset, run->found, (int64_t)run->found_count, &run->summary->figures);
}

tt_status tt_detect_folder(const struct tt_detect_folder_config *config, const struct tt_cancel *cancel,
                           struct tt_detect_summary *summary)
{
    struct run run = {.config = config, .cancel = cancel, .summary = summary};
    *summary = (struct tt_detect_summary){0};
    tt_status status = run_all(&run);
    tt_detect_loader_destroy(run.loader);
    tt_detect_dataset_destroy(run.dataset);
    tt_pixel_cache_close(run.cache);
    tt_detector_destroy(run.detector);
    tt_detection_list_deinit(&run.list);
    tt_coco_results_deinit(&run.results);
    tt_free(run.found);
    return status;
}
