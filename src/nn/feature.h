/* Features of images on their way through a detector. The output of a block may hold several: the feature that it made,
 * behind the features of earlier blocks that later blocks read. So the blocks of a detector are a chain like those of a
 * decoder; earlier features are not copied where the output has the memory of the input (`extends` in nn/block.h). */
#ifndef TT_NN_FEATURE_H
#define TT_NN_FEATURE_H

#include "nn/block.h"
#include "nn/conv.h"

enum { TT_FEATURES_MAX = 5 };

/* One feature: level n has an image's sides divided by 2^n (rounded up from level 6 on, as its convolution does). */
struct tt_feature {
    int level;
    int64_t channels;
};

struct tt_feature_list {
    struct tt_feature items[TT_FEATURES_MAX];
    int count;
};

static inline struct tt_image_shape tt_feature_shape(int level, const struct tt_attachment *images)
{
    int64_t unit = (int64_t)1 << level;
    return (struct tt_image_shape){images->count, (images->height + unit - 1) / unit,
                                   (images->width + unit - 1) / unit};
}

/* Elements of the first `count` features. */
static inline int64_t tt_feature_elements(const struct tt_feature_list *list, int count,
                                          const struct tt_attachment *images)
{
    int64_t elements = 0;
    for (int i = 0; i < count; i++)
        elements += tt_image_pixels(tt_feature_shape(list->items[i].level, images)) * list->items[i].channels;
    return elements;
}

/* Feature `index` in the memory of a block's input or output, as [P, C]; empty where that is empty. */
static inline tt_tensor tt_feature_view(tt_tensor all, const struct tt_feature_list *list, int index,
                                        const struct tt_attachment *images)
{
    if (tt_tensor_is_empty(all)) return all;
    int64_t offset = tt_feature_elements(list, index, images);
    return tt_tensor_2d((char *)all.data + (size_t)offset * tt_dtype_bytes(all.dtype), all.dtype,
                        tt_image_pixels(tt_feature_shape(list->items[index].level, images)),
                        list->items[index].channels);
}

/* Places of a level for a canvas of `pixels`; of an image of many pixels. */
static inline double tt_feature_places(int level, double pixels)
{
    return pixels / (double)((int64_t)1 << 2 * level);
}

/* The visit of blocks without linears. */
static inline tt_status tt_feature_visit_linears(const struct tt_block *block, tt_linear_visit *visit,
                                                 void *context)
{
    (void)block, (void)visit, (void)context;
    return TT_OK;
}

#endif
