#include "engine/executor_offload.h"

#include "backend/profile.h"
#include "base/alloc.h"

enum { PLACES = 2 };

struct place {
    tt_tensor x_TD;
    struct tt_event *written; /* on the compute stream: its value was written, or its last reader is done */
    struct tt_event *copied;  /* on the copy stream: it was copied out, or filled */
    int owner;                /* number of the offloaded block whose input is here or on its way; -1: none */
    bool leaving;             /* a copy to the host was queued, and no wait for it yet */
};

struct tt_offload {
    struct tt_stream *copies;
    struct tt_buffer **host; /* [count]: inputs by number; NULL for the last two */
    int *block_of;           /* [count] */
    int *number_of;          /* [model->block_count]: -1 when not offloaded */
    int count;
    int64_t dim;
    struct place places[PLACES];
};

static tt_status create_parts(struct tt_device *device, const struct tt_model *model, size_t input_bytes,
                              struct tt_offload *offload)
{
    TT_TRY(tt_stream_create_copy(device, &offload->copies));
    for (int i = 0; i < PLACES; i++) {
        TT_TRY(tt_event_create(device, &offload->places[i].written));
        TT_TRY(tt_event_create(device, &offload->places[i].copied));
    }
    for (int k = 0; k + PLACES < offload->count; k++) {
        tt_status status = tt_host_buffer_create(device, input_bytes, TT_PURPOSE_OFFLOAD, &offload->host[k]);
        if (status != TT_OK) {
            tt_while("allocating host memory for the input of %s", model->blocks[offload->block_of[k]].name);
            return status;
        }
    }
    return TT_OK;
}

tt_status tt_offload_create(struct tt_device *device, const struct tt_model *model,
                            const enum tt_level *levels, int64_t tokens_max, struct tt_offload **out)
{
    int count = 0;
    for (int i = 0; i < model->block_count; i++) count += levels[i] == TT_RECOMPUTE_OFFLOAD;
    *out = NULL;
    if (count == 0) return TT_OK;
    struct tt_offload *offload = tt_calloc(1, sizeof *offload);
    if (offload == NULL) return TT_ERR_MEMORY;
    tt_status status = TT_OK;
    offload->dim = model->facts.hidden_size;
    offload->host = tt_calloc((size_t)count, sizeof(struct tt_buffer *));
    offload->block_of = tt_calloc((size_t)count, sizeof *offload->block_of);
    offload->number_of = tt_calloc((size_t)model->block_count, sizeof *offload->number_of);
    if (offload->host == NULL || offload->block_of == NULL || offload->number_of == NULL)
        TT_GO(TT_ERR_MEMORY);
    for (int i = 0; i < model->block_count; i++) {
        offload->number_of[i] = -1;
        if (levels[i] != TT_RECOMPUTE_OFFLOAD) continue;
        offload->block_of[offload->count] = i;
        offload->number_of[i] = offload->count++;
    }
    size_t row_bytes = (size_t)model->facts.hidden_size * tt_dtype_bytes(model->options.compute_dtype);
    TT_GO(create_parts(device, model, (size_t)tokens_max * row_bytes, offload));
    *out = offload;
out:
    if (status != TT_OK) tt_offload_destroy(offload);
    return status;
}

void tt_offload_destroy(struct tt_offload *offload)
{
    if (offload == NULL) return;
    for (int i = 0; i < PLACES; i++) {
        tt_event_destroy(offload->places[i].written);
        tt_event_destroy(offload->places[i].copied);
    }
    for (int k = 0; k < offload->count && offload->host != NULL; k++) tt_buffer_destroy(offload->host[k]);
    if (offload->copies != NULL) tt_stream_destroy(offload->copies);
    tt_free(offload->host);
    tt_free(offload->block_of);
    tt_free(offload->number_of);
    tt_free(offload);
}

tt_status tt_offload_begin(struct tt_offload *offload, const struct tt_pass *pass)
{
    if (offload == NULL) return TT_OK;
    for (int i = 0; i < PLACES && i < offload->count; i++) {
        struct place *place = &offload->places[i];
        place->owner = -1;
        place->leaving = false;
        TT_TRY(tt_workspace_2d(pass->lent.workspace, "input on its way to or from the host",
                               pass->in.compute_dtype, pass->in.batch->token_count, offload->dim,
                               &place->x_TD));
    }
    return TT_OK;
}

static struct place *place_of(struct tt_offload *offload, int number)
{
    return &offload->places[number % PLACES];
}

/* The span is the part of a copy that no compute hides. */
static tt_status compute_waits(const struct tt_pass *pass, struct tt_event *event)
{
    tt_span_begin(pass->lent.stream, TT_SPAN_OFFLOAD_WAIT);
    tt_status status = tt_stream_wait(pass->lent.stream, event);
    tt_span_end(pass->lent.stream, TT_SPAN_OFFLOAD_WAIT);
    return status;
}

tt_status tt_offload_take(struct tt_offload *offload, const struct tt_pass *pass, int block, tt_tensor *x_TD)
{
    *x_TD = (tt_tensor){0};
    if (offload == NULL || offload->number_of[block] < 0) return TT_OK;
    struct place *place = place_of(offload, offload->number_of[block]);
    if (place->leaving) TT_TRY(compute_waits(pass, place->copied));
    place->leaving = false;
    place->owner = offload->number_of[block];
    *x_TD = place->x_TD;
    return TT_OK;
}

tt_status tt_offload_put(struct tt_offload *offload, const struct tt_pass *pass, int block)
{
    if (offload == NULL || offload->number_of[block] < 0) return TT_OK;
    int number = offload->number_of[block];
    struct place *place = place_of(offload, number);
    if (offload->host[number] == NULL) return TT_OK; /* the last user of its place: it stays */
    TT_TRY(tt_event_record(place->written, pass->lent.stream));
    TT_TRY(tt_stream_wait(offload->copies, place->written));
    TT_TRY(tt_copy_to_host(offload->copies, tt_buffer_data(offload->host[number]), place->x_TD.data,
                           tt_tensor_bytes(place->x_TD)));
    place->leaving = true;
    return tt_event_record(place->copied, offload->copies);
}

tt_status tt_offload_get(struct tt_offload *offload, const struct tt_pass *pass, int block)
{
    if (offload == NULL || offload->number_of[block] < 0) return TT_OK;
    int number = offload->number_of[block];
    struct place *place = place_of(offload, number);
    if (place->owner != number)
        return tt_fail(TT_ERR_INTERNAL, "the input of block %d is not on the device when its backward begins",
                       block);
    /* An input that stayed on the device needs no wait. */
    return offload->host[number] != NULL ? compute_waits(pass, place->copied) : TT_OK;
}

tt_status tt_offload_done(struct tt_offload *offload, const struct tt_pass *pass, int block)
{
    if (offload == NULL || offload->number_of[block] < PLACES) return TT_OK;
    int next = offload->number_of[block] - PLACES;
    struct place *place = place_of(offload, next);
    TT_TRY(tt_event_record(place->written, pass->lent.stream));
    TT_TRY(tt_stream_wait(offload->copies, place->written));
    TT_TRY(tt_copy_to_device(offload->copies, place->x_TD.data, tt_buffer_data(offload->host[next]),
                             tt_tensor_bytes(place->x_TD)));
    place->owner = next;
    return tt_event_record(place->copied, offload->copies);
}
