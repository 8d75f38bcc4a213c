/* A micro batch on the device: its tokens (rank_tokens.c), and the attachments of all kinds (attached.h). */
#include "engine/rank_images.h"
#include "engine/rank_impl.h"

static const struct tt_attached_ops *const kinds[] = {&tt_attached_images, NULL};

tt_status tt_rank_attached_init(const struct tt_rank_config *config, struct tt_rank *rank)
{
    const struct tt_attached_ops *const *next = config->attached != NULL ? config->attached : kinds;
    for (; *next != NULL && rank->attached_count < TT_ATTACHMENTS_MAX; next++) {
        struct tt_rank_attached *attached = &rank->attached[rank->attached_count++];
        attached->ops = *next;
        TT_TRY(attached->ops->create(config, rank, &attached->state));
    }
    return TT_OK;
}

void tt_rank_attached_deinit(struct tt_rank *rank)
{
    for (int i = 0; i < rank->attached_count; i++)
        if (rank->attached[i].state != NULL) rank->attached[i].ops->destroy(rank->attached[i].state);
    rank->attached_count = 0;
}

static const struct tt_rank_attached *find(const struct tt_rank *rank, enum tt_attachment_kind kind)
{
    for (int i = 0; i < rank->attached_count; i++)
        if (rank->attached[i].ops->kind == kind && rank->attached[i].state != NULL) return &rank->attached[i];
    return NULL;
}

void *tt_rank_attached_state(const struct tt_rank *rank, enum tt_attachment_kind kind)
{
    const struct tt_rank_attached *attached = find(rank, kind);
    return attached != NULL ? attached->state : NULL;
}

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

static tt_status attach(struct tt_rank *rank, const struct tt_micro_part *part)
{
    const struct tt_rank_attached *attached = find(rank, part->kind);
    if (attached == NULL)
        return tt_fail(TT_ERR_INTERNAL, "a micro batch has an attachment that its rank has no memory for");
    return attached->ops->attach(rank, attached->state, part,
                                 &rank->batch.attachments[rank->batch.attachment_count++]);
}

tt_status tt_rank_upload_micro(struct tt_rank *rank, const struct tt_micro *micro, struct tt_pass *pass)
{
    TT_TRY(tt_rank_upload(rank, &micro->tokens, pass));
    for (int i = 0; i < micro->part_count; i++) TT_TRY(attach(rank, &micro->parts[i]));
    return TT_OK;
}

tt_status tt_rank_attach_largest(struct tt_rank *rank, const struct tt_batch_limits *limits)
{
    for (int i = 0; i < rank->attached_count; i++) {
        const struct tt_rank_attached *attached = &rank->attached[i];
        if (attached->state == NULL) continue;
        TT_TRY(attached->ops->attach_largest(rank, attached->state, limits,
                                             &rank->batch.attachments[rank->batch.attachment_count++]));
    }
    return TT_OK;
}

tt_status tt_rank_prepare(struct tt_rank *rank, const struct tt_pass *pass)
{
    const struct tt_device_batch *batch = pass->in.batch;
    for (int i = 0; i < batch->attachment_count; i++) {
        const struct tt_rank_attached *attached = find(rank, batch->attachments[i].kind);
        if (attached == NULL || attached->ops->prepare == NULL) continue;
        TT_TRY(attached->ops->prepare(rank, attached->state, &batch->attachments[i], pass));
    }
    return TT_OK;
}

/* ---- The next micro batch ---- */

static bool takes_ahead(const struct tt_rank *rank, const struct tt_rank_attached *attached)
{
    return attached != NULL && attached->state != NULL && attached->ops->takes_ahead != NULL &&
           attached->ops->takes_ahead(rank, attached->state);
}

bool tt_rank_takes_ahead(const struct tt_rank *rank)
{
    for (int i = 0; i < rank->attached_count; i++)
        if (takes_ahead(rank, &rank->attached[i])) return true;
    return false;
}

tt_status tt_rank_upload_ahead(struct tt_rank *rank, const struct tt_micro *micro)
{
    for (int i = 0; i < micro->part_count; i++) {
        const struct tt_rank_attached *attached = find(rank, micro->parts[i].kind);
        if (takes_ahead(rank, attached))
            TT_TRY(attached->ops->attach_ahead(rank, attached->state, &micro->parts[i]));
    }
    return TT_OK;
}

void tt_rank_forget_ahead(struct tt_rank *rank)
{
    for (int i = 0; i < rank->attached_count; i++)
        if (takes_ahead(rank, &rank->attached[i]))
            rank->attached[i].ops->forget_ahead(rank->attached[i].state);
}
