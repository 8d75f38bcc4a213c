#include "engine/places.h"

#include <string.h>

void tt_places_output_dims(const struct tt_places *places, const struct tt_pass *pass, int block,
                           int64_t dims[2])
{
    const struct tt_model *model = places->model;
    dims[0] = pass->in.batch->token_count;
    dims[1] = model->blocks[block].width;
    if (dims[1] == 0) model->blocks[block].ops->output(&model->blocks[block], pass, dims);
}

static bool extends(const struct tt_places *places, int block)
{
    const struct tt_block *own = &places->model->blocks[block];
    return own->ops->extends != NULL && own->ops->extends(own);
}

/* Which of the two tensors has the gradient of the input of `block`: that of its output's where it extends its input,
 * else the other one. */
static int place_of_gradient(const struct tt_places *places, int block)
{
    int place = 0;
    for (int i = block; i < places->model->block_count; i++) place ^= !extends(places, i);
    return place;
}

tt_status tt_places_push_gradients(struct tt_places *places, const struct tt_pass *pass)
{
    bool alike = places->model->blocks[0].width > 0;
    places->gradients[0] = places->gradients[1] = (tt_tensor){0};
    for (int odd = 0; odd < 2; odd++) {
        int64_t largest[2] = {0, 0}, dims[2];
        for (int i = places->first_trainable + 1; i < places->model->block_count; i++) {
            if (!alike && place_of_gradient(places, i) != odd) continue;
            tt_places_output_dims(places, pass, i - 1, dims);
            if (dims[0] * dims[1] > largest[0] * largest[1]) memcpy(largest, dims, sizeof largest);
        }
        if (alike) tt_places_output_dims(places, pass, 0, largest);
        TT_TRY(tt_workspace_2d(places->workspace, "gradient of hidden states", pass->in.compute_dtype,
                               largest[0], largest[1], &places->gradients[odd]));
        if (!alike) continue;
        places->gradients[1] = places->gradients[0];
        return TT_OK;
    }
    return TT_OK;
}

tt_tensor tt_places_gradient(const struct tt_places *places, const struct tt_pass *pass, int block)
{
    tt_tensor all = places->gradients[place_of_gradient(places, block)];
    int64_t dims[2];
    if (block <= places->first_trainable || block == places->model->block_count) return (tt_tensor){0};
    tt_places_output_dims(places, pass, block - 1, dims);
    return tt_tensor_2d(all.data, all.dtype, dims[0], dims[1]);
}

tt_status tt_places_push_output(const struct tt_places *places, const struct tt_pass *pass, int block,
                                tt_tensor x_TD, tt_tensor *y_TD)
{
    int64_t dims[2], room[2];
    int last = block;
    tt_places_output_dims(places, pass, block, dims);
    while (last + 1 < places->model->block_count && extends(places, last + 1)) last++;
    tt_places_output_dims(places, pass, last, room);
    *y_TD = x_TD;
    if (!extends(places, block) || tt_tensor_is_empty(x_TD))
        TT_TRY(tt_workspace_2d(places->workspace, "hidden states", pass->in.compute_dtype, room[0], room[1],
                               y_TD));
    *y_TD = tt_tensor_2d(y_TD->data, y_TD->dtype, dims[0], dims[1]);
    return TT_OK;
}
