#include "nn/decoder_layer.h"

#include <math.h>

struct saved {
    struct tt_self_attention_saved attention;
    struct tt_mlp_saved mlp;
};

const char *tt_level_name(enum tt_level level)
{
    static const char *const names[TT_LEVEL_COUNT] = {"none", "cheap", "block", "offload"};
    return (unsigned)level < TT_LEVEL_COUNT ? names[level] : "unknown";
}

static tt_status forward(struct tt_block *block, const struct tt_pass *pass, tt_tensor x_TD, void *record,
                         tt_tensor y_TD)
{
    const struct tt_decoder_layer *layer = block->impl;
    struct saved local = {0}, *saved = record != NULL ? record : &local;
    bool keep = record != NULL;
    size_t mark = tt_workspace_mark(pass->lent.workspace);
    TT_TRY(tt_mlp_push_mid(pass, x_TD.dims[1], &saved->mlp));
    TT_TRY(tt_self_attention_forward(&layer->attention, pass, x_TD, keep, &saved->attention,
                                     saved->mlp.x_mid_TD));
    TT_TRY(tt_mlp_forward(&layer->mlp, pass, x_TD, keep, &saved->mlp, y_TD));
    if (!keep) tt_workspace_release(pass->lent.workspace, mark);
    return TT_OK;
}

static tt_status backward(struct tt_block *block, const struct tt_pass *pass, tt_tensor x_TD,
                          const void *record, tt_tensor dy_TD, tt_tensor dx_TD)
{
    const struct tt_decoder_layer *layer = block->impl;
    const struct saved *saved = record;
    tt_tensor dmid_TD;
    size_t mark = tt_workspace_mark(pass->lent.workspace);
    TT_TRY(tt_workspace_2d(pass->lent.workspace, "gradient between attention and MLP", pass->in.compute_dtype,
                           dy_TD.dims[0], dy_TD.dims[1], &dmid_TD));
    const struct tt_linear_group *reader = tt_self_attention_gradient_reader(&layer->attention);
    bool goes_on = !tt_tensor_is_empty(dx_TD) || tt_self_attention_trains(&layer->attention);
    struct tt_quantized_rows rows = {.made = false};
    TT_TRY(tt_mlp_backward(&layer->mlp, pass, &saved->mlp, dy_TD, dmid_TD, reader,
                           goes_on && reader != NULL ? &rows : NULL));
    if (goes_on)
        TT_TRY(tt_self_attention_backward(&layer->attention, pass, x_TD, &saved->attention, dmid_TD, &rows,
                                          dx_TD));
    tt_workspace_release(pass->lent.workspace, mark);
    return TT_OK;
}

static tt_status visit_linears(const struct tt_block *block, tt_linear_visit *visit, void *context)
{
    const struct tt_decoder_layer *layer = block->impl;
    TT_TRY(tt_linear_group_visit(&layer->attention.qkv, visit, context));
    TT_TRY(tt_linear_group_visit(&layer->attention.o, visit, context));
    TT_TRY(tt_linear_group_visit(&layer->mlp.gate_up, visit, context));
    return tt_linear_group_visit(&layer->mlp.down, visit, context);
}

static double flops(const struct tt_block *block, double length, bool full)
{
    const struct tt_decoder_layer *layer = block->impl;
    const struct tt_self_attention *attention = &layer->attention;
    double window = attention->window > 0 ? fmin((double)attention->window, length) : length;
    double seen = length > 0 ? window - window * window / (2 * length) : 0; /* keys per query, their mean */
    double sum = tt_linear_group_flops(&attention->qkv, full) + tt_linear_group_flops(&attention->o, full);
    sum += tt_linear_group_flops(&layer->mlp.gate_up, full) + tt_linear_group_flops(&layer->mlp.down, full);
    /* forward: scores and values, 2 products of 2 FLOPs; backward: twice that */
    return sum + 12.0 * seen * (double)(attention->heads * attention->head_dim);
}

const struct tt_block_ops tt_decoder_layer_ops = {
    .kind = "decoder layer",
    .saved_bytes = sizeof(struct saved),
    .forward = forward,
    .backward = backward,
    .visit_linears = visit_linears,
    .flops = flops,
};
