/* A file of COCO's instances. The first byte is the kind of the labels and whether images are split. */
/* links: tt_detect */
/* words: src/detect/coco_json.c */
#include <math.h>

#include "detect/annotations.h"
#include "folder.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tt_annotations notes = {0};
    if (size == 0) return 0;
    (void)fuzz_write("a.jpg", "x", 1);
    const char *path = fuzz_write("x.json", data + 1, size - 1);
    enum tt_detect_labels labels = (data[0] & 1) != 0 ? TT_DETECT_LABELS_RAW : TT_DETECT_LABELS_SORTED;
    tt_status status =
        tt_coco_read(&notes, path, fuzz_folder(), "train", labels, (data[0] & 2) != 0 ? 0.5 : 0, false);
    if (status != TT_OK && status != TT_ERR_DATA && status != TT_ERR_IO) abort();
    for (size_t b = 0; status == TT_OK && b < notes.box_count; b++) {
        const struct tt_noted_box *box = &notes.boxes[b];
        if (box->image >= notes.image_count || notes.images[box->image].path == NULL) abort();
        if (box->box.label < 1 || (size_t)box->box.label >= notes.class_count || !isfinite(box->box.w))
            abort();
    }
    tt_annotations_deinit(&notes);
    return 0;
}
