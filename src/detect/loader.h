/* Reads micro batches of images with boxes ahead of the training, on the threads of vision/loader.h. The batches are
 * those of detect/order.h, in its order and with the same bits for any number of threads. */
#ifndef TT_DETECT_LOADER_H
#define TT_DETECT_LOADER_H

#include "detect/batch.h"
#include "detect/order.h"
#include "vision/pixel_cache.h"

struct tt_detect_loader_config {
    const struct tt_detect_dataset *dataset; /* borrowed */
    struct tt_detect_order_config order;
    int rank;
    int workers;                  /* threads; at least 1 */
    int ahead;                    /* finished batches that may wait; at least 1 */
    tt_dtype pixel_dtype;         /* TT_F32 or TT_BF16 */
    int64_t max_pixels;           /* of an image file */
    struct tt_pixel_cache *cache; /* borrowed; NULL: none */
    /* Memory of the batches' pixels (page-locked, for copies to a GPU); NULL: the heap's. */
    void *(*allocate)(void *context, size_t bytes); /* NULL with the error record set */
    void (*release)(void *context, void *block);
    void *context;
};

struct tt_detect_loader;
/* The first batch is micro step 0 of `first_step`, counted from the start of the run. */
TT_MUST_USE tt_status tt_detect_loader_create(const struct tt_detect_loader_config *config,
                                              int64_t first_step, struct tt_detect_loader **out);
/* The next micro batch, epoch after epoch without end; `batch` is lent until the next call. An image that cannot be
 * decoded is an error that names its file. */
TT_MUST_USE tt_status tt_detect_loader_next(struct tt_detect_loader *loader,
                                            const struct tt_detect_batch **batch);
/* Seconds that tt_detect_loader_next has waited for threads. */
double tt_detect_loader_waited(const struct tt_detect_loader *loader);
void tt_detect_loader_destroy(struct tt_detect_loader *loader); /* takes NULL */

#endif
