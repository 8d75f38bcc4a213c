#include "detect/drawing.h"

#include "base/number.h"
#include "image/draw.h"

enum { FRAME = 2, NAME_BYTES = 80 }; /* FRAME: pixels */

struct corners {
    float x1, y1, x2, y2;
};

static struct corners scale_box(double x1, double y1, double x2, double y2, double scale)
{
    return (struct corners){(float)(x1 * scale), (float)(y1 * scale), (float)(x2 * scale),
                            (float)(y2 * scale)};
}

static void choose_colour(const struct tt_box_style *style, int32_t label, uint8_t colour[3])
{
    if (style->colour == NULL) tt_draw_colour(label, colour);
    for (int c = 0; c < 3 && style->colour != NULL; c++) colour[c] = style->colour[c];
}

static const char *name_of(const struct tt_detect_dataset *dataset, int32_t label)
{
    const char *name = tt_detect_dataset_class(dataset, label)->name;
    return name != NULL ? name : "";
}

/* Names stay within the picture. */
static int32_t limit(float place, int32_t most)
{
    if (!(place > 0)) return 0; /* also for NaN */
    return place > (float)most ? most : (int32_t)place;
}

int64_t tt_detections_draw(struct tt_image *image, const struct tt_detect_dataset *dataset,
                           const struct tt_detection_list *list, const struct tt_box_style *style)
{
    int64_t drawn = 0;
    for (int64_t i = list->count - 1; i >= 0; i--) {
        const struct tt_detection *found = &list->items[i];
        uint8_t colour[3];
        char label[NAME_BYTES];
        if (!(found->score >= style->min_score)) continue;
        struct corners box = scale_box(found->x1, found->y1, found->x2, found->y2, style->scale);
        tt_snprintf(label, sizeof label, "%.60s %.2f", name_of(dataset, found->label), found->score);
        choose_colour(style, found->label, colour);
        tt_draw_box(image, box.x1, box.y1, box.x2, box.y2, FRAME, colour);
        tt_draw_text(image, limit(box.x1, image->width), limit(box.y1 - TT_DRAW_TEXT_HEIGHT, image->height),
                     label, colour);
        drawn++;
    }
    return drawn;
}

int64_t tt_truths_draw(struct tt_image *image, const struct tt_detect_dataset *dataset, int64_t index,
                       const struct tt_box_style *style)
{
    const struct tt_detect_record *record = tt_detect_dataset_record(dataset, index);
    const struct tt_detect_box *boxes = tt_detect_dataset_boxes(dataset, index);
    for (int64_t b = 0; b < record->box_count; b++) {
        uint8_t colour[3];
        char label[NAME_BYTES];
        struct corners box =
            scale_box(boxes[b].x, boxes[b].y, boxes[b].x + boxes[b].w, boxes[b].y + boxes[b].h, style->scale);
        tt_snprintf(label, sizeof label, "%.60s", name_of(dataset, boxes[b].label));
        choose_colour(style, boxes[b].label, colour);
        tt_draw_box(image, box.x1, box.y1, box.x2, box.y2, FRAME, colour);
        tt_draw_text(image, limit(box.x1, image->width), limit(box.y2, image->height - TT_DRAW_TEXT_HEIGHT),
                     label, colour);
    }
    return record->box_count;
}
