#include "job/detect_inputs.h"

#include <string.h>

#include "base/crc64.h"
#include "base/file.h"
#include "base/log.h"
#include "job/data_files.h"

/* ---- Images ---- */

/* The name of the images in messages. */
static const char *name_of(const struct tt_detect_inputs_config *config)
{
    return config->data->dataset_name != NULL ? config->data->dataset_name : config->spec->local_image_dir;
}

static struct tt_detect_dataset_config data_config(const struct tt_detect_inputs *inputs, const char *classes,
                                                   const struct tt_detect_tables *tables, bool train)
{
    const struct tt_detect_spec *spec = inputs->spec;
    bool own = !train && spec->eval_annotations != NULL;
    return (struct tt_detect_dataset_config){
        .image_dir = spec->local_image_dir,
        .cache_dir = spec->cache_dir,
        .tables = tables->paths,
        .table_count = tables->count,
        .tables_of_split = tables->of_split,
        .box_format = spec->bbox_format,
        .annotations = own ? spec->eval_annotations : spec->annotations,
        .classes = classes,
        .image_labels = train ? NULL : spec->image_labels,
        .class_hierarchy = train ? NULL : spec->class_hierarchy,
        .split = train ? TT_DETECT_TRAIN : TT_DETECT_VALIDATION,
        .labels = spec->category_labels,
        .validation_share = own ? 0 : spec->validation_share,
        .max_images = train ? spec->max_train : spec->max_val,
        .train = train,
        .keep_empty = spec->keep_empty_images,
        .skip_corrupt = spec->skip_corrupt_images,
        .cache = inputs->cache,
        .classes_of = train ? NULL : inputs->train,
        .max_pixels = (int64_t)spec->max_image_pixels,
        .threads = spec->num_workers > 1 ? (int)spec->num_workers : 1,
    };
}

static tt_status find_classes(const struct tt_detect_spec *spec, struct tt_path *path)
{
    if (spec->class_descriptions != NULL) return tt_path_set(path, "", spec->class_descriptions);
    return tt_detect_classes_beside(spec->weights_path, path);
}

static tt_status load_split(const struct tt_detect_inputs_config *config, struct tt_detect_inputs *inputs,
                            const char *classes, bool train)
{
    struct tt_detect_tables tables;
    tt_status status = tt_detect_tables_find(config->data, train, &tables);
    if (status == TT_OK) {
        struct tt_detect_dataset_config data = data_config(inputs, classes, &tables, train);
        status = tt_detect_dataset_load(&data, train ? &inputs->train : &inputs->eval);
    }
    if (status != TT_OK) tt_while(train ? "loading the training data" : "loading the evaluation data");
    tt_detect_tables_deinit(&tables);
    return status;
}

/* The classes beside the weights number those of a training, unless it has others: then it numbers its own. */
static tt_status load_train(const struct tt_detect_inputs_config *config, struct tt_detect_inputs *inputs,
                            const char **classes)
{
    bool beside = *classes != NULL && config->spec->class_descriptions == NULL;
    tt_status status = load_split(config, inputs, *classes, true);
    bool others = status == TT_OK && tt_detect_dataset_report(inputs->train)->boxes_unknown > 0;
    if (!beside || (status != TT_ERR_DATA && !others)) return status;
    tt_detect_dataset_destroy(inputs->train);
    inputs->train = NULL;
    tt_error_clear();
    TT_TRY(load_split(config, inputs, NULL, true));
    tt_info("the annotations have classes that '%s' beside the weights has not: classes are numbered anew "
            "(--class_descriptions keeps a list)",
            *classes);
    inputs->other_classes = true;
    *classes = NULL;
    return TT_OK;
}

static tt_status load_data(const struct tt_detect_inputs_config *config, struct tt_detect_inputs *inputs)
{
    struct tt_path classes;
    TT_TRY(find_classes(config->spec, &classes));
    const char *file = classes.text[0] != '\0' ? classes.text : NULL;
    if (config->trains) {
        TT_TRY(load_train(config, inputs, &file));
        if (tt_detect_dataset_count(inputs->train) == 0)
            return tt_fail(TT_ERR_DATA, "no image of '%s' has a box to train on", name_of(config));
    }
    if (!config->evaluates) return TT_OK;
    TT_TRY(load_split(config, inputs, file, false));
    if (tt_detect_dataset_count(inputs->eval) > 0) return TT_OK;
    tt_status status = tt_fail(TT_ERR_DATA, "there is no image to evaluate in '%s'", name_of(config));
    tt_hint("give --eval_annotations FILE, a larger --validation_share, or --eval_strategy no");
    return status;
}

/* ---- The network ---- */

/* Keys of COCO's classes are their ids. */
static bool has_ids(const struct tt_detect_dataset *data)
{
    for (int64_t label = 1; label < tt_detect_dataset_class_count(data); label++) {
        const char *key = tt_detect_dataset_class(data, label)->key;
        if (key != NULL) return key[0] >= '0' && key[0] <= '9';
    }
    return false;
}

static struct tt_retinanet_config random_shape(const struct tt_detect_spec *spec, int64_t classes)
{
    struct tt_retinanet_config shape = tt_retinanet_config_default(classes);
    shape.width = spec->backbone_width;
    shape.pyramid = spec->pyramid_width;
    for (int i = 0; i < TT_RETINANET_STAGES && spec->backbone_blocks > 0; i++)
        shape.blocks[i] = spec->backbone_blocks;
    if (spec->frozen_bn_eps >= 0) shape.norm_eps = spec->frozen_bn_eps;
    if (spec->architecture == TT_ARCHITECTURE_RETINANET_V2) shape.head_groups = TT_RETINANET_GROUPS;
    return shape;
}

static const char *architecture_of(const struct tt_retinanet_config *shape)
{
    return shape->head_groups > 0 ? "retinanet_resnet50_fpn_v2" : "retinanet_resnet50_fpn";
}

static bool has_batch_norm(const struct tt_detect_spec *spec, const struct tt_retinanet_config *shape)
{
    return spec->norm == TT_NORMS_BATCH || (spec->norm == TT_NORMS_AUTO && shape->head_groups > 0);
}

/* The network of the weights; a backbone alone is completed by the settings. */
static tt_status take_shape(const struct tt_detect_spec *spec, const struct tt_detector_weights *weights,
                            struct tt_retinanet_config *shape)
{
    const struct tt_retinanet_config random = *shape;
    *shape = weights->shape;
    if (weights->backbone_alone) {
        shape->pyramid = random.pyramid;
        shape->head_groups = random.head_groups;
    }
    bool second = shape->head_groups > 0;
    if (spec->architecture == (second ? TT_ARCHITECTURE_RETINANET : TT_ARCHITECTURE_RETINANET_V2)) {
        tt_status status = tt_fail(TT_ERR_USAGE, "architecture is %s, and '%s' has the weights of %s",
                                   architecture_of(&random), spec->weights_path, architecture_of(shape));
        tt_hint("leave architecture out: it follows from the weights");
        return status;
    }
    return TT_OK;
}

/* The columns of the classifier are those of the data. Raw ids of COCO, and evaluations, take a wider one of the
 * weights. */
static tt_status open_weights(const struct tt_detect_inputs_config *config, struct tt_detect_inputs *inputs,
                              struct tt_retinanet_config *shape)
{
    const struct tt_detect_spec *spec = config->spec;
    const struct tt_detect_dataset *data = config->trains ? inputs->train : inputs->eval;
    struct tt_detector_weights *weights = &inputs->weights;
    int64_t classes = tt_detect_dataset_class_count(data);
    if (classes < 2) return tt_fail(TT_ERR_DATA, "the annotations of '%s' have no class", name_of(config));
    *shape = random_shape(spec, classes);
    if (spec->weights_path != NULL) {
        bool raw = spec->category_labels == TT_DETECT_LABELS_RAW && config->data->dataset_name == NULL;
        bool or_more = !config->trains || (raw && has_ids(data));
        enum tt_classifier_fit fit = inputs->other_classes ? TT_CLASSIFIER_ANEW
                                     : or_more             ? TT_CLASSIFIER_OR_MORE
                                                           : TT_CLASSIFIER_EXACT;
        TT_TRY(tt_detector_weights_open(spec->weights_path, spec->frozen_bn_eps, classes, fit, weights));
        TT_TRY(take_shape(spec, weights, shape));
    }
    shape->trainable_stages = (int)spec->trainable_layers;
    shape->batch_norm = config->trains && has_batch_norm(spec, shape);
    inputs->norm = shape->batch_norm ? TT_NORMS_BATCH : TT_NORMS_FROZEN;
    if (config->trains || !(weights->replaces_classes || weights->backbone_alone)) return TT_OK;
    tt_status status =
        tt_fail(TT_ERR_DATA, "the annotations have %lld classes, and '%s' does not find as many",
                (long long)classes - 1, spec->weights_path);
    tt_hint("weights of other classes cannot be compared with these annotations");
    return status;
}

tt_status tt_detect_network(const struct tt_detect_spec *spec, int64_t class_count,
                            struct tt_model_facts *facts)
{
    enum { COCO_COLUMNS = 91 };
    struct tt_retinanet_config shape = random_shape(spec, class_count > 0 ? class_count : COCO_COLUMNS);
    struct tt_detector_weights weights = {0};
    if (spec->weights_path != NULL) {
        TT_TRY(tt_detector_weights_open(spec->weights_path, 0, shape.class_count, TT_CLASSIFIER_EXACT,
                                        &weights));
        if (class_count == 0 && weights.replaces_classes) {
            tt_detector_weights_close(&weights);
            TT_TRY(tt_detector_weights_open(spec->weights_path, 0, 0, TT_CLASSIFIER_EXACT, &weights));
        }
        tt_status status = take_shape(spec, &weights, &shape);
        tt_detector_weights_close(&weights);
        TT_TRY(status);
    }
    shape.trainable_stages = (int)spec->trainable_layers;
    shape.batch_norm = has_batch_norm(spec, &shape);
    return tt_retinanet_facts(&shape, facts);
}

/* ---- Files stored with the weights ---- */

static tt_status write_config(const struct tt_retinanet_config *shape, struct tt_str *text)
{
    struct tt_json_value *blocks = tt_json_new_list();
    for (int i = 0; i < TT_RETINANET_STAGES; i++)
        tt_json_append(blocks, tt_json_new_integer(shape->blocks[i]));
    struct tt_json_value *root =
        tt_json_pack("{s:s,s:[s],s:s,s:s,s:I,s:I,s:I,s:f,s:o}", "model_type", "retinanet", "architectures",
                     "RetinaNet", "architecture", architecture_of(shape), "torch_dtype", "float32",
                     "num_classes", shape->class_count, "backbone_width", shape->width, "pyramid_width",
                     shape->pyramid, "frozen_bn_eps", shape->norm_eps, "backbone_blocks", blocks);
    tt_status status = tt_json_write(root, 2, false, text);
    tt_json_release(root);
    return status == TT_OK ? tt_str_append_char(text, '\n') : status;
}

static tt_status append_field(struct tt_str *text, const char *field)
{
    bool quotes = strpbrk(field, ",\"\r\n") != NULL;
    if (!quotes) return tt_str_append_text(text, field);
    TT_TRY(tt_str_append_char(text, '"'));
    for (const char *at = field; *at != '\0'; at++) {
        if (*at == '"') TT_TRY(tt_str_append_char(text, '"'));
        TT_TRY(tt_str_append_char(text, *at));
    }
    return tt_str_append_char(text, '"');
}

static tt_status write_classes(const struct tt_detect_dataset *data, struct tt_str *text)
{
    for (int64_t label = 1; label < tt_detect_dataset_class_count(data); label++) {
        const struct tt_detect_class *class = tt_detect_dataset_class(data, label);
        if (class->key == NULL) continue;
        TT_TRY(append_field(text, class->key));
        TT_TRY(tt_str_append_char(text, ','));
        TT_TRY(append_field(text, class->name != NULL ? class->name : class->key));
        TT_TRY(tt_str_append_char(text, '\n'));
    }
    return TT_OK;
}

/* ---- All of them ---- */

tt_status tt_detect_inputs_open(const struct tt_detect_inputs_config *config, struct tt_detect_inputs *inputs,
                                struct tt_model_facts *facts)
{
    const struct tt_detect_spec *spec = config->spec;
    struct tt_retinanet_config shape;
    tt_status status = TT_OK;
    *inputs = (struct tt_detect_inputs){.spec = spec};
    if (spec->cache_dir != NULL && spec->cache_size > 0) {
        TT_GO(tt_dir_create(spec->cache_dir));
        TT_GO(tt_pixel_cache_open(spec->cache_dir, spec->cache_size, &inputs->cache));
    }
    TT_GO(load_data(config, inputs));
    TT_GO(open_weights(config, inputs, &shape));
    TT_GO(tt_retinanet_facts(&shape, facts));
    TT_GO(write_config(&shape, &inputs->config_json));
    TT_GO(write_classes(config->trains ? inputs->train : inputs->eval, &inputs->classes_csv));
out:
    if (status != TT_OK) tt_detect_inputs_close(inputs);
    return status;
}

void tt_detect_inputs_close(struct tt_detect_inputs *inputs)
{
    tt_detect_dataset_destroy(inputs->eval); /* may have the classes of `train` */
    tt_detect_dataset_destroy(inputs->train);
    tt_pixel_cache_close(inputs->cache);
    tt_detector_weights_close(&inputs->weights);
    tt_str_deinit(&inputs->config_json);
    tt_str_deinit(&inputs->classes_csv);
    *inputs = (struct tt_detect_inputs){0};
}

struct tt_detect_inputs *tt_detect_inputs_of(const struct tt_inputs *inputs)
{
    return inputs->own;
}

static tt_status add_count(struct tt_str *text, int64_t count, const char *what, const char *first)
{
    if (count == 0) return TT_OK;
    TT_TRY(tt_str_printf(text, "; %lld %s", (long long)count, what));
    return first != NULL && first[0] != '\0' ? tt_str_printf(text, " (the first: %s)", first) : TT_OK;
}

tt_status tt_detect_inputs_describe(const struct tt_detect_dataset *dataset, const char *what,
                                    struct tt_str *text)
{
    const struct tt_detect_report *report = tt_detect_dataset_report(dataset);
    int64_t classes = 0;
    for (int64_t label = 1; label < tt_detect_dataset_class_count(dataset); label++)
        classes += tt_detect_dataset_class(dataset, label)->key != NULL;
    TT_TRY(tt_str_printf(text, "%s: %lld images, %lld boxes, %lld classes", what, (long long)report->images,
                         (long long)report->boxes, (long long)classes));
    TT_TRY(add_count(text, report->images_over, "more images above the limit", NULL));
    TT_TRY(add_count(text, report->images_absent, "annotated images without a file", report->first_absent));
    TT_TRY(add_count(text, report->images_empty, "images without a box, left out", NULL));
    TT_TRY(add_count(text, report->images_corrupt, "damaged images, left out", report->first_corrupt));
    TT_TRY(
        add_count(text, report->images_background, "of the images without a box, kept as background", NULL));
    TT_TRY(add_count(text, report->boxes_empty, "boxes without width or height, left out", NULL));
    TT_TRY(add_count(text, report->boxes_outside, "boxes outside their image, left out", NULL));
    return add_count(text, report->boxes_unknown, "boxes of unknown classes, left out",
                     report->first_unknown);
}

tt_status tt_detect_inputs_describe_weights(const struct tt_detect_inputs *inputs, struct tt_str *text)
{
    const struct tt_detector_weights *weights = &inputs->weights;
    if (inputs->spec->weights_path == NULL)
        return tt_str_append_text(text, inputs->norm == TT_NORMS_BATCH
                                            ? "weights: random"
                                            : "weights: random, with norms that change nothing");
    TT_TRY(tt_str_printf(text, "weights: '%s'", inputs->spec->weights_path));
    if (weights->backbone_alone)
        return tt_str_append_text(text, ", a backbone alone: pyramid and heads begin with random weights");
    if (!weights->replaces_classes) return TT_OK;
    return tt_str_printf(text,
                         "; the classifier is of other classes: its last convolution begins with random "
                         "weights for %lld",
                         (long long)weights->shape.class_count - 1);
}

/* Eleven steps of 32 up to 800, as torchvision's references draw them; in proportion for other sizes. */
static void draw_sizes(const struct tt_detect_spec *spec, struct tt_detect_view *view)
{
    enum { SIZES = 11, LEAST = 480, STEP = 32, MOST = 800 };
    view->min_size_count = SIZES;
    for (int i = 0; i < SIZES; i++) {
        int64_t size = spec->image_size * (LEAST + STEP * i) / MOST;
        view->min_sizes[i] = size > 0 ? (int)size : 1;
    }
}

struct tt_detect_order_config tt_detect_inputs_order(const struct tt_detect_spec *spec, bool train,
                                                     int64_t batch_size, int world_size, int64_t accumulation,
                                                     uint64_t seed)
{
    struct tt_detect_order_config order = {
        .view = {.min_size_count = 1,
                 .min_sizes = {(int)spec->image_size},
                 .max_size = (int)spec->max_image_size,
                 .flip = train ? spec->hflip : 0},
        .batch_size = batch_size,
        .world_size = world_size,
        .accumulation = accumulation,
        .seed = seed,
        .train = train,
        .group_by_aspect = train && spec->group_by_aspect,
        .own_canvas = !train,
    };
    if (train && spec->multiscale) draw_sizes(spec, &order.view);
    return order;
}

uint64_t tt_detect_inputs_sum(const struct tt_detect_dataset *dataset)
{
    uint64_t sum = 0;
    for (int64_t i = 0; i < tt_detect_dataset_count(dataset); i++) {
        const struct tt_detect_record *record = tt_detect_dataset_record(dataset, i);
        const struct tt_detect_box *boxes = tt_detect_dataset_boxes(dataset, i);
        sum = tt_crc64(sum, record->name, strlen(record->name) + 1);
        sum = tt_crc64(sum, &record->file.height, sizeof record->file.height);
        sum = tt_crc64(sum, &record->file.width, sizeof record->file.width);
        for (int64_t b = 0; b < record->box_count; b++) {
            const double sides[4] = {boxes[b].x, boxes[b].y, boxes[b].w, boxes[b].h};
            sum = tt_crc64(sum, sides, sizeof sides);
            sum = tt_crc64(sum, &boxes[b].label, sizeof boxes[b].label);
        }
    }
    return sum;
}
