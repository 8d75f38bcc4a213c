/* The head of a model with scores: a linear of the last token of each sequence, as transformers'
 * GenericForSequenceClassification has it (modeling_layers.py, 5.24): score(norm(x))[last]. */
#include "backend/ops/elementwise.h"
#include "nn/head.h"

enum { PIECE = 256 };

/* The last token of each sequence, from the borders on the host. */
static tt_status push_last(const struct tt_pass *pass, tt_tensor *last_B)
{
    const struct tt_device_batch *batch = pass->in.batch;
    int32_t last[PIECE];
    TT_TRY(tt_workspace_1d(pass->lent.workspace, "last tokens", TT_I32, batch->sequence_count, last_B));
    for (int64_t first = 0; first < batch->sequence_count; first += PIECE) {
        int64_t count = batch->sequence_count - first;
        if (count > PIECE) count = PIECE;
        for (int64_t i = 0; i < count; i++) last[i] = batch->host_cu_seqlens[first + i + 1] - 1;
        TT_TRY(tt_copy_to_device(pass->lent.stream, (int32_t *)last_B->data + first, last,
                                 (size_t)count * sizeof *last));
    }
    return TT_OK;
}

/* The rows of the head while a pass runs, in scratch. */
struct rows {
    tt_tensor last_B, x_BD, n_BD, rstd_B, h_BR, keys_B;
};

static tt_status push_rows(const struct tt_head *head, const struct tt_pass *pass, tt_tensor x_TD,
                           struct rows *rows)
{
    int64_t count = pass->in.batch->sequence_count;
    TT_TRY(push_last(pass, &rows->last_B));
    TT_TRY(tt_head_gather(pass, rows->last_B, x_TD, &rows->x_BD));
    TT_TRY(tt_head_gather_keys(head, pass, rows->last_B, &rows->keys_B));
    TT_TRY(
        tt_workspace_2d(pass->lent.workspace, "normed rows", x_TD.dtype, count, x_TD.dims[1], &rows->n_BD));
    TT_TRY(tt_workspace_1d(pass->lent.workspace, "rstd", TT_F32, count, &rows->rstd_B));
    TT_TRY(tt_linear_push_h(&head->lm_head, pass, count, &rows->h_BR));
    return tt_head_norm_rows(head, pass, rows->x_BD, rows->n_BD, rows->rstd_B);
}

static struct tt_linear_call call_of(const struct tt_head *head, const struct tt_pass *pass,
                                     const struct rows *rows)
{
    return (struct tt_linear_call){.group = &head->lm_head,
                                   .pass = pass,
                                   .row_keys_T = rows->keys_B,
                                   .x_TI = rows->n_BD,
                                   .h_TR = rows->h_BR};
}

static tt_status forward(const struct tt_head *head, const struct tt_pass *pass, tt_tensor x_TD,
                         struct tt_head_saved *saved)
{
    struct rows rows;
    (void)saved; /* few rows: backward makes them again */
    tt_tensor scores_BL;
    if (pass->in.batch->sequence_count == 0) return TT_OK;
    TT_TRY(tt_workspace_2d(pass->lent.workspace, "scores", TT_F32, pass->in.batch->sequence_count,
                           tt_linear_group_out(&head->lm_head), &scores_BL));
    TT_TRY(tt_pass_give(pass, TT_RESULT_SCORES, 0, scores_BL));
    size_t mark = tt_workspace_mark(pass->lent.workspace);
    TT_TRY(push_rows(head, pass, x_TD, &rows));
    const struct tt_linear_call call = call_of(head, pass, &rows);
    TT_TRY(tt_linear_forward(&call, scores_BL));
    tt_workspace_release(pass->lent.workspace, mark);
    return TT_OK;
}

static tt_status backward(const struct tt_head *head, const struct tt_pass *pass, tt_tensor x_TD,
                          const struct tt_head_saved *saved, tt_tensor dx_TD)
{
    struct tt_workspace *workspace = pass->lent.workspace;
    int64_t count = pass->in.batch->sequence_count, labels = tt_linear_group_out(&head->lm_head);
    struct rows rows;
    tt_tensor again_BL, dscores_BL, dh_BR, drows_BD;
    (void)saved;
    if (count == 0) return tt_head_rows_backward(head, pass, &(struct tt_head_rows_gradient){.dx_TD = dx_TD});
    size_t mark = tt_workspace_mark(workspace);
    TT_TRY(push_rows(head, pass, x_TD, &rows));
    TT_TRY(tt_workspace_2d(workspace, "scores again", TT_F32, count, labels, &again_BL));
    TT_TRY(tt_workspace_2d(workspace, "gradient of scores", x_TD.dtype, count, labels, &dscores_BL));
    TT_TRY(tt_workspace_2d(workspace, "gradient of the head's rows", x_TD.dtype, count, x_TD.dims[1],
                           &drows_BD));
    TT_TRY(tt_linear_push_h(&head->lm_head, pass, count, &dh_BR));
    const struct tt_linear_call call = call_of(head, pass, &rows);
    TT_TRY(tt_linear_forward(&call, again_BL)); /* fills h */
    TT_TRY(tt_cast(pass->lent.stream, &(struct tt_cast_args){.x = pass->in.dscores_BL, .y = dscores_BL}));
    TT_TRY(tt_linear_backward_input(&call, dscores_BL, dh_BR, drows_BD));
    TT_TRY(tt_linear_backward_params(&call, dscores_BL, dh_BR));
    const struct tt_head_rows_gradient gradient = {rows.x_BD, rows.rstd_B, drows_BD, rows.last_B, dx_TD};
    TT_TRY(tt_head_rows_backward(head, pass, &gradient));
    tt_workspace_release(workspace, mark);
    return TT_OK;
}

const struct tt_head_ops tt_head_score = {.name = "score", .forward = forward, .backward = backward};
