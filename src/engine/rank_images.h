/* Images as a kind of attachment (attached.h): batches of a detector, and their anchors. */
#ifndef TT_ENGINE_RANK_IMAGES_H
#define TT_ENGINE_RANK_IMAGES_H

#include "detect/batch.h"
#include "engine/attached.h"

extern const struct tt_attached_ops tt_attached_images;

/* A part of a micro batch. The heads multiply each image's losses by `weight`. Lends the batch. */
static inline struct tt_micro_part tt_images_part(const struct tt_detect_batch *batch, double weight)
{
    return (struct tt_micro_part){TT_ATTACHED_IMAGES, batch, weight};
}

/* Memory for the pixels of a batch, for struct tt_detect_loader_config: a page-locked piece of the ring, or the heap's
 * when all pieces are lent. Callable from any thread. `rank`: a struct tt_rank, which must outlive the memory. */
void *tt_rank_lend_pixels(void *rank, size_t bytes);
void tt_rank_return_pixels(void *rank, void *block);

#endif
