/* Boxes and class descriptions of Open Images. The first byte says which. */
/* links: tt_detect */
/* words: src/detect */
#include "detect/annotations.h"
#include "folder.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tt_annotations notes = {0};
    size_t image;
    if (size == 0) return 0;
    const char *path = fuzz_write("x.csv", data + 1, size - 1);
    for (int i = 0; i < 3; i++) {
        const char name[2] = {(char)('a' + i), '\0'};
        if (tt_annotations_add_image(&notes, name, "/x", &image) != TT_OK) abort();
    }
    tt_status status = TT_OK;
    if ((data[0] & 1) != 0) status = tt_open_images_read_classes(&notes, path);
    if ((data[0] & 1) == 0) status = tt_open_images_read(&notes, path, (data[0] & 2) != 0 ? 0.5 : 0, false);
    if (status != TT_OK && status != TT_ERR_DATA) abort();
    for (size_t b = 0; b < notes.box_count; b++) {
        const struct tt_noted_box *box = &notes.boxes[b];
        if (box->image >= notes.image_count || box->box.label < 1) abort();
        if ((size_t)box->box.label >= notes.class_count ||
            !(box->box.x >= 0 && box->box.x + box->box.w <= 1.0001))
            abort();
    }
    tt_annotations_deinit(&notes);
    return 0;
}
