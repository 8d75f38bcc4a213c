#include "run/shown_pictures.h"

#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/log.h"
#include "base/number.h"
#include "base/utf8.h"
#include "detect/drawing.h"
#include "job/detect_inputs.h"
#include "run/journal.h"

/* LONGEST: pixels of the longer side of a picture. */
enum { LONGEST = 800, JPEG_QUALITY = 90, NAME_BYTES = 300 };
/* Blue and orange, which most eyes tell apart. */
static const uint8_t truth_colour[3] = {0, 140, 255}, found_colour[3] = {255, 120, 0};

tt_status tt_shown_pictures_open(const struct tt_shown_pictures_config *config,
                                 struct tt_shown_pictures *pictures)
{
    const struct tt_detect_inputs *inputs = tt_detect_inputs_of(config->inputs);
    struct tt_path path;
    if (inputs->eval == NULL || inputs->spec->eval_pictures == 0) return TT_OK;
    pictures->inputs = inputs;
    pictures->output_dir = config->output_dir;
    pictures->journal = config->journal;
    TT_TRY(tt_path_set(&path, config->output_dir, "pictures"));
    TT_TRY(tt_dir_create(path.text));
    TT_TRY(tt_path_set(&path, config->output_dir, "pictures.jsonl"));
    return tt_record_file_continue(path.text, config->first_step, &pictures->file);
}

void tt_shown_pictures_deinit(struct tt_shown_pictures *pictures)
{
    tt_record_file_close(pictures->file);
    *pictures = (struct tt_shown_pictures){0};
}

/* The pictures of one evaluation. */
struct drawing {
    const struct tt_shown_pictures *pictures;
    int64_t step;
    const struct tt_map_detection *found; /* [count], of all images */
    int64_t count;
    struct tt_image image, picture;
    struct tt_detection_list list;
    struct tt_str bytes;
};

static tt_status list_found(struct drawing *drawing, int64_t image)
{
    struct tt_detection_list *list = &drawing->list;
    list->count = 0;
    for (int64_t i = 0; i < drawing->count; i++) {
        const struct tt_map_detection *found = &drawing->found[i];
        if (found->image != image) continue;
        if ((size_t)list->count == list->capacity &&
            tt_grow(&list->items, list->capacity, &list->capacity) != 0)
            return TT_ERR_MEMORY;
        list->items[list->count++] = (struct tt_detection){
            (float)found->x,     (float)found->y, (float)(found->x + found->w), (float)(found->y + found->h),
            (float)found->score, found->label};
    }
    return TT_OK;
}

static tt_status record(struct drawing *drawing, const struct tt_detect_record *record, const char *file,
                        int64_t boxes, int64_t detections)
{
    char name[NAME_BYTES];
    tt_status status = TT_OK;
    tt_utf8_printable(record->name, strlen(record->name), "", name, sizeof name);
    struct tt_json_value *row =
        tt_json_pack("{s:I,s:I,s:s,s:s,s:I,s:I,s:I,s:I}", "step", drawing->step, "id", record->id, "image",
                     name, "file", file, "width", (int64_t)drawing->picture.width, "height",
                     (int64_t)drawing->picture.height, "boxes", boxes, "detections", detections);
    tt_str_clear(&drawing->bytes);
    if (row == NULL) return TT_ERR_MEMORY;
    TT_GO(tt_json_write(row, 0, false, &drawing->bytes));
    TT_GO(tt_str_append_char(&drawing->bytes, '\n'));
    tt_record_file_append(drawing->pictures->file, drawing->bytes.data, drawing->bytes.bytes);
out:
    tt_json_release(row);
    return status;
}

static tt_status write(struct drawing *drawing, const struct tt_detect_record *image, int64_t boxes,
                       int64_t detections)
{
    struct tt_journal *journal = drawing->pictures->journal;
    struct tt_path path;
    char name[64], file[80];
    tt_snprintf(name, sizeof name, "eval_pictures/image_%lld", (long long)image->id);
    if (tt_journal_takes_pictures(journal)) {
        tt_str_clear(&drawing->bytes);
        TT_TRY(tt_image_encode_png(&drawing->picture, &drawing->bytes));
        tt_journal_picture(journal, name, drawing->step, drawing->picture.height, drawing->picture.width,
                           &drawing->bytes);
    }
    tt_snprintf(name, sizeof name, "%lld-%lld.jpg", (long long)drawing->step, (long long)image->id);
    tt_snprintf(file, sizeof file, "pictures/%s", name);
    TT_TRY(tt_path_set(&path, drawing->pictures->output_dir, file));
    tt_str_clear(&drawing->bytes);
    TT_TRY(tt_image_encode_jpeg(&drawing->picture, JPEG_QUALITY, &drawing->bytes));
    TT_TRY(tt_file_write_atomic(path.text, drawing->bytes.data, drawing->bytes.bytes));
    return record(drawing, image, name, boxes, detections);
}

static tt_status draw(struct drawing *drawing, int64_t index)
{
    const struct tt_detect_inputs *inputs = drawing->pictures->inputs;
    const struct tt_detect_record *image = tt_detect_dataset_record(inputs->eval, index);
    tt_image_deinit(&drawing->image);
    tt_image_deinit(&drawing->picture);
    TT_TRY(list_found(drawing, image->id));
    TT_TRY(tt_pixel_cache_read(inputs->cache, &image->file, (int64_t)inputs->spec->max_image_pixels,
                               &drawing->image));
    TT_TRY(tt_image_shrink(&drawing->image, LONGEST, &drawing->picture));
    double scale = (double)drawing->picture.width / (double)drawing->image.width;
    const struct tt_box_style truths = {.scale = scale, .colour = truth_colour};
    const struct tt_box_style found = {
        .scale = scale, .min_score = inputs->spec->picture_score, .colour = found_colour};
    int64_t boxes = tt_truths_draw(&drawing->picture, inputs->eval, index, &truths);
    int64_t detections = tt_detections_draw(&drawing->picture, inputs->eval, &drawing->list, &found);
    return write(drawing, image, boxes, detections);
}

void tt_shown_pictures_draw(struct tt_shown_pictures *pictures, int64_t step,
                            const struct tt_map_detection *found, int64_t count)
{
    struct drawing drawing = {.pictures = pictures, .step = step, .found = found, .count = count};
    tt_status status = TT_OK;
    if (pictures->file == NULL) return;
    const struct tt_detect_inputs *inputs = pictures->inputs;
    int64_t images = tt_detect_dataset_count(inputs->eval), most = inputs->spec->eval_pictures;
    for (int64_t i = 0; i < images && i < most && status == TT_OK; i++) status = draw(&drawing, i);
    if (status != TT_OK && !pictures->failed)
        tt_warn("%s; training continues without pictures of the evaluation after step %lld",
                tt_error_last()->message, (long long)step);
    if (status != TT_OK) tt_error_clear();
    pictures->failed |= status != TT_OK;
    tt_image_deinit(&drawing.image);
    tt_image_deinit(&drawing.picture);
    tt_detection_list_deinit(&drawing.list);
    tt_str_deinit(&drawing.bytes);
}
