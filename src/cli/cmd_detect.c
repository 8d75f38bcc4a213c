#include <stddef.h>

#include "base/file.h"
#include "cli/commands.h"
#include "infer/detect_folder.h"
#include "job/data_files.h"

struct detect_command {
    const char *weights_path, *local_image_dir, *dataset_name, *cache_dir, *annotations, *class_descriptions;
    const char *image_labels, *class_hierarchy, *output_dir;
    int split, labels, box_format, dtype;
    int64_t image_size, max_image_size, max_val, num_workers, pictures, cpu_threads;
    double score_threshold, picture_score, norm_eps;
    size_t cache_size, max_pixels;
    bool evaluate, skip_corrupt, json;
};

#define FIELD(member) .offset = offsetof(struct detect_command, member)

/* One row reads as one paragraph. */
/* clang-format off */
static const struct tt_setting own_settings[] = {
    {.name = "weights_path", .type = TT_SETTING_STRING, FIELD(weights_path), .required = true, .path = TT_PATH_READ,
     .help = "Weights of torchvision's retinanet_resnet50_fpn or _v2: a .pth file, which is read without executing "
             "anything in it, or safetensors."},
    {.name = "local_image_dir", .type = TT_SETTING_STRING, FIELD(local_image_dir), .path = TT_PATH_READ,
     .help = "Folder of the images, JPEG or PNG; also in its folders data, train and validation."},
    {.name = "dataset_name", .type = TT_SETTING_STRING, FIELD(dataset_name), .path = TT_PATH_READ,
     .help = "A Parquet or Arrow file that contains images and boxes, or a folder of such files per split, instead."},
    {.name = "bbox_format", .type = TT_SETTING_CHOICE, FIELD(box_format), .default_text = "xywh",
     .choices = "xywh xyxy cxcywh", .needs = "dataset_name",
     .help = "How its boxes are written, in pixels: left, top, width, height; left, top, right, bottom; or centre, "
             "width, height."},
    {.name = "output_dir", .type = TT_SETTING_STRING, FIELD(output_dir), .path = TT_PATH_WRITE,
     .help = "Folder for results.json, in COCO's format, and the pictures. Without it nothing is written."},
    {.name = "evaluate", .type = TT_SETTING_BOOL, FIELD(evaluate), .default_text = "true",
     .help = "Compare with annotations: COCO's mean average precision. Without it all images of the folder are read."},
    {.name = "annotations", .type = TT_SETTING_STRING, FIELD(annotations), .path = TT_PATH_READ,
     .help = "Boxes of Open Images (.csv) or of COCO (.json). Otherwise found by their usual names in cache_dir, in "
             "the folder above the images, and in theirs."},
    {.name = "class_descriptions", .type = TT_SETTING_STRING, FIELD(class_descriptions), .path = TT_PATH_READ,
     .help = "Open Images' classes (class-descriptions-boxable.csv); otherwise those of the training, in classes.csv "
             "beside the weights, or found like the annotations."},
    {.name = "image_labels", .type = TT_SETTING_STRING, FIELD(image_labels), .path = TT_PATH_READ,
     .help = "Open Images' image-level labels that people verified "
             "(validation-annotations-human-imagelabels-boxable.csv), for its mean average precision; otherwise found "
             "like the annotations, or none: every class counts in every image."},
    {.name = "class_hierarchy", .type = TT_SETTING_STRING, FIELD(class_hierarchy), .path = TT_PATH_READ,
     .help = "Open Images' hierarchy of classes (bbox_labels_600_hierarchy.json): in its mean average precision boxes "
             "count for the classes above theirs too."},
    {.name = "split", .type = TT_SETTING_CHOICE, FIELD(split), .default_text = "validation",
     .choices = "train validation", .help = "Which annotations are read."},
    {.name = "category_labels", .type = TT_SETTING_CHOICE, FIELD(labels), .default_text = "raw",
     .choices = "sorted raw",
     .help = "Labels of COCO's categories: 1 to K in the order of the ids, or the raw ids, as published weights "
             "have them."},
    {.name = "cache_dir", .type = TT_SETTING_STRING, FIELD(cache_dir), .path = TT_PATH_WRITE,
     .help = "Folder for sizes and decoded pixels, also searched for annotations."},
    {.name = "cache_size", .type = TT_SETTING_BYTES, FIELD(cache_size), .default_text = "2GiB", .needs = "cache_dir",
     .help = "Most bytes of decoded pixels in cache_dir."},
    {.name = "max_val", .type = TT_SETTING_INT, FIELD(max_val), .default_text = "0", .maximum = 1e12,
     .help = "Only so many images, the first by id; 0: all."},
    {.name = "image_size", .type = TT_SETTING_INT, FIELD(image_size), .default_text = "800", .minimum = 32,
     .maximum = 8192, .help = "Length of the shorter side of a resized image."},
    {.name = "max_image_size", .type = TT_SETTING_INT, FIELD(max_image_size), .default_text = "1333", .minimum = 32,
     .maximum = 16384, .help = "Most length of its longer side."},
    {.name = "num_workers", .type = TT_SETTING_INT, FIELD(num_workers), .default_text = "1", .minimum = 1,
     .maximum = 64, .help = "Threads that decode and resize images."},
    {.name = "cpu_threads", .type = TT_SETTING_INT, FIELD(cpu_threads), .default_text = "0", .maximum = 1024,
     .help = "Threads that compute; 0: one for each processor."},
    {.name = "dtype", .aliases = "torch_dtype", .type = TT_SETTING_CHOICE, FIELD(dtype), .default_text = "float32",
     .choices = "float32 bfloat16", .help = "Type of the computation."},
    {.name = "frozen_bn_eps", .type = TT_SETTING_DOUBLE, FIELD(norm_eps), .default_text = "-1", .minimum = -1,
     .maximum = 1, .help = "Constant of the frozen norms; -1: 0 for torchvision's COCO_V1 weights, which are known by "
                           "their sum, and 1e-5 for others, as torchvision itself does."},
    {.name = "score_threshold", .type = TT_SETTING_DOUBLE, FIELD(score_threshold), .default_text = "0.05",
     .maximum = 1, .help = "Detections have a larger score."},
    {.name = "pictures", .type = TT_SETTING_INT, FIELD(pictures), .default_text = "20", .maximum = 1e9,
     .needs = "output_dir",
     .help = "Images that are written into output_dir/pictures with boxes drawn."},
    {.name = "picture_score", .type = TT_SETTING_DOUBLE, FIELD(picture_score), .default_text = "0.5", .maximum = 1,
     .needs = "output_dir",
     .help = "Least score of a box that is drawn."},
    {.name = "skip_corrupt_images", .type = TT_SETTING_BOOL, FIELD(skip_corrupt), .default_text = "false",
     .help = "Decode every image first and leave out those that are damaged, instead of stopping."},
    {.name = "max_image_pixels", .type = TT_SETTING_BYTES, FIELD(max_pixels), .default_text = "178956970",
     .help = "Most pixels of an image; larger ones are refused before they are decoded."},
    {.name = "json", .type = TT_SETTING_BOOL, FIELD(json), .default_text = "false",
     .help = "Print one JSON object."},
    {.name = NULL},
};
/* clang-format on */

static size_t list_sections(struct tt_setting_section *sections)
{
    sections[0] = (struct tt_setting_section){"Detect", own_settings, 0};
    return 1;
}

/* Names of torchmetrics, in the order of pycocotools. */
struct figure {
    const char *name, *text;
    double value;
};
enum { FIGURES = 13 };

static void list_figures(const struct tt_detect_figures *measured, struct figure figures[FIGURES])
{
    const struct tt_coco_map *map = &measured->coco;
    const struct figure all[FIGURES] = {
        {"map", "precision, IoU 0.50 to 0.95", map->map},
        {"map_50", "precision, IoU 0.50", map->map_50},
        {"map_75", "precision, IoU 0.75", map->map_75},
        {"map_small", "precision, small (to 32 x 32)", map->map_small},
        {"map_medium", "precision, medium", map->map_medium},
        {"map_large", "precision, large (from 96 x 96)", map->map_large},
        {"mar_1", "recall, 1 detection an image", map->mar_1},
        {"mar_10", "recall, 10 detections", map->mar_10},
        {"mar_100", "recall, 100 detections", map->mar_100},
        {"mar_small", "recall, small", map->mar_small},
        {"mar_medium", "recall, medium", map->mar_medium},
        {"mar_large", "recall, large", map->mar_large},
        {"open_images_map_50", "Open Images' precision", measured->open_images_map_50},
    };
    for (int i = 0; i < FIGURES; i++) figures[i] = all[i];
}

struct line {
    const char *name, *text;
    int64_t count;
};
enum { LINES = 8 };

static void list_lines(const struct tt_detect_report *data, struct line lines[LINES])
{
    const struct line all[LINES] = {
        {"images_absent", "images without a file", data->images_absent},
        {"rows_absent", "boxes of these", data->rows_absent},
        {"images_corrupt", "damaged images, left out", data->images_corrupt},
        {"images_over", "images above max_val", data->images_over},
        {"boxes_empty", "boxes without width or height, left out", data->boxes_empty},
        {"boxes_outside", "boxes outside their image, left out", data->boxes_outside},
        {"boxes_unknown", "boxes of unknown classes, left out", data->boxes_unknown},
        {"boxes", "boxes", data->boxes},
    };
    for (int i = 0; i < LINES; i++) lines[i] = all[i];
}

static tt_status write_text(struct tt_str *text, const struct detect_command *command,
                            const struct tt_detect_summary *summary)
{
    struct figure figures[FIGURES];
    struct line lines[LINES];
    list_figures(&summary->figures, figures);
    list_lines(&summary->data, lines);
    TT_TRY(tt_str_printf(text, "%lld images, %lld detections, %.2f images a second\n",
                         (long long)summary->data.images, (long long)summary->detections,
                         summary->seconds > 0 ? (double)summary->data.images / summary->seconds : 0.0));
    for (int i = 0; i < LINES; i++)
        if (lines[i].count > 0)
            TT_TRY(tt_str_printf(text, "%8lld %s\n", (long long)lines[i].count, lines[i].text));
    for (int i = 0; i < FIGURES && command->evaluate; i++)
        TT_TRY(figures[i].value >= 0
                   ? tt_str_printf(text, "%-18s %-34s %.4f\n", figures[i].name, figures[i].text,
                                   figures[i].value)
                   : tt_str_printf(text, "%-18s %-34s no such boxes\n", figures[i].name, figures[i].text));
    if (command->output_dir != NULL)
        TT_TRY(tt_str_printf(text, "results.json and %lld pictures are in '%s'\n",
                             (long long)summary->pictures, command->output_dir));
    return TT_OK;
}

static tt_status write_json(struct tt_str *text, const struct detect_command *command,
                            const struct tt_detect_summary *summary)
{
    struct figure figures[FIGURES];
    struct line lines[LINES];
    list_figures(&summary->figures, figures);
    list_lines(&summary->data, lines);
    struct tt_json_value *root =
        tt_json_pack("{s:I,s:I,s:I,s:f}", "images", summary->data.images, "detections", summary->detections,
                     "pictures", summary->pictures, "seconds", summary->seconds);
    for (int i = 0; i < LINES; i++) tt_json_set(root, lines[i].name, tt_json_new_integer(lines[i].count));
    for (int i = 0; i < FIGURES && command->evaluate; i++)
        tt_json_set(root, figures[i].name, tt_json_new_real(figures[i].value));
    tt_status status = tt_json_write(root, 2, false, text);
    tt_json_release(root);
    return status == TT_OK ? tt_str_append_char(text, '\n') : status;
}

/* Lent by the command, the paths and the tables. */
static struct tt_detect_folder_config config_of(const struct detect_command *command, const char *results,
                                                const char *pictures, const struct tt_detect_tables *tables)
{
    bool writes = command->output_dir != NULL;
    return (struct tt_detect_folder_config){
        .detector = {.weights_path = command->weights_path,
                     .norm_eps = command->norm_eps,
                     .compute_dtype = command->dtype == 0 ? TT_F32 : TT_BF16,
                     .threads = (int)command->cpu_threads},
        .data = {.image_dir = command->local_image_dir,
                 .cache_dir = command->cache_dir,
                 .annotations = command->annotations,
                 .classes = command->class_descriptions,
                 .image_labels = command->image_labels,
                 .class_hierarchy = command->evaluate ? command->class_hierarchy : NULL,
                 .tables = tables->paths,
                 .table_count = tables->count,
                 .tables_of_split = true,
                 .box_format = (enum tt_box_format)command->box_format,
                 .split = command->split == 0 ? TT_DETECT_TRAIN : TT_DETECT_VALIDATION,
                 .labels = command->labels == 0 ? TT_DETECT_LABELS_SORTED : TT_DETECT_LABELS_RAW,
                 .max_images = command->max_val,
                 .skip_corrupt = command->skip_corrupt,
                 .max_pixels = (int64_t)command->max_pixels,
                 .threads = (int)command->num_workers},
        .evaluate = command->evaluate,
        .min_size = command->image_size,
        .max_size = command->max_image_size,
        .workers = command->num_workers,
        .cache_bytes = command->cache_size,
        .score_threshold = command->score_threshold,
        .results_path = writes ? results : NULL,
        .picture_dir = writes && command->pictures > 0 ? pictures : NULL,
        .picture_score = command->picture_score,
        .picture_count = command->pictures};
}

/* All rows of a file, or of the split of a folder. */
static tt_status find_tables(const struct detect_command *command, struct tt_detect_tables *tables)
{
    const struct tt_data_config data = {.dataset_name = command->dataset_name,
                                        .dataset_train_split = "train",
                                        .dataset_test_split = "validation"};
    if (command->dataset_name == NULL && command->local_image_dir == NULL) {
        tt_fail(TT_ERR_USAGE, "setting 'local_image_dir' is missing");
        tt_hint(
            "it is a folder of images; dataset_name is a Parquet or Arrow file that contains or names them");
        return TT_ERR_USAGE;
    }
    if (command->dataset_name != NULL && command->annotations != NULL) {
        tt_fail(TT_ERR_USAGE, "dataset_name and annotations are both given");
        tt_hint("Parquet and Arrow files have images and boxes; annotations are of local_image_dir");
        return TT_ERR_USAGE;
    }
    return tt_detect_tables_find(&data, command->split == 0, tables);
}

static tt_status run(struct tt_cli *cli, const struct tt_command_call *call)
{
    const struct detect_command *command = call->target;
    struct tt_detect_summary summary;
    struct tt_detect_tables tables = {0};
    tt_status status = TT_OK;
    struct tt_str text = {0};
    struct tt_path results = {0}, pictures = {0};
    TT_TRY(find_tables(command, &tables));
    if (command->output_dir != NULL) {
        TT_GO(tt_dir_create(command->output_dir));
        TT_GO(tt_path_set(&results, command->output_dir, "results.json"));
        TT_GO(tt_path_set(&pictures, command->output_dir, "pictures"));
    }
    const struct tt_detect_folder_config config = config_of(command, results.text, pictures.text, &tables);
    TT_GO(tt_detect_folder(&config, cli->cancel, &summary));
    TT_GO(command->json ? write_json(&text, command, &summary) : write_text(&text, command, &summary));
    status = tt_report_print(cli->report, tt_str_text(&text));
out:
    tt_detect_tables_deinit(&tables);
    tt_str_deinit(&text);
    return status;
}

const struct tt_command_ops tt_cmd_detect = {
    .usage = " --weights_path FILE.pth --local_image_dir FOLDER|--dataset_name FILE.parquet [--output_dir "
             "FOLDER] [--key value ...]",
    .sections = list_sections,
    .target_bytes = sizeof(struct detect_command),
    .run = run,
};
