/* The task of a detector: images with boxes. */
#include "engine/feed_images.h"
#include "engine/rank_images.h"
#include "infer/detect_evaluator.h"
#include "job/detect_inputs.h"
#include "run/resume.h"
#include "run/shown_pictures.h"
#include "run/task.h"

static tt_status order(const struct tt_inputs *inputs, const struct tt_task_order *how,
                       struct tt_task_data *data)
{
    data->order = tt_detect_inputs_order(tt_detect_inputs_of(inputs)->spec, how->train, how->batch_size,
                                         how->data_size, how->accumulation, how->seed);
    return TT_OK;
}

static const struct tt_detect_dataset *images_of(const struct tt_inputs *inputs, bool train)
{
    const struct tt_detect_inputs *own = tt_detect_inputs_of(inputs);
    return train ? own->train : own->eval;
}

static tt_status epoch_steps(const struct tt_inputs *inputs, const struct tt_task_data *data, int64_t *steps)
{
    struct tt_detect_order *made = NULL;
    TT_TRY(tt_detect_order_create(images_of(inputs, data->order.train), &data->order, 0, &made));
    *steps = tt_detect_order_steps(made);
    tt_detect_order_destroy(made);
    return TT_OK;
}

static struct tt_batch_limits limits(const struct tt_inputs *inputs, const struct tt_task_data *data,
                                     int64_t steps)
{
    struct tt_detect_limits most;
    (void)steps;
    tt_detect_order_limits(images_of(inputs, data->order.train), &data->order, &most);
    return (struct tt_batch_limits){
        .images = most.images, .boxes = most.boxes, .height = most.height, .width = most.width};
}

static bool evaluates(const struct tt_inputs *inputs)
{
    return images_of(inputs, false) != NULL;
}

static double samples(const struct tt_inputs *inputs, const struct tt_objective *objective)
{
    (void)objective;
    return (double)tt_detect_dataset_count(images_of(inputs, true));
}

static tt_status describe(const struct tt_inputs *inputs, bool train, struct tt_str *text)
{
    return tt_detect_inputs_describe(images_of(inputs, train), train ? "training data" : "evaluation data",
                                     text);
}

static tt_status report(const struct tt_run_job *job, const struct tt_inputs *all)
{
    const struct tt_detect_inputs *inputs = tt_detect_inputs_of(all);
    struct tt_str text = {0};
    tt_status status = TT_OK;
    TT_GO(tt_detect_inputs_describe_weights(inputs, &text));
    tt_run_report_line(job, tt_str_text(&text));
    tt_str_clear(&text);
    TT_GO(tt_detect_inputs_describe(inputs->train, "training data", &text));
    tt_run_report_line(job, tt_str_text(&text));
    tt_str_clear(&text);
    if (inputs->eval == NULL) goto out;
    TT_GO(tt_detect_inputs_describe(inputs->eval, "evaluation data", &text));
    tt_run_report_line(job, tt_str_text(&text));
out:
    tt_str_deinit(&text);
    return status;
}

/* The images that a rank loads, in `order`. */
static struct tt_detect_loader_config loading_of(const struct tt_detect_inputs *inputs,
                                                 const struct tt_detect_order_config *order,
                                                 struct tt_rank *rank)
{
    bool host = tt_device_is_host(rank->device);
    const struct tt_detect_spec *spec = inputs->spec;
    return (struct tt_detect_loader_config){
        .dataset = order->train ? inputs->train : inputs->eval,
        .order = *order,
        .rank = rank->mesh.axes[TT_AXIS_DATA].rank,
        .workers = spec->num_workers > 1 ? (int)spec->num_workers : 1,
        .ahead = 1,
        .pixel_dtype = rank->model->options.compute_dtype,
        .max_pixels = (int64_t)spec->max_image_pixels,
        .cache = inputs->cache,
        .allocate = host ? NULL : tt_rank_lend_pixels,
        .release = host ? NULL : tt_rank_return_pixels,
        .context = rank,
    };
}

static tt_status feed(const struct tt_inputs *inputs, const struct tt_task_data *data, struct tt_rank *rank,
                      struct tt_feed *feed)
{
    const struct tt_detect_loader_config loading =
        loading_of(tt_detect_inputs_of(inputs), &data->order, rank);
    return tt_feed_of_images(&loading, feed);
}

static void show(void *context, const struct tt_map_detection *found, int64_t count)
{
    const struct tt_task_evaluation *how = context;
    tt_shown_pictures_draw(how->pictures, how->step, found, count);
}

static tt_status evaluate(const struct tt_task_evaluation *how, struct tt_rank *rank,
                          struct tt_evaluation *evaluation)
{
    struct tt_task_evaluation shown = *how;
    const struct tt_detect_inputs *own = tt_detect_inputs_of(how->inputs);
    const struct tt_detect_loader_config loading = loading_of(own, &how->data->order, rank);
    const struct tt_detect_evaluator_config config = {.loading = &loading,
                                                      .score_threshold = own->spec->score_threshold,
                                                      .show = how->pictures != NULL ? show : NULL,
                                                      .context = &shown};
    return tt_detect_evaluate(rank, &config, how->cancel, how->stopped, evaluation);
}

static double flops(const struct tt_model *model, const struct tt_counters *counters)
{
    double images = (double)counters->samples;
    return images > 0 ? images * tt_model_flops_per_image(model, (double)counters->pixels / images) : 0;
}

static int64_t labels(const struct tt_evaluation *evaluation)
{
    (void)evaluation;
    return 0;
}

static const char *weights(const struct tt_inputs *inputs, const struct tt_model_spec *model)
{
    (void)model;
    return tt_detect_inputs_of(inputs)->spec->weights_path;
}

static void saves(const struct tt_inputs *inputs, struct tt_save_template files[TT_TASK_FILES],
                  struct tt_saver_config *config)
{
    const struct tt_detect_inputs *own = tt_detect_inputs_of(inputs);
    files[0] = (struct tt_save_template){"config.json", tt_str_text(&own->config_json)};
    files[1] = (struct tt_save_template){"classes.csv", tt_str_text(&own->classes_csv)};
    config->templates = files;
    config->template_count = TT_TASK_FILES;
    config->torch_name = "model.pth";
}

static uint64_t sum(const struct tt_inputs *inputs)
{
    return tt_detect_inputs_sum(images_of(inputs, true));
}

/* The classes and the network are input files (launch/fingerprint.h). */
static void identify(const struct tt_inputs *inputs, const struct tt_data_config *data,
                     struct tt_json_value *to)
{
    (void)data;
    tt_resume_add_word(to, "norm", tt_detect_inputs_of(inputs)->norm);
}

const struct tt_task_run_ops tt_task_run_detection = {
    .unit = TT_COUNT_IMAGES,
    .advice = {[TT_SHARE_DATA] =
                   "reading images takes long: larger num_workers, a cache_dir whose cache_size holds all of "
                   "them, or more processors",
               [TT_SHARE_GATHER] =
                   "ranks wait for weights: NO_SHARD as sharding_strategy where it fits (trimtab plan "
                   "--details), or more images in a micro batch",
               [TT_SHARE_RANKS] =
                   "ranks wait for the slowest one: as many images on each rank, equal machines, and "
                   "loading that keeps up (num_workers)",
               [TT_SHARE_EVALUATE] =
                   "evaluations take long: larger eval_steps, smaller max_val, or more ranks, which "
                   "share the images"},
    .gauge = "map",
    .gauge_help = "Mean average precision of the last evaluation, IoU 0.50 to 0.95.",
    .order = order,
    .epoch_steps = epoch_steps,
    .limits = limits,
    .evaluates = evaluates,
    .samples = samples,
    .describe = describe,
    .report = report,
    .show = tt_shown_pictures_open,
    .sum = sum,
    .identify = identify,
    .feed = feed,
    .evaluate = evaluate,
    .flops = flops,
    .labels = labels,
    .weights = weights,
    .saves = saves,
};
