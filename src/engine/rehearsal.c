#include "engine/rehearsal.h"

#include "backend/chips.h"
#include "backend/plan/plan.h"
#include "base/alloc.h"
#include "engine/rank_pass.h"

static tt_status run_pass(struct tt_rank *rank, const struct tt_canvas *canvas)
{
    tt_status status = TT_OK;
    struct tt_pass pass;
    const struct tt_batch no_tokens = {0};
    TT_GO(tt_rank_upload(rank, &no_tokens, &pass));
    TT_GO(tt_rank_attach_largest(rank, &rank->limits));
    pass.in.training = pass.in.gradient = canvas->trains;
    pass.in.want_logits = !canvas->trains;
    TT_GO(tt_executor_forward(rank->executor, &pass));
    if (canvas->trains) TT_GO(tt_executor_backward(rank->executor, &pass, true));
out:
    tt_executor_end(rank->executor);
    return status;
}

tt_status tt_rehearse(const struct tt_rank *rank, const char *stands_for, const struct tt_canvas *canvas,
                      struct tt_conv2d_requests *requests)
{
    tt_status status = TT_OK;
    struct tt_rank planned = {0};
    struct tt_comm *alone = NULL;
    TT_GO(tt_comm_create_planned(1, 1, &alone));
    const struct tt_rank_config config = {
        .device = {.kind = "plan",
                   .threads = 1,
                   .stands_for = stands_for,
                   .tuning = *tt_device_tuning_of(rank->device)},
        .world = alone,
        .shard_comm = alone,
        .strategy = TT_NO_SHARD,
        .model_facts = &rank->model->facts,
        .model_options = rank->model->options,
        .objective = &rank->objective,
        .limits = {.images = canvas->images, .height = canvas->height, .width = canvas->width, .boxes = 1},
        .train = canvas->trains,
        .optimizer = rank->optimizer,
        .reduce_dtype = TT_F32,
    };
    TT_GO(tt_rank_init(&config, &planned));
    tt_plan_record_convolutions(planned.device, requests);
    TT_GO(run_pass(&planned, canvas));
out:
    if (status != TT_OK) tt_while("preparing the convolutions of a detector");
    tt_rank_deinit(&planned);
    tt_comm_destroy(alone);
    return status;
}

static bool is_known(const struct tt_rehearsals *known, const struct tt_canvas *canvas)
{
    for (size_t i = 0; i < known->count; i++) {
        const struct tt_canvas *c = &known->items[i];
        if (c->images == canvas->images && c->height == canvas->height && c->width == canvas->width &&
            c->trains == canvas->trains)
            return true;
    }
    return false;
}

tt_status tt_rehearsals_prepare(struct tt_rehearsals *known, const struct tt_rank *rank,
                                const struct tt_canvas *canvas)
{
    if (canvas->images == 0 || tt_device_is_host(rank->device) || is_known(known, canvas)) return TT_OK;
    TT_TRY(tt_grow(&known->items, known->count, &known->capacity));
    known->items[known->count++] = *canvas;
    struct tt_conv2d_requests requests = {0};
    const struct tt_chip *chip = tt_device_chip(rank->device);
    tt_status status = tt_rehearse(rank, chip != NULL ? chip->name : "hopper-or-newer", canvas, &requests);
    if (status == TT_OK) status = tt_conv2d_prepare(rank->stream, &requests);
    tt_conv2d_requests_deinit(&requests);
    return status;
}

void tt_rehearsals_deinit(struct tt_rehearsals *rehearsals)
{
    tt_free(rehearsals->items);
    *rehearsals = (struct tt_rehearsals){0};
}
