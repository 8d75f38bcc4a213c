/* The task of a detector: a RetinaNet, images with boxes. */
#include <stdio.h>

#include "base/alloc.h"
#include "base/crc64.h"
#include "base/integer.h"
#include "job/detect_inputs.h"
#include "job/resolve.h"
#include "job/task.h"
#include "model/retinanet.h"
#include "optim/optimizer.h"

/* ---- Settings ---- */

struct default_value {
    const char *name, *value;
};

static tt_status suggest_all(struct tt_settings *settings, const struct default_value *values, size_t count)
{
    for (size_t i = 0; i < count; i++)
        TT_TRY(tt_settings_suggest(settings, values[i].name, values[i].value, "task: detection"));
    return TT_OK;
}

/* The recipe of torchvision's references, with SGD for 16 images a step. */
static tt_status suggest(struct tt_settings *settings, const struct tt_job_spec *job)
{
    static const struct default_value
        all[] = {{"use_peft", "false"},      {"per_device_eval_batch_size", "1"}, {"eval_strategy", "epoch"},
                 {"save_strategy", "epoch"}, {"sharding_strategy", "NO_SHARD"},   {"max_grad_norm", "0"},
                 {"weight_decay", "1e-4"},   {"dataset_test_split", "validation"}},
        sgd[] = {{"optim", "sgd"}, {"momentum", "0.9"}, {"learning_rate", "0.01"}},
        adamw[] = {{"learning_rate", "1e-4"}},
        steps[] = {{"lr_scheduler_type", "multistep"},
                   {"lr_scheduler_kwargs", "{\"milestone_epochs\": [16, 22]}"}},
        warmup[] = {{"warmup_epochs", "1"}}, scratch[] = {{"trainable_layers", "5"}};
    TT_TRY(suggest_all(settings, all, sizeof all / sizeof *all));
    const struct tt_rule *rule = tt_optimizer_of(&job->optim)->rule;
    bool is_sgd = !tt_settings_is_set(settings, "optim") || (rule->has_momentum && rule->whole == NULL);
    TT_TRY(is_sgd ? suggest_all(settings, sgd, sizeof sgd / sizeof *sgd)
                  : suggest_all(settings, adamw, sizeof adamw / sizeof *adamw));
    bool has_schedule = tt_settings_is_set(settings, "lr_scheduler_type"),
         has_warmup = has_schedule || tt_settings_is_set(settings, "warmup_steps") ||
                      tt_settings_is_set(settings, "warmup_ratio");
    if (!has_schedule) TT_TRY(suggest_all(settings, steps, sizeof steps / sizeof *steps));
    if (!has_warmup) TT_TRY(suggest_all(settings, warmup, 1));
    return job->detect.weights_path == NULL ? suggest_all(settings, scratch, 1) : TT_OK;
}

static tt_status check(const struct tt_settings *settings, const struct tt_job_spec *job)
{
    if (tt_settings_is_set(settings, "config_json"))
        return tt_job_usage("config_json is given, and the task is detection",
                            "the network of a detector follows from weights_path");
    if (tt_settings_has(settings, "use_peft") && job->model.use_peft)
        return tt_job_usage("use_peft is on, and the task is detection",
                            "a detector trains its weights: leave use_peft out");
    if (job->data.dataset_name != NULL &&
        (job->detect.annotations != NULL || job->detect.eval_annotations != NULL))
        return tt_job_usage(
            "dataset_name and annotations are both given",
            "Parquet and Arrow files have images and boxes; annotations are of local_image_dir");
    if (job->detect.max_image_size < job->detect.image_size)
        return tt_job_usage("max_image_size is below image_size", "it is the most length of the longer side");
    if (job->detect.norm == TT_NORMS_BATCH && job->shard.sharding_strategy != TT_NO_SHARD)
        return tt_job_usage("norm is batch, and sharding_strategy is not NO_SHARD",
                            "running statistics are kept whole on every rank");
    return TT_OK;
}

static tt_status check_images(const struct tt_job_spec *job, bool has_tables)
{
    if (job->detect.local_image_dir == NULL && !has_tables)
        return tt_job_usage(
            "setting 'local_image_dir' is missing",
            "it is the folder of the images; dataset_name is a Parquet or Arrow file with images");
    return TT_OK;
}

static tt_status check_train(const struct tt_job_spec *job)
{
    return check_images(job, job->data.dataset_name != NULL);
}

static tt_status check_evaluate(const struct tt_job_spec *job)
{
    TT_TRY(check_images(job, job->data.dataset_name != NULL || job->data.eval_dataset != NULL));
    if (job->detect.weights_path == NULL)
        return tt_job_usage("setting 'weights_path' is missing", "it is the file of the weights to evaluate");
    return TT_OK;
}

static tt_status check_plan(const struct tt_plan_spec *spec)
{
    if (spec->generation_length > 0)
        return tt_job_usage("a detector generates no text", "leave generation_length out");
    if (spec->num_classes == 1)
        return tt_job_usage("num_classes is 1, which is the background alone",
                            "give the number of classes with it");
    return TT_OK;
}

/* ---- Inputs ---- */

static struct tt_model_options options_of(const struct tt_device_spec *device)
{
    return (struct tt_model_options){.compute_dtype = device->bf16 ? TT_BF16 : TT_F32, .random_init = true};
}

/* Parameters that are not in the file begin with random weights (model/detector_weights.h). */
static tt_status open_inputs(const struct tt_inputs_config *config, struct tt_inputs *inputs)
{
    const struct tt_detect_inputs_config detect = {.spec = config->detect,
                                                   .data = config->data,
                                                   .trains = config->use == TT_INPUTS_TRAIN,
                                                   .evaluates = config->evaluates};
    if (config->use == TT_INPUTS_DATA)
        return tt_fail(TT_ERR_USAGE,
                       "the task is detection, and this command shows rows of a language model");
    struct tt_detect_inputs *own = inputs->own = tt_calloc(1, sizeof *own);
    if (own == NULL) return TT_ERR_MEMORY;
    TT_TRY(tt_detect_inputs_open(&detect, own, &inputs->model_facts));
    inputs->model_options = options_of(config->device);
    inputs->source = (struct tt_load_source){.folder = own->weights.folder, .seed = (uint64_t)config->seed};
    return TT_OK;
}

static void close_inputs(struct tt_inputs *inputs)
{
    tt_detect_inputs_close(inputs->own);
    tt_free(inputs->own);
}

static tt_status check_model(const struct tt_inputs *inputs, const struct tt_model *model)
{
    const struct tt_detector_weights *weights = &tt_detect_inputs_of(inputs)->weights;
    return weights->folder != NULL ? tt_detector_weights_check(weights, model) : TT_OK;
}

static tt_status visit_text(const char *name, const struct tt_str *text, tt_input_visit *visit, void *context)
{
    const struct tt_input_part part = {
        .name = name, .sum = tt_crc64(0, tt_str_text(text), text->bytes), .amount = (int64_t)text->bytes};
    return visit(context, &part);
}

static tt_status visit_images(const struct tt_detect_dataset *dataset, const char *what,
                              tt_input_visit *visit, void *context)
{
    char name[64];
    if (dataset == NULL) return TT_OK;
    snprintf(name, sizeof name, "the images and boxes of the %s data", what);
    const struct tt_input_part part = {.name = name,
                                       .sum = tt_detect_inputs_sum(dataset),
                                       .amount = tt_detect_dataset_count(dataset),
                                       .is_data = true};
    return visit(context, &part);
}

/* Weights and boxes; of the images names and sizes. */
static tt_status visit_all(const struct tt_inputs *inputs, tt_input_visit *visit, void *context)
{
    const struct tt_detect_inputs *own = tt_detect_inputs_of(inputs);
    const struct tt_model_folder *folder = own->weights.folder;
    struct tt_input_part weights = {.name = "the weights"};
    if (folder != NULL) {
        weights.weights = tt_model_folder_file_at(folder, 0);
        TT_TRY(visit(context, &weights));
    }
    TT_TRY(visit_text("the network", &own->config_json, visit, context));
    TT_TRY(visit_text("the classes", &own->classes_csv, visit, context));
    TT_TRY(visit_images(own->train, "training", visit, context));
    return visit_images(own->eval, "evaluation", visit, context);
}

/* ---- Plans ---- */

static tt_status network(const struct tt_plan_spec *spec, struct tt_arena *arena,
                         struct tt_model_facts *facts, struct tt_model_options *options)
{
    (void)arena;
    *options = options_of(&spec->job.device);
    return tt_detect_network(&spec->job.detect, spec->num_classes, facts);
}

/* The largest canvas that an image can have, and boxes of which nobody knows the number yet. */
static struct tt_batch_limits limits_of(const struct tt_detect_spec *detect, int64_t batch)
{
    enum { BOXES = 100 };
    size_t side = TT_DETECT_CANVAS_MULTIPLE;
    return (struct tt_batch_limits){.images = batch,
                                    .boxes = batch * BOXES,
                                    .height = (int64_t)tt_align_up((size_t)detect->image_size, side),
                                    .width = (int64_t)tt_align_up((size_t)detect->max_image_size, side)};
}

static tt_status limits(const struct tt_plan_spec *spec, const struct tt_model_facts *facts,
                        struct tt_batch_limits *train, struct tt_batch_limits *eval)
{
    const struct tt_job_spec *job = &spec->job;
    (void)facts;
    *train = limits_of(&job->detect, job->run.per_device_train_batch_size);
    if (job->watch.eval_strategy != TT_INTERVAL_NO)
        *eval = limits_of(&job->detect, job->run.per_device_eval_batch_size);
    return TT_OK;
}

/* Sizes of images are bounded as their settings are. */
static int64_t most(const struct tt_plan_spec *spec, const struct tt_model_facts *model)
{
    enum { SHORTER = 8192, LONGER = 16384 };
    const struct tt_detect_spec *detect = &spec->job.detect;
    (void)model;
    if (detect->max_image_size <= LONGER / SHORTER * detect->image_size) return SHORTER;
    return LONGER * detect->image_size / detect->max_image_size;
}

static void set_size(struct tt_plan_spec *spec, int64_t value)
{
    struct tt_detect_spec *detect = &spec->job.detect;
    detect->max_image_size =
        (2 * value * detect->max_image_size + detect->image_size) / (2 * detect->image_size);
    detect->image_size = value;
}

static int64_t longer_side(const struct tt_plan_spec *spec)
{
    return spec->job.detect.max_image_size;
}

static bool is_whole(const struct tt_model_facts *facts)
{
    return ((const struct tt_retinanet_config *)(const void *)facts->own)->batch_norm;
}

static tt_status plan_from(struct tt_job_spec *job, const char *file)
{
    if (job->detect.weights_path == NULL) {
        tt_status status = tt_fail(TT_ERR_USAGE, "weights_file is given, but weights_path is not");
        tt_hint("weights_path is the path in the pods, weights_file a copy on this machine");
        return status;
    }
    job->detect.weights_path = file;
    return TT_OK;
}

const struct tt_task_ops tt_task_detection = {
    .objective = "detection",
    .planned_file = "the weights file of this machine; --weights_file FILE names another",
    .plan_from = plan_from,
    .size = {.setting = "image_size",
             .follows = "max_image_size",
             .end = "larger images are not possible",
             .others = "a detector has images, and no rows with a length",
             .least = 32,
             .most = most,
             .set = set_size,
             .follower = longer_side},
    .suggest = suggest,
    .check = check,
    .check_train = check_train,
    .check_evaluate = check_evaluate,
    .check_plan = check_plan,
    .open = open_inputs,
    .close = close_inputs,
    .check_model = check_model,
    .visit = visit_all,
    .network = network,
    .limits = limits,
    .is_whole = is_whole,
};
