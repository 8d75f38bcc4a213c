#include "engine/feed_stream.h"

#include "base/alloc.h"

struct stream {
    struct tt_step_flow *flow; /* lent */
    int data_rank;
    int64_t step, epoch;              /* that is taken */
    const struct tt_sampler *sampler; /* of it; NULL: none is */
    struct tt_batch_storage storage;
};

static void give_back(struct stream *stream)
{
    if (stream->sampler != NULL) tt_step_flow_give_back(stream->flow, stream->step);
    stream->sampler = NULL;
}

static tt_status take(struct stream *stream, int64_t step)
{
    if (stream->sampler != NULL && stream->step == step) return TT_OK;
    give_back(stream);
    stream->step = step;
    return tt_step_flow_take(stream->flow, step, &stream->sampler, &stream->epoch);
}

static tt_status step_of(void *state, int64_t step, struct tt_step_facts *facts)
{
    struct stream *stream = state;
    TT_TRY(take(stream, step));
    tt_sampler_step(stream->sampler, 0, facts);
    facts->epoch = stream->epoch;
    return TT_OK;
}

static tt_status micro_of(void *state, int64_t step, int64_t micro, struct tt_micro *out)
{
    struct stream *stream = state;
    TT_TRY(take(stream, step));
    return tt_sampler_batch(stream->sampler, 0, micro, stream->data_rank, &stream->storage, &out->tokens);
}

static tt_status shared_of(void *state, int64_t step, int64_t micro, struct tt_micro *out)
{
    struct stream *stream = state;
    TT_TRY(take(stream, step));
    return tt_sampler_shared(stream->sampler, 0, micro, stream->data_rank, &stream->storage, &out->tokens);
}

static void destroy(void *state)
{
    struct stream *stream = state;
    give_back(stream);
    tt_batch_storage_deinit(&stream->storage);
    tt_free(stream);
}

static const struct tt_feed_ops ops = {
    .step = step_of, .micro = micro_of, .shared = shared_of, .destroy = destroy};

tt_status tt_feed_of_stream(struct tt_step_flow *flow, int data_rank, struct tt_feed *feed)
{
    struct stream *stream = tt_calloc(1, sizeof *stream);
    *feed = (struct tt_feed){0};
    if (stream == NULL) return TT_ERR_MEMORY;
    *stream = (struct stream){.flow = flow, .data_rank = data_rank};
    *feed = (struct tt_feed){.ops = &ops, .state = stream};
    return TT_OK;
}
