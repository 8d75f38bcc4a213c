/* A micro batch on the device: its tokens (rank_tokens.c), and what is attached to them (rank_images.c). */
#include "engine/rank_impl.h"

/* The pass of an empty batch. */
static tt_status begin_pass(struct tt_rank *rank, struct tt_pass *pass)
{
    rank->batch = (struct tt_device_batch){0};
    rank->results = (struct tt_pass_results){0};
    *pass = (struct tt_pass){
        .lent = {.stream = rank->stream, .workspace = rank->workspace},
        .in = {.batch = &rank->batch, .compute_dtype = rank->model->options.compute_dtype},
        .out = &rank->results,
    };
    return tt_rank_lend_sums(rank);
}

tt_status tt_rank_upload(struct tt_rank *rank, const struct tt_batch *batch, struct tt_pass *pass)
{
    TT_TRY(begin_pass(rank, pass));
    return tt_rank_place_tokens(rank, batch, pass);
}

tt_status tt_rank_upload_images(struct tt_rank *rank, const struct tt_detect_batch *batch, double weight,
                                struct tt_pass *pass)
{
    TT_TRY(begin_pass(rank, pass));
    return tt_rank_attach_images(rank, batch, weight);
}

tt_status tt_rank_upload_micro(struct tt_rank *rank, const struct tt_micro *micro, struct tt_pass *pass)
{
    TT_TRY(begin_pass(rank, pass));
    TT_TRY(tt_rank_place_tokens(rank, &micro->tokens, pass));
    if (micro->images == NULL) return TT_OK;
    int64_t images = micro->images->step_images;
    return tt_rank_attach_images(rank, micro->images, 1.0 / (double)(images > 0 ? images : 1));
}
