/* A Parquet or Arrow file of images with boxes. The first byte chooses the format of the boxes, a split, and classes
 * that are known before. */
/* links: tt_detect */
/* words: src/detect/tables.c */
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "detect/annotations.h"
#include "folder.h"

static tt_status know(struct tt_annotations *notes)
{
    TT_TRY(tt_annotations_set_class(notes, 1, "bar", "Bar", 1));
    notes->classes_fixed = true;
    return tt_name_index_add(&notes->by_key, notes->classes[1].key, 1);
}

/* Reads every byte of an image, so that a sanitizer sees one that is not there. */
static void check(const struct tt_annotations *notes)
{
    for (size_t i = 0; i < notes->image_count; i++) {
        const struct tt_noted_image *image = &notes->images[i];
        if (image->in_table != (image->data != NULL) || (image->noted && image->path == NULL)) abort();
        const volatile uint8_t *bytes = image->data;
        for (int64_t b = 0; b < image->data_bytes; b++) (void)bytes[b];
    }
    for (size_t b = 0; b < notes->box_count; b++) {
        const struct tt_noted_box *box = &notes->boxes[b];
        if (box->image >= notes->image_count || notes->images[box->image].path == NULL) abort();
        if (box->box.label < 1 || (size_t)box->box.label >= notes->class_count || !isfinite(box->box.x))
            abort();
        if (notes->classes[box->box.label].name == NULL) abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tt_annotations notes = {0};
    if (size == 0) return 0;
    const char *path = fuzz_write("x.parquet", data + 1, size - 1);
    const struct tt_tables_config config = {.paths = &path,
                                            .count = 1,
                                            .split = "train",
                                            .box_format = (enum tt_box_format)(data[0] % 3),
                                            .share = data[0] & 4 ? 0.5 : 0,
                                            .images_only = (data[0] & 24) == 24};
    tt_status status = data[0] & 8 ? know(&notes) : TT_OK;
    if (status == TT_OK) status = tt_tables_read(&notes, &config);
    if (status != TT_OK && status != TT_ERR_DATA && status != TT_ERR_UNSUPPORTED) abort();
    if (status == TT_OK) check(&notes);
    tt_annotations_deinit(&notes);
    return 0;
}
