#include "engine/feed_rows.h"

#include "base/alloc.h"

struct rows {
    const struct tt_sampler *sampler; /* lent */
    int data_rank;
    struct tt_batch_storage storage;
};

static tt_status step_of(void *state, int64_t step, struct tt_step_facts *facts)
{
    const struct rows *rows = state;
    tt_sampler_step(rows->sampler, step, facts);
    return TT_OK;
}

static tt_status micro_of(void *state, int64_t step, int64_t micro, struct tt_micro *out)
{
    struct rows *rows = state;
    return tt_sampler_batch(rows->sampler, step, micro, rows->data_rank, &rows->storage, &out->tokens);
}

static tt_status shared_of(void *state, int64_t step, int64_t micro, struct tt_micro *out)
{
    struct rows *rows = state;
    return tt_sampler_shared(rows->sampler, step, micro, rows->data_rank, &rows->storage, &out->tokens);
}

static void destroy(void *state)
{
    struct rows *rows = state;
    tt_batch_storage_deinit(&rows->storage);
    tt_free(rows);
}

static const struct tt_feed_ops ops = {
    .step = step_of, .micro = micro_of, .shared = shared_of, .destroy = destroy};

tt_status tt_feed_of_rows(const struct tt_sampler *sampler, int data_rank, struct tt_feed *feed)
{
    struct rows *rows = tt_calloc(1, sizeof *rows);
    *feed = (struct tt_feed){0};
    if (rows == NULL) return TT_ERR_MEMORY;
    *rows = (struct rows){.sampler = sampler, .data_rank = data_rank};
    *feed = (struct tt_feed){.ops = &ops, .state = rows};
    return TT_OK;
}
