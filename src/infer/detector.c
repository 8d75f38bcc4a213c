#include "infer/detector.h"

#include "backend/tuning.h"
#include "backend/workspace.h"
#include "base/alloc.h"
#include "model/detector_weights.h"

struct tt_detector {
    struct tt_detector_config config;
    struct tt_detector_weights weights;
    struct tt_model *model;
    struct tt_device *device, *planned;
    struct tt_stream *stream, *plan_stream;
    struct tt_workspace *workspace;
    size_t workspace_bytes;
    int64_t count, height, width; /* of the last batch, for which the workspace was planned */
};

/* ---- Weights ---- */

static tt_status load_param(const struct tt_detector *detector, tt_param *param)
{
    const struct tt_model_folder *folder = detector->weights.folder;
    const struct tt_safetensors_entry *entry = tt_model_folder_find(folder, param->name);
    int64_t count = tt_param_count(param), stride = 1;
    /* Statistics and scales of frozen norms stay in fp32. */
    bool in_fp32 = param->rank == 1 && !param->trainable;
    tt_dtype dtype = in_fp32 ? TT_F32 : detector->config.compute_dtype;
    void *values = tt_alloc_aligned((size_t)count * tt_dtype_bytes(dtype));
    if (values == NULL) return TT_ERR_MEMORY;
    param->value = (tt_tensor){.data = values, .dtype = dtype, .rank = param->rank};
    for (int d = param->rank - 1; d >= 0; d--) {
        param->value.dims[d] = param->dims[d];
        param->value.strides[d] = stride;
        stride *= param->dims[d];
    }
    return tt_model_folder_read(folder, entry, 0, count, values, dtype);
}

static tt_status load(struct tt_detector *detector)
{
    const struct tt_detector_config *config = &detector->config;
    TT_TRY(tt_detector_weights_open(config->weights_path, config->norm_eps, 0, TT_CLASSIFIER_EXACT,
                                    &detector->weights));
    struct tt_model_facts *facts = tt_calloc(1, sizeof *facts);
    if (facts == NULL) return TT_ERR_MEMORY;
    tt_status status = tt_retinanet_facts(&detector->weights.shape, facts);
    if (status == TT_OK)
        status = tt_model_create(facts, &(struct tt_model_options){.compute_dtype = config->compute_dtype},
                                 &detector->model);
    tt_free(facts);
    if (status == TT_OK) status = tt_detector_weights_check(&detector->weights, detector->model);
    for (size_t i = 0; status == TT_OK && i < detector->model->param_count; i++)
        status = load_param(detector, detector->model->params[i]);
    return status;
}

/* ---- Passes ---- */

/* Memory of the outputs of all blocks, and the results, which live in the workspace. */
static tt_status forward(const struct tt_detector *detector, struct tt_stream *stream,
                         struct tt_workspace *workspace, const struct tt_attachment *images,
                         struct tt_pass_results *results)
{
    const struct tt_device_batch batch = {.attachments = {*images}, .attachment_count = 1};
    struct tt_pass pass = {
        .lent = {.stream = stream, .workspace = workspace},
        .in = {.batch = &batch, .compute_dtype = detector->config.compute_dtype, .want_logits = true},
        .out = results};
    tt_tensor x = {0};
    for (int i = 0; i < detector->model->block_count; i++) {
        struct tt_block *block = &detector->model->blocks[i];
        int64_t dims[2];
        tt_tensor y = {0};
        block->ops->output(block, &pass, dims);
        if (i + 1 < detector->model->block_count)
            TT_TRY(tt_workspace_2d(workspace, "features", pass.in.compute_dtype, dims[0], dims[1], &y));
        TT_TRY(block->ops->forward(block, &pass, x, NULL, y));
        x = y;
    }
    return TT_OK;
}

/* The same pass on the plan device counts its memory. */
static tt_status plan(struct tt_detector *detector, const struct tt_attachment *images)
{
    struct tt_workspace *counted = NULL;
    struct tt_pass_results results = {0};
    if (images->count == detector->count && images->height == detector->height &&
        images->width == detector->width)
        return TT_OK;
    TT_TRY(tt_workspace_create(detector->planned, 0, &counted));
    tt_status status = forward(detector, detector->plan_stream, counted, images, &results);
    size_t bytes = tt_workspace_peak(counted);
    tt_workspace_destroy(counted);
    if (status != TT_OK) return status;
    if (bytes > detector->workspace_bytes) {
        tt_workspace_destroy(detector->workspace);
        detector->workspace = NULL;
        detector->workspace_bytes = 0;
        TT_TRY(tt_workspace_create(detector->device, bytes, &detector->workspace));
        detector->workspace_bytes = bytes;
    }
    detector->count = images->count;
    detector->height = images->height;
    detector->width = images->width;
    return TT_OK;
}

tt_status tt_detector_decode(const struct tt_detect_batch *batch, const struct tt_pass_results *results,
                             const struct tt_detections_config *config, struct tt_detection_list *lists)
{
    struct tt_anchor_grid grid = tt_anchor_grid_make(batch->height, batch->width);
    for (int64_t n = 0; n < batch->image_count; n++) {
        struct tt_detect_outputs outputs[TT_ANCHOR_LEVELS];
        for (int i = 0; i < TT_ANCHOR_LEVELS; i++) {
            tt_tensor logits = tt_pass_result(results, TT_RESULT_CLASSES, i),
                      deltas = tt_pass_result(results, TT_RESULT_BOXES, i);
            int64_t first = n * grid.levels[i].height * grid.levels[i].width;
            size_t width = tt_dtype_bytes(logits.dtype);
            outputs[i] = (struct tt_detect_outputs){
                .logits = (const char *)logits.data + (size_t)(first * logits.strides[0]) * width,
                .deltas = (const char *)deltas.data + (size_t)(first * deltas.strides[0]) * width,
                .dtype = logits.dtype,
                .logits_stride = logits.strides[0],
                .deltas_stride = deltas.strides[0]};
        }
        TT_TRY(tt_detections_make(config, &grid, outputs, &batch->images[n], &lists[n]));
    }
    return TT_OK;
}

tt_status tt_detector_run(struct tt_detector *detector, const struct tt_detect_batch *batch,
                          const struct tt_detections_config *config, struct tt_detection_list *lists)
{
    struct tt_pass_results results = {0};
    int64_t pixels = batch->image_count * batch->height * batch->width;
    if (batch->image_count == 0) return TT_OK;
    if (batch->pixel_dtype != detector->config.compute_dtype)
        return tt_fail(TT_ERR_INTERNAL, "pixels of %s for a detector in %s",
                       tt_dtype_name(batch->pixel_dtype), tt_dtype_name(detector->config.compute_dtype));
    const struct tt_attachment images = {
        .kind = TT_ATTACHED_IMAGES,
        .count = batch->image_count,
        .height = batch->height,
        .width = batch->width,
        .pixels_PC =
            tt_tensor_2d((void *)(uintptr_t)batch->pixels, batch->pixel_dtype, pixels, TT_DETECT_CHANNELS)};
    TT_TRY(plan(detector, &images));
    tt_status status = forward(detector, detector->stream, detector->workspace, &images, &results);
    if (status == TT_OK) status = tt_detector_decode(batch, &results, config, lists);
    tt_workspace_release(detector->workspace, 0);
    return status;
}

/* ---- Life ---- */

static tt_status open_devices(struct tt_detector *detector)
{
    struct tt_device_config config = {.kind = "cpu", .threads = detector->config.threads};
    TT_TRY(tt_device_tuning_read(&config.tuning));
    TT_TRY(tt_device_open(&config, &detector->device));
    TT_TRY(tt_stream_create(detector->device, &detector->stream));
    config.kind = "plan";
    config.threads = 1;
    TT_TRY(tt_device_open(&config, &detector->planned));
    return tt_stream_create(detector->planned, &detector->plan_stream);
}

tt_status tt_detector_create(const struct tt_detector_config *config, struct tt_detector **out)
{
    struct tt_detector *detector = tt_calloc(1, sizeof *detector);
    if (detector == NULL) return TT_ERR_MEMORY;
    detector->config = *config;
    tt_status status = load(detector);
    if (status != TT_OK) tt_while("loading the detector '%s'", config->weights_path);
    if (status == TT_OK) status = open_devices(detector);
    if (status == TT_OK)
        *out = detector;
    else
        tt_detector_destroy(detector);
    return status;
}

void tt_detector_destroy(struct tt_detector *detector)
{
    if (detector == NULL) return;
    for (size_t i = 0; detector->model != NULL && i < detector->model->param_count; i++)
        tt_free(detector->model->params[i]->value.data);
    tt_model_destroy(detector->model);
    tt_workspace_destroy(detector->workspace);
    tt_stream_destroy(detector->stream);
    tt_stream_destroy(detector->plan_stream);
    tt_device_close(detector->device);
    tt_device_close(detector->planned);
    tt_detector_weights_close(&detector->weights);
    tt_free(detector);
}

int64_t tt_detector_class_count(const struct tt_detector *detector)
{
    return detector->weights.shape.class_count;
}
