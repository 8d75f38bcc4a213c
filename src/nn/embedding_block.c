#include "nn/embedding_block.h"

#include "backend/ops/elementwise.h"
#include "backend/ops/embedding.h"
#include "backend/ops/noise.h"
#include "nn/table.h"

static tt_status scale_rows(const struct tt_embedding_block *embedding, const struct tt_pass *pass,
                            tt_tensor rows_TD)
{
    float factor = embedding->scale;
    if (factor == 0 || factor == 1) return TT_OK;
    if (pass->in.compute_dtype == TT_BF16) factor = tt_bf16_to_f32(tt_f32_to_bf16(factor));
    struct tt_scale_args args = {.x = rows_TD, .factor = factor};
    return tt_scale(pass->lent.stream, &args);
}

static tt_status add_noise(const struct tt_pass *pass, tt_tensor rows_TD)
{
    if (!pass->in.training || !(pass->in.embedding_noise > 0)) return TT_OK;
    struct tt_add_noise_args args = {.x_TD = rows_TD,
                                     .row_keys_T = pass->in.batch->row_keys_T,
                                     .cu_seqlens = pass->in.batch->cu_seqlens,
                                     .rng = tt_rng_derive(pass->in.dropout_rng, "embedding"),
                                     .alpha = pass->in.embedding_noise};
    return tt_add_noise(pass->lent.stream, &args);
}

/* The output of transformers' module, on which its hook acts: scale and norm are part of it. */
static tt_status finish_rows(const struct tt_embedding_block *embedding, const struct tt_pass *pass,
                             tt_tensor rows_TD)
{
    if (tt_norm_exists(&embedding->norm))
        TT_TRY(tt_norm_forward(&embedding->norm, pass, rows_TD, rows_TD, (tt_tensor){0}, NULL));
    TT_TRY(scale_rows(embedding, pass, rows_TD));
    return add_noise(pass, rows_TD);
}

/* Rows that backward needs, for embeddings of each layer. */
struct saved {
    tt_tensor kept_TD;
};

/* The matrix that may come in parts: the larger one of those that a frozen block has. */
static tt_param *split(const struct tt_block *block)
{
    const struct tt_embedding_block *embedding = block->impl;
    tt_param *table = embedding->inputs != NULL ? embedding->inputs->table : embedding->table;
    return table->trainable || embedding->trained.rows != NULL ? NULL : table;
}

static tt_status forward(struct tt_block *block, const struct tt_pass *pass, tt_tensor x_TD, void *record,
                         tt_tensor y_TD)
{
    const struct tt_embedding_block *embedding = block->impl;
    const struct tt_layer_inputs *inputs = embedding->inputs;
    struct saved *saved = record;
    const tt_param *matrix = split(block);
    (void)x_TD;
    if (saved != NULL) saved->kept_TD = (tt_tensor){0};
    TT_TRY(tt_table_read(pass, embedding->table, tt_table_is_parted(pass, embedding->table, matrix), y_TD));
    TT_TRY(tt_token_rows_read(&embedding->trained, pass, y_TD));
    if (pass->in.batch->token_count > 0) TT_TRY(finish_rows(embedding, pass, y_TD));
    if (inputs == NULL) return TT_OK;
    bool parted = tt_table_is_parted(pass, inputs->table, matrix);
    if (pass->in.batch->token_count == 0) return tt_table_read(pass, inputs->table, parted, (tt_tensor){0});
    return tt_layer_inputs_forward(inputs, pass, y_TD, parted, saved != NULL ? &saved->kept_TD : NULL);
}

/* dy becomes the gradient of the table's rows. */
static tt_status norm_back(const struct tt_embedding_block *embedding, const struct tt_pass *pass,
                           tt_tensor dy_TD)
{
    struct tt_workspace *workspace = pass->lent.workspace;
    tt_tensor rows_TD, normed_TD, rstd_T;
    if (!tt_norm_exists(&embedding->norm)) return TT_OK;
    size_t mark = tt_workspace_mark(workspace);
    TT_TRY(tt_workspace_2d(workspace, "rows of the embedding", dy_TD.dtype, dy_TD.dims[0], dy_TD.dims[1],
                           &rows_TD));
    TT_TRY(tt_workspace_2d(workspace, "normed rows of the embedding", dy_TD.dtype, dy_TD.dims[0],
                           dy_TD.dims[1], &normed_TD));
    TT_TRY(tt_workspace_1d(workspace, "rstd of the embedding", TT_F32, dy_TD.dims[0], &rstd_T));
    struct tt_embedding_forward_args args = {
        .table_VD = embedding->table->value, .ids_T = pass->in.batch->ids_T, .y_TD = rows_TD};
    TT_TRY(tt_embedding_forward(pass->lent.stream, &args));
    TT_TRY(tt_token_rows_read(&embedding->trained, pass, rows_TD));
    TT_TRY(tt_norm_forward(&embedding->norm, pass, rows_TD, normed_TD, rstd_T, NULL));
    TT_TRY(tt_norm_backward(&embedding->norm, pass, rows_TD, rstd_T, (tt_tensor){0}, dy_TD, NULL));
    tt_workspace_release(workspace, mark);
    return TT_OK;
}

static tt_status backward(struct tt_block *block, const struct tt_pass *pass, tt_tensor x_TD,
                          const void *record, tt_tensor dy_TD, tt_tensor dx_TD)
{
    const struct tt_embedding_block *embedding = block->impl;
    const struct saved *saved = record;
    bool trains = embedding->table->trainable || embedding->trained.rows != NULL;
    (void)x_TD;
    (void)dx_TD;
    if (pass->in.batch->token_count == 0) return TT_OK;
    if (embedding->inputs != NULL)
        TT_TRY(tt_layer_inputs_backward(embedding->inputs, pass, saved->kept_TD,
                                        trains ? dy_TD : (tt_tensor){0}));
    if (!trains) return TT_OK;
    TT_TRY(scale_rows(embedding, pass, dy_TD));
    TT_TRY(norm_back(embedding, pass, dy_TD));
    TT_TRY(tt_token_rows_read_backward(&embedding->trained, pass, dy_TD));
    if (!embedding->table->trainable) return TT_OK;
    struct tt_embedding_backward_args args = {
        .dy_TD = dy_TD, .ids_T = pass->in.batch->ids_T, .dtable_VD = embedding->table->grad};
    return tt_embedding_backward(pass->lent.stream, &args);
}

static tt_status visit_linears(const struct tt_block *block, tt_linear_visit *visit, void *context)
{
    const struct tt_embedding_block *embedding = block->impl;
    if (embedding->inputs == NULL) return TT_OK;
    return tt_linear_group_visit(&embedding->inputs->projection, visit, context);
}

/* Rows are copied and added, not multiplied. */
static double flops(const struct tt_block *block, double length, bool full)
{
    const struct tt_embedding_block *embedding = block->impl;
    (void)length;
    return embedding->inputs != NULL ? tt_linear_group_flops(&embedding->inputs->projection, full) : 0;
}

const struct tt_block_ops tt_embedding_block_ops = {
    .kind = "embedding",
    .role = TT_ROLE_INPUT,
    .levels = TT_LEVELS_ONE,
    .saved_bytes = sizeof(struct saved),
    .forward = forward,
    .backward = backward,
    .visit_linears = visit_linears,
    .flops = flops,
    .split = split,
};
